//! `bhfs` exercises a file system, and compares it with a model that knows what must be there.
//!
//! | arguments | does |
//! |---|---|
//! | `disk DEVICE IMAGE READ-AHEAD SEED OPERATIONS SECONDS` | all of it on a new file system, and a check of that ([`disk`]) |
//! | `file PATH SEED OPERATIONS` | writes, reads, truncates, maps and punches one file ([`file`]) |
//! | `file-again PATH SEED OPERATIONS` | compares it later, as after another mount |
//! | `tree FOLDER SEED PROCESSES OPERATIONS` | makes, renames, links and removes files and folders, by several processes ([`tree`]) |
//! | `tree-again FOLDER SEED PROCESSES OPERATIONS` | compares them later |
//!
//! All of it follows from the seed, so the model of a later comparison is the first one's, played again.
#![forbid(unsafe_code)]

mod disk;
mod file;
mod tree;

use std::io::{Error, Result};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("bhfs: {}: {why}", args.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<()> {
    match args {
        ["disk", device, image, rest @ ..] => disk::exercise(device, image, numbers(rest)?),
        ["file", path, rest @ ..] => file::exercise(path, numbers(rest)?),
        ["file-again", path, rest @ ..] => file::again(path, numbers(rest)?),
        ["tree", folder, rest @ ..] => tree::exercise(folder, numbers(rest)?),
        ["tree-one", folder, rest @ ..] => tree::one(folder, numbers(rest)?),
        ["tree-again", folder, rest @ ..] => tree::again(folder, numbers(rest)?),
        _ => Err(Error::other("usage: bhfs disk|file|file-again|tree|tree-again PATH ...")),
    }
}

fn numbers<const N: usize>(words: &[&str]) -> Result<[u64; N]> {
    let all: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
    let all = all.and_then(|all| <[u64; N]>::try_from(all).ok());
    all.ok_or_else(|| Error::other(format!("{N} numbers?")))
}

/// Fills bytes with what a number makes.
fn fill(bytes: &mut [u8], number: u64) {
    let mut random = bulkhead_random::SplitMix64(number);
    for part in bytes.chunks_mut(8) {
        let word = random.any().to_le_bytes();
        part.copy_from_slice(&word[..part.len()]);
    }
}

/// Checks that bytes are as the model has them.
///
/// # Errors
/// The first one that is not.
fn same(there: &[u8], right: &[u8], at: usize, what: &str) -> Result<()> {
    if there.len() != right.len() {
        let (there, right) = (there.len(), right.len());
        return Err(Error::other(format!(
            "{what}: {there} bytes in place of {right} from {at} on"
        )));
    }
    let Some(first) = there.iter().zip(right).position(|(there, right)| there != right) else {
        return Ok(());
    };
    let wrong = there.iter().zip(right).filter(|(there, right)| there != right).count();
    Err(Error::other(format!(
        "{what}: {wrong} of {} bytes from {at} on are others, the first at {}: {:#x} in place of {:#x}",
        right.len(),
        at + first,
        there[first],
        right[first]
    )))
}
