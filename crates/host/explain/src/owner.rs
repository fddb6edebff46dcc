//! Owners of things of the machine: why, what a sandbox gets of each, and which line of the manifest would grant it.
//! They are for denied accesses ([`crate::explain`]) and for questions (`bulkhead explain`).

use crate::rule::Rule;
use crate::{arch, explain};
use bulkhead_layout::PAGE;
use bulkhead_layout::hypercall::{CONTROL, CONTROL_START, index};
use bulkhead_layout::map::{
    GUEST_HIGH, INFO_GPA, LINKS_END, PROGRESS_GPA, REPORT_STRIDE, REPORTS_GPA, ROLES_GPA,
    SNAPSHOTS_GPA,
};
use bulkhead_layout::report::Denial;
use bulkhead_layout::snapshot::{PAGES, bytes};
use bulkhead_plan::{
    Bdf, Channel, Device, Function, Guest, MmioPart, Part, Place, Plan, RIGHTS, Right, Role,
    Sandbox, Span, Trigger,
};
use std::fmt;

/// Line that would grant a thing, or the reason for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    /// The sandbox has it.
    Has,
    /// `key` of the sandbox, with this value.
    Line {
        /// The sandbox's place in the manifest.
        place: String,
        /// The key.
        key: &'static str,
        /// Its value, or an element of it, as it is written.
        value: String,
    },
    /// A change of another kind.
    Change(String),
    /// Nothing, and why.
    Never(String),
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Has => write!(f, "it has that right"),
            Self::Line {
                place,
                key: key @ ("devices" | "stop" | "start" | "restart" | "observe"),
                value,
            } => {
                write!(f, "{place}: {key} = [{value}]")
            }
            Self::Line { place, key, value } => write!(f, "{place}: {key} = {value}"),
            Self::Change(text) => write!(f, "{text}"),
            Self::Never(why) if why.is_empty() => write!(f, "nothing in a manifest allows it"),
            Self::Never(why) => write!(f, "nothing in a manifest allows it: {why}"),
        }
    }
}

/// All about a thing, for one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Description of the thing.
    pub what: String,
    /// Its owner.
    pub owner: String,
    /// Where that is said.
    pub why: String,
    /// The rule.
    pub rule: Rule,
    /// Effect of a use by the sandbox.
    pub gets: String,
    /// Line that would grant it, or the reason for none.
    pub allow: Allow,
}

/// Something of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// Guest-physical address.
    Address(u64),
    /// I/O port.
    Port(u16),
    /// Interrupt line.
    Line(u32),
    /// Model-specific register.
    Msr(u32),
    /// PCI function.
    Function(Bdf),
    /// Device of the machine description.
    Device(String),
}

/// A number, decimal or with `0x`, `_` allowed.
fn number(text: &str) -> Option<u64> {
    let plain = text.replace('_', "");
    match plain.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => plain.parse().ok(),
    }
}

impl Thing {
    /// `0x100000`, `port 0x3f8`, `irq 4`, `msr 0x10`, `pci:01:00.0`, `uart1`.
    ///
    /// # Errors
    /// The text names no thing; the error says what it could have been.
    pub fn parse(plan: &Plan, text: &str) -> Result<Self, String> {
        let (kind, value) = text.split_once(char::is_whitespace).unwrap_or(("", text));
        let value = value.trim();
        let wrong = |what: &str| format!("`{value}` is no {what}");
        let limited =
            |max: u64, what: &str| number(value).filter(|n| *n <= max).ok_or_else(|| wrong(what));
        match kind {
            "" => {}
            "port" => return Ok(Self::Port(limited(0xFFFF, "port")? as u16)),
            "irq" | "line" | "gsi" => {
                return Ok(Self::Line(limited(1023, "interrupt line")? as u32));
            }
            "msr" => return Ok(Self::Msr(limited(u64::from(u32::MAX), "MSR")? as u32)),
            "address" => return Ok(Self::Address(limited(u64::MAX, "address")?)),
            _ => return Err(format!("`{kind}` is none of `port`, `irq`, `msr` and `address`")),
        }
        if text.starts_with("0x") {
            return number(text).map(Self::Address).ok_or_else(|| wrong("address"));
        }
        if text.starts_with("pci:") {
            let functions = bulkhead_manifest::rules::pci::matching(&plan.machine, text);
            let names: Vec<String> = functions.iter().map(|f| format!("pci:{}", f.bdf)).collect();
            return match functions[..] {
                [one] => Ok(Self::Function(one.bdf)),
                [] => Err(format!("machine `{}` has no function `{text}`", plan.machine.name)),
                _ => Err(format!("`{text}` fits {}", names.join(", "))),
            };
        }
        if plan.machine.devices.iter().any(|device| device.name == text) {
            return Ok(Self::Device(text.to_owned()));
        }
        let forms =
            "an address such as 0x1000, `port N`, `irq N`, `msr N`, `pci:BB:DD.F` or a device";
        Err(format!("machine `{}` has no device `{text}`; ask for {forms}", plan.machine.name))
    }
}

/// Answers for a sandbox.
#[must_use]
pub fn about(plan: &Plan, who: &Sandbox, thing: &Thing) -> Answer {
    match thing {
        Thing::Address(gpa) => address(plan, who, *gpa),
        Thing::Port(_) | Thing::Msr(_) => arch::of(plan).register(plan, who, thing),
        Thing::Line(number) => line(plan, who, *number),
        Thing::Function(bdf) => match plan.machine.functions.iter().find(|f| f.bdf == *bdf) {
            Some(function) => pci(plan, who, function),
            None => nobodys(format!("PCI function {bdf}"), "no such function"),
        },
        Thing::Device(name) => match plan.machine.devices.iter().find(|d| d.name == *name) {
            Some(found) => device(plan, who, found),
            None => nobodys(format!("device {name}"), "no such device"),
        },
    }
}

/// The rule of guests' memory.
const MEMORY: Rule = Rule::of("nested-map");
/// The rule of ports.
pub const PORTS: Rule = Rule::of("ports");
/// The rule of PCI functions.
pub const VISIBLE: Rule = Rule::of("pci-visible");
/// The rule of interrupt lines.
pub const LINES: Rule = Rule::of("interrupt-lines");
/// The rule of model-specific registers.
pub const REGISTERS: Rule = Rule::of("registers");
/// The rule of rights over others' lives.
pub const CONTROL_RULE: Rule = Rule::of("control-right");

pub(crate) fn nobodys(what: String, why: &str) -> Answer {
    Answer {
        what,
        owner: "nobody's".into(),
        why: why.to_owned(),
        rule: MEMORY,
        gets: "nothing".into(),
        allow: Allow::Never(String::new()),
    }
}

/// `file:line`.
#[must_use]
pub fn at(place: &Place) -> String {
    format!("{}:{}", place.file.display(), place.line)
}

pub(crate) fn linux(sandbox: &Sandbox) -> bool {
    matches!(sandbox.guest, Guest::Linux { .. })
}

/// Says what is left to do to get a device or function of that name.
fn grant(who: &Sandbox, name: &str, nobody: Option<&str>) -> Allow {
    match nobody {
        Some(why) => Allow::Never(why.to_owned()),
        None => Allow::Line { place: at(&who.place), key: "devices", value: format!("\"{name}\"") },
    }
}

/// A device of the machine's.
pub fn device(plan: &Plan, who: &Sandbox, device: &Device) -> Answer {
    let what = format!("device `{}` (class {})", device.name, device.class);
    let of = |s: &Sandbox| s.devices.iter().find(|own| own.name == device.name).cloned();
    let owner = plan.sandboxes.iter().find_map(|s| Some((s, of(s)?)));
    let (owner, why, gets, allow) = match owner {
        Some((owner, own)) if owner.name == who.name => (
            format!("{}'s", owner.name),
            format!("{} grants it", at(&own.place)),
            "its ports without an exit, and its interrupt line".to_owned(),
            Allow::Has,
        ),
        Some((owner, own)) => (
            format!("{}'s", owner.name),
            format!("{} grants it", at(&own.place)),
            "nothing of it".into(),
            Allow::Change(format!("take it from {} at {}", owner.name, at(&own.place))),
        ),
        None => {
            let described = at(&device.place);
            let why = match &device.nobody {
                Some(why) => format!("{described} says that it is nobody's: {why}"),
                None => format!("{described} describes it, no sandbox has it"),
            };
            let allow = match &device.nobody {
                None if !device.mmio.is_empty() => {
                    Allow::Change("a `[[shared_mmio]]` gives pages of its registers".into())
                }
                nobody => grant(who, &device.name, nobody.as_deref()),
            };
            ("the machine's".into(), why, "nothing of it".into(), allow)
        }
    };
    Answer { what, owner, why, rule: PORTS, gets, allow }
}

/// A PCI function.
#[must_use]
pub fn pci(plan: &Plan, who: &Sandbox, function: &Function) -> Answer {
    let (bdf, vendor, device) = (function.bdf, function.vendor, function.device);
    let what = format!("PCI function {bdf} ({vendor:04x}:{device:04x})");
    let of = |s: &'_ Sandbox| s.functions.iter().find(|own| own.function.bdf == bdf).cloned();
    let owner = plan.sandboxes.iter().find_map(|s| Some((s, of(s)?)));
    let absent = "its configuration space reads as all ones, writes are denied";
    let role = owner.as_ref().and_then(|(_, own)| plan.roles.get(own.role?));
    let holds = |role: &Role| role.holders.iter().any(|i| plan.sandboxes[*i].name == who.name);
    let (owner, why, gets, allow) = match owner {
        Some((_, own)) if let Some(role) = role => (
            format!("role {}'s", role.name),
            format!("{} grants it", at(&own.place)),
            match holds(role) {
                true => "it while it has the role, and nothing else".to_owned(),
                false => absent.into(),
            },
            Allow::Change(match holds(role) {
                true => {
                    let place = at(&role.place);
                    format!("{place}: it takes the role over when its holder fails, or gives it")
                }
                false => format!("{}: name `{}` in `holders`", at(&role.place), who.name),
            }),
        ),
        Some((owner, own)) if owner.name == who.name => (
            format!("{}'s", owner.name),
            format!("{} grants it", at(&own.place)),
            "its registers, its DMA to its own memory, its interrupts to its own cores".to_owned(),
            Allow::Has,
        ),
        Some((owner, own)) => (
            format!("{}'s", owner.name),
            format!("{} grants it", at(&own.place)),
            absent.into(),
            Allow::Change(format!("take it from {} at {}", owner.name, at(&own.place))),
        ),
        None => {
            let described = at(&function.place);
            let nobody = bulkhead_manifest::rules::pci::nobody(function);
            let gets =
                if shown(who, function) { "it is shown, but cannot be written" } else { absent };
            let why = match nobody {
                Some(why) => format!("{described} says that it is nobody's: {why}"),
                None => format!("{described} describes it, no sandbox has it"),
            };
            let name = format!("pci:{bdf}");
            ("the machine's".into(), why, gets.into(), grant(who, &name, nobody))
        }
    };
    Answer { what, owner, why, rule: VISIBLE, gets, allow }
}

/// The role with which a function comes to a sandbox, by its number.
fn role_of(who: &Sandbox, function: &Function) -> Option<usize> {
    who.functions.iter().find(|own| own.function.bdf == function.bdf)?.role
}

/// Tells if a function is a bridge above one of the sandbox's own: it is shown then.
pub fn shown(who: &Sandbox, function: &Function) -> bool {
    let below = |own: &bulkhead_plan::Granted| {
        let bus = own.function.bdf.bus();
        function.bridge.is_some_and(|b| (b.secondary..=b.subordinate).contains(&bus))
    };
    who.functions.iter().any(below)
}

/// The key that would have granted a denied request of another sandbox's monitor. Its state may be asked for by whoever
/// has any of them.
#[must_use]
pub fn right_of(denial: &Denial) -> &'static str {
    let request = index(denial.info >> 32);
    let asked = RIGHTS.get(request).filter(|_| denial.address == CONTROL);
    asked.copied().unwrap_or(RIGHTS[index(CONTROL_START)])
}

/// The right to stop, start or restart another sandbox, by its key.
#[must_use]
pub fn control(plan: &Plan, who: &Sandbox, other: &Sandbox, key: &'static str) -> Answer {
    let over = |right: &Right| plan.sandboxes[right.sandbox].name == other.name;
    let rights = RIGHTS.iter().zip(&who.control).filter(|(name, _)| **name == key);
    let granted = rights.flat_map(|(_, rights)| rights).any(over);
    let value = format!("\"{}\"", other.name);
    let line = Allow::Line { place: at(&who.place), key, value };
    Answer {
        what: format!("{key} of {}", other.name),
        owner: format!("{}'s", other.name),
        why: at(&other.place),
        rule: CONTROL_RULE,
        gets: if granted { "its requests are followed" } else { "DENIED, with a record" }.into(),
        allow: if granted { Allow::Has } else { line },
    }
}

/// An interrupt line.
#[must_use]
pub fn line(plan: &Plan, who: &Sandbox, number: u32) -> Answer {
    let what = format!("interrupt line {number}");
    let functions = |s: &Sandbox| {
        let own = s.functions.iter().find(|g| g.line && g.function.irq == Some(number));
        own.map(|g| (format!("pci:{}", g.function.bdf), g.place.clone(), Trigger::LevelLow))
    };
    let devices = |s: &Sandbox| {
        let own = s.devices.iter().find(|d| d.irq == Some(number));
        own.map(|d| (d.name.clone(), d.place.clone(), d.trigger))
    };
    let owner = plan.sandboxes.iter().find_map(|s| Some((s, devices(s).or_else(|| functions(s))?)));
    let masked = "its entry reads as masked, writes are denied";
    if let Some((owner, (device, place, trigger))) = owner {
        let signals = if trigger == Trigger::Edge { "edge" } else { "level" };
        let own = owner.name == who.name;
        let change = format!("take `{device}` from {} at {}", owner.name, at(&place));
        return Answer {
            what,
            owner: format!("{}'s (`{device}`, {signals}-triggered)", owner.name),
            why: format!("{} grants `{device}`", at(&place)),
            rule: LINES,
            gets: if own { "it, at its own cores" } else { masked }.into(),
            allow: if own { Allow::Has } else { Allow::Change(change) },
        };
    }
    let found = plan.machine.devices.iter().filter(|d| d.irq == Some(number));
    let found = found.min_by_key(|d| d.nobody.is_some());
    let function = plan.machine.functions.iter().find(|f| f.irq == Some(number));
    match (found, function) {
        (Some(found), _) => {
            let answer = device(plan, who, found);
            let owner = format!("the machine's {}", answer.what);
            Answer { what, owner, rule: LINES, gets: masked.into(), ..answer }
        }
        (None, Some(function)) => {
            let value = format!("{{ device = \"pci:{}\", line = true }}", function.bdf);
            let allow = match bulkhead_manifest::rules::pci::nobody(function) {
                Some(why) => Allow::Never(why.to_owned()),
                None => Allow::Line { place: at(&who.place), key: "devices", value },
            };
            Answer {
                what,
                owner: format!("the machine's PCI function {}", function.bdf),
                why: format!("{} describes it", at(&function.place)),
                rule: LINES,
                gets: masked.into(),
                allow,
            }
        }
        (None, None) => {
            let why = "no device or function of the machine description has it";
            Answer { rule: LINES, gets: masked.into(), ..nobodys(what, why) }
        }
    }
}

/// Names the writer of a channel's region, in the manifest's words.
#[must_use]
pub fn writer(region: &Channel) -> &'static str {
    match region.part {
        Part::Pages | Part::Program => "a channel is written by `from`",
        Part::Tx(_) => "messages are written by `from`",
        Part::Rx => "receipts of messages are written by `to`",
    }
}

/// A guest-physical address.
#[must_use]
pub fn address(plan: &Plan, who: &Sandbox, gpa: u64) -> Answer {
    let what = format!("guest-physical {gpa:#x}");
    let answer = |owner: String, why: String, gets: &str, allow: Allow| Answer {
        what: what.clone(),
        owner,
        why,
        rule: MEMORY,
        gets: gets.to_owned(),
        allow,
    };
    let own = at(&who.place);
    let found = of_block(plan, who, gpa).or_else(|| unnamed(plan, who, gpa));
    if let Some(found) = found.or_else(|| withheld(plan, who, gpa)) {
        return Answer { what, rule: MEMORY, ..found };
    }
    if let Some(ram) = who.ram.iter().find(|r| gpa >= r.gpa && gpa - r.gpa < r.len) {
        let segments = matches!(who.guest, Guest::Bare { enforce_segments: true, .. });
        let hpa = ram.hpa + (gpa - ram.gpa);
        let gets = if segments { "the rights of the program's segments" } else { "all rights" };
        let why = format!("its RAM, by `memory` at {own}; host-physical {hpa:#x}");
        return answer(format!("{}'s", who.name), why, gets, Allow::Has);
    }
    if let Some(c) = plan.channels.iter().find(|c| gpa >= c.gpa && gpa - c.gpa < c.len) {
        let index = plan.sandboxes.iter().position(|s| s.name == who.name);
        if let Some(stand) = index.and_then(|i| c.stands(i)) {
            let role = &plan.roles[stand.role];
            let gets = "it while it has the role, and nothing else";
            let why = at(&role.place);
            let allow = format!("{why}: it takes the role over when its holder fails, or gives it");
            let owner = format!("channel {}'s, by role {}", c.title(), role.name);
            return answer(owner, why, gets, Allow::Change(allow));
        }
        let (reads, writes) =
            (index.is_some_and(|i| c.reads(i)), index.is_some_and(|i| c.writes(i)));
        let only = format!("reads only: {}", writer(c));
        let (gets, allow) = match (writes, reads) {
            (true, _) => ("reads and writes", Allow::Has),
            (_, true) => (only.as_str(), Allow::Has),
            _ => ("nothing", Allow::Change(format!("{}: name it in `to`", at(&c.place)))),
        };
        return answer(format!("channel {}'s", c.title()), at(&c.place), gets, allow);
    }
    let link = plan.links.iter().enumerate().find(|(_, s)| gpa >= s.gpa && gpa - s.gpa < s.len);
    if let Some((number, link)) = link {
        let owner = &plan.sandboxes[link.owner].name;
        let party = plan.sandboxes.iter().position(|s| s.name == who.name);
        let (gets, allow) = match party.is_some_and(|index| link.concerns(index)) {
            true => (
                "it, with its rights, while it has made a channel there",
                "offer and accept it first; it is gone when either has closed",
            ),
            false => ("nothing", "name it in `to`"),
        };
        let allow = Allow::Change(format!("{}: {allow}", at(&link.place)));
        return answer(format!("link {number} of {owner}"), at(&link.place), gets, allow);
    }
    if let Some(answer_of_end) = of_end(plan, who, gpa) {
        return Answer { what, rule: MEMORY, ..answer_of_end };
    }
    if (REPORTS_GPA..REPORTS_GPA + plan.sandboxes.len() as u64 * REPORT_STRIDE).contains(&gpa) {
        let index = ((gpa - REPORTS_GPA) / REPORT_STRIDE) as usize;
        let other = &plan.sandboxes[index].name;
        let (gets, allow) = match who.observe.contains(&index) {
            true => ("reads", Allow::Has),
            false => {
                let value = format!("\"{other}\"");
                ("nothing", Allow::Line { place: own, key: "observe", value })
            }
        };
        return answer(
            format!("the report of {other}"),
            "its monitor writes it".into(),
            gets,
            allow,
        );
    }
    if (INFO_GPA..INFO_GPA + PAGE).contains(&gpa) {
        let why = "the same page in every sandbox".to_owned();
        return answer("its information page".into(), why, "reads", Allow::Has);
    }
    if (PROGRESS_GPA..PROGRESS_GPA + PAGE).contains(&gpa) {
        let why = "its watchdog reads it".to_owned();
        let words = |gets, allow| answer("its progress words".into(), why, gets, allow);
        return match who.watch {
            Some(bulkhead_plan::Watch { alive: Some(_), .. }) => words("writes", Allow::Has),
            _ => {
                let value = "\"100 ms\"".to_owned();
                words("nothing", Allow::Line { place: own, key: "alive", value })
            }
        };
    }
    if (ROLES_GPA..ROLES_GPA + PAGE).contains(&gpa) {
        let index = plan.sandboxes.iter().position(|s| s.name == who.name);
        let holds = index.is_some_and(|index| plan.roles_of(index).next().is_some());
        let (gets, allow) = match holds {
            true => ("reads", Allow::Has),
            false => ("nothing", Allow::Change("name it in `holders` of a `[[role]]`".into())),
        };
        return answer("its roles".into(), "its monitor writes them".into(), gets, allow);
    }
    if (SNAPSHOTS_GPA..SNAPSHOTS_GPA + bytes(PAGES as u64)).contains(&gpa) {
        let why = "its monitor writes them".to_owned();
        let kept = |gets, allow| answer("its snapshots".into(), why, gets, allow);
        let store = who.store(plan.machine.arch.facts());
        return match who.snapshot > 0 && gpa - SNAPSHOTS_GPA < store {
            true => kept("reads", Allow::Has),
            false => {
                let value = "\"64 KiB\"".to_owned();
                kept("nothing", Allow::Line { place: own, key: "snapshot", value })
            }
        };
    }
    if (INFO_GPA..LINKS_END).contains(&gpa) {
        let why = "the window of information page, reports and channels".to_owned();
        return answer("nobody's".into(), why, "nothing", Allow::Never(String::new()));
    }
    if let Some(shared) = registers(plan, who, gpa) {
        return Answer { what, ..shared };
    }
    if let Some(found) = of_machine(plan, who, gpa) {
        return Answer { what, rule: MEMORY, ..found };
    }
    let end = who.ram.iter().filter(|r| r.gpa < GUEST_HIGH).map(|r| r.gpa + r.len).max();
    let allow = match end {
        Some(end) if gpa >= end => {
            Allow::Change(format!("{own}: `memory` gives it RAM up to {end:#x}"))
        }
        _ => Allow::Never(String::new()),
    };
    answer("nobody's".into(), host_owner(plan, gpa), "nothing", allow)
}

/// The rule of registers that a monitor accesses for its guest.
pub const RANGE: Rule = Rule::of("mmio-range");

/// Registers that sandboxes share.
pub fn registers(plan: &Plan, who: &Sandbox, gpa: u64) -> Option<Answer> {
    let shared = plan.mmio.iter().find(|shared| shared.span.contains(gpa))?;
    let name = |part: &MmioPart| plan.sandboxes[part.sandbox].name.as_str();
    let mediated = shared.parts.iter().any(|part| part.range.is_some());
    let here = |part: &&MmioPart| part.range.is_none_or(|range| range.contains(gpa));
    let mut owners: Vec<&str> = shared.parts.iter().filter(here).map(name).collect();
    owners.dedup();
    let whose = match owners[..] {
        [] => "nobody's".into(),
        _ => format!("{}'s", owners.join("'s and ")),
    };
    let own = |part: &&MmioPart| name(part) == who.name;
    let part = shared.parts.iter().filter(own).find(here);
    let (gets, allow) = match part {
        Some(part) => (if part.write { "reads and writes" } else { "reads" }, Allow::Has),
        None => {
            let place = shared.parts.iter().find(own).map_or(&shared.place, |part| &part.place);
            let change = format!("{}: a part with that register would give it", at(place));
            ("nothing", Allow::Change(change))
        }
    };
    let owner = format!("{whose} (registers {} of device `{}`)", shared.name, shared.device);
    let rule = if mediated { RANGE } else { MEMORY };
    Some(Answer { rule, ..simple(&owner, &at(&shared.place), gets, allow) })
}

/// Addresses below which a running Linux may have registers.
const LOW: Span = Span { start: 0, len: 1 << 32 };

/// Registers of a device that is nobody's, which a running Linux only reads.
pub fn withheld(plan: &Plan, who: &Sandbox, gpa: u64) -> Option<Answer> {
    let mut all = plan.withheld(LOW).filter(|_| who.guest == Guest::Running);
    let (found, _) = all.find(|(_, span)| span.contains(gpa))?;
    Some(Answer { rule: MEMORY, gets: "reads, and no write".into(), ..device(plan, who, found) })
}

/// Addresses at which a running Linux has nothing, since the machine description names nothing there.
fn unnamed(plan: &Plan, who: &Sandbox, gpa: u64) -> Option<Answer> {
    let is = |span: &Span| who.guest == Guest::Running && span.contains(gpa);
    plan.unnamed(LOW).iter().find(|span| is(span))?;
    let why = "the machine description names no memory and no register there";
    let name = &plan.machine.name;
    let change = format!("machine `{name}`: name it in `[[reserved]]`, if this Linux may have it");
    Some(simple("nobody's", why, "nothing", Allow::Change(change)))
}

/// Memory that a running Linux has given away: an address of that Linux' is one of the machine's.
fn of_block(plan: &Plan, who: &Sandbox, gpa: u64) -> Option<Answer> {
    let facts = plan.machine.arch.facts();
    let start_code = facts.start_code.map(|start| Span { start, len: facts.page });
    if who.guest == Guest::Running && start_code.is_some_and(|page| page.contains(gpa)) {
        let why = "the cores' start-up code, and the way back to this Linux";
        return Some(simple("the monitors'", why, "nothing", Allow::Never(String::new())));
    }
    plan.block.filter(|block| who.guest == Guest::Running && block.contains(gpa))?;
    let has = |s: &&Sandbox| s.ram.iter().any(|r| gpa >= r.hpa && gpa - r.hpa < r.len);
    let channel = plan.channels.iter().find(|c| gpa >= c.hpa && gpa - c.hpa < c.len);
    let (owner, place) = if plan.image.contains(gpa) {
        ("the image's and the monitors'".to_owned(), None)
    } else if let Some(other) = plan.sandboxes.iter().find(has) {
        (format!("{}'s", other.name), Some(&other.place))
    } else if let Some(channel) = channel {
        (format!("channel {}'s", channel.title()), Some(&channel.place))
    } else {
        ("nobody's".to_owned(), None)
    };
    let given = "it lies in the block that this Linux gave away";
    let why = place.map_or_else(|| given.to_owned(), |place| format!("{}; {given}", at(place)));
    Some(simple(&owner, &why, "nothing", Allow::Never("`[under_linux]` takes it".into())))
}

/// The registers of a channel's end, the states of its peers, and what is behind their memory.
fn of_end(plan: &Plan, who: &Sandbox, gpa: u64) -> Option<Answer> {
    let index = plan.sandboxes.iter().position(|s| s.name == who.name)?;
    let span = |start| Span { start, len: PAGE };
    plan.ends(index).iter().find_map(|end| {
        let channel = &plan.channels[end.region];
        let (owner, gets) = if span(end.registers).contains(gpa) {
            ("registers of its end", "reads; its monitor takes 32-bit writes")
        } else if end.woken.is_some() && span(end.registers + PAGE).contains(gpa) {
            ("MSI-X table of its end", "what its monitor answers")
        } else if span(end.memory.start).contains(gpa) {
            ("states of the peers", "reads; each peer's state register writes its own")
        } else if end.memory.contains(gpa) {
            ("window", "reads all ones: no peer has memory there")
        } else {
            return None;
        };
        Some(Answer {
            what: String::new(),
            owner: format!("channel {}'s {owner}", channel.name),
            why: at(&channel.place),
            rule: MEMORY,
            gets: gets.into(),
            allow: Allow::Never(String::new()),
        })
    })
}

/// An answer without its thing's description.
pub(crate) fn simple(owner: &str, why: &str, gets: &str, allow: Allow) -> Answer {
    Answer { owner: owner.to_owned(), gets: gets.to_owned(), allow, ..nobodys(String::new(), why) }
}

/// Answers for registers and firmware, which have one address in every sandbox.
fn of_machine(plan: &Plan, who: &Sandbox, gpa: u64) -> Option<Answer> {
    let machine = &plan.machine;
    if let Some(answer) = arch::of(plan).mapped(plan, gpa) {
        return Some(answer);
    }
    if machine.iommu.is_some_and(|iommu| gpa.wrapping_sub(iommu.base) < 4 * PAGE) {
        let never = Allow::Never("it confines the DMA of all".into());
        let why = "the machine description, `[iommu]`";
        return Some(simple("the machine's IOMMU", why, "nothing", never));
    }
    let config = explain::configured(plan, who, gpa);
    if let Some(function) = explain::function_at(plan, who, gpa) {
        let answer = pci(plan, who, function);
        let part = if config.is_some() { "configuration space" } else { "registers" };
        let owner = format!("{} {part} of {}", answer.owner, answer.what);
        let gets = match (&answer.allow, config.is_some()) {
            (_, true) if who.functions.is_empty() => "nothing".into(),
            (_, true) => "its monitor answers: what it owns, and the bridges above".into(),
            (Allow::Has, false) => "them, without an exit but for MSI-X tables".into(),
            _ if role_of(who, function).is_some() => answer.gets.clone(),
            _ => "nothing".into(),
        };
        return Some(Answer { owner, gets, ..answer });
    }
    let (name, _) = machine.reserved.iter().find(|(_, span)| span.contains(gpa))?;
    let why = "the machine description, `[[reserved]]`";
    Some(simple(&format!("the machine's {name}"), why, "nothing", Allow::Never(String::new())))
}

/// Names the owner of this *host*-physical address. Without nested tables, an attacker who guesses it would have
/// reached that memory.
#[must_use]
pub fn host_owner(plan: &Plan, pa: u64) -> String {
    if plan.image.contains(pa) {
        return "that address of the machine holds the image and the monitors".into();
    }
    let has = |s: &&Sandbox| s.ram.iter().any(|r| pa >= r.hpa && pa - r.hpa < r.len);
    match plan.sandboxes.iter().find(has) {
        Some(s) => format!("that address of the machine is {}'s", s.name),
        None => "no sandbox has that address of the machine".into(),
    }
}
