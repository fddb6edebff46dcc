//! Memory: the information page, RAM after a launch, shared windows.

use crate::{Wrong, ensure};
use bulkhead_sdk::layout::{PAGE, info, map};
use bulkhead_sdk::{Context, window};
use core::sync::atomic::{AtomicU64, Ordering};

/// Initialised data, which a restart must bring back.
static PRISTINE: AtomicU64 = AtomicU64::new(0x5EED);
/// Bytes at the end of RAM that are looked at and spoiled.
const TAIL: u64 = 1 << 20;

/// The information page makes sense.
pub fn info(context: Context) -> Result<(), Wrong> {
    let info = context.info();
    ensure(info.magic == info::MAGIC, "magic", info.magic)?;
    ensure(info.version == info::VERSION, "version", info.version.into())?;
    ensure(info.memory >= 2 * TAIL && info.memory.is_multiple_of(PAGE), "memory", info.memory)?;
    ensure((1..=16).contains(&info.cores), "cores", info.cores.into())?;
    ensure(!context.name().is_empty(), "no name", 0)?;
    for hz in [info.clock.hz, info.clock.timer_hz] {
        ensure((1_000_000..20_000_000_000).contains(&hz), "frequency", hz)?;
    }
    Ok(())
}

/// Initialised data is as it was linked.
pub fn data_is_pristine(_: Context) -> Result<(), Wrong> {
    let found = PRISTINE.load(Ordering::Relaxed);
    ensure(found == 0x5EED, "data was not restored", found)
}

/// The end of RAM below 4 GiB as words.
fn tail(context: Context) -> &'static [AtomicU64] {
    let end = context.info().memory.min(map::GUEST_LOW_END);
    // SAFETY: RAM of this sandbox beyond everything that the program or the
    // launch put there (`info` has checked the size), used here only.
    unsafe { core::slice::from_raw_parts((end - TAIL) as *const AtomicU64, TAIL as usize / 8) }
}

/// RAM that is still unused is zero.
pub fn ram_is_zeroed(context: Context) -> Result<(), Wrong> {
    let dirty = tail(context).iter().find(|word| word.load(Ordering::Relaxed) != 0);
    ensure(dirty.is_none(), "RAM is not zero", dirty.map_or(0, |word| word.as_ptr() as u64))
}

/// Leaves traces that the next life must not find.
pub fn spoil(context: Context) {
    PRISTINE.store(0xBAD, Ordering::Relaxed);
    for word in tail(context) {
        word.store(u64::MAX, Ordering::Relaxed);
    }
}

/// A channel holds zeros before the first write to it, whatever was there before the boot.
pub fn channels_are_zeroed(context: Context) -> Result<(), Wrong> {
    if context.arg("zeros").is_none() || context.incarnation() > 0 {
        return Ok(());
    }
    let channels = || window::all(context).filter(|w| !w.report);
    ensure(channels().count() > 0, "no channel", 0)?;
    let mut words = channels().flat_map(|w| w.words());
    let dirty = words.find(|word| word.load(Ordering::Relaxed) != 0);
    ensure(dirty.is_none(), "a channel is not zero", dirty.map_or(0, |word| word.as_ptr() as u64))
}

/// Windows lie where they should and can be read; writable ones keep written values.
pub fn windows(context: Context) -> Result<(), Wrong> {
    for w in window::all(context) {
        let base = if w.report { map::REPORTS_GPA } else { map::CHANNELS_GPA };
        let inside = w.gpa >= base && w.gpa + w.size <= map::CHANNELS_END;
        ensure(inside && w.size >= PAGE, "window", w.gpa)?;
        let words = w.words();
        let last = &words[words.len() - 1];
        let found = last.load(Ordering::Relaxed);
        if w.writable {
            last.store(0x77, Ordering::Relaxed);
            ensure(last.load(Ordering::Relaxed) == 0x77, "window forgets", w.gpa)?;
            last.store(found, Ordering::Relaxed);
        }
    }
    Ok(())
}
