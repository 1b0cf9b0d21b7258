//! From text to tokens: longest match, white space separates (rule expression-1).
//!
//! A character that belongs to no token is an error: a malformed expression is reported where it was written. Filters
//! have numbers of another form, and another blank (rule expression-15).
//!
//! Knows: characters. Must not know: which token may follow which.

use crate::Error;
use crate::integer::Integer;
use crate::operation::{Binary, Prefix};
use crate::substitution::Intrinsic;
use crate::value::{ScalarType, beginning_of};

/// A token. Texts are without their quotes, escapes as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'t> {
    Word(&'t str),
    Intrinsic(Intrinsic),
    Type(ScalarType),
    Hash,
    Integer(Integer),
    Float(f64),
    Text(&'t str),
    Binary(Binary),
    Prefix(Prefix),
    OpenGroup,
    CloseGroup,
    OpenSubscript,
    CloseSubscript,
}

/// A token with its place.
#[derive(Clone, Debug)]
pub(crate) struct Placed<'t> {
    pub(crate) token: Token<'t>,
    /// Octets before the token.
    pub(crate) offset: usize,
    /// The token as written.
    pub(crate) written: &'t str,
}

/// Whose language a text is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// That of subscriptions, and of all that the compiler reads.
    Expressions,
    /// That of PEs.
    Filters,
}

impl Dialect {
    /// What separates tokens.
    fn blanks(self) -> &'static [char] {
        match self {
            Self::Expressions => &[' ', '\t', '\r', '\n', '\u{c}'],
            Self::Filters => FILTER_BLANKS,
        }
    }
}

/// What PEs take for blanks.
pub(crate) const FILTER_BLANKS: &[char] = &[' ', '\t', '\r', '\n', '\u{b}', '\u{c}'];

/// Digits of a part of a float, after its zeros, that PEs are sure to read.
const FILTER_DIGITS: usize = 308;
/// The largest exponent of which PEs make a double.
const FILTER_EXPONENT: u32 = 308;

/// Reads tokens one after the other. Copies are cheap: a copy looks ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexer<'t> {
    text: &'t str,
    position: usize,
    dialect: Dialect,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str, dialect: Dialect) -> Self {
        Self { text, position: 0, dialect }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The next token; nothing at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Placed<'t>>, Error> {
        self.token(false)
    }

    /// The next token, where an operand may stand. There a sign belongs to its number in a filter.
    pub(crate) fn operand(&mut self) -> Result<Option<Placed<'t>>, Error> {
        self.token(self.dialect == Dialect::Filters)
    }

    fn token(&mut self, is_signed: bool) -> Result<Option<Placed<'t>>, Error> {
        let rest = &self.text[self.position..];
        let rest = rest.trim_start_matches(self.dialect.blanks());
        let offset = self.text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            self.position = self.text.len();
            return Ok(None);
        };
        let (token, length) = match first {
            'A'..='Z' | 'a'..='z' | '_' | '$' => word(rest),
            '0'..='9' | '.' => number(rest, 0, self.dialect),
            '+' | '-' if is_signed && rest[1..].starts_with(|next: char| next.is_ascii_digit() || next == '.') => {
                number(rest, 1, self.dialect)
            }
            '-' if self.dialect == Dialect::Expressions
                && rest[1..].starts_with(|next: char| matches!(next, '1'..='9')) =>
            {
                negative_integer(rest)
            }
            '"' | '\'' => text(rest),
            _ => symbol(rest),
        }
        .map_err(|message| Error { message, offset })?;
        self.position = offset + length;
        Ok(Some(Placed { token, offset, written: &rest[..length] }))
    }
}

type Scanned<'t> = Result<(Token<'t>, usize), String>;

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn word(rest: &str) -> Scanned<'_> {
    let dollar = usize::from(rest.starts_with('$'));
    let letters = rest[dollar..].bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    if letters == 0 || rest.as_bytes()[dollar].is_ascii_digit() {
        return Err("a name is expected after $".to_owned());
    }
    let word = &rest[..dollar + letters];
    if let Some(intrinsic) = Intrinsic::from_name(word)
        && rest[word.len()..].starts_with("()")
    {
        return Ok((Token::Intrinsic(intrinsic), word.len() + 2));
    }
    let token = match word {
        "in" => Token::Binary(Binary::In),
        "hash" => Token::Hash,
        _ => ScalarType::from_word(word).map_or(Token::Word(word), Token::Type),
    };
    Ok((token, word.len()))
}

/// `0`, `12`, `1.5`, `1.`, `.5`, `1e3`, `1.5e-3`, behind a sign of so many characters. A leading zero is a number of
/// its own; in a filter it is not, and an integer may end with the `l` of an int64 there.
fn number(rest: &str, sign: usize, dialect: Dialect) -> Scanned<'_> {
    let unsigned = &rest[sign..];
    let whole = match dialect {
        Dialect::Expressions if unsigned.starts_with('0') => 1,
        Dialect::Expressions | Dialect::Filters => digits(unsigned),
    };
    let fraction = unsigned[whole..].strip_prefix('.').map(digits);
    if whole == 0 && fraction == Some(0) {
        return Err("unexpected character '.'".to_owned());
    }
    let mut length = sign + whole + fraction.map_or(0, |digits| 1 + digits);
    let exponent = rest[length..].strip_prefix(['e', 'E']).and_then(|after| {
        let sign = usize::from(after.starts_with(['+', '-']));
        match digits(&after[sign..]) {
            0 => None,
            digits => Some(1 + sign + digits),
        }
    });
    length += exponent.unwrap_or(0);
    let written = &rest[..length];
    if fraction.is_none() && exponent.is_none() {
        let (token, length) = integer(written)?;
        let has_suffix = dialect == Dialect::Filters && rest[length..].starts_with('l');
        return Ok((token, length + usize::from(has_suffix && written.parse::<i64>().is_ok())));
    }
    if dialect == Dialect::Filters && has_too_many_digits(written) {
        return Err(format!("{} has more than {FILTER_DIGITS} digits in a row", beginning_of(written)));
    }
    let is_of_filter = dialect == Dialect::Filters;
    match written.parse::<f64>() {
        Ok(value) if is_of_filter && (exponent_of(written) > FILTER_EXPONENT || is_tiny(value)) => {
            Err(format!("{} has an exponent beyond {FILTER_EXPONENT}", beginning_of(written)))
        }
        Ok(value) if value.is_finite() => Ok((Token::Float(value), length)),
        _ => Err(format!("{} is beyond the range of float64", beginning_of(written))),
    }
}

/// Whether PEs may not read a float: they take the digits before and after the point, and those of the exponent, for
/// numbers of their own, each of which has to fit into a double.
fn has_too_many_digits(float: &str) -> bool {
    let mut parts = float.split(|character: char| !character.is_ascii_digit());
    parts.any(|digits| digits.trim_start_matches('0').len() > FILTER_DIGITS)
}

/// The exponent of a float, without its sign. PEs make a number of its own of it, which is none beyond
/// [`FILTER_EXPONENT`], whatever stands before it.
fn exponent_of(float: &str) -> u32 {
    let exponent = float.split_once(['e', 'E']).map_or("0", |(_, exponent)| exponent);
    match exponent.trim_start_matches(['+', '-', '0']) {
        "" => 0,
        // One that does not fit is beyond all.
        digits => digits.parse().unwrap_or(u32::MAX),
    }
}

/// Whether a number would be printed with an exponent that PEs cannot count.
fn is_tiny(value: f64) -> bool {
    value != 0.0 && value.abs() < 1e-308
}

fn negative_integer(rest: &str) -> Scanned<'_> {
    integer(&rest[..1 + digits(&rest[1..])])
}

fn integer(written: &str) -> Scanned<'_> {
    Integer::parse(written)
        .map(|integer| (Token::Integer(integer), written.len()))
        .ok_or_else(|| format!("{} is an integer of more than 1024 bits", beginning_of(written)))
}

fn text(rest: &str) -> Scanned<'_> {
    let quote = rest.as_bytes().first().copied();
    let mut bytes = rest.bytes().enumerate().skip(1);
    while let Some((index, byte)) = bytes.next() {
        if byte == b'\\' {
            bytes.next();
        } else if Some(byte) == quote {
            return Ok((Token::Text(&rest[1..index]), index + 1));
        }
    }
    Err("the text has no closing quote".to_owned())
}

fn symbol(rest: &str) -> Scanned<'_> {
    // Longer symbols first.
    const SYMBOLS: &[(&str, Token<'static>)] = &[
        ("||", Token::Binary(Binary::Or)),
        ("&&", Token::Binary(Binary::And)),
        ("<<", Token::Binary(Binary::ShiftLeft)),
        (">>", Token::Binary(Binary::ShiftRight)),
        ("<=", Token::Binary(Binary::LessOrEqual)),
        (">=", Token::Binary(Binary::GreaterOrEqual)),
        ("==", Token::Binary(Binary::Equal)),
        ("!=", Token::Binary(Binary::NotEqual)),
        ("|", Token::Binary(Binary::BitOr)),
        ("^", Token::Binary(Binary::BitXor)),
        ("&", Token::Binary(Binary::BitAnd)),
        ("<", Token::Binary(Binary::Less)),
        (">", Token::Binary(Binary::Greater)),
        ("+", Token::Binary(Binary::Add)),
        ("-", Token::Binary(Binary::Subtract)),
        ("*", Token::Binary(Binary::Multiply)),
        ("/", Token::Binary(Binary::Divide)),
        ("%", Token::Binary(Binary::Remainder)),
        ("!", Token::Prefix(Prefix::Not)),
        ("~", Token::Prefix(Prefix::Complement)),
        ("(", Token::OpenGroup),
        (")", Token::CloseGroup),
        ("[", Token::OpenSubscript),
        ("]", Token::CloseSubscript),
    ];
    SYMBOLS
        .iter()
        .find(|(symbol, _)| rest.starts_with(symbol))
        .map(|(symbol, token)| (token.clone(), symbol.len()))
        .ok_or_else(|| match rest.chars().next() {
            Some('=') => "unexpected character '='; equality is written ==".to_owned(),
            Some(character) => format!("unexpected character {character:?}"),
            None => "unexpected end".to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<String>, Error> {
        let mut lexer = Lexer::new(text, Dialect::Expressions);
        let mut written = Vec::new();
        while let Some(placed) = lexer.next()? {
            written.push(placed.written.to_owned());
        }
        Ok(written)
    }

    #[test]
    fn longest_match() {
        let table: &[(&str, &[&str])] = &[
            ("a==1", &["a", "==", "1"]),
            ("x -1", &["x", "-1"]),
            ("x - 1", &["x", "-", "1"]),
            ("-0", &["-", "0"]),
            ("007", &["0", "0", "7"]),
            ("1.5.5", &["1.5", ".5"]),
            ("1.", &["1."]),
            ("1.e3", &["1.e3"]),
            ("1e", &["1", "e"]),
            ("1e+", &["1", "e", "+"]),
            ("2E-3x", &["2E-3", "x"]),
            ("-5.5", &["-5", ".5"]),
            ("a<<b<=c", &["a", "<<", "b", "<=", "c"]),
            ("getChannel()", &["getChannel()"]),
            ("getChannel ()", &["getChannel", "(", ")"]),
            ("forgetChannel()", &["forgetChannel", "(", ")"]),
            ("$a _b", &["$a", "_b"]),
            (r#""a\"b"'c'"#, &[r#""a\"b""#, "'c'"]),
            ("\"é\\é\"", &["\"é\\é\""]),
            ("", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(tokens(text).unwrap(), *expected, "{text}");
        }
    }

    #[test]
    fn characters_that_belong_to_no_token() {
        let table = [
            ("a == #1", 5, "unexpected character '#'"),
            ("a=1", 1, "unexpected character '='; equality is written =="),
            ("a == 1 ;", 7, "unexpected character ';'"),
            ("a . b", 2, "unexpected character '.'"),
            ("é", 0, "unexpected character 'é'"),
            ("$", 0, "a name is expected after $"),
            ("$1", 0, "a name is expected after $"),
            ("a == \"b", 5, "the text has no closing quote"),
            ("'\\'", 0, "the text has no closing quote"),
            ("1e400", 0, "1e400 is beyond the range of float64"),
        ];
        for (text, offset, message) in table {
            let error = tokens(text).unwrap_err();
            assert_eq!((error.offset, error.message.as_str()), (offset, message), "{text}");
        }
        let digits = "9".repeat(400);
        let error = tokens(&digits).unwrap_err();
        assert!(error.message.ends_with("... is an integer of more than 1024 bits"), "{error}");
    }
}
