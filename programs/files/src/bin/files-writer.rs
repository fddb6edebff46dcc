//! A client of the file server: appends records to a log, each of which it makes durable, and reads the log back.
//!
//! Arguments: `rounds=N` (default 32) records; `file=NAME` (default `FLIGHT.LOG`); `memory=NAME` (default `log`).
//! The log has a record for each round, from the first one on: 64 words that the round's number makes. An older log is
//! emptied.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, println, ready};
use core::sync::atomic::Ordering;
use files_programs::client::Files;
use files_programs::{END, Mode, Status};

bulkhead_program::entry!(write);

/// Words and bytes of a record.
const WORDS: usize = 64;
const RECORD: usize = 8 * WORDS;

/// A word of a record.
fn word(round: u64, at: usize) -> u64 {
    (round << 32 | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn write(program: Program) -> u32 {
    match log(program) {
        Ok(wrong) => u32::from(wrong > 0),
        Err(status) => {
            println!("{}: {status:?}", program.name());
            2
        }
    }
}

fn log(program: Program) -> Result<usize, Status> {
    let rounds = program.number("rounds").unwrap_or(32);
    let name = program.arg("file").unwrap_or("FLIGHT.LOG");
    let files = Files::new(program, "files", program.arg("memory").unwrap_or("log"));
    ready();
    let file = files.open(name, Mode::Create)?;
    for round in 0..rounds {
        for (at, place) in files.words().iter().take(WORDS).enumerate() {
            place.store(word(round, at), Ordering::Relaxed);
        }
        file.write(END, 0, RECORD)?;
        file.flush()?;
    }
    let length = file.length()?;
    let mut wrong = usize::from(length != rounds * RECORD as u64);
    for round in 0..rounds {
        let read = file.read(round * RECORD as u64, 0, RECORD)?;
        wrong += usize::from(read != RECORD);
        let words = files.words().iter().take(WORDS).enumerate();
        wrong +=
            words.filter(|(at, place)| place.load(Ordering::Acquire) != word(round, *at)).count();
    }
    file.close()?;
    println!("{}: {rounds} records, {length} bytes, {wrong} wrong", program.name());
    Ok(wrong)
}
