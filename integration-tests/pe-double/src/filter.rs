//! Filters of routes: which tuples an importer wants, as an expression over the attributes of a tuple.
//!
//! The tuples of doubles have nothing but a number. So each integer attribute of the type of the port has that number
//! as its value, and the others have none: what is said of them is never true.
//!
//! A text that the runtime cannot read ends it. One that it takes for something else than what it says ends the double,
//! which does not do as the runtime does then; nobody may send it either.
//!
//! Knows: which filters the runtime can read. Must not know: routes, sockets.

use anyhow::{Context as _, Result};
use spl_expression::{Expression, Limits, Properties, Value, is_no_filter};

/// Lets some tuples through, or all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Without one, all.
    expression: Option<Expression>,
}

impl Filter {
    /// The filter that a text is. One without anything but blanks lets all tuples through.
    ///
    /// # Errors
    /// When a PE cannot read it, or takes it for something else.
    pub(crate) fn new(text: &str) -> Result<Self> {
        if is_no_filter(text) {
            return Ok(Self::default());
        }
        let expression = Expression::parse_filter(text, &Limits::default());
        let expression = expression.and_then(|filter| filter.check_meaning().map(|()| filter));
        let expression = expression.with_context(|| format!("the filter {text:?} cannot be read"))?;
        Ok(Self { expression: Some(expression) })
    }

    /// Whether a tuple of this number passes, if its type has these integer attributes.
    pub(crate) fn passes(&self, number: u64, attributes: &[String]) -> bool {
        let Some(expression) = &self.expression else { return true };
        let value = i64::try_from(number).unwrap_or(i64::MAX);
        let values = attributes.iter().map(|name| (name, Value::Int64(value.into())));
        expression.matches(&values.collect::<Properties>())
    }
}

#[cfg(test)]
mod tests {
    use super::Filter;

    #[test]
    fn tuples_pass_by_their_number() {
        let attributes = ["id".to_owned(), "n".to_owned()];
        for (text, passing) in [
            ("", vec![0, 1, 2, 3, 4, 5]),
            (" ", vec![0, 1, 2, 3, 4, 5]),
            ("id + -1 > 2.5", vec![4, 5]),
            ("id % 2 == 0", vec![0, 2, 4]),
            ("id > 1 && n < 4", vec![2, 3]),
            ("name == \"a\"", vec![]),
            ("name == \"a\" || id == 3", vec![3]),
        ] {
            let filter = Filter::new(text).unwrap();
            let passed: Vec<u64> = (0..6).filter(|number| filter.passes(*number, &attributes)).collect();
            assert_eq!(passed, passing, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in ["id ==", "id == n", "id + -1.5 > 2"] {
            let error = format!("{:#}", Filter::new(text).unwrap_err());
            assert!(error.contains(&format!("the filter {text:?} cannot be read")), "{error}");
        }
    }
}
