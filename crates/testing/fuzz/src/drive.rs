//! Input without a fuzzer's feedback: what lies in the tree, changed pieces of it, and
//! bytes at random. A seed makes a run repeatable.

use crate::{Seen, Target};
use bulkhead_random::SplitMix64;
use std::path::Path;

/// Numbers that follow from a seed.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// From a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    /// The next one.
    #[expect(clippy::should_implement_trait, reason = "there is no end, and no use for one")]
    pub fn next(&mut self) -> u64 {
        self.0.any()
    }

    /// One below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A target, what it starts with, and what it has done so far.
pub struct Driver {
    target: &'static Target,
    corpus: Vec<Vec<u8>>,
    random: Random,
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
        let random = Random::new(seed);
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
        if self.corpus.is_empty() || !self.target.text && random.below(2) == 0 {
            let len = random.below(self.target.len + 1);
            return random.bytes(len);
        }
        let mut input = self.corpus[random.below(self.corpus.len())].clone();
        for _ in 0..=random.below(4) {
            let at = random.below(input.len() + 1);
            let len = random.below(16).min(input.len() - at);
            let with = match random.below(4) {
                0 if !self.target.pieces.is_empty() => {
                    let piece = random.below(self.target.pieces.len());
                    self.target.pieces[piece].as_bytes().to_vec()
                }
                0 | 1 => {
                    let len = random.below(8);
                    random.bytes(len)
                }
                2 => Vec::new(),
                _ => {
                    // A piece of another one.
                    let other = &self.corpus[random.below(self.corpus.len())];
                    let from = random.below(other.len());
                    other[from..(from + random.below(80)).min(other.len())].to_vec()
                }
            };
            input.splice(at..at + len, with);
        }
        input
    }
}
