//! Which calls wait for a person's yes. Closed unless opened: what can't be compared with a limit is over it.

use crate::limits::has_twin;
use mcp::json::RawObject;
use std::cmp::Ordering;
use std::fmt;

/// When an operation of a tool waits for a yes before anything of it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Approval {
    /// It never waits.
    #[default]
    Never,
    /// It always waits.
    Always,
    /// It waits where one of these arguments is over its limit, is missing, is no number, or is there in other letters, too.
    Over(Vec<(String, Decimal)>),
}

impl Approval {
    /// Whether a call with these arguments waits for a yes.
    #[must_use]
    pub fn is_needed(&self, arguments: &RawObject) -> bool {
        let within = |(name, limit): &(String, Decimal)| {
            let given = arguments.get(name).and_then(|given| Decimal::parse(given.as_str()));
            given.is_some_and(|given| given.compare(limit).is_le()) && !has_twin(arguments, name)
        };
        match self {
            Approval::Never => false,
            Approval::Always => true,
            Approval::Over(limits) => !limits.iter().all(within),
        }
    }

    /// The arguments that it looks at.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        let limits = match self {
            Approval::Over(limits) => limits.as_slice(),
            Approval::Never | Approval::Always => &[],
        };
        limits.iter().map(|(name, _)| name.as_str())
    }
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Approval::Never => f.write_str("never"),
            Approval::Always => f.write_str("always"),
            Approval::Over(limits) => {
                let each = limits.iter().map(|(name, limit)| format!("{name} over {limit}"));
                f.write_str(&each.collect::<Vec<_>>().join(", or "))
            }
        }
    }
}

/// A number with exactly the value that its text has, however many digits that are.
#[derive(Clone, Debug)]
pub struct Decimal {
    text: String,
    negative: bool,
    /// Neither the first nor the last is 0; none at all is zero.
    digits: Vec<u8>,
    /// The value is 0.DIGITS times ten to this power.
    point: i64,
}

impl Decimal {
    /// Reads a number as JSON writes it; `None` if it is none, or its exponent is beyond all reason.
    #[must_use]
    pub fn parse(text: &str) -> Option<Decimal> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !plain(whole) || !plain(fraction) {
            return None;
        }
        let all: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let zeros = all.iter().take_while(|d| **d == b'0').count();
        let point = i64::try_from(whole.len()).ok()? - i64::try_from(zeros).ok()? + i64::from(exponent);
        let mut digits = all[zeros..].to_vec();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        let negative = negative && !digits.is_empty();
        let point = if digits.is_empty() { 0 } else { point };
        Some(Decimal { text: text.to_owned(), negative, digits, point })
    }

    /// Compares the values.
    #[must_use]
    pub fn compare(&self, other: &Decimal) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.size(other),
            (true, true) => other.size(self),
        }
    }

    /// Its value, if that is a whole number that fits.
    #[must_use]
    pub fn whole(&self) -> Option<u64> {
        let zeros = usize::try_from(self.point).ok()?.checked_sub(self.digits.len())?;
        if self.negative || zeros > 20 {
            return None;
        }
        let digits = self.digits.iter().map(|d| d - b'0').chain(std::iter::repeat_n(0, zeros));
        digits.into_iter().try_fold(0_u64, |n, d| n.checked_mul(10)?.checked_add(d.into()))
    }

    fn size(&self, other: &Decimal) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.point.cmp(&other.point).then_with(|| self.digits.cmp(&other.digits)),
        }
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Decimal) -> bool {
        self.compare(other).is_eq()
    }
}

impl Eq for Decimal {}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use mcp::json::Limits;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn values_are_compared_and_not_texts() {
        let ascending = [
            "-1e3",
            "-2",
            "-0.5",
            "0",
            "1E-400",
            "0.1",
            "0.10000000000000000000000000000000001",
            "9",
            "10",
            "9007199254740993",
            "9007199254740993.0000000000000000001",
            "9007199254740994",
            "1e400",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(number(a).compare(&number(b)), i.cmp(&j), "{a} {b}");
            }
        }
        for (a, b) in [("0", "-0.0"), ("10", "1e1"), ("100", "1.00E+2"), ("0.5", "5e-1"), ("0e9", "0")] {
            assert_eq!(number(a), number(b), "{a} {b}");
        }
        for none in ["", "-", "ten", "1.", ".5", "0x10", "1e", "1e99999999999", "\"5\"", "null", "inf", "1_0"]
        {
            assert!(Decimal::parse(none).is_none(), "{none}");
        }
    }

    #[test]
    fn whole_numbers_are_told_by_their_value() {
        for (text, whole) in
            [("0", 0), ("-0.0", 0), ("7", 7), ("1.50e1", 15), ("1200.00", 1200), ("0.5e1", 5)]
        {
            assert_eq!(number(text).whole(), Some(whole), "{text}");
        }
        assert_eq!(number("18446744073709551615").whole(), Some(u64::MAX));
        for none in ["18446744073709551616", "-1", "0.1", "1e-3", "1e20", "1e300", "12.5"] {
            assert_eq!(number(none).whole(), None, "{none}");
        }
    }

    #[test]
    fn what_can_not_be_compared_waits() {
        let over = Approval::Over(vec![("amount".into(), number("10000")), ("tip".into(), number("0"))]);
        let waits =
            |text: &str| over.is_needed(&RawObject::parse(text.to_owned(), &Limits::default()).unwrap());
        for open in [
            r#"{"amount":1,"tip":0}"#,
            r#"{"amount":10000,"tip":0.0}"#,
            r#"{"amount":1e4,"tip":-1}"#,
            r#"{"amount":10000.000,"tip":0}"#,
        ] {
            assert!(!waits(open), "{open}");
        }
        for closed in [
            r#"{"amount":10000.0000000000000000000000001,"tip":0}"#,
            r#"{"amount":10001,"tip":0}"#,
            r#"{"amount":1,"tip":0.1}"#,
            r#"{"amount":1}"#,
            r#"{"amount":"1","tip":0}"#,
            r#"{"amount":[1],"tip":0}"#,
            r#"{"amount":null,"tip":0}"#,
            r"{}",
        ] {
            assert!(waits(closed), "{closed}");
        }
        assert_eq!(over.to_string(), "amount over 10000, or tip over 0");
        assert!(Approval::Always.is_needed(&RawObject::empty()));
        assert!(!Approval::Never.is_needed(&RawObject::empty()));
    }
}
