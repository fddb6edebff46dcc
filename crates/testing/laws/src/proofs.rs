//! The laws for every value, by Kani: `cargo kani -p bulkhead-laws`. They have not been run: the prover was not
//! available where this was written. So `tests/` tries all values of the fields that matter instead. Unit tests run
//! each harness with values that [`crate::drawn`] draws: so it compiles, and no assumption leaves nothing.

#[cfg(not(kani))]
use crate::drawn as kani;
use crate::{hypercall, icr, ioapic, mmio, msi};
use bulkhead_decoder::Mode;
use bulkhead_ioapic::Lines;
use bulkhead_monitor_abi::hypercall::Rights;
use bulkhead_monitor_abi_x86::msr::{X2APIC_LVT, X2APIC_LVT_LAST};

#[cfg_attr(kani, kani::proof)]
fn icr_sent() {
    let (own, sender) = (kani::any(), kani::any());
    kani::assume(icr::owns(&own, sender));
    assert!(icr::sent(&own, sender, kani::any(), kani::any()).is_ok());
}

#[cfg_attr(kani, kani::proof)]
fn icr_aimed() {
    assert!(icr::aimed(&kani::any(), kani::any()).is_ok());
}

#[cfg_attr(kani, kani::proof)]
fn lvt_stored() {
    let register = kani::any();
    kani::assume((X2APIC_LVT..=X2APIC_LVT_LAST).contains(&register));
    assert!(icr::stored(register, kani::any(), kani::any()).is_ok());
}

#[cfg_attr(kani, kani::proof)]
fn hypercall_called() {
    let rights = Rights { control: kani::any(), offer: kani::any(), links: kani::any() };
    let sandboxes = kani::any();
    kani::assume(sandboxes >= 1 && sandboxes <= bulkhead_monitor_abi::MAX_SANDBOXES as u32);
    let cpl = kani::any();
    kani::assume(cpl <= 3);
    assert!(
        hypercall::called(kani::any(), kani::any(), cpl, (sandboxes, &rights), |_| true).is_ok()
    );
}

#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(17))]
fn mmio_decoded() {
    let mode = match kani::any::<u8>() % 3 {
        0 => Mode::Bits16,
        1 => Mode::Bits32,
        _ => Mode::Bits64,
    };
    assert!(mmio::decoded(&kani::any(), mode).is_ok());
}

#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(34))]
fn ioapic_written() {
    let count = kani::any();
    kani::assume(count >= 1 && count <= bulkhead_ioapic::MAX_LINES as u32);
    let line = kani::any();
    kani::assume(line < count);
    let half: bool = kani::any();
    let lines = Lines {
        own: kani::any(),
        level: kani::any(),
        low: kani::any(),
        count,
        level_vectors: kani::any(),
        ..Lines::default()
    };
    // A table holds only values that these rules have passed.
    let old = [kani::any::<u32>() & 0x1_AFFF, kani::any::<u32>() & 0xFF00_0000];
    let written =
        ioapic::written((&lines, &kani::any()), (line, half.into()), old, kani::any(), |_| true);
    assert!(written.is_ok());
}

#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(8))]
fn msi_sent() {
    assert!(msi::sent(&kani::any(), kani::any(), None).is_ok());
}

#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(8))]
fn config_accessed() {
    let offset: u16 = kani::any();
    kani::assume(offset < 0x1000);
    assert!(msi::accessed(offset, kani::any(), kani::any(), kani::any(), None).is_ok());
}

#[cfg(all(test, not(kani)))]
mod tests {
    use super::*;

    #[test]
    fn each_harness_runs() {
        let harnesses: [(&str, fn()); 8] = [
            ("icr_sent", icr_sent),
            ("icr_aimed", icr_aimed),
            ("lvt_stored", lvt_stored),
            ("hypercall_called", hypercall_called),
            ("mmio_decoded", mmio_decoded),
            ("ioapic_written", ioapic_written),
            ("msi_sent", msi_sent),
            ("config_accessed", config_accessed),
        ];
        for (name, harness) in harnesses {
            assert!(kani::run(harness, 20_000) > 50, "{name}: its assumptions leave nothing");
        }
    }
}
