//! The claim: the manifest's plan in the auditor's own words. Whoever calls it translates; nothing here says where a
//! table lies.

use crate::arch::{Architecture, Places};
use crate::given::pages;
pub use crate::x86::Kind;
use serde::{Deserialize, Serialize};

/// A line of the manifest or of the machine description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file, as the user named it.
    pub file: String,
    /// Line, from 1; 0 if there is none.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Physical addresses from `start` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

impl Range {
    /// The address after it.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Tells if an address lies in it.
    #[must_use]
    pub fn contains(self, address: u64) -> bool {
        self.start <= address && address < self.end()
    }
}

/// A loadable part of an ELF program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Where it is linked.
    pub address: u64,
    /// Bytes in memory.
    pub len: u64,
    /// Written to.
    pub write: bool,
    /// Executed.
    pub execute: bool,
    /// Its contents in the file; the rest of `len` is zeros.
    pub bytes: Vec<u8>,
}

/// A piece of a sandbox's RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ram {
    /// Guest-physical address.
    pub gpa: u64,
    /// Physical address.
    pub hpa: u64,
    /// Bytes.
    pub len: u64,
}

/// Ports that a sandbox may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// First.
    pub first: u16,
    /// Last.
    pub last: u16,
    /// The device.
    pub device: String,
    /// The grant.
    pub place: Place,
}

/// A line of the interrupt controller that a sandbox owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of the pin, from 0.
    pub pin: u32,
    /// Level, not edge; `None`: its owner has all lines, and decides.
    pub level: Option<bool>,
}

/// A sandbox.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    /// Name.
    pub name: String,
    /// Its `[[sandbox]]`.
    pub place: Place,
    /// Core numbers of the machine, in its own order.
    pub cores: Vec<usize>,
    /// Their identities.
    pub core_ids: Vec<u32>,
    /// RAM.
    pub ram: Vec<Ram>,
    /// If its tables follow a program's segments: these.
    pub segments: Option<Vec<Segment>>,
    /// Segments of each guest that can take its guest's place, likewise.
    pub others: Vec<Option<Vec<Segment>>>,
    /// Ports.
    pub ports: Vec<Ports>,
    /// Lines of the interrupt controller.
    pub lines: Vec<Line>,
    /// Its guest is a Linux that ran before its monitor did. All of the machine is its own that is nobody else's.
    pub running: bool,
    /// Such a Linux can begin anew: its monitor fills its memory then.
    pub again: bool,
    /// Its guest has a controller with pins that are no lines of the machine's.
    pub pins: bool,
    /// It has a watchdog.
    pub watched: bool,
    /// Its watchdog reads its progress words.
    pub alive: bool,
    /// A peer's monitor takes its cores by INIT, also from its guest.
    pub taken: bool,
    /// Its monitor can keep the functions of these sandboxes from memory.
    pub quiets: Vec<usize>,
    /// Most pages of a snapshot of its guest's; 0: it takes none.
    pub snapshot: u64,
    /// A debugger may look into it: its monitor has a page for that.
    pub debug: bool,
    /// Sandboxes with reports that it may read.
    pub observe: Vec<usize>,
    /// Starts with the machine; otherwise it may never have run.
    pub starts: bool,
    /// Channels' ends that it sees as functions of PCI.
    pub ends: Vec<End>,
    /// Its monitor's program.
    pub monitor: Vec<Segment>,
    /// Program of its spare monitor, which runs when a peer has taken its cores; it can be another build.
    pub spare: Option<Vec<Segment>>,
}

/// A channel's end as a function of PCI that no hardware has.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// The manifest's `[[channel]]`.
    pub place: Place,
    /// Number of the channel, which its peers have, too.
    pub channel: usize,
    /// Bus, device, function.
    pub bdf: u16,
    /// Where the guest reads its registers: a page.
    pub registers: u64,
    /// Shared memory that the guest sees: the peers' states, a page, then the peers' memory as far as channels say so.
    /// Nothing is behind it.
    pub memory: Range,
}

/// Memory that one sandbox writes and others read.
#[derive(Clone, Debug, Default)]
pub struct Channel {
    /// Name.
    pub name: String,
    /// Its `[[channel]]`.
    pub place: Place,
    /// Writer.
    pub from: usize,
    /// Readers.
    pub to: Vec<usize>,
    /// Physical address.
    pub hpa: u64,
    /// Where each side sees it.
    pub gpa: u64,
    /// Bytes.
    pub len: u64,
    /// The role at one of its ends, and whether that end writes.
    pub stand: Option<(usize, bool)>,
    /// It begins with a header: its writer's monitor ends what its guest said there.
    pub header: bool,
    /// Its readers ring for its writer: their monitors look when they may.
    pub rung: bool,
    /// It holds a program: its reader's monitor reads all of it.
    pub program: bool,
}

/// Memory for a channel that two sandboxes make at run time.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// The manifest's `links`.
    pub place: Place,
    /// Sandbox that may offer it.
    pub owner: usize,
    /// Sandboxes that it may be offered to, one at a time.
    pub to: Vec<usize>,
    /// Physical address.
    pub hpa: u64,
    /// Where each side sees it while it has it.
    pub gpa: u64,
    /// Bytes, the last page of which the other one writes.
    pub len: u64,
}

impl Link {
    /// Tells if a sandbox can have it.
    #[must_use]
    pub fn concerns(&self, sandbox: usize) -> bool {
        self.owner == sandbox || self.to.contains(&sandbox)
    }
}

/// Pages of a device's registers that sandboxes share.
#[derive(Clone, Debug, Default)]
pub struct Registers {
    /// Name.
    pub name: String,
    /// The pages.
    pub range: Range,
    /// Sandboxes with their rights to write and the manifest's lines. Only these, and their guests or their monitors.
    pub parts: Vec<(usize, bool, Place)>,
    /// Ranges of the pages are the sandboxes': their monitors reach the pages, and no guest.
    pub mediated: bool,
}

impl Registers {
    /// Tells if a sandbox has a part, as a guest or by its monitor.
    #[must_use]
    pub fn has(&self, sandbox: usize, mediated: bool) -> bool {
        self.mediated == mediated && self.parts.iter().any(|part| part.0 == sandbox)
    }
}

/// A PCI function.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Name, e.g. `00:03.0`.
    pub name: String,
    /// Bus, device, function: bits 15:8, 7:3, 2:0.
    pub bdf: u16,
    /// Other requester IDs under which its accesses can appear.
    pub aliases: Vec<u16>,
    /// It forwards for others: their owners may read its configuration.
    pub bridge: bool,
    /// Its sandbox; of a role's, the first holder.
    pub owner: Option<usize>,
    /// The role that it belongs to.
    pub role: Option<usize>,
    /// The grant, or where the machine describes it.
    pub place: Place,
    /// Memory BARs.
    pub bars: Vec<Range>,
    /// Pages that hold an MSI-X table or pending bits: the monitor's only.
    pub mediated: Vec<Range>,
    /// Its owner's memory that it reaches, guest-physical, and its right to write there; `None`: all of it.
    pub reach: Option<Vec<(Range, bool)>>,
    /// Registers in its BARs by which its owner's monitor resets it, too.
    pub resets: Vec<Range>,
}

/// The IOMMU, as described.
#[derive(Clone, Debug, Default)]
pub struct Iommu {
    /// Its kind.
    pub kind: Kind,
    /// Its PCI function, if a capability there says where its registers are.
    pub bdf: u16,
    /// It remaps interrupts; not asked of each kind.
    pub remaps: bool,
    /// Where its registers should be.
    pub registers: Range,
    /// Function as which the interrupt controller sends the interrupts of lines; `None`: the IOMMU does not see them.
    pub lines: Option<u16>,
}

/// A system.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// Name.
    pub system: String,
    /// Where the system is named.
    pub place: Place,
    /// Its architecture.
    pub arch: &'static dyn Architecture,
    /// All RAM there is.
    pub ram: Vec<Range>,
    /// RAM that the firmware leaves free.
    pub free: Vec<Range>,
    /// Devices' and the firmware's memory.
    pub reserved: Vec<(String, Range)>,
    /// Memory that the image occupies.
    pub image: Range,
    /// Memory that a running Linux has given away: the image, and all that is others'.
    pub block: Option<Range>,
    /// Sandboxes, by index.
    pub sandboxes: Vec<Sandbox>,
    /// Channels.
    pub channels: Vec<Channel>,
    /// Memory for channels made at run time, by number.
    pub links: Vec<Link>,
    /// Roles, by number: the sandboxes that can hold each.
    pub roles: Vec<Vec<usize>>,
    /// Registers that sandboxes share.
    pub registers: Vec<Registers>,
    /// PCI functions: every one of the machine.
    pub functions: Vec<Function>,
    /// Configuration space in memory (ECAM), bus 0 first.
    pub ecam: Option<Range>,
    /// The IOMMU; without one, DMA is not confined and not looked at.
    pub iommu: Option<Iommu>,
    /// Registers of the interrupt controller.
    pub controller: Option<u64>,
    /// Registers of the machine's timer, which a Linux that ran before its monitor reads; `None`: it has them.
    pub timer: Option<u64>,
    /// Addresses below those of further RAM that the description does not name: such a Linux does not reach them.
    pub unnamed: Vec<Range>,
    /// Registers that such a Linux reads, and does not write: those of devices that are nobody's.
    pub shown: Vec<Range>,
    /// Ports that such a Linux does not keep.
    pub withheld: Vec<(u32, u32)>,
}

impl Claim {
    /// Number of the role as which a sandbox has an end of a channel, and whether that end writes.
    #[must_use]
    pub fn stands(&self, channel: &Channel, sandbox: usize) -> Option<(usize, bool)> {
        let has = |role: usize| self.roles.get(role).is_some_and(|all| all.contains(&sandbox));
        channel.stand.filter(|(role, _)| has(*role))
    }

    /// Tells if a sandbox writes a channel, or does while it has a role.
    #[must_use]
    pub fn writes(&self, channel: &Channel, sandbox: usize) -> bool {
        self.stands(channel, sandbox).map_or(channel.from == sandbox, |(_, writes)| writes)
    }

    /// Tells if a sandbox reads a channel, or does while it has a role.
    #[must_use]
    pub fn reads(&self, channel: &Channel, sandbox: usize) -> bool {
        let by_itself = channel.to.contains(&sandbox);
        self.stands(channel, sandbox).map_or(by_itself, |(_, writes)| !writes)
    }

    /// Tells if a sandbox can hold a role that has memory.
    #[must_use]
    pub fn has_memory(&self, sandbox: usize, role: usize) -> bool {
        let of = |c: &Channel| self.stands(c, sandbox).is_some_and(|(number, _)| number == role);
        self.channels.iter().any(of)
    }

    /// Tells if a sandbox can hold some role.
    #[must_use]
    pub fn holds(&self, sandbox: usize) -> bool {
        self.roles.iter().any(|holders| holders.contains(&sandbox))
    }

    /// Tells if a function is a sandbox', for good or while that has its role.
    #[must_use]
    pub fn has(&self, sandbox: usize, function: &Function) -> bool {
        let holds = |role: usize| self.roles.get(role).is_some_and(|all| all.contains(&sandbox));
        function.role.map_or(function.owner == Some(sandbox), holds)
    }

    /// Finds the function that accesses memory under a requester ID: its own, or an alias that has an owner.
    #[must_use]
    pub fn requester(&self, bdf: u16) -> Option<&Function> {
        let owns = |f: &&Function| f.owner.is_some() && (f.bdf == bdf || f.aliases.contains(&bdf));
        let owned = self.functions.iter().find(owns);
        owned.or_else(|| self.functions.iter().find(|f| f.bdf == bdf))
    }

    /// The sandbox of a Linux that ran before its monitor did.
    #[must_use]
    pub fn running(&self) -> Option<usize> {
        self.sandboxes.iter().position(|s| s.running)
    }

    /// Tells if RAM is left to such a Linux.
    fn is_left(&self, address: u64) -> bool {
        let &Places { page, start_code, .. } = self.arch.places();
        let start_code = start_code.map(|start| Range { start, len: page });
        let mut gone = self.block.iter().chain(&start_code);
        self.ram.iter().any(|r| r.contains(address)) && !gone.any(|r| r.contains(address))
    }

    /// Registers of the machine that such a Linux does not reach, where its devices are confined. They are the
    /// configuration space, the interrupt controller, the IOMMU, tables of messages, and others' functions.
    #[must_use]
    pub fn mediated(&self) -> Vec<Range> {
        let page = self.arch.places().page;
        let Some(iommu) = self.iommu.as_ref().filter(|_| self.running().is_some()) else {
            return Vec::new();
        };
        let controller = self.controller.map(|start| Range { start, len: page });
        let own = |f: &&Function| f.owner.is_none() || f.owner == self.running();
        let functions = self.functions.iter();
        let tables = functions.clone().filter(own).flat_map(|f| &f.mediated);
        let others = functions.filter(|f| !own(f)).flat_map(|f| &f.bars);
        let all = tables.chain(others).flat_map(|range| pages(*range, page));
        { self.ecam.into_iter() }.chain(controller).chain([iommu.registers]).chain(all).collect()
    }

    /// In which sandbox's RAM an address lies.
    #[must_use]
    pub fn in_ram_of(&self, address: u64) -> Option<usize> {
        let has = |s: &Sandbox| {
            s.ram.iter().any(|r| Range { start: r.hpa, len: r.len }.contains(address))
        };
        let own = self.sandboxes.iter().position(has);
        own.or_else(|| self.running().filter(|_| self.is_left(address)))
    }

    /// In which channel an address lies.
    #[must_use]
    pub fn in_channel(&self, address: u64) -> Option<&Channel> {
        let has = |c: &&Channel| Range { start: c.hpa, len: c.len }.contains(address);
        self.channels.iter().find(has)
    }

    /// Which shared registers lie at an address.
    #[must_use]
    pub fn in_registers(&self, address: u64) -> Option<&Registers> {
        self.registers.iter().find(|registers| registers.range.contains(address))
    }

    /// In which link an address lies.
    #[must_use]
    pub fn in_link(&self, address: u64) -> Option<&Link> {
        self.links.iter().find(|s| Range { start: s.hpa, len: s.len }.contains(address))
    }

    /// Where a sandbox's configuration space is.
    #[must_use]
    pub fn configuration(&self, function: &Function) -> Option<Range> {
        let len = self.arch.places().function;
        Some(Range { start: self.ecam?.start + u64::from(function.bdf) * len, len })
    }
}
