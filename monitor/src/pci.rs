//! PCI as the sandbox sees it: [`bulkhead_pci`] decides, this reaches the hardware.
//!
//! The physical configuration space is reached by the pages that the host mapped
//! and by nothing else, so that no monitor waits for another one's use of ports
//! 0xCF8 and 0xCFC.

use crate::core::{alone, config, shared_of, slice};
use crate::{enforced, ioapic, mail};
use ::core::arch::asm;
use ::core::ptr::{read_volatile, write_volatile};
use ::core::sync::atomic::{AtomicU32, Ordering};
use bulkhead_cpu_x86::rdtsc;
use bulkhead_pci::{Denied, Hardware, Rule};
use bulkhead_resident::map::{ECAM_GPA, ECAM_SIZE, MMIO_VA, SHADOW_VA};
use bulkhead_resident::monitor::Clock;
use bulkhead_resident::pci::{Function, Register, Reset, end};
use bulkhead_resident_x86::icr;

/// The functions that the sandbox sees.
fn functions() -> &'static [Function] {
    slice(config().functions)
}

/// Whether a guest-physical address is one that [`access`] answers for.
pub fn answers(address: u64) -> bool {
    !functions().is_empty() && (in_space(address) || trapped(address).is_some())
}

fn in_space(address: u64) -> bool {
    address.wrapping_sub(ECAM_GPA) < ECAM_SIZE
}

fn trapped(address: u64) -> Option<&'static Function> {
    functions().iter().find(|f| address.wrapping_sub(f.trap) < f.trap_len)
}

/// Whether an address is a channel's doorbell.
pub fn rings(address: u64) -> bool {
    let bell = |f: &Function| f.bell != 0 && address == f.trap + end::DOORBELL;
    functions().iter().any(bell)
}

/// A memory access of `size` bytes at an address that [`answers`]; a write of the
/// lowest bytes of `write`. `None`: this core's turn has not come, nothing is done.
pub fn access(address: u64, size: u8, write: Option<u64>) -> Option<Result<u64, Denied>> {
    if in_space(address) {
        let offset = address - ECAM_GPA;
        let write = write.map(|value| value as u32);
        let result = configure((offset >> 12) as u32, offset as u16 & 0xFFF, size, write)?;
        return Some(result.map(u64::from));
    }
    let Some(function) = trapped(address) else { return Some(Err(Denied)) };
    alone(|| bulkhead_pci::table(&Pci, function, address, size, write))
}

/// A configuration access. Of a function that is not there a read gives all ones. `None` as for [`access`].
fn configure(bdf: u32, offset: u16, size: u8, write: Option<u32>) -> Option<Result<u32, Denied>> {
    match functions().iter().find(|f| f.bdf == bdf) {
        Some(function) => alone(|| bulkhead_pci::config(&Pci, function, offset, size, write)),
        None if write.is_none() => Some(Ok(u32::MAX)),
        None => Some(Err(Denied)),
    }
}

/// The address register of configuration mechanism #1 (PCI 3.0, 3.2.2.3.2).
pub const ADDRESS_PORT: u32 = 0xCF8;
/// The first port of its data window.
pub const DATA_PORT: u32 = 0xCFC;

/// Whether an access to a port of `size` bytes is one that [`port`] answers for.
pub fn answers_port(port: u32, size: u8) -> bool {
    let known = port == ADDRESS_PORT && size == 4 || port & !3 == DATA_PORT;
    known && config().config_ports != 0 && !functions().is_empty()
}

/// A port access that [`answers_port`]. With a denial comes the address that the
/// same access by memory would have. `None` as for [`access`].
pub fn port(port: u32, size: u8, write: Option<u32>) -> Option<Result<u32, u64>> {
    const ENABLE: u32 = 1 << 31;
    let register = &shared_of(0).pci_address;
    let latched = register.load(Ordering::Relaxed);
    if port == ADDRESS_PORT {
        if let Some(value) = write {
            register.store(value, Ordering::Relaxed);
        }
        return Some(Ok(latched));
    }
    if latched & ENABLE == 0 {
        return Some(Ok(u32::MAX));
    }
    let (bdf, offset) = (latched >> 8 & 0xFFFF, (latched & 0xFC | port & 3) as u16);
    let denied = |Denied| ECAM_GPA + u64::from(bdf << 12) + u64::from(offset);
    Some(configure(bdf, offset, size, write)?.map_err(denied))
}

/// Stops all own functions: no DMA, no interrupt, nothing left of their state. The
/// sandbox's other cores are parked. The error is a register of one that goes on.
pub fn quiet() -> Result<(), u64> {
    let functions = if enforced("device-quiet") { functions() } else { &[] };
    let steps = |f: &'static Function| (f, slice::<Reset>(f.resets));
    bulkhead_pci::stop_all(&Pci, functions.iter().map(steps))
}

/// An entry of the guest's table of lines has changed: says it for each channel's end on that line; by the holder of
/// the lock. What it may send was looked at before, so nothing is denied here.
pub fn aim(line: u32) {
    for function in functions().iter().filter(|f| f.line == line) {
        let _ = bulkhead_pci::aim(&Pci, function);
    }
}

/// The way to the hardware.
struct Pci;

impl Hardware for Pci {
    fn registers(&self, function: &Function) -> &[Register] {
        slice(function.registers)
    }

    fn config(&self, function: &Function, offset: u16) -> u32 {
        let at = function.config_va + u64::from(offset & 0xFFC);
        let value;
        // SAFETY: a register in the function's configuration page, which the host
        // maps. By EAX, as AMD's processors want it (BKDG, MMIO configuration).
        unsafe { asm!("mov eax, [{}]", in(reg) at, out("eax") value, options(nostack, readonly)) };
        value
    }

    fn set_config(&self, function: &Function, offset: u16, value: u32) {
        let at = function.config_va + u64::from(offset & 0xFFC);
        // SAFETY: as above; only functions of the sandbox's own have registers
        // that are written, and their page is mapped writable.
        unsafe { asm!("mov [{}], eax", in(reg) at, in("eax") value, options(nostack)) };
    }

    fn shadow(&self, word: u32) -> u32 {
        shadow(word).load(Ordering::Relaxed)
    }

    fn set_shadow(&self, word: u32, value: u32) {
        shadow(word).store(value, Ordering::Relaxed);
    }

    fn wait(&self, milliseconds: u32, done: impl Fn() -> bool) -> bool {
        // SAFETY: the host maps the page; the boot code was done with it before any
        // guest started.
        let clock = unsafe { &*(config().clock_va as *const Clock) };
        let (begin, ticks) = (rdtsc(), clock.tsc_hz / 1000 * u64::from(milliseconds));
        while !done() {
            if rdtsc().wrapping_sub(begin) >= ticks {
                return false;
            }
            ::core::hint::spin_loop();
        }
        true
    }

    fn page(&self, address: u64, size: u8) -> u64 {
        let at = MMIO_VA + address;
        // SAFETY: aligned, in a trapped page or one with a register that resets the
        // function; the host maps both there, writable.
        unsafe {
            match size {
                1 => u64::from(read_volatile(at as *const u8)),
                2 => u64::from(read_volatile(at as *const u16)),
                4 => u64::from(read_volatile(at as *const u32)),
                _ => read_volatile(at as *const u64),
            }
        }
    }

    fn set_page(&self, address: u64, size: u8, value: u64) {
        let at = MMIO_VA + address;
        // SAFETY: as above.
        unsafe {
            match size {
                1 => write_volatile(at as *mut u8, value as u8),
                2 => write_volatile(at as *mut u16, value as u16),
                4 => write_volatile(at as *mut u32, value as u32),
                _ => write_volatile(at as *mut u64, value),
            }
        }
    }

    fn owns_core(&self, id: u32) -> bool {
        icr::contains(&config().own, id) || !enforced("message-core")
    }

    fn remap(&self, function: &Function, slot: usize) -> Option<u32> {
        remap(function, slot).map(|entry| entry.load(Ordering::Relaxed))
    }

    fn set_remap(&self, function: &Function, slot: usize, entry: u32) -> bool {
        remap(function, slot).is_some_and(|word| {
            word.compare_exchange(0, entry, Ordering::Release, Ordering::Relaxed).is_ok()
        })
    }

    fn ring(&self, bell: u32) {
        mail::ring_bell(bell);
    }

    fn line(&self, line: u32) -> u64 {
        ioapic::sends(line)
    }

    fn aim(&self, word: usize, icr: u64) {
        mail::aim(word, icr);
    }

    #[inline(always)]
    fn holds(&self, rule: Rule) -> bool {
        match rule {
            Rule::Form => enforced("config-form"),
            Rule::Unnamed => enforced("config-unnamed"),
            Rule::Fixed => enforced("bridge-fixed"),
            Rule::Message => enforced("message-form"),
            Rule::Vector => enforced("message-vector"),
            Rule::Table => enforced("msix-form"),
        }
    }
}

/// A word of shadow.
fn shadow(word: u32) -> &'static AtomicU32 {
    // SAFETY: the host maps as many words as it numbered, and numbers come from
    // what it baked.
    unsafe { &*((SHADOW_VA + u64::from(word) * 4) as *const AtomicU32) }
}

/// An entry of a function's interrupt remapping table.
fn remap(function: &Function, slot: usize) -> Option<&'static AtomicU32> {
    if function.remap_va == 0 {
        return None;
    }
    // SAFETY: the host maps a page there; `slot` is below `SLOTS`.
    Some(unsafe { &*((function.remap_va + slot as u64 * 4) as *const AtomicU32) })
}
