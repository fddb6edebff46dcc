//! Words of PCs in a machine description. A machine of another architecture has none of them: no ports, no IOAPIC, no
//! RAM that is split at 4 GiB.

use super::pci::{RULE, address};
use super::{View, bytes};
use crate::raw_machine::{self, BarKind, IommuKind};
use crate::size;
use crate::source::{Step, k, n};
use bulkhead_layout::PAGE;
use bulkhead_plan::{self as plan, Arch, Controller, Hpet, Ioapic, Iommu, PIT, Span};

/// A machine description, for messages.
pub const EXAMPLE: &str = "machines/qemu-q35.toml";

/// Returns the architecture that a description names.
pub const fn arch(named: raw_machine::Arch) -> Arch {
    match named {
        raw_machine::Arch::X8664Svm => Arch::Svm,
        raw_machine::Arch::X8664Vmx => Arch::Vmx,
    }
}

/// Refuses a PC's words where the machine is none.
pub fn check(view: &mut View<'_, '_>) {
    if view.facts.pc {
        return;
    }
    let file = view.file;
    let (messages, units) = ("the boot code has no console there", "no unit of it is known");
    let plain: [(bool, &[Step<'_>], &str); 6] = [
        (file.console.is_some(), &[k("console")], messages),
        (file.debug_port.is_some(), &[k("debug_port")], messages),
        (
            file.memory.below_4g.is_some(),
            &[k("memory"), k("below_4g")],
            "`[[ram]]` says where RAM is",
        ),
        (file.ioapic.is_some(), &[k("ioapic")], units),
        (file.iommu.is_some(), &[k("iommu")], units),
        (file.hpet.is_some(), &[k("hpet")], units),
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

/// The IOMMU.
pub fn iommu(view: &mut View<'_, '_>) -> Option<Iommu> {
    let file = view.file;
    let entry = file.iommu.as_ref()?;
    let (align, help) = match entry.kind {
        IommuKind::AmdVi => (4 * PAGE, "its registers start at a multiple of 16 KiB below 4 GiB"),
        IommuKind::VtD => (PAGE, "its registers start at a multiple of 4 KiB below 4 GiB"),
    };
    if !entry.base.is_multiple_of(align) || entry.base >= 1 << 32 || entry.base == 0 {
        let message = format!("there cannot be an IOMMU at {:#x}", entry.base);
        view.report(RULE, &[k("iommu"), k("base")], message, help);
    }
    let path = [k("iommu"), k("ioapic_requester")];
    let requester = entry.ioapic_requester.as_ref();
    let ioapic = requester.and_then(|text| address(view, &path, text));
    if entry.remaps_interrupts && file.ioapic.is_some() && requester.is_none() {
        let message = "the IOAPIC's requester ID is not given".to_owned();
        let help = "the IVRS or DMAR table has it, such as `\"00:14.0\"`";
        view.report(RULE, &path, message, help);
    }
    let remaps_interrupts = entry.remaps_interrupts;
    let kind = match entry.kind {
        IommuKind::AmdVi => {
            let said = amd_lines(view);
            let remaps_lines = if remaps_interrupts { said } else { Some(false) };
            plan::IommuKind::AmdVi { ioapic, remaps_lines }
        }
        IommuKind::VtD => {
            vtd_lines(view);
            plan::IommuKind::VtD { ioapic }
        }
    };
    Some(Iommu { kind, base: entry.base, remaps_interrupts })
}

/// AMD-Vi: whether the IOAPIC's messages are seen is said, or found out at boot.
fn amd_lines(view: &mut View<'_, '_>) -> Option<bool> {
    let file = view.file;
    let entry = file.iommu.as_ref()?;
    // The boot code lets the 8254 fire a line, to see where its interrupt arrives.
    let tried = file.device.iter().any(|device| device.class == PIT && device.irq.is_some());
    let asked = entry.remaps_interrupts && file.ioapic.is_some() && entry.remaps_lines.is_none();
    if asked && !tried {
        let message = "nobody can find out whether the IOMMU sees the IOAPIC's messages".to_owned();
        let help =
            "describe the 8254 as a device of class `pit` with its `irq`, or say `remaps_lines`";
        view.report(RULE, &[k("iommu"), k("remaps_interrupts")], message, help);
    }
    entry.remaps_lines
}

/// VT-d: a unit that remaps interrupts sees those of its IOAPIC. An interrupt entry names one requester ID.
fn vtd_lines(view: &mut View<'_, '_>) {
    let file = view.file;
    let Some(entry) = &file.iommu else { return };
    if entry.remaps_lines.is_some() {
        let message = "a VT-d unit sees its IOAPIC's messages where it remaps interrupts";
        view.report(
            RULE,
            &[k("iommu"), k("remaps_lines")],
            message.to_owned(),
            "leave the key out",
        );
    }
    for (index, function) in file.function.iter().enumerate() {
        if entry.remaps_interrupts && !function.requesters.is_empty() {
            let address = &function.address;
            let message = format!("{address} sends messages under several requester IDs");
            let help = "VT-d validates one for each message: leave the function out";
            view.report(RULE, &[k("function"), n(index), k("requesters")], message, help);
        }
    }
}

/// The interrupt controller: an IOAPIC.
pub fn controller(view: &mut View<'_, '_>) -> Option<Controller> {
    let file = view.file;
    let entry = file.ioapic.as_ref()?;
    if !entry.base.is_multiple_of(PAGE) || entry.base >= 1 << 32 {
        let message = format!("there cannot be an IOAPIC at {:#x}", entry.base);
        let help = "its registers start at a multiple of 4 KiB below 4 GiB";
        view.report(RULE, &[k("ioapic"), k("base")], message, help);
    }
    // Each line takes two of the 256 indices, from 0x10 on.
    if !(1..=120).contains(&entry.lines) {
        let message = format!("an IOAPIC does not have {} lines", entry.lines);
        view.report(RULE, &[k("ioapic"), k("lines")], message, "write 1 to 120");
    }
    Some(Controller::Ioapic(Ioapic { base: entry.base, lines: entry.lines }))
}

/// The timers beside the cores.
pub fn hpet(view: &mut View<'_, '_>) -> Option<Hpet> {
    let entry = view.file.hpet.as_ref()?;
    if !entry.base.is_multiple_of(PAGE) || entry.base >= 1 << 32 || entry.base == 0 {
        let message = format!("there cannot be an HPET at {:#x}", entry.base);
        let help = "its registers start at a multiple of 4 KiB below 4 GiB";
        view.report(HPET, &[k("hpet"), k("base")], message, help);
    }
    // IA-PC HPET 1.0a, 2.3.4: NUM_TIM_CAP has 5 bits, and COUNTER_CLK_PERIOD is at most 0x05F5_E100.
    if !(1..=32).contains(&entry.comparators) {
        let message = format!("an HPET does not have {} comparators", entry.comparators);
        view.report(HPET, &[k("hpet"), k("comparators")], message, "write 1 to 32");
    }
    if !(1..=100_000_000).contains(&entry.period) {
        let message = format!("an HPET's counter has no period of {} fs", entry.period);
        let help = "write 1 to 100000000 femtoseconds";
        view.report(HPET, &[k("hpet"), k("period")], message, help);
    }
    Some(Hpet { base: entry.base, comparators: entry.comparators, period: entry.period })
}

const HPET: &str = "machine-hpet";

/// A line is one of the IOAPIC's.
pub fn line(view: &mut View<'_, '_>, path: &[Step<'_>], line: u32) {
    if let Some(ioapic) = view.file.ioapic.as_ref().filter(|ioapic| line >= ioapic.lines) {
        let message = format!("the IOAPIC has no line {line}");
        let help = format!("it has 0 to {}", ioapic.lines.saturating_sub(1));
        view.report(RULE, path, message, &help);
    }
}

/// Lists the units with addresses that no function may have.
pub fn units(view: &View<'_, '_>) -> Vec<(String, Span)> {
    let file = view.file;
    // The local APICs' page, and the addresses to which message-signalled interrupts are written.
    let local = ("the local APIC".to_owned(), Span { start: 0xFEE0_0000, len: 1 << 20 });
    let ioapic = file.ioapic.iter().map(|unit| ("the IOAPIC", unit.base, 0x1000));
    let iommu = file.iommu.iter().map(|unit| ("the IOMMU", unit.base, 0x4000));
    let hpet = file.hpet.iter().map(|unit| ("the HPET", unit.base, 0x1000));
    let others = ioapic.chain(iommu).chain(hpet);
    let others = others.map(|(name, start, len)| (name.to_owned(), Span { start, len }));
    [local].into_iter().chain(others).collect()
}

/// QEMU has no VT-x.
pub fn emulated(view: &mut View<'_, '_>, emulator: raw_machine::Emulator) {
    if (view.file.arch, emulator) == (raw_machine::Arch::X8664Vmx, raw_machine::Emulator::Qemu) {
        let message = "QEMU emulates no processor with VT-x".to_owned();
        view.report(
            "machine-emulator",
            &[k("arch")],
            message,
            "add `emulator = \"bochs\"`, or `\"none\"` for a real machine",
        );
    }
}
