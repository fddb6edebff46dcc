//! Accesses to ports that are not the sandbox's: reads give all ones, writes go nowhere.

use crate::contract::RAX;
use crate::{X86, pci, rtc, vmware};
use bulkhead_monitor::record::{deny, deny_register};
use bulkhead_monitor::{Outcome, hypercall, mail, running};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::{Cause, Condition, State};
use bulkhead_monitor_abi_x86::config::Quiet;
use bulkhead_monitor_abi_x86::port::{BELL_PORT, CALL_PORT, POWER_OFF, POWER_PORT, POWER_RESTART};

/// An access to a port, as an exit tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Port.
    pub port: u32,
    /// Bytes: 1, 2 or 4.
    pub size: u8,
    /// True for IN, false for OUT.
    pub read: bool,
    /// True for INS and OUTS: their data is in memory.
    pub string: bool,
    /// Bytes of the instruction.
    pub length: u8,
}

/// Handles an access to a port.
pub fn handle<M: X86>(m: &M, access: Access) -> Outcome {
    let Access { port, size, read, string, length } = access;
    let rax = m.register(RAX);
    if port == u32::from(POWER_PORT) && !read && !string {
        match rax as u8 {
            POWER_OFF => return Outcome::end(Cause::Port, State::Stopped),
            POWER_RESTART => return Outcome::end(Cause::Port, State::Launching),
            _ => {}
        }
    }
    if running::begins_anew(m) && !read && !string && resets(port, rax as u8) {
        return Outcome::end(Cause::Port, State::Launching);
    }
    // A port below wraps to a number without a doorbell.
    if !read && !string && mail::ring_bell(m, port.wrapping_sub(u32::from(BELL_PORT))) {
        return Outcome::skip(Cause::Ring, length);
    }
    if port == u32::from(CALL_PORT) && read && !string && size == 4 {
        return hypercall::decided(m, rax, length);
    }
    // OUTS has its data in memory, which is not read: its record has what RAX held.
    let write = (!read).then_some(rax & 0xFFFF_FFFF);
    let done = |value: u64, outcome: Outcome| {
        if read && !string {
            give(m, size, value);
        }
        outcome
    };
    // The reset port lies among the four of this access, so the map cannot leave it to the guest.
    if running::runs(m) && pci::passes(m, port, size) && !string {
        match write {
            Some(value) => m.store_address(value as u32),
            None => give(m, size, m.load_address().into()),
        }
        return Outcome::skip(Cause::Config, length);
    }
    let absent = Outcome::skip(Cause::Denied, length);
    if let Some(answer) = if string { None } else { device(m, port, size, write) } {
        return match answer {
            Some(Ok(value)) => done(value, Outcome::skip(Cause::Config, length)),
            Some(Err(register)) => done(u64::MAX, deny_register(m, register, write, absent)),
            // The instruction comes again.
            None => Outcome::resume(Cause::Config),
        };
    }
    // A Linux looks for dozens of old devices at its boot. The host listed their ports: they answer without a record.
    let Some(value) = Quiet::find(m.quiets(m.x86().ports), port) else {
        let condition = if read { Condition::PortRead } else { Condition::PortWrite };
        let denied = deny(m, condition, u64::from(port), write.unwrap_or(0), absent);
        // All ones, as from a bus on which nothing answers.
        return done(u64::MAX, denied);
    };
    let asks = M::has(need::LINUX) && port == vmware::PORT && read;
    let value = if asks { vmware::call(m) } else { value };
    done(value, Outcome::skip(Cause::Port, length))
}

/// Tells if a write resets a PC: by the reset control register (ICH9, 13.7.5), or by the keyboard controller's command.
fn resets(port: u32, value: u8) -> bool {
    const RESET_CPU: u8 = 1 << 2;
    port == 0xCF9 && value & RESET_CPU != 0 || port == 0x64 && value == 0xFE
}

/// Returns the answer of the mediated device that this port belongs to, if it belongs to one. `Some(None)`: this core's
/// turn has not come, nothing is done.
fn device<M: X86>(
    m: &M,
    port: u32,
    size: u8,
    write: Option<u64>,
) -> Option<Option<Result<u64, u64>>> {
    // A constant: a monitor built without devices links nothing of what follows.
    if !M::has(need::DEVICES) {
        return None;
    }
    if pci::answers_port(m, port, size) {
        let answer = pci::port(m, port, size, write.map(|value| value as u32));
        return Some(answer.map(|answer| answer.map(u64::from)));
    }
    if rtc::answers(m, port, size) {
        let answer = rtc::port(m, port, write.map(|value| value as u8));
        return Some(answer.map(|answer| answer.map(u64::from)));
    }
    None
}

/// Gives a read of so many bytes its value.
#[inline(never)]
fn give<M: X86>(m: &M, size: u8, value: u64) {
    let rax = m.register(RAX);
    // A 32-bit result clears the upper half of RAX; narrower ones keep the rest.
    let (kept, mask) = match size {
        1 => (!0xFF, 0xFF),
        2 => (!0xFFFF, 0xFFFF),
        _ => (0, 0xFFFF_FFFF),
    };
    m.set_register(RAX, rax & kept | value & mask);
}
