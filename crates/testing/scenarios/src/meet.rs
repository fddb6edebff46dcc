//! A party of channels made at run time (`docs/links.md`), in a bare guest (`guests/meet`) and in a Linux
//! (`bhchannel meet`). It takes steps, one after the other, each of them for up to `ms` milliseconds, by default three
//! seconds.
//!
//! | step | does |
//! |---|---|
//! | `offer-N` | offers a link to sandbox N |
//! | `joined` | waits until it was accepted |
//! | `send`, `receive` | 200 messages through the last one, in order; the receiver waits for all |
//! | `accept` | waits for an offer, and accepts it |
//! | `told` | waits until its end is told that the other has left |
//! | `gone` | waits until its own end was taken away |
//! | `zeros` | sees that nothing lies where the other wrote |
//! | `left` | waits until the other has left |
//! | `close` | closes the own end, and waits until nothing of it is left |
//! | `watch` | its other core, or thread, reads and writes the link from now on, for ever |
//! | `touch` | reads the link's memory |
//! | `keep` | sees for 200 ms that nobody changes the page that it alone writes |
//! | `refused` | asks for all that it may not have |
//! | `ask-N-R` | makes request R of sandbox N's monitor: 1 stop, 2 start |
//! | `nap` | does nothing for 100 ms |
//! | `stay` | sleeps for ever |
//! | `restart` | begins anew, once: behind it come the steps of its second life |

use crate::Guest;
use bulkhead_channel::Stop;
use bulkhead_channel::layout::Kind;
use bulkhead_channel_memory::link::{Link, Links, Phase, Refused, State};
use bulkhead_channel_memory::typed::{Pair, Receiver, Sender};
use bulkhead_layout::PAGE;
use bulkhead_layout::hypercall::{ACCEPT, BAD_ARGUMENT, CLOSE, CONTROL, DENIED, LOOK, OFFER, OK};
use core::sync::atomic::{AtomicU64, Ordering};

const MILLISECOND: u64 = 1_000_000;
/// For each step, in milliseconds.
const PATIENCE: u64 = 3_000;
/// Between two looks.
const PAUSE: u64 = MILLISECOND / 20;
const MESSAGES: u64 = 200;
const TAG: u16 = 0xBEEF;
/// Word that `watch` writes.
const NOISE: u64 = 0x6E6F_6973_6500_0000;

/// Bytes of a message, of a queue.
const MESSAGE: u32 = 64;
type Message = [u64; MESSAGE as usize / 8];

/// How often [`watch`] has looked.
static WATCHES: AtomicU64 = AtomicU64::new(0);

enum End {
    None,
    Sends(Sender<'static, Message>),
    Receives(Receiver<'static, Message>),
}

struct Party<'a, H, A> {
    host: &'a H,
    aside: A,
    link: Option<Link>,
    end: End,
}

/// Does the steps, with commas between them. `aside` has another core, or a thread, [`watch`] the [`last`] words of a
/// link, and tells if it could. Exit code 0 if all came to pass, else the step's number from 1.
pub fn meet(host: &(impl Guest + Links), steps: &str, aside: impl Fn(&Link) -> bool) -> u32 {
    let mut party = Party { host, aside, link: None, end: End::None };
    let (first, second) = steps.split_once(",restart,").unwrap_or((steps, ""));
    let again = host.life() > 0;
    for (n, step) in (1..).zip(if again { second } else { first }.split(',')) {
        if !party.step(step) {
            let state = party.link.map(|link| host.state(&link));
            host.say(format_args!("{n}. {step} did not come to pass: {state:?}"));
            return n;
        }
    }
    if !again && !second.is_empty() {
        host.restart();
    }
    host.say(format_args!("all came to pass, {} looks", WATCHES.load(Ordering::Relaxed)));
    0
}

/// The last words of a party's and of its peer's memory: behind all words of the protocol.
pub fn last(links: &impl Links, link: &Link) -> Option<[&'static AtomicU64; 2]> {
    let words = links.words(link)?;
    let [owner, other] = [words.get(sent(words).checked_sub(1)?)?, words.last()?];
    Some(if link.mine { [owner, other] } else { [other, owner] })
}

/// Words of a link that its owner writes.
fn sent(words: &[AtomicU64]) -> usize {
    words.len().saturating_sub(PAGE as usize / 8)
}

/// Writes its own of the [`last`] words, and reads the other, for ever.
pub fn watch([own, other]: [&AtomicU64; 2]) -> ! {
    loop {
        own.store(NOISE | other.load(Ordering::Relaxed) >> 48, Ordering::Relaxed);
        WATCHES.fetch_add(1, Ordering::Relaxed);
    }
}

impl<H: Guest + Links, A: Fn(&Link) -> bool> Party<'_, H, A> {
    fn until(&self, mut reached: impl FnMut() -> bool) -> bool {
        let end = self.host.now() + MILLISECOND * self.host.number("ms").unwrap_or(PATIENCE);
        loop {
            if reached() {
                return true;
            }
            let now = self.host.now();
            if now >= end {
                return false;
            }
            self.host.sleep_until(now + PAUSE);
        }
    }

    fn pair(&self) -> Option<Pair<'static>> {
        self.host.ends(&self.link?, Kind::Queue, MESSAGE)
    }

    fn offer(&mut self, to: u32) -> bool {
        let mut offered = None;
        self.until(|| match self.host.offer(to, TAG) {
            Ok(link) => {
                offered = Some(link);
                true
            }
            Err(why) => why != Refused::Busy,
        });
        self.link = offered.or(self.link);
        let end = self.pair().filter(|_| offered.is_some());
        self.end = end.and_then(|pair| Sender::open(&pair).ok()).map_or(End::None, End::Sends);
        matches!(self.end, End::Sends(_))
    }

    fn accept(&mut self) -> bool {
        let host = self.host;
        let mut accepted = None;
        self.until(|| {
            accepted = host.offers().find(|link| {
                let state = host.state(link);
                state.tag == TAG && host.accept(link, state.epoch).is_ok()
            });
            accepted.is_some()
        });
        self.link = accepted.or(self.link);
        let end = self.pair().filter(|_| accepted.is_some());
        let end = end.and_then(|pair| Receiver::open(&pair).ok());
        self.end = end.map_or(End::None, End::Receives);
        matches!(self.end, End::Receives(_))
    }

    /// Waits until its end gives the wanted result.
    fn end(&mut self, mut done: impl FnMut(&mut End) -> bool) -> bool {
        let mut end = core::mem::replace(&mut self.end, End::None);
        let reached = self.until(|| done(&mut end));
        self.end = end;
        reached
    }

    fn send(&mut self) -> bool {
        (0..MESSAGES).all(|n| {
            self.end(|end| match end {
                End::Sends(end) => end.send(&[n; 8]).is_ok(),
                _ => false,
            })
        })
    }

    fn receive(&mut self) -> bool {
        (0..MESSAGES).all(|n| {
            let mut found = None;
            self.end(|end| {
                let End::Receives(end) = end else { return false };
                found = end.receive().ok();
                found.is_some()
            });
            found == Some([n; 8])
        })
    }

    /// Its end hears that the other one is not there any more.
    fn told(&mut self) -> bool {
        self.end(|end| {
            let stop = match end {
                // An end with room for more looks at no peer.
                End::Sends(end) => end.send(&[0; 8]).err(),
                End::Receives(end) => end.receive().err(),
                End::None => None,
            };
            matches!(stop, Some(Stop::Left | Stop::Lost))
        })
    }

    fn is(&self, what: impl Fn(State) -> bool) -> bool {
        self.link.is_some_and(|link| self.until(|| what(self.host.state(&link))))
    }

    fn close(&mut self) -> bool {
        self.end = End::None;
        let closed = self.link.is_some_and(|link| self.host.close(&link).is_ok());
        closed && self.is(|state| state.own == Phase::Idle)
    }

    fn watched(&self) -> bool {
        let begun = self.link.is_some_and(|link| (self.aside)(&link));
        begun && self.until(|| WATCHES.load(Ordering::Relaxed) > 0)
    }

    fn last(&self) -> Option<[&'static AtomicU64; 2]> {
        last(self.host, &self.link?)
    }

    /// Tells if zeros have replaced all of the owner's words.
    fn zeros(&self) -> bool {
        let words = self.link.and_then(|link| self.host.words(&link)).unwrap_or_default();
        let owners = &words[..sent(words)];
        !owners.is_empty() && owners.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Tells if the last word of the other's page stays as this end's peer left it, for some time.
    fn kept(&self) -> bool {
        let Some([own, other]) = self.last() else { return false };
        own.store(1, Ordering::Relaxed);
        let as_left =
            || own.load(Ordering::Relaxed) == 1 && other.load(Ordering::Relaxed) & !1 == 0;
        (0..200).all(|_| {
            self.sleep(1);
            as_left()
        })
    }

    fn sleep(&self, milliseconds: u64) {
        self.host.sleep_until(self.host.now() + MILLISECOND * milliseconds);
    }

    /// Tries all that is not this sandbox's: foreign targets of offers, links that are not there, and offers that do
    /// not stand.
    fn refused(&self) -> bool {
        let (host, [me, sandboxes]) = (self.host, self.host.sandboxes().map(u64::from));
        let strangers = (0..sandboxes).filter(|to| *to >= 2).chain([64, u64::MAX]);
        let denied = |call: u64, first: u64| host.call(call, first, 0) == DENIED;
        let bad = |call, link: u32, epoch| host.call(call, link.into(), epoch) == BAD_ARGUMENT;
        let calls = [ACCEPT, CLOSE, LOOK];
        let absent = |link: u64| calls.into_iter().all(|call| denied(call, link));
        strangers.into_iter().all(|to| denied(OFFER, to))
            && denied(OFFER, me)
            && [31, 32, 1 << 32, u64::MAX].into_iter().all(absent)
            && host.links().all(|link| {
                let (Link { number, mine, .. }, state) = (link, host.state(&link));
                let now = u64::from(state.epoch);
                // Its own, one that is not offered, one of another epoch, one that nobody has.
                [0, now, now + 1, u64::MAX].into_iter().all(|epoch| bad(ACCEPT, number, epoch))
                    && (mine && state.own == Phase::Open || bad(CLOSE, number, 0))
            })
    }

    fn step(&mut self, step: &str) -> bool {
        match step {
            "joined" => self.is(|state| matches!(state.other, Phase::Open | Phase::Gone)),
            "send" => self.send(),
            "receive" => self.receive(),
            "accept" => self.accept(),
            "told" => self.told(),
            "gone" => self.is(|state| state.own == Phase::Gone),
            "zeros" => self.zeros(),
            "left" => self.is(|state| state.other == Phase::Gone),
            "close" => self.close(),
            "watch" => self.watched(),
            "touch" => self.last().is_some_and(|[_, other]| other.load(Ordering::Relaxed) == 0),
            "keep" => self.kept(),
            "refused" => self.refused(),
            "nap" => {
                self.sleep(100);
                true
            }
            "stay" => loop {
                self.sleep(1_000);
            },
            "" => true,
            _ => self.numbered(step),
        }
    }

    /// A step with numbers behind it.
    fn numbered(&mut self, step: &str) -> bool {
        let mut words = step.split('-');
        let (what, mut number) = (words.next(), || words.next()?.parse().ok());
        match (what, number(), number()) {
            (Some("offer"), Some(to), None) => self.offer(to),
            (Some("ask"), Some(of), Some(request)) => {
                self.until(|| self.host.call(CONTROL, of.into(), request.into()) == OK)
            }
            _ => false,
        }
    }
}
