//! Drives a network card, and bridges it with clients in other sandboxes (docs/networks.md).
//!
//! Arguments:
//!
//! * `card=CHANNEL`, or `card=CHANNEL:MAC`: a client with a virtio network card, over a channel of kind `virtio`.
//!   `MAC` is its address, 12 digits to the base of 16; without it one is made of the channel's name;
//! * `wire=IN:OUT:MAC`: a client at a wire of two channels of records, `IN` from it and `OUT` to it;
//! * `share=N` (default 32): most frames of a client in a round;
//! * `rate=N`, `burst=N` (defaults 1000, 64): a client's frames to all in a second, and at once;
//! * `spin=MICROSECONDS` (default 2): longest time that it looks before it sleeps, where a channel is `adaptive`;
//! * `complaint=MS` (default 1000): how long it must have run before it believes a client that its answers cannot be.
//!
//! It needs the function, memory `rings` of 1 MiB for the card, and the notification `work`, which the card's
//! interrupt and the clients' doorbells signal. Where a client does not ring it looks all the time.
//!
//! With memory `progress` it has a guard, as a store has ([`store_programs::progress`]). Then it ends itself where its
//! card's state cannot be trusted any more, and the whole sandbox begins anew.

use crate::card::AnyCard;
use bulkhead_cards::{Card, Mac, Received, Wrong};
use bulkhead_gate::{Client, Gate, News, Sections, Terms};
use bulkhead_net::{Limit, Wire};
use bulkhead_program::bell::{Port, SLEEP};
use bulkhead_program::channel::adaptive::Spin;
use bulkhead_program::typed::Mapping;
use bulkhead_program::{
    FOREVER, Guest, Handler, Notification, Program, now, println, ready, wait_until,
};
use core::fmt;
use store_programs::progress::Progress;

/// Clients, at most, and ports with the card's.
const CLIENTS: usize = 8;
const PORTS: usize = CLIENTS + 1;
/// Nanoseconds that a frame may be at the card before that is reset.
const PATIENCE: u64 = 5_000_000_000;
/// Longest time that the card's reset takes, ns.
const RESET: u64 = 8_000_000_000;
/// Name of the memory for the device, and of the notification.
const RINGS: &str = "rings";
const WORK: &str = "work";

type Clients = Gate<Mapping<'static>, Port, CLIENTS, PORTS>;
/// A virtio client's channel.
pub type Channel = Sections<Mapping<'static>>;

/// Serves the clients. `wrap` has the card after its reset, and the virtio clients' channels before the first word
/// there. A test's program puts a card of its own around it.
pub fn gate<C: Card>(
    program: Program,
    wrap: impl FnOnce(AnyCard, [Option<Channel>; CLIENTS]) -> C,
) -> u32 {
    match serve(program, wrap) {
        Ok(()) => 0,
        Err(why) => {
            println!("{}: {why}", program.name());
            1
        }
    }
}

/// Reason why the program ends.
enum Why {
    /// The manifest's.
    Text(&'static str),
    /// The card's.
    Card(Wrong),
    /// A client's, by its channel.
    Client(&'static str),
}

impl From<&'static str> for Why {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Card(wrong) => wrong.fmt(f),
            Self::Client(name) => write!(f, "{name} has given up on its device"),
        }
    }
}

/// A client as the arguments have it.
enum Asked {
    Card { name: &'static str, mac: Mac },
    Wire { from: &'static str, to: &'static str, mac: Mac },
}

/// The arguments about clients, in their order.
fn asked(program: Program) -> impl Iterator<Item = Option<Asked>> {
    program.args().split_ascii_whitespace().filter_map(|word| {
        if let Some(text) = word.strip_prefix("card=") {
            let (name, mac) = match text.split_once(':') {
                Some((name, digits)) => (name, address(digits)),
                None => (text, Some(named(text))),
            };
            return Some(mac.map(|mac| Asked::Card { name, mac }));
        }
        let mut parts = word.strip_prefix("wire=")?.split(':');
        let parts = [(); 4].map(|()| parts.next());
        let [Some(from), Some(to), Some(digits), None] = parts else { return Some(None) };
        Some(address(digits).map(|mac| Asked::Wire { from, to, mac }))
    })
}

/// An Ethernet address of 12 digits.
fn address(digits: &str) -> Option<Mac> {
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 12)?;
    let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
    Some([a, b, c, d, e, f])
}

/// A local Ethernet address, from a channel's name: the one that `bhvirtio net` makes.
fn named(channel: &str) -> Mac {
    let hash = channel
        .bytes()
        .fold(0x811C_9DC5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [a, b, c, d] = hash.to_be_bytes();
    [0x02, 0xB4, a, b, c, d]
}

fn serve<C: Card>(
    program: Program,
    wrap: impl FnOnce(AnyCard, [Option<Channel>; CLIENTS]) -> C,
) -> Result<(), Why> {
    let progress = Progress::find(program);
    let busy = |nanos| progress.iter().for_each(|progress| progress.busy(nanos));
    // Its reset is over before a word is said at a channel: no page of a section is used again before that.
    busy(RESET);
    let card = AnyCard::open(program, RINGS).map_err(Why::Card)?;
    busy(0);
    let [a, b, c, d, e, f] = card.mac();
    println!("{}: {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}", program.name());
    let number = |name, default| program.number(name).unwrap_or(default);
    let limit = |name, default| number(name, default).try_into().unwrap_or(u32::MAX);
    let terms = Terms {
        share: number("share", 32).try_into().unwrap_or(u16::MAX),
        limit: Limit { rate: limit("rate", 1000), burst: limit("burst", 64) },
        patience: PATIENCE,
    };
    let mut channels = [const { None }; CLIENTS];
    for (n, asked) in asked(program).enumerate() {
        let asked = asked.ok_or("an argument about a client makes no sense")?;
        let place = channels.get_mut(n).ok_or("too many clients")?;
        if let Asked::Card { name, .. } = asked {
            *place = Some(channel(program, name));
        }
    }
    let mut card = Watched { card: wrap(card, channels), progress };
    let mut clients = Clients::new(terms);
    let (mut adaptive, mut names) = (false, [""; CLIENTS]);
    for (n, asked) in asked(program).flatten().enumerate() {
        let (name, client) = match asked {
            Asked::Card { name, mac } => {
                let pair = program.pair(name);
                let [_, bell] = pair.doorbells();
                adaptive |= bell.is_some_and(|bell| bell.adaptive);
                let client = Client::card(mac, channel(program, name), program.caller(&pair));
                (name, client.map_err(|_| "a channel is too small")?)
            }
            Asked::Wire { from, to, mac } => (from, Client::wire(mac, wire(program, to, from)?)),
        };
        if !clients.add(client) {
            return Err("two clients have one address, or one is none".into());
        }
        names[n] = name;
    }
    let woken = !clients.arm(false);
    let sleep = woken.then(|| Sleep {
        work: program.waits(WORK),
        handler: program.interrupt(WORK),
        spin: match adaptive {
            true => Spin::new(number("spin", SLEEP / 1_000) * 1_000),
            false => Spin::NEVER,
        },
    });
    // A guard says so itself, when it has heard the first answer.
    if card.progress.is_none() {
        ready();
    }
    let believes = now().saturating_add(number("complaint", 1_000).saturating_mul(1_000_000));
    Server { program, card: &mut card, clients: &mut clients, names, believes }.run(sleep)
}

/// Returns the sections of a virtio client's channel.
#[must_use]
pub fn channel(program: Program, name: &str) -> Channel {
    let (pair, bus) = program.pair_for_device(name);
    let len = pair.shape().tx_bytes().unwrap_or(0);
    Sections { mine: *pair.rx(), theirs: *pair.tx(), len, bus }
}

/// The wire of two channels.
fn wire(
    program: Program,
    to: &str,
    from: &str,
) -> Result<Wire<Mapping<'static>, Port>, &'static str> {
    let (tx, rx) = (program.pair(to), program.pair(from));
    let sender = tx.send_records().map_err(|_| "a wire's end is no channel of records to send")?;
    let receiver =
        rx.receive_records().map_err(|_| "a wire's end is no channel of records to receive")?;
    let arm = rx.doorbell().and_then(|_| rx.arm().ok());
    Ok(Wire::new((sender, program.caller(&tx)), (receiver, arm)))
}

/// A card with a driver that says when it waits for it.
struct Watched<C> {
    card: C,
    progress: Option<Progress>,
}

impl<C: Card> Card for Watched<C> {
    fn mac(&self) -> Mac {
        self.card.mac()
    }
    fn link(&self) -> bool {
        self.card.link()
    }
    fn send(&mut self, head: &[u8], rest: Option<(u64, u32)>) -> Option<u16> {
        self.card.send(head, rest)
    }
    fn sent(&mut self) -> Option<u16> {
        self.card.sent()
    }
    fn receive(&mut self) -> Option<Received> {
        self.card.receive()
    }
    #[inline]
    fn read(&self, buffer: u16, at: usize) -> u64 {
        self.card.read(buffer, at)
    }
    fn give_back(&mut self, buffer: u16) {
        self.card.give_back(buffer);
    }
    fn ring(&mut self) {
        self.card.ring();
    }
    fn interrupts(&mut self, wanted: bool) {
        self.card.interrupts(wanted);
    }
    fn reset(&mut self) -> Result<(), Wrong> {
        let busy = |nanos| self.progress.iter().for_each(|progress| progress.busy(nanos));
        busy(RESET);
        let done = self.card.reset();
        busy(0);
        done
    }
    fn check(&mut self) {
        self.card.check();
    }
    fn fault(&self) -> Option<Wrong> {
        self.card.fault()
    }
}

/// Where it sleeps, and how long it looks before.
struct Sleep {
    work: Notification,
    handler: Handler,
    spin: Spin,
}

struct Server<'a, C> {
    program: Program,
    card: &'a mut Watched<C>,
    clients: &'a mut Clients,
    names: [&'static str; CLIENTS],
    /// Time from which on a client's complaint ends the driver.
    believes: u64,
}

impl<C: Card> Server<'_, C> {
    fn run(&mut self, mut sleep: Option<Sleep>) -> Result<(), Why> {
        loop {
            if self.round()? {
                continue;
            }
            let Some(sleep) = &mut sleep else {
                core::hint::spin_loop();
                continue;
            };
            let begun = now();
            let mut found = false;
            while !found && now() - begun < sleep.spin.time() {
                core::hint::spin_loop();
                found = self.round()?;
            }
            if found {
                sleep.spin.learn(now() - begun);
                continue;
            }
            // The requests to be woken, then one more look: what comes after that look rings.
            let _ = sleep.handler.acknowledge();
            self.card.interrupts(true);
            self.clients.arm(true);
            let mut ticks = 0;
            if !self.round()? {
                let until = if self.clients.under_way() > 0 { now() + PATIENCE } else { FOREVER };
                wait_until(sleep.work, until).map_err(|_| "it cannot wait for its notification")?;
                ticks = SLEEP;
            }
            self.clients.arm(false);
            self.card.interrupts(false);
            sleep.spin.learn((now() - begun).saturating_sub(ticks));
        }
    }

    /// A round, and a look whether all is sound. Returns true if there was anything to do.
    fn round(&mut self) -> Result<bool, Why> {
        let (program, names) = (self.program, &self.names);
        if self.card.progress.as_ref().is_some_and(Progress::answer) {
            self.card.check();
        }
        let mut news = |client: usize, news: News| {
            let said = match news {
                News::Begun(_) => "begins",
                News::Lost => "is gone",
                News::Corrupted => "wrote what cannot be",
            };
            println!("{}: {} {said}", program.name(), names[client]);
        };
        let busy = self.clients.round(self.card, now(), &mut news).map_err(Why::Card)?;
        let complaint = self.clients.complaint();
        if self.card.progress.is_none() {
            complaint.into_iter().for_each(|client| self.clients.renew(client));
            // Without a guard, a card that is silent is mended here.
            return match self.card.fault() {
                Some(_) => self.clients.reset(self.card).map(|()| true).map_err(Why::Card),
                None => Ok(busy),
            };
        }
        if let Some(wrong) = self.card.fault() {
            return Err(Why::Card(wrong));
        }
        if self.clients.strays() > 0 {
            return Err("the card names a frame that it does not have".into());
        }
        match complaint {
            Some(client) if now() >= self.believes => Err(Why::Client(self.names[client])),
            Some(client) => {
                println!("{}: {} gets its device anew", program.name(), self.names[client]);
                self.clients.renew(client);
                Ok(true)
            }
            None => Ok(busy),
        }
    }
}
