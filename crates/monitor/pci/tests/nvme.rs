//! An NVMe controller is reset by its own registers. If it does not show its end in time it is reset by PCI's means.

use bulkhead_layout::pci::Reset;
use bulkhead_pci::Denied;
use bulkhead_pci_fake::{Access, Fake, Left, all};

const COMMAND: u16 = 4;
const PM_CONTROL: u16 = 0x64;
const DEVICE_CONTROL: u16 = 0x88;
/// Milliseconds: to be awake, and for a function-level reset.
const BY_PCI: u32 = 110;

fn controller() -> Fake {
    let fake = Fake::new(all().last().unwrap(), true);
    assert_eq!(fake.described().class, 0x01_0802);
    put(&fake, COMMAND, 2, 6).unwrap();
    fake
}

fn put(fake: &Fake, at: u16, size: u8, value: u32) -> Result<u64, Denied> {
    let done = fake.access(Access::Config(at, size, Some(value)));
    fake.wrong().unwrap();
    done
}

/// Lets its sandbox begin anew. The fake looks that it owes nothing and reaches no memory. Returns the time of that.
fn restart(fake: &Fake) -> u32 {
    fake.waited();
    fake.access(Access::Restart).unwrap();
    fake.wrong().unwrap();
    assert_eq!(fake.hardware(COMMAND) & 6, 2, "it reaches no memory, and can be reached");
    fake.waited()
}

#[test]
fn one_that_works_is_at_rest_at_once() {
    for left in [Left::Works, Left::Windows] {
        let fake = controller();
        put(&fake, DEVICE_CONTROL, 2, 0x5000).unwrap();
        fake.leave(left);
        assert_eq!(restart(&fake), 0, "{left:?}");
    }
}

#[test]
fn one_in_any_other_state_is_reset_by_pci() {
    for left in Left::ALL.into_iter().filter(|left| left.needs_flr()) {
        let fake = controller();
        fake.leave(left);
        let waited = restart(&fake);
        // It had its time, and not more.
        let least = if matches!(left, Left::Stuck | Left::EndsFatal) { 100 } else { 1 };
        assert_eq!(waited, BY_PCI + least, "{left:?}");
    }
}

#[test]
fn one_that_is_gone_costs_its_time_and_no_more() {
    let fake = controller();
    fake.vanish();
    fake.waited();
    assert_eq!(fake.access(Access::Restart), Ok(0));
    assert_eq!(fake.waited(), BY_PCI + 1);
}

/// Its BARs are not where its registers are looked for: it had a reset of its owner's, sleeps, or does not decode.
#[test]
fn one_that_does_not_answer_is_reset_by_pci() {
    let fake = controller();
    put(&fake, DEVICE_CONTROL, 2, 1 << 15).unwrap();
    fake.leave(Left::Works);
    assert_eq!(restart(&fake), BY_PCI + 1);
    put(&fake, PM_CONTROL, 2, 3).unwrap();
    fake.leave(Left::Works);
    assert_eq!(restart(&fake), BY_PCI + 1);
    fake.force(COMMAND, fake.hardware(COMMAND) & !2);
    fake.leave(Left::Works);
    assert_eq!(restart(&fake), BY_PCI + 1);
}

/// In both ways DMA and messages are off before the monitor goes on.
#[test]
fn its_steps_come_in_this_order() {
    let fake = controller();
    let at = |when| {
        let steps = fake.steps().iter().filter(move |step| step.when == when);
        steps.map(|step| (step.kind, step.at & 0xFFF, step.wait)).collect::<Vec<_>>()
    };
    let (config, store, wait) = (Reset::CONFIG, Reset::STORE, Reset::AWAIT);
    let off = (config, 4, 0);
    assert_eq!(at(Reset::ALWAYS), [off, (config, 0x40, 0), off]);
    assert_eq!(at(Reset::ELSE), [(config, 0x64, 10), (config, 0x88, 100)]);
    let tried = [
        (wait, 0x1C, 1),
        (store, 0x14, 0),
        (wait, 0x14, 1),
        (wait, 0x1C, 100),
        (store, 0x50, 0),
        (wait, 0x50, 1),
        (store, 0xE14, 0),
        (wait, 0xE14, 1),
        (config, 0x88, 0),
    ];
    assert_eq!(at(Reset::TRY), tried);
    let whens: Vec<_> = fake.steps().iter().map(|step| step.when).collect();
    let first = |when| whens.iter().position(|w| *w == when);
    let last = |when| whens.iter().rposition(|w| *w == when);
    assert!(last(Reset::TRY) < first(Reset::ALWAYS) && last(Reset::ELSE) < last(Reset::ALWAYS));
    assert!(first(Reset::ALWAYS) < first(Reset::ELSE));
}
