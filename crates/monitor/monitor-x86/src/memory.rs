//! Accesses to guest-physical memory that the guest's tables do not let through: device registers that the monitor
//! answers for, and everything else, which is denied.

use crate::{X86, hpet, ioapic, mmio, pci, xapic};
use bulkhead_decoder::{self as decoder, Bytes, Memory, Registers, decode, fetch};
use bulkhead_monitor::Outcome;
use bulkhead_monitor::record::{deny, deny_register};
use bulkhead_monitor_abi::monitor::Ram;
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::{Cause, Condition, State};
use bulkhead_monitor_abi_x86::vmcs;

/// An access to memory, as an exit tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Guest-physical address.
    pub address: u64,
    /// Condition that refuses it, if no register lies there: which way it went.
    pub condition: Condition,
    /// True if the access itself was refused, not one of the guest's page walk.
    pub last: bool,
    /// Processor's own word on it, for the record.
    pub info: u64,
}

impl Access {
    /// Access that a nested page fault tells, by the bits of EXITINFO1 (APM 15.25.6).
    pub fn of(address: u64, info: u64) -> Self {
        let condition = match info {
            _ if info & vmcs::NPF_FETCH != 0 => Condition::MemoryFetch,
            _ if info & vmcs::NPF_WRITE != 0 => Condition::MemoryWrite,
            _ => Condition::MemoryRead,
        };
        Self { address, condition, last: info & vmcs::NPF_FINAL != 0, info }
    }
}

/// Handles an access.
pub fn handle<M: X86>(m: &M, access: Access) -> Outcome {
    let answered = match (M::has(need::RUNNING), M::has(need::DEVICES)) {
        (true, true) => xapic::answer(m, access).or_else(|| answer(m, access)),
        (true, false) => xapic::answer(m, access),
        (false, true) => answer(m, access),
        (false, false) => None,
    };
    let shared = || if M::has(need::MMIO) { mmio::answer(m, access) } else { None };
    answered.or_else(shared).unwrap_or_else(|| {
        let stop = Outcome::end(Cause::Denied, State::Stopped);
        deny(m, access.condition, access.address, access.info, stop)
    })
}

/// Answers an access. `None`: no register lies there, or the instruction is no MOV.
#[inline(always)]
fn answer<M: X86>(m: &M, access: Access) -> Option<Outcome> {
    let address = access.address;
    // Page tables or code in a device's registers have no meaning: such accesses are denied.
    let data = access.last && access.condition != Condition::MemoryFetch;
    let timer = hpet::answers(m, address);
    let known = data && (pci::answers(m, address) || ioapic::answers(m, address) || timer);
    // Nothing is decoded for an address without a register: the decoder sees no access that is denied anyway.
    let instruction = if known { instruction(m) } else { None };
    let mut registers = Gpr(m);
    // The exit says which way it went: another instruction may be there by now.
    let writes = access.condition == Condition::MemoryWrite;
    let same = |a: &decoder::Access| a.written(&registers).is_some() == writes;
    let found = instruction.filter(|a| same(a) || !M::enforced("decoder-direction"))?;
    // Once: the value that is checked is the value that is written.
    let write = found.written(&registers);
    let done = Outcome::resume(if pci::rings(m, address) { Cause::Ring } else { Cause::Config });
    let result = match ioapic::answers(m, address) {
        _ if timer => Some(hpet::access(m, address, found.size, write)),
        true => ioapic::access(m, address, found.size, write),
        false => pci::access(m, address, found.size, write).map(|r| r.map_err(|_| address)),
    };
    let (value, outcome) = match result {
        Some(Ok(value)) => (value, done),
        Some(Err(register)) => {
            let harmless = Outcome::resume(Cause::Denied);
            // All ones, as from an absent device.
            (u64::MAX, deny_register(m, register, write, harmless))
        }
        // The instruction comes again.
        None => return Some(done),
    };
    found.complete(&mut registers, value);
    m.jump(m.state().next_rip(found.length));
    Some(outcome)
}

/// Returns the instruction that made an access to a register, if it is a MOV that goes the way which the exit tells.
pub(crate) fn moved<M: X86>(m: &M, access: Access) -> Option<decoder::Access> {
    if !access.last || access.condition == Condition::MemoryFetch {
        return None;
    }
    let writes = access.condition == Condition::MemoryWrite;
    let same = |a: &decoder::Access| a.written(&Gpr(m)).is_some() == writes;
    instruction(m).filter(|a| same(a) || !M::enforced("decoder-direction"))
}

/// Returns the instruction that the guest executed, if it is a MOV.
pub(crate) fn instruction<M: X86>(m: &M) -> Option<decoder::Access> {
    let state = m.state();
    let bytes = match Bytes::assisted(m.fetched()) {
        none if none.is_empty() => fetch(&Guest(m), &state),
        bytes => bytes,
    };
    decode(bytes, state.mode())
}

/// The sandbox's RAM.
struct Guest<'a, M>(&'a M);

impl<M: X86> Memory for Guest<'_, M> {
    fn word(&self, at: u64) -> Option<u64> {
        // A claim of the guest's: outside of its RAM the monitor maps nothing, or something else.
        let inside = |ram: &Ram| at.wrapping_sub(ram.gpa) < ram.len;
        let known = match M::has(need::RUNNING) {
            true => self.0.x86().reads(self.0.linux_memory(), at),
            false => self.0.config().ram.iter().any(inside) || !M::enforced("decoder-ram"),
        };
        // The guest may change it, so it is read as it is, once.
        known.then(|| self.0.guest_word(at))
    }
}

/// The guest's general-purpose registers.
pub(crate) struct Gpr<'a, M>(pub &'a M);

impl<M: X86> Registers for Gpr<'_, M> {
    fn get(&self, number: u8) -> u64 {
        self.0.register(number)
    }

    fn set(&mut self, number: u8, value: u64) {
        self.0.set_register(number, value);
    }
}
