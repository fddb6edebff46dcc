//! How a function is stopped between two lives of its sandbox.

use bulkhead_layout::pci::{COMMAND, INTX_OFF, Reset};
use bulkhead_plan::{Function, ResetStep, Span};

/// Device control after an FLR, of the bits that a guest writes: relaxed ordering, no snoop, reads of 512 bytes
/// (PCIe 5.0, 7.5.3.4).
const TUNING: u32 = 1 << 4 | 1 << 11 | 0b010 << 12;

/// Writes that stop a function for good: no DMA first, no messages, then its reset. At the end it answers to accesses
/// of its BARs again, which its owner's tables map. A function with a function-level reset and steps of its own tries
/// these first, with its DMA as it is ([decision 54](../../../../../docs/decisions/0054-nvme-reset.md)).
pub fn resets(function: &Function) -> Vec<Reset> {
    /// Milliseconds until a function has reset itself (PCIe 5.0, 6.6.2).
    const FLR_TIME: u32 = 100;
    /// And has changed between D0 and D3hot (PM 1.2, 5.6.1).
    const POWER_TIME: u32 = 10;
    let step = |offset: u16, value, wait| Reset {
        at: offset.into(),
        kind: Reset::CONFIG,
        value,
        wait,
        ..Reset::default()
    };
    let flr = match (function.pcie, function.af) {
        (Some(pcie), _) if pcie.flr => Some(step(u16::from(pcie.at) + 8, 1 << 15, FLR_TIME)),
        (_, Some(af)) if af.flr => Some(step(u16::from(af.at) + 4, 1, FLR_TIME)),
        _ => None,
    };
    let tries = flr.is_some() && !function.reset.is_empty();
    let when = |when| move |step| Reset { when, ..step };
    let mut all = Vec::new();
    if tries {
        all.extend(function.reset.iter().flat_map(own).map(when(Reset::TRY)));
        all.extend(
            function.pcie.map(|pcie| step(u16::from(pcie.at) + 8, TUNING, 0)).map(when(Reset::TRY)),
        );
    }
    all.push(step(COMMAND, INTX_OFF, 0));
    all.extend(function.msix.map(|msix| step(u16::from(msix.at), 0, 0)));
    all.extend(function.msi.map(|msi| step(u16::from(msi.at), 0, 0)));
    let first = all.len();
    if let Some(pm) = function.pm {
        if flr.is_none() && pm.resets {
            all.push(step(u16::from(pm.at) + 4, 3, POWER_TIME));
        }
        all.push(step(u16::from(pm.at) + 4, 0, POWER_TIME));
    }
    all.extend(flr);
    if tries {
        all[first..].iter_mut().for_each(|step| step.when = Reset::ELSE);
    } else if !function.reset.is_empty() {
        // Its registers answer, and still it cannot reach memory.
        all.push(step(COMMAND, INTX_OFF, 0));
        all.extend(function.reset.iter().flat_map(own));
    }
    // The monitor sets the bits of the BARs with any write.
    all.push(step(COMMAND, INTX_OFF, 0));
    all
}

/// Writes behind them, if the function goes to another sandbox: nothing that its owner could write stays. A reset by
/// its own registers leaves the configuration space as it is.
pub fn forgets(function: &Function) -> impl Iterator<Item = Reset> {
    let at = |offset: u16, value| Reset {
        at: offset.into(),
        kind: Reset::CONFIG,
        value,
        ..Reset::default()
    };
    let control = function.pcie.map(|pcie| at(u16::from(pcie.at) + 8, TUNING));
    control.into_iter().chain([at(super::at::INTERRUPT, 0)])
}

/// A step by the function's own registers.
fn own(step: &ResetStep) -> impl Iterator<Item = Reset> + use<> {
    let register = Reset { at: step.at, size: step.size, ..Reset::default() };
    let (kind, mask) = (Reset::STORE, step.keep);
    let store = step.write.map(|value| Reset { kind, value, mask, ..register });
    let (value, mask, wait) = (step.value, step.mask, step.within);
    store.into_iter().chain([Reset { kind: Reset::AWAIT, value, mask, wait, ..register }])
}

/// Pages with the registers that reset a function; one can be there twice.
pub fn registers(function: &Function, page: u64) -> impl Iterator<Item = Span> {
    let span = |step: &ResetStep| Span { start: step.at, len: step.size.into() };
    function.reset.iter().map(move |step| span(step).pages_of(page))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{function, msix};
    use super::*;
    use bulkhead_layout::PAGE;
    use bulkhead_plan::{Msi, Pm, Resettable};

    #[test]
    fn what_stops_a_function() {
        let steps = |f: &Function| -> Vec<_> {
            resets(f).iter().map(|r| (r.at, r.value, r.wait)).collect()
        };
        let (off, pm) = ((4, 0x400, 0), |resets| Some(Pm { at: 0x60, resets }));
        let (pcie, none) = (|flr| Some(Resettable { at: 0x80, flr }), function(0));
        assert_eq!(steps(&none), [off, off]);
        let msi = Some(Msi { at: 0x70, wide: true, masks: false });
        let full = Function {
            msi,
            msix: msix(0x40, 2, 0),
            pm: pm(true),
            pcie: pcie(true),
            ..none.clone()
        };
        let quiet = [off, (0x40, 0, 0), (0x70, 0, 0)];
        // It is awake before its reset.
        let flr = [&quiet[..], &[(0x64, 0, 10), (0x88, 0x8000, 100), off]].concat();
        assert_eq!(steps(&full), flr);
        let sleeps = Function { pcie: pcie(false), msi: None, msix: None, ..full.clone() };
        assert_eq!(steps(&sleeps), [off, (0x64, 3, 10), (0x64, 0, 10), off]);
        let kept = Function { pm: pm(false), ..sleeps.clone() };
        assert_eq!(steps(&kept), [off, (0x64, 0, 10), off]);
        let at = 0xFEB0_0014;
        let step =
            ResetStep { at, size: 1, write: Some(8), keep: 0, mask: 0xF, value: 2, within: 30 };
        let own = Function { reset: vec![step, ResetStep { write: None, ..step }], ..none.clone() };
        let seen = [(at, 8, 0), (at, 2, 30), (at, 2, 30)];
        assert_eq!(steps(&own), [&[off, off], &seen[..], &[off]].concat());
        let kinds: Vec<_> = resets(&own).iter().map(|r| (r.kind, r.size, r.mask)).collect();
        let [config, store, wait] =
            [(Reset::CONFIG, 0, 0), (Reset::STORE, 1, 0), (Reset::AWAIT, 1, 0xF)];
        assert_eq!(kinds, [config, config, store, wait, wait, config]);
        let page = Span { start: 0xFEB0_0000, len: 0x1000 };
        assert_eq!(registers(&own, PAGE).collect::<Vec<_>>(), [page, page]);
        let af = Function { af: Some(Resettable { at: 0x90, flr: true }), pm: None, ..sleeps };
        assert_eq!(steps(&af), [off, (0x94, 1, 100), off]);
    }
}
