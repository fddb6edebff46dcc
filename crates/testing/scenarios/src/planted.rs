//! Faults for which a disk's client asks the driver: a block that is written begins with a line of text. The demo and
//! tests ask; `programs/store-rogue` plants the fault in the middle of that write.

/// Kinds of faults (`programs/store-rogue/src/fault.rs` has what each does).
pub const KINDS: [&str; 13] = [
    "crash", "spin", "sleep", "kernel", "client", "state", "rings", "dma", "index", "id", "length",
    "short", "status",
];
/// Beginning of such a block. A kind and a number follow, and the line's end.
pub const BEGIN: &str = "planted fault: ";
/// Bytes of a block among which the line ends.
pub const LEN: usize = 64;

/// Reads the beginning of a block: the kind's place in [`KINDS`], and the number. A client gives an unanswered write
/// again; by its number the driver knows a fault that it has had.
#[must_use]
pub fn asked(block: &[u8]) -> Option<(usize, u64)> {
    let rest = block.strip_prefix(BEGIN.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = core::str::from_utf8(rest.get(..end)?).ok()?;
    let (kind, number) = line.split_once(' ')?;
    let kind = KINDS.iter().position(|known| *known == kind)?;
    Some((kind, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_asks_by_its_first_line() {
        assert_eq!(asked(b"planted fault: crash 7\nrest"), Some((0, 7)));
        assert_eq!(asked(b"planted fault: status 18446744073709551615\n"), Some((12, u64::MAX)));
        for other in [
            &b"planted fault: crash 7"[..],
            b"planted fault: crash\n",
            b"planted fault: crash seven\n",
            b"planted fault: other 7\n",
            b" planted fault: crash 7\n",
            b"planted fault: \xFF 7\n",
            b"",
        ] {
            assert_eq!(asked(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_line_has_room() {
        let longest = KINDS.iter().map(|kind| kind.len()).max().unwrap_or(0);
        let number = "18446744073709551615".len();
        assert!(BEGIN.len() + longest + " \n".len() + number <= LEN);
    }
}
