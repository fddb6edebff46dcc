//! A party of channels made at run time: `do=STEP,STEP...`, each of them for up to three seconds.
//!
//! | step | does |
//! |---|---|
//! | `offer-N` | offers a slot to sandbox N |
//! | `joined` | waits until it was accepted |
//! | `send`, `receive` | 200 messages through the last one, in order; the receiver waits for all |
//! | `accept` | waits for an offer, and accepts it |
//! | `told` | waits until its end is told that the other has left |
//! | `gone` | waits until its own end was taken away |
//! | `left` | waits until the other has left |
//! | `close` | closes the own end, and waits until nothing of it is left |
//! | `watch` | its other core reads and writes the slot from now on, for ever |
//! | `touch` | reads the slot's memory |
//! | `keep` | sees for 200 ms that nobody changes the page that it alone writes |
//! | `refused` | asks for all that it may not have |
//! | `ask-N-R` | makes request R of sandbox N's monitor: 1 stop, 2 start |
//! | `nap` | does nothing for 100 ms |
//! | `stay` | sleeps for ever |
//! | `restart` | begins anew, once: behind it come the steps of its second life |
//!
//! Exit code 0 if all came to pass, else the step's number from 1.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::channel::Stop;
use bulkhead_sdk::channel::layout::Kind;
use bulkhead_sdk::layout::hypercall::{ACCEPT, BAD_ARGUMENT, CLOSE, DENIED, OFFER, OK, SLOT};
use bulkhead_sdk::link::{self, Phase, Refused, Slot};
use bulkhead_sdk::typed::{Receiver, Sender};
use bulkhead_sdk::{Context, cores, hypercall, println, time};
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_sdk::entry!(guest);

const MILLISECOND: u64 = 1_000_000;
/// For each step.
const PATIENCE: u64 = 3_000;
const MESSAGES: u64 = 200;
const TAG: u16 = 0xBEEF;
/// What `watch` writes.
const NOISE: u64 = 0x6E6F_6973_6500_0000;

type Message = [u64; 8];

/// One more than the slot that the other core uses.
static WATCHED: AtomicU64 = AtomicU64::new(0);
/// How often it has.
static WATCHES: AtomicU64 = AtomicU64::new(0);

enum End {
    None,
    Sends(Sender<'static, Message>),
    Receives(Receiver<'static, Message>),
}

struct Party {
    context: Context,
    slot: Option<Slot>,
    end: End,
}

fn until(mut reached: impl FnMut() -> bool) -> bool {
    (0..20 * PATIENCE).any(|_| {
        reached() || {
            time::sleep(MILLISECOND / 20);
            false
        }
    })
}

/// The last words of what a party writes, and of what its peer does: behind all words of the protocol.
fn last(slot: &Slot) -> Option<[&'static AtomicU64; 2]> {
    let words = slot.words();
    let [owner, other] = [words.get(slot.size as usize / 8 - 1)?, words.last()?];
    Some(if slot.mine { [owner, other] } else { [other, owner] })
}

fn watch(context: Context, _: usize) {
    let watched = WATCHED.load(Ordering::Acquire);
    let slot = link::slots(context).find(|slot| u64::from(slot.number) + 1 == watched);
    let Some([own, other]) = slot.as_ref().and_then(last) else { return };
    loop {
        own.store(NOISE | other.load(Ordering::Relaxed) >> 48, Ordering::Relaxed);
        WATCHES.fetch_add(1, Ordering::Relaxed);
    }
}

impl Party {
    fn offer(&mut self, to: u32) -> bool {
        until(|| match link::offer(self.context, to, TAG) {
            Ok(slot) => {
                self.slot = Some(slot);
                true
            }
            Err(why) => why != Refused::Busy,
        });
        let pair = self.slot.and_then(|slot| slot.pair(Kind::Queue, 64));
        self.end = pair.and_then(|pair| Sender::open(&pair).ok()).map_or(End::None, End::Sends);
        matches!(self.end, End::Sends(_))
    }

    fn accept(&mut self) -> bool {
        let accepted = until(|| {
            let offered = link::offers(self.context).find(|slot| {
                let state = slot.state();
                state.tag == TAG && slot.accept(state.epoch).is_ok()
            });
            self.slot = offered.or(self.slot);
            offered.is_some()
        });
        if !accepted {
            return false;
        }
        let pair = self.slot.and_then(|slot| slot.pair(Kind::Queue, 64));
        let end = pair.and_then(|pair| Receiver::open(&pair).ok());
        self.end = end.map_or(End::None, End::Receives);
        matches!(self.end, End::Receives(_))
    }

    fn send(&mut self) -> bool {
        let End::Sends(end) = &mut self.end else { return false };
        (0..MESSAGES).all(|n| until(|| end.send(&[n; 8]).is_ok()))
    }

    fn receive(&mut self) -> bool {
        let End::Receives(end) = &mut self.end else { return false };
        (0..MESSAGES).all(|n| {
            let mut found = None;
            until(|| {
                found = end.receive().ok();
                found.is_some()
            });
            found == Some([n; 8])
        })
    }

    /// Its end hears that the other one is not there any more.
    fn told(&mut self) -> bool {
        until(|| {
            let stop = match &mut self.end {
                // One with room for more looks at nobody.
                End::Sends(end) => end.send(&[0; 8]).err(),
                End::Receives(end) => end.receive().err(),
                End::None => return false,
            };
            matches!(stop, Some(Stop::Left | Stop::Lost))
        })
    }

    fn is(&self, what: impl Fn(link::State) -> bool) -> bool {
        self.slot.is_some_and(|slot| until(|| what(slot.state())))
    }

    fn close(&mut self) -> bool {
        self.end = End::None;
        let closed = self.slot.is_some_and(|slot| slot.close().is_ok());
        closed && self.is(|state| state.own == Phase::Idle)
    }

    fn watched(&self) -> bool {
        let Some(slot) = self.slot else { return false };
        WATCHED.store(u64::from(slot.number) + 1, Ordering::Release);
        cores::start(self.context, 1, watch) && until(|| WATCHES.load(Ordering::Relaxed) > 0)
    }

    /// Whether the last word of the other's page is what this end's peer left there, at both ends of some time.
    fn kept(&self) -> bool {
        let Some([own, other]) = self.slot.as_ref().and_then(last) else { return false };
        own.store(1, Ordering::Relaxed);
        let as_left =
            || own.load(Ordering::Relaxed) == 1 && other.load(Ordering::Relaxed) & !1 == 0;
        (0..200).all(|_| {
            time::sleep(MILLISECOND);
            as_left()
        })
    }

    /// Everything that is not this sandbox's: whom it may not offer to, slots that are not there, and offers that do not
    /// stand.
    fn refused(&self) -> bool {
        let info = self.context.info();
        let strangers = (0..u64::from(info.sandboxes)).filter(|to| *to >= 2).chain([64, u64::MAX]);
        let denied = |call: u64, first: u64| hypercall::raw(call, first, 0, 0, 0) == DENIED;
        let bad = |call: u64, slot: &Slot, epoch: u64| {
            hypercall::raw(call, slot.number.into(), epoch, 0, 0) == BAD_ARGUMENT
        };
        let calls = [ACCEPT, CLOSE, SLOT];
        let absent = |slot: u64| calls.into_iter().all(|call| denied(call, slot));
        strangers.into_iter().all(|to| denied(OFFER, to))
            && denied(OFFER, info.sandbox.into())
            && [31, 32, 1 << 32, u64::MAX].into_iter().all(absent)
            && link::slots(self.context).all(|slot| {
                let now = u64::from(slot.state().epoch);
                // Its own, one that is not offered, one of another epoch, one that nobody has.
                [0, now, now + 1, u64::MAX].into_iter().all(|epoch| bad(ACCEPT, &slot, epoch))
                    && (slot.mine && slot.state().own == Phase::Open || bad(CLOSE, &slot, 0))
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
            "left" => self.is(|state| state.other == Phase::Gone),
            "close" => self.close(),
            "watch" => self.watched(),
            "touch" => {
                let last = self.slot.as_ref().and_then(last);
                last.is_some_and(|[_, other]| other.load(Ordering::Relaxed) == 0)
            }
            "keep" => self.kept(),
            "refused" => self.refused(),
            "nap" => {
                time::sleep(100 * MILLISECOND);
                true
            }
            "stay" => loop {
                time::sleep(1_000 * MILLISECOND);
            },
            "" => true,
            _ => {
                let mut words = step.split('-');
                let (what, mut number) = (words.next(), || words.next()?.parse().ok());
                match (what, number(), number()) {
                    (Some("offer"), Some(to), None) => self.offer(to),
                    (Some("ask"), Some(of), Some(request)) => {
                        until(|| hypercall::control(of, request.into()) == OK)
                    }
                    _ => false,
                }
            }
        }
    }
}

fn guest(context: Context) -> u32 {
    let mut party = Party { context, slot: None, end: End::None };
    let steps = context.arg("do").unwrap_or_default();
    let (first, second) = steps.split_once(",restart,").unwrap_or((steps, ""));
    let again = context.incarnation() > 0;
    for (n, step) in (1..).zip(if again { second } else { first }.split(',')) {
        if !party.step(step) {
            let state = party.slot.map(|slot| slot.state());
            println!("{}: {n}. {step} did not come to pass: {state:?}", context.name());
            return n;
        }
    }
    if !again && !second.is_empty() {
        hypercall::restart();
    }
    println!("{}: all came to pass, {} looks", context.name(), WATCHES.load(Ordering::Relaxed));
    0
}
