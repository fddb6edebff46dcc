//! A denied access in words: sandbox, place, owner, rule, and what in the manifest would allow it. The monitor knows
//! none of that (docs/decisions/0014-denials-explained-by-the-reader.md).

use crate::arch;
use crate::owner::{self, Allow, Answer};
use crate::rule::Rule;
use bulkhead_layout::PAGE;
use bulkhead_layout::hypercall as call;
use bulkhead_layout::map::{ECAM_GPA, ECAM_SIZE};
use bulkhead_layout::report::{CONDITION_NAMES, Condition, Denial, KIND_NAMES, Kind};
use bulkhead_plan::{BarKind, Bdf, End, Function, Guest, Plan, Ram, Sandbox};
use std::fmt;

/// An explained denial.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Explained {
    /// Sandbox that did it.
    pub sandbox: String,
    /// Number of its core in the sandbox.
    pub core: usize,
    /// How often it had been restarted.
    pub incarnation: u32,
    /// Instruction's address.
    pub rip: String,
    /// The kind, as a manifest names it.
    pub kind: &'static str,
    /// Which condition of that kind refused it.
    pub condition: &'static str,
    /// Access that was tried.
    pub access: String,
    /// Owner of its target.
    pub owner: String,
    /// Id of the guarantee that denies it (docs/guarantees.md).
    pub guarantee: &'static str,
    /// Its sentence, and what the record tells beside it.
    pub rule: String,
    /// Line that would allow it, or why nothing does.
    pub allow: String,
    /// Microseconds from the machine's boot until then; null where the boot is not known.
    pub at_us: Option<u64>,
    /// How often it came; more than 1: [`fold`] has taken repeats together.
    pub times: u64,
    /// The record itself.
    #[serde(skip)]
    pub record: Denial,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} core {} at {}: {} ({}); it is {}; rule: {}: {}; {}",
            self.sandbox,
            self.core,
            self.rip,
            self.access,
            self.kind,
            self.owner,
            self.guarantee,
            self.rule,
            self.allow
        )?;
        match self.times {
            1 => Ok(()),
            times => write!(f, " (×{times})"),
        }
    }
}

impl Explained {
    /// Tells if another denial, in whatever life, has equal words.
    #[must_use]
    pub fn repeats(&self, other: &Self) -> bool {
        (&self.sandbox, self.core, self.condition) == (&other.sandbox, other.core, other.condition)
            && (&self.access, &self.owner, &self.rule) == (&other.access, &other.owner, &other.rule)
            && (&self.allow, &self.rip) == (&other.allow, &other.rip)
    }
}

/// Takes repeats together, each at its first place.
#[must_use]
pub fn fold(all: impl IntoIterator<Item = Explained>) -> Vec<Explained> {
    let mut folded: Vec<Explained> = Vec::new();
    for one in all {
        match folded.iter_mut().find(|known| known.repeats(&one)) {
            Some(known) => known.times += one.times,
            None => folded.push(one),
        }
    }
    folded
}

/// Explains why a core was taken for one that hangs.
fn hang(who: &Sandbox, denial: &Denial) -> (String, String, Rule, String) {
    let every = who.watch.and_then(|watch| watch.alive).map_or(0, |alive| alive.every);
    let period = who.watch.map_or(0, |watch| watch.period);
    let ticks = denial.info;
    (
        format!("no move of its progress word in {ticks} ticks of {} us", period / 1_000),
        format!("{}'s own", who.name),
        const { Rule::of("watchdog") },
        format!("{}: `alive` gives it {} us from a move to the next", place(who), every / 1_000),
    )
}

fn failure(who: &Sandbox, denial: &Denial) -> (String, String, Rule, String) {
    (
        format!("an end with exit code {}", denial.address),
        format!("{}'s own", who.name),
        const { Rule::of("ladder") },
        format!("[[health]] sandbox = \"{}\", on = \"failure\" says what follows", who.name),
    )
}

fn corruption(who: &Sandbox, denial: &Denial) -> (String, String, Rule, String) {
    let at = denial.address;
    let (found, owner) = match denial.condition {
        c if c == Condition::GuestSum as u16 => {
            (format!("another sum of the page at guest-physical {at:#x}"), "guest")
        }
        c if c == Condition::MonitorSum as u16 => {
            (format!("another sum of the page at {at:#x} of its monitor"), "monitor")
        }
        _ => (format!("{:#x} in field {at:#x} of its control block", denial.info), "monitor"),
    };
    (
        found,
        format!("{}'s {owner}", who.name),
        const { Rule::of("sweep") },
        format!("[[health]] sandbox = \"{}\", on = \"corruption\" says what follows", who.name),
    )
}

fn monitor(plan: &Plan, sandbox: usize, denial: &Denial) -> (String, String, Rule, String) {
    let who = &plan.sandboxes[sandbox];
    let other = plan.sandboxes.get(denial.address as usize).map_or("nobody", |other| &other.name);
    let found = if denial.address == sandbox as u64 {
        "none by its monitor, which has stopped: its cores are in the spare one".to_owned()
    } else {
        format!("no heartbeat of the monitor of {other} in time")
    };
    (
        found,
        format!("{other}'s monitor"),
        const { Rule::of("peer") },
        match denial.address == sandbox as u64 {
            true => {
                let name = &who.name;
                format!("[[health]] sandbox = \"{name}\", on = \"monitor\" says what follows")
            }
            false => format!("`may` in [[peer]] sandbox = \"{}\" says what follows", who.name),
        },
    )
}

/// Explains a denial of a sandbox's core.
#[must_use]
pub fn explain(plan: &Plan, sandbox: usize, core: usize, denial: &Denial) -> Explained {
    let who = &plan.sandboxes[sandbox];
    let kind = denial.kind as usize;
    let own = [Kind::Port, Kind::Msr, Kind::Ipi].map(|kind| kind as usize);
    let (access, owner, rule, allow) = match kind {
        k if k == Kind::Memory as usize => memory(plan, who, denial),
        k if own.contains(&k) => arch::of(plan).denied(plan, who, denial),
        k if k == Kind::Hypercall as usize => hypercall(plan, who, denial),
        k if k == Kind::Device as usize => device(plan, who, denial),
        k if k == Kind::Hang as usize => hang(who, denial),
        k if k == Kind::Failure as usize => failure(who, denial),
        k if k == Kind::Corruption as usize => corruption(who, denial),
        k if k == Kind::Monitor as usize => monitor(plan, sandbox, denial),
        k if k == Kind::Instruction as usize => (
            format!("instruction with exit code {:#x}", denial.address),
            "the monitor's".into(),
            const { Rule::of("instructions") },
            "nothing in a manifest allows it".into(),
        ),
        _ => (
            "a triple fault, or a processor state that cannot be entered".into(),
            format!("{}'s own", who.name),
            const { Rule::of("shutdown") },
            format!(
                "[[health]] sandbox = \"{}\", on = \"triple-fault\" says what follows",
                who.name
            ),
        ),
    };
    Explained {
        sandbox: who.name.clone(),
        core,
        incarnation: denial.incarnation,
        rip: format!("{:#x}", denial.instruction),
        kind: KIND_NAMES.get(kind).copied().unwrap_or("unknown"),
        condition: CONDITION_NAMES.get(usize::from(denial.condition)).copied().unwrap_or("unknown"),
        access,
        owner,
        guarantee: rule.guarantee.id,
        rule: rule.text(),
        allow,
        at_us: None,
        times: 1,
        record: *denial,
    }
}

/// Access, owner, rule, and what would allow it.
pub type Words = (String, String, Rule, String);

/// `file:line` of a sandbox's description.
pub fn place(sandbox: &Sandbox) -> String {
    owner::at(&sandbox.place)
}

fn memory(plan: &Plan, who: &Sandbox, denial: &Denial) -> Words {
    let gpa = denial.address;
    let how = match denial.condition {
        c if c == Condition::MemoryFetch as u16 => "fetch from",
        c if c == Condition::MemoryWrite as u16 => "write to",
        _ => "read of",
    };
    let access = format!("{how} guest-physical {gpa:#x}");
    let answer = owner::address(plan, who, gpa);
    if answered(plan, who, gpa) {
        let owner = format!("{} ({})", answer.owner, answer.why);
        let allow = "nothing in a manifest allows another access there";
        return (access, owner, const { Rule::of("decoder-moves") }, allow.into());
    }
    match answer.allow {
        Allow::Has => {
            let rule = const { Rule::of("nested-rights") };
            (access, "its own, without that right".into(), rule, without_right(plan, who, gpa))
        }
        Allow::Never(_) | Allow::Line { .. } | Allow::Change(_) => {
            let owner = format!("{} ({})", answer.owner, answer.why);
            (access, owner, answer.rule, answer.allow.to_string())
        }
    }
}

/// Tells if a sandbox's monitor answers for registers at an address: configuration space, and MSI-X tables.
fn answered(plan: &Plan, who: &Sandbox, gpa: u64) -> bool {
    let table = |own: &bulkhead_plan::Granted| {
        own.function.msix.is_some_and(|msix| {
            let last = msix.table + (u64::from(msix.vectors) * 16).saturating_sub(1);
            (msix.table / PAGE..=last / PAGE).contains(&(gpa / PAGE))
        })
    };
    configured(plan, who, gpa).is_some() && !who.functions.is_empty()
        || who.functions.iter().any(table)
}

/// Says what would lift the rights to memory that a sandbox has.
fn without_right(plan: &Plan, who: &Sandbox, gpa: u64) -> String {
    if let Some(c) = plan.channels.iter().find(|c| gpa >= c.gpa && gpa - c.gpa < c.len) {
        return format!("{}: {}", owner::at(&c.place), owner::writer(c));
    }
    match who.ram.iter().any(|r| gpa >= r.gpa && gpa - r.gpa < r.len) {
        true => format!(
            "{}: guest = {{ access = \"rwx\" }} would lift the segments' rights",
            owner::at(&who.place)
        ),
        false => match plan.mmio.iter().find(|shared| shared.span.contains(gpa)) {
            Some(shared) => format!("{}: `access = \"rw\"` in its part", owner::at(&shared.place)),
            None => "nothing in a manifest allows it".into(),
        },
    }
}

/// Tells if a record is of a read, which has no value.
fn reads(denial: &Denial) -> bool {
    [Condition::DeviceRead, Condition::PortRead].map(|c| c as u16).contains(&denial.condition)
}

/// The words of an answer, for an access that was denied.
pub(crate) fn words(access: String, denial: &Denial, answer: Answer) -> Words {
    let allow = match answer.allow {
        Allow::Has if reads(denial) => "nothing in a manifest allows that access".into(),
        Allow::Has => "nothing in a manifest allows that value".into(),
        other => other.to_string(),
    };
    (access, answer.owner, answer.rule, allow)
}

/// The rule for the form of an access to configuration space.
pub(crate) const FORM: Rule = Rule::of("config-form");

/// An access to a register that a monitor answers for.
pub(crate) fn access(denial: &Denial, register: &str) -> String {
    match reads(denial) {
        true => format!("read of {register}"),
        false => format!("write of {:#x} to {register}", denial.info),
    }
}

/// Finds the function that has this guest-physical address in its configuration space or memory.
pub fn function_at<'a>(plan: &'a Plan, who: &Sandbox, at: u64) -> Option<&'a Function> {
    plan.machine.functions.iter().find(|f| match configured(plan, who, at) {
        Some(bdf) => f.bdf == bdf,
        None => f.bars.iter().any(|b| b.kind != BarKind::Io && b.span.contains(at)),
    })
}

/// Finds the function with this address in its configuration space, as a sandbox sees it. A Linux that runs already
/// sees the machine's.
pub fn configured(plan: &Plan, who: &Sandbox, at: u64) -> Option<Bdf> {
    let space = match (&who.guest, &plan.machine.pci) {
        (Guest::Running, root) => root.as_ref()?.ecam,
        _ => ECAM_GPA,
    };
    let offset = at.wrapping_sub(space);
    (offset < ECAM_SIZE).then_some(Bdf((offset >> 12) as u16))
}

/// A register of a mediated device.
fn device(plan: &Plan, who: &Sandbox, denial: &Denial) -> Words {
    let at = denial.address;
    if let Some(words) = arch::of(plan).device(plan, who, denial) {
        return words;
    }
    let access = match configured(plan, who, at) {
        Some(bdf) => access(denial, &format!("configuration register {:#x} of {bdf}", at % PAGE)),
        None => access(denial, &format!("device register {at:#x}")),
    };
    let index = plan.sandboxes.iter().position(|s| s.name == who.name);
    let ends = index.map(|index| plan.ends(index)).unwrap_or_default();
    let here = |end: &&End| {
        configured(plan, who, at) == Some(end.bdf) || at.wrapping_sub(end.registers) < end.pages()
    };
    if let Some(end) = ends.iter().find(here) {
        let channel = &plan.channels[end.region];
        const END: Rule = Rule::of("pci-functions").with(
            "a channel's function stays in its place, its registers take 32 bits, and it interrupts its owner's cores",
        );
        let whose = format!("channel {}'s function {}", channel.name, end.bdf);
        return (access, whose, END, owner::at(&channel.place));
    }
    if let Some(withheld) = owner::withheld(plan, who, at) {
        let register =
            self::access(denial, &format!("register {at:#x} of a device that is nobody's"));
        return words(register, denial, withheld);
    }
    let timer = plan.machine.hpet.as_ref().is_some_and(|t| at.wrapping_sub(t.base) < PAGE);
    if timer && who.guest == Guest::Running {
        const TIMER: Rule =
            Rule::of("messages").with("a comparator of the machine's timer sends none at all");
        let owner = format!("{}'s, but for messages", who.name);
        return (access, owner, TIMER, "nothing in a manifest allows that value".into());
    }
    if let Some(answer) = owner::registers(plan, who, at) {
        let allow = match answer.allow {
            // In its range: a write of registers that it reads, or an access that is not aligned.
            Allow::Has => format!("{}: `access`, `offset` and `size` of its part", answer.why),
            other => other.to_string(),
        };
        let access = self::access(denial, &format!("shared register {at:#x}"));
        return (access, format!("{} ({})", answer.owner, answer.why), answer.rule, allow);
    }
    let Some(function) = function_at(plan, who, at) else {
        let why = "no function of the machine description is there";
        return (access, "nobody's".into(), owner::VISIBLE, why.into());
    };
    let answer = owner::pci(plan, who, function);
    if let Some(step) = function.reset.iter().find(|step| step.at == at) {
        return (
            format!("register {at:#x} of {} did not show rest in {} ms", function.bdf, step.within),
            answer.owner,
            const { Rule::of("device-quiet") },
            format!("{}: `reset` says what is waited for", owner::at(&function.place)),
        );
    }
    let rule = match function.bridge {
        Some(_) if !owner::shown(who, function) => answer.rule,
        None if !matches!(answer.allow, Allow::Has) => answer.rule,
        _ => within_own(configured(plan, who, at).is_some(), function, at, denial),
    };
    words(access, denial, Answer { rule, ..answer })
}

/// Returns the rule for a register of an own function, or of a bridge that is shown. A record has no width, so the rule
/// names it beside the allowed values. A read can only have the wrong form.
fn within_own(configured: bool, function: &Function, at: u64, denial: &Denial) -> Rule {
    const MESSAGE: Rule = Rule::of("messages");
    const TABLE: Rule = MESSAGE.with("its table takes 32 and 64 bits at a time");
    const BASE: Rule = Rule::of("pci-functions").with(
        "a base address stays where the machine description has it; an access is within one register of 32 bits",
    );
    if function.bridge.is_some() {
        return const { Rule::of("bridge-fixed") };
    }
    if !configured {
        // The pages with an MSI-X table are all of its memory that is mediated.
        let message = function.msix.is_some_and(|msix| {
            at.wrapping_sub(msix.table) < u64::from(msix.vectors) * 16 && at.is_multiple_of(4)
        });
        return match (message, reads(denial)) {
            (false, _) => const { Rule::of("msix-trap") },
            (true, true) => const { Rule::of("msix-form") },
            (true, false) => TABLE,
        };
    }
    let offset = (at % PAGE) as u16;
    let message = function
        .msi
        .is_some_and(|msi| offset.wrapping_sub(u16::from(msi.at)) < 20 && offset.is_multiple_of(4));
    match offset {
        _ if reads(denial) => FORM,
        _ if message => MESSAGE,
        0x10..0x28 => BASE,
        _ => FORM,
    }
}

/// Tells if a manifest could let it make channels at run time.
fn may_link(sandbox: &Sandbox) -> bool {
    matches!(sandbox.guest, Guest::Bare { .. } | Guest::Linux { .. })
}

/// Explains why memory was not taken into snapshots.
fn kept(who: &Sandbox, denial: &Denial) -> Words {
    let (at, pages) = (denial.address, denial.info);
    let end = pages.saturating_mul(PAGE).saturating_add(at);
    let own = |ram: &Ram| at < ram.gpa + ram.len && end > ram.gpa;
    let owner = if who.ram.iter().any(own) { "in part its own" } else { "not its RAM" };
    (
        format!("naming {pages} pages at guest-physical {at:#x} for snapshots"),
        owner.into(),
        const { Rule::of("snapshot-range") },
        format!("nothing allows it: snapshots are of whole pages of {}'s RAM", who.name),
    )
}

fn hypercall(plan: &Plan, who: &Sandbox, denial: &Denial) -> Words {
    const LINK: Rule = Rule::of("link-right");
    if denial.condition == Condition::Snapshot as u16 {
        return kept(who, denial);
    }
    let first = denial.info as u32;
    let target = plan.sandboxes.get(first as usize);
    let name = target.map_or("…", |s| s.name.as_str());
    if denial.address == call::OFFER {
        return (
            format!("offer of a channel to sandbox {first}"),
            target.map_or_else(|| "nobody's".into(), |s| format!("{}'s", s.name)),
            LINK,
            match target.filter(|s| s.name != who.name && may_link(s) && may_link(who)) {
                Some(_) => format!("{}: links = {{ to = [\"{name}\"], … }}", place(who)),
                None => "nothing in a manifest allows it: bare guests and Linux make offers to each other".into(),
            },
        );
    }
    if matches!(denial.address, call::ACCEPT..=call::LOOK) {
        let link = plan.links.get(first as usize);
        let (owner, allow) =
            link.map_or(("nobody's".into(), "there is no such link".into()), |s| {
                let (owner, at) = (&plan.sandboxes[s.owner].name, owner::at(&s.place));
                (format!("{owner}'s"), format!("{at}: name `{}` in `to`", who.name))
            });
        return (
            format!("hypercall {:#x} on link {first}", denial.address),
            owner,
            LINK.with("a link is for its owner and those to whom it may be offered"),
            allow,
        );
    }
    (
        format!("hypercall {:#x} on sandbox {first}", denial.address),
        target.map_or_else(|| "nobody's".into(), |s| format!("{}'s", s.name)),
        owner::CONTROL_RULE,
        match target {
            Some(_) => format!("{}: {} = [\"{name}\"]", place(who), owner::right_of(denial)),
            None => "there is no such sandbox".into(),
        },
    )
}
