//! A thread of a set that the oracle made up (`crates/testing/oracle`). It does its job again and again, and keeps the
//! longest time from a release to the end of a job. Times of use are instructions, one a nanosecond in virtual time: a
//! thread that is taken off the processor uses none.
//!
//! `role=job`, `role=driver`, `role=server`, `role=handler`:
//!
//! * `number=N` among the set's, `set=NAME`;
//! * `row=N` of the first thread's words in the results;
//! * `calls=NAME,NAME` of the endpoints that it may call;
//! * `servers=N`: a bit for each server that a handler is told of when a call is too long.
//!
//! A driver's interrupts come from the PC's interval timer. `role=report`: `until=NS`, `rows=N` to be printed.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::abi::{Policy, at};
use bulkhead_program::{
    Context, Endpoint, Error, Handler, Message, Notification, Ports, Program, Reply, now, println,
    sleep_until,
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
        Some("handler") => Player::new(program).handle(),
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

    /// Its words in the results.
    fn seen(&self) -> &'static [AtomicU64] {
        let row = self.program.number("row").unwrap_or(0) as usize + self.number;
        &self.program.memory("seen").words()[SEEN * row..][..SEEN]
    }

    fn jobs(&self) -> u32 {
        let (this, seen) = (thread(self.number), self.seen());
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
        let (this, seen) = (thread(self.number), self.seen());
        let timer = (this.interrupt > 0).then(|| Timer::begin(self, this).expect("a timer"));
        let mut received = endpoint.receive(reply);
        loop {
            let came = received.expect("a request, or an interrupt");
            if let Some(timer) = timer.as_ref().filter(|_| came.is_notification()) {
                spin(this.interrupt, this.end);
                self.steps(self.number, 0);
                seen[1].fetch_add(1, Relaxed);
                timer.acknowledge(this.end).expect("an interrupt");
                received = endpoint.receive(reply);
                continue;
            }
            let [of, work, ..] = came.message.words;
            spin(work, thread(of as usize).end);
            self.steps(self.number, 0);
            received = endpoint.reply_receive(reply, Message::default());
        }
    }

    /// Ends calls that are too long: it answers in the server's place, and takes the server back to its beginning.
    fn handle(&self) -> u32 {
        let (named, seen) = (Named::new(self.program, 'd', self.number), self.seen());
        let (told, reply) = (self.program.serves(named.text()), self.reply());
        let which = self.program.number("servers").unwrap_or(0);
        let mut maker = self.program.maker();
        let servers: [Option<Server>; THREADS] = core::array::from_fn(|n| {
            let make = || Server::new(self.program, n, maker.context()?);
            (which >> n & 1 == 1).then(make).map(|server| server.expect("a server that it manages"))
        });
        loop {
            let badge = told.receive(reply).expect("the end of a call").badge as usize;
            let server = servers.get(badge).and_then(Option::as_ref).expect("a server of the set");
            server.take_back().expect("what the manifest allows");
            seen[1].fetch_add(1, Relaxed);
        }
    }
}

/// A server that its handler takes back.
struct Server {
    thread: bulkhead_program::Thread,
    reply: Reply,
    /// Time for it until it waits for its next call.
    spare: Context,
    begin: [u64; 4],
}

impl Server {
    fn new(program: Program, n: usize, spare: Context) -> Result<Self, Error> {
        const BUDGET: u64 = 500_000;
        let named = Named::new(program, 's', n);
        let thread = program.manages(named.text());
        spare.configure(Policy::Sporadic, BUDGET, 2 * BUDGET, 0)?;
        let [ip, sp, ..] = thread.registers()?;
        Ok(Self { thread, reply: program.reply(named.text()), spare, begin: [ip, sp, at::PAGE, 0] })
    }

    fn take_back(&self) -> Result<(), Error> {
        self.reply.answer(Message::default())?;
        self.spare.lend(self.thread)?;
        self.thread.start(self.begin)
    }
}

/// The PC's interval timer (Intel 8254 data sheet, "Programming the 8254").
struct Timer(Ports, Handler);

impl Timer {
    const COUNTER: u16 = 0x40;
    const CONTROL: u16 = 0x43;
    /// Counter 0, low byte then high byte, mode 2: rate generator.
    const RATE: u8 = 0b0011_0100;
    const HERTZ: u64 = 1_193_182;

    /// It interrupts the thread that waits for messages, for the first time when the set says.
    fn begin(player: &Player, this: Thread) -> Result<Self, Error> {
        let program = player.program;
        let (irq, ports) = (program.waits("irq"), program.ports("pit"));
        program.manages(program.name()).bind_notification(Some(irq))?;
        sleep_until(player.pause, this.first.saturating_sub(this.every))?;
        let [low, high, ..] = (this.every * Self::HERTZ / 1_000_000_000).to_le_bytes();
        ports.write8(Self::CONTROL, Self::RATE)?;
        ports.write8(Self::COUNTER, low)?;
        ports.write8(Self::COUNTER, high)?;
        Ok(Self(ports, program.interrupt("irq")))
    }

    /// The next interrupt may come, before an end. A counter that is not loaded does not count.
    fn acknowledge(&self, end: u64) -> Result<(), Error> {
        if now() < end { self.1.acknowledge() } else { self.0.write8(Self::CONTROL, Self::RATE) }
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
