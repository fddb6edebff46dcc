//! The store's driver with faults planted in it, for tests. It is the very driver until then: the faults lie in a disk
//! around the driver's own, and in what that writes meanwhile.
//!
//! Arguments beside the driver's:
//!
//! * `faults=N`: so many faults, one after the other, over all lives of the sandbox;
//! * `kinds=KIND,...` (default all): they are taken in turn;
//! * `asked=1`: a write asks for a fault by its first bytes ([`planted`]), and gets it when the disk has been told of
//!   the write. It gets it once: the write comes again in the next life, and is carried out;
//! * `seed=N` (default 1), `within=N` (default 64), `least=N` (default 1): a fault comes after a number of requests. It
//!   is drawn, of `within` numbers from `least` on;
//! * `lies=N`: one of so many requests is answered with a lie. A write is lost, or goes to another sector. A read comes
//!   from another sector;
//! * `honest=MS` (default 0): no lie comes in so many milliseconds from the first request on;
//! * `late=MS`: the first life ends in the midst of reads. The second one looks for so long if any of them still comes,
//!   and then ends the sandbox;
//! * `trespass=1`: before it serves, it tells the disk to write to memory that the disk must not reach.
//!
//! The number of faults so far lies in the driver's section of the first channel, in a place that the protocol does not
//! use. So does the number of the newest fault that a client asked for. That memory outlives the sandbox's restart.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod fault;
mod late;
mod order;
mod trespass;

use bulkhead_disks::Wrong;
use bulkhead_program::channel::{Bytes, Memory};
use bulkhead_program::marker::{EVENT, id};
use bulkhead_program::{Here, Instructions, Program, mark, now, println};
use bulkhead_scenarios::planted;
use bulkhead_store::disk::{Disk, Failed, Full, Info, Operation, Request};
use fault::{Kind, Planted};
use order::{Order, Seen};
use store_programs::disk::AnyDisk;
use store_programs::serve::{CLIENTS, Channel, Driven, channel, store};

bulkhead_program::entry!(rogue);

/// Offset of the number of faults so far, in the driver's section.
const COUNT: usize = 2048;
/// Offset of the number of the newest fault that was asked for.
const ASKED: usize = COUNT + 8;

fn rogue(program: Program) -> u32 {
    let late = program.number("late");
    let disks = program.args().split_ascii_whitespace().filter_map(|w| w.strip_prefix("disk="));
    let name = disks.into_iter().next().and_then(|disk| disk.split(':').next()).unwrap_or_default();
    if let Some(millis) = late {
        let count = channel(program, name).mine.bytes(COUNT, 8).expect("room for the count");
        if count.word(0) > 0 {
            return u32::from(!late::watch(program, name, millis));
        }
        count.write(0, &1u64.to_le_bytes());
    }
    store(program, |mut disk, channels| {
        mark!(EVENT | id::BLOCK_DISK, Here::counter());
        let first = channels.iter().flatten().next().expect("a client").clone();
        if late.is_some() {
            late::begin(program, &mut disk, &first);
        }
        if program.number("trespass").is_some() {
            trespass::run(program, &mut disk, &first);
        }
        let mut rogue = Rogue {
            faults: program.number("faults").unwrap_or(0),
            seed: program.number("seed").unwrap_or(1),
            within: program.number("within").unwrap_or(64).max(1),
            least: program.number("least").unwrap_or(1),
            program,
            disk,
            name,
            left: 0,
            next: None,
            point: Point::Submit,
            lies: program.number("lies").unwrap_or(0),
            honest: u64::MAX,
            requests: 0,
            order: Order::new(&first.mine),
            channel: first,
            asked: program.number("asked").is_some(),
            channels,
        };
        rogue.draw();
        rogue
    })
}

/// Moment in a request's life at which a fault comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Point {
    /// The disk has it, and was not told.
    Submit,
    /// The disk was told.
    Ring,
    /// The disk is done, and the client was not told.
    Completed,
}

struct Rogue {
    program: Program,
    disk: AnyDisk,
    /// The first client's channel, and those of all.
    channel: Channel,
    channels: [Option<Channel>; CLIENTS],
    name: &'static str,
    faults: u64,
    /// Clients may ask for faults.
    asked: bool,
    seed: u64,
    within: u64,
    least: u64,
    /// Requests until the next fault.
    left: u64,
    next: Option<Kind>,
    point: Point,
    /// One of so many requests is answered with a lie; 0: none.
    lies: u64,
    /// Time from which on it lies, ns.
    honest: u64,
    /// Requests so far.
    requests: u64,
    order: Order,
}

impl Rogue {
    fn count(&self) -> u64 {
        self.channel.mine.bytes(COUNT, 8).map_or(0, |bytes| bytes.word(0))
    }

    /// Draws the next fault.
    fn draw(&mut self) {
        let number = self.count();
        self.next = None;
        if self.faults == 0 {
            return;
        }
        if number >= self.faults {
            println!("{}: all {} faults were planted", self.program.name(), self.faults);
            return;
        }
        // Any sequence is as good: SplitMix64.
        let mut drawn = (self.seed << 32 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        drawn = (drawn ^ drawn >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        drawn = (drawn ^ drawn >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        drawn ^= drawn >> 31;
        self.left = self.least.max(1) + drawn % self.within;
        self.point = [Point::Submit, Point::Ring, Point::Completed][(drawn >> 40) as usize % 3];
        self.next = Kind::of(self.program.arg("kinds"), number);
    }

    /// A client asks for a fault by the data of a write: the fault comes once the disk is told of it.
    fn ask(&mut self, request: &Request) {
        if !self.asked || request.operation != Operation::Write {
            return;
        }
        let inside = |channel: &&Channel| {
            (channel.bus..channel.bus + channel.len as u64).contains(&request.address)
        };
        let Some(channel) = self.channels.iter().flatten().find(inside) else { return };
        let mut block = [0; planted::LEN];
        let at = (request.address - channel.bus) as usize;
        let read =
            channel.theirs.bytes(at, block.len()).is_some_and(|data| data.read(0, &mut block));
        let Some((kind, number)) = planted::asked(&block).filter(|_| read) else { return };
        let Some(newest) = self.channel.mine.bytes(ASKED, 8) else { return };
        if newest.word(0) != number {
            newest.set_word(0, number);
            (self.next, self.point, self.left) = (Kind::at(kind), Point::Ring, 0);
        }
    }

    /// The request that the disk gets in the place of a client's. Its answer looks as if it were the client's.
    fn lied(&mut self, request: &Request) -> Request {
        if self.requests == 0 {
            let honest = self.program.number("honest").unwrap_or(0);
            self.honest = now() + honest * 1_000_000;
        }
        self.requests += 1;
        let lies = self.lies > 0 && now() >= self.honest && self.requests.is_multiple_of(self.lies);
        if !lies || request.operation == Operation::Flush {
            return *request;
        }
        // A sector that is the client's, too.
        let other = Request { sector: request.sector ^ 64, ..*request };
        let (lie, said) = match (request.operation, self.requests / self.lies % 2) {
            (Operation::Read, _) => (other, "reads another sector than"),
            (_, 0) => (other, "writes to another sector than"),
            _ => (Request { operation: Operation::Flush, len: 0, ..*request }, "does not write"),
        };
        println!("{}: {said} {}", self.program.name(), request.sector);
        lie
    }

    /// The next fault comes, if it is its moment.
    fn at(&mut self, point: Point) {
        if self.left != 0 || point != self.point {
            return;
        }
        let Some(kind) = self.next.take() else { return };
        let number = self.count() + 1;
        if let Some(count) = self.channel.mine.bytes(COUNT, 8) {
            count.set_word(0, number);
        }
        println!(
            "{}: fault {number} at {} us: {}",
            self.program.name(),
            now() / 1_000,
            kind.name()
        );
        mark!(EVENT | id::BLOCK_FAULT, Here::counter());
        kind.plant(&mut Planted {
            program: self.program,
            disk: &mut self.disk,
            channel: &self.channel,
            name: self.name,
        });
        // Still there: another one follows in this life.
        self.draw();
    }
}

impl Driven for Rogue {
    fn fault(&self) -> Option<Wrong> {
        self.disk.fault()
    }
    fn check(&mut self) {
        self.disk.check();
    }
}

impl Disk for Rogue {
    fn info(&self) -> &Info {
        self.disk.info()
    }
    fn submit(&mut self, request: &Request) -> Result<(), Full> {
        let request = self.lied(request);
        self.disk.submit(&request)?;
        let (name, news) = (self.program.name(), self.order.submitted(&request));
        // At once: a driver with a fault may go on for a while.
        self.order.leave(&self.channel.mine);
        match news {
            Seen::Nothing => {}
            Seen::Again(count) => println!("{name}: {count} requests came again in their order"),
            Seen::Wrong => println!("{name}: a request did not come again in its turn"),
        }
        self.left = self.left.saturating_sub(1);
        self.ask(&request);
        self.at(Point::Submit);
        Ok(())
    }
    fn ring(&mut self) {
        self.disk.ring();
        self.at(Point::Ring);
    }
    fn completed(&mut self) -> Option<(u16, Result<(), Failed>)> {
        let done = self.disk.completed()?;
        self.at(Point::Completed);
        self.order.answered(done.0);
        self.order.leave(&self.channel.mine);
        Some(done)
    }
    fn interrupts(&mut self, wanted: bool) {
        self.disk.interrupts(wanted);
    }
    fn reset(&mut self) -> Result<(), Failed> {
        self.disk.reset()
    }
}
