//! Text of pages that describe a guest: names, and arguments `key=value`.

/// Returns a name that is padded with zeros. Bytes that are no UTF-8 are cut off.
#[must_use]
pub fn of(bytes: &[u8]) -> &str {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Returns the value of the argument `key=value`, empty for a bare `key`. The last one counts, so that a scenario can
/// change what the manifest says.
#[must_use]
pub fn value<'a>(args: &'a str, key: &str) -> Option<&'a str> {
    args.split_ascii_whitespace().rev().find_map(|word| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        (name == key).then_some(value)
    })
}

/// Reads a number, decimal or with 0x.
#[must_use]
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_zero_or_at_what_is_no_text() {
        assert_eq!(
            [of(b"motor\0\0x"), of(b"motor"), of(b""), of(b"\0")],
            ["motor", "motor", "", ""]
        );
        assert_eq!([of(b"mo\xFFtor"), of(b"\xFF")], ["mo", ""]);
    }

    #[test]
    fn the_last_argument_counts() {
        let args = "role=send  count=5 poke role=receive";
        assert_eq!(
            ["role", "count", "poke"].map(|key| value(args, key)),
            [Some("receive"), Some("5"), Some("")]
        );
        assert_eq!(["rol", "send", ""].map(|key| value(args, key)), [None; 3]);
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(
            ["12", "0x1F", "0x", "-1", "1F"].map(number),
            [Some(12), Some(31), None, None, None]
        );
    }
}
