//! Words of PCs in a machine description. A machine of another architecture has none of them: no ports, no IOAPIC, no
//! RAM that is split at 4 GiB.

use super::View;
use crate::raw_machine::BarKind;
use crate::source::{Step, k, n};

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
