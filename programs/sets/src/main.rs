//! A thread of a set that the oracle made up (`crates/testing/oracle`). It does its job again and again, and keeps the
//! longest time from a release to the end of a job. Times of use are instructions, one a nanosecond in virtual time: a
//! thread that is taken off the processor uses none.
//!
//! `role=job`, `role=driver`, `role=server`: `number=N` among the set's, `name=NAME` of its thread, `set=NAME`, `row=N`
//! of the first thread's words in the results. `role=report`: `until=NS`, `rows=N` to be printed.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{
    Endpoint, Message, Notification, Program, Reply, now, println, sleep_until,
};
use core::fmt::Write as _;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use program_sets::{HEADER, MAGIC, SEEN, Step, TABLE, THREADS, Thread, WORDS};

bulkhead_program::entry!(sets);

/// Zeros behind the mark, until the harness writes the set.
#[used]
static GIVEN: [AtomicU64; TABLE + 2] = {
    let mut all = [const { AtomicU64::new(0) }; TABLE + 2];
    (all[0], all[1]) = (AtomicU64::new(MAGIC[0]), AtomicU64::new(MAGIC[1]));
    all
};

fn sets(program: Program) -> u32 {
    match program.arg("role") {
        Some("job") => Player::new(program).jobs(),
        Some("driver") => Player::new(program).drive(),
        Some("server") => Player::new(program).serve(),
        Some("report") => report(program),
        role => panic!("no role {role:?}"),
    }
}

fn word(at: usize) -> u64 {
    GIVEN[2 + at].load(Relaxed)
}

fn thread(n: usize) -> Thread {
    Thread::of(core::array::from_fn(|field| word(HEADER + n * WORDS + field)))
}

fn step(thread: usize, n: usize) -> Option<Step> {
    Step::of(word(HEADER + thread * WORDS + HEADER + n))
}

struct Player {
    program: Program,
    number: usize,
    /// It is never signalled.
    pause: Notification,
    servers: [Option<Endpoint>; THREADS],
    drivers: [Option<Endpoint>; THREADS],
}

/// A name of an object of the set: its kind and number behind the set's name.
struct Named([u8; 16], usize);

impl core::fmt::Write for Named {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.1 + text.len();
        self.0.get_mut(self.1..end).ok_or(core::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.1 = end;
        Ok(())
    }
}

impl Named {
    fn new(program: Program, kind: char, n: usize) -> Self {
        let mut named = Self([0; 16], 0);
        let set = program.arg("set").unwrap_or("");
        write!(named, "{set}{kind}{n}").expect("a short name");
        named
    }

    fn text(&self) -> &str {
        core::str::from_utf8(&self.0[..self.1]).unwrap_or("")
    }
}

impl Player {
    fn new(program: Program) -> Self {
        let find = |kind| {
            core::array::from_fn(|n| {
                let named = Named::new(program, kind, n);
                let may = program
                    .arg("calls")
                    .is_some_and(|all| all.split(',').any(|one| one == named.text()));
                may.then(|| program.endpoint(named.text()))
            })
        };
        Self {
            program,
            number: program.number("number").unwrap_or(0) as usize,
            pause: program.waits("pause"),
            servers: find('s'),
            drivers: find('d'),
        }
    }

    fn reply(&self) -> Reply {
        self.program.reply(self.program.name())
    }

    fn jobs(&self) -> u32 {
        let (this, row) = (thread(self.number), self.program.number("row").unwrap_or(0) as usize);
        let seen = &self.program.memory("seen").words()[SEEN * (row + self.number)..];
        let mut release = this.first;
        while release < this.end {
            // A release in the past has no wait: a late thread goes on with the next job at once.
            if now() < release {
                sleep_until(self.pause, release).expect("a context of its own");
            }
            self.steps(self.number, 0);
            let end = now();
            if end >= this.end {
                break;
            }
            seen[0].fetch_max(end - release, Relaxed);
            seen[1].fetch_add(1, Relaxed);
            release += this.every;
        }
        // A line of the kernel's about its end would disturb the next set.
        loop {
            let _ = self.pause.wait();
        }
    }

    /// A thread's job from a step up to the answer of its server, or to its end.
    fn steps(&self, of: usize, mut at: usize) {
        let end = thread(of).end;
        while let Some(step) = step(of, at) {
            at += 1;
            match step {
                Step::Run(time) => spin(time, end),
                Step::Sleep(time) => _ = sleep_until(self.pause, now() + time),
                Step::Ask(driver, work) => {
                    ask(self.drivers[usize::from(driver)], [of as u64, work])
                }
                Step::Call(server) => {
                    ask(self.servers[usize::from(server)], [of as u64, at as u64]);
                    at = behind(of, at);
                }
                Step::Answer => return,
            }
        }
    }

    fn serve(&self) -> u32 {
        let named = Named::new(self.program, 's', self.number);
        let (endpoint, reply) = (self.program.serves(named.text()), self.reply());
        let mut received = endpoint.receive(reply);
        loop {
            let [of, at, ..] = received.expect("a request").message.words;
            self.steps(of as usize, at as usize);
            received = endpoint.reply_receive(reply, Message::default());
        }
    }

    fn drive(&self) -> u32 {
        let named = Named::new(self.program, 'd', self.number);
        let (endpoint, reply) = (self.program.serves(named.text()), self.reply());
        let mut received = endpoint.receive(reply);
        loop {
            let [of, work, ..] = received.expect("a request").message.words;
            spin(work, thread(of as usize).end);
            self.steps(self.number, 0);
            received = endpoint.reply_receive(reply, Message::default());
        }
    }
}

fn ask(whom: Option<Endpoint>, words: [u64; 2]) {
    let asked = whom.expect("a right that the set has").call(Message::new(0, &words));
    asked.expect("an answer");
}

/// Finds the step behind the answer to a call with its first step at `at`.
fn behind(of: usize, mut at: usize) -> usize {
    let mut inside = 1;
    while let Some(step) = step(of, at).filter(|_| inside > 0) {
        at += 1;
        match step {
            Step::Call(_) => inside += 1,
            Step::Answer => inside -= 1,
            _ => {}
        }
    }
    at
}

/// Instructions between two looks at the clock.
const CHUNK: u64 = 16_384;

/// Uses the processor for so many instructions at most, these loops' own among them, and not beyond a time.
fn spin(mut time: u64, end: u64) {
    while time >= CHUNK && now() < end {
        nops::<{ (CHUNK - 128) as usize }>();
        time -= CHUNK;
    }
    while (64..CHUNK).contains(&time) {
        nops::<48>();
        time -= 64;
    }
}

/// So many instructions without an effect. An emulator takes next to no time for them.
#[inline(never)]
fn nops<const COUNT: usize>() {
    // SAFETY: instructions without effect.
    #[cfg(target_os = "none")]
    unsafe {
        core::arch::asm!(".rept {}", "nop", ".endr", const COUNT, options(nomem, nostack, preserves_flags));
    }
}

/// Prints the results of all sets, once they are over.
fn report(program: Program) -> u32 {
    let until = program.number("until").unwrap_or(0);
    let begun = now();
    sleep_until(program.waits("pause"), until).expect("a context of its own");
    let words = program.memory("seen").words();
    let rows = words.chunks(SEEN).take(program.number("rows").unwrap_or(0) as usize);
    for (row, seen) in rows.enumerate() {
        println!("{row} {} {}", seen[0].load(Relaxed), seen[1].load(Relaxed));
    }
    println!("begun {begun}");
    0
}
