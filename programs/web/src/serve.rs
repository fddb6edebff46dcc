//! The server's loop: its connections, and a neighbour that shows that its driver works.

use crate::{FROM_NIC, FROM_SERVER, NEWS, TROUBLE, WORK, relay, stand_by};
use bulkhead_net::{Relay, Relayer};
use bulkhead_program::{
    Endpoint, Message, Notification, Program, Sign, now, println, ready, wait_until,
};
use bulkhead_web::{CONNECTIONS, Records, Room, Server, Words};
use core::net::Ipv4Addr;
use smoltcp::iface::SocketStorage;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr,
};
use store_programs::progress::COMPLAINT;

/// Name of its thread.
const THREAD: &str = "server";
const MILLI: u64 = 1_000_000;
/// Longest pause between two complaints, where they do not help: the neighbour may be gone.
const PAUSE: u64 = 2_000_000_000;
/// Questions without an answer that are a failure.
const MISSED: u32 = 2;
/// Longest pause between two moves of its progress word.
const MOVES: u64 = 2 * MILLI;

/// Serves for ever, with the connections that `words` have, once it is its turn. Returns if it cannot.
///
/// All that it knows besides lies on its stack, so a thread of it that begins anew (`flight-guard`) has nothing of its
/// last life.
///
/// # Panics
/// The manifest does not give it the memory.
pub fn serve<W: Words>(program: Program, words: impl FnOnce() -> W) -> u32 {
    let Some(address) = program.arg("address").and_then(|text| text.parse::<Ipv4Addr>().ok())
    else {
        println!("{}: address= is missing, or is no IPv4 address", program.name());
        return 1;
    };
    let sign = Sign::find(program, THREAD);
    let kick = || {
        if let Some(sign) = sign {
            sign.kick();
        }
    };
    stand_by(program, program.waits(NEWS), kick);
    let n = program.number("mac").and_then(|n| u8::try_from(n).ok()).unwrap_or(1);
    let own = (EthernetAddress([2, 0, 0, 0, 0, n]), address);
    let Some(records) = Records::open(words(), CONNECTIONS) else {
        println!("{}: the memory for connections is too small", program.name());
        return 1;
    };
    let mut rooms = [const { Room::EMPTY }; CONNECTIONS];
    let mut sockets = [const { SocketStorage::EMPTY }; CONNECTIONS];
    let device = Relayer::new(relay(program, FROM_SERVER, FROM_NIC));
    let (server, begun) = Server::new(device, own, &mut rooms, &mut sockets, records, now());
    println!("{}: {address}", program.name());
    let (name, micros) = (program.name(), now() / 1_000);
    if begun.resumed + begun.broken > 0 {
        println!(
            "{name}: {} connections go on, {} broken, at {micros} us",
            begun.resumed, begun.broken
        );
    }
    ready();
    let mut work = Work {
        program,
        server,
        neighbour: Neighbour::find(program, own),
        sign,
        driver: program.signals(WORK),
        told: 0,
    };
    work.run(program.waits(NEWS))
}

struct Work<'a, W> {
    program: Program,
    server: Server<'a, Relayer<'static>, W>,
    neighbour: Option<Neighbour>,
    sign: Option<Sign>,
    driver: Notification,
    /// Frames that the driver was told of.
    told: u64,
}

impl<W: Words> Work<'_, W> {
    fn run(&mut self, news: Notification) -> ! {
        loop {
            if let Some(sign) = self.sign {
                sign.kick();
            }
            let until = self.turn();
            if until > now() && !self.server.device().relay().has_more() {
                // It has time of its own.
                let _ = wait_until(news, until.min(now() + MOVES));
            }
        }
    }

    /// A turn; when the next one is due.
    fn turn(&mut self) -> u64 {
        if self.server.device().relay().join(now()) {
            let lives = self.server.device().relay().counts().joined;
            println!("{}: driver {lives} at {} us", self.program.name(), now() / 1_000);
            self.neighbour.iter_mut().for_each(Neighbour::begin);
        }
        let next = self.server.turn(now());
        let relay = self.server.device().relay();
        let asks = self.neighbour.as_mut().map_or(u64::MAX, |one| one.ask(relay));
        let written = relay.written();
        if written != self.told {
            self.told = written;
            self.driver.signal();
        }
        // A driver that takes frames says nothing: what found no room goes a little later.
        next.map_or(u64::MAX, |at| at.max(now() + MILLI / 4)).min(asks)
    }
}

/// A neighbour that answers, as long as frames come through.
struct Neighbour {
    trouble: Endpoint,
    own: (EthernetAddress, Ipv4Addr),
    other: Ipv4Addr,
    /// Time between two questions, and of the next one.
    every: u64,
    next: u64,
    /// Answers so far, and questions without one in a row.
    answers: u32,
    missed: u32,
    /// Impossible words of the driver so far.
    wrong: u32,
    /// Pause behind the next complaint.
    pause: u64,
}

impl Neighbour {
    fn find(program: Program, own: (EthernetAddress, Ipv4Addr)) -> Option<Self> {
        Some(Self {
            other: program.arg("asks")?.parse().ok()?,
            trouble: program.endpoint(TROUBLE),
            own,
            every: program.number("every").unwrap_or(4).max(1) * MILLI,
            next: 0,
            answers: 0,
            missed: 0,
            wrong: 0,
            pause: 0,
        })
    }

    /// Another driver begins: it is asked at once.
    fn begin(&mut self) {
        (self.missed, self.next) = (0, 0);
    }

    /// Asks, or complains, if it is time for that. Returns when it is time again.
    fn ask(&mut self, relay: &mut Relay<'_>) -> u64 {
        let counts = relay.counts();
        if counts.wrong != self.wrong {
            self.wrong = counts.wrong;
            self.complain(1);
        }
        if counts.answers != self.answers {
            (self.answers, self.missed, self.pause) = (counts.answers, 0, 0);
        }
        if now() < self.next {
            return self.next;
        }
        self.next = now() + self.every;
        if self.missed >= MISSED && self.answers > 0 {
            self.complain(0);
            self.missed = 0;
            self.pause = (2 * self.pause).clamp(4 * self.every, PAUSE);
            self.next += self.pause;
            return self.next;
        }
        self.missed += 1;
        let mut frame = [0; 14 + 28];
        self.question(&mut frame);
        relay.send(&frame, now());
        self.next
    }

    /// Tells the guard: 1 if the driver's words cannot be, else that nothing comes through.
    fn complain(&self, words: u64) {
        let what = if words == 1 { "words that cannot be" } else { "nothing comes through" };
        println!("server: {what} at {} us", now() / 1_000);
        // If it does not wait there it hears of something else, and the next complaint comes.
        let _ = self.trouble.try_send(Message::new(COMPLAINT, &[words]));
    }

    fn question(&self, frame: &mut [u8; 42]) {
        let (mac, address) = self.own;
        let ethernet = EthernetRepr {
            src_addr: mac,
            dst_addr: EthernetAddress::BROADCAST,
            ethertype: EthernetProtocol::Arp,
        };
        let arp = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: mac,
            source_protocol_addr: address,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: self.other,
        };
        let mut frame = EthernetFrame::new_unchecked(frame);
        ethernet.emit(&mut frame);
        arp.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    }
}
