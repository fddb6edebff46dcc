//! The driver of a device that is a role's: one sandbox has it, and another one stands by.
//!
//! QEMU's `edu` carries a page of the channel `pages` into itself, and back to the next page, again and again. The
//! driver looks whether each word came back, and counts in the channel `done`, which a judge reads. Both channels are
//! those of the role `porter`, and the device reaches `pages` alone.
//!
//! Arguments:
//!
//! * `way=exit|memory|shutdown|hang|give|each` fails in the second round with the role: before the device is started,
//!   while it reads, or while it writes, in turn;
//! * `early=registers|config|write` does what only the holder may;
//! * `early=dma|message` does what not even the holder may. The device reaches memory beyond the role's, or sends an
//!   interrupt, by its registers and by a forged write;
//! * `rounds=N` makes it the judge: it ends when so many pages were carried.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod edu;

use bulkhead_sdk::role::{self, Role};
use bulkhead_sdk::{Context, hypercall, interrupt, pci, println, time, watchdog, window};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use fail::{fail, way};

bulkhead_sdk::entry!(guest);

/// Words of a page.
const WORDS: usize = 512;
/// Time between two looks at anything, nanoseconds.
const LOOK_NS: u64 = 1_000_000;
/// Looks until the device must have carried a page: it takes 100 ms.
const PATIENCE: u32 = 400;

/// Waits until the next look.
fn rest(context: Context) {
    time::sleep(LOOK_NS);
    watchdog::kick(context);
}

/// Things that a sandbox has with the role.
struct Held {
    pages: window::Window,
    done: &'static [AtomicU64],
    epoch: u64,
    rounds: u64,
}

impl Held {
    fn open(context: Context, epoch: u64) -> Option<Self> {
        let pages = window::channel(context, "pages")?;
        let done = window::channel(context, "done")?.words();
        let carried = done.first()?.load(Acquire);
        let answers = if edu::answers() { "answers" } else { "is silent" };
        println!("porter: epoch {epoch}, {carried} pages so far, the device {answers}");
        Some(Self { pages, done, epoch, rounds: 0 })
    }

    fn words(&self, page: usize) -> &'static [AtomicU64] {
        self.pages.words().get(page * WORDS..(page + 1) * WORDS).unwrap_or(&[])
    }

    /// Has the device carry a page, and waits until it has. Failures that were planned come in the midst.
    fn carry(&self, context: Context, to_ram: bool, planned: Option<u32>) -> Result<(), u32> {
        edu::start(self.pages.gpa + if to_ram { 4096 } else { 0 }, to_ram);
        if let Some(code) = planned {
            return Err(code);
        }
        for _ in 0..PATIENCE {
            rest(context);
            if !edu::busy() {
                return Ok(());
            }
        }
        println!("porter: the device carries for ever");
        Err(4)
    }

    /// Carries a page there and back.
    fn round(&mut self, context: Context, plan: Plan) -> Result<(), u32> {
        self.rounds += 1;
        let Some(count) = self.done.first() else { return Err(3) };
        let carried = count.load(Relaxed);
        // No page is like another one, and none like those of another epoch.
        let word = |n: usize| (self.epoch << 48 | carried << 16) ^ n as u64;
        self.words(0).iter().zip(0..).for_each(|(to, n)| to.store(word(n), Release));
        self.words(1).iter().for_each(|to| to.store(0, Release));
        plan.at(0, self.rounds).map_or(Ok(()), Err)?;
        self.carry(context, false, plan.at(1, self.rounds))?;
        self.carry(context, true, plan.at(2, self.rounds))?;
        let wrong = self.words(1).iter().zip(0..).filter(|(has, n)| has.load(Acquire) != word(*n));
        let wrong = wrong.count();
        if wrong > 0 {
            println!("porter: {wrong} words of page {carried} are wrong");
            return Err(5);
        }
        count.store(carried + 1, Release);
        Ok(())
    }
}

/// A failure to come.
#[derive(Clone, Copy)]
struct Plan {
    way: Option<&'static str>,
    life: u64,
}

impl Plan {
    /// Fails at this place of the second round, if it is this life's.
    fn at(&self, place: u64, round: u64) -> Option<u32> {
        let due = self.way.is_some() && round == 2 && self.life % 3 == place;
        due.then(|| match way(self.way, self.life) {
            "give" => {
                println!("porter: gives the role away: {:#x}", role::give());
                fail("exit")
            }
            way => fail(way),
        })
    }
}

/// Does what is the holder's alone.
fn early(what: &str) {
    let read = edu::FUNCTION.read(pci::register::ID);
    println!("porter: without the role the device's ID reads {read:#x}");
    match what {
        "registers" => println!("porter: its registers answer: {}", edu::answers()),
        "write" => {
            edu::FUNCTION.write(pci::register::COMMAND, pci::MEMORY | pci::BUS_MASTER);
            println!("porter: wrote its configuration");
        }
        _ => {}
    }
}

/// Has the device read memory that is the sandbox's, and not the role's.
fn beyond(context: Context, held: &Held) {
    static OWN: AtomicU64 = AtomicU64::new(0x5EC2_E70F);
    let own = core::ptr::from_ref(&OWN) as u64 & !0xFFF;
    edu::start(own, false);
    while edu::busy() {
        rest(context);
    }
    let _ = held.carry(context, true, None);
    let found = held.words(1).iter().filter(|word| word.load(Acquire) == OWN.load(Relaxed)).count();
    println!("porter: found {found} words of its own by the device");
}

/// Interrupts of the device that have come.
static CAME: AtomicU64 = AtomicU64::new(0);

/// Has the device send an interrupt to this core.
fn message(context: Context, held: &Held) {
    const VECTOR: u8 = 0x70;
    interrupt::set(VECTOR, |_, _| {
        CAME.fetch_add(1, Relaxed);
    });
    // All cores of this test have the identity of their number: this one's is in the information page.
    let target = 0xFEE0_0000 | u64::from(context.info().core_ids[0]) << 12;
    edu::send_to(target as u32, u32::from(VECTOR));
    rest(context);
    println!("porter: {} interrupts by its registers", CAME.load(Relaxed));
    held.words(0).iter().for_each(|to| to.store(u64::from(VECTOR), Release));
    let _ = held.carry(context, false, None);
    edu::forge(target);
    while edu::busy() {
        rest(context);
    }
    println!("porter: {} interrupts by a forged write", CAME.load(Relaxed));
}

fn judge(context: Context, rounds: u64) -> u32 {
    let Some(count) = window::channel(context, "done").and_then(|done| done.words().first()) else {
        println!("judge: no channel");
        return 2;
    };
    let (mut last, mut at, mut longest) = (0, time::counter(), 0);
    while last < rounds {
        time::sleep(LOOK_NS);
        let now = count.load(Acquire);
        if now != last {
            longest = longest.max(time::counter().wrapping_sub(at));
            (last, at) = (now, time::counter());
        }
    }
    println!("judge: {last} pages, at most {} ms for one", longest / time::ticks(1_000_000));
    0
}

fn guest(context: Context) -> u32 {
    if let Some(rounds) = context.arg_u64("rounds") {
        return judge(context, rounds);
    }
    let Some(role) = Role::find(context, "porter") else {
        println!("porter: it can have no role");
        return 2;
    };
    let life = context.incarnation();
    let plan = Plan { way: context.arg("way"), life };
    let asked = context.arg("early");
    println!("porter: life {life}");
    let mut held: Option<Held> = None;
    // Its timer runs from then on.
    rest(context);
    hypercall::ready();
    loop {
        rest(context);
        let Some(epoch) = role.epoch() else {
            if let Some(what) = asked.filter(|what| !matches!(*what, "dma" | "message")) {
                early(what);
                return 0;
            }
            continue;
        };
        if held.is_none() {
            held = Held::open(context, epoch);
        }
        let Some(held) = &mut held else { return 3 };
        match asked {
            Some("dma") => {
                beyond(context, held);
                return 0;
            }
            Some("message") => {
                message(context, held);
                return 0;
            }
            _ => {}
        }
        if let Err(code) = held.round(context, plan) {
            return code;
        }
    }
}
