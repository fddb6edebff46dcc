//! A connection: the client's bytes, the answers to them, and the record of both.

use crate::PORT;
use crate::door::{Door, Made, Peer};
use crate::record::{LOG, Record, Records, Words};
use bulkhead_http::{Answer, Reader, Refused, Request, Step};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::phy::Device;
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Duration;
use smoltcp::wire::{IpAddress, IpEndpoint};

/// Bytes to send, and received ones, that a connection holds: all of an answer, and a request.
const SEND: usize = 18 << 10;
const RECEIVE: usize = 2 << 10;
/// Answers at once that are not acknowledged as a whole.
const ANSWERS: usize = 16;
/// Longest time for a request to come whole, for an acknowledgement, and between two requests; ns, but the second.
const WHOLE: u64 = 10_000_000_000;
const ACKNOWLEDGED: Duration = Duration::from_secs(20);
const IDLE: u64 = 60_000_000_000;

/// Memory of a connection.
#[derive(Debug)]
pub struct Room {
    receive: [u8; RECEIVE],
    send: [u8; SEND],
    log: [u8; LOG],
    reader: Reader,
}

impl Room {
    /// Unused memory.
    pub const EMPTY: Self =
        Self { receive: [0; RECEIVE], send: [0; SEND], log: [0; LOG], reader: Reader::new() };
}

/// Bytes of a client, from the oldest request on that has no whole answer.
struct Log<'a> {
    bytes: &'a mut [u8; LOG],
    len: usize,
    /// Bytes that the reader has.
    read: usize,
}

impl Log<'_> {
    fn drop(&mut self, len: usize) {
        self.bytes.copy_within(len..self.len, 0);
        (self.len, self.read) = (self.len - len, self.read - len);
    }
}

/// A request and its answer, in bytes.
#[derive(Clone, Copy, Default)]
struct Pair {
    request: usize,
    answer: usize,
}

/// A connection, or a place for one.
pub struct Connection<'a> {
    /// Its number.
    at: usize,
    pub socket: SocketHandle,
    reader: &'a mut Reader,
    log: Log<'a>,
    /// Answers that the client has not acknowledged as a whole, the oldest first. The last one may be on its way.
    pairs: [Pair; ANSWERS],
    count: usize,
    answer: Option<Answer>,
    /// Bytes that `smoltcp` was given since `start`.
    given: usize,
    /// The last answer ends it.
    over: bool,
    /// Time since which it waits for a request, for the rest of one, or for the client to take its answer.
    since: u64,
    /// The client, as the door knows it.
    peer: Option<Peer>,
    /// The client's next byte, and ours with which the oldest answer begins.
    next: u32,
    start: u32,
    ended: bool,
    slow: bool,
    opening: bool,
    /// The record is older.
    stale: bool,
}

impl<'a> Connection<'a> {
    pub fn new(at: usize, room: &'a mut Room, sockets: &mut SocketSet<'a>) -> Self {
        let receive = SocketBuffer::new(&mut room.receive[..]);
        let mut socket = Socket::new(receive, SocketBuffer::new(&mut room.send[..]));
        socket.set_nagle_enabled(false);
        socket.set_timeout(Some(ACKNOWLEDGED));
        room.reader = Reader::new();
        Self {
            at,
            socket: sockets.add(socket),
            reader: &mut room.reader,
            log: Log { bytes: &mut room.log, len: 0, read: 0 },
            pairs: [Pair::default(); ANSWERS],
            count: 0,
            answer: None,
            given: 0,
            over: false,
            since: 0,
            peer: None,
            next: 0,
            start: 0,
            ended: false,
            slow: false,
            opening: false,
            stale: false,
        }
    }

    /// Forgets its client.
    fn reset(&mut self) {
        *self.reader = Reader::new();
        (self.log.len, self.log.read, self.count, self.given) = (0, 0, 0, 0);
        (self.answer, self.peer) = (None, None);
        (self.over, self.ended, self.slow, self.opening, self.stale) = Default::default();
    }

    /// Goes on as a record says. Frames for its socket are to follow.
    pub fn resume(&mut self, socket: &mut Socket<'_>, record: &Record<'_>, now: u64) {
        self.reset();
        // It is closed, and the port is not 0.
        let _ = socket.listen(PORT);
        self.log.bytes[..record.bytes.len()].copy_from_slice(record.bytes);
        self.log.len = record.bytes.len();
        self.peer = Some(record.peer);
        self.next = record.next.wrapping_sub(u32::from(record.ended));
        self.start = record.start;
        (self.ended, self.slow, self.opening) = (record.ended, record.slow, record.opening);
        self.since = now;
    }

    /// Returns the frames that `smoltcp` is to see for a record.
    pub fn frames(record: &Record<'_>) -> &'static [Made] {
        match (record.opening, record.ended) {
            (true, _) => &[Made::Address, Made::First],
            (false, false) => &[Made::Address, Made::First, Made::Answer],
            (false, true) => &[Made::Address, Made::First, Made::Answer, Made::End],
        }
    }

    /// Does what is to be done, and records it. Frames that tell of it go later.
    pub fn work<D: Device, W: Words>(
        &mut self,
        socket: &mut Socket<'_>,
        door: &mut Door<D>,
        records: &mut Records<W>,
        now: u64,
    ) {
        if !socket.is_open() {
            let _ = socket.listen(PORT);
        }
        if socket.state() == State::TimeWait {
            // The client has all, and has said so. The place is for the next one.
            socket.abort();
        }
        self.meet(socket, door, now);
        if socket.is_active() && self.peer.is_some() {
            self.serve(socket, now);
            self.record(door, records);
        } else {
            self.leave(socket, door, records, now);
        }
    }

    /// Gets to know a new client.
    fn meet<D: Device>(&mut self, socket: &mut Socket<'_>, door: &mut Door<D>, now: u64) {
        if socket.state() != State::SynReceived {
            return;
        }
        let Some(peer) = socket.remote_endpoint().and_then(peer) else { return };
        if let Some(link) = door.claim(self.at, peer) {
            self.reset();
            self.peer = Some(peer);
            (self.next, self.start) = (link.first, link.start);
            (self.opening, self.stale, self.since) = (true, true, now);
        }
    }

    /// There is no connection any more. The door needs it until `smoltcp` has said its last word.
    fn leave<D: Device, W: Words>(
        &mut self,
        socket: &mut Socket<'_>,
        door: &mut Door<D>,
        records: &mut Records<W>,
        now: u64,
    ) {
        self.since = now;
        if self.peer.is_some() {
            self.reset();
            records.clear(self.at);
        }
        if socket.is_active() {
            // The door does not know it, so it could not go on.
            socket.abort();
        } else if socket.remote_endpoint().is_none() {
            door.drop(self.at);
        }
    }

    fn serve(&mut self, socket: &mut Socket<'_>, now: u64) {
        if self.opening && socket.state() != State::SynReceived {
            (self.opening, self.stale) = (false, true);
        }
        self.acknowledged(socket);
        // Requests may come together: each has its answer before the next one is looked at.
        while !self.over {
            self.send(socket);
            if self.answer.is_some() || self.over || self.count == ANSWERS {
                break;
            }
            self.read(socket, now);
            if !self.asked(now) {
                break;
            }
        }
        let waits = self.answer.is_none() && !self.over && self.count < ANSWERS;
        if waits && self.log.read == self.log.len && (self.slow || self.is_slow(now)) {
            (self.slow, self.stale) = (true, true);
            self.begin(0, Answer::refused(Refused::Slow));
            self.send(socket);
        }
        let left = waits && socket.may_send() && !socket.may_recv();
        if self.over || left {
            self.pass(socket);
            socket.close();
        }
        self.ends(socket);
        // It asks for nothing, or does not take its answer: its place is of more use to others.
        if now.saturating_sub(self.since) > IDLE {
            socket.abort();
        }
    }

    /// Drops requests with answers that the client has.
    fn acknowledged(&mut self, socket: &Socket<'_>) {
        let mut has = self.given - socket.send_queue();
        while let Some(pair) = self.pairs[..self.count].first().copied() {
            // The answer that ends the connection stays: a next life has to end it, too.
            let last = self.count == 1 && self.over;
            if has < pair.answer || last {
                return;
            }
            has -= pair.answer;
            self.given -= pair.answer;
            self.start = self.start.wrapping_add(pair.answer as u32);
            self.log.drop(pair.request);
            self.pairs.copy_within(1..self.count, 0);
            self.count -= 1;
            self.stale = true;
        }
    }

    /// Takes in what came.
    fn read(&mut self, socket: &mut Socket<'_>, now: u64) {
        let begins = self.reader.is_empty();
        if socket.can_recv() && !self.slow {
            let len = socket.recv_slice(&mut self.log.bytes[self.log.len..]).unwrap_or(0);
            self.log.len += len;
            self.next = self.next.wrapping_add(len as u32);
            self.stale |= len > 0;
        }
        let room = self.reader.room();
        let some = &self.log.bytes[self.log.read..self.log.len];
        let len = some.len().min(room.len());
        room[..len].copy_from_slice(&some[..len]);
        self.reader.came(len);
        self.log.read += len;
        // A request has its time from its first byte on.
        if begins && len > 0 {
            self.since = now;
        }
    }

    /// Takes bytes that have no meaning any more.
    fn pass(&mut self, socket: &mut Socket<'_>) {
        while socket.can_recv() {
            let len = socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap_or(0);
            self.next = self.next.wrapping_add(len as u32);
            self.stale |= len > 0;
        }
    }

    /// Looks if the client has sent its last byte, and all before that is here.
    fn ends(&mut self, socket: &Socket<'_>) {
        use State::{CloseWait, Closing, LastAck, TimeWait};
        let ended = matches!(socket.state(), CloseWait | Closing | LastAck | TimeWait);
        if ended && !self.ended && !socket.can_recv() {
            (self.ended, self.stale) = (true, true);
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
        self.begin(self.reader.last(), answer);
        self.since = now;
        true
    }

    fn begin(&mut self, request: usize, answer: Answer) {
        self.pairs[self.count] = Pair { request, answer: answer.bytes() };
        self.count += 1;
        self.answer = Some(answer);
    }

    /// Tells if a part of a request has waited for the rest for too long.
    fn is_slow(&self, now: u64) -> bool {
        !self.reader.is_empty() && now.saturating_sub(self.since) > WHOLE
    }

    /// Sends as much of the answer as there is room for.
    fn send(&mut self, socket: &mut Socket<'_>) {
        let Some(answer) = &mut self.answer else { return };
        while !answer.is_over() && socket.can_send() {
            let sent = socket.send(|room| {
                let len = answer.write(room);
                (len, len)
            });
            let sent = sent.unwrap_or(0);
            self.given += sent;
            if sent == 0 {
                return;
            }
        }
        if answer.is_over() {
            self.over = !answer.keeps();
            self.answer = None;
        }
    }

    fn record<D: Device, W: Words>(&mut self, door: &mut Door<D>, records: &mut Records<W>) {
        let Some(link) = door.link(self.at).filter(|_| self.stale) else { return };
        let next = self.next.wrapping_add(u32::from(self.ended));
        let record = Record {
            peer: link.peer,
            mac: link.mac,
            window: link.window,
            scale: link.scale,
            mss: link.mss,
            next,
            start: self.start,
            opening: self.opening,
            ended: self.ended,
            slow: self.slow,
            bytes: &self.log.bytes[..self.log.len],
        };
        records.write(self.at, &record);
        door.recorded(self.at, next);
        self.stale = false;
    }
}

fn peer(end: IpEndpoint) -> Option<Peer> {
    let IpAddress::Ipv4(address) = end.addr;
    Some(Peer { address, port: end.port })
}

/// Pages lie at `/` and below `/page/`.
fn is_page(request: &Request<'_>) -> bool {
    request.path == b"/" || request.path.starts_with(b"/page/")
}
