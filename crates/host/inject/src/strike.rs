//! A fault is struck: the machine goes on to the instant, and something in it is changed while it stands.

use crate::stand::{At, Came, Stop};
use crate::{Error, Fault, Kind, Result, Stand, System, device, other};
use bulkhead_layout::map::{CORE_CONTROL, CORE_STRIDE, CORES_VA};
use bulkhead_plan::{Channel, Guest};
use bulkhead_random::SplitMix64;

const PAGE: u64 = 4096;
/// Pages that are tried for one that is not all zero.
const TRIES: usize = 256;
/// Names of the general registers, in the plugin's order.
const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
/// JMP to itself.
const STAY: [u8; 2] = [0xEB, 0xFE];
/// Longest delay of an interrupt, ticks of the timer.
const LATEST: u64 = 4_000_000;
/// Fields of the control block that the processor loads from it (APM volume 2, appendix B).
const BLOCK: u64 = 0x698;

/// The place of a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Kind of the place, for tables.
    pub what: String,
    /// The bit, or what else was done.
    pub detail: String,
}

pub fn place(what: impl Into<String>, detail: impl Into<String>) -> Place {
    Place { what: what.into(), detail: detail.into() }
}

/// Lets the machine go on to a fault's instant and strikes. `None` instead of a place: the machine does not come there.
///
/// # Errors
/// The emulator; a system without a place for it.
pub fn strike(
    system: &System,
    stand: &mut Stand,
    fault: &Fault,
    limit: u64,
) -> Result<(Came, Option<Place>)> {
    let sandbox = system.struck();
    let core = sandbox.cores[fault.core];
    // One piece of memory holds the text of a guest below 4 GiB.
    let ram = sandbox.ram.first().ok_or_else(|| Error::Other("no memory".into()))?;
    let own = (ram.hpa, ram.hpa + ram.len);
    let mut random = fault.random;
    let stop = match fault.kind {
        Kind::Register | Kind::PageTable | Kind::CoreStops | Kind::InterruptDoubled => {
            let latest = fault.at + limit;
            let stop = Stop { core: Some(core), text: own, latest, ..Stop::any(fault.at) };
            within(system, stop, &mut random)
        }
        _ => Stop::any(fault.at),
    };
    let came = stand.go(stop)?;
    let Some(at) = came.at().filter(|at| stop.is_met(*at)) else { return Ok((came, None)) };
    let stop = Stop { skip: 0, ..stop };
    let place = match fault.kind {
        Kind::Register => register(stand, core, &mut random)?,
        Kind::Memory => memory(system, stand, &mut random)?,
        Kind::PageTable => table(system, stand, at, &mut random)?,
        Kind::Text => text(stand, own, &mut random)?,
        Kind::Channel => channel(system, stand, &mut random)?,
        Kind::InterruptLost => {
            stand.spoil_timer(core, None)?;
            place("timer", format!("core {core}"))
        }
        Kind::InterruptLate => {
            let late = 1 + random.below(LATEST);
            stand.spoil_timer(core, Some(late))?;
            place("timer", format!("core {core}, {late} ticks late"))
        }
        Kind::InterruptDoubled => again(system, stand, fault.core, &mut random)?,
        Kind::DeviceNonsense | Kind::DeviceSilent => {
            let nonsense = fault.kind == Kind::DeviceNonsense;
            device::answers(system, stand, core, nonsense, &mut random)?
        }
        Kind::DeviceDma => device::writes(system, stand, &mut random)?,
        Kind::CoreStops => return stay(stand, stop, at, limit),
        Kind::MonitorData => monitor(system, stand, &mut random)?,
        Kind::ControlBlock => block(system, stand, fault.core, &mut random)?,
    };
    Ok((came, Some(Place { what: level(&stop, place.what), ..place })))
}

/// A kernel's core sleeps most of the time, and the first instruction behind that is the kernel's. So the level is
/// drawn, and a part of what runs there goes by: programs are struck as often as the kernel.
fn within(system: &System, stop: Stop, random: &mut SplitMix64) -> Stop {
    /// More than all programs together have in a short time.
    const MOST: u64 = 17;
    const USER: u8 = 3;
    if !matches!(system.struck().guest, Guest::Kernel(_)) {
        return stop;
    }
    let ring = if random.below(2) == 0 { 0 } else { USER };
    let most = 1 << random.below(MOST);
    Stop { ring: Some(ring), skip: random.below(most), ..stop }
}

/// Tells if instructions or tables of a kernel are struck, or of one of its programs.
fn level(stop: &Stop, what: String) -> String {
    match stop.ring {
        None => what,
        Some(0) => format!("{what}, kernel"),
        Some(_) => format!("{what}, program"),
    }
}

fn register(stand: &mut Stand, core: usize, random: &mut SplitMix64) -> Result<Place> {
    let (number, bit) = (random.index(REGISTERS.len()), random.below(64));
    stand.flip_register(core, number, 1 << bit)?;
    let what = if REGISTERS[number] == "rsp" { "stack pointer" } else { "other registers" };
    Ok(place(what, format!("{} of core {core}, bit {bit}", REGISTERS[number])))
}

/// Flips a bit of a byte and tells where.
fn flip(stand: &mut Stand, what: &str, pa: u64, random: &mut SplitMix64) -> Result<Place> {
    let bit = random.below(8) as u8;
    stand.flip(pa, bit)?;
    Ok(place(what, format!("byte {pa:#x}, bit {bit}")))
}

/// One of many pages, if possible one that is not all zero.
fn used(
    stand: &Stand,
    random: &mut SplitMix64,
    mut page: impl FnMut(&mut SplitMix64) -> u64,
) -> Result<u64> {
    let mut chosen = page(random);
    for _ in 0..TRIES {
        let mut bytes = [0; PAGE as usize];
        stand.ram().read(chosen, &mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            break;
        }
        chosen = page(random);
    }
    Ok(chosen)
}

fn memory(system: &System, stand: &mut Stand, random: &mut SplitMix64) -> Result<Place> {
    let pieces = &system.struck().ram;
    let pages: u64 = pieces.iter().map(|piece| piece.len / PAGE).sum();
    let chosen = used(stand, random, |random| {
        let mut nth = random.below(pages);
        for piece in pieces {
            if nth < piece.len / PAGE {
                return piece.hpa + nth * PAGE;
            }
            nth -= piece.len / PAGE;
        }
        0
    })?;
    let executed = stand.executed(chosen, chosen + PAGE)?;
    let what = if executed.is_empty() { "data" } else { "page with text" };
    let at = chosen + random.below(PAGE);
    flip(stand, what, at, random)
}

fn text(stand: &mut Stand, own: (u64, u64), random: &mut SplitMix64) -> Result<Place> {
    let pages = stand.executed(own.0, own.1)?;
    let Some(page) = pages.get(random.index(pages.len())) else {
        return other("the guest has executed nothing");
    };
    let at = page + random.below(PAGE);
    flip(stand, "page with text", at, random)
}

fn channel(system: &System, stand: &mut Stand, random: &mut SplitMix64) -> Result<Place> {
    let target = system.target;
    let own = |c: &&Channel| c.writes(target) || c.reads(target);
    let all: Vec<&Channel> = system.baked.plan.channels.iter().filter(own).collect();
    let channel = all[random.index(all.len())];
    let what =
        if channel.writes(target) { "region that it writes" } else { "region that it reads" };
    let page = used(stand, random, |random| channel.hpa + random.below(channel.len / PAGE) * PAGE)?;
    let at = page + random.below(PAGE);
    flip(stand, what, at, random)
}

/// Walks down from the root to an entry of a level that is drawn.
fn table(system: &System, stand: &mut Stand, at: At, random: &mut SplitMix64) -> Result<Place> {
    const PRESENT: u64 = 1;
    const LARGE: u64 = 1 << 7;
    const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;
    let pieces = &system.struck().ram;
    let behind = |gpa: u64| {
        let piece = pieces.iter().find(|piece| gpa.wrapping_sub(piece.gpa) < piece.len)?;
        Some(gpa - piece.gpa + piece.hpa)
    };
    let wanted = 4 - random.below(4);
    let (mut table, mut level) = (at.root & ADDRESS, 4);
    let mut above = None;
    loop {
        let Some(page) = behind(table) else { return other("page tables outside of the memory") };
        let mut present = Vec::new();
        for n in 0..PAGE / 8 {
            let entry = stand.ram().read_u64(page + n * 8)?;
            if entry & PRESENT != 0 {
                present.push((page + n * 8, entry));
            }
        }
        // A kernel has tables for mappings to come: then the entry counts that leads there.
        let Some((pa, entry)) = present.get(random.index(present.len())).copied().or(above) else {
            return other("page tables without an entry");
        };
        let down = !present.is_empty() && level > 1 && (level == 4 || entry & LARGE == 0);
        if level > wanted && down && behind(entry & ADDRESS).is_some() {
            (table, level, above) = (entry & ADDRESS, level - 1, Some((pa, entry)));
            continue;
        }
        level += u64::from(present.is_empty());
        let bit = random.below(64);
        stand.flip(pa + bit / 8, (bit % 8) as u8)?;
        return Ok(place(format!("level {level}"), format!("entry at {pa:#x}, bit {bit}")));
    }
}

/// Sends the interrupt of the timer once more; any other where the timer was not used.
fn again(system: &System, stand: &mut Stand, nth: usize, random: &mut SplitMix64) -> Result<Place> {
    let sandbox = system.struck();
    let core = sandbox.cores[nth];
    let vector = stand.timer_vector(core)?;
    let vector = vector.unwrap_or(32 + random.below(224) as u8);
    stand.interrupt(sandbox.core_ids[nth], vector)?;
    Ok(place("timer", format!("interrupt {vector:#x} of core {core}")))
}

/// A core stays at an instruction to which it comes again soon, in a loop. QEMU translates a jump to itself, and goes
/// on to execute it when memory holds the program's own bytes again. They look as ever to those that sum them up.
fn stay(stand: &mut Stand, own: Stop, at: At, limit: u64) -> Result<(Came, Option<Place>)> {
    /// Instructions in which it has to come again, so that no sweep meets the jump.
    const SOON: u64 = 500;
    let mut came = Came::At(at);
    while let Some(now) = came.at().filter(|now| own.is_met(*now) && now.number < at.number + limit)
    {
        let mut bytes = [0; STAY.len()];
        stand.ram().read(now.pa, &mut bytes)?;
        stand.write(now.pa, &STAY)?;
        came = come_again(stand, own, now, SOON)?;
        let stays = came.at().is_some_and(|last| last.pa == now.pa && last.core == now.core);
        if stays {
            stand.ram().write(now.pa, &bytes)?;
            let place =
                place(level(&own, "core".into()), format!("core {} at {:#x}", now.core, now.pa));
            return Ok((came, Some(place)));
        }
        let Some(last) = came.at() else { break };
        stand.write(now.pa, &bytes)?;
        came = stand.go(Stop { at: last.number + 1, latest: at.number + limit, ..own })?;
    }
    Ok((came, None))
}

/// Goes on until a core comes to an instruction again, and still stands there a while later. By then QEMU has
/// translated the jump in each of its ways: by itself, and for the rest of a slice.
fn come_again(stand: &mut Stand, own: Stop, at: At, soon: u64) -> Result<Came> {
    /// Instructions of all cores.
    const WHILE: u64 = 2_000;
    let text = (at.pa, at.pa + 1);
    let latest = at.number + soon;
    let stop = Stop { core: Some(at.core), text, latest, ..Stop::any(at.number + 1) };
    let came = stand.go(stop)?;
    match came.at().filter(|at| stop.is_met(*at)) {
        Some(last) => stand.go(Stop { at: last.number + WHILE, latest: u64::MAX, ..own }),
        None => Ok(came),
    }
}

fn monitor(system: &System, stand: &mut Stand, random: &mut SplitMix64) -> Result<Place> {
    const PRISTINE: &str = "pristine guest";
    let own = |owner: Option<usize>| owner == Some(system.target);
    let parts = system.baked.map.parts.iter();
    let parts: Vec<_> = parts.filter(|part| own(part.owner) && part.what != PRISTINE).collect();
    let part = parts[random.index(parts.len())];
    let page = used(stand, random, |random| part.start + random.below(part.len / PAGE) * PAGE)?;
    let at = page + random.below(PAGE);
    flip(stand, part.what, at, random)
}

fn block(system: &System, stand: &mut Stand, nth: usize, random: &mut SplitMix64) -> Result<Place> {
    let at = CORES_VA + nth as u64 * CORE_STRIDE + CORE_CONTROL;
    let regions = &system.baked.map.spaces[system.target].monitor.regions;
    let region = regions.iter().find(|region| at.wrapping_sub(region.at) < region.len);
    let Some(region) = region else { return other("no control block is mapped") };
    let at = at - region.at + region.pa + random.below(BLOCK);
    flip(stand, "control block", at, random)
}
