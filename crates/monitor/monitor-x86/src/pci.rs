//! PCI as the sandbox sees it: [`bulkhead_pci`] decides, this reaches the hardware.
//!
//! Pages that the host mapped are the only way to the physical configuration space. So no monitor waits for another
//! one's use of ports 0xCF8 and 0xCFC. A Linux that ran first and has an unconfined PCI uses these ports alone
//! ([`passes`]).

use crate::{X86, ioapic, iommu, xapic};
use bulkhead_monitor::contract::alone;
use bulkhead_monitor::{mail, role};
use bulkhead_monitor_abi::map::{ECAM_GPA, ECAM_SIZE, MMIO_VA, SHADOW_VA};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::pci::{COMMAND, Function, Register, Remapping, SLOTS, end};
use bulkhead_monitor_abi_x86::icr;
use bulkhead_pci::x86::{self, Routes};
use bulkhead_pci::{Denied, Hardware, Rule};
use core::sync::atomic::{AtomicU32, Ordering};

/// Number of the latch of the address port.
const LATCH: usize = 0;
/// The address register of configuration mechanism #1 (PCI 3.0, 3.2.2.3.2).
pub const ADDRESS_PORT: u32 = 0xCF8;
/// The first port of its data window.
const DATA_PORT: u32 = 0xCFC;

/// Tells if [`access`] answers for a guest-physical address.
pub fn answers<M: X86>(m: &M, address: u64) -> bool {
    !m.functions().is_empty() && (in_space(m, address) || trapped(m, address).is_some())
}

/// Guest-physical address of the configuration space. A Linux that runs already sees it where the machine has it.
#[inline(always)]
fn space<M: X86>(m: &M) -> u64 {
    if M::has(need::RUNNING) { m.x86().ecam } else { ECAM_GPA }
}

fn in_space<M: X86>(m: &M, address: u64) -> bool {
    let len = if M::has(need::RUNNING) { m.x86().ecam_len } else { ECAM_SIZE };
    address.wrapping_sub(space(m)) < len
}

fn trapped<M: X86>(m: &M, address: u64) -> Option<&Function> {
    let here = |f: &&Function| address.wrapping_sub(f.trap) < f.trap_len;
    m.functions().iter().find(here).filter(|f| has(m, f))
}

/// Tells if the sandbox has a function that it is shown: one of a role's comes and goes with that.
#[inline(always)]
fn has<M: X86>(m: &M, function: &Function) -> bool {
    !M::has(need::ROLE)
        || !M::enforced("role-function")
        || function.role == 0
        || role::has(m, function.role - 1)
}

/// Tells if an address is a channel's doorbell.
pub fn rings<M: X86>(m: &M, address: u64) -> bool {
    let bell = |f: &Function| f.bell != 0 && address == f.trap + end::DOORBELL;
    m.functions().iter().any(bell)
}

/// Makes a memory access of `size` bytes at an address that [`answers`]; a write has the
/// lowest bytes of `write`. `None`: this core's turn has not come, nothing is done.
pub fn access<M: X86>(
    m: &M,
    address: u64,
    size: u8,
    write: Option<u64>,
) -> Option<Result<u64, Denied>> {
    if in_space(m, address) {
        let offset = address.wrapping_sub(space(m));
        let write = write.map(|value| value as u32);
        let result = configure(m, (offset >> 12) as u32, offset as u16 & 0xFFF, size, write)?;
        return Some(result.map(u64::from));
    }
    let Some(function) = trapped(m, address) else { return Some(Err(Denied)) };
    alone(m, || bulkhead_pci::table(&Pci(m), function, address, size, write))
}

/// Makes a configuration access. An absent function reads as all ones. `None` as for [`access`].
fn configure<M: X86>(
    m: &M,
    bdf: u32,
    offset: u16,
    size: u8,
    write: Option<u32>,
) -> Option<Result<u32, Denied>> {
    // The list has what this sandbox is shown, and nothing else. So other functions cannot even be named.
    match m.functions().iter().find(|f| f.bdf == bdf).filter(|f| has(m, f)) {
        // Alone: a step may take several accesses, and a reset moves BARs meanwhile.
        Some(function) => alone(m, || bulkhead_pci::config(&Pci(m), function, offset, size, write)),
        // A kernel probes for functions by reading, so that leaves no record.
        None if write.is_none() => Some(Ok(u32::MAX)),
        None => Some(Err(Denied)),
    }
}

/// Tells if [`port`] answers for an access of `size` bytes to a port.
pub fn answers_port<M: X86>(m: &M, port: u32, size: u8) -> bool {
    let known = port == ADDRESS_PORT && size == 4 || port & !3 == DATA_PORT;
    known && m.x86().config_ports != 0 && !m.functions().is_empty()
}

/// Tells if an access of `size` bytes to a port is for the machine's address register. Only a Linux that runs already
/// has that by itself.
#[inline(always)]
pub fn passes<M: X86>(m: &M, port: u32, size: u8) -> bool {
    port == ADDRESS_PORT && size == 4 && m.x86().config_ports != 0 && m.functions().is_empty()
}

/// Makes a port access that [`answers_port`]. With a denial comes the address of the
/// register in configuration space. `None` as for [`access`].
pub fn port<M: X86>(m: &M, port: u32, size: u8, write: Option<u32>) -> Option<Result<u32, u64>> {
    const ENABLE: u32 = 1 << 31;
    // One latch for the sandbox, as the machine has one: guests take turns by a lock of their own.
    let register = &m.shared(0).latches[LATCH];
    let latched = register.load(Ordering::Relaxed);
    if port == ADDRESS_PORT {
        if let Some(value) = write {
            register.store(value, Ordering::Relaxed);
        }
        return Some(Ok(latched));
    }
    // Without the enable bit the data window decodes nothing (PCI 3.0, 3.2.2.3.2).
    if latched & ENABLE == 0 {
        return Some(Ok(u32::MAX));
    }
    // Bits 1:0 of the latch are reserved. The port says which byte of the register is meant.
    let (bdf, offset) = (latched >> 8 & 0xFFFF, (latched & 0xFC | port & 3) as u16);
    let denied = |Denied| space(m).wrapping_add(u64::from(bdf << 12) + u64::from(offset));
    Some(configure(m, bdf, offset, size, write)?.map_err(denied))
}

/// Stops all own functions: no DMA, no interrupt, nothing left of their state. The
/// sandbox's other cores are parked.
///
/// # Errors
/// A register of a function that goes on.
pub fn quiet<M: X86>(m: &M) -> Result<(), u64> {
    // Before the memory is given anew: a device that goes on would write into the next life.
    let functions = if M::enforced("device-quiet") { m.functions() } else { &[] };
    // A role's function can be another sandbox' now.
    let own = functions.iter().filter(|f| has(m, f));
    bulkhead_pci::stop_all(&Pci(m), own.map(|f| (f, m.resets(f.resets))))
}

/// Switches the functions of a role on: they answer at their registers, and reach the memory of the role.
pub fn hand_over<M: X86>(m: &M, role: u32) {
    const MEMORY_AND_BUS_MASTER: u32 = 0b110;
    for function in m.functions().iter().filter(|f| f.role == role.wrapping_add(1)) {
        // A function that does not come back from its reset stays silent.
        let _ = bulkhead_pci::config(&Pci(m), function, COMMAND, 2, Some(MEMORY_AND_BUS_MASTER));
    }
}

/// Says for each channel's end on a line that the line's entry in the guest's table has changed; by the holder of
/// the lock. The entry was looked at before, so nothing is denied here.
pub fn aim<M: X86>(m: &M, line: u32) {
    for function in m.functions().iter().filter(|f| f.line == line) {
        let _ = bulkhead_pci::aim(&Pci(m), function);
    }
}

/// The way to the hardware.
struct Pci<'a, M>(&'a M);

impl<M: X86> Pci<'_, M> {
    /// Returns a word of shadow.
    fn word(&self, number: u32) -> &AtomicU32 {
        self.0.cell(SHADOW_VA + u64::from(number) * 4)
    }

    /// Returns an entry of a function's interrupt remapping table.
    fn slot(&self, function: &Function, slot: usize) -> Option<&AtomicU32> {
        match function.remapping() {
            Remapping::Table(table) => Some(self.0.cell(table + slot as u64 * 4)),
            _ => None,
        }
    }
}

impl<M: X86> Hardware for Pci<'_, M> {
    fn registers(&self, function: &Function) -> &[Register] {
        self.0.registers(function.registers)
    }

    fn config(&self, function: &Function, offset: u16) -> u32 {
        self.0.load_config(function.config_va + u64::from(offset & 0xFFC))
    }

    fn set_config(&self, function: &Function, offset: u16, value: u32) {
        self.0.store_config(function.config_va + u64::from(offset & 0xFFC), value);
    }

    fn shadow(&self, word: u32) -> u32 {
        self.word(word).load(Ordering::Relaxed)
    }

    fn set_shadow(&self, word: u32, value: u32) {
        self.word(word).store(value, Ordering::Relaxed);
    }

    fn wait(&self, milliseconds: u32, done: impl Fn() -> bool) -> bool {
        // By the clock: a count of turns would end early on a fast core, and a reset takes its time.
        let ticks = self.0.clock().hz / 1000 * u64::from(milliseconds);
        let begin = self.0.now();
        while !done() {
            if self.0.now().wrapping_sub(begin) >= ticks {
                return false;
            }
            core::hint::spin_loop();
        }
        true
    }

    fn page(&self, address: u64, size: u8) -> u64 {
        self.0.load(MMIO_VA + address, size)
    }

    fn set_page(&self, address: u64, size: u8, value: u64) {
        self.0.store(MMIO_VA + address, size, value);
    }

    fn message(&self, function: &Function, wanted: [u32; 3]) -> Result<[u32; 3], Denied> {
        // Where a role's function sends could not be changed in time.
        if M::has(need::ROLE) && function.role != 0 && M::enforced("role-message") {
            return Err(Denied);
        }
        x86::message(self, function, wanted)
    }

    fn sends(&self, message: [u32; 3]) -> u64 {
        x86::sends(message)
    }

    fn ring(&self, bell: u32) {
        mail::ring_bell(self.0, bell);
    }

    fn line(&self, line: u32) -> u64 {
        ioapic::sends(self.0, line)
    }

    fn aim(&self, at: usize, word: u64) {
        mail::aim(self.0, at, word);
    }

    #[inline(always)]
    fn holds(&self, rule: Rule) -> bool {
        match rule {
            Rule::Form => M::enforced("config-form"),
            Rule::Unnamed => M::enforced("config-unnamed"),
            Rule::Fixed => M::enforced("bridge-fixed"),
            Rule::Message => M::enforced("message-form"),
            Rule::Vector => M::enforced("message-vector"),
            Rule::Table => M::enforced("msix-form"),
        }
    }
}

impl<M: X86> Routes for Pci<'_, M> {
    fn owns_core(&self, id: u32) -> bool {
        icr::contains(&self.0.x86().own, id) || !M::enforced("message-core")
    }

    fn named(&self, names: u8) -> Option<u32> {
        xapic::one(self.0, names).map(u32::from)
    }

    fn entry(&self, core: u32, vector: u8) -> u32 {
        icr::remapped(&self.0.x86().own, core, vector)
    }

    fn remap(&self, function: &Function, slot: usize) -> Option<u32> {
        self.slot(function, slot).map(|entry| entry.load(Ordering::Relaxed))
    }

    fn set_remap(&self, function: &Function, slot: usize, entry: u32) -> bool {
        self.slot(function, slot).is_some_and(|word| {
            // Only an empty slot: another core may have put its own message there since it was read.
            word.compare_exchange(0, entry, Ordering::Release, Ordering::Relaxed).is_ok()
        })
    }

    fn empty(&self, function: &Function) -> bool {
        let Some(unit) = iommu::own(self.0) else { return false };
        let used = x86::used(self, function);
        let bit =
            |slot: usize| used.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 != 0);
        for slot in (0..SLOTS).filter(|slot| !bit(*slot)) {
            if let Some(word) = self.slot(function, slot) {
                word.store(0, Ordering::Release);
            }
        }
        iommu::forget(self.0, unit, [function.bdf, function.alias]);
        self.wait(iommu::PATIENCE, || iommu::has_forgotten(self.0, unit))
    }
}
