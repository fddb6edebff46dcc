//! Times and shares of a processor as people write them: `200 us`, `4 %`.

use bulkhead_plan::kernel::Utilization;
use std::fmt;

/// Why a time could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTime {
    /// No number at its start.
    NoNumber,
    /// No unit behind it.
    NoUnit,
    /// A unit that is not known.
    Unit,
    /// More nanoseconds than 64 bits hold.
    TooLarge,
}

impl fmt::Display for BadTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "it does not start with a whole number",
            Self::NoUnit => "it has no unit",
            Self::Unit => "its unit is none of ns, us, ms and s",
            Self::TooLarge => "it is more nanoseconds than 64 bits hold",
        })
    }
}

/// Nanoseconds of each unit, the largest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Splits a text into a whole number and the rest.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

/// Reads a time.
///
/// # Errors
/// The mistake in it.
pub fn parse(text: &str) -> Result<u64, BadTime> {
    let (number, unit) = split(text);
    let number: String = number.chars().filter(|c| *c != '_').collect();
    if number.is_empty() {
        return Err(BadTime::NoNumber);
    }
    if unit.is_empty() {
        return Err(BadTime::NoUnit);
    }
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(BadTime::Unit)?;
    let number: u64 = number.parse().map_err(|_| BadTime::TooLarge)?;
    number.checked_mul(*factor).ok_or(BadTime::TooLarge)
}

/// Guesses the time that a text with a wrong unit was meant to be.
#[must_use]
pub fn meant(text: &str) -> Option<String> {
    let (number, unit) = split(text);
    let unit = match unit.to_lowercase().as_str() {
        "n" | "nsec" | "nanoseconds" => "ns",
        // Micro sign and Greek letter: keyboards have either.
        "u" | "usec" | "microseconds" | "\u{b5}s" | "\u{3bc}s" => "us",
        "m" | "msec" | "milliseconds" => "ms",
        "sec" | "second" | "seconds" => "s",
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.0,
    };
    let meant = format!("{number} {unit}");
    parse(&meant).is_ok().then_some(meant)
}

/// Writes a time in the largest unit that divides it.
#[must_use]
pub fn show(nanoseconds: u64) -> String {
    let divides =
        |(_, factor): &&(&str, u64)| nanoseconds >= *factor && nanoseconds.is_multiple_of(*factor);
    let (unit, factor) = UNITS.iter().find(divides).unwrap_or(&UNITS[UNITS.len() - 1]);
    format!("{} {unit}", nanoseconds / factor)
}

/// Why a share could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadShare {
    /// No number at its start.
    NoNumber,
    /// Something else than `%` behind it.
    NoPercent,
    /// More than four digits behind the point: the kernel counts in millionths.
    TooFine,
    /// 0, or 100 and more.
    Range,
}

impl fmt::Display for BadShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "it does not start with a number",
            Self::NoPercent => "it does not end with `%`",
            Self::TooFine => "it has more than four digits behind the point",
            Self::Range => "it is not above 0 % and below 100 %",
        })
    }
}

/// Reads a share of a processor, up to a millionth.
///
/// # Errors
/// The mistake in it.
pub fn parse_share(text: &str) -> Result<Utilization, BadShare> {
    const DIGITS: usize = 4;
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') || part.contains('.') {
        return Err(BadShare::NoNumber);
    }
    if unit.trim() != "%" {
        return Err(BadShare::NoPercent);
    }
    if part.len() > DIGITS {
        return Err(BadShare::TooFine);
    }
    // Three digits before the point are out of range at once.
    let whole = whole.trim_start_matches('0');
    if whole.len() > 2 {
        return Err(BadShare::Range);
    }
    let millionths = format!("0{whole}{part:0<DIGITS$}").parse().map_err(|_| BadShare::Range)?;
    let whole = 100 * 10u32.pow(DIGITS as u32);
    let common = common_divisor(millionths, whole);
    Utilization::new(millionths / common, whole / common).map_err(|_| BadShare::Range)
}

/// The greatest common divisor, Euclid's way; not 0 if `b` is not.
const fn common_divisor(mut a: u32, mut b: u32) -> u32 {
    while a != 0 {
        (a, b) = (b % a, a);
    }
    b
}

/// Writes a share in percent, exactly where four digits suffice.
#[must_use]
pub fn show_share(share: Utilization) -> String {
    let millionths = u64::from(share.numerator()) * 1_000_000 / u64::from(share.denominator());
    let text = format!("{}.{:04}", millionths / 10_000, millionths % 10_000);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_times() {
        assert_eq!(parse("200 us"), Ok(200_000));
        assert_eq!(parse(" 1ms "), Ok(1_000_000));
        assert_eq!(parse("1_000 ns"), Ok(1_000));
        assert_eq!(parse("3 s"), Ok(3_000_000_000));
    }

    #[test]
    fn refuses_what_is_no_time() {
        assert_eq!(parse("5"), Err(BadTime::NoUnit));
        assert_eq!(parse(""), Err(BadTime::NoNumber));
        assert_eq!(parse("ms"), Err(BadTime::NoNumber));
        assert_eq!(parse("1.5 ms"), Err(BadTime::Unit));
        assert_eq!(parse("1 MS"), Err(BadTime::Unit));
        assert_eq!(parse("99999999999 s"), Err(BadTime::TooLarge));
        assert_eq!(parse("99999999999999999999 ns"), Err(BadTime::TooLarge));
    }

    #[test]
    fn knows_what_was_meant() {
        assert_eq!(meant("5 µs").as_deref(), Some("5 us"));
        assert_eq!(meant("5 μs").as_deref(), Some("5 us"));
        assert_eq!(meant("5 MS").as_deref(), Some("5 ms"));
        assert_eq!(meant("5 sec").as_deref(), Some("5 s"));
        assert_eq!(meant("5 parsec"), None);
        assert_eq!(meant("1.5 ms"), None);
    }

    #[test]
    fn reads_shares() {
        let share = |n, d| Ok(Utilization::new(n, d).unwrap());
        assert_eq!(parse_share("4 %"), share(1, 25));
        assert_eq!(parse_share("0.5%"), share(1, 200));
        assert_eq!(parse_share("99.9999 %"), share(999_999, 1_000_000));
        assert_eq!(parse_share("0.0001 %"), share(1, 1_000_000));
    }

    #[test]
    fn refuses_what_is_no_share() {
        for (text, why) in [
            ("0 %", BadShare::Range),
            ("100 %", BadShare::Range),
            ("4294967300 %", BadShare::Range),
            ("4", BadShare::NoPercent),
            ("4 percent", BadShare::NoPercent),
            ("-4 %", BadShare::NoNumber),
            (".5 %", BadShare::NoNumber),
            ("5. %", BadShare::NoNumber),
            ("1.2.3 %", BadShare::NoNumber),
            ("0.00001 %", BadShare::TooFine),
        ] {
            assert_eq!(parse_share(text), Err(why), "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_shown_read_back(time: u64) {
            prop_assert_eq!(parse(&show(time)), Ok(time));
        }

        #[test]
        fn shares_shown_read_back(millionths in 1u32..1_000_000) {
            let common = common_divisor(millionths, 1_000_000);
            let share = Utilization::new(millionths / common, 1_000_000 / common).unwrap();
            prop_assert_eq!(parse_share(&show_share(share)), Ok(share));
        }

        #[test]
        fn no_text_panics(text: String, number in "[0-9._]*", unit in "[a-zµ% ]*") {
            for text in [text, format!("{number}{unit}")] {
                let _ = (parse(&text), meant(&text), parse_share(&text));
            }
        }
    }
}
