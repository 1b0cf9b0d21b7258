//! Numbers and hashes as Java writes and computes them.
//!
//! Expressions, AADL texts and annotations carry numbers in the text form of Java (`180.0`, `1.0E10`;
//! rule expression-9), and `hash()` of the expression language is Java's `hashCode`. Nothing here knows expressions.

/// The text of a double as `Double.toString` defines it: `1000.0`, `1.0E10`, `1.0E-5`, `NaN`, `-Infinity`.
///
/// Numbers from 0.001 up to, but not including, 10,000,000 are written with a decimal point, others with an exponent.
/// The digits are the fewest that tell the number from its neighbours.
///
/// ```
/// assert_eq!(spl_expression::java_double(1e10), "1.0E10");
/// ```
#[must_use]
pub fn java_double(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value.is_infinite() => infinity(value.is_sign_negative()),
        _ => decimal(&format!("{value:e}")),
    }
}

/// The text of a 32-bit float as `Float.toString` defines it; the rules are those of [`java_double`].
///
/// ```
/// assert_eq!(spl_expression::java_float(180.0), "180.0");
/// ```
#[must_use]
pub fn java_float(value: f32) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value.is_infinite() => infinity(value.is_sign_negative()),
        _ => decimal(&format!("{value:e}")),
    }
}

fn infinity(negative: bool) -> String {
    if negative { "-Infinity" } else { "Infinity" }.to_owned()
}

/// Rewrites Rust's scientific form (`-1.25e-7`, always one digit before the point) into Java's.
fn decimal(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let or_zero = |digits: &str| if digits.is_empty() { "0".to_owned() } else { digits.to_owned() };
    match exponent {
        -3..0 => {
            let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
            format!("{sign}0.{zeros}{first}{rest}")
        }
        0..7 => {
            let before = exponent as usize;
            let digits = format!("{rest:0<before$}");
            let (whole, fraction) = digits.split_at(before);
            format!("{sign}{first}{whole}.{}", or_zero(fraction))
        }
        _ => format!("{sign}{first}.{}E{exponent}", or_zero(rest)),
    }
}

/// `Boolean.hashCode`.
pub(crate) fn hash_of_boolean(value: bool) -> i32 {
    if value { 1231 } else { 1237 }
}

/// `Double.hashCode`.
pub(crate) fn hash_of_double(value: f64) -> i32 {
    // Java has one NaN here, whatever the bits were.
    let bits = if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() };
    (bits ^ (bits >> 32)) as u32 as i32
}

/// `String.hashCode`: over UTF-16 code units.
pub(crate) fn hash_of_text(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// `List.hashCode` from the hashes of its elements.
pub(crate) fn hash_of_list(elements: impl Iterator<Item = i32>) -> i32 {
    elements.fold(1i32, |hash, element| hash.wrapping_mul(31).wrapping_add(element))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubles() {
        let table: &[(f64, &str)] = &[
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.5, "-1.5"),
            (10.5, "10.5"),
            (1000.0, "1000.0"),
            (123_456.789, "123456.789"),
            (9_999_999.0, "9999999.0"),
            (9_999_999.999_999_998, "9999999.999999998"),
            (1e7, "1.0E7"),
            (12_345_678.0, "1.2345678E7"),
            (1e10, "1.0E10"),
            (0.001, "0.001"),
            (0.01, "0.01"),
            (0.1, "0.1"),
            (0.123, "0.123"),
            (9.99e-4, "9.99E-4"),
            (1e-5, "1.0E-5"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (value, text) in table {
            assert_eq!(java_double(*value), *text);
        }
    }

    #[test]
    fn floats() {
        let table: &[(f32, &str)] = &[
            (180.0, "180.0"),
            (0.1, "0.1"),
            (1.1, "1.1"),
            (1e7, "1.0E7"),
            (9_999_999.0, "9999999.0"),
            (5e-4, "5.0E-4"),
            (f32::MAX, "3.4028235E38"),
            (f32::NEG_INFINITY, "-Infinity"),
        ];
        for (value, text) in table {
            assert_eq!(java_float(*value), *text);
        }
    }

    #[test]
    fn hashes() {
        assert_eq!(hash_of_text("forty-two"), 2_032_045_325);
        assert_eq!(hash_of_text(""), 0);
        assert_eq!(hash_of_boolean(true), 1231);
        assert_eq!(hash_of_list([1, 2].into_iter()), 994);
        assert_eq!(hash_of_double(1.0), 1_072_693_248);
        assert_eq!(hash_of_double(0.0), 0);
        assert_eq!(hash_of_double(f64::NAN), 2_146_959_360);
    }

    proptest! {
        #[test]
        fn text_reads_back_as_the_same_number(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            prop_assert_eq!(java_double(value).parse::<f64>().unwrap().to_bits(), bits);
        }

        #[test]
        fn float_text_reads_back_as_the_same_number(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            prop_assert_eq!(java_float(value).parse::<f32>().unwrap().to_bits(), bits);
        }
    }
}
