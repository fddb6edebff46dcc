//! Interrupts between a sandbox's own cores, beyond the ordinary one
//! (docs/decisions/0012-guest-nmis.md, docs/decisions/0013-init-sipi.md).

use crate::core::{Core, config, mailbox, shared_of};
use crate::enforced;
use crate::exit::TWO_BYTES;
use crate::outcome::Outcome;
use crate::record::deny;
use ::core::sync::atomic::Ordering;
use bulkhead_cpu_x86::wrmsr;
use bulkhead_resident::bell::Word;
use bulkhead_resident::report::{Cause, State};
use bulkhead_resident_x86::icr::{self, Ipi, To};
use bulkhead_resident_x86::msr;

/// Signals to a core, in [`crate::core::Local::signals`]: wait for a SIPI.
pub const INIT: u32 = 1 << 8;
/// Start at the vector in bits 7:0.
pub const STARTUP: u32 = 1 << 9;
/// [`STARTUP`] and its vector.
const STARTUP_BITS: u32 = STARTUP | 0xFF;
/// An NMI for the guest.
pub const NMI: u32 = 1 << 10;
/// To the first core: end the sandbox, [`END_STATE`] says how.
pub const END: u32 = 1 << 11;
/// Position of the [`bulkhead_resident::report::State`] of [`END`], 4 bits.
pub const END_STATE: u32 = 12;

/// Decides on an ICR write that is not ordinary and carries it out.
#[inline(never)]
pub fn send(core: Core, value: u64) -> Outcome {
    match icr::decide(&config().own, value) {
        // SAFETY: a fixed interrupt to cores of this sandbox.
        Ipi::Pass => unsafe { wrmsr(msr::X2APIC_ICR, value) },
        Ipi::Fixed(to) => each(core, to, |_, id| {
            // The vector and nothing else of what the guest wrote.
            // SAFETY: as above.
            unsafe { wrmsr(msr::X2APIC_ICR, u64::from(id) << 32 | value & 0xFF) };
        }),
        Ipi::Nmi(to) => signal_each(core, to, NMI),
        Ipi::Init(to) => signal_each(core, to, INIT),
        Ipi::Startup(to, vector) => signal_each(core, to, STARTUP | u32::from(vector)),
        Ipi::Ignore => {}
        Ipi::Denied(condition) => {
            if !enforced("ipi-destination") {
                // SAFETY: none; this is the mutation gate's build.
                unsafe { wrmsr(msr::X2APIC_ICR, value) };
            }
            return deny(core, condition, value, 0, Outcome::skip(Cause::Denied, TWO_BYTES));
        }
    }
    Outcome::skip(Cause::Ipi, TWO_BYTES)
}

/// Calls with number and x2APIC ID of each of these cores of the sandbox.
fn each(core: Core, to: To, f: impl Fn(u32, u32)) {
    let ids = config().apic_ids.iter().take(config().cores as usize);
    for (index, &id) in (0..).zip(ids) {
        if to.includes(id, index == core.index()) {
            f(index, id);
        }
    }
}

/// [`signal`] to each of these cores.
#[inline(never)]
pub fn signal_each(core: Core, to: To, signals: u32) {
    each(core, to, |index, _| signal(index, signals));
}

/// Leaves signals for a core of this sandbox and rings it. A signal to oneself
/// is handled before the guest goes on, because the NMI is pending then.
pub fn signal(index: u32, signals: u32) {
    let to = shared_of(index);
    let accept = |old: u32| {
        // A SIPI is for a core that waits or will (APM 16.5); of several SIPIs
        // and of several ends the first one counts.
        let waits = to.parked.load(Ordering::Acquire) != 0 || old & INIT != 0;
        if signals & STARTUP != 0 && !waits || signals & old & (STARTUP | END) != 0 {
            return None;
        }
        // INIT cancels a start-up that was not begun: both at once mean INIT, then SIPI.
        let kept = if signals & INIT != 0 { old & !STARTUP_BITS } else { old };
        Some(kept | signals)
    };
    let accepted = to.signals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, accept);
    if let (Ok(_), Some(&id)) = (accepted, config().apic_ids.get(index as usize)) {
        ring(config().sandbox, id);
    }
}

/// An NMI to a core's monitor, counted where the sandbox's monitor sees by whom it was.
#[inline(never)]
pub fn ring(sandbox: u32, id: u32) {
    const NMI_MODE: u64 = 4 << 8 | 1 << 14;
    if let Some(rings) = mailbox(config().sandbox).rings.get(sandbox as usize) {
        rings.count();
    }
    interrupt(u64::from(id) << 32 | NMI_MODE);
}

/// An NMI to a monitor, or an interrupt that the host has baked, to a guest.
pub fn interrupt(icr: u64) {
    // SAFETY: a monitor intercepts NMIs and looks into its mail, nothing else; a guest gets an
    // interrupt of a channel to it. A write of an x2APIC register may overtake stores (SDM volume 3,
    // 11.12.3), here those that the other is to see.
    unsafe {
        ::core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags));
        wrmsr(msr::X2APIC_ICR, icr)
    };
}

/// Takes this core's signals, at a doorbell that counts for `cause`.
///
/// # Errors
/// The outcome, where other cores of the sandbox have decided it. Else, true: one of them has sent the guest an NMI.
pub fn receive(core: Core, cause: Cause) -> Result<bool, Outcome> {
    // INIT stays until the core has parked, or a SIPI meanwhile would be dropped.
    let signals = &core.local().shared.signals;
    let signals = signals.fetch_and(INIT | STARTUP_BITS, Ordering::AcqRel);
    if signals & END != 0 && core.is_first() {
        return Err(Outcome::end(cause, State::of(signals >> END_STATE & 0xF)));
    }
    if signals & INIT == 0 {
        return Ok(signals & NMI != 0);
    }
    // The processor that boots does not wait for a SIPI (APM 16.5): a reset.
    Err(match core.is_first() {
        true => Outcome::end(cause, State::Launching),
        false => Outcome::park(cause),
    })
}
