//! Keeps a log of the flight for later readers, in the time that is left.
//!
//! Arguments: `every=N` prints a line each N seconds; without it none.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::Program;
use flight_programs::recorder;

bulkhead_program::entry!(logger);

fn logger(program: Program) -> u32 {
    program.log();
    let every = program.number("every").map_or(u64::MAX, |seconds| (seconds * 1_000).max(1));
    let (more, words) = (program.waits("recorded"), program.memory("recorder").words());
    let (mut seen, mut error, mut late) = (0, 0, 0);
    while more.wait().is_ok() {
        let count = recorder::count(words);
        // Those that have been overwritten are lost.
        seen = seen.max(count.saturating_sub(recorder::ENTRIES));
        for number in seen..count {
            let (e, l) = recorder::get(words, number);
            (error, late) = (e.max(error), l.max(late));
            if (number + 1) % every == 0 {
                log::info!(
                    "{} releases, error at most {}.{:03} mrad",
                    number + 1,
                    error / 1_000,
                    error % 1_000
                );
                log::debug!("at most {late} ns late");
                (error, late) = (0, 0);
            }
        }
        seen = count;
    }
    0
}
