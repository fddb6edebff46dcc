//! The plan's data.

use crate::facts::Doorbells;
use crate::{
    Controller, Facts, Function, Granted, Hpet, Ioapic, Iommu, Kernel, PciRoot, Peer, Right,
    Trigger, Watch,
};
use bulkhead_channel::layout::Shape;
use bulkhead_layout::PAGE;
use bulkhead_layout::hypercall::REQUESTS;
use bulkhead_layout::info::ADAPTIVE;
use bulkhead_layout::monitor::Action;
use bulkhead_layout::report::KINDS;
use std::path::PathBuf;

/// Place in a file, such as a manifest's line, for messages and denials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file, as the user named it.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

/// Half-open range of physical addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

impl Span {
    /// First address after it.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// True if the address lies in it.
    #[must_use]
    pub const fn contains(self, address: u64) -> bool {
        self.start <= address && address < self.end()
    }

    /// True if all of `other` lies in it.
    #[must_use]
    pub const fn encloses(self, other: Self) -> bool {
        match other.start.checked_add(other.len) {
            Some(end) => self.start <= other.start && end <= self.end(),
            None => false,
        }
    }

    /// True if they share an address.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// All pages that it touches.
    #[must_use]
    pub fn pages(self) -> Self {
        self.pages_of(PAGE)
    }

    /// All pages of so many bytes that it touches.
    #[must_use]
    pub const fn pages_of(self, page: u64) -> Self {
        let start = self.start / page * page;
        let end = self.end().div_ceil(page).saturating_mul(page);
        Self { start, len: end - start }
    }

    /// Returns the pieces of it beside `hole`.
    pub fn without(self, hole: Self) -> impl Iterator<Item = Self> {
        let inside = |at: u64| at.clamp(self.start, self.end());
        let pieces = [(self.start, inside(hole.start)), (inside(hole.end()), self.end())];
        let some = pieces.into_iter().filter(|(start, end)| start < end);
        some.map(|(start, end)| Self { start, len: end - start })
    }
}

/// Inclusive range of I/O ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ports {
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

impl Ports {
    /// True if they share a port.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// As a span of port numbers; empty if they are backwards.
    #[must_use]
    pub const fn span(self) -> Span {
        let end = self.last as u64 + 1;
        Span { start: self.first as u64, len: end.saturating_sub(self.first as u64) }
    }
}

/// A device that the machine description names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// As manifests name it, e.g. `uart1`.
    pub name: String,
    /// `"uart16550"`, `"debugcon"`, …
    pub class: String,
    /// Its ports.
    pub ports: Vec<Ports>,
    /// Pages of its registers.
    pub mmio: Vec<Span>,
    /// Number of its line at the controller, if it has one.
    pub irq: Option<u32>,
    /// How that interrupt's line signals.
    pub trigger: Trigger,
    /// Why no sandbox can own it, if that is so.
    pub nobody: Option<String>,
    /// Line of the manifest that grants it (in [`Sandbox::devices`]), or of the machine's description.
    pub place: Place,
}

/// Pages of a device's registers that sandboxes see, as far as each has a part of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedMmio {
    /// Its name.
    pub name: String,
    /// Its place in the manifest.
    pub place: Place,
    /// The device, as the machine description names it.
    pub device: String,
    /// The pages. Guests see them where the machine has them.
    pub span: Span,
    /// Parts of sandboxes. All have pages, or all have a range.
    pub parts: Vec<MmioPart>,
}

impl SharedMmio {
    /// Lists the parts of a sandbox.
    pub fn of(&self, sandbox: usize) -> impl Iterator<Item = &MmioPart> {
        self.parts.iter().filter(move |part| part.sandbox == sandbox)
    }
}

/// Part of a sandbox in shared registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MmioPart {
    /// The sandbox, by index.
    pub sandbox: usize,
    /// Its place in the manifest.
    pub place: Place,
    /// It writes, too.
    pub write: bool,
    /// The registers that it has, which its monitor accesses for it; `None`: the pages are mapped.
    pub range: Option<Span>,
}

/// Architecture of a machine: how its monitors confine guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arch {
    /// x86-64 with AMD's SVM.
    #[default]
    Svm,
    /// x86-64 with Intel's VT-x.
    Vmx,
    /// One that no machine description names, with its facts: a test's.
    Other(&'static Facts),
}

/// Emulator of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Emulator {
    /// QEMU.
    #[default]
    Qemu,
    /// Bochs.
    Bochs,
    /// The machine is real: its image boots there.
    None,
}

/// The machine, as described and checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its architecture.
    pub arch: Arch,
    /// Emulator in which `bulkhead run` boots it.
    pub emulator: Emulator,
    /// Identities of its cores; a manifest's core number is the index here.
    pub core_ids: Vec<u32>,
    /// RAM that the firmware leaves free, ascending.
    pub ram: Vec<Span>,
    /// Memory-mapped devices and firmware, by name: never a sandbox's.
    pub reserved: Vec<(String, Span)>,
    /// All RAM, in the order in which an emulator's file has it.
    pub banks: Vec<Span>,
    /// All its devices but PCI functions.
    pub devices: Vec<Device>,
    /// Its PCI host bridge.
    pub pci: Option<PciRoot>,
    /// Its PCI functions, by address.
    pub functions: Vec<Function>,
    /// Unit that confines their DMA.
    pub iommu: Option<Iommu>,
    /// Controller that takes interrupts from lines.
    pub controller: Option<Controller>,
    /// Timers beside the cores, which send messages.
    pub hpet: Option<Hpet>,
    /// First port of the 16550 for the boot code's messages; 0: there is none.
    pub console: u16,
    /// Debug console port for the boot code's messages; 0: there is none.
    pub debug_port: u16,
    /// Arguments for QEMU, without cores, memory and kernel.
    pub qemu: Vec<String>,
    /// Drives that these arguments name.
    pub drives: Vec<String>,
    /// Networks that these arguments name.
    pub networks: Vec<String>,
}

impl Machine {
    /// Bytes of all RAM.
    #[must_use]
    pub fn ram_size(&self) -> u64 {
        self.banks.iter().map(|bank| bank.len).sum()
    }

    /// The controller of lines, if it is an IOAPIC.
    #[must_use]
    pub const fn ioapic(&self) -> Option<Ioapic> {
        match self.controller {
            Some(Controller::Ioapic(ioapic)) => Some(ioapic),
            _ => None,
        }
    }
}

/// Guest of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guest {
    /// An unmodified Linux.
    Linux {
        /// bzImage, or the vmlinux in it.
        kernel: PathBuf,
        /// Initial RAM file system.
        initrd: Option<PathBuf>,
        /// Kernel command line.
        cmdline: String,
    },
    /// An ELF64 program on the bare virtual machine.
    Bare {
        /// Static ELF64, linked for guest-physical addresses.
        program: PathBuf,
        /// Text for [`bulkhead_layout::info::Info::args`].
        args: String,
        /// Nested tables follow the program's segments (text r-x, data rw-);
        /// otherwise all RAM is rwx.
        enforce_segments: bool,
    },
    /// Bulkhead's kernel, with programs.
    Kernel(Box<Kernel>),
    /// A Linux that runs already, on all memory but [`Plan::block`], when its monitor begins.
    Running,
}

impl Default for Guest {
    fn default() -> Self {
        Self::Bare { program: PathBuf::new(), args: String::new(), enforce_segments: true }
    }
}

impl Guest {
    /// The text that it, or one of its programs, is handed: a kernel's programs are counted
    /// from 0, any other guest is its only one.
    pub fn arguments(&mut self, program: usize) -> Option<&mut String> {
        match self {
            Self::Linux { cmdline, .. } => Some(cmdline),
            Self::Bare { args, .. } => Some(args),
            Self::Kernel(kernel) => Some(&mut kernel.programs.get_mut(program)?.args),
            Self::Running => None,
        }
    }
}

/// A guest that can take the place of a sandbox's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// Its name.
    pub name: String,
    /// Its `[[alternative]]`.
    pub place: Place,
    /// The guest.
    pub guest: Guest,
}

/// Answers to a failure, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// Its `[[health]]`.
    pub place: Place,
    /// Its rungs.
    pub rungs: Vec<Rung>,
}

/// A rung of a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Action to take.
    pub step: Step,
    /// How often, and the time in which that counts, ns; `None`: each time.
    pub at_most: Option<(u8, u64)>,
}

/// Action of a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The sandbox stops.
    Stop,
    /// The guest that runs begins anew.
    Restart,
    /// It begins anew, and is offered its last snapshot.
    Warm,
    /// This of [`Sandbox::alternatives`] begins.
    Alternative(usize),
    /// Its roles go to this sandbox, or to the one that each role's policy chooses, and it begins anew without them.
    Failover(Option<usize>),
}

/// A place that one of several sandboxes has at a time: the ends of channels that name it.
#[derive(Clone, Debug)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Its `[[role]]`.
    pub place: Place,
    /// The sandboxes that can hold it; the first one has it at the machine's start.
    pub holders: Vec<usize>,
    /// It goes to the holder with the fewest roles, not to the first one.
    pub least_loaded: bool,
    /// A holder's guest lives while it has the role.
    pub cold: bool,
    /// Guest-physical address of the memory of its channels. No other memory shares its page of table entries.
    pub gpa: u64,
    /// Channels that its functions reach, by the names of the manifest.
    pub dma: Vec<String>,
}

impl Role {
    /// Tells if a sandbox has it when the machine starts.
    #[must_use]
    pub fn begins_with(&self, sandbox: usize) -> bool {
        self.holders.first() == Some(&sandbox)
    }
}

/// A role at an end of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// The role.
    pub role: usize,
    /// It writes the region; else it reads it.
    pub writes: bool,
    /// The role's holders.
    pub holders: Vec<usize>,
}

/// A piece of a sandbox's RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ram {
    /// Guest-physical address.
    pub gpa: u64,
    /// Host-physical address.
    pub hpa: u64,
    /// Bytes.
    pub len: u64,
}

/// A sandbox. By default it is a bare guest without a program, memory and rights, and a denied access stops it.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// Its name.
    pub name: String,
    /// Its `[[sandbox]]`.
    pub place: Place,
    /// Its guest.
    pub guest: Guest,
    /// The Linux that begins in the place of [`Guest::Running`] when that has ended.
    pub again: Option<Box<Guest>>,
    /// Core numbers of the machine, the first one boots.
    pub cores: Vec<usize>,
    /// Their identities.
    pub core_ids: Vec<u32>,
    /// Its RAM: at most two pieces (below and above guest-physical 4 GiB).
    pub ram: Vec<Ram>,
    /// Devices granted, without PCI functions.
    pub devices: Vec<Device>,
    /// PCI functions granted, by address.
    pub functions: Vec<Granted>,
    /// Its rights to stop, start and restart others, in this order ([`crate::RIGHTS`]).
    pub control: [Vec<Right>; REQUESTS],
    /// Sandboxes that it may read reports of.
    pub observe: Vec<usize>,
    /// Action after a denied access, by kind.
    pub actions: [Action; KINDS],
    /// Ladders that its actions name, by number.
    pub ladders: Vec<Ladder>,
    /// Guests that can take its guest's place; a ladder counts them from 0.
    pub alternatives: Vec<Alternative>,
    /// Its watchdog.
    pub watch: Option<Watch>,
    /// Looks of its monitor at others.
    pub peers: Vec<Peer>,
    /// Build of its monitor.
    pub monitor: Build,
    /// Build of its spare monitor, if a peer takes its cores.
    pub spare: Build,
    /// Most pages of a snapshot of its guest's; 0: it takes none.
    pub snapshot: u64,
    /// Starts with the machine.
    pub autostart: bool,
    /// It is ended when the Linux that ran before takes the machine back.
    pub releases: bool,
    /// It is a bay: its guest is whatever another sandbox creates there.
    pub bay: bool,
    /// Its guest may lock it: from then on nobody else ends it.
    pub lockable: bool,
    /// A debugger may stop its guest, look at it and change it.
    pub debug: bool,
    /// It is being tried out: accesses that are not granted are noted for its author.
    pub learn: bool,
    /// Its importance according to the manifest's author; shown, not acted on.
    pub criticality: Option<Criticality>,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            name: String::new(),
            place: Place::default(),
            guest: Guest::default(),
            again: None,
            cores: vec![0],
            core_ids: vec![0],
            ram: Vec::new(),
            devices: Vec::new(),
            functions: Vec::new(),
            control: Default::default(),
            observe: Vec::new(),
            actions: [Action::Stop; KINDS],
            ladders: Vec::new(),
            alternatives: Vec::new(),
            watch: None,
            peers: Vec::new(),
            monitor: Build::Usual,
            spare: Build::Usual,
            snapshot: 0,
            autostart: true,
            releases: false,
            bay: false,
            lockable: false,
            debug: false,
            learn: false,
            criticality: None,
        }
    }
}

impl Sandbox {
    /// True if a finding of some kind can begin its guest, or another one, anew.
    #[must_use]
    pub fn begins_anew(&self) -> bool {
        let again = |rung: &Rung| rung.step != Step::Stop;
        self.actions.contains(&Action::Restart)
            || self.ladders.iter().any(|ladder| ladder.rungs.iter().any(again))
    }

    /// Bytes of its snapshots: two of them, and what the monitor notes of them.
    #[must_use]
    pub const fn store(&self, facts: &Facts) -> u64 {
        facts.paged(bulkhead_layout::snapshot::bytes(self.snapshot))
    }

    /// True if one of its lines is level-triggered.
    #[must_use]
    pub fn has_level_line(&self) -> bool {
        let device = |d: &Device| d.irq.is_some() && d.trigger != Trigger::Edge;
        // PCI's lines are level-triggered (PCI 3.0, 2.2.6).
        let function = |granted: &Granted| granted.line && granted.function.irq.is_some();
        self.devices.iter().any(device) || self.functions.iter().any(function)
    }
}

/// Tells if a device could send any interrupt to any sandbox where the IOMMU sees the IOAPIC's messages. One
/// level-triggered line makes the IOMMU pass all of them, and an emulator takes DMA without a requester ID for the
/// IOAPIC's (docs/decisions/0029-lines-tested-at-boot.md). A single sandbox harms only itself.
pub fn forges<'a>(sandboxes: impl Iterator<Item = &'a Sandbox> + Clone) -> bool {
    sandboxes.clone().any(Sandbox::has_level_line)
        && sandboxes.clone().any(|sandbox| !sandbox.functions.is_empty())
        && sandboxes.count() > 1
}

/// Build of a monitor: all have one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The smallest one that has code for all needs.
    Usual,
    /// The one with checks, and with another layout.
    Checked,
}

/// How much depends on a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criticality {
    /// `"low"`
    Low,
    /// `"medium"`
    Medium,
    /// `"high"`
    High,
}

/// A region of a channel's memory: one sandbox writes it, others only read it. Raw pages are one
/// region; messages take two for each receiver, [`Part::Tx`] and [`Part::Rx`] one behind the other.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The channel's name.
    pub name: String,
    /// Its `[[channel]]`.
    pub place: Place,
    /// Purpose of the region.
    pub part: Part,
    /// Doorbell that wakes the sandbox that writes the region, if it has one. It wakes the receiver of messages by
    /// [`Part::Rx`], and the driver of a virtio device by its [`Part::Tx`], too.
    pub bell: Option<Bell>,
    /// The sandbox that writes: for [`Part::Rx`] the receiver. A role is here by the first one that holds it.
    pub from: usize,
    /// The sandboxes that read; of a role, the first one that holds it.
    pub to: Vec<usize>,
    /// The role at one of its ends, if there is one.
    pub stand: Option<Stand>,
    /// Physical address.
    pub hpa: u64,
    /// Guest-physical address, at which every side sees it.
    pub gpa: u64,
    /// Bytes.
    pub len: u64,
}

impl Channel {
    /// True if a sandbox writes it, or does while it has a role.
    #[must_use]
    pub fn writes(&self, sandbox: usize) -> bool {
        self.from == sandbox || self.stands(sandbox).is_some_and(|stand| stand.writes)
    }

    /// True if a sandbox reads it, or does while it has a role.
    #[must_use]
    pub fn reads(&self, sandbox: usize) -> bool {
        self.to.contains(&sandbox) || self.stands(sandbox).is_some_and(|stand| !stand.writes)
    }

    /// The role as which a sandbox has an end of it.
    #[must_use]
    pub fn stands(&self, sandbox: usize) -> Option<&Stand> {
        self.stand.as_ref().filter(|stand| stand.holders.contains(&sandbox))
    }

    /// Its name, and which of its regions.
    #[must_use]
    pub fn title(&self) -> String {
        match self.part {
            Part::Pages | Part::Program => self.name.clone(),
            Part::Tx(_) => format!("{} tx", self.name),
            Part::Rx => format!("{} rx", self.name),
        }
    }
}

/// Memory for channels that a sandbox makes at run time, one at a time. First is the part that the offering
/// sandbox writes, then a page that the other one writes.
#[derive(Clone, Debug)]
pub struct Link {
    /// The sandbox that may offer it.
    pub owner: usize,
    /// Sandboxes that it may be offered to.
    pub to: Vec<usize>,
    /// `links` in the manifest.
    pub place: Place,
    /// Physical address.
    pub hpa: u64,
    /// Guest-physical address at which each side sees it while it has it. No other memory shares its page of table
    /// entries.
    pub gpa: u64,
    /// Bytes of both.
    pub len: u64,
    /// Bytes that the owner writes; the page behind them is the other's.
    pub sent: u64,
}

impl Link {
    /// True if a sandbox can have it.
    #[must_use]
    pub fn concerns(&self, sandbox: usize) -> bool {
        self.owner == sandbox || self.to.contains(&sandbox)
    }
}

/// How an end of a channel is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell {
    /// Its number among those that the sandbox rings that reads the region.
    pub number: u16,
    /// Its number among those that wake the other sandbox.
    pub nth: u16,
    /// Interrupt of the end being woken.
    pub vector: u32,
    /// Number by which the sender rings: a port of x86.
    pub ring: u16,
    /// The receiver looks while that pays, before it sleeps.
    pub adaptive: bool,
}

impl Bell {
    /// Makes one, by its numbers.
    #[must_use]
    pub const fn new(arch: Arch, number: u16, nth: u16, adaptive: bool) -> Self {
        let Doorbells { first, step, ring } = arch.facts().doorbells;
        let vector = first.saturating_add_signed(step * nth as i32);
        Self { number, nth, vector, ring: ring.saturating_add(number), adaptive }
    }

    /// As an information page tells it ([`Info::bells`](bulkhead_layout::info::Info::bells)) the sender or
    /// the receiver.
    #[must_use]
    pub const fn told(self, sender: bool) -> u32 {
        let at = if sender { self.ring as u32 } else { self.vector };
        at | if self.adaptive { ADAPTIVE } else { 0 }
    }
}

/// Purpose of a channel's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Any bytes that both ends agree on.
    Pages,
    /// A program that the receiver's monitor runs in place of the image's.
    Program,
    /// Region that a sender of messages writes. The region that follows it is the receiver's.
    Tx(Shape),
    /// Region that a receiver of messages writes: one page.
    Rx,
}

impl Part {
    /// It is a region of messages: both ends' monitors know its header.
    #[must_use]
    pub const fn has_header(self) -> bool {
        matches!(self, Self::Tx(_) | Self::Rx)
    }

    /// Returns the shape of the messages, if they are sent.
    #[must_use]
    pub const fn shape(self) -> Option<Shape> {
        match self {
            Self::Tx(shape) => Some(shape),
            Self::Pages | Self::Program | Self::Rx => None,
        }
    }
}

/// A system.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Its name.
    pub system: String,
    /// Its manifest.
    pub manifest: PathBuf,
    /// The machine.
    pub machine: Machine,
    /// Kernels run without monitors: on the cores themselves, at the machine's addresses.
    pub multikernel: bool,
    /// Memory set aside for the image (boot code, monitors, tables, pristine guests).
    pub image: Span,
    /// Memory that is taken from a Linux that runs, the image's first; `None`: the image starts the machine.
    pub block: Option<Span>,
    /// The sandboxes, by index.
    pub sandboxes: Vec<Sandbox>,
    /// The channels' regions, in the manifest's order.
    pub channels: Vec<Channel>,
    /// Memory for channels that are made at run time, by number.
    pub links: Vec<Link>,
    /// Roles, by number.
    pub roles: Vec<Role>,
    /// Registers that sandboxes share.
    pub mmio: Vec<SharedMmio>,
    /// Sandboxes that end a run when they end (`exited`, `stopped`).
    pub ends_with: Vec<usize>,
    /// Files behind the machine's drives.
    pub drives: Vec<Drive>,
    /// Networks of the machine that are one.
    pub hub: Vec<String>,
}

/// A file behind a drive of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// The drive's name.
    pub name: String,
    /// A raw image.
    pub file: PathBuf,
    /// The file keeps what the guests write; otherwise a run never changes it.
    pub keep: bool,
}

impl Plan {
    /// Tells if a sandbox is the Linux that runs before its monitor does.
    #[must_use]
    pub fn runs(&self, sandbox: usize) -> bool {
        self.sandboxes.get(sandbox).is_some_and(|sandbox| sandbox.guest == Guest::Running)
    }

    /// Tells if a sandbox is such a Linux, and can begin anew.
    #[must_use]
    pub fn begins_anew(&self, sandbox: usize) -> bool {
        self.runs(sandbox) && self.sandboxes[sandbox].again.is_some()
    }

    /// Lists the roles that a sandbox can hold, with their numbers.
    pub fn roles_of(&self, sandbox: usize) -> impl Iterator<Item = (usize, &Role)> {
        let all = self.roles.iter().enumerate();
        all.filter(move |(_, role)| role.holders.contains(&sandbox))
    }

    /// Name of a function's owner: its sandbox, or the role that it moves with.
    #[must_use]
    pub fn owner(&self, sandbox: &Sandbox, granted: &Granted) -> String {
        match granted.role.and_then(|role| self.roles.get(role)) {
            Some(role) => format!("role {}", role.name),
            None => sandbox.name.clone(),
        }
    }

    /// Tells if one of a sandbox's functions is told of with that sandbox. A role's is so once, with the first holder.
    #[must_use]
    pub fn counts(&self, sandbox: usize, granted: &Granted) -> bool {
        granted
            .role
            .and_then(|role| self.roles.get(role))
            .is_none_or(|role| role.begins_with(sandbox))
    }

    /// True if a sandbox waits for a role: its guest lives while it has one.
    #[must_use]
    pub fn waits(&self, sandbox: usize) -> bool {
        let mut roles = self.roles_of(sandbox).map(|(_, role)| role).peekable();
        let cold = |role: &Role| role.cold || !self.sandboxes[sandbox].autostart;
        roles.peek().is_some() && roles.any(cold)
    }

    /// The number of a link among those of its owner, as manifests count; 0 of one that is not there.
    #[must_use]
    pub fn which_link(&self, number: usize) -> usize {
        let owner = self.links.get(number).map(|link| link.owner);
        self.links.iter().take(number).filter(|link| Some(link.owner) == owner).count()
    }

    /// How the receiver of a sender's region is woken, if it is.
    #[must_use]
    pub fn bell(&self, tx: usize) -> Option<Bell> {
        self.channels.get(tx)?.part.shape()?;
        self.channels.get(tx + 1)?.bell
    }

    /// How the sender of a region is woken, if it is: a virtio device's driver.
    #[must_use]
    pub fn back(&self, tx: usize) -> Option<Bell> {
        let region = self.channels.get(tx)?;
        region.part.shape()?;
        region.bell
    }
}
