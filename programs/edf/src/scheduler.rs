//! The choice of the running client.

use crate::MOST;
use crate::client::{DONE, WORK, begins};
use crate::watch::switches;
use bulkhead_edf::Edf;
use bulkhead_program::abi::{Code, Policy};
use bulkhead_program::{
    Context, Endpoint, Error, FOREVER, Maker, Message, Program, Reply, Thread, now, println, ready,
};
use bulkhead_random::SplitMix64;
use core::sync::atomic::Ordering;

/// The clients' priority.
const PRIORITY: u8 = 100;
/// Priority of the thread that runs when no client does.
const LOWEST: u8 = 1;
/// A context that does not limit anything: longer than all of it takes, ns.
const UNLIMITED: u64 = 3_000_000_000_000;
/// When it begins, ns from the start.
const BEGIN: u64 = 1_000_000;

#[derive(Clone, Copy)]
struct Client {
    thread: Thread,
    context: Context,
    /// Where it waits for its release.
    reply: Reply,
    begun: bool,
}

struct Scheduler {
    edf: Edf<MOST>,
    clients: [Option<Client>; MOST],
    endpoint: Endpoint,
    /// No client waits there.
    free: Reply,
    /// First of its priority.
    first: Option<usize>,
    late: u64,
}

/// Arguments of a new client.
struct Wanted {
    number: usize,
    /// Time of each of its jobs, and its period, ns.
    work: u64,
    period: u64,
    cooperative: bool,
}

impl Scheduler {
    fn new(program: Program) -> Result<Self, Error> {
        let (mut maker, authority) = (program.maker(), program.manages("scheduler"));
        let count = program.number("threads").unwrap_or(2).min(MOST as u64) as usize;
        let load = program.number("load").unwrap_or(90);
        let shortest = program.number("shortest").unwrap_or(2_000) * 1_000;
        let cooperative = program.arg("mode") == Some("coop");
        let (endpoint, free) = (maker.endpoint()?, maker.reply()?);
        let (edf, clients) = (Edf::new(), [None; MOST]);
        let mut scheduler = Self { edf, clients, endpoint, free, first: None, late: 0 };
        let mut random = SplitMix64(count as u64);
        let mut shares = [0; MOST];
        shares[..count].iter_mut().for_each(|share| *share = 1 + random.below(4));
        let all: u64 = shares.iter().sum();
        for (number, share) in shares.into_iter().enumerate().take(count) {
            let period = shortest + random.below(9 * shortest);
            let work = period * load * share / (100 * all);
            let wanted = Wanted { number, work, period, cooperative };
            scheduler.add(&mut maker, authority, &wanted)?;
        }
        scheduler.idle(&mut maker, authority)?;
        Ok(scheduler)
    }

    fn add(&mut self, maker: &mut Maker, by: Thread, wanted: &Wanted) -> Result<(), Error> {
        let Wanted { number, work, period, cooperative } = *wanted;
        let (thread, context, reply) = (maker.thread()?, maker.context()?, maker.reply()?);
        let badged = maker.badged(self.endpoint, number as u64 + 1)?;
        if cooperative {
            DONE[number].store(badged.0, Ordering::Relaxed);
            context.configure(Policy::Full, UNLIMITED, UNLIMITED, 0)?;
        } else {
            thread.set_timeout(badged)?;
            context.configure(Policy::Sporadic, work, period, 0)?;
        }
        WORK[number].store(work, Ordering::Relaxed);
        thread.set_priority(PRIORITY, 0, by)?;
        thread.set_registers(begins(number))?;
        context.bind(thread)?;
        self.clients[number] = Some(Client { thread, context, reply, begun: false });
        self.edf.add(number, period, now() + BEGIN);
        Ok(())
    }

    /// One thread always runs, so that no switch includes a time without work.
    fn idle(&mut self, maker: &mut Maker, by: Thread) -> Result<(), Error> {
        let (thread, context) = (maker.thread()?, maker.context()?);
        context.configure(Policy::Full, UNLIMITED, UNLIMITED, 0)?;
        thread.set_priority(LOWEST, 0, by)?;
        context.bind(thread)?;
        thread.start(begins(MOST))
    }

    fn client(&mut self, number: usize) -> &mut Client {
        self.clients[number].as_mut().expect("a client that was made")
    }

    /// Releases due jobs, and puts the earliest deadline first.
    fn decide(&mut self) -> Result<(), Error> {
        while let Some(number) = self.edf.release(now()) {
            let client = self.client(number);
            match core::mem::replace(&mut client.begun, true) {
                true => client.reply.answer(Message::default())?,
                false => client.thread.resume()?,
            }
        }
        let earliest = self.edf.earliest();
        if let Some(number) = earliest.filter(|_| earliest != self.first) {
            self.client(number).context.yield_to()?;
        }
        self.first = earliest;
        Ok(())
    }

    /// Waits until a job is done or the next one is to be released.
    fn wait(&mut self) -> Result<(), Error> {
        let until = self.edf.next_release().unwrap_or(FOREVER);
        match self.endpoint.receive_until(self.free, until) {
            Ok(received) => {
                let number = received.badge as usize - 1;
                let free = self.free;
                self.free = core::mem::replace(&mut self.client(number).reply, free);
                self.late += u64::from(self.edf.done(number, now()) > 0);
                Ok(())
            }
            Err(error) if error.code() == Some(Code::TimedOut) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

pub fn schedule(program: Program) -> u32 {
    ready();
    let mut scheduler = Scheduler::new(program).expect("what the manifest allows");
    let decisions = program.number("decisions").unwrap_or(1_000);
    while switches() < decisions {
        scheduler.decide().and_then(|()| scheduler.wait()).expect("clients that it made");
    }
    println!("edf: {decisions} decisions, {} deadlines missed", scheduler.late);
    0
}
