//! Sizes and addresses as people write them: `512 MiB`, `0x1_0000_0000`.

use std::fmt;

/// Why a size could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSize {
    /// No number at its start.
    NoNumber,
    /// A unit that is not known.
    Unit,
    /// Powers of ten (`MB`), which memory does not come in.
    Decimal,
    /// More than 64 bits.
    TooLarge,
}

impl fmt::Display for BadSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "it does not start with a whole number",
            Self::Unit => "its unit is none of B, KiB, MiB, GiB and TiB",
            Self::Decimal => "its unit is a power of ten",
            Self::TooLarge => "it is more than 64 bits hold",
        })
    }
}

/// Reads a size or an address.
///
/// # Errors
/// The mistake in it.
pub fn parse(text: &str) -> Result<u64, BadSize> {
    let text = text.trim();
    let (digits, radix) =
        text.strip_prefix("0x").map_or((text, 10), |hexadecimal| (hexadecimal, 16));
    let end = digits.find(|c: char| !(c.is_digit(radix) || c == '_')).unwrap_or(digits.len());
    let (number, unit) = digits.split_at(end);
    let number: String = number.chars().filter(|c| *c != '_').collect();
    if number.is_empty() {
        return Err(BadSize::NoNumber);
    }
    let number = u64::from_str_radix(&number, radix).map_err(|_| BadSize::TooLarge)?;
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        "KB" | "kB" | "MB" | "GB" | "TB" => return Err(BadSize::Decimal),
        _ => return Err(BadSize::Unit),
    };
    number.checked_mul(1 << shift).ok_or(BadSize::TooLarge)
}

/// Guesses the size that a text with a wrong unit was meant to be. `16M` and `16 mb` are 16 MiB to a reader who
/// thinks of memory.
#[must_use]
pub fn meant(text: &str) -> Option<String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '_'))?;
    let (number, unit) = text.split_at(end);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        "t" | "tb" | "tib" => "TiB",
        _ => return None,
    };
    let meant = format!("{number} {unit}");
    parse(&meant).is_ok().then_some(meant)
}

/// Writes a size in the largest unit that divides it.
#[must_use]
pub fn show(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse("512 MiB"), Ok(512 << 20));
        assert_eq!(parse("64KiB"), Ok(64 << 10));
        assert_eq!(parse(" 4 GiB "), Ok(4 << 30));
        assert_eq!(parse("4_096"), Ok(4096));
        assert_eq!(parse("0x1_0000_0000"), Ok(1 << 32));
    }

    #[test]
    fn refuses_the_rest() {
        assert_eq!(parse("512 MB"), Err(BadSize::Decimal));
        assert_eq!(parse("512 mib"), Err(BadSize::Unit));
        assert_eq!(parse("1.5 GiB"), Err(BadSize::Unit));
        assert_eq!(parse(""), Err(BadSize::NoNumber));
        assert_eq!(parse("-1"), Err(BadSize::NoNumber));
        assert_eq!(parse("99999999 TiB"), Err(BadSize::TooLarge));
        assert_eq!(parse("99999999999999999999"), Err(BadSize::TooLarge));
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(bytes: u64) {
            prop_assert_eq!(parse(&show(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = parse(&text);
        }
    }
}
