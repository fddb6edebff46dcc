//! Hears of the faults and timeouts of the threads that it manages. The end of a budget is counted: the thread goes on
//! with its next refill and not before. A thread that raises an exception climbs a ladder as sandboxes do. It begins
//! anew some times within some time, then it stays stopped. An exception of a thread that it does not manage ends the
//! sandbox, which has a ladder of its own.
//!
//! Arguments: `restarts=N` (3, at most 8), `within=MS` (10,000), `overruns=N`: how many of a thread go by between two
//! lines (1000). `alive-THREAD=MS`: a thread that does not move its word within that time has failed, too ([`Signs`]).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::abi::{at, label};
use bulkhead_program::layout::ladder::{Climb, Ladder, Rung, TIMES};
use bulkhead_program::{Message, Program, Received, Signs, Thread, now};
use core::fmt::Arguments;

bulkhead_program::entry!(guard);

/// Threads that it can keep.
const MOST: usize = 8;

/// A thread, with its place in the list, from 1, as its badge.
struct Ward {
    name: &'static str,
    thread: Thread,
    /// Where it began.
    begin: [u64; 4],
    climb: Climb,
    overruns: u64,
}

fn wards(program: Program) -> [Option<Ward>; MOST] {
    let mut wards = [const { None }; MOST];
    for (ward, (name, thread)) in wards.iter_mut().zip(program.threads()) {
        // No thread of them has run so far: the guard's priority is above theirs.
        let begin = thread.registers().map_or([0; 4], |[ip, sp, ..]| [ip, sp, at::PAGE, 0]);
        *ward = Some(Ward { name, thread, begin, climb: Climb::default(), overruns: 0 });
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

    /// Tells if it is to begin anew after a failure.
    fn failed(&mut self, why: Arguments<'_>, ladder: &Ladder) -> bool {
        let rung = self.climb.take(ladder, now(), 1_000_000_000);
        let rung = rung.and_then(|rung| ladder.rungs.get(rung));
        let again = rung.is_some_and(|rung| rung.action == Rung::RESTART);
        let what = if again { "begins anew" } else { "stays stopped" };
        log::warn!("{}: {why}; it {what}", self.name);
        again
    }

    /// It has not moved its word. Tells if it begins anew.
    fn hangs(&mut self, ladder: &Ladder) -> bool {
        // Also where it stays stopped: no exception has stopped it.
        let stopped = self.thread.suspend();
        let again = self.failed(format_args!("it hangs"), ladder) && stopped.is_ok();
        if again {
            self.begin();
        }
        again
    }

    fn begin(&self) {
        if let Err(error) = self.thread.start(self.begin) {
            log::error!("{} cannot begin: {error}", self.name);
        }
    }
}

/// So many restarts in so many milliseconds, then a stop.
fn ladder(restarts: u64, within: u64) -> Ladder {
    let stop = Rung { action: Rung::STOP, ..Rung::default() };
    let times = restarts.min(TIMES as u64) as u8;
    let within = within.min(u64::from(u32::MAX)) as u32;
    let restart = Rung { action: Rung::RESTART, times, guest: 0, within };
    let mut ladder = Ladder::default();
    // A rung without times has no limit.
    let rungs = if times == 0 { [stop, stop] } else { [restart, stop] };
    ladder.rungs[..2].copy_from_slice(&rungs);
    ladder
}

fn guard(program: Program) -> u32 {
    program.log();
    let ladder =
        ladder(program.number("restarts").unwrap_or(3), program.number("within").unwrap_or(10_000));
    let every = program.number("overruns").unwrap_or(1_000).max(1);
    let (endpoint, reply) = (program.serves("trouble"), program.reply("guard"));
    let mut wards = wards(program);
    let mut signs = Signs::<MOST>::find(program, wards.iter().flatten().map(|ward| ward.name));
    loop {
        let received = endpoint.receive_until(reply, signs.due());
        let hanging = signs.look();
        for (n, ward) in wards.iter_mut().enumerate().filter(|(n, _)| hanging >> n & 1 != 0) {
            if ward.as_mut().is_some_and(|ward| ward.hangs(&ladder)) {
                signs.begin(n);
            }
        }
        let Ok(Received { badge, message }) = received else { continue };
        let ward = (badge as usize).checked_sub(1).and_then(|n| wards.get_mut(n)?.as_mut());
        let (answer, again) = match (message.label(), ward) {
            (label::TIMEOUT, Some(ward)) => (ward.overran(every), None),
            (label::FAULT, Some(ward)) => {
                let exception = message.words[0] & 0xFF;
                let again = ward.failed(format_args!("exception {exception}"), &ladder);
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
            signs.begin((badge - 1) as usize);
        }
    }
}
