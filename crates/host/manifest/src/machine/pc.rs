//! Words of PCs in a machine description. A machine of another architecture has none of them: no ports, no IOAPIC, no
//! RAM that is split at 4 GiB.

use super::{View, bytes};
use crate::raw_machine::BarKind;
use crate::size;
use crate::source::{Step, k, n};
use bulkhead_plan::Span;

/// Refuses a PC's words where the machine is none.
pub fn check(view: &mut View<'_, '_>) {
    if view.facts.pc {
        return;
    }
    let file = view.file;
    let (messages, units) = ("the boot code has no console there", "no unit of it is known");
    let plain: [(bool, &[Step<'_>], &str); 5] = [
        (file.console.is_some(), &[k("console")], messages),
        (file.debug_port.is_some(), &[k("debug_port")], messages),
        (
            file.memory.below_4g.is_some(),
            &[k("memory"), k("below_4g")],
            "`[[ram]]` says where RAM is",
        ),
        (file.ioapic.is_some(), &[k("ioapic")], units),
        (file.iommu.is_some(), &[k("iommu")], units),
    ];
    for (_, path, why) in plain.into_iter().filter(|(there, ..)| *there) {
        refuse(view, path, why);
    }
    let ports = "registers of devices are memory";
    for (index, _) in file.device.iter().enumerate().filter(|(_, device)| !device.ports.is_empty())
    {
        refuse(view, &[k("device"), n(index), k("ports")], ports);
    }
    if file.pci.as_ref().is_some_and(|pci| !pci.ports.is_empty()) {
        refuse(view, &[k("pci"), k("ports")], ports);
    }
    for (index, function) in file.function.iter().enumerate() {
        let function_at = [k("function"), n(index)];
        for (bar, _) in function.bars.iter().enumerate().filter(|(_, bar)| bar.kind == BarKind::Io)
        {
            refuse(view, &[&function_at[..], &[k("bars"), n(bar), k("kind")]].concat(), ports);
        }
        if function.bridge.as_ref().is_some_and(|bridge| bridge.ports.is_some()) {
            refuse(view, &[&function_at[..], &[k("bridge"), k("ports")]].concat(), ports);
        }
    }
}

/// A PC's RAM: a part of it from 0 on, and the rest from 4 GiB on.
pub fn banks(view: &mut View<'_, '_>, size: u64) -> Vec<Span> {
    const HIGH: u64 = 1 << 32;
    let text = view.file.memory.below_4g.as_ref();
    let below = text.map_or(0, |text| bytes(view, "below_4g", text));
    if text.is_none() {
        let message = "RAM below 4 GiB is not given".to_owned();
        let help =
            "write `below_4g`: how much of `size` lies from address 0 on, such as `\"2 GiB\"`";
        view.report("machine-memory", &[k("memory")], message, help);
    }
    if below > size || below > HIGH {
        let message = format!("{} below 4 GiB is more than there can be", size::show(below));
        let help = "`below_4g` is at most `size` and at most 4 GiB";
        view.report("machine-memory", &[k("memory"), k("below_4g")], message, help);
    }
    let high = Span { start: HIGH, len: size.saturating_sub(below) };
    [Span { start: 0, len: below }, high].into()
}

fn refuse(view: &mut View<'_, '_>, path: &[Step<'_>], why: &str) {
    let arch = view.facts.name;
    let word = path.iter().rev().find_map(|step| match step {
        Step::Key(key) => Some(*key),
        Step::Index(_) => None,
    });
    let word = word.unwrap_or_default();
    let message =
        format!("`{word}` is a word of PCs, and a machine of architecture `{arch}` is none");
    view.report("machine-arch", path, message, &format!("leave it out: {why}"));
}
