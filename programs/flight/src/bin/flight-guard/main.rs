//! Hears of the faults and timeouts of the threads that it manages. The end of a budget is counted: the thread goes on
//! with its next refill and not before. A thread that raises an exception climbs a ladder as sandboxes do. It begins
//! anew some times within some time, then another program takes its place, or it stays stopped. An exception of a
//! thread that it does not manage ends the sandbox, which has a ladder of its own.
//!
//! Arguments:
//!
//! * `restarts=N` (3, at most 8), `within=MS` (10,000);
//! * `overruns=N`: how many of a thread go by between two lines (1000);
//! * `alternative=THREAD:OTHER:CONTEXT`: behind the restarts OTHER gets the context of THREAD. Its program has
//!   `alternative_to` in the manifest. It has as many restarts;
//! * `asks=THREAD`: it asks this thread, or the other one in its place, each `every=MS` (2) whether it goes on
//!   ([`store_programs::progress`]). If `missed=N` (2) questions go by without an answer then the thread hangs. A
//!   thread that begins has `first=MS` (100) for its first answer. That needs the memory `progress`, and the right to
//!   signal `work`;
//! * `needs=THREAD` or `needs=THREAD:THREAD`: where one of these would stay stopped, the sandbox ends, which has a
//!   ladder of its own;
//! * `alive-THREAD=MS`: a thread that does not move its word within that time has failed, too ([`Signs`]).
//!
//! It moves the progress word of its sandbox if the manifest lets it (`watchdog`).
//!
//! A program that uses another one's work can complain of it ([`COMPLAINT`]). A complaint is no proof, so it stops
//! nothing: the thread begins anew, or the other one does.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod ask;
mod ward;

use ask::Ask;
use bulkhead_program::abi::{Code, label};
use bulkhead_program::{Endpoint, FOREVER, Message, Program, Received, Reply, Signs, now};
use core::fmt::Arguments;
use store_programs::progress::COMPLAINT;
use ward::{MOST, Place, Wards};

bulkhead_program::entry!(guard);

/// The sandbox's exit code if one of those is lost without which nothing flies.
const LOST: u32 = 2;

/// Goes on.
const GO_ON: u64 = 0;
/// Stays where it is.
const STOP: u64 = 1;

struct Guard {
    wards: Wards,
    ask: Option<Ask>,
    signs: Signs<MOST>,
    /// Those without which the sandbox is nothing, by bit.
    needs: u64,
    trouble: Endpoint,
    reply: Reply,
    /// Ends of budgets between two lines.
    every: u64,
}

fn guard(program: Program) -> u32 {
    program.log();
    let wards = Wards::find(program);
    let place = |name| wards.place(name).unwrap_or_else(|| panic!("it manages no thread {name}"));
    let ask = program.arg("asks").map(|name| Ask::new(program, place(name)));
    let needs = program.arg("needs").into_iter().flat_map(|names| names.split(':'));
    let needs = needs.fold(0, |set, name| set | 1 << place(name));
    let signs = Signs::find(program, wards.names());
    let every = program.number("overruns").unwrap_or(1_000).max(1);
    let (trouble, reply) = (program.serves("trouble"), program.own_reply());
    Guard { wards, ask, signs, needs, trouble, reply, every }.watch(program)
}

impl Guard {
    fn watch(&mut self, program: Program) -> ! {
        loop {
            program.kick();
            let question = self.ask.as_ref().map_or(FOREVER, Ask::due);
            match self.trouble.receive_until(self.reply, question.min(self.signs.due())) {
                Ok(heard) => self.heard(heard),
                Err(error) if error.code() == Some(Code::TimedOut) && now() >= question => {
                    self.asked();
                }
                Err(_) => {}
            }
            self.look();
        }
    }

    /// Looks at the words of threads, if that is due.
    fn look(&mut self) {
        let hanging = self.signs.look();
        for number in (0..MOST).filter(|number| hanging >> number & 1 != 0) {
            // The word of a thread that another one has replaced stands still.
            let place = self.wards.of(number).filter(|place| self.wards.number(*place) == number);
            if let Some(place) = place {
                self.fail(place, false, format_args!("it hangs"));
            }
        }
    }

    /// It is time for a question: how went the last one?
    fn asked(&mut self) {
        let Some(ask) = &mut self.ask else { return };
        if let Some(silent) = ask.next(now()) {
            let place = ask.place;
            self.fail(place, false, format_args!("no answer for {silent} us"));
        }
    }

    fn heard(&mut self, Received { badge, message }: Received) {
        let place = (badge as usize).checked_sub(1).and_then(|n| self.wards.of(n));
        let (answer, failed) = match (message.label(), place) {
            (label::TIMEOUT, Some(place)) => {
                self.wards.overran(place, self.every);
                (GO_ON, None)
            }
            (label::FAULT, Some(place)) => (STOP, Some((place, message.words[0] & 0xFF))),
            (label::FAULT, None) => {
                log::error!(
                    "exception {} in what control cannot do without",
                    message.words[0] & 0xFF
                );
                bulkhead_program::exit(LOST)
            }
            (COMPLAINT, None) => return self.complaint(message.words[0]),
            _ => (STOP, None),
        };
        if let Err(error) = self.reply.answer(Message::new(answer, &[])) {
            log::error!("nobody waits for an answer: {error}");
        }
        if let Some((place, exception)) = failed {
            self.fail(place, false, format_args!("exception {exception}"));
        }
    }

    /// A complaint about the thread that is asked. One that has not answered yet is still beginning.
    fn complaint(&mut self, word: u64) {
        let Some(ask) = self.ask.as_ref().filter(|ask| ask.has_answered()) else { return };
        let place = ask.place;
        self.fail(place, true, format_args!("complaint {word}"));
    }

    /// Lets what failed begin anew, or another thread in its place.
    fn fail(&mut self, place: Place, complaint: bool, why: Arguments<'_>) {
        let began = self.wards.fail(place, complaint, why);
        if let Some(ask) = self.ask.as_mut().filter(|ask| ask.place == place) {
            ask.begin(now(), began);
        }
        if began {
            self.wards.begin(place);
            self.signs.begin(self.wards.number(place));
        } else if self.needs >> place & 1 != 0 {
            log::error!("the sandbox is nothing without {}", self.wards.name(place));
            bulkhead_program::exit(LOST);
        }
    }
}
