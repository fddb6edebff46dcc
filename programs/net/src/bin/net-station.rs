//! A station on a network over channels. It answers pings, echoes the bytes of TCP connections to port 7, and serves a
//! page about itself at port 80.
//!
//! Arguments:
//!
//! * `to=CHANNEL from=CHANNEL`: records, one each way;
//! * `address=10.9.0.2`, in a network of 24 bits;
//! * `mac=N` for Ethernet with the address 02:00:00:00:00:N (N from 1 to 255). Without it the wire carries IP packets.
//!
//! With `ask=ADDRESS bytes=N` it is a client. It sends so many bytes to the echo there, and ends the sandbox when they
//! have come back. It fails if other bytes come or it takes more than `limit=` milliseconds (default 10,000). Waits at
//! the notification `news`.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

use alloc::{format, vec};
use bulkhead_net::Station;
use bulkhead_program::typed::Mapping;
use bulkhead_program::{FOREVER, Program, bell, exit, now, println, ready};
use core::net::Ipv4Addr;
use net_programs::{instant, line, serve};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, SocketHandle, SocketSet};
use smoltcp::phy::Medium;
use smoltcp::socket::tcp;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};

bulkhead_program::entry!(station);

/// Frames taken before answers go.
const TURN: usize = 16;
const ECHO: u16 = 7;
const PAGE: u16 = 80;

struct Net {
    device: Station<Mapping<'static>, bell::Port>,
    interface: Interface,
    sockets: SocketSet<'static>,
    echo: SocketHandle,
    page: SocketHandle,
    pages: u32,
    client: Option<Client>,
}

/// Bytes on their way to another station and back.
struct Client {
    socket: SocketHandle,
    all: u64,
    sent: u64,
    back: u64,
    end: u64,
}

fn station(program: Program) -> u32 {
    program.heap();
    let Some(address) = program.arg("address").and_then(|text| text.parse::<Ipv4Addr>().ok())
    else {
        println!("{}: address= is missing, or is no IPv4 address", program.name());
        return 1;
    };
    let mac = program.number("mac").and_then(|n| u8::try_from(n).ok());
    let name = |key| program.arg(key).unwrap_or_default();
    let wire = line(program, name("to"), name("from"));
    let (medium, hardware) = match mac {
        Some(n) => {
            (Medium::Ethernet, HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, n])))
        }
        None => (Medium::Ip, HardwareAddress::Ip),
    };
    let mut device = Station::new(wire, medium);
    let mut config = Config::new(hardware);
    // Sequence numbers that the last life did not have.
    config.random_seed = now();
    let mut interface = Interface::new(config, &mut device, instant());
    interface.update_ip_addrs(|all| {
        // There is room for one.
        let _ = all.push(IpCidr::new(address.into(), 24));
    });
    let buffer = || tcp::SocketBuffer::new(vec![0; 8192]);
    let mut sockets = SocketSet::new(vec![]);
    let [echo, page] = [(); 2].map(|()| sockets.add(tcp::Socket::new(buffer(), buffer())));
    println!("{}: {address}", program.name());
    ready();
    let client = program.arg("ask").and_then(|text| text.parse::<Ipv4Addr>().ok()).map(|other| {
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
        let from = 49_152 + (now() % 16_384) as u16;
        // A new socket, with ports that are none of 0.
        let asked = sockets.get_mut::<tcp::Socket<'_>>(socket);
        let _ = asked.connect(interface.context(), (other, ECHO), from);
        let end = now() + 1_000_000 * program.number("limit").unwrap_or(10_000);
        Client { socket, all: program.number("bytes").unwrap_or(0), sent: 0, back: 0, end }
    });
    let mut net = Net { device, interface, sockets, echo, page, pages: 0, client };
    serve(
        &mut net,
        program.waits("news"),
        |net, each| each(net.device.wire()),
        |net| net.work(program),
    )
}

impl Net {
    /// A turn; when the next one is due.
    fn work(&mut self, program: Program) -> u64 {
        let Self { device, interface, sockets, .. } = self;
        let mut took = 0;
        while took < TURN
            && interface.poll_ingress_single(instant(), device, sockets)
                != PollIngressSingleResult::None
        {
            took += 1;
        }
        self.echo();
        self.page(program);
        self.ask(program);
        self.interface.poll_egress(instant(), &mut self.device, &mut self.sockets);
        if took == TURN {
            return now();
        }
        let at = self.interface.poll_at(instant(), &self.sockets);
        let at = at.map(|at| u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1000));
        at.unwrap_or(FOREVER).min(self.client.as_ref().map_or(FOREVER, |client| client.end))
    }

    /// The client's part.
    fn ask(&mut self, program: Program) {
        const PIECE: usize = 1024;
        let Some(client) = &mut self.client else { return };
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(client.socket);
        let byte = |n: u64| (n % 251) as u8;
        let mut piece = [0; PIECE];
        if socket.can_send() && client.sent < client.all {
            let len = PIECE.min((client.all - client.sent) as usize);
            piece[..len].iter_mut().zip(client.sent..).for_each(|(to, n)| *to = byte(n));
            client.sent += socket.send_slice(&piece[..len]).unwrap_or(0) as u64;
        }
        let mut right = true;
        if socket.can_recv() {
            let len = socket.recv_slice(&mut piece).unwrap_or(0);
            right = piece[..len].iter().zip(client.back..).all(|(have, n)| *have == byte(n));
            client.back += len as u64;
        }
        let (back, done) = (client.back, client.back == client.all);
        if done || !right || now() >= client.end {
            let what = if right { "" } else { ", and they are others" };
            println!("{}: {back} of {} bytes came back{what}", program.name(), client.all);
            exit(u32::from(!done || !right));
        }
    }

    /// Received bytes go back.
    fn echo(&mut self) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.echo);
        listen(socket, ECHO);
        while socket.can_recv() && socket.can_send() {
            let mut piece = [0; 512];
            let room = (socket.send_capacity() - socket.send_queue()).min(piece.len());
            let Ok(len) = socket.recv_slice(&mut piece[..room]) else { break };
            // There is as much room.
            let _ = socket.send_slice(&piece[..len]);
        }
        if socket.may_send() && !socket.may_recv() {
            socket.close();
        }
    }

    /// The one page answers each request, for whatever path.
    fn page(&mut self, program: Program) {
        let counts = self.device.counts();
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.page);
        listen(socket, PAGE);
        if socket.can_recv() && socket.may_send() {
            self.pages += 1;
            let text = format!(
                "{}: page {}, {} ms since the processor's start; frames: {} received, {} sent, {} without room, {} too long; the wire was cut {} times\n",
                program.name(),
                self.pages,
                now() / 1_000_000,
                counts.received,
                counts.sent,
                counts.full,
                counts.long,
                counts.cut
            );
            let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n";
            let answer = format!("{head}Content-Length: {}\r\n\r\n{text}", text.len());
            let _ = socket.recv(|bytes| (bytes.len(), ()));
            // It fits: nothing else was sent.
            let _ = socket.send_slice(answer.as_bytes());
            socket.close();
        } else if socket.may_send() && !socket.may_recv() {
            socket.close();
        }
    }
}

/// The next connection, once the last one is over.
fn listen(socket: &mut tcp::Socket<'_>, port: u16) {
    if !socket.is_open() {
        // It is closed, and the port is not 0.
        let _ = socket.listen(port);
    }
}
