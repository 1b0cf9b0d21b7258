//! Integers of the expression language: of any size, within a bound that keeps arithmetic cheap.
//!
//! Arithmetic is exact: `9223372036854775807 + 1` has a result (rule expression-4). A result of more than 1,024 bits is
//! a fault: such a number could not be compared with a float64 anyway, and `1 << 1000000000` must not cost what it
//! says.
//!
//! Knows: numbers. Must not know: expressions.

use crate::fault::Fault;
use num_bigint::{BigInt, Sign};
use std::fmt;

/// The largest magnitude of an integer, in bits.
const MAXIMUM_BITS: u64 = 1_024;
/// No integer of [`MAXIMUM_BITS`] bits has more decimal digits than this.
const MAXIMUM_DIGITS: usize = 309;

/// An integer of at most 1,024 bits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Integer(BigInt);

impl Integer {
    /// Reads `[+-]?[0-9]+`; nothing if the text is anything else or the number has more than 1,024 bits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, digits) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = digits.trim_start_matches('0');
        if digits.len() > MAXIMUM_DIGITS {
            return None;
        }
        let magnitude = if digits.is_empty() { BigInt::ZERO } else { BigInt::parse_bytes(digits.as_bytes(), 10)? };
        Self::bounded(if negative { -magnitude } else { magnitude }).ok()
    }

    /// The integer part of a float; nothing for NaN and the infinities.
    pub(crate) fn truncated(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as i64 - 1075;
        let mantissa = BigInt::from(bits & ((1 << 52) - 1) | 1 << 52);
        let magnitude = match exponent {
            0.. => mantissa << exponent,
            // Also the subnormal numbers, whose leading bit is not there: they are less than one.
            -63..0 => mantissa >> -exponent,
            _ => BigInt::ZERO,
        };
        Self::bounded(if value.is_sign_negative() { -magnitude } else { magnitude }).ok()
    }

    /// The nearest float; an infinity when there is none.
    pub(crate) fn to_float(&self) -> f64 {
        match i64::try_from(&self.0) {
            Ok(small) => small as f64,
            Err(_) => self.leading_bits_to_float(),
        }
    }

    /// The nearest float to an integer of 64 bits or more, from the first 64 of them. Of the others only matters
    /// whether one is set: then the number is beyond the half-way point between two floats, not on it.
    fn leading_bits_to_float(&self) -> f64 {
        let magnitude = self.0.magnitude();
        let dropped = magnitude.bits().saturating_sub(u64::from(u64::BITS));
        let leading = u64::try_from(magnitude >> dropped).unwrap_or(u64::MAX);
        let is_more = magnitude.trailing_zeros().is_some_and(|zeros| zeros < dropped);
        let float = (leading | u64::from(is_more)) as f64 * 2f64.powi(dropped as i32);
        if self.is_negative() { -float } else { float }
    }

    /// The number as an index into a list.
    pub(crate) fn to_index(&self) -> Option<usize> {
        usize::try_from(&self.0).ok()
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.sign() == Sign::NoSign
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.0.sign() == Sign::Minus
    }

    /// Octets of the number, as a measure of what an operation costs.
    pub(crate) fn size(&self) -> usize {
        (self.0.bits() / 8) as usize
    }

    /// Bytes of the heap that it takes, but for what the allocator adds.
    pub(crate) fn memory(&self) -> usize {
        (self.size() + 1).next_multiple_of(size_of::<u64>())
    }

    /// Writes what tells it from all others.
    pub(crate) fn write(&self, write: &mut impl FnMut(&[u8])) {
        let octets = self.0.to_signed_bytes_le();
        write(&octets.len().to_le_bytes());
        write(&octets);
    }

    fn bounded(value: BigInt) -> Result<Self, Fault> {
        if value.bits() > MAXIMUM_BITS { Err(Fault::TooLarge) } else { Ok(Self(value)) }
    }

    pub(crate) fn add(&self, other: &Self) -> Result<Self, Fault> {
        Self::bounded(&self.0 + &other.0)
    }

    pub(crate) fn subtract(&self, other: &Self) -> Result<Self, Fault> {
        Self::bounded(&self.0 - &other.0)
    }

    pub(crate) fn multiply(&self, other: &Self) -> Result<Self, Fault> {
        Self::bounded(&self.0 * &other.0)
    }

    /// Truncates towards zero.
    pub(crate) fn divide(&self, other: &Self) -> Result<Self, Fault> {
        Self::bounded(self.0.checked_div(&other.0).ok_or(Fault::DivisionByZero)?)
    }

    /// Takes the sign of the dividend.
    pub(crate) fn remainder(&self, other: &Self) -> Result<Self, Fault> {
        if other.is_zero() { Err(Fault::DivisionByZero) } else { Ok(Self(&self.0 % &other.0)) }
    }

    pub(crate) fn and(&self, other: &Self) -> Result<Self, Fault> {
        Self::bounded(&self.0 & &other.0)
    }

    pub(crate) fn or(&self, other: &Self) -> Result<Self, Fault> {
        Self::bounded(&self.0 | &other.0)
    }

    pub(crate) fn exclusive_or(&self, other: &Self) -> Result<Self, Fault> {
        Self::bounded(&self.0 ^ &other.0)
    }

    pub(crate) fn complement(&self) -> Result<Self, Fault> {
        Self::bounded(!&self.0)
    }

    /// Shifts by a negative count go right.
    pub(crate) fn shift_left(&self, count: &Self) -> Result<Self, Fault> {
        match i64::try_from(&count.0) {
            _ if self.is_zero() => Ok(self.clone()),
            Ok(count @ 0..) if count <= MAXIMUM_BITS as i64 => Self::bounded(&self.0 << count),
            Ok(0..) => Err(Fault::TooLarge),
            Ok(count) => Ok(Self(&self.0 >> count.unsigned_abs().min(MAXIMUM_BITS))),
            Err(_) if count.is_negative() => Ok(Self(&self.0 >> MAXIMUM_BITS)),
            Err(_) => Err(Fault::TooLarge),
        }
    }

    /// Keeps the sign; shifts by a negative count go left.
    pub(crate) fn shift_right(&self, count: &Self) -> Result<Self, Fault> {
        self.shift_left(&Self(-&count.0))
    }

    pub(crate) fn negate(&self) -> Self {
        Self(-&self.0)
    }

    /// `BigInteger.hashCode`, which for a list or a subscription is what `hash()` gives.
    pub(crate) fn java_hash(&self) -> i32 {
        let (sign, digits) = self.0.to_u32_digits();
        let hash = digits.iter().rev().fold(0i32, |hash, digit| hash.wrapping_mul(31).wrapping_add(*digit as i32));
        if sign == Sign::Minus { hash.wrapping_neg() } else { hash }
    }
}

impl From<i64> for Integer {
    fn from(value: i64) -> Self {
        Self(value.into())
    }
}

impl From<i32> for Integer {
    fn from(value: i32) -> Self {
        Self(value.into())
    }
}

impl fmt::Display for Integer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn integer(text: &str) -> Integer {
        Integer::parse(text).unwrap()
    }

    #[test]
    fn texts() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("+7", "7"),
            ("-12", "-12"),
            ("007", "7"),
            ("18446744073709551616", "18446744073709551616"),
        ] {
            assert_eq!(integer(text).to_string(), expected);
        }
        for text in ["", "-", "+", "1.0", "--1", "0x1", "1l", " 1"] {
            assert_eq!(Integer::parse(text), None, "{text}");
        }
        assert_eq!(Integer::parse(&"9".repeat(310)), None);
        assert!(Integer::parse(&"0".repeat(5_000)).unwrap().is_zero());
    }

    #[test]
    fn division_truncates_and_the_remainder_has_the_sign_of_the_dividend() {
        for (left, right, quotient, remainder) in [(7, 2, 3, 1), (-7, 2, -3, -1), (7, -2, -3, 1), (-7, -2, 3, -1)] {
            let (left, right) = (Integer::from(left), Integer::from(right));
            assert_eq!(left.divide(&right).unwrap(), Integer::from(quotient));
            assert_eq!(left.remainder(&right).unwrap(), Integer::from(remainder));
        }
        assert_eq!(integer("5").divide(&integer("0")), Err(Fault::DivisionByZero));
        assert_eq!(integer("5").remainder(&integer("0")), Err(Fault::DivisionByZero));
    }

    #[test]
    fn shifts() {
        let table = [
            ("1", "10", Some("1024")),
            ("-5", "-1", Some("-3")),
            ("0", "100000000000000000000", Some("0")),
            ("1", "1023", None),
            ("1", "1024", None),
            ("1", "1000000000", None),
            ("1", "100000000000000000000", None),
            ("1", "-100000000000000000000", Some("0")),
            ("-1", "-100000000000000000000", Some("-1")),
        ];
        for (value, count, expected) in table {
            let result = integer(value).shift_left(&integer(count));
            match (expected, count) {
                (Some(expected), _) => assert_eq!(result.unwrap().to_string(), expected),
                (None, "1023") => assert_eq!(result.unwrap().0.bits(), 1_024),
                (None, _) => assert_eq!(result, Err(Fault::TooLarge), "{value} << {count}"),
            }
        }
        assert_eq!(integer("1024").shift_right(&integer("3")).unwrap(), integer("128"));
        assert_eq!(integer("1").shift_right(&integer("-3")).unwrap(), integer("8"));
    }

    #[test]
    fn results_beyond_the_bound_are_faults() {
        let large = integer("1").shift_left(&integer("1023")).unwrap();
        assert_eq!(large.add(&large), Err(Fault::TooLarge));
        assert_eq!(large.multiply(&large), Err(Fault::TooLarge));
    }

    #[test]
    fn hashes_are_those_of_java() {
        for (text, hash) in
            [("0", 0), ("1", 1), ("-1", -1), ("4294967296", 31), ("4294967297", 32), ("-4294967296", -31)]
        {
            assert_eq!(integer(text).java_hash(), hash, "{text}");
        }
    }

    #[test]
    fn floats() {
        for (value, text) in [(-3.9, "-3"), (0.9, "0"), (5e-324, "0"), (1e19, "10000000000000000000"), (-0.0, "0")] {
            assert_eq!(Integer::truncated(value).unwrap().to_string(), text);
        }
        assert_eq!(Integer::truncated(f64::NAN), None);
        assert_eq!(Integer::truncated(f64::INFINITY), None);
        // Half-way between two floats: to the even one.
        assert_eq!(integer("9007199254740993").to_float(), 9_007_199_254_740_992.0);
        let large = integer("1").shift_left(&integer("1023")).unwrap();
        assert_eq!(large.to_float(), 2f64.powi(1023));
    }

    proptest! {
        #[test]
        fn truncation_agrees_with_the_machine(value in -1e15f64..1e15) {
            prop_assert_eq!(Integer::truncated(value).unwrap(), Integer::from(value as i64));
        }

        #[test]
        fn text_reads_back(value in any::<i128>()) {
            let integer = Integer::parse(&value.to_string()).unwrap();
            prop_assert_eq!(integer.to_string(), value.to_string());
            prop_assert_eq!(integer.to_float(), value as f64);
        }

        #[test]
        fn the_nearest_float_is_that_of_the_text(digits in "-?[1-9][0-9]{0,307}", zeros in 0usize..100, one in 0usize..2) {
            // Also numbers of few digits and many zeros, which are often half-way between two floats.
            let text = format!("{}{}{one}", digits.chars().take(20).collect::<String>(), "0".repeat(zeros));
            for text in [text, digits] {
                if let Some(integer) = Integer::parse(&text) {
                    prop_assert_eq!(integer.to_float(), text.parse::<f64>().unwrap());
                }
            }
        }

        #[test]
        fn numbers_beside_the_half_way_points_go_to_the_right_side(mantissa in 1u64 << 52..1 << 53, shift in 12i64..900) {
            let half_way = integer(&mantissa.to_string()).shift_left(&integer("1")).unwrap().add(&integer("1")).unwrap();
            let half_way = half_way.shift_left(&integer(&shift.to_string())).unwrap();
            for number in [half_way.subtract(&integer("1")).unwrap(), half_way.add(&integer("1")).unwrap(), half_way] {
                prop_assert_eq!(number.to_float(), number.to_string().parse::<f64>().unwrap());
            }
        }
    }
}
