//! Hypercalls ([`bulkhead_resident::hypercall`]).

use crate::core::{Core, config, mailbox};
use crate::exit::VMMCALL;
use crate::outcome::Outcome;
use crate::record::deny;
use crate::{enforced, life, link, mail};
use ::core::ptr::{addr_of_mut, read_volatile, write_volatile};
use ::core::sync::atomic::Ordering;
use bulkhead_resident::hypercall::{Call, DENIED, NULL, OK, decide, number};
use bulkhead_resident::report::{self, Cause, State};
use bulkhead_resident_x86::vmcb;

#[inline(always)]
pub fn handle(core: Core) -> Outcome {
    let vmcb = core.vmcb();
    let call = number(vmcb.get(vmcb::RAX), vmcb.cpl(), enforced);
    if call == NULL {
        vmcb.set(vmcb::RAX, OK);
        return Outcome::skip(Cause::Hypercall, VMMCALL);
    }
    decided(core, call, VMMCALL)
}

/// A call by an instruction of so many bytes that the guest's kernel let its caller make.
#[inline(never)]
pub fn decided(core: Core, call: u64, length: u8) -> Outcome {
    let (config, frame) = (config(), core.frame);
    let [first, second] = [frame.rdi.get(), frame.rsi.get()];
    let wanted = decide(call, [first, second], config.sandboxes, &config.rights, enforced);
    if let Call::Denied(lacks) = wanted {
        // Both arguments are needed to say what would have granted it.
        let arguments = first.min(u64::from(u32::MAX)) | second << 32;
        core.vmcb().set(vmcb::RAX, DENIED);
        let refused = Outcome::skip(Cause::Denied, length);
        return deny(core, lacks, call, arguments, refused);
    }
    let result = match wanted {
        Call::Console(length) => console(core, length),
        Call::Exit(code) => {
            life::leave(code);
            return Outcome::end(Cause::Hypercall, State::Exited);
        }
        Call::Restart => return Outcome::end(Cause::Hypercall, State::Launching),
        // What comes after it is steady state.
        Call::Ready => {
            life::steady(core, Cause::Hypercall);
            OK
        }
        Call::Control(to, request) => mail::post(to, request),
        Call::Status(of) => mailbox(of).status.load(Ordering::Acquire),
        Call::Slot(slot) => link::call(core, call, slot, [first, second]),
        Call::Answer(result) => result,
        Call::Denied(_) => DENIED,
    };
    core.vmcb().set(vmcb::RAX, result);
    Outcome::skip(Cause::Hypercall, length)
}

/// Appends bytes to this core's console ring.
fn console(core: Core, length: u64) -> u64 {
    let frame = core.frame;
    let words = [frame.rsi.get(), frame.rdx.get(), frame.r8.get()];
    let counters = core.counters();
    for i in 0..length as usize {
        let byte = words.get(i / 8).map_or(0, |w| (w >> (i % 8 * 8)) as u8);
        // SAFETY: this core alone writes its ring; the index is below its size.
        unsafe {
            let written = addr_of_mut!((*counters).console_written);
            let at = read_volatile(written);
            let place = addr_of_mut!((*counters).console[at as usize % report::CONSOLE]);
            write_volatile(place, byte);
            write_volatile(written, at + 1);
        }
    }
    OK
}
