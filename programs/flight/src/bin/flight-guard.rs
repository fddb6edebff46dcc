//! Hears of the faults and timeouts of the threads that it manages. The end of a budget is counted: the thread goes on
//! with its next refill and not before. A thread that raises an exception begins anew, some times; then it stays
//! stopped. An exception of a thread that it does not manage ends the sandbox: its launcher knows the consequence.
//!
//! Arguments: `restarts=N` (3), `overruns=N`: how many of a thread go by between two lines (1000).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::abi::{at, label};
use bulkhead_program::{Message, Program, Received, Thread};

bulkhead_program::entry!(guard);

/// Threads that it can keep.
const MOST: usize = 8;

/// A thread, with its place in the list, from 1, as its badge.
#[derive(Clone, Copy)]
struct Ward {
    name: &'static str,
    thread: Thread,
    /// Where it began.
    begin: [u64; 4],
    restarts: u64,
    overruns: u64,
}

fn wards(program: Program) -> [Option<Ward>; MOST] {
    let mut wards = [None; MOST];
    for (ward, (name, thread)) in wards.iter_mut().zip(program.threads()) {
        // No thread of them has run so far: the guard's priority is above theirs.
        let begin = thread.registers().map_or([0; 4], |[ip, sp, ..]| [ip, sp, at::PAGE, 0]);
        *ward = Some(Ward { name, thread, begin, restarts: 0, overruns: 0 });
    }
    wards
}

/// The sandbox's exit code if one of those is lost without which nothing flies.
const LOST: u32 = 2;

/// Goes on.
const GO_ON: u64 = 0;
/// Stays where it is.
const STOP: u64 = 1;

impl Ward {
    /// The budget's end.
    fn overran(&mut self, every: u64) -> u64 {
        if self.overruns % every == 0 {
            log::info!("{} takes all of its budget", self.name);
        }
        self.overruns += 1;
        GO_ON
    }

    /// Tells if it is to begin anew after an exception.
    fn crashed(&mut self, exception: u64, most: u64) -> bool {
        self.restarts += 1;
        let again = self.restarts <= most;
        let what = if again { "begins anew" } else { "stays stopped" };
        log::warn!("{}: exception {exception}; it {what}", self.name);
        again
    }

    fn begin(&self) {
        if let Err(error) = self.thread.start(self.begin) {
            log::error!("{} cannot begin: {error}", self.name);
        }
    }
}

fn guard(program: Program) -> u32 {
    program.log();
    let restarts = program.number("restarts").unwrap_or(3);
    let every = program.number("overruns").unwrap_or(1_000).max(1);
    let (endpoint, reply) = (program.serves("trouble"), program.reply("guard"));
    let mut wards = wards(program);
    loop {
        let Ok(Received { badge, message }) = endpoint.receive(reply) else { continue };
        let ward = (badge as usize).checked_sub(1).and_then(|n| wards.get_mut(n)?.as_mut());
        let (answer, again) = match (message.label(), ward) {
            (label::TIMEOUT, Some(ward)) => (ward.overran(every), None),
            (label::FAULT, Some(ward)) => {
                let again = ward.crashed(message.words[0] & 0xFF, restarts);
                (STOP, again.then_some(ward))
            }
            (label::FAULT, None) => {
                log::error!(
                    "exception {} in what control cannot do without",
                    message.words[0] & 0xFF
                );
                bulkhead_program::exit(LOST)
            }
            _ => (STOP, None),
        };
        if let Err(error) = reply.answer(Message::new(answer, &[])) {
            log::error!("nobody waits for an answer: {error}");
        }
        if let Some(ward) = again {
            ward.begin();
        }
    }
}
