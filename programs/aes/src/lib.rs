//! AES-256 in counter mode (NIST SP 800-38A, section 6.5), piece by piece between words of shared memory. A piece
//! depends on its number alone, so one that was begun and given up can be done again.
#![cfg_attr(target_os = "none", no_std)]

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are encrypted between two complete states.
pub const PIECE: usize = 256;
/// 64-bit words of a piece.
pub const WORDS: usize = PIECE / 8;
/// Blocks of a piece.
pub const BLOCKS: usize = PIECE / 16;
/// Blocks that are encrypted side by side.
const BATCH: usize = 16;

/// A key, and the counter of the first block.
#[derive(Debug)]
pub struct Cipher {
    aes: Aes256,
    counter: u128,
}

impl Cipher {
    /// A cipher.
    #[must_use]
    pub fn new(key: &[u8; 32], counter: u128) -> Self {
        Self { aes: Aes256::new(key.into()), counter }
    }

    fn counter_block(&self, number: usize) -> Block {
        self.counter.wrapping_add(number as u128).to_be_bytes().into()
    }

    /// The key stream for a block's words; blocks are numbered from 0.
    #[must_use]
    pub fn stream(&self, number: usize) -> [u64; 2] {
        let mut block = self.counter_block(number);
        self.aes.encrypt_block(&mut block);
        words(&block)
    }

    /// Encrypts piece `number` of `from` into `to`.
    ///
    /// # Panics
    /// It lies beyond the end of one of them.
    pub fn piece(&self, number: usize, from: &[AtomicU64], to: &[AtomicU64]) {
        let part = number * WORDS..(number + 1) * WORDS;
        let (from, to) = (from[part.clone()].as_chunks::<2>().0, to[part].as_chunks::<2>().0);
        let batches = from.chunks(BATCH).zip(to.chunks(BATCH));
        for (n, (from, to)) in batches.enumerate() {
            let first = number * BLOCKS + n * BATCH;
            let mut blocks: [Block; BATCH] =
                core::array::from_fn(|n| self.counter_block(first + n));
            self.aes.encrypt_blocks(&mut blocks);
            for ((from, to), block) in from.iter().zip(to).zip(&blocks) {
                let stream = words(block);
                for n in 0..2 {
                    to[n].store(from[n].load(Ordering::Relaxed) ^ stream[n], Ordering::Relaxed);
                }
            }
        }
    }
}

/// A block as it lies in memory.
fn words(block: &Block) -> [u64; 2] {
    let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|n| block[at + n]));
    [word(0), word(8)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number's bytes, the first one first, as words in memory.
    fn memory(blocks: [u128; 4]) -> Vec<AtomicU64> {
        let words = blocks.map(|b| words(&b.to_be_bytes().into()));
        let rest = std::iter::repeat_n(0, WORDS - 8);
        words.into_iter().flatten().chain(rest).map(AtomicU64::new).collect()
    }

    fn key() -> [u8; 32] {
        let halves =
            [0x603d_eb10_15ca_71be_2b73_aef0_857d_7781, 0x1f35_2c07_3b61_08d7_2d98_10a3_0914_dff4];
        let mut key = [0; 32];
        for (part, half) in key.chunks_mut(16).zip(halves) {
            part.copy_from_slice(&u128::to_be_bytes(half));
        }
        key
    }

    const COUNTER: u128 = 0xf0f1_f2f3_f4f5_f6f7_f8f9_fafb_fcfd_feff;

    #[test]
    fn a_piece_is_as_the_standard_has_it() {
        // NIST SP 800-38A, appendix F.5.5.
        let plain = memory([
            0x6bc1_bee2_2e40_9f96_e93d_7e11_7393_172a,
            0xae2d_8a57_1e03_ac9c_9eb7_6fac_45af_8e51,
            0x30c8_1c46_a35c_e411_e5fb_c119_1a0a_52ef,
            0xf69f_2445_df4f_9b17_ad2b_417b_e66c_3710,
        ]);
        let wanted = memory([
            0x601e_c313_7757_89a5_b7a7_f504_bbf3_d228,
            0xf443_e3ca_4d62_b59a_ca84_e990_caca_f5c5,
            0x2b09_30da_a23d_e94c_e870_17ba_2d84_988d,
            0xdfc9_c58d_b67a_ada6_13c2_dd08_4579_41a6,
        ]);
        let to = memory([0; 4]);
        Cipher::new(&key(), COUNTER).piece(0, &plain, &to);
        for (n, (found, wanted)) in to.iter().zip(&wanted).take(8).enumerate() {
            assert_eq!(found.load(Ordering::Relaxed), wanted.load(Ordering::Relaxed), "word {n}");
        }
    }

    #[test]
    fn pieces_go_on_where_others_end() {
        let cipher = Cipher::new(&key(), COUNTER);
        let (plain, to): (Vec<_>, Vec<_>) =
            (0..2 * WORDS).map(|_| (AtomicU64::new(0), AtomicU64::new(1))).unzip();
        cipher.piece(1, &plain, &to);
        for (n, found) in to.iter().enumerate() {
            let wanted = if n < WORDS { 1 } else { cipher.stream(n / 2)[n % 2] };
            assert_eq!(found.load(Ordering::Relaxed), wanted, "word {n}");
        }
    }
}
