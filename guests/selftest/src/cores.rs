//! The sandbox's own cores: they start, and interrupts pass between them.

use crate::{Wrong, ensure};
use bulkhead_sdk::{Context, apic, cores, interrupt, time};
use core::sync::atomic::{AtomicU64, Ordering};

const PING: u8 = 0x42;
const PONG: u8 = 0x43;
const SELF: u8 = 0x44;
const MILLISECOND: u64 = 1_000_000;

static PINGS: AtomicU64 = AtomicU64::new(0);
static PONGS: AtomicU64 = AtomicU64::new(0);
static SELVES: AtomicU64 = AtomicU64::new(0);
/// x2APIC IDs of the cores that came up, by index, plus 1.
static UP: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
/// x2APIC ID of the first core.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Sleeps until a counter has reached a value; false after 100 ms.
fn reached(counter: &AtomicU64, value: u64) -> bool {
    for _ in 0..100 {
        if counter.load(Ordering::Acquire) >= value {
            return true;
        }
        time::sleep(MILLISECOND);
    }
    false
}

/// An interrupt to oneself arrives.
pub fn self_ipi(_: Context) -> Result<(), Wrong> {
    interrupt::set(SELF, |_, _| {
        SELVES.fetch_add(1, Ordering::Release);
    });
    apic::ipi_self(SELF);
    apic::ipi(apic::id(), SELF);
    // Both are one vector: the second is merged with the first if that is pending.
    ensure(reached(&SELVES, 1), "did not arrive", 0)
}

/// Runs on each further core: notes its index, then only serves interrupts.
fn other(_: Context, index: usize) {
    UP[index % UP.len()].store(u64::from(apic::id()) + 1, Ordering::Release);
}

/// Every further core starts, as itself, and starts again.
pub fn start(context: Context) -> Result<(), Wrong> {
    let info = context.info();
    for round in 0..2 {
        for (index, up) in UP.iter().enumerate().take(info.cores as usize).skip(1) {
            up.store(0, Ordering::Release);
            ensure(
                cores::start(context, index, other),
                "core did not start",
                index as u64 | round << 32,
            )?;
            ensure(reached(up, 1), "core is silent", index as u64)?;
            let id = up.load(Ordering::Acquire) - 1;
            ensure(id == u64::from(info.core_ids[index]), "not that core", id)?;
        }
    }
    ensure(!cores::start(context, info.cores as usize, other), "a core too many", 0)?;
    ensure(cores::index() == 0, "the first core is lost", cores::index() as u64)
}

/// An interrupt to each further core comes back as another one.
pub fn ping(context: Context) -> Result<(), Wrong> {
    let info = context.info();
    FIRST.store(info.core_ids[0].into(), Ordering::Release);
    interrupt::set(PING, |_, _| {
        PINGS.fetch_add(1, Ordering::Release);
        apic::ipi(FIRST.load(Ordering::Acquire) as u32, PONG);
    });
    interrupt::set(PONG, |_, _| {
        PONGS.fetch_add(1, Ordering::Release);
    });
    for (n, id) in info.core_ids[1..(info.cores as usize).min(16)].iter().enumerate() {
        for round in 0..10 {
            let expected = n as u64 * 10 + round + 1;
            apic::ipi(*id, PING);
            ensure(reached(&PONGS, expected), "no answer from", u64::from(*id))?;
        }
    }
    let (pings, pongs) = (PINGS.load(Ordering::Acquire), PONGS.load(Ordering::Acquire));
    ensure(pings == pongs, "pings and pongs differ", pings << 32 | pongs)
}
