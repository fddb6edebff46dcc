//! Hypercalls ([`bulkhead_resident::hypercall`]).

use crate::core::{Core, config, mailbox};
use crate::exit::{VMMCALL, skip};
use crate::record::{count, deny};
use crate::{enforced, life, mail};
use ::core::ptr::{addr_of_mut, read_volatile, write_volatile};
use ::core::sync::atomic::Ordering;
use bulkhead_resident::hypercall::{
    BAD_ARGUMENT, CONSOLE, CONTROL, DENIED, EXIT, NO_CALL, NULL, OK, READY, RESTART, STATUS,
};
use bulkhead_resident::report::{self, Cause, Kind, State};
use bulkhead_resident_x86::vmcb;

#[inline(always)]
pub fn handle(core: Core) -> bool {
    let (vmcb, frame) = (core.vmcb(), core.frame);
    // From user mode no number is one of a call.
    let call = match vmcb.cpl() {
        level if level != 0 && enforced("hypercall-cpl") => NO_CALL,
        _ => vmcb.get(vmcb::RAX),
    };
    if call == NULL {
        count(core, Cause::Hypercall);
        vmcb.set(vmcb::RAX, OK);
        return skip(core, VMMCALL);
    }
    other(core, call, frame.rdi.get(), frame.rsi.get())
}

#[inline(never)]
fn other(core: Core, call: u64, first: u64, second: u64) -> bool {
    let target = first.min(u64::from(u32::MAX)) as u32;
    if matches!(call, CONTROL | STATUS) && !controls(target) {
        if deny(core, Kind::Hypercall, call, first) {
            return true;
        }
        core.vmcb().set(vmcb::RAX, DENIED);
        return skip(core, VMMCALL);
    }
    count(core, Cause::Hypercall);
    let result = match call {
        CONSOLE => console(core, first),
        EXIT => return life::end(core, State::Exited as u32, first as u32),
        RESTART => return life::end(core, State::Launching as u32, 0),
        // What comes after it is steady state; the call itself is not.
        READY => {
            life::steady(core);
            OK
        }
        CONTROL => mail::post(target, second),
        STATUS => mailbox(target).status.load(Ordering::Acquire),
        _ if enforced("hypercall-number") => NO_CALL,
        _ => OK,
    };
    core.vmcb().set(vmcb::RAX, result);
    skip(core, VMMCALL)
}

/// Whether this sandbox may control another one.
fn controls(target: u32) -> bool {
    let granted = config().control.checked_shr(target).unwrap_or(0) & 1 != 0;
    target < config().sandboxes && (granted || !enforced("control-right"))
}

/// Appends up to 24 bytes to this core's console ring.
fn console(core: Core, length: u64) -> u64 {
    let frame = core.frame;
    let words = [frame.rsi.get(), frame.rdx.get(), frame.r8.get()];
    if length > 24 && enforced("hypercall-length") {
        return BAD_ARGUMENT;
    }
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
