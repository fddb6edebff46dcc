//! The mutation gate's word: which rule a monitor built for it leaves out.
//!
//! An ordinary monitor has no such word. A monitor built with `BULKHEAD_MUTANTS` set has it in its read-only data. The
//! gate writes a rule's number there before the image is baked: one build serves all mutants.

/// Value of the word in a monitor as it is built: it leaves out no rule. The gate finds the word by it.
pub const NONE: u64 = u64::from_le_bytes(*b"mutant:?");

/// Returns the number of a rule: FNV-1a, 64 bits, of its name.
#[must_use]
pub const fn number(rule: &str) -> u64 {
    let (bytes, mut at, mut hash) = (rule.as_bytes(), 0, 0xCBF2_9CE4_8422_2325_u64);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01B3);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_published_hash() {
        // The function's own test vectors.
        assert_eq!(number(""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(number("a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(number("foobar"), 0x8594_4171_F739_67E8);
    }
}
