//! Attacks on PCI's configuration space, by memory (ECAM) and by ports, and on
//! MSI-X tables.

use crate::aim::Aim;
use crate::edu::{self, EDU, VECTOR};
use crate::expect::Got;
use crate::mov::put;
use bulkhead_sdk::fault::catch;
use bulkhead_sdk::pci::Function;
use bulkhead_sdk::{Moved, apic, cpu, interrupt, time};
use core::arch::asm;

/// The own virtio-rng, 00:09.1.
pub const RNG: Function = Function(0x49);
/// The sandbox's view of 00:09.0, which is not its own.
pub const PLACEHOLDER: Function = Function(0x48);
/// The victim's disk, 00:03.0.
pub const FOREIGN: Function = Function(0x18);
/// A disk without an owner, 00:07.0.
pub const NOBODYS: Function = Function(0x38);
/// The host bridge, 00:00.0.
pub const HOST: Function = Function(0x00);
/// The IOMMU, 00:01.0.
pub const IOMMU: Function = Function(0x08);
/// The bridge to ISA, 00:1f.0.
pub const ISA: Function = Function(0xF8);
/// Nothing, 00:1e.0.
pub const EMPTY: Function = Function(0xF0);
/// On a bus that the sandbox does not see.
pub const FAR: Function = Function(0x200);
/// The last one.
pub const LAST: Function = Function(0xFFFF);
/// The port above the own network card, 00:02.0.
pub const PORT: Function = Function(0x10);
/// The own network card behind it, 01:00.0.
pub const NETWORK: Function = Function(0x100);
/// Its first BAR, by the machine description.
pub const NETWORK_REGISTERS: u64 = 0xFE80_0000;
/// The MSI-X table of [`RNG`], by the machine description.
pub const TABLE: u64 = 0xFEB0_6000;

/// Address of a register.
#[must_use]
pub const fn ecam(function: Function, offset: u64) -> u64 {
    function.page() + offset
}

fn get(at: u64) -> Got {
    // SAFETY: an attack on device registers, which hold nothing of this program's.
    unsafe { catch(|| u64::from(u32::load(at & !3))) }
}

/// Writes `BYTES` bytes, and returns the value that is read there afterwards.
pub fn store_and_read<const BYTES: u8, const AT: u64, const VALUE: u64>(_: &Aim) -> Got {
    put(BYTES, AT, VALUE)?;
    get(AT)
}

/// Writes `BYTES` bytes, and returns the bits that have changed: there should be none.
pub fn changed<const BYTES: u8, const AT: u64, const VALUE: u64>(_: &Aim) -> Got {
    let before = get(AT)?;
    put(BYTES, AT, VALUE)?;
    Ok(get(AT)? ^ before)
}

/// Reads `edu`'s name for itself after its BAR was written and read back.
pub fn still_there<const VALUE: u64>(_: &Aim) -> Got {
    EDU.enable();
    put(4, ecam(EDU, 0x10), VALUE)?;
    get(ecam(EDU, 0x10))?;
    get(edu::REGISTERS)
}

/// Writes all ones to the command register, and returns the bits that stay.
pub fn all_commands(_: &Aim) -> Got {
    put(2, ecam(EDU, 4), 0xFFFF)?;
    Ok(get(ecam(EDU, 4))? & 0xFFFF)
}

/// Takes `edu`'s memory out of use, as far as its command register lets it, and returns its first register.
pub fn decode_off(_: &Aim) -> Got {
    EDU.enable();
    put(2, ecam(EDU, 4), 0)?;
    get(edu::REGISTERS)
}

/// Lets `edu` raise its line, which may be others', too: the command register then.
pub fn line_on(_: &Aim) -> Got {
    put(2, ecam(EDU, 4), 3)?;
    Ok(get(ecam(EDU, 4))? & 0xFFFF)
}

/// Writes all ones to the error reports of the own network card, then takes its memory out of use. Returns the reports
/// that are on, and whether its first register still answers.
pub fn reports_on(_: &Aim) -> Got {
    const COMMAND: u64 = ecam(NETWORK, 4);
    const CONTROL: u64 = ecam(NETWORK, 0xE0 + 8);
    put(2, COMMAND, 0xFFFF)?;
    put(2, CONTROL, 0xFFFF)?;
    let on = get(COMMAND)? & 0x140 | get(CONTROL)? & 0xF;
    put(2, COMMAND, 0)?;
    let silent = get(NETWORK_REGISTERS)? == 0xFFFF_FFFF;
    Ok(on | u64::from(silent) << 32)
}

fn select(function: u16, offset: u8) {
    let address = 1 << 31 | u32::from(function) << 8 | u32::from(offset & 0xFC);
    // SAFETY: the monitor's copy of the address register.
    unsafe { cpu::outl(0xCF8, address) }
}

/// Reads a register by ports.
pub fn port_load<const FUNCTION: u16, const OFFSET: u8>(_: &Aim) -> Got {
    select(FUNCTION, OFFSET);
    // SAFETY: as for memory.
    unsafe { catch(|| u64::from(cpu::inl(0xCFC))) }
}

/// Writes one by ports.
pub fn port_store<const FUNCTION: u16, const OFFSET: u8, const VALUE: u32>(_: &Aim) -> Got {
    select(FUNCTION, OFFSET);
    // SAFETY: as for memory.
    unsafe { catch(|| cpu::outl(0xCFC, VALUE)) }.map(|()| 0)
}

/// Reads 4 bytes from a port of the window, with `edu`'s first register selected.
pub fn window_dword<const PORT: u16>(_: &Aim) -> Got {
    select(EDU.0, 0);
    // SAFETY: as for memory.
    unsafe { catch(|| u64::from(cpu::inl(PORT))) }
}

/// Writes 2 bytes to a port of the window.
pub fn window_word<const PORT: u16>(_: &Aim) -> Got {
    select(EDU.0, 4);
    // SAFETY: as for memory.
    unsafe { catch(|| asm!("out dx, ax", in("dx") PORT, in("ax") 7u16)) }.map(|()| 0)
}

/// Reads the window without the enable bit.
pub fn not_enabled(_: &Aim) -> Got {
    // SAFETY: configuration space by ports, which the monitor mediates.
    unsafe {
        cpu::outl(0xCF8, u32::from(FOREIGN.0) << 8);
        catch(|| u64::from(cpu::inl(0xCFC)))
    }
}

/// A string instruction from the window.
pub fn window_string(_: &Aim) -> Got {
    let mut words = [0u32; 4];
    let first = words.as_mut_ptr();
    select(EDU.0, 0);
    // SAFETY: writes at most the four words.
    unsafe {
        catch(|| {
            asm!("rep insd", in("dx") 0xCFCu16,
                inout("rdi") first => _, inout("rcx") 4u64 => _);
        })
    }
    .map(|()| u64::from(words[0]))
}

/// Offset of `edu`'s MSI capability, which is 64 bits wide.
pub const MSI: u64 = 0x40;
const ENABLE: u64 = 1 << 16;

/// Gives `edu` a message by address bits and data, switches its MSI on, and raises it.
pub fn message(core: u32, address: u32, data: u32) -> Got {
    let address = 0xFEE0_0000 | u64::from(core) << 12 | u64::from(address);
    raw_message(address, 0, data)
}

fn raw_message(address: u64, upper: u64, data: u32) -> Got {
    EDU.enable();
    put(4, ecam(EDU, MSI + 4), address)?;
    put(4, ecam(EDU, MSI + 8), upper)?;
    put(4, ecam(EDU, MSI + 12), u64::from(data))?;
    put(4, ecam(EDU, MSI), ENABLE)?;
    edu::raise();
    time::sleep(1_000_000);
    Ok(0)
}

/// To the foreign core.
pub fn msi_foreign(aim: &Aim) -> Got {
    message(aim.foreign, 0, u32::from(VECTOR))
}

/// To all cores.
pub fn msi_broadcast(_: &Aim) -> Got {
    message(0xFF, 0, u32::from(VECTOR))
}

/// To the own core, with bits of the address and of the data.
pub fn msi_own<const ADDRESS: u32, const DATA: u32>(_: &Aim) -> Got {
    message(apic::id(), ADDRESS, DATA)
}

/// Elsewhere: to memory that is not the window of messages.
pub fn msi_elsewhere<const ADDRESS: u64, const UPPER: u64>(_: &Aim) -> Got {
    raw_message(ADDRESS, UPPER, u32::from(VECTOR))
}

/// A good one, and then a bad register while it is on.
pub fn msi_then<const OFFSET: u64, const VALUE: u64>(_: &Aim) -> Got {
    interrupt::set(VECTOR, |_, _| {});
    message(apic::id(), 0, u32::from(VECTOR))?;
    put(4, ecam(EDU, MSI + OFFSET), VALUE)?;
    edu::raise();
    time::sleep(1_000_000);
    Ok(0)
}

/// All vectors that there are, one after the other: how many are granted.
pub fn msi_all_vectors(_: &Aim) -> Got {
    for vector in 16..=0xFFu64 {
        put(4, ecam(EDU, MSI + 4), window(apic::id()))?;
        put(4, ecam(EDU, MSI + 12), vector)?;
        put(4, ecam(EDU, MSI), ENABLE)?;
    }
    Ok(0x100 - 16)
}

/// A good one, and the destination changed while it is on.
pub fn msi_redirected(aim: &Aim) -> Got {
    interrupt::set(VECTOR, |_, _| {});
    message(apic::id(), 0, u32::from(VECTOR))?;
    put(4, ecam(EDU, MSI + 4), window(aim.foreign))
}

/// Several messages at once: how many the control register then has.
pub fn msi_several(_: &Aim) -> Got {
    put(2, ecam(EDU, MSI + 2), 0x50)?;
    Ok(get(ecam(EDU, MSI))? >> 20 & 7)
}

/// Writes the first entry of the own MSI-X table and opens it.
fn entry(address: u64, upper: u64, data: u64) -> Got {
    RNG.enable();
    put(4, TABLE, address)?;
    put(4, TABLE + 4, upper)?;
    put(4, TABLE + 8, data)?;
    put(4, TABLE + 12, 0)
}

fn window(core: u32) -> u64 {
    0xFEE0_0000 | u64::from(core) << 12
}

/// To the foreign core.
pub fn msix_foreign(aim: &Aim) -> Got {
    entry(window(aim.foreign), 0, u64::from(VECTOR))
}

/// To the own core, with bits of the address, upper half and data.
pub fn msix_own<const ADDRESS: u32, const UPPER: u64, const DATA: u64>(_: &Aim) -> Got {
    entry(window(apic::id()) | u64::from(ADDRESS), UPPER, DATA)
}

/// To memory.
pub fn msix_elsewhere<const ADDRESS: u64>(_: &Aim) -> Got {
    entry(ADDRESS, 0, u64::from(VECTOR))
}

/// To the foreign core, by writes of 64 bits.
pub fn msix_by_quads(aim: &Aim) -> Got {
    RNG.enable();
    put(8, TABLE, window(aim.foreign))?;
    put(8, TABLE + 8, u64::from(VECTOR))
}

/// A good one, and the destination changed while it is open.
pub fn msix_redirected(aim: &Aim) -> Got {
    entry(window(apic::id()), 0, u64::from(VECTOR))?;
    put(4, TABLE, window(aim.foreign))
}
