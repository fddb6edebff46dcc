//! The IOMMU's event log: DMA and messages that it blocked, in words. It lies in the machine's memory. The hardware
//! writes it and nobody takes entries out, so it holds the first ones after the launch, as many as fit. References are
//! to the AMD I/O Virtualization Technology (IOMMU) Specification, 48882, revision 3.10.

use crate::explain::function_at;
use crate::owner::{self, Allow};
use crate::ram::Read;
use crate::rule::Rule;
use bulkhead_plan::kernel::Driven;
use bulkhead_plan::{Bdf, Function, Granted, Guest, Kernel, Plan, Sandbox};
use std::fmt;

/// Bytes of an entry (2.5).
const ENTRY: u64 = 16;

/// An access of a device that was blocked, or another entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Blocked {
    /// The function that tried, or its requester ID if no function is known by it.
    pub function: String,
    /// Sandbox that owns it, if one does.
    pub sandbox: Option<String>,
    /// Access that was tried.
    pub access: String,
    /// Owner of its target.
    pub owner: String,
    /// Id of the guarantee that denies it (docs/guarantees.md).
    pub guarantee: &'static str,
    /// Its sentence, and what the log tells beside it.
    pub rule: String,
    /// Line that would allow it, or why nothing does.
    pub allow: String,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = self.sandbox.as_ref().map_or("nobody's".into(), |name| format!("{name}'s"));
        write!(
            f,
            "{} ({whose}): {} (blocked by the IOMMU); it is {}; rule: {}: {}; {}",
            self.function, self.access, self.owner, self.guarantee, self.rule, self.allow
        )
    }
}

/// An entry: two words.
pub type Entry = [u64; 2];

/// The entries of the log that lies at an address and has so many bytes. One that is not
/// written yet ends it: no event has the code 0.
#[must_use]
pub fn entries(ram: &Read, (start, bytes): (u64, u64)) -> Vec<Entry> {
    let mut all = Vec::new();
    for at in (start..start + bytes).step_by(ENTRY as usize) {
        let mut words = [[0; 8]; 2];
        if !ram(at, words.as_flattened_mut()) {
            break;
        }
        let entry = words.map(u64::from_le_bytes);
        if entry[0] >> 60 == 0 {
            break;
        }
        all.push(entry);
    }
    all
}

/// Tells if a log of so many bytes has no room for another entry.
#[must_use]
pub fn is_full(entries: &[Entry], (_, bytes): (u64, u64)) -> bool {
    bytes > 0 && entries.len() as u64 * ENTRY >= bytes
}

/// Codes of events (2.5.2 and after).
mod code {
    pub const ILLEGAL_DEV_TABLE_ENTRY: u64 = 1;
    pub const IO_PAGE_FAULT: u64 = 2;
    pub const INVALID_DEVICE_REQUEST: u64 = 8;
}

/// Bits of an IO_PAGE_FAULT (2.5.3).
mod fault {
    /// The transaction was an interrupt message.
    pub const INTERRUPT: u64 = 1 << 51;
    /// The page is present, and the right missing. Without it, [`WRITE`] says nothing.
    pub const PRESENT: u64 = 1 << 52;
    /// A write.
    pub const WRITE: u64 = 1 << 53;
    /// A request for a translation.
    pub const TRANSLATION: u64 = 1 << 56;
}

/// An entry for a fault recording register of VT-d (VT-d specification, 11.4.14): its lower and its upper half. `None`:
/// it holds nothing.
#[must_use]
pub fn of_vtd([low, high]: [u64; 2]) -> Option<Entry> {
    const FAULT: u64 = 1 << 63;
    const READ: u64 = 1 << 62;
    /// Reasons of interrupt requests (7.1.3).
    const INTERRUPTS: std::ops::RangeInclusive<u64> = 0x20..=0x2F;
    if high & FAULT == 0 {
        return None;
    }
    let requester = high & 0xFFFF;
    let page_fault = code::IO_PAGE_FAULT << 60 | requester;
    if INTERRUPTS.contains(&(high >> 32 & 0xFF)) {
        let index = low >> 48;
        let message = 0xFEE0_0010 | (index & 0x7FFF) << 5 | (index >> 15) << 2;
        return Some([page_fault | fault::INTERRUPT, message]);
    }
    // It says which of both it was, and the page.
    let write = if high & READ == 0 { fault::WRITE } else { 0 };
    Some([page_fault | fault::PRESENT | write, low & !0xFFF])
}

/// Explains an entry.
#[must_use]
pub fn blocked(plan: &Plan, [first, address]: Entry) -> Blocked {
    let requester = Bdf(first as u16);
    let function = function_of(plan, requester);
    let owner = plan.sandboxes.iter().find(|s| {
        s.functions.iter().any(|granted| Some(granted.function.bdf) == function.map(|f| f.bdf))
    });
    let (access, words) = match first >> 60 {
        code::IO_PAGE_FAULT if first & fault::INTERRUPT != 0 => {
            (format!("interrupt message to {address:#x}"), message(plan, owner, function))
        }
        code::IO_PAGE_FAULT => {
            let is = |flag| first & flag != 0;
            let how = match (is(fault::TRANSLATION), is(fault::PRESENT), is(fault::WRITE)) {
                (true, ..) => "request to translate",
                (_, false, _) => "DMA to or from",
                (_, _, true) => "DMA write to",
                (_, _, false) => "DMA read of",
            };
            (format!("{how} {address:#x}"), memory(plan, owner, function, address))
        }
        code @ (code::ILLEGAL_DEV_TABLE_ENTRY | code::INVALID_DEVICE_REQUEST) => {
            let what = match code {
                code::ILLEGAL_DEV_TABLE_ENTRY => "through an illegal entry of the device table",
                _ => "that no device may send",
            };
            (format!("request at {address:#x} {what}"), memory(plan, owner, function, address))
        }
        code => (
            format!("event {code:#x} with operands {first:#x}, {address:#x}"),
            (
                "the IOMMU's own".into(),
                const { Rule::of("iommu-control") },
                "nothing in a manifest is about it".into(),
            ),
        ),
    };
    let (owner_of, rule, allow) = words;
    Blocked {
        function: function.map_or_else(|| format!("requester {requester}"), |f| f.bdf.to_string()),
        sandbox: owner.map(|s| s.name.clone()),
        access,
        owner: owner_of,
        guarantee: rule.guarantee.id,
        rule: rule.text(),
        allow,
    }
}

/// Owner, rule, and what would allow it.
type Words = (String, Rule, String);

/// Finds the function that appears under a requester ID, first among those that a sandbox owns.
fn function_of(plan: &Plan, requester: Bdf) -> Option<&Function> {
    let is = |f: &&Function| f.bdf == requester || f.requesters.contains(&requester);
    let granted = plan.sandboxes.iter().flat_map(|s| &s.functions).map(|g| &g.function);
    let described = plan.machine.functions.iter();
    let own = |f: &&Function| f.bdf == requester;
    granted.clone().find(is).or_else(|| described.clone().find(own)).or_else(|| {
        let mut described = described;
        described.find(is)
    })
}

/// Rule of functions' memory.
const MAP: Rule = Rule::of("dma-map");

/// Explains an access to memory: owner, rule, what would allow it. A device's addresses are its owner's guest-physical
/// ones.
fn memory(
    plan: &Plan,
    owner: Option<&Sandbox>,
    function: Option<&Function>,
    address: u64,
) -> Words {
    let Some(owner) = owner else {
        return (owned_by_nobody(plan, address), MAP, grant(function));
    };
    if let Some(words) = of_role(plan, owner, function, address) {
        return words;
    }
    if let Some(words) = of_kernel(plan, owner, function, address) {
        return words;
    }
    let answer = owner::address(plan, owner, address);
    let of_function = function_at(plan, owner, address).is_some();
    match answer.allow {
        Allow::Has if of_function => (
            "a function's registers".to_owned(),
            MAP,
            "nothing in a manifest allows it: devices reach memory alone".to_owned(),
        ),
        Allow::Has => {
            let rule = const { Rule::of("dma-rights") };
            ("its own, without that right".to_owned(), rule, granted(owner, function))
        }
        other => (format!("{} ({})", answer.owner, answer.why), MAP, other.to_string()),
    }
}

/// Explains an access of a role's function: it reaches channels of the role alone, whoever has it.
fn of_role(
    plan: &Plan,
    owner: &Sandbox,
    function: Option<&Function>,
    address: u64,
) -> Option<Words> {
    const RULE: Rule =
        MAP.with("a role's function reaches the channels that the role names in `dma`");
    let is = |granted: &&Granted| Some(granted.function.bdf) == function.map(|f| f.bdf);
    let role = owner.functions.iter().find(is).and_then(|granted| plan.roles.get(granted.role?))?;
    let answer = owner::address(plan, owner, address);
    let allow =
        format!("{}: `dma` allows it for channels of pages of the role", owner::at(&role.place));
    Some((answer.owner, RULE, allow))
}

/// Explains an access to a kernel's sandbox: its functions reach what their drivers name.
fn of_kernel(
    plan: &Plan,
    owner: &Sandbox,
    function: Option<&Function>,
    address: u64,
) -> Option<Words> {
    const RULE: Rule =
        MAP.with("a kernel's function reaches the memory that its driver names in `dma`");
    let Guest::Kernel(kernel) = &owner.guest else { return None };
    let is = |granted: &Granted| Some(granted.function.bdf) == function.map(|f| f.bdf);
    let n = owner.functions.iter().position(is)?;
    let index = plan.sandboxes.iter().position(|one| one.name == owner.name)?;
    let within = |start: u64, len: u64| address >= start && address - start < len;
    let mut dma = plan.dma(index, n)?.into_iter();
    let allowed = dma.find(|dma| within(dma.gpa, dma.len));
    let region = { plan.channels.iter() }.find(|region| {
        (region.writes(index) || region.reads(index)) && within(region.gpa, region.len)
    });
    let ram = owner.ram.first().filter(|ram| within(ram.gpa, ram.len));
    let whose = match (region, ram) {
        (Some(region), _) => format!("channel {}", region.title()),
        (None, Some(ram)) => of_ram(owner, kernel, address - ram.gpa, ram.len),
        (None, None) => return None,
    };
    if allowed.is_some() {
        let allow = match region {
            Some(_) => "nothing in a manifest allows it: the other sandbox alone writes there",
            None => "`maps` of its driver, with `access = \"rw\"`",
        };
        return Some((whose, const { Rule::of("dma-rights") }, allow.into()));
    }
    let allow = match kernel.driver(Driven::Function(n)) {
        Some((program, _)) => format!(
            "`dma` of the device in {}, the program {}, allows it for shared memory and for data of channels alone",
            owner::at(&program.place),
            program.name
        ),
        None => format!("no program of {} drives it: `devices` of one with `dma`", owner.name),
    };
    Some((whose, RULE, allow))
}

/// Names the part of a kernel's RAM that has an offset.
fn of_ram(owner: &Sandbox, kernel: &Kernel, at: u64, len: u64) -> String {
    let holds = |shared: &usize| {
        let start = kernel.place_for_devices(*shared, len);
        start.is_some_and(|start| (start..start + kernel.shared[*shared].len).contains(&at))
    };
    match (0..kernel.shared.len()).find(holds) {
        Some(shared) => format!("shared memory {} of {}", kernel.shared[shared].name, owner.name),
        None => format!("the kernel of {}, or a program of it", owner.name),
    }
}

/// Names the owner of a machine address: a function that no sandbox owns is not translated.
fn owned_by_nobody(plan: &Plan, address: u64) -> String {
    let in_ram = |s: &&Sandbox| s.ram.iter().any(|r| address >= r.hpa && address - r.hpa < r.len);
    match plan.sandboxes.iter().find(in_ram) {
        Some(s) => format!("RAM of {}", s.name),
        None => "no sandbox's RAM".into(),
    }
}

/// Explains a message.
fn message(plan: &Plan, owner: Option<&Sandbox>, function: Option<&Function>) -> Words {
    let whose = if plan.sandboxes.len() > 1 { "a core of whoever it names" } else { "a core" };
    let allow = owner.map_or_else(|| grant(function), |owner| granted(owner, function));
    (whose.into(), const { Rule::of("dma-messages") }, allow)
}

/// Where the manifest grants the function.
fn granted(owner: &Sandbox, function: Option<&Function>) -> String {
    let granted = owner.functions.iter().find(|g| Some(g.function.bdf) == function.map(|f| f.bdf));
    let place = granted.map_or(&owner.place, |granted| &granted.place);
    format!("nothing in a manifest allows it; {} grants the function", owner::at(place))
}

/// Says what would grant a function that is nobody's.
fn grant(function: Option<&Function>) -> String {
    match function {
        Some(f) => match bulkhead_manifest::rules::pci::nobody(f) {
            Some(why) => format!("nothing in a manifest allows it: {why}"),
            None => format!("`devices = [\"pci:{}\"]` gives it to a sandbox", f.bdf),
        },
        None => "no function of the machine description appears as that".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_plan::kernel::{DeviceUse, Map, Program, Reached, Shared, Test};
    use bulkhead_plan::{Machine, Place, Ram};

    const EDU: Bdf = Bdf(0x40);
    const CARD: Bdf = Bdf(0x100);
    /// The card's requests bear this one, too.
    const ALIAS: Bdf = Bdf(0x08);
    const FREE: Bdf = Bdf(0x18);

    fn sandbox(name: &str, line: usize, owned: &[&Function]) -> Sandbox {
        let place = |line| Place { file: "m.toml".into(), line, column: 1 };
        let granted = |f: &&Function| Granted {
            function: (*f).clone(),
            place: place(line + 4),
            ..Granted::default()
        };
        Sandbox {
            name: name.into(),
            place: place(line),
            ram: vec![Ram { gpa: 0, hpa: 0x100_0000 * line as u64, len: 0x100_0000 }],
            functions: owned.iter().map(granted).collect(),
            ..Sandbox::default()
        }
    }

    fn plan() -> Plan {
        let function = |bdf| Function { bdf, class: 0xFF00, ..Function::default() };
        let edu = function(EDU);
        let card = Function { requesters: vec![ALIAS], ..function(CARD) };
        let bridge = Function { class: 0x06_0400, ..function(Bdf(0x10)) };
        Plan {
            system: "test".into(),
            manifest: "m.toml".into(),
            sandboxes: vec![sandbox("rogue", 7, &[&edu]), sandbox("net", 20, &[&card])],
            machine: Machine {
                functions: vec![bridge, function(FREE), edu, card],
                ..Machine::default()
            },
            ..Plan::default()
        }
    }

    /// IO_PAGE_FAULT of a requester, domain 5, with flags.
    fn fault(of: Bdf, flags: u64, address: u64) -> Entry {
        [2 << 60 | flags | 5 << 32 | u64::from(of.0), address]
    }

    fn text(entry: Entry) -> String {
        blocked(&plan(), entry).to_string()
    }

    #[test]
    fn a_fault_register_is_an_entry() {
        let register = |reason: u64, read: bool, low| {
            let upper = 1 << 63 | u64::from(read) << 62 | reason << 32 | u64::from(EDU.0);
            of_vtd([low, upper]).map(text).unwrap_or_default()
        };
        let written = register(5, false, 0x4000_0000);
        assert!(written.contains("00:08.0 (rogue's): DMA write to 0x40000000"), "{written}");
        let read = register(6, true, 0x4000_0000);
        assert!(read.contains("DMA read of 0x40000000"), "{read}");
        let message = register(0x26, false, 0x170 << 48);
        assert!(message.contains("interrupt message to 0xfee02e10"), "{message}");
        assert_eq!(of_vtd([u64::MAX, !(1 << 63)]), None);
    }

    #[test]
    fn a_fault_names_function_owner_address_rule_and_line() {
        let told = text(fault(EDU, 1 << 53, 0x4000_0000));
        for part in [
            "00:08.0 (rogue's): DMA to or from 0x40000000 (blocked by the IOMMU); it is nobody's",
            "rule: dma-map: a function reaches the memory of its sandbox, and nothing else; ",
            "m.toml:7",
        ] {
            assert!(told.contains(part), "{part} is not in {told}");
        }
        let told = text(fault(EDU, 1 << 53 | 1 << 52, 0x2000));
        assert!(told.contains("DMA write to 0x2000"), "{told}");
        let told = text(fault(EDU, 1 << 52, 0x1000));
        assert!(told.contains("DMA read of 0x1000"), "{told}");
        assert!(told.contains("it is its own, without that right; rule: dma-rights: "), "{told}");
        assert!(told.contains("m.toml:11 grants the function"), "{told}");
        let told = text(fault(EDU, 1 << 56 | 1 << 53, 0x1000));
        assert!(told.contains("request to translate 0x1000"), "{told}");
    }

    /// A kernel with a driver of its first function, which reaches 4 KiB at the end of 16 MiB.
    fn kernel(place: Place) -> Guest {
        let driver = Program {
            name: "disk".into(),
            place: place.clone(),
            maps: vec![Map { shared: 0, write: false }],
            devices: vec![DeviceUse {
                device: Driven::Function(0),
                interrupts: Vec::new(),
                dma: vec![Reached::Shared(0)],
            }],
            ..Program::default()
        };
        Guest::Kernel(Box::new(Kernel {
            file: "k".into(),
            admission: Test::None,
            programs: vec![driver],
            shared: vec![Shared { name: "blocks".into(), place, len: 0x1000 }],
            ..Kernel::default()
        }))
    }

    #[test]
    fn a_kernels_function_reaches_what_its_driver_names() {
        let mut plan = plan();
        plan.sandboxes[0].guest = kernel(Place { file: "m.toml".into(), line: 30, column: 1 });
        let told = |address| blocked(&plan, fault(EDU, 1 << 53 | 1 << 52, address)).to_string();
        for part in [
            "00:08.0 (rogue's): DMA write to 0x200000",
            "it is the kernel of rogue, or a program of it",
            "; rule: dma-map: ",
            "nothing else: a kernel's function reaches the memory that its driver names in `dma`",
            "m.toml:30, the program disk",
        ] {
            assert!(told(0x20_0000).contains(part), "{part} is not in {}", told(0x20_0000));
        }
        assert!(told(0xFF_F008).contains("it is shared memory blocks of rogue"));
        // Beyond its memory nothing is different.
        assert!(told(0x4000_0000).contains("the memory of its sandbox, and nothing else; "));
    }

    #[test]
    fn a_message_is_no_memory() {
        let told = text(fault(EDU, 1 << 51 | 1 << 53, 0xFEE0_0000));
        assert!(told.contains("interrupt message to 0xfee00000"), "{told}");
        assert!(told.contains("rule: dma-messages: a message that a function"), "{told}");
    }

    #[test]
    fn a_function_is_known_by_all_its_requester_ids() {
        for (requester, name) in [(CARD, "01:00.0 (net's)"), (ALIAS, "01:00.0 (net's)")] {
            let told = text(fault(requester, 1 << 53, 0x4000_0000));
            assert!(told.starts_with(name), "{told}");
        }
        let told = text(fault(Bdf(0x5500), 1 << 53, 0));
        assert!(told.starts_with("requester 55:00.0 (nobody's)"), "{told}");
    }

    #[test]
    fn what_nobody_owns_reaches_nothing() {
        let told = text(fault(FREE, 1 << 53, 0x700_0000));
        assert!(told.starts_with("00:03.0 (nobody's): DMA to or from 0x7000000"), "{told}");
        assert!(told.contains("it is RAM of rogue"), "{told}");
        assert!(told.contains("`devices = [\"pci:00:03.0\"]` gives it to a sandbox"), "{told}");
        let told = text(fault(Bdf(0x10), 0, 0));
        assert!(told.contains("nothing in a manifest allows it: it forwards"), "{told}");
    }

    #[test]
    fn other_events_are_shown_too() {
        let told = text([1 << 60 | 0x40, 0x1234_5000]);
        assert!(told.contains("00:08.0 (rogue's): request at 0x12345000 through an illegal"));
        let told = text([5 << 60, 0x2000]);
        assert!(told.contains("event 0x5"), "{told}");
    }

    #[test]
    fn the_log_ends_with_what_is_not_written() {
        let events = [fault(EDU, 0, 1), fault(CARD, 0, 2), [0x40, 3], fault(EDU, 0, 4)];
        let log: Vec<u8> = events.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        let ram = |pa: u64, bytes: &mut [u8]| {
            let at = pa.wrapping_sub(0x5000) as usize;
            let found = log.get(at..at + bytes.len());
            found.map(|found| bytes.copy_from_slice(found)).is_some()
        };
        assert_eq!(entries(&ram, (0x5000, 64)), events[..2]);
        assert_eq!(entries(&ram, (0x5000, 16)), events[..1]);
        assert_eq!(entries(&ram, (0, 0)), [[0; 2]; 0]);
        let full = |bytes| is_full(&events[..2], (0x5000, bytes));
        assert!(full(32) && !full(48) && !full(0));
        // The log's end is not RAM.
        assert_eq!(entries(&ram, (0x5030, 0x1000)), events[3..]);
    }
}
