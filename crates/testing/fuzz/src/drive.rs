//! Input without a fuzzer's feedback: what lies in the tree, changed pieces of it, and
//! bytes at random. A seed makes a run repeatable.

use crate::{Seen, Target};
use bulkhead_random::SplitMix64;
use std::path::Path;

fn bytes(random: &mut SplitMix64, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.any() as u8).collect()
}

/// A target, what it starts with, and what it has done so far.
pub struct Driver {
    target: &'static Target,
    corpus: Vec<Vec<u8>>,
    random: SplitMix64,
    /// Inputs so far.
    pub inputs: u64,
    /// Counts of their attempts.
    pub seen: Seen,
}

impl Driver {
    /// Reads the corpus: every file of these folders, by name, those that do not exist
    /// left out.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn new(target: &'static Target, folders: &[&Path], seed: u64) -> std::io::Result<Self> {
        let mut corpus = Vec::new();
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            let files = std::fs::read_dir(folder)?.flatten().map(|f| f.path());
            let mut files: Vec<_> = files.filter(|f| f.is_file()).collect();
            files.sort();
            for file in files {
                corpus.push(std::fs::read(file)?);
            }
        }
        let random = SplitMix64(seed);
        Ok(Self { target, corpus, random, inputs: 0, seen: Seen::default() })
    }

    /// Files of the corpus.
    #[must_use]
    pub fn corpus(&self) -> usize {
        self.corpus.len()
    }

    fn feed(&mut self, input: &[u8]) -> Result<(), String> {
        self.inputs += 1;
        let hex = || input.iter().map(|b| format!("{b:02x}")).collect::<String>();
        // With the input, because a panic alone would not tell which one it was.
        let run = std::panic::catch_unwind(|| (self.target.run)(input));
        let seen = run.unwrap_or_else(|_| Err("it panics".into()));
        let seen = seen.map_err(|why| format!("{}: {why}; input {}", self.target.name, hex()))?;
        self.seen.tried += seen.tried;
        self.seen.through += seen.through;
        Ok(())
    }

    /// Feeds the corpus as it is.
    ///
    /// # Errors
    /// A deed that the target must not do, with the input.
    pub fn replay(&mut self) -> Result<(), String> {
        for input in std::mem::take(&mut self.corpus) {
            self.feed(&input)?;
            self.corpus.push(input);
        }
        Ok(())
    }

    /// Feeds one more input: random, or one of the corpus with pieces changed.
    ///
    /// # Errors
    /// As of [`Self::replay`].
    pub fn step(&mut self) -> Result<(), String> {
        let input = self.input();
        self.feed(&input)
    }

    fn input(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        if self.corpus.is_empty() || !self.target.text && random.index(2) == 0 {
            let len = random.index(self.target.len + 1);
            return bytes(random, len);
        }
        let mut input = self.corpus[random.index(self.corpus.len())].clone();
        for _ in 0..=random.index(4) {
            let at = random.index(input.len() + 1);
            let len = random.index(16).min(input.len() - at);
            let with = match random.index(4) {
                0 if !self.target.pieces.is_empty() => {
                    let piece = random.index(self.target.pieces.len());
                    self.target.pieces[piece].as_bytes().to_vec()
                }
                0 | 1 => {
                    let len = random.index(8);
                    bytes(random, len)
                }
                2 => Vec::new(),
                _ => {
                    // A piece of another one.
                    let other = &self.corpus[random.index(self.corpus.len())];
                    let from = random.index(other.len());
                    other[from..(from + random.index(80)).min(other.len())].to_vec()
                }
            };
            input.splice(at..at + len, with);
        }
        input
    }
}
