//! Accesses to ports that are not the sandbox's: reads give all ones, writes go nowhere.

use crate::core::{Core, config, slice};
use crate::record::{count, deny, deny_register};
use crate::{hypercall, life, mail, pci, rtc, vmware};
use bulkhead_resident::hypercall::{BELL_PORT, CALL_PORT, POWER_OFF, POWER_PORT, POWER_RESTART};
use bulkhead_resident::monitor::Quiet;
use bulkhead_resident::report::{Cause, Condition, State};
use bulkhead_resident_x86::vmcb;

pub fn handle(core: Core) -> bool {
    let vmcb = core.vmcb();
    // EXITINFO1 (APM 15.10.2): bit 0 IN, 2 string, 4 to 6 size, 16 to 31 port;
    // EXITINFO2: the next RIP.
    let info = vmcb.get(vmcb::EXIT_INFO1);
    let port = (info >> 16) as u32 & 0xFFFF;
    let (read, string) = (info & 1 != 0, info & 1 << 2 != 0);
    let rax = vmcb.get(vmcb::RAX);
    if port == u32::from(POWER_PORT) && !read && !string {
        let then = match rax as u8 {
            POWER_OFF => Some(State::Stopped),
            POWER_RESTART => Some(State::Launching),
            _ => None,
        };
        if let Some(then) = then {
            count(core, Cause::Port);
            return life::end(core, then as u32, 0);
        }
    }
    if !read && !string && mail::ring_bell(port.wrapping_sub(u32::from(BELL_PORT))) {
        count(core, Cause::Ring);
        return done(core, info, 0);
    }
    let size = (info >> 4 & 0b111) as u8;
    if port == u32::from(CALL_PORT) && read && !string && size == 4 {
        let length = vmcb.get(vmcb::EXIT_INFO2).wrapping_sub(vmcb.get(vmcb::RIP));
        return hypercall::decided(core, rax, length);
    }
    if !string && pci::answers_port(port, size) {
        count(core, Cause::Config);
        let write = (!read).then_some(rax as u32);
        match pci::port(port, size, write) {
            Some(Ok(value)) => return done(core, info, u64::from(value)),
            Some(Err(at)) if deny_register(core, at, write.map(u64::from)) => return true,
            Some(Err(_)) => return done(core, info, u64::MAX),
            // The instruction comes again.
            None => return false,
        }
    }
    if !string && rtc::answers(port, size) {
        count(core, Cause::Config);
        let write = (!read).then_some(rax as u8);
        return match rtc::port(port, write) {
            Some(Ok(value)) => done(core, info, u64::from(value)),
            Some(Err(at)) => {
                deny_register(core, at, write.map(u64::from)) || done(core, info, u64::MAX)
            }
            // The instruction comes again.
            None => false,
        };
    }
    let value = match Quiet::find(slice(config().ports), port) {
        Some(value) => {
            count(core, Cause::Port);
            if port == vmware::PORT && read { vmware::call(core) } else { value }
        }
        None => {
            let (condition, written) = match read {
                true => (Condition::PortRead, 0),
                false => (Condition::PortWrite, rax & 0xFFFF_FFFF),
            };
            if deny(core, condition, u64::from(port), written) {
                return true;
            }
            u64::MAX
        }
    };
    done(core, info, value)
}

/// Gives a read its value and goes on after the instruction.
fn done(core: Core, info: u64, value: u64) -> bool {
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
    vmcb.set(vmcb::RIP, vmcb.get(vmcb::EXIT_INFO2));
    false
}
