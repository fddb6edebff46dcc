//! Accesses to ports that are not the sandbox's: reads give all ones, writes go nowhere.

use crate::core::{Core, config, slice};
use crate::outcome::Outcome;
use crate::record::{deny, deny_register};
use crate::{hypercall, mail, pci, rtc, vmware};
use bulkhead_resident::hypercall::{BELL_PORT, CALL_PORT, POWER_OFF, POWER_PORT, POWER_RESTART};
use bulkhead_resident::monitor::Quiet;
use bulkhead_resident::report::{Cause, Condition, State};
use bulkhead_resident_x86::vmcb;

pub fn handle(core: Core) -> Outcome {
    let vmcb = core.vmcb();
    // EXITINFO1 (APM 15.10.2): bit 0 IN, 2 string, 4 to 6 size, 16 to 31 port;
    // EXITINFO2: the next RIP.
    let info = vmcb.get(vmcb::EXIT_INFO1);
    let length = vmcb.get(vmcb::EXIT_INFO2).wrapping_sub(vmcb.get(vmcb::RIP)) as u8;
    let port = (info >> 16) as u32 & 0xFFFF;
    let (read, string) = (info & 1 != 0, info & 1 << 2 != 0);
    let rax = vmcb.get(vmcb::RAX);
    if port == u32::from(POWER_PORT) && !read && !string {
        match rax as u8 {
            POWER_OFF => return Outcome::end(Cause::Port, State::Stopped),
            POWER_RESTART => return Outcome::end(Cause::Port, State::Launching),
            _ => {}
        }
    }
    if !read && !string && mail::ring_bell(port.wrapping_sub(u32::from(BELL_PORT))) {
        return Outcome::skip(Cause::Ring, length);
    }
    let size = (info >> 4 & 0b111) as u8;
    if port == u32::from(CALL_PORT) && read && !string && size == 4 {
        return hypercall::decided(core, rax, length);
    }
    let write = (!read).then_some(rax & 0xFFFF_FFFF);
    let absent = Outcome::skip(Cause::Denied, length);
    if let Some(answer) = if string { None } else { device(port, size, write) } {
        return match answer {
            Some(Ok(value)) => done(core, info, value, Outcome::skip(Cause::Config, length)),
            Some(Err(register)) => {
                let denied = deny_register(core, register, write, absent);
                done(core, info, u64::MAX, denied)
            }
            // The instruction comes again.
            None => Outcome::resume(Cause::Config),
        };
    }
    let Some(value) = Quiet::find(slice(config().ports), port) else {
        let condition = if read { Condition::PortRead } else { Condition::PortWrite };
        let denied = deny(core, condition, u64::from(port), write.unwrap_or(0), absent);
        return done(core, info, u64::MAX, denied);
    };
    let value = if port == vmware::PORT && read { vmware::call(core) } else { value };
    done(core, info, value, Outcome::skip(Cause::Port, length))
}

/// Answer of the mediated device that this port belongs to, if it belongs to one. `Some(None)`: this core's turn has
/// not come, nothing is done.
fn device(port: u32, size: u8, write: Option<u64>) -> Option<Option<Result<u64, u64>>> {
    if pci::answers_port(port, size) {
        let answer = pci::port(port, size, write.map(|value| value as u32));
        return Some(answer.map(|answer| answer.map(u64::from)));
    }
    if rtc::answers(port, size) {
        let answer = rtc::port(port, write.map(|value| value as u8));
        return Some(answer.map(|answer| answer.map(u64::from)));
    }
    None
}

/// Gives a read its value.
fn done(core: Core, info: u64, value: u64, outcome: Outcome) -> Outcome {
    let vmcb = core.vmcb();
    let (read, string) = (info & 1 != 0, info & 1 << 2 != 0);
    if read && !string {
        let rax = vmcb.get(vmcb::RAX);
        // A 32-bit result clears the upper half of RAX; narrower ones keep the rest.
        let (kept, mask) = match info >> 4 & 0b111 {
            0b001 => (!0xFF, 0xFF),
            0b010 => (!0xFFFF, 0xFFFF),
            _ => (0, 0xFFFF_FFFF),
        };
        vmcb.set(vmcb::RAX, rax & kept | value & mask);
    }
    outcome
}
