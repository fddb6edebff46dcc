//! The content of pages.

/// Bytes of each page: as many as the page of the Quest-V article's figure 30 had.
pub const BYTES: usize = 17_675;

/// Letters of a line, without its end.
const LINE: usize = 63;

/// The page of a path: lines of capital letters that follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    seed: u64,
}

impl Page {
    /// Returns the page of a path.
    #[must_use]
    pub fn of(path: &[u8]) -> Self {
        // FNV-1a, 64 bits.
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        Self { seed: path.iter().fold(0xCBF2_9CE4_8422_2325, step) }
    }

    /// Returns a byte of the page; the page has [`BYTES`].
    #[must_use]
    pub const fn byte(self, at: usize) -> u8 {
        if at % (LINE + 1) == LINE || at + 1 == BYTES {
            return b'\n';
        }
        // SplitMix64 of the group of eight bytes that this one is in.
        let mut word =
            self.seed.wrapping_add((at as u64 / 8 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^= word >> 31;
        b'A' + ((word >> (8 * (at % 8))) as u8 & 15)
    }

    /// Writes the bytes from `at` on into a buffer. Returns how many there are.
    pub fn write(self, at: usize, to: &mut [u8]) -> usize {
        let len = BYTES.saturating_sub(at).min(to.len());
        for (n, byte) in to[..len].iter_mut().enumerate() {
            *byte = self.byte(at + n);
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_follows_from_its_path() {
        let page = |path: &str| (0..BYTES).map(|n| Page::of(path.as_bytes()).byte(n)).collect();
        let (one, two): (Vec<u8>, Vec<u8>) = (page("/1"), page("/2"));
        assert_eq!(one, page("/1"));
        let alike = one.iter().zip(&two).filter(|(a, b)| a == b).count();
        assert!(alike < BYTES / 8, "{alike} bytes are alike");
        assert!(one.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'\n'));
        assert_eq!(one.last(), Some(&b'\n'));
    }

    #[test]
    fn pieces_make_the_page() {
        let page = Page::of(b"/x");
        let mut all = Vec::new();
        let mut piece = [0; 1000];
        loop {
            let len = page.write(all.len(), &mut piece);
            if len == 0 {
                break;
            }
            all.extend_from_slice(&piece[..len]);
        }
        assert!(all.len() == BYTES && all.iter().enumerate().all(|(n, b)| *b == page.byte(n)));
    }
}
