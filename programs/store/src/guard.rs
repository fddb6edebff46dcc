//! Guards a driver sandbox: it lets the sandbox begin anew when its driver fails. A monitor then resets the device,
//! waits until that is over, and plays the sandbox's launch again. No word of the driver's memory outlives that.
//!
//! It has two ways to see a failure. The kernel tells it of an exception in the driver: a bad access, a panic, a driver
//! that gives up. And it asks the driver every few milliseconds whether its rounds go on
//! ([`store_programs::progress`]).
//!
//! It needs a priority above the driver's, and the right to end the sandbox. It serves the endpoint `trouble` for the
//! driver's faults, maps the memory `progress`, and signals the driver's notification `work`.
//!
//! Arguments:
//!
//! * `every=MS` (default 2): time between two questions;
//! * `missed=N` (default 3): so many questions without an answer are a failure;
//! * `pause=MS` (default 500): time between a failure before the first answer and the new beginning. So a driver that
//!   cannot begin does not try all the time.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::abi::label;
use bulkhead_program::{
    Endpoint, Message, Notification, Program, Reply, now, println, ready, restart,
};
use store_programs::progress::Progress;

bulkhead_program::entry!(guard);

/// The sandbox's exit code where no monitor lets it begin anew.
const LOST: u32 = 2;
/// Longest time without answers that the driver can announce, ns: longer than a disk's reset may take.
const LONGEST: u64 = 10_000_000_000;
/// Answer to a fault: the thread stays stopped.
const STOP: u64 = 1;

struct Guard {
    program: Program,
    progress: Progress,
    work: Notification,
    trouble: Endpoint,
    reply: Reply,
    /// Times, ns.
    every: u64,
    pause: u64,
    missed: u64,
    begun: bool,
}

fn guard(program: Program) -> u32 {
    let number = |name, default| program.number(name).unwrap_or(default);
    let millis = |name, default| number(name, default).saturating_mul(1_000_000);
    let Some(progress) = Progress::find(program) else {
        println!("{}: there is no memory for the driver's answers", program.name());
        return LOST;
    };
    let mut guard = Guard {
        program,
        progress,
        work: program.signals("work"),
        trouble: program.serves("trouble"),
        reply: program.reply(program.name()),
        every: millis("every", 2),
        pause: millis("pause", 500),
        missed: number("missed", 3),
        begun: false,
    };
    guard.watch()
}

impl Guard {
    /// Asks for ever.
    fn watch(&mut self) -> ! {
        let (mut asked, mut missed, mut since) = (0, 0, now());
        loop {
            asked += 1;
            self.progress.ask(asked);
            self.work.signal();
            // The time from this question on, also after a pause of the whole core: the driver had that long.
            self.hear(now().saturating_add(self.every));
            if self.progress.answered() == asked {
                (missed, since) = (0, now());
                self.began();
                continue;
            }
            missed += 1;
            let due = self.progress.busy_until().min(since.saturating_add(LONGEST));
            if missed >= self.missed && now() >= due {
                let silent = (now() - since) / 1_000;
                self.fail(format_args!("it gives no answer for {silent} us"));
            }
        }
    }

    /// The driver answers for the first time: the sandbox has started.
    fn began(&mut self) {
        if !self.begun {
            self.begun = true;
            ready();
        }
    }

    /// Hears of faults until a time.
    fn hear(&mut self, until: u64) {
        while let Ok(heard) = self.trouble.receive_until(self.reply, until) {
            let [what, at, address, _] = heard.message.words;
            if heard.message.label() == label::FAULT {
                let exception = what & 0xFF;
                self.fail(format_args!("exception {exception} at {at:#x}, address {address:#x}"));
            }
            // Nothing else calls it; a budget's end is no failure, and an answer lets nobody wait.
            let _ = self.reply.answer(Message::new(STOP, &[]));
        }
    }

    /// Lets the sandbox begin anew.
    fn fail(&self, why: core::fmt::Arguments<'_>) -> ! {
        println!("{}: {why}; the sandbox begins anew", self.program.name());
        // An answer that nobody has looked at is one, too.
        if self.progress.answered() == 0 {
            let until = now().saturating_add(self.pause);
            while now() < until && self.trouble.receive_until(self.reply, until).is_ok() {}
        }
        restart(LOST)
    }
}
