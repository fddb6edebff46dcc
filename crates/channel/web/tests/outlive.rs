//! Clients of a server that dies after any word of a record and any frame, and begins anew. Each client sees the right
//! bytes, each once and in order, on the connection that it began.

use bulkhead_http::{Answer, Reader, Refused, Step};
use bulkhead_web::{Begun, LOG, Load, Record, Records, Room, Server, Words, region};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet, SocketStorage};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::rc::Rc;

const SERVER: (EthernetAddress, Ipv4Addr) =
    (EthernetAddress([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: (EthernetAddress, Ipv4Addr) =
    (EthernetAddress([2, 0, 0, 0, 0, 2]), Ipv4Addr::new(10, 0, 0, 2));
/// Connections.
const MANY: usize = 5;
const MILLI: u64 = 1_000_000;

/// Deeds that the server has left: a word of a record, or a frame, is one.
type Life = Rc<Cell<usize>>;

fn lives(life: &Life) -> bool {
    let left = life.get();
    life.set(left.saturating_sub(1));
    left > 0
}

/// Records of a server that can die.
#[derive(Clone)]
struct Memory(Rc<RefCell<Vec<u64>>>, Life);

impl Words for Memory {
    fn words(&self) -> usize {
        self.0.borrow().len()
    }
    fn load(&self, at: usize) -> u64 {
        self.0.borrow()[at]
    }
    fn store(&self, at: usize, word: u64) {
        if lives(&self.1) {
            self.0.borrow_mut()[at] = word;
        }
    }
}

type Frames = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// A wire that loses, doubles and swaps some frames.
#[derive(Clone, Default)]
struct Noise(Rc<Cell<u64>>);

impl Noise {
    /// 0: it does nothing.
    fn of(seed: u64) -> Self {
        Self(Rc::new(Cell::new(seed)))
    }

    fn carry(&self, frame: Vec<u8>, to: &mut VecDeque<Vec<u8>>) {
        let next = self.0.get().wrapping_mul(6_364_136_223_846_793_005);
        self.0.set(if next == 0 { 0 } else { next.wrapping_add(1) });
        match next >> 33 & 31 {
            1 => {}
            2 => to.extend([frame.clone(), frame]),
            3 | 4 => to.insert(to.len().saturating_sub(1), frame),
            _ => to.push_back(frame),
        }
    }
}

/// An end of a wire.
struct Port {
    from: Frames,
    to: Frames,
    /// All that came, for a next life.
    came: Frames,
    life: Life,
    noise: Noise,
}

struct Taken(Vec<u8>);
impl RxToken for Taken {
    fn consume<T, F: FnOnce(&[u8]) -> T>(self, look: F) -> T {
        look(&self.0)
    }
}

struct Send<'a>(&'a Port);
impl TxToken for Send<'_> {
    fn consume<T, F: FnOnce(&mut [u8]) -> T>(self, len: usize, fill: F) -> T {
        let mut frame = vec![0; len];
        let done = fill(&mut frame);
        if lives(&self.0.life) {
            self.0.noise.carry(frame, &mut self.0.to.borrow_mut());
        }
        done
    }
}

impl Device for Port {
    type RxToken<'a> = Taken;
    type TxToken<'a> = Send<'a>;
    fn receive(&mut self, _: Instant) -> Option<(Taken, Send<'_>)> {
        let frame = self.from.borrow_mut().pop_front()?;
        let mut came = self.came.borrow_mut();
        came.push_back(frame.clone());
        if came.len() > 40 {
            came.pop_front();
        }
        drop(came);
        Some((Taken(frame), Send(self)))
    }
    fn transmit(&mut self, _: Instant) -> Option<Send<'_>> {
        Some(Send(self))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

/// The server's side: what outlives a life of it, and the life.
struct Place {
    memory: Rc<RefCell<Vec<u64>>>,
    to_server: Frames,
    to_client: Frames,
    came: Frames,
    noise: Noise,
    life: Life,
    server: Option<Server<'static, Port, Memory>>,
    begun: Vec<Begun>,
}

impl Place {
    fn new(noise: u64) -> Self {
        Self {
            noise: Noise::of(noise),
            memory: Rc::new(RefCell::new(vec![0; region(MANY) / 8])),
            to_server: Frames::default(),
            to_client: Frames::default(),
            came: Frames::default(),
            life: Life::default(),
            server: None,
            begun: Vec::new(),
        }
    }

    /// A life of so many deeds begins. It gets the last frames again, or loses those that wait.
    fn begin(&mut self, deeds: usize, again: bool, now: u64) {
        self.life = Rc::new(Cell::new(deeds));
        let mut came = self.came.borrow_mut();
        let mut waiting = self.to_server.borrow_mut();
        if again {
            came.drain(..).rev().for_each(|frame| waiting.push_front(frame));
        } else {
            waiting.clear();
        }
        came.clear();
        drop((came, waiting));
        let port = Port {
            from: self.to_server.clone(),
            to: self.to_client.clone(),
            came: self.came.clone(),
            life: self.life.clone(),
            noise: self.noise.clone(),
        };
        let rooms = Box::leak((0..MANY).map(|_| Room::EMPTY).collect::<Box<[_]>>());
        let sockets = Box::leak((0..MANY).map(|_| SocketStorage::EMPTY).collect::<Box<[_]>>());
        let memory = Memory(self.memory.clone(), self.life.clone());
        let records = Records::open(memory, MANY).expect("it fits");
        let (server, begun) = Server::new(port, SERVER, rooms, sockets, records, now);
        self.server = Some(server);
        self.begun.push(begun);
    }

    fn records(&self) -> Records<Memory> {
        Records::open(Memory(self.memory.clone(), Life::default()), MANY).expect("it fits")
    }
}

/// The bytes that answer these requests.
fn answers(requests: &[u8]) -> Vec<u8> {
    let (mut reader, mut all, mut rest) = (Reader::new(), Vec::new(), requests);
    loop {
        let room = reader.room();
        let len = room.len().min(rest.len());
        room[..len].copy_from_slice(&rest[..len]);
        reader.came(len);
        rest = &rest[len..];
        let mut answer = match reader.step() {
            Step::More => return all,
            Step::Asked(request) if request.path.starts_with(b"/page/") => {
                Answer::page(&request, true)
            }
            Step::Asked(request) => Answer::missing(&request),
            Step::Refused(why) => Answer::refused(why),
        };
        let mut bytes = vec![0; answer.bytes()];
        answer.write(&mut bytes);
        all.extend(bytes);
        if !answer.keeps() {
            return all;
        }
    }
}

/// A client's connection.
struct Asks {
    socket: SocketHandle,
    requests: Vec<u8>,
    asked: usize,
    /// Bytes of a piece, and milliseconds between two.
    piece: usize,
    pause: u64,
    wanted: Vec<u8>,
    got: usize,
    /// The server is to end it; the client does so behind its last request.
    ends: bool,
    half: bool,
}

struct Client {
    interface: Interface,
    port: Port,
    sockets: SocketSet<'static>,
    all: Vec<Asks>,
}

impl Client {
    fn new(place: &Place, jobs: &[Job]) -> Self {
        let life = Rc::new(Cell::new(usize::MAX));
        let (from, to) = (place.to_client.clone(), place.to_server.clone());
        let noise = place.noise.clone();
        let mut port = Port { from, to, came: Frames::default(), life, noise };
        let config = Config::new(HardwareAddress::Ethernet(CLIENT.0));
        let mut interface = Interface::new(config, &mut port, Instant::ZERO);
        interface.update_ip_addrs(|all| all.push(IpCidr::new(CLIENT.1.into(), 24)).unwrap());
        let mut sockets = SocketSet::new(vec![]);
        let all = jobs.iter().enumerate().map(|(n, job)| job.asks(n, &mut sockets)).collect();
        Self { interface, port, sockets, all }
    }

    fn poll(&mut self, now: u64) {
        let at = Instant::from_micros((now / 1_000) as i64);
        self.interface.poll(at, &mut self.port, &mut self.sockets);
        for (n, asks) in self.all.iter_mut().enumerate() {
            let socket: &mut Socket<'_> = self.sockets.get_mut(asks.socket);
            if socket.state() == State::Closed && asks.got == 0 && asks.asked == 0 {
                let server = (IpAddress::from(SERVER.1), 80);
                socket.connect(self.interface.context(), server, 40_000 + n as u16).unwrap();
            }
            asks.go_on(socket, now);
        }
        self.interface.poll(at, &mut self.port, &mut self.sockets);
    }

    fn is_done(&self) -> bool {
        let closed = |asks: &Asks| {
            let state = self.sockets.get::<Socket<'_>>(asks.socket).state();
            matches!(state, State::Closed | State::TimeWait)
        };
        self.all.iter().all(|asks| asks.got == asks.wanted.len() && closed(asks))
    }
}

impl Asks {
    fn go_on(&mut self, socket: &mut Socket<'_>, now: u64) {
        if socket.can_send() && self.asked < self.requests.len() && now / MILLI % self.pause == 0 {
            let end = self.requests.len().min(self.asked + self.piece);
            self.asked += socket.send_slice(&self.requests[self.asked..end]).unwrap();
        }
        while socket.can_recv() {
            let (got, wanted) = (self.got, &self.wanted);
            let len = socket.recv(|bytes| {
                let right = wanted.get(got..got + bytes.len()) == Some(&*bytes);
                assert!(right, "{} bytes at {got} of {} are wrong", bytes.len(), wanted.len());
                (bytes.len(), bytes.len())
            });
            self.got += len.unwrap();
        }
        let over = self.got == self.wanted.len();
        if self.half && self.asked == self.requests.len() {
            socket.close();
        }
        // The server's end comes behind its last byte, and before that the connection is as it was.
        let ended = matches!(socket.state(), State::Closed | State::CloseWait | State::TimeWait);
        let broke = ended && self.asked > 0;
        assert!(!broke || over, "it broke: {} of {}", self.got, self.wanted.len());
        if over && (!self.ends || socket.state() == State::CloseWait) {
            socket.close();
        }
    }
}

/// The requests of a connection.
#[derive(Clone, Debug)]
struct Job {
    paths: Vec<(String, bool)>,
    last: u8,
    piece: usize,
    pause: u64,
}

impl Job {
    fn asks(&self, n: usize, sockets: &mut SocketSet<'static>) -> Asks {
        let get = |(path, page): &(String, bool)| {
            let (method, folder) = if *page { ("GET", "page") } else { ("HEAD", "none") };
            format!("{method} /{folder}/{n}{path} HTTP/1.1\r\nHost: a\r\n\r\n")
        };
        let mut requests: String = self.paths.iter().map(get).collect();
        requests += match self.last {
            0 => "GET /page/last HTTP/1.0\r\n\r\n",
            1 => "PUT / HTTP/1.0\r\n\r\nmore",
            _ => "",
        };
        let buffer = |len| SocketBuffer::new(vec![0; len]);
        let mut socket = Socket::new(buffer(9_000), buffer(1_000));
        socket.set_ack_delay(None);
        socket.set_nagle_enabled(false);
        Asks {
            socket: sockets.add(socket),
            wanted: answers(requests.as_bytes()),
            requests: requests.into_bytes(),
            asked: 0,
            piece: self.piece,
            pause: self.pause,
            got: 0,
            ends: self.last != 2,
            half: self.last == 3,
        }
    }
}

/// Runs jobs with a server that has lives of so many deeds, and then one that stays. Returns how each life
/// began.
fn run(jobs: &[Job], lives: &[(usize, bool, u64)], noise: u64) -> Vec<Begun> {
    let mut place = Place::new(noise);
    let mut client = Client::new(&place, jobs);
    let mut lives = lives.iter();
    let mut begins = 0;
    for millis in 0..200_000 {
        let now = (1 + millis) * MILLI;
        client.poll(now);
        if place.life.get() == 0 {
            if millis < begins {
                continue;
            }
            let next = lives.next();
            let (deeds, again, pause) = next.copied().unwrap_or((usize::MAX, true, 0));
            begins = millis + pause;
            place.begin(deeds, again, now);
        }
        for _ in 0..3 {
            if place.life.get() > 0 {
                place.server.as_mut().expect("it has begun").turn(now);
            }
        }
        let records = place.records();
        let empty = (0..MANY).all(|slot| records.read(slot, &mut [0; LOG]) == Load::Empty);
        if client.is_done() && empty {
            return place.begun;
        }
    }
    let got: Vec<_> = client.all.iter().map(|asks| (asks.got, asks.wanted.len())).collect();
    let states: Vec<_> =
        client.all.iter().map(|a| client.sockets.get::<Socket<'_>>(a.socket).state()).collect();
    panic!("it does not end: {got:?}, {states:?}, {:?}", place.begun);
}

fn job(paths: usize, last: u8) -> Job {
    let paths = (0..paths).map(|n| (format!("/{n}"), n % 3 != 1)).collect();
    Job { paths, last, piece: 1_000, pause: 1 }
}

#[test]
fn connections_end_without_a_failure() {
    let begun = run(&[job(3, 0), job(4, 1), job(5, 2), job(40, 2), job(2, 3)], &[], 0);
    assert_eq!(begun, [Begun::default()]);
}

/// It dies after each number of deeds in turn, until a life is long enough for all.
#[test]
fn a_server_dies_after_each_deed() {
    let mut resumed = 0;
    for deeds in 1..260 {
        for again in [false, true] {
            let begun =
                run(&[job(2, 0), job(1, 2), job(1, 3)], &[(deeds, again, deeds as u64 % 7)], 0);
            assert!(begun.iter().all(|one| one.broken == 0), "{deeds}: {begun:?}");
            resumed += begun.iter().map(|one| one.resumed).sum::<u32>();
        }
    }
    assert!(resumed > 300, "{resumed}");
}

/// Nothing of a client's is acknowledged that the memory does not hold: what one life has taken, the next one has.
#[test]
fn a_broken_record_is_dropped_and_its_client_told() {
    let mut place = Place::new(0);
    let mut client = Client::new(&place, &[job(3, 2)]);
    place.begin(usize::MAX, true, 1);
    for millis in 1..6 {
        client.poll(millis * MILLI);
        place.server.as_mut().expect("it has begun").turn(millis * MILLI);
    }
    let words = place.memory.borrow().len();
    (64..words).for_each(|at| place.memory.borrow_mut()[at] |= 0x0110);
    place.begin(usize::MAX, true, 6 * MILLI);
    assert_eq!(place.begun[1], Begun { resumed: 0, broken: MANY as u32 });
    // And once more: it is empty.
    place.begin(usize::MAX, true, 7 * MILLI);
    assert_eq!(place.begun[2], Begun::default());
}

#[test]
fn the_newer_one_of_two_records_counts() {
    let mut place = Place::new(0);
    let mut client = Client::new(&place, &[job(1, 2)]);
    place.begin(usize::MAX, true, 1);
    for millis in 1..4 {
        client.poll(millis * MILLI);
        place.server.as_mut().expect("it has begun").turn(millis * MILLI);
    }
    let memory = Memory(place.memory.clone(), Rc::new(Cell::new(usize::MAX)));
    let mut records = Records::open(memory, MANY).expect("it fits");
    let mut bytes = [0; LOG];
    let found = (0..MANY).find_map(|slot| match records.read(slot, &mut bytes) {
        Load::Whole(_, record) => Some((slot, record.next)),
        _ => None,
    });
    let (slot, next) = found.expect("a record");
    let Load::Whole(_, record) = records.read(slot, &mut bytes) else { panic!("it was there") };
    records.write(MANY - 1, &Record { next: next.wrapping_add(1), ..record });
    place.begin(usize::MAX, true, 4 * MILLI);
    assert_eq!(place.begun[1], Begun { resumed: 1, broken: 1 });
    assert_eq!(records.read(slot, &mut bytes), Load::Empty);
}

/// A client gets 408 and still ends its request. The next life does not answer it with a page.
#[test]
fn a_slow_client_is_refused_by_the_next_life_too() {
    let mut place = Place::new(0);
    let mut client = Client::new(&place, &[job(1, 2)]);
    let mut answer = Answer::refused(Refused::Slow);
    let asks = &mut client.all[0];
    (asks.wanted, asks.ends, asks.piece) = (vec![0; answer.bytes()], true, 20);
    answer.write(&mut asks.wanted);
    let rest = asks.requests.split_off(20);
    place.begin(usize::MAX, true, 1);
    for millis in 1..40_000 {
        if millis > 9_000 && place.begun.len() == 1 && !place.to_client.borrow().is_empty() {
            // Its answer is on its way.
            client.all[0].requests.extend(&rest);
            place.begin(usize::MAX, true, millis * MILLI);
            assert_eq!(place.begun[1], Begun { resumed: 1, broken: 0 });
        }
        client.poll(millis * MILLI);
        if client.is_done() {
            assert_eq!(place.begun.len(), 2);
            return;
        }
        place.server.as_mut().expect("it has begun").turn(millis * MILLI);
    }
    panic!("it does not end");
}

/// Bytes of a request are acknowledged as soon as they are recorded, also without the rest.
#[test]
fn a_part_of_a_request_is_acknowledged() {
    let mut place = Place::new(0);
    let mut client = Client::new(&place, &[job(1, 2)]);
    client.all[0].requests.truncate(20);
    place.begin(usize::MAX, true, 1);
    for millis in 1..30 {
        client.poll(millis * MILLI);
        place.server.as_mut().expect("it has begun").turn(millis * MILLI);
    }
    let socket = client.sockets.get::<Socket<'_>>(client.all[0].socket);
    assert_eq!((client.all[0].asked, socket.send_queue()), (20, 0));
}

/// A client that comes again from its port asks for a connection while the server still has the last one.
#[test]
fn a_client_that_has_forgotten_its_connection_gets_another_one() {
    let mut place = Place::new(0);
    let mut lost = Client::new(&place, &[job(1, 2)]);
    let mut next = Client::new(&place, &[job(3, 2), job(1, 0)]);
    place.begin(usize::MAX, true, 1);
    let mut turn = |client: &mut Client, millis: u64| {
        client.poll(millis * MILLI);
        place.server.as_mut().expect("it has begun").turn(millis * MILLI);
    };
    (1..4).for_each(|millis| turn(&mut lost, millis));
    let end = (4..10_000).find(|millis| {
        turn(&mut next, *millis);
        next.is_done()
    });
    assert!(end.is_some_and(|end| end < 3_000), "{end:?}");
}

fn jobs() -> impl proptest::strategy::Strategy<Value = Vec<Job>> {
    use proptest::prelude::*;
    let path = ("[a-z]{0,60}", any::<bool>());
    let job = (proptest::collection::vec(path, 0..6), 0u8..4, 1usize..300, 1u64..20).prop_map(
        |(mut paths, last, piece, pause)| {
            if paths.is_empty() {
                paths.push((String::new(), true));
            }
            Job { paths, last, piece, pause }
        },
    );
    proptest::collection::vec(job, 1..MANY)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 64, ..Default::default() })]
    #[test]
    fn no_client_notices(
        jobs in jobs(),
        lives in proptest::collection::vec((1usize..400, proptest::bool::ANY, 0u64..30), 0..12),
        noise in proptest::sample::select(vec![0, 1, 3, 17, 55, 901]),
    ) {
        let begun = run(&jobs, &lives, noise);
        proptest::prop_assert!(begun.iter().all(|one| one.broken == 0), "{begun:?}");
    }
}
