//! The door between `smoltcp` and the network: it gives `smoltcp` connections that began in another life.
//!
//! `smoltcp` cannot be given a connection. So the door makes the client's handshake again, from a record, and keeps
//! `smoltcp`'s part of it for itself. `smoltcp` has then chosen a first number of its own. The door adds the difference
//! to all that goes out, and takes it from all acknowledgements that come in. New connections are translated, too: the
//! door chooses their first number, so that it is known before anything goes out.
//!
//! Two more rules are the door's. An acknowledgement never says more than the record, whatever `smoltcp` has taken. And
//! `smoltcp` never sees one for bytes that it has not sent in this life, because the client may have them already.

use crate::CONNECTIONS;
use crate::record::Record;
use crate::segment::Segment;
use core::net::Ipv4Addr;
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};

/// Bytes of the longest frame.
const FRAME: usize = 1518;
/// New connections at once, at most: as many as a turn takes frames.
pub const NEWS: usize = 32;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its port.
    pub port: u16,
}

/// The numbers of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The client, and its words of the handshake.
    pub peer: Peer,
    pub mac: EthernetAddress,
    pub mss: u16,
    pub scale: Option<u8>,
    /// Its last window.
    pub window: u16,
    /// Its first byte, and ours, as this life counts.
    pub first: u32,
    pub start: u32,
    /// The difference to `smoltcp`'s numbers, once that has chosen one.
    shift: Option<u32>,
    /// The number behind all that `smoltcp` has sent, in its own numbers.
    sent: u32,
    /// The number up to which the record holds the client's bytes; `None`: there is no record.
    limit: Option<u32>,
    /// The client has its part of the handshake.
    handed: bool,
}

impl Link {
    fn translate_in(&self, segment: &mut Segment<'_>) {
        let (Some(shift), Some(number)) = (self.shift, segment.acknowledges()) else { return };
        let number = number.wrapping_sub(shift);
        segment.set_acknowledges(if is_behind(number, self.sent) { self.sent } else { number });
    }

    /// Returns true if the segment may go.
    fn translate_out(&mut self, segment: &mut Segment<'_>) -> bool {
        let (number, len) = segment.place();
        let end = number.wrapping_add(len);
        let Some(limit) = self.limit else { return false };
        if segment.accepts() {
            self.shift = Some(self.start.wrapping_sub(1).wrapping_sub(number));
            self.sent = end;
        }
        let Some(shift) = self.shift else { return false };
        if is_behind(end, self.sent) {
            self.sent = end;
        }
        segment.set_first(number.wrapping_add(shift));
        if let Some(number) = segment.acknowledges()
            && is_behind(number, limit)
        {
            segment.set_acknowledges(limit);
        }
        !(segment.accepts() && self.handed)
    }
}

/// Tells if a number comes behind another one.
const fn is_behind(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// A frame that the door makes, in the name of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// The client's Ethernet address.
    Address,
    /// Its wish to have a connection.
    First,
    /// Its answer to `smoltcp`'s.
    Answer,
    /// Its end.
    End,
}

/// All connections.
#[derive(Debug)]
struct Table {
    own: (EthernetAddress, Peer),
    seed: u64,
    links: [Option<Link>; CONNECTIONS],
    news: [Option<Link>; NEWS],
}

impl Table {
    /// Looks at a frame that comes; true if `smoltcp` is to see it. A wish that it knows would open a second connection
    /// at the next socket that listens.
    fn comes(&mut self, frame: &mut [u8]) -> bool {
        let Some(mut segment) = Segment::of(frame) else { return true };
        if segment.to != self.own.1 {
            return true;
        }
        let first = segment.place().0.wrapping_add(1);
        match self.links.iter_mut().flatten().find(|link| link.peer == segment.from) {
            Some(link) if !segment.is_first() => {
                link.window = segment.window();
                link.translate_in(&mut segment);
            }
            Some(link) if link.first == first => return false,
            // A client that has forgotten the connection is asked about it (RFC 5961, 4).
            Some(link) => segment.ask(link.first.wrapping_sub(2), link.sent),
            None if segment.is_first() => return self.note(&segment),
            None => {}
        }
        true
    }

    /// A client asks for a connection; true if this is the first time, and there is room. Else it will ask again.
    fn note(&mut self, segment: &Segment<'_>) -> bool {
        if self.news.iter().flatten().any(|new| new.peer == segment.from) {
            return false;
        }
        let Some(room) = self.news.iter().position(Option::is_none) else { return false };
        let (mss, scale) = segment.options();
        self.news[room] = Some(Link {
            peer: segment.from,
            mac: segment.mac,
            mss: mss.unwrap_or(0),
            scale,
            window: segment.window(),
            first: segment.place().0.wrapping_add(1),
            start: self.number(segment.from),
            shift: None,
            sent: 0,
            limit: None,
            handed: false,
        });
        true
    }

    /// Returns a number for the first byte of a connection (RFC 6528 wants one that others cannot know).
    fn number(&mut self, peer: Peer) -> u32 {
        let tuple = u64::from(peer.address.to_bits()) << 16 | u64::from(peer.port);
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.seed ^ tuple).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 32) as u32
    }

    /// Looks at a frame of `smoltcp`'s; true if it may go. An answer to a stranger may.
    fn goes(&mut self, frame: &mut [u8]) -> bool {
        let Some(mut segment) = Segment::of(frame) else { return true };
        let mut links = self.links.iter_mut().flatten();
        match links.find(|link| link.peer == segment.to) {
            Some(link) => link.translate_out(&mut segment),
            None => !segment.accepts(),
        }
    }

    /// Makes a frame in a client's name. Returns its length.
    fn make(&self, link: &Link, made: Made, frame: &mut [u8; FRAME]) -> usize {
        let ethernet =
            |ethertype| EthernetRepr { src_addr: link.mac, dst_addr: self.own.0, ethertype };
        let mut frame = EthernetFrame::new_unchecked(&mut frame[..]);
        let header = EthernetFrame::<&[u8]>::header_len();
        if made == Made::Address {
            let arp = ArpRepr::EthernetIpv4 {
                operation: ArpOperation::Reply,
                source_hardware_addr: link.mac,
                source_protocol_addr: link.peer.address,
                target_hardware_addr: self.own.0,
                target_protocol_addr: self.own.1.address,
            };
            ethernet(EthernetProtocol::Arp).emit(&mut frame);
            arp.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
            return header + arp.buffer_len();
        }
        let tcp = self.segment(link, made);
        let ip = Ipv4Repr {
            src_addr: link.peer.address,
            dst_addr: self.own.1.address,
            next_header: IpProtocol::Tcp,
            payload_len: tcp.buffer_len(),
            hop_limit: 64,
        };
        ethernet(EthernetProtocol::Ipv4).emit(&mut frame);
        let sums = ChecksumCapabilities::default();
        let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
        ip.emit(&mut packet, &sums);
        let mut packet = TcpPacket::new_unchecked(packet.payload_mut());
        tcp.emit(&mut packet, &ip.src_addr.into(), &ip.dst_addr.into(), &sums);
        header + ip.buffer_len() + tcp.buffer_len()
    }

    fn segment(&self, link: &Link, made: Made) -> TcpRepr<'static> {
        let first = made == Made::First;
        let number = if first { link.first.wrapping_sub(1) } else { link.first };
        TcpRepr {
            src_port: link.peer.port,
            dst_port: self.own.1.port,
            control: match made {
                Made::First => TcpControl::Syn,
                Made::End => TcpControl::Fin,
                _ => TcpControl::None,
            },
            seq_number: TcpSeqNumber(number as i32),
            ack_number: (!first).then_some(TcpSeqNumber(link.sent as i32)),
            window_len: link.window,
            window_scale: link.scale.filter(|_| first),
            max_seg_size: Some(link.mss).filter(|mss| first && *mss > 0),
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
        }
    }
}

/// A network device behind a door.
#[derive(Debug)]
pub struct Door<D> {
    device: D,
    table: Table,
    /// The next frame is made, for a link.
    made: Option<(usize, Made)>,
    /// Frames of the device come through.
    open: bool,
    incoming: [u8; FRAME],
    outgoing: [u8; FRAME],
}

impl<D: Device> Door<D> {
    /// Makes a door that is closed. The first numbers of connections follow from `seed`.
    pub const fn new(device: D, own: (EthernetAddress, Peer), seed: u64) -> Self {
        let table = Table { own, seed, links: [None; CONNECTIONS], news: [None; NEWS] };
        let (incoming, outgoing) = ([0; FRAME], [0; FRAME]);
        Self { device, table, made: None, open: false, incoming, outgoing }
    }

    /// Returns the device.
    pub const fn device(&mut self) -> &mut D {
        &mut self.device
    }

    pub(crate) const fn open(&mut self) {
        self.open = true;
    }

    /// Puts a connection of a record at a place.
    pub(crate) fn resume(&mut self, at: usize, record: &Record<'_>) {
        self.table.links[at] = Some(Link {
            peer: record.peer,
            mac: record.mac,
            mss: record.mss,
            scale: record.scale,
            window: record.window,
            first: record.next.wrapping_sub(u32::from(record.ended)),
            start: record.start,
            shift: None,
            sent: 0,
            limit: Some(record.next),
            handed: !record.opening,
        });
    }

    /// The next frame that comes is made for a place.
    pub(crate) const fn make(&mut self, at: usize, made: Made) {
        self.made = Some((at, made));
    }

    /// Returns the connection of a place.
    pub(crate) fn link(&self, at: usize) -> Option<&Link> {
        self.table.links.get(at)?.as_ref()
    }

    /// Takes a new connection of a client to a place. Returns it.
    pub(crate) fn claim(&mut self, at: usize, peer: Peer) -> Option<Link> {
        let mut news = self.table.news.iter_mut();
        let new = news.find(|new| new.is_some_and(|new| new.peer == peer))?.take();
        self.table.links[at] = new;
        new
    }

    /// Empties a place.
    pub(crate) fn drop(&mut self, at: usize) {
        self.table.links[at] = None;
    }

    /// Forgets new connections that no place has taken.
    pub(crate) fn forget(&mut self) {
        self.table.news = [None; NEWS];
    }

    /// The record of a place holds the client's bytes up to a number.
    pub(crate) fn recorded(&mut self, at: usize, limit: u32) {
        if let Some(link) = &mut self.table.links[at] {
            link.limit = Some(limit);
        }
    }
}

impl<D: Device> Device for Door<D> {
    type RxToken<'a>
        = Taken<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Room<'a, D::TxToken<'a>>
    where
        Self: 'a;

    fn receive(&mut self, now: Instant) -> Option<(Taken<'_>, Self::TxToken<'_>)> {
        let (len, token) = match self.made.take() {
            Some((at, made)) => {
                let token = self.device.transmit(now)?;
                let link = self.table.links[at].as_ref()?;
                (self.table.make(link, made, &mut self.incoming), token)
            }
            None if self.open => {
                let (frame, token) = self.device.receive(now)?;
                let incoming = &mut self.incoming;
                let len = frame.consume(|frame| {
                    let len = frame.len().min(FRAME);
                    incoming[..len].copy_from_slice(&frame[..len]);
                    len
                });
                // An empty frame is none.
                let goes = self.table.comes(&mut self.incoming[..len]);
                (if goes { len } else { 0 }, token)
            }
            None => return None,
        };
        let room = Room { table: &mut self.table, buffer: &mut self.outgoing, token };
        Some((Taken(&self.incoming[..len]), room))
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        let token = self.device.transmit(now)?;
        Some(Room { table: &mut self.table, buffer: &mut self.outgoing, token })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.device.capabilities()
    }
}

/// A frame that came.
#[derive(Debug)]
pub struct Taken<'a>(&'a [u8]);

impl RxToken for Taken<'_> {
    fn consume<T, F: FnOnce(&[u8]) -> T>(self, look: F) -> T {
        look(self.0)
    }
}

/// Room for a frame, before the door has looked at it.
#[derive(Debug)]
pub struct Room<'a, T> {
    table: &'a mut Table,
    buffer: &'a mut [u8; FRAME],
    token: T,
}

impl<T: TxToken> TxToken for Room<'_, T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        // No more than the device's capabilities say: they are below FRAME.
        let frame = &mut self.buffer[..len];
        let done = fill(frame);
        if self.table.goes(frame) {
            self.token.consume(len, |to| to.copy_from_slice(frame));
        }
        done
    }
}
