//! A web server with connections that outlive it, on a network that anybody writes to. Segments come with any numbers,
//! flags and bytes. The server begins anew at any time, with records that are its own or were changed meanwhile.
//! Nothing panics, each frame that it sends is a whole one to the client, and a turn sends a bounded number of them.
//! Behind all that an honest client is served.

use crate::{Input, Seen};
use bulkhead_http::Page;
use bulkhead_pci_fake::Words as _;
use bulkhead_web::{Records, Room, Server, Words, region};
use smoltcp::iface::SocketStorage;
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress,
    IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::rc::Rc;

const SERVER: (EthernetAddress, Ipv4Addr) =
    (EthernetAddress([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: (EthernetAddress, Ipv4Addr) =
    (EthernetAddress([2, 0, 0, 0, 0, 2]), Ipv4Addr::new(10, 0, 0, 2));
const PORT: u16 = 80;
/// Connections that there is room for, and the client's ports: one more.
const MANY: usize = 2;
const PORTS: [u16; MANY + 1] = [40_000, 40_001, 40_002];
/// The honest client's.
const HONEST: u16 = 50_000;
const MILLI: u64 = 1_000_000;
/// Frames of a turn, at most: full windows of all connections, and what is sent again.
const FRAMES: usize = 128;
const PIECES: [&[u8]; 8] = [
    b"GET /page/a HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /page/a HTTP/1.1\r\n",
    b"Host: a\r\n\r\n",
    b"HEAD / HTTP/1.0\r\n\r\n",
    b"\r\n\r\n",
    b"",
    b"\0",
    b"GET /page/b HTTP/1.1\r\nHost: a\r\n\r\nGET /page/c HTTP/1.1\r\nHost: a\r\n\r\nGET /page/d HTTP/1.1\r\nHo",
];

/// A memory of words.
#[derive(Clone)]
struct Memory(Rc<RefCell<Vec<u64>>>);

impl Words for Memory {
    fn words(&self) -> usize {
        self.0.borrow().len()
    }
    fn load(&self, at: usize) -> u64 {
        self.0.borrow()[at]
    }
    fn store(&self, at: usize, word: u64) {
        self.0.borrow_mut()[at] = word;
    }
}

/// A card: frames for the server, and its frames.
#[derive(Clone, Default)]
struct Card {
    came: Rc<RefCell<VecDeque<Vec<u8>>>>,
    went: Rc<RefCell<Vec<Vec<u8>>>>,
}

struct Taken(Vec<u8>);
impl RxToken for Taken {
    fn consume<T, F: FnOnce(&[u8]) -> T>(self, look: F) -> T {
        look(&self.0)
    }
}

struct Send(Card);
impl TxToken for Send {
    fn consume<T, F: FnOnce(&mut [u8]) -> T>(self, len: usize, fill: F) -> T {
        let mut frame = vec![0; len];
        let done = fill(&mut frame);
        self.0.went.borrow_mut().push(frame);
        done
    }
}

impl Device for Card {
    type RxToken<'a> = Taken;
    type TxToken<'a> = Send;
    fn receive(&mut self, _: Instant) -> Option<(Taken, Send)> {
        let frame = self.came.borrow_mut().pop_front()?;
        Some((Taken(frame), Send(self.clone())))
    }
    fn transmit(&mut self, _: Instant) -> Option<Send> {
        Some(Send(self.clone()))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

/// The client's next byte, and the server's, of a port.
#[derive(Clone, Copy, Default)]
struct Place {
    own: u32,
    server: u32,
}

struct Attack {
    card: Card,
    memory: Memory,
    places: BTreeMap<u16, Place>,
    /// Bytes that came for the honest client.
    heard: Vec<u8>,
    now: u64,
    seen: Seen,
}

/// Attacks a server.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let words = vec![0; region(MANY) / 8];
    let mut attack = Attack {
        card: Card::default(),
        memory: Memory(Rc::new(RefCell::new(words))),
        places: BTreeMap::new(),
        heard: Vec::new(),
        now: MILLI,
        seen: Seen::default(),
    };
    loop {
        attack.life(&mut input)?;
        if input.is_empty() {
            break;
        }
        attack.spoil(&mut input);
    }
    Ok(attack.seen)
}

type Live<'a> = Server<'a, Card, Memory>;

impl Attack {
    /// A life of the server; the last one has to serve an honest client in the end.
    fn life(&mut self, input: &mut Input<'_>) -> Result<(), String> {
        let mut rooms: Vec<_> = (0..MANY).map(|_| Room::EMPTY).collect();
        let mut sockets: Vec<_> = (0..MANY).map(|_| SocketStorage::EMPTY).collect();
        let records = Records::open(self.memory.clone(), MANY).expect("it fits");
        let card = self.card.clone();
        let (mut server, _) =
            Server::new(card, SERVER, &mut rooms, &mut sockets, records, self.now);
        self.acts(&mut server, input)?;
        if input.is_empty() { self.recovers(&mut server) } else { Ok(()) }
    }

    /// An attacker acts until the server ends.
    fn acts(&mut self, server: &mut Live<'_>, input: &mut Input<'_>) -> Result<(), String> {
        while !input.is_empty() {
            match input.below(10) {
                0 => return Ok(()),
                1 => self.now += input.pick(&[1, 250, 11_000, 61_000]) * MILLI,
                2 => {
                    let frame = (0..input.below(80)).map(|_| input.byte()).collect();
                    self.card.came.borrow_mut().push_back(frame);
                }
                3 | 4 => self.opens(input),
                _ => self.segment(input),
            }
            let heard = self.turn(server)?;
            self.seen.add(heard);
        }
        Ok(())
    }

    /// Changes words of the records, as a wild write would.
    fn spoil(&self, input: &mut Input<'_>) {
        let mut words = self.memory.0.borrow_mut();
        for _ in 0..input.below(3) {
            let at = input.below(words.len());
            words[at] = input.pick(&[0, 1, u64::MAX, words[at] ^ 1 << 17, words[at] ^ 1]);
        }
    }

    /// A handshake's first segment, with options of all kinds.
    fn opens(&mut self, input: &mut Input<'_>) {
        let port = input.pick(&PORTS);
        let own = input.pick(&[0, 1000, u32::MAX - 3, 1 << 31]);
        self.places.insert(port, Place { own: own.wrapping_add(1), server: 0 });
        let mut repr = syn(port, own);
        repr.window_scale = input.pick(&[None, Some(0), Some(7), Some(14), Some(15), Some(255)]);
        repr.max_seg_size = input.pick(&[None, Some(1460), Some(0), Some(1), Some(536)]);
        repr.window_len = input.pick(&[0, 1, 500, u16::MAX]);
        self.frame(&repr);
    }

    /// A segment that is right, nearly right, or wrong.
    fn segment(&mut self, input: &mut Input<'_>) {
        let port = input.pick(&PORTS);
        let place = self.places.entry(port).or_default();
        let [from, behind] = [0; 2].map(|_: u32| {
            input.pick(&[0, 0, 0, 0, 0, 1, u32::MAX, 4000, 1 << 31, 18_000, u32::MAX - 700])
        });
        let payload = input.pick(&PIECES);
        let control = input.pick(&[
            TcpControl::None,
            TcpControl::None,
            TcpControl::Psh,
            TcpControl::Fin,
            TcpControl::Rst,
            TcpControl::Syn,
        ]);
        let repr = TcpRepr {
            control,
            seq_number: TcpSeqNumber(place.own.wrapping_add(from) as i32),
            ack_number: (input.below(16) != 0)
                .then_some(TcpSeqNumber(place.server.wrapping_add(behind) as i32)),
            window_len: input.pick(&[u16::MAX, u16::MAX, 500, 1, 0]),
            payload,
            ..syn(port, 0)
        };
        if from == 0 {
            place.own = place.own.wrapping_add(repr.segment_len() as u32);
        }
        self.frame(&repr);
    }

    /// Brings a segment to the card.
    fn frame(&self, repr: &TcpRepr<'_>) {
        let sums = ChecksumCapabilities::default();
        let ip = Ipv4Repr {
            src_addr: CLIENT.1,
            dst_addr: SERVER.1,
            next_header: IpProtocol::Tcp,
            payload_len: repr.buffer_len(),
            hop_limit: 64,
        };
        let mut bytes = vec![0; 14 + ip.buffer_len() + repr.buffer_len()];
        let mut frame = EthernetFrame::new_unchecked(&mut bytes);
        frame.set_dst_addr(SERVER.0);
        frame.set_src_addr(CLIENT.0);
        frame.set_ethertype(EthernetProtocol::Ipv4);
        let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
        ip.emit(&mut packet, &sums);
        let mut segment = TcpPacket::new_unchecked(packet.payload_mut());
        repr.emit(&mut segment, &CLIENT.1.into(), &SERVER.1.into(), &sums);
        self.card.came.borrow_mut().push_back(bytes);
    }

    /// A turn of the server, and a look at its frames. Returns true if the client was told something but "no".
    fn turn(&mut self, server: &mut Live<'_>) -> Result<bool, String> {
        server.turn(self.now);
        let frames = std::mem::take(&mut *self.card.went.borrow_mut());
        if frames.len() > FRAMES {
            return Err(format!("{} frames in a turn", frames.len()));
        }
        let mut told = false;
        for frame in &frames {
            told |= self.look(frame)?;
        }
        Ok(told)
    }

    fn look(&mut self, frame: &[u8]) -> Result<bool, String> {
        let wrong = |why: &dyn std::fmt::Display| format!("a frame of the server's: {why}");
        let frame = EthernetFrame::new_checked(frame).map_err(|e| wrong(&e))?;
        match frame.ethertype() {
            EthernetProtocol::Arp => {
                let arp = ArpPacket::new_checked(frame.payload()).map_err(|e| wrong(&e))?;
                self.resolve(&ArpRepr::parse(&arp).map_err(|e| wrong(&e))?);
                return Ok(false);
            }
            EthernetProtocol::Ipv4 => {}
            other => return Err(wrong(&other)),
        }
        let sums = ChecksumCapabilities::default();
        let packet = Ipv4Packet::new_checked(frame.payload()).map_err(|e| wrong(&e))?;
        let ip = Ipv4Repr::parse(&packet, &sums).map_err(|e| wrong(&e))?;
        if ip.next_header != IpProtocol::Tcp {
            return Ok(false);
        }
        let segment = TcpPacket::new_checked(packet.payload()).map_err(|e| wrong(&e))?;
        let (from, to): (IpAddress, IpAddress) = (SERVER.1.into(), CLIENT.1.into());
        let tcp = TcpRepr::parse(&segment, &from, &to, &sums).map_err(|e| wrong(&e))?;
        if (ip.src_addr, tcp.src_port) != (SERVER.1, PORT) {
            return Err(wrong(&"it has another sender"));
        }
        if tcp.control == TcpControl::Rst {
            return Ok(false);
        }
        let place = self.places.entry(tcp.dst_port).or_default();
        let next = (tcp.seq_number.0 as u32).wrapping_add(tcp.segment_len() as u32);
        if tcp.dst_port == HONEST && place.server != 0 {
            // It takes what is next, and drops the rest.
            if tcp.seq_number.0 as u32 != place.server {
                return Ok(true);
            }
            self.heard.extend(tcp.payload);
        }
        place.server = next;
        Ok(true)
    }

    /// Answers a question for the client's Ethernet address.
    fn resolve(&self, asked: &ArpRepr) {
        let ArpRepr::EthernetIpv4 { operation: ArpOperation::Request, .. } = asked else { return };
        let answer = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: CLIENT.0,
            source_protocol_addr: CLIENT.1,
            target_hardware_addr: SERVER.0,
            target_protocol_addr: SERVER.1,
        };
        let mut bytes = vec![0; 14 + answer.buffer_len()];
        let mut frame = EthernetFrame::new_unchecked(&mut bytes);
        frame.set_dst_addr(SERVER.0);
        frame.set_src_addr(CLIENT.0);
        frame.set_ethertype(EthernetProtocol::Arp);
        answer.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
        self.card.came.borrow_mut().push_back(bytes);
    }

    /// All connections of the attacker's have ended in time, and a client that keeps the rules gets its page.
    fn recovers(&mut self, server: &mut Live<'_>) -> Result<(), String> {
        for _ in 0..200 {
            self.now += 1_000 * MILLI;
            self.turn(server)?;
        }
        // Without this option it would get segments of a size that the attacker may have chosen: `smoltcp` keeps that
        // where a handshake is broken off.
        self.frame(&TcpRepr { max_seg_size: Some(1460), ..syn(HONEST, 7) });
        self.places.insert(HONEST, Place { own: 8, server: 0 });
        let mut asked = false;
        for _ in 0..200 {
            self.now += MILLI;
            self.turn(server)?;
            let place = self.places[&HONEST];
            if place.server == 0 {
                continue;
            }
            let payload = if asked { &[] } else { PIECES[0] };
            self.frame(&TcpRepr {
                seq_number: TcpSeqNumber(place.own as i32),
                ack_number: Some(TcpSeqNumber(place.server as i32)),
                payload,
                ..TcpRepr { control: TcpControl::None, ..syn(HONEST, 0) }
            });
            if !asked {
                self.places.insert(HONEST, Place { own: 8 + payload.len() as u32, ..place });
            }
            asked = true;
        }
        let mut page = vec![0; bulkhead_http::BYTES];
        Page::of(b"/page/a").write(0, &mut page);
        if !self.heard.ends_with(&page) {
            return Err(format!("an honest client heard {} bytes", self.heard.len()));
        }
        Ok(())
    }
}

/// A first segment.
fn syn(port: u16, own: u32) -> TcpRepr<'static> {
    TcpRepr {
        src_port: port,
        dst_port: PORT,
        control: TcpControl::Syn,
        seq_number: TcpSeqNumber(own as i32),
        ack_number: None,
        window_len: u16::MAX,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}
