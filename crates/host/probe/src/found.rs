//! A Linux' knowledge of its machine, as a machine description.

use crate::acpi;
use crate::pci::{self, Decoded};
use crate::resources::{self, Resource};
use crate::tree::Tree;
use crate::{devices, memory};
use bulkhead_manifest::raw_machine::{
    Arch, Emulator, IoapicEntry, IommuEntry, IommuKind, MachineFile,
};
use bulkhead_plan::Span;

/// Lines of an IOAPIC, where Linux does not say.
const LINES: u32 = 24;

/// A description, and what it was made from.
pub struct Found {
    /// The description.
    pub file: MachineFile,
    /// All RAM that the firmware leaves free, before anything was rounded off.
    pub free: Vec<Span>,
    /// All that the host bridge decodes.
    pub decoded: Decoded,
    /// Facts that could not be found out.
    pub notes: Vec<String>,
}

/// Looks at everything.
///
/// # Errors
/// A fact that a description cannot do without, and the reason why it is missing.
pub fn look(tree: &Tree) -> Result<Found, String> {
    let mut notes = Vec::new();
    let list = |path: &str| resources::read(&tree.text(path).unwrap_or_default());
    let processors = tree.text("proc/cpuinfo").ok_or("/proc/cpuinfo cannot be read")?;
    let arch = arch(&processors, &mut notes);
    let (iomem, ioports) = (list("proc/iomem"), list("proc/ioports"));
    if resources::hidden(&iomem) {
        return Err("/proc/iomem has no addresses: only root may see them".into());
    }
    let (free, rest) = resources::firmware_map(tree)
        .or_else(|| map_of(&iomem))
        .ok_or("there is no memory map in /sys/firmware/memmap or /proc/iomem")?;
    let table = |name: &str| tree.bytes(&format!("sys/firmware/acpi/tables/{name}"));
    let fixed = table("FACP").and_then(|fadt| acpi::fixed(&fadt));
    let iommu = amd_vi(&table("IVRS").unwrap_or_default(), &mut notes)
        .or_else(|| vt_d(&table("DMAR").unwrap_or_default(), &mut notes));
    let ioapic = ioapic(tree, &table("APIC").unwrap_or_default(), &mut notes);
    let function = pci::functions(tree, &mut notes);
    let decoded = pci::windows(&iomem, &ioports);
    let root = table("MCFG").and_then(|mcfg| acpi::ecam(&mcfg));
    let pci = root.map(|ecam| pci::root(ecam, &decoded, &function));
    if pci.is_none() {
        notes.push("There is no MCFG table, so no PCI function can be granted".into());
    }
    if iommu.is_some() && !pci::knows_groups(tree) {
        notes.push("Linux does not use the IOMMU, so groups are not known".into());
    }

    let mut taken: Vec<(String, Span)> = Vec::new();
    let mut take = |name: &str, start: u64, len: u64| {
        taken.push((name.to_owned(), Span { start, len }));
    };
    if let Some(pci) = &pci {
        let buses = u64::from(pci.last_bus) + 1;
        take("PCI configuration (ECAM)", pci.ecam, buses << 20);
        pci.memory.iter().for_each(|[start, end]| take("PCI memory", *start, end - start));
    }
    for (base, _) in acpi::ioapics(&table("APIC").unwrap_or_default()) {
        take("IOAPIC", base, 0x1000);
    }
    if let Some(base) = table("HPET").and_then(|hpet| acpi::hpet(&hpet)) {
        take("HPET", base / 0x1000 * 0x1000, 0x1000);
    }
    if let Some(iommu) = &iommu {
        let len = match iommu.kind {
            IommuKind::AmdVi => 0x4000,
            IommuKind::VtD => 0x1000,
        };
        take("IOMMU", iommu.base, len);
    }
    let memory = memory::describe(&free, &rest, taken);
    let device = devices::devices(&ioports, fixed.as_ref());
    let serial = device.iter().find(|device| device.class == "uart16550");
    let file = MachineFile {
        version: Some(1),
        name: name(tree),
        arch,
        // QEMU has no VT-x, and Linux doesn't know Bochs from a PC.
        emulator: (arch == Arch::X8664Vmx).then_some(Emulator::None),
        cores: cores(&processors)?,
        console: serial.map(|device| device.name.clone()),
        debug_port: None,
        memory: memory.size,
        ram: memory.ram,
        reserved: memory.reserved,
        device,
        function: if pci.is_some() { function } else { Vec::new() },
        pci,
        iommu,
        ioapic,
        // Registers that no user of Linux sees have its comparators and its period.
        hpet: None,
        qemu: None,
    };
    Ok(Found { file, free, decoded, notes })
}

/// Returns the memory map of `/proc/iomem`, for kernels without the firmware's own.
fn map_of(iomem: &[Resource]) -> Option<(Vec<Span>, Vec<Span>)> {
    let outer = iomem.iter().filter(|resource| resource.depth == 0);
    let (free, rest): (Vec<_>, Vec<_>) = outer
        .filter(|r| {
            let firmware = ["System RAM", "Reserved", "reserved"].contains(&r.name.as_str());
            firmware || r.name.starts_with("ACPI")
        })
        .partition(|r| r.name == "System RAM");
    let spans = |all: Vec<&Resource>| all.into_iter().map(|r| r.span).collect::<Vec<_>>();
    let (free, rest) = (spans(free), spans(rest));
    (!free.is_empty()).then_some((free, rest))
}

/// Words behind a key of `/proc/cpuinfo`, of the first processor.
fn words<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let of = |line: &'a str| line.split_once(':').filter(|(name, _)| name.trim() == key);
    text.lines()
        .find_map(of)
        .map(|(_, words)| words.split_whitespace().collect())
        .unwrap_or_default()
}

/// Virtualization of the processors, by their flags; by their maker where none shows. Firmware can switch it off.
fn arch(text: &str, notes: &mut Vec<String>) -> Arch {
    /// Features of VT-x that a monitor cannot do without, as Linux names them.
    const NEEDED: [&str; 5] = ["ept", "ept_1gb", "vpid", "invvpid", "unrestricted_guest"];
    let flags = words(text, "flags");
    if !flags.contains(&"vmx") && words(text, "vendor_id") != ["GenuineIntel"] {
        return Arch::X8664Svm;
    }
    if !flags.contains(&"vmx") {
        notes.push("The processors do not show VT-x: does the firmware switch it off?".into());
    }
    let has = words(text, "vmx flags");
    let lacks: Vec<_> = NEEDED.into_iter().filter(|name| !has.contains(name)).collect();
    // Older kernels have no such line.
    if !has.is_empty() && !lacks.is_empty() {
        notes.push(format!("The processors' VT-x lacks {}, so no monitor runs", lacks.join(", ")));
    }
    if !flags.is_empty() && !flags.contains(&"x2apic") {
        notes.push("The processors have no x2APIC, so no monitor runs".into());
    }
    Arch::X8664Vmx
}

/// x2APIC IDs, ascending: Linux may count cores in another order.
fn cores(text: &str) -> Result<Vec<u32>, String> {
    let id = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "apicid").then(|| value.trim().parse().ok())?
    };
    let mut ids: Vec<u32> = text.lines().filter_map(id).collect();
    ids.sort_unstable();
    ids.dedup();
    match ids.is_empty() {
        true => Err("/proc/cpuinfo has no APIC IDs".into()),
        false => Ok(ids),
    }
}

/// Returns the maker's name for the machine, in lower-case letters, digits and hyphens.
fn name(tree: &Tree) -> String {
    let text = tree.text("sys/class/dmi/id/product_name").unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' };
    let words: String = text.chars().map(plain).collect();
    let words: Vec<&str> = words.split_whitespace().collect();
    if words.is_empty() { "machine".into() } else { words.join("-") }
}

/// Returns the first of several IOMMUs.
fn only(all: &[acpi::Iommu], notes: &mut Vec<String>) -> Option<acpi::Iommu> {
    if all.len() > 1 {
        notes.push(format!(
            "This machine has {} IOMMUs; a description has one, the first",
            all.len()
        ));
    }
    all.first().copied()
}

/// Intel's.
fn vt_d(dmar: &[u8], notes: &mut Vec<String>) -> Option<IommuEntry> {
    let all = acpi::dmar(dmar);
    let first = only(&all.units, notes)?;
    for (start, end, functions) in &all.reserved {
        let names: Vec<_> = functions.iter().map(ToString::to_string).collect();
        let whose = if names.is_empty() { "some device".into() } else { names.join(", ") };
        notes.push(format!(
            "The firmware reserves {start:#x} to {end:#x} for {whose}: nobody's tables map that"
        ));
    }
    let ioapic = first.ioapic.filter(|_| all.interrupts);
    Some(IommuEntry {
        kind: IommuKind::VtD,
        base: first.base,
        remaps_interrupts: ioapic.is_some(),
        remaps_lines: None,
        ioapic_requester: ioapic.map(|bdf| bdf.to_string()),
    })
}

/// AMD's.
fn amd_vi(ivrs: &[u8], notes: &mut Vec<String>) -> Option<IommuEntry> {
    let first = only(&acpi::iommus(ivrs), notes)?;
    Some(IommuEntry {
        kind: IommuKind::AmdVi,
        base: first.base,
        remaps_interrupts: first.ioapic.is_some(),
        // ACPI does not say; the boot code finds out.
        remaps_lines: None,
        ioapic_requester: first.ioapic.map(|bdf| bdf.to_string()),
    })
}

/// Finds the IOAPIC with the lines from 0 on. Their number is in the boot messages, or follows from the first line of
/// the next IOAPIC.
fn ioapic(tree: &Tree, madt: &[u8], notes: &mut Vec<String>) -> Option<IoapicEntry> {
    let all = acpi::ioapics(madt);
    let (base, _) = *all.first().filter(|(_, line)| *line == 0)?;
    if all.len() > 1 {
        notes.push(format!(
            "This machine has {} IOAPICs; a description has one, the first",
            all.len()
        ));
    }
    let lines =
        all.get(1).map(|(_, line)| *line).or_else(|| said(tree, base)).unwrap_or_else(|| {
            notes.push(format!(
                "Linux does not tell any more how many lines the IOAPIC has: {LINES}?"
            ));
            LINES
        });
    Some(IoapicEntry { base, lines })
}

/// `IOAPIC[0]: apic_id 0, version 32, address 0xfec00000, GSI 0-23`.
fn said(tree: &Tree, base: u64) -> Option<u32> {
    let messages = tree.messages()?;
    let address = format!("address {base:#x}, GSI 0-");
    let rest = messages.lines().find_map(|line| {
        let (start, rest) = line.split_once(&address)?;
        start.contains("IOAPIC[").then_some(rest)
    })?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse::<u32>().ok()?.checked_add(1)
}
