//! Accesses to device registers that the monitor answers for.

use crate::core::{Core, config};
use crate::memory::{FETCH, FINAL, WRITE};
use crate::outcome::Outcome;
use crate::record::deny_register;
use crate::{enforced, ioapic, pci};
use ::core::ptr::read_volatile;
use bulkhead_mmio::{Access, Bytes, Memory, Registers, State, decode, fetch};
use bulkhead_resident::map::GUEST_VA;
use bulkhead_resident::monitor::Ram;
use bulkhead_resident::report::Cause;
use bulkhead_resident_x86::vmcb;

/// Answers an access at an address, with EXITINFO1. `None`: no register lies there, or the instruction is no MOV.
#[inline(always)]
pub fn answer(core: Core, address: u64, error: u64) -> Option<Outcome> {
    let vmcb = core.vmcb();
    let known =
        error & (FINAL | FETCH) == FINAL && (pci::answers(address) || ioapic::answers(address));
    let access = if known { instruction(core) } else { None };
    // EXITINFO1 says which way it went: another instruction may be there by now.
    let same = |a: &Access| a.written(&core).is_some() == (error & WRITE != 0);
    let access = access.filter(|a| same(a) || !enforced("decoder-direction"))?;
    let write = access.written(&core);
    let done = Outcome::resume(if pci::rings(address) { Cause::Ring } else { Cause::Config });
    let result = match ioapic::answers(address) {
        true => ioapic::access(address, access.size, write),
        false => pci::access(address, access.size, write).map(|done| done.map_err(|_| address)),
    };
    let (value, outcome) = match result {
        Some(Ok(value)) => (value, done),
        Some(Err(register)) => {
            let harmless = Outcome::resume(Cause::Denied);
            (u64::MAX, deny_register(core, register, write, harmless))
        }
        // The instruction comes again.
        None => return Some(done),
    };
    let mut registers = core;
    access.complete(&mut registers, value);
    vmcb.set(vmcb::RIP, state(core).next_rip(access.length));
    vmcb.set(vmcb::INTERRUPT_SHADOW, 0);
    Some(outcome)
}

/// What the guest executed, if it is a MOV.
fn instruction(core: Core) -> Option<Access> {
    let vmcb = core.vmcb();
    let state = state(core);
    let assisted = [vmcb.get(vmcb::FETCHED), vmcb.get(vmcb::FETCHED + 8)];
    let bytes = match Bytes::assisted(assisted) {
        // Without decode assists nobody writes these words (APM 15.33.3).
        none if none.is_empty() => fetch(&Guest, &state),
        bytes => bytes,
    };
    decode(bytes, state.mode())
}

fn state(core: Core) -> State {
    let vmcb = core.vmcb();
    State {
        cr0: vmcb.get(vmcb::CR0),
        cr3: vmcb.get(vmcb::CR3),
        cr4: vmcb.get(vmcb::CR4),
        efer: vmcb.get(vmcb::EFER),
        cs: vmcb.get(vmcb::CS),
        cs_base: vmcb.get(vmcb::CS + 8),
        rip: vmcb.get(vmcb::RIP),
    }
}

/// The sandbox's RAM.
struct Guest;

impl Memory for Guest {
    fn word(&self, at: u64) -> Option<u64> {
        let inside = |ram: &Ram| at.wrapping_sub(ram.gpa) < ram.len;
        let known = config().ram.iter().any(inside) || !enforced("decoder-ram");
        // SAFETY: 8 aligned bytes of the sandbox's RAM, all of which the host maps
        // there; the guest may change them, so they are read as they are, once.
        known.then(|| unsafe { read_volatile((GUEST_VA + at) as *const u64) })
    }
}

impl Registers for Core {
    fn get(&self, number: u8) -> u64 {
        let vmcb = self.vmcb();
        match number {
            0 => vmcb.get(vmcb::RAX),
            4 => vmcb.get(vmcb::RSP),
            _ => self.frame.register(number).get(),
        }
    }

    fn set(&mut self, number: u8, value: u64) {
        let vmcb = self.vmcb();
        match number {
            0 => vmcb.set(vmcb::RAX, value),
            4 => vmcb.set(vmcb::RSP, value),
            _ => self.frame.register(number).set(value),
        }
    }
}
