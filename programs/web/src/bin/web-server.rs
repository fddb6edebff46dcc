//! A web server (HTTP/1.1) at port 80. Its card has a driver of its own, another program ([`web_programs::nic`]).
//!
//! Arguments: `address=10.0.2.16`, in a network of 24 bits; `mac=N` for the address 02:00:00:00:00:N.
//!
//! With `asks=ADDRESS` it asks that neighbour for its Ethernet address each `every=MS` (default 4), once it has had an
//! answer. If two questions go by without one, nothing comes through its driver, and the guard hears of it at the
//! endpoint `trouble`. So it does if the driver's words to the server cannot be.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

use alloc::{boxed::Box, vec, vec::Vec};
use bulkhead_http::{Answer, Reader, Refused, Request, Step};
use bulkhead_net::Relayer;
use bulkhead_program::{Endpoint, Message, Notification, Program, now, println, ready, wait_until};
use core::net::Ipv4Addr;
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, HardwareAddress, IpCidr,
};
use store_programs::progress::COMPLAINT;
use web_programs::{FROM_NIC, FROM_SERVER, NEWS, TROUBLE, WORK, relay};

bulkhead_program::entry!(server);

const PORT: u16 = 80;
/// Connections at once.
const CONNECTIONS: usize = 96;
/// Bytes to send, and received ones, that a connection holds: all of an answer, and a request.
const SEND: usize = 18 << 10;
const RECEIVE: usize = 2 << 10;
/// Frames taken before answers go.
const TURN: usize = 32;
/// Longest time for a request to come whole, for an acknowledgement, and between two requests; ns, but the second.
const WHOLE: u64 = 10_000_000_000;
const ACKNOWLEDGED: Duration = Duration::from_secs(20);
const IDLE: u64 = 60_000_000_000;
const MILLI: u64 = 1_000_000;
/// Longest pause between two complaints, where they do not help: the neighbour may be gone.
const PAUSE: u64 = 2_000_000_000;
/// Questions without an answer that are a failure.
const MISSED: u32 = 2;

fn server(program: Program) -> u32 {
    program.heap();
    let Some(address) = program.arg("address").and_then(|text| text.parse::<Ipv4Addr>().ok())
    else {
        println!("{}: address= is missing, or is no IPv4 address", program.name());
        return 1;
    };
    let n = program.number("mac").and_then(|n| u8::try_from(n).ok()).unwrap_or(1);
    let mac = EthernetAddress([2, 0, 0, 0, 0, n]);
    let mut device = Relayer::new(relay(program, FROM_SERVER, FROM_NIC));
    let mut config = Config::new(HardwareAddress::Ethernet(mac));
    // Sequence numbers that the last life did not have.
    config.random_seed = now();
    let mut interface = Interface::new(config, &mut device, instant());
    interface.update_ip_addrs(|all| {
        // There is room for one.
        let _ = all.push(IpCidr::new(address.into(), 24));
    });
    let mut sockets = SocketSet::new(vec![]);
    let connections = (0..CONNECTIONS).map(|_| Connection::new(&mut sockets)).collect();
    let neighbour = program.arg("asks").and_then(|text| text.parse().ok()).map(|other| Neighbour {
        trouble: program.endpoint(TROUBLE),
        own: (mac, address),
        other,
        every: program.number("every").unwrap_or(4).max(1) * MILLI,
        ..Neighbour::EMPTY
    });
    println!("{}: {address}", program.name());
    ready();
    // All that it knows of its connections is in the heap: one piece of memory, which could outlive its sandbox.
    let mut server = Box::new(Server {
        program,
        device,
        interface,
        sockets,
        connections,
        neighbour,
        driver: program.signals(WORK),
        told: 0,
    });
    server.run(program.waits(NEWS))
}

fn instant() -> Instant {
    Instant::from_micros((now() / 1_000) as i64)
}

struct Server {
    program: Program,
    device: Relayer<'static>,
    interface: Interface,
    sockets: SocketSet<'static>,
    connections: Vec<Connection>,
    neighbour: Option<Neighbour>,
    driver: Notification,
    /// Frames that the driver was told of.
    told: u64,
}

impl Server {
    fn run(&mut self, news: Notification) -> ! {
        loop {
            let until = self.turn();
            if until > now() && !self.device.relay().has_more() {
                // It has time of its own.
                let _ = wait_until(news, until);
            }
        }
    }

    /// A turn; when the next one is due.
    fn turn(&mut self) -> u64 {
        if self.device.relay().join(now()) {
            let lives = self.device.relay().counts().joined;
            println!("{}: driver {lives} at {} us", self.program.name(), now() / 1_000);
            self.neighbour.iter_mut().for_each(Neighbour::begin);
        }
        let Self { device, interface, sockets, .. } = self;
        let mut took = 0;
        while took < TURN
            && interface.poll_ingress_single(instant(), device, sockets)
                != PollIngressSingleResult::None
        {
            took += 1;
        }
        for connection in &mut self.connections {
            connection.work(self.sockets.get_mut(connection.socket), now());
        }
        self.interface.poll_egress(instant(), &mut self.device, &mut self.sockets);
        let asks = self.neighbour.as_mut().map_or(u64::MAX, |one| one.ask(&mut self.device));
        let written = self.device.relay().written();
        if written != self.told {
            self.told = written;
            self.driver.signal();
        }
        if took == TURN {
            return now();
        }
        let at = self.interface.poll_at(instant(), &self.sockets);
        let at = at.map(|at| u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1_000));
        // A driver that takes frames says nothing: what found no room goes a little later.
        let at = at.map(|at| at.max(now() + MILLI / 4));
        at.unwrap_or(u64::MAX).min(asks)
    }
}

/// A connection, or a place for one.
struct Connection {
    socket: SocketHandle,
    reader: Box<Reader>,
    answer: Option<Answer>,
    /// The last answer has ended it.
    over: bool,
    /// Time since which it waits for a request, for the rest of one, or for the client to take its answer.
    since: u64,
}

impl Connection {
    fn new(sockets: &mut SocketSet<'static>) -> Self {
        let [receive, send] = [RECEIVE, SEND].map(|len| tcp::SocketBuffer::new(vec![0; len]));
        let mut socket = tcp::Socket::new(receive, send);
        socket.set_nagle_enabled(false);
        socket.set_timeout(Some(ACKNOWLEDGED));
        let socket = sockets.add(socket);
        Self { socket, reader: Box::default(), answer: None, over: false, since: 0 }
    }

    fn work(&mut self, socket: &mut tcp::Socket<'_>, now: u64) {
        if !socket.is_open() {
            // It is closed, and the port is not 0.
            let _ = socket.listen(PORT);
            (*self.reader, self.answer, self.over) = (Reader::new(), None, false);
        }
        if socket.state() == tcp::State::TimeWait {
            // The client has all, and has said so. The place is for the next one.
            socket.abort();
        }
        if !socket.is_active() {
            self.since = now;
            return;
        }
        // Requests may come together: each has its answer before the next one is looked at.
        while !self.over {
            self.send(socket);
            if self.answer.is_some() {
                break;
            }
            self.read(socket, now);
            if !self.asked(now) {
                break;
            }
        }
        let waits = self.answer.is_none() && !self.over;
        if waits && self.slow(now) {
            self.answer = Some(Answer::refused(Refused::Slow));
            self.send(socket);
        }
        let left = waits && socket.may_send() && !socket.may_recv();
        if self.over || left {
            socket.close();
        }
        // It asks for nothing, or does not take its answer: its place is of more use to others.
        if now.saturating_sub(self.since) > IDLE {
            socket.abort();
        }
    }

    /// Takes in what came.
    fn read(&mut self, socket: &mut tcp::Socket<'_>, now: u64) {
        let begins = self.reader.is_empty();
        let room = self.reader.room();
        if socket.can_recv() && !room.is_empty() {
            let len = socket.recv_slice(room).unwrap_or(0);
            self.reader.came(len);
            // A request has its time from its first byte on.
            if begins && len > 0 {
                self.since = now;
            }
        }
    }

    /// Looks for a request; true if there is an answer to send.
    fn asked(&mut self, now: u64) -> bool {
        let answer = match self.reader.step() {
            Step::More => return false,
            Step::Asked(request) if is_page(&request) => Answer::page(&request, true),
            Step::Asked(request) => Answer::missing(&request),
            Step::Refused(why) => Answer::refused(why),
        };
        self.answer = Some(answer);
        self.since = now;
        true
    }

    /// Tells if a part of a request has waited for the rest for too long.
    fn slow(&self, now: u64) -> bool {
        !self.reader.is_empty() && now.saturating_sub(self.since) > WHOLE
    }

    /// Sends as much of the answer as there is room for.
    fn send(&mut self, socket: &mut tcp::Socket<'_>) {
        let Some(answer) = &mut self.answer else { return };
        while !answer.is_over() && socket.can_send() {
            let sent = socket.send(|room| {
                let len = answer.write(room);
                (len, len)
            });
            if sent.unwrap_or(0) == 0 {
                return;
            }
        }
        if answer.is_over() {
            self.over = !answer.keeps();
            self.answer = None;
        }
    }
}

/// Pages lie at `/` and below `/page/`.
fn is_page(request: &Request<'_>) -> bool {
    request.path == b"/" || request.path.starts_with(b"/page/")
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
    const EMPTY: Self = Self {
        trouble: Endpoint(0),
        own: (EthernetAddress([0; 6]), Ipv4Addr::UNSPECIFIED),
        other: Ipv4Addr::UNSPECIFIED,
        every: MILLI,
        next: 0,
        answers: 0,
        missed: 0,
        wrong: 0,
        pause: 0,
    };

    /// Another driver begins: it is asked at once.
    fn begin(&mut self) {
        (self.missed, self.next) = (0, 0);
    }

    /// Asks, or complains, if it is time for that. Returns when it is time again.
    fn ask(&mut self, device: &mut Relayer<'_>) -> u64 {
        let counts = device.relay().counts();
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
        device.relay().send(&frame, now());
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
