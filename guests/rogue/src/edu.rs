//! QEMU's `edu`, which can DMA anywhere, and attacks with it. Each DMA attack shows in its own life that the engine
//! works, so that none fails for another reason.

use crate::aim::{Aim, Place};
use crate::expect::Got;
use crate::{config, of_others};
use bulkhead_scenarios::edu::{BUFFER, COMMAND, COUNT, DESTINATION, RAISE, SOURCE, START, TO_RAM};
use bulkhead_sdk::{Moved, apic, hypercall, interrupt, pci, time};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

/// Its configuration space; 00:08.0.
pub const EDU: pci::Function = pci::Function(0x40);
/// Its registers, by the machine description.
pub const REGISTERS: u64 = 0xFEA0_0000;
/// Value of its first register.
pub const ID: u64 = 0x0100_00ED;
/// Its engine takes 100 ms.
const PATIENCE: u64 = 101_000_000;
/// Vector of its message.
pub const VECTOR: u8 = 0x70;

#[repr(C, align(4096))]
struct Page(UnsafeCell<[u64; 512]>);

// SAFETY: used by one core, by volatile accesses.
unsafe impl Sync for Page {}

static PAGE: Page = Page(UnsafeCell::new([0; 512]));

fn word(n: usize) -> *mut u64 {
    // SAFETY: within the page.
    unsafe { PAGE.0.get().cast::<u64>().add(n % 512) }
}

fn fill(value: u64) {
    // SAFETY: a word of the page; volatile, as the device writes it, too.
    (0..512).for_each(|n| unsafe { word(n).write_volatile(value) });
}

fn all(value: u64, bytes: u64) -> bool {
    // SAFETY: a word of the page; volatile, as the device writes it, too.
    (0..bytes as usize / 8).all(|n| unsafe { word(n).read_volatile() } == value)
}

fn page() -> u64 {
    word(0) as u64
}

fn register(offset: u64, value: u64) {
    // SAFETY: the device's registers; their effect on this program is the attack.
    unsafe { value.store(REGISTERS + offset) }
}

/// Starts the engine between an address and its buffer.
fn start(address: u64, bytes: u64, how: u64) {
    let to_ram = how & TO_RAM != 0;
    let (from, to) = if to_ram { (BUFFER, address) } else { (address, BUFFER) };
    register(SOURCE, from);
    register(DESTINATION, to);
    register(COUNT, bytes);
    register(COMMAND, START | how);
}

fn transfer(address: u64, bytes: u64, to_ram: bool) {
    start(address, bytes, if to_ram { TO_RAM } else { 0 });
    for _ in 0..10 {
        time::sleep(PATIENCE);
        // SAFETY: the device's registers; their effect on this program is the attack.
        if unsafe { u64::load(REGISTERS + COMMAND) } & START == 0 {
            return;
        }
    }
}

const WANTED: u64 = 0xBAD0_BAD0_BAD0_BAD0;
const OTHER: u64 = 0x600D_600D_600D_600D;
const NOTHING: u64 = 0xEEEE_EEEE_EEEE_EEEE;

/// Writes by DMA and reads back by DMA. 0: neither had an effect; 1: both; 2: the
/// engine does not work; 3: something else was read.
fn dma(target: u64, bytes: u64) -> Got {
    EDU.enable();
    fill(WANTED);
    transfer(page(), bytes, false);
    transfer(target, bytes, true);
    fill(OTHER);
    transfer(page(), bytes, false);
    transfer(target, bytes, false);
    fill(NOTHING);
    transfer(page(), bytes, true);
    // A read that is refused gives zeros, or leaves the old content.
    Ok(match () {
        () if all(OTHER, bytes) || all(0, bytes) => 0,
        () if all(WANTED, bytes) => 1,
        () if all(NOTHING, bytes) => 2,
        () => 3,
    })
}

#[repr(C, align(4096))]
struct Other(UnsafeCell<[u64; 512]>);

// SAFETY: only the device writes the page, and this program reads it by volatile accesses.
unsafe impl Sync for Other {}

static OWN: Other = Other(UnsafeCell::new([0; 512]));

/// The own RAM: the comparison for the others.
pub fn own(_: &Aim) -> Got {
    dma(OWN.0.get() as u64, 4096)
}

/// Attacks the address of the machine that an argument names.
pub fn at_argument<const N: usize>(aim: &Aim) -> Got {
    match aim.context.arg_u64(of_others::ARGUMENTS[N]) {
        Some(address) => dma(address, 64),
        None => Ok(9),
    }
}

/// An address.
pub fn at<const ADDRESS: u64>(_: &Aim) -> Got {
    dma(ADDRESS, 64)
}

/// Another sandbox's memory.
pub fn victim(aim: &Aim) -> Got {
    dma(aim.victim & !0xFFF, 4096)
}

/// The end of the own RAM and the bytes behind it.
pub fn across_the_end(aim: &Aim) -> Got {
    let end = aim.at(Place::AfterRam);
    let found = dma(end - 8, 64)?;
    // The first 8 bytes are its own.
    Ok(if found == 3 { 0 } else { found })
}

/// Writes by DMA where it may read only: 1 if it is changed, 2 if it cannot be read.
fn write_only(target: u64) -> Got {
    // SAFETY: own text, or a channel.
    let read = || unsafe { u64::load(target) };
    let before = read();
    dma(target, 64)?;
    Ok(u64::from(read() != before))
}

/// Own text.
pub fn own_text(aim: &Aim) -> Got {
    write_only(aim.at(Place::Text))
}

/// A channel that another one writes.
pub fn read_only_channel(aim: &Aim) -> Got {
    write_only(aim.at(Place::ReadOnlyChannel))
}

static ARRIVED: AtomicU64 = AtomicU64::new(0);

fn arrive(_: &mut interrupt::Frame, _: u64) {
    ARRIVED.fetch_add(1, Ordering::Relaxed);
}

fn arrived() -> u64 {
    ARRIVED.load(Ordering::Relaxed)
}

/// A message that is written by DMA: its data, to the own core or to the foreign one. `LOGICAL` sends it to all cores,
/// by a logical destination. How many interrupts came here.
fn forge(core: u32, flags: u64, data: u32) -> Got {
    interrupt::set(VECTOR, arrive);
    EDU.enable();
    fill(u64::from(data));
    transfer(page(), 8, false);
    transfer(0xFEE0_0000 | u64::from(core) << 12 | flags, 4, true);
    interrupt::enable();
    time::sleep(1_000_000);
    interrupt::disable();
    Ok(arrived())
}

/// To the own core, in a delivery mode.
pub fn forge_own<const MODE: u32>(_: &Aim) -> Got {
    forge(apic::id(), 0, MODE << 8 | u32::from(VECTOR))
}

/// To the foreign core.
pub fn forge_foreign<const MODE: u32>(aim: &Aim) -> Got {
    forge(aim.foreign, 0, MODE << 8 | u32::from(VECTOR))
}

/// Forges the IOAPIC's message of a line of others: each of the first slots of its remapping table in turn, to the
/// foreign core. How many interrupts came here; none, whatever came there.
pub fn forge_lines(aim: &Aim) -> Got {
    const FIRST: u32 = 0x120;
    for slot in FIRST..FIRST + 8 {
        forge(aim.foreign, 0, slot)?;
    }
    Ok(arrived())
}

/// To all by a logical destination, with a redirection hint.
pub fn forge_all(_: &Aim) -> Got {
    forge(0xFF, 0b1100, u32::from(VECTOR))
}

/// With a level that is asserted.
pub fn forge_level(aim: &Aim) -> Got {
    forge(aim.foreign, 0, 0xC000 | u32::from(VECTOR))
}

/// Raises the message that its MSI has.
pub fn raise() {
    // SAFETY: as in `register`.
    unsafe { 1u32.store(REGISTERS + RAISE) }
}

/// Its own message, to the own core: 1 if it comes.
pub fn own_message(_: &Aim) -> Got {
    interrupt::set(VECTOR, arrive);
    config::message(apic::id(), 0, u32::from(VECTOR))?;
    Ok(arrived())
}

/// Messages to oneself, 100,000 a second for a tenth of a second.
pub const STORM: u64 = 10_000;

/// See [`STORM`]: how many came.
pub fn storm(_: &Aim) -> Got {
    interrupt::set(VECTOR, arrive);
    config::message(apic::id(), 0, u32::from(VECTOR))?;
    let before = arrived();
    interrupt::enable();
    let begin = time::counter();
    for n in 1..=STORM {
        raise();
        let next = begin + time::ticks(n * 10_000);
        while time::counter() < next {}
    }
    interrupt::disable();
    Ok(arrived() - before)
}

/// DMA to a page of its own, and a message at its end; then a restart in the middle.
pub fn restart(_: &Aim) -> Got {
    interrupt::set(VECTOR, arrive);
    config::message(apic::id(), 0, u32::from(VECTOR))?;
    fill(WANTED);
    transfer(page(), 4096, false);
    // A message at its end.
    const RAISE_AT_END: u64 = 1 << 2;
    start(OWN.0.get() as u64, 4096, TO_RAM | RAISE_AT_END);
    hypercall::restart()
}

/// The life after that: tells if anything of it still comes: 1 memory, 2 an interrupt.
pub fn after_restart(_: &Aim) -> Got {
    for vector in interrupt::FIRST..=u8::MAX {
        // All but the timer's, the spurious one and the SDK's.
        if !matches!(vector, 0xEF | 0x81 | interrupt::SPURIOUS) {
            interrupt::set(vector, arrive);
        }
    }
    let first = OWN.0.get().cast::<u64>();
    for _ in 0..15 {
        interrupt::enable();
        time::sleep(10_000_000);
        interrupt::disable();
        // SAFETY: within the page; volatile, as the device may write it.
        if (0..512).any(|n| unsafe { first.add(n).read_volatile() } != 0) {
            return Ok(1);
        }
    }
    // SAFETY: its configuration space.
    let command = EDU.read(pci::register::COMMAND) & pci::BUS_MASTER;
    Ok(match () {
        () if arrived() != 0 => 2,
        () if command != 0 => 3,
        () => 0,
    })
}
