//! Writes to the registers of a local APIC in xAPIC mode, which lie in a page. A Linux that runs already may use this
//! mode, and the core stays in it. A change would go through an APIC that is off, and `disable` is to find it as it
//! was.

use crate::memory::{Access, Gpr, instruction};
use crate::{X86, ipi};
use bulkhead_monitor::record::{deny, deny_register};
use bulkhead_monitor::{Outcome, Then};
use bulkhead_monitor_abi::map::MMIO_VA;
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::{Cause, Condition};
use bulkhead_monitor_abi_x86::xapic::{self, Command, ICR_HIGH, PAGE, Write, command, decide};
use core::sync::atomic::Ordering::Relaxed;

/// Address of the page in the monitor's address space.
pub const AT: u64 = MMIO_VA + PAGE;
/// In [`bulkhead_monitor::contract::Shared::names`]: the core is in xAPIC mode. Bits 7:0 are its logical destinations.
const ON: u32 = 1 << 8;

/// Tells if this core is in xAPIC mode. The test costs a load; nothing changes the mode while a monitor has the core.
#[inline(always)]
pub fn on<M: X86>(m: &M) -> bool {
    M::has(need::RUNNING) && m.own().names.load(Relaxed) != 0
}

/// Notes that this core is in xAPIC mode, and the logical destinations that it has.
pub fn begin<M: X86>(m: &M) {
    name(m, (m.load(AT + xapic::LDR, 4) >> 24) as u8);
}

fn name<M: X86>(m: &M, names: u8) {
    m.own().names.store(ON | u32::from(names), Relaxed);
}

/// Answers a write to the page. `None`: it is another access, or the instruction is no MOV.
pub fn answer<M: X86>(m: &M, access: Access) -> Option<Outcome> {
    let offset = access.address.wrapping_sub(PAGE);
    let data = access.last && access.condition == Condition::MemoryWrite;
    if !on(m) || !data || offset >= bulkhead_monitor_abi::PAGE {
        return None;
    }
    let found = instruction(m)?;
    // Once: the value that is checked is the value that is written.
    let value = found.written(&Gpr(m))?;
    let right = found.size == 4;
    let written = if right { decide(offset, value as u32, has_deadline(m)) } else { Write::Denied };
    let store = |value: u32| {
        m.store(AT + offset, 4, u64::from(value));
        Outcome::resume(Cause::Xapic)
    };
    let outcome = match written {
        Write::Store(stored) => store(stored),
        Write::Local(_) if !M::enforced("local-interrupts") => store(value as u32),
        Write::Local(entry) => store(entry),
        Write::Names(names) => {
            name(m, names);
            store(u32::from(names) << 24)
        }
        Write::Send => send(m, value as u32),
        Write::Denied => {
            deny_register(m, access.address, Some(value), Outcome::resume(Cause::Denied))
        }
    };
    m.jump(m.state().next_rip(found.length));
    Some(outcome)
}

fn has_deadline<M: X86>(m: &M) -> bool {
    m.cpuid(1, 0)[2] & 1 << 24 != 0
}

/// Decides on an interrupt command and carries it out.
fn send<M: X86>(m: &M, low: u32) -> Outcome {
    // The high half is the guest's: the monitor puts it back after each message of its own.
    match command(low, m.load(AT + ICR_HIGH, 4) as u32) {
        Command::One(value) => resumed(ipi::send(m, value)),
        Command::Named(names, low) => named(m, names, low),
    }
}

/// Sends a message to each core that has one of these names, if all names are those of own cores.
fn named<M: X86>(m: &M, names: u8, low: u32) -> Outcome {
    let cores = m.config().core_ids.iter().take(m.cores() as usize);
    let cores = { (0..).zip(cores) }.map(|(n, id)| (m.shared(n).names.load(Relaxed) as u8, *id));
    let foreign = cores.clone().fold(names, |left, (names, _)| left & !names);
    if foreign != 0 && M::enforced("ipi-destination") {
        let asked = u64::from(names) << 32 | u64::from(low);
        let resume = Outcome::resume(Cause::Denied);
        return deny(m, Condition::IpiDestination, asked, 0, resume);
    }
    for (_, id) in cores.filter(|(own, _)| own & names != 0) {
        // To an own core, and of a kind that a guest may send.
        let _ = ipi::send(m, u64::from(id) << 32 | u64::from(low));
    }
    Outcome::resume(Cause::Xapic)
}

/// Finds the own core that alone has these names, in xAPIC mode.
#[inline(always)]
pub fn one<M: X86>(m: &M, names: u8) -> Option<u8> {
    // A constant: no other monitor has a guest in that mode.
    if !on(m) {
        return None;
    }
    let cores = m.config().core_ids.iter().take(m.cores() as usize);
    let mut cores =
        (0..).zip(cores).filter(|(n, _)| m.shared(*n).names.load(Relaxed) as u8 & names != 0);
    let (n, id) = cores.next()?;
    let alone = cores.next().is_none() && names & !(m.shared(n).names.load(Relaxed) as u8) == 0;
    alone.then_some(*id as u8)
}

/// Turns the outcome of a WRMSR into that of a write to memory, which has moved the guest itself.
fn resumed(outcome: Outcome) -> Outcome {
    match outcome.then() {
        Then::Skip(_) if outcome.cause() == Cause::Denied as usize => {
            Outcome::resume(Cause::Denied)
        }
        Then::Skip(_) => Outcome::resume(Cause::Xapic),
        _ => outcome,
    }
}
