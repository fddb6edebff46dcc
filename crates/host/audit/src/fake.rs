//! A machine for tests: words at physical addresses, zeros elsewhere below 4 GiB.

use crate::claim::Range;
use crate::memory::Memory;
use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// See the module.
#[derive(Clone, Default)]
pub struct Fake {
    words: BTreeMap<u64, u64>,
}

impl Fake {
    /// Has these words.
    pub fn new(words: &[(u64, u64)]) -> Self {
        Self { words: words.iter().copied().collect() }
    }

    /// Changes a word.
    pub fn set(&mut self, at: u64, value: u64) {
        self.words.insert(at, value);
    }

    /// Reads a word.
    pub fn get(&self, at: u64) -> u64 {
        self.words.get(&at).copied().unwrap_or(0)
    }
}

impl Memory for Fake {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        if address + bytes.len() as u64 > 1 << 32 {
            return false;
        }
        for (n, byte) in bytes.iter_mut().enumerate() {
            let at = address + n as u64;
            *byte = (self.get(at & !7) >> (at % 8 * 8)) as u8;
        }
        true
    }

    fn data(&self) -> Vec<Range> {
        let mut frames: Vec<_> = self.words.keys().map(|at| at / PAGE * PAGE).collect();
        frames.dedup();
        frames.into_iter().map(|start| Range { start, len: PAGE }).collect()
    }
}
