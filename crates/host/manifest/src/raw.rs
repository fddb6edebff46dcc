//! The format of a manifest, version 1. These types are its only definition. The JSON Schema is generated from them,
//! the shape check ([`crate::shape`]) follows that schema, and decoding uses them. Only the shape is checked here;
//! the rules check the rest.

pub use crate::raw_kernel::{
    Admission, Context, Endpoint, Notification, Policy, Program, Shared, Thread,
};
use bulkhead_channel::layout::Kind;
use schemars::JsonSchema;
use serde::Deserialize;

/// A Bulkhead system: the sandboxes into which a machine is divided, and everything that each sandbox may use. A
/// resource that is not granted here is denied.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the manifest's format; 1 if it is not given.
    pub version: Option<u32>,
    /// The system as a whole.
    pub system: System,
    /// Making of the guests' files.
    pub build: Option<Commands>,
    /// How `bulkhead run` runs it.
    pub run: Option<Run>,
    /// How it starts under a Linux that runs already.
    pub under_linux: Option<UnderLinux>,
    /// The sandboxes. Their order gives their indices.
    #[serde(default)]
    pub sandbox: Vec<Sandbox>,
    /// Memory that sandboxes share. Their order gives their addresses.
    #[serde(default)]
    pub channel: Vec<Channel>,
    /// Places that one of several sandboxes has at a time.
    #[serde(default)]
    pub role: Vec<Role>,
    /// Registers that sandboxes share.
    #[serde(default)]
    pub shared_mmio: Vec<SharedMmio>,
    /// Actions after denied accesses.
    #[serde(default)]
    pub health: Vec<Health>,
    /// Guests that can take the place of a sandbox's own.
    #[serde(default)]
    pub alternative: Vec<Alternative>,
    /// Monitors that look whether other sandboxes' monitors go on.
    #[serde(default)]
    pub peer: Vec<Peer>,
    /// Programs that kernels run.
    #[serde(default)]
    pub program: Vec<Program>,
    /// Threads of programs.
    #[serde(default)]
    pub thread: Vec<Thread>,
    /// Budgets of time for threads.
    #[serde(default)]
    pub context: Vec<Context>,
    /// Endpoints at which programs receive calls.
    #[serde(default)]
    pub endpoint: Vec<Endpoint>,
    /// Notifications that programs signal and wait for.
    #[serde(default)]
    pub notification: Vec<Notification>,
    /// Memory that several programs see.
    #[serde(default)]
    pub shared: Vec<Shared>,
}

/// The system as a whole.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Its name.
    pub name: String,
    /// Machine description: a path from the manifest's folder, or from the
    /// root of the source tree.
    pub machine: String,
    /// True if there is a monitor under each sandbox. Without monitors every guest is a kernel, which is trusted with
    /// the whole machine; no virtualization is needed.
    #[serde(default = "yes")]
    pub monitors: bool,
}

/// Making of the guests' files, by `bulkhead build` and `bulkhead run`. No other command executes anything.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Commands {
    /// Commands, one after the other, in the manifest's folder: each a program and its arguments, without a shell.
    /// They decide for themselves what is old.
    pub run: Vec<Vec<String>>,
}

/// How `bulkhead run` runs the system.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The run ends when all of these sandboxes have stopped.
    #[serde(default)]
    pub ends_with: Vec<String>,
    /// Changes that apply without a terminal.
    #[serde(default)]
    pub scenario: Vec<Scenario>,
    /// Files behind the machine's drives.
    #[serde(default)]
    pub drive: Vec<Drive>,
    /// Networks of the machine that are one, without a world outside.
    #[serde(default)]
    pub hub: Vec<String>,
}

/// How the system starts under a Linux that runs already, by `bulkhead build --under-linux`. An image that starts the
/// machine itself is not concerned.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnderLinux {
    /// The Linux sandbox that the running Linux becomes.
    pub sandbox: String,
    /// Memory that is taken from it, for the image and all other sandboxes: a multiple of `"128 MiB"`.
    #[serde(default = "block")]
    pub memory: String,
    /// Means by which its devices are confined.
    #[serde(default)]
    pub dma: Dma,
    /// The image keeps kernel, initrd and command line of that sandbox, so that it can begin anew.
    #[serde(default)]
    pub restart: bool,
}

fn block() -> String {
    "128 MiB".into()
}

/// A file behind a drive of the machine.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// The drive, as the machine description names it.
    pub name: String,
    /// A raw image: a path from the manifest's folder, or `artifact:NAME`.
    pub file: String,
    /// The file keeps what the guests write. Without it a run never changes the file.
    #[serde(default)]
    pub keep: bool,
}

/// Differences of a run without a terminal for one sandbox.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The sandbox.
    pub sandbox: String,
    /// Which of its programs, if its guest is a kernel.
    pub program: Option<String>,
    /// Text for the end of its kernel command line or program arguments.
    #[serde(default)]
    pub append: String,
    /// The sandbox begins anew so many times in such a run, which is judged by that.
    #[serde(default)]
    pub restarts: u64,
}

/// A sandbox: cores, memory and devices of its own, and the guest that runs there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// Its name: lower-case letters, digits and hyphens.
    pub name: String,
    /// Guest that runs in it.
    pub guest: Guest,
    /// Core numbers of the machine; the first one boots. No core has two owners.
    pub cores: Vec<u32>,
    /// Its RAM.
    pub memory: Memory,
    /// Devices of the machine description that it owns.
    #[serde(default)]
    pub devices: Vec<DeviceGrant>,
    /// Sandboxes that it may stop.
    #[serde(default)]
    pub stop: Vec<RightOver>,
    /// Sandboxes that it may start.
    #[serde(default)]
    pub start: Vec<RightOver>,
    /// Sandboxes that it may restart; one that does not run only if it may start it, too.
    #[serde(default)]
    pub restart: Vec<RightOver>,
    /// Time from a look of its monitor at it to the next, such as `"100 ms"`, whatever the guest does: its *watchdog*.
    pub watchdog: Option<String>,
    /// How often each of its cores moves its progress word, at least. The watchdog looks whether it does.
    pub alive: Option<Alive>,
    /// Time in which the watchdog looks at each byte of text and constants, which nothing may change, such as `"10 s"`.
    pub sweep: Option<String>,
    /// Most bytes of a snapshot, such as `"64 KiB"`: state of its guest that outlives it, for `restart warm`.
    pub snapshot: Option<String>,
    /// Build of its monitor.
    #[serde(default)]
    pub monitor: Build,
    /// Build of its spare monitor, into which a peer's monitor starts its cores.
    #[serde(default)]
    pub spare: Build,
    /// Sandboxes with reports (state, exits, denials, console) that it may read.
    #[serde(default)]
    pub observe: Vec<String>,
    /// Sandboxes with which it may make channels at run time, and the memory for them.
    pub links: Option<Links>,
    /// True if it starts with the machine.
    #[serde(default = "yes")]
    pub autostart: bool,
    /// Its answer when the Linux of `[under_linux]` takes the machine back.
    #[serde(default)]
    pub release: Release,
    /// True if its guest may lock it. From then on no other sandbox stops or restarts it, whatever right it has.
    #[serde(default)]
    pub lockable: bool,
    /// True if a debugger may stop its guest, look at it and change it (`bulkhead gdb`). Not in releases.
    #[serde(default)]
    pub debug: bool,
    /// True if it is being tried out. An access that is not granted is then recorded and answered as absent, and
    /// `bulkhead run` prints the line that would grant it. Not in releases.
    #[serde(default)]
    pub learn: bool,
    /// Its importance for the system. Shown by `bulkhead plan`.
    pub criticality: Option<Criticality>,
}

/// Answer of a sandbox when the Linux that ran before takes the machine back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Release {
    /// It is not ended. The machine stays as it is while it lives.
    #[default]
    Never,
    /// That Linux asks, and it is ended.
    Ask,
}

/// Build of a monitor: all have one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Build {
    /// The smallest one that has code for all that the sandbox needs. It cannot panic.
    #[default]
    Usual,
    /// Another optimisation level, another layout, and checks: an overflow or an assertion that fails ends it.
    Checked,
}

/// How often a guest's cores move their progress words.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Alive {
    /// Time from a move to the next, at most. The first one may take any time.
    Every(String),
    /// That, and the time until the first one.
    Limited(LimitedAlive),
}

/// How often a guest's cores move their progress words, and when they begin to.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitedAlive {
    /// Time from a move to the next, at most, such as `"100 ms"`.
    pub every: String,
    /// Time from a core's start to its first move, at most, such as `"20 s"`.
    pub first: String,
}

impl Alive {
    /// The time between two moves, as it was written.
    #[must_use]
    pub fn every(&self) -> &str {
        match self {
            Self::Every(every) => every,
            Self::Limited(limited) => &limited.every,
        }
    }

    /// The time until the first move, if it was written.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        match self {
            Self::Every(_) => None,
            Self::Limited(limited) => Some(&limited.first),
        }
    }
}

/// A sandbox that another sandbox may stop, start or restart.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RightOver {
    /// Its name; every 10 ms.
    Name(String),
    /// Its name, and how often.
    Paced(Paced),
}

/// A sandbox that another sandbox may stop, start or restart, and how often.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Paced {
    /// Its name.
    pub sandbox: String,
    /// Time between two requests, at least, such as `"10 ms"`.
    pub every: String,
}

impl RightOver {
    /// The sandbox's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Paced(paced) => &paced.sandbox,
        }
    }

    /// The time between two requests, if it was written.
    #[must_use]
    pub fn every(&self) -> Option<&str> {
        match self {
            Self::Name(_) => None,
            Self::Paced(paced) => Some(&paced.every),
        }
    }
}

impl Sandbox {
    /// Its rights over others' lives, with their keys.
    #[must_use]
    pub fn rights(&self) -> [(&'static str, &[RightOver]); 3] {
        let [stop, start, restart] = bulkhead_plan::RIGHTS;
        [(stop, &self.stop), (start, &self.start), (restart, &self.restart)]
    }
}

/// Channels that a sandbox may make at run time.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Sandboxes to which it may offer one. Each accepts or not.
    pub to: Vec<String>,
    /// How many there can be at a time, with all of them together.
    pub count: u32,
    /// Bytes that it writes in each link, such as `"16 KiB"`; the other end writes a page.
    pub size: String,
}

fn yes() -> bool {
    true
}

/// Guest of a sandbox.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Guest {
    /// An unmodified Linux.
    Linux {
        /// bzImage, or the vmlinux in it: a path from the manifest's folder, or `artifact:NAME`.
        kernel: String,
        /// Initial RAM file system, likewise.
        initrd: Option<String>,
        /// Kernel command line.
        cmdline: Option<String>,
    },
    /// A program on the bare virtual machine.
    Bare {
        /// Static ELF64 file: a path from the manifest's folder, or `artifact:NAME`.
        program: String,
        /// Text handed to the program.
        args: Option<String>,
        /// Rights to its own memory.
        #[serde(default)]
        access: Access,
    },
    /// Bulkhead's kernel, which runs the programs that name this sandbox.
    Kernel {
        /// Static ELF64 file: a path from the manifest's folder, or `artifact:NAME`. Default: `artifact:kernel`; with
        /// `trace`, `artifact:kernel-trace`.
        kernel: Option<String>,
        /// Test that its contexts have to pass.
        #[serde(default)]
        admission: Admission,
        /// Size of the ring in which it records its actions, a power of two such as `"1 MiB"`. Without it the kernel
        /// records nothing, and has no code for it.
        trace: Option<String>,
    },
    /// Nothing, until another sandbox creates something here.
    Vacant {},
}

impl Guest {
    /// The program that a bay of the image has: it ends at once, and what is created takes its place.
    #[must_use]
    pub fn of_bay() -> Self {
        let program = format!("{}vacant", crate::artifact::PREFIX);
        Self::Bare { program, args: None, access: Access::Rwx }
    }
}

/// A file with something that a sandbox creates in a bay.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartFile {
    /// Its content.
    pub part: Part,
}

/// Something that a sandbox creates in a bay while the machine runs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name, for those who look at it.
    pub name: String,
    /// A bare guest; `access` is always `rwx`.
    pub guest: Guest,
    /// RAM that it needs, such as `"4 MiB"`. It gets all that its bay has.
    pub memory: String,
    /// Devices that its bay has to have, as the bay's `devices` name them.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Channels that its bay has to be an end of.
    #[serde(default)]
    pub channels: Vec<String>,
}

/// Rights that a bare program has to its own memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// As its segments say: text is not writable, data not executable.
    #[default]
    Segments,
    /// All of it is readable, writable and executable.
    Rwx,
}

/// A device that a sandbox owns: a name such as `uart1`, or a PCI function. A function is named by address
/// (`pci:01:00.0`), by vendor and device (`pci:1af4:1042`) or by class (`pci:class:0108`, with as many digits as it
/// takes).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DeviceGrant {
    /// Its name.
    Name(String),
    /// Its name, and the terms of this grant.
    Detailed(DetailedGrant),
}

/// A device and the terms of its grant.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedGrant {
    /// Its name.
    pub device: String,
    /// Means by which its DMA is confined.
    #[serde(default)]
    pub dma: Dma,
    /// True if it may use its interrupt line although it can send messages.
    #[serde(default)]
    pub line: bool,
}

/// Means by which the DMA of a PCI function is confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dma {
    /// The IOMMU.
    #[default]
    Confined,
    /// Nothing: it can read and write all memory. For machines without an IOMMU.
    Unconfined,
}

impl DeviceGrant {
    /// The device's name as it was written.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Detailed(detailed) => &detailed.device,
        }
    }

    /// Returns the grant as written, or with its defaults.
    #[must_use]
    pub fn detailed(&self) -> DetailedGrant {
        match self {
            Self::Name(device) => {
                DetailedGrant { device: device.clone(), dma: Dma::Confined, line: false }
            }
            Self::Detailed(detailed) => detailed.clone(),
        }
    }
}

/// RAM of a sandbox.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Memory {
    /// Its size, such as `"512 MiB"`.
    Size(String),
    /// Its size and place.
    Placed(Placed),
}

/// RAM at a place of the author's choice.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// Its size, such as `"512 MiB"`.
    pub size: String,
    /// Host-physical address, such as `"4 GiB"` or `"0x1_0000_0000"`.
    pub at: Option<String>,
}

impl Memory {
    /// The size as it was written.
    #[must_use]
    pub fn size(&self) -> &str {
        match self {
            Self::Size(size) => size,
            Self::Placed(placed) => &placed.size,
        }
    }

    /// The place as it was written.
    #[must_use]
    pub fn at(&self) -> Option<&str> {
        match self {
            Self::Size(_) => None,
            Self::Placed(placed) => placed.at.as_deref(),
        }
    }
}

/// How much depends on a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Criticality {
    /// Its failure is a nuisance.
    Low,
    /// Its failure costs the mission.
    Medium,
    /// Its failure costs lives or the machine.
    High,
}

/// Memory through which one sandbox speaks to others.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// Its name.
    pub name: String,
    /// The sandbox that writes, or a role.
    pub from: String,
    /// The sandboxes that read; a role, too. Messages go to each through memory of its own. Pages of a role need none.
    pub to: Vec<String>,
    /// Its size, such as `"64 KiB"`. A channel of messages has this size for each receiver, with 512 bytes of header.
    pub size: String,
    /// Kind of its content.
    #[serde(default)]
    pub kind: ChannelKind,
    /// Bytes of a message of a queue, or of the state in a mailbox.
    pub message: Option<u32>,
    /// How readers learn of news.
    #[serde(default)]
    pub notify: Notify,
}

/// Content of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    /// Any bytes that both ends agree on: all readers see one memory.
    #[default]
    Pages,
    /// Messages of one size, in order.
    Queue,
    /// Messages of any length, in order.
    Records,
    /// The newest state.
    Mailbox,
    /// A virtio device: `from` has the driver, each of `to` a device side for it. Both have sections of `size`.
    Virtio,
    /// A program for a bare sandbox, which runs it from its next start on.
    Program,
}

impl ChannelKind {
    /// Which kind of messages, if it carries messages.
    #[must_use]
    pub const fn messages(self) -> Option<Kind> {
        match self {
            Self::Pages | Self::Program => None,
            Self::Queue => Some(Kind::Queue),
            Self::Records => Some(Kind::Records),
            Self::Mailbox => Some(Kind::Mailbox),
            Self::Virtio => Some(Kind::Virtio),
        }
    }

    /// As the manifest has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::Queue => "queue",
            Self::Records => "records",
            Self::Mailbox => "mailbox",
            Self::Virtio => "virtio",
            Self::Program => "program",
        }
    }
}

/// How readers of a channel learn of news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Notify {
    /// They look.
    #[default]
    Poll,
    /// They sleep, and the writer rings.
    Doorbell,
    /// They look while it pays, then sleep.
    Adaptive,
}

/// An answer to a denied access, or to another finding.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// The sandbox that was denied the access, or that it was found in.
    pub sandbox: String,
    /// The kind of access or finding, or a list of kinds.
    pub on: Events,
    /// Action to take each time.
    pub action: Option<Action>,
    /// Actions in their order, each with how often it is taken, in place of `action`.
    pub ladder: Option<Vec<Rung>>,
}

/// One kind of finding, or several with one answer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Events {
    /// One kind.
    One(Event),
    /// Several kinds. A ladder counts all of them together.
    Several(Vec<Event>),
}

impl Events {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Event] {
        match self {
            Self::One(event) => std::slice::from_ref(event),
            Self::Several(events) => events,
        }
    }
}

/// A rung of a ladder.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rung {
    /// Action to take.
    pub action: Step,
    /// Name of the `[[alternative]]`, for this action.
    pub name: Option<String>,
    /// For `failover`, the sandbox that takes the roles over. Without it each role chooses by itself.
    pub to: Option<String>,
    /// How often it is taken; then the next rung is. Each rung but the last has it.
    pub at_most: Option<AtMost>,
}

/// Action of a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// The guest that runs starts anew, its memory as at its first launch.
    Restart,
    /// It starts anew, and can read its last snapshot.
    #[serde(rename = "restart warm")]
    Warm,
    /// Another guest starts in its place.
    Alternative,
    /// Another sandbox takes over the roles, and the guest that runs starts anew without them.
    Failover,
    /// The sandbox is stopped.
    Stop,
}

/// A limit on a rung.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AtMost {
    /// Times.
    pub times: u32,
    /// Time in which they are counted, wherever it begins, such as `"10 s"`.
    pub within: String,
}

/// A guest that can take the place of a sandbox's own.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// Its name, for ladders.
    pub name: String,
    /// The sandbox.
    pub sandbox: String,
    /// The guest, of the kind of the sandbox's own. Not for kernels.
    pub guest: Option<Other>,
    /// Programs of the sandbox's kernel that have another file then.
    #[serde(default)]
    pub programs: Vec<Instead>,
}

/// A guest in the place of another one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Other {
    /// An unmodified Linux.
    Linux {
        /// bzImage, or the vmlinux in it: a path from the manifest's folder, or `artifact:NAME`.
        kernel: String,
        /// Initial RAM file system, likewise.
        initrd: Option<String>,
        /// Kernel command line.
        cmdline: Option<String>,
    },
    /// A program on the bare virtual machine. It gets the text that the sandbox's own is handed.
    Bare {
        /// Static ELF64 file: a path from the manifest's folder, or `artifact:NAME`.
        program: String,
        /// Rights to its own memory.
        #[serde(default)]
        access: Access,
    },
}

impl Other {
    /// As a sandbox has it.
    #[must_use]
    pub fn guest(&self) -> Guest {
        match self.clone() {
            Self::Linux { kernel, initrd, cmdline } => Guest::Linux { kernel, initrd, cmdline },
            Self::Bare { program, access } => Guest::Bare { program, args: None, access },
        }
    }
}

/// A program with another file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Instead {
    /// Name of the `[[program]]`.
    pub name: String,
    /// Its file then: a path from the manifest's folder, or `artifact:NAME`.
    pub file: String,
}

/// A place that one of several sandboxes has at a time, and another one can take over. Channels name it in place of a
/// sandbox.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// The sandboxes that can hold it, one at a time. The first one has it at the machine's start.
    pub holders: Vec<String>,
    /// Choice among the holders that could take it over.
    #[serde(default)]
    pub choose: Choose,
    /// State of the holders that do not have it.
    #[serde(default)]
    pub standby: Standby,
    /// PCI functions that its holder has, such as `"pci:00:05.0"`. They send no interrupts.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Channels of the role that these functions reach.
    #[serde(default)]
    pub dma: Vec<String>,
}

/// Pages of a device's registers, and the sandboxes that see them. They can disturb each other there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedMmio {
    /// Its name.
    pub name: String,
    /// Address of the first page in the machine, such as `"0xfed1d000"`. Guests see it there, too.
    pub address: String,
    /// Bytes: whole pages.
    #[serde(default = "page")]
    pub size: String,
    /// Parts of sandboxes.
    pub parts: Vec<MmioPart>,
}

fn page() -> String {
    "4 KiB".into()
}

/// Part of a sandbox in shared registers: all pages, or a range in one of them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MmioPart {
    /// The sandbox.
    pub sandbox: String,
    /// Accesses that it may make.
    pub access: MmioAccess,
    /// First byte of the range, from the first page on. Its monitor makes each access then, which is an exit.
    pub offset: Option<u32>,
    /// Bytes of the range.
    pub size: Option<u32>,
}

/// Accesses to shared registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MmioAccess {
    /// Reads.
    R,
    /// Reads and writes.
    Rw,
}

/// State of a role's holders that do not have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Standby {
    /// They run.
    #[default]
    Warm,
    /// They are not launched until the role comes.
    Cold,
}

/// Choice of a role's next holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Choose {
    /// The first one in the order of `holders`.
    #[default]
    FirstHealthy,
    /// The one that has the fewest roles.
    LeastLoaded,
}

/// A monitor that looks whether another sandbox' monitor goes on.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// The monitor of this sandbox looks.
    pub sandbox: String,
    /// At the monitor of this one.
    pub watches: String,
    /// Time without a heartbeat after which that monitor has stopped, such as `"20 ms"`.
    pub every: String,
    /// Likewise while its guest is launched; without it a launch has no limit.
    pub first: Option<String>,
    /// Actions beside the record that are allowed then.
    #[serde(default)]
    pub may: Vec<May>,
}

/// Actions on another sandbox after its monitor has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum May {
    /// Its cores are stopped by INIT, and started in its spare monitor.
    Init,
    /// Its PCI functions are kept from memory: their bus mastering is switched off.
    BusMaster,
}

/// Kinds of denied accesses, and other findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Memory that is not the sandbox's, or not with that right.
    MemoryViolation,
    /// An I/O port.
    PortViolation,
    /// A model-specific register.
    MsrViolation,
    /// An interrupt to another sandbox's core, or of a forbidden kind.
    IpiViolation,
    /// An instruction that no guest may run.
    InstructionViolation,
    /// A hypercall without the right to it.
    HypercallViolation,
    /// A triple fault, or a state that the processor refuses.
    TripleFault,
    /// A register of a PCI function, MSI-X table or IOAPIC that is not the
    /// sandbox's, or a value that it may not have.
    DeviceViolation,
    /// A core that has not moved its progress word in time (`alive`).
    Hang,
    /// A guest that has ended with an exit code other than 0.
    Failure,
    /// Memory or a control block that is not as it was (`sweep`).
    Corruption,
    /// A monitor that has stopped (`[[peer]]`).
    Monitor,
}

impl Event {
    /// All of them, in the order of [`bulkhead_layout::report::Kind`].
    pub const ALL: [Self; bulkhead_layout::report::KINDS] = [
        Self::MemoryViolation,
        Self::PortViolation,
        Self::MsrViolation,
        Self::IpiViolation,
        Self::InstructionViolation,
        Self::HypercallViolation,
        Self::TripleFault,
        Self::DeviceViolation,
        Self::Hang,
        Self::Failure,
        Self::Corruption,
        Self::Monitor,
    ];

    /// As manifests write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        bulkhead_layout::report::KIND_NAMES[self as usize]
    }
}

/// Action after a denied access or another finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The access has no effect and the guest goes on.
    Ignore,
    /// The sandbox is stopped.
    Stop,
    /// The sandbox starts anew, its memory as at the first launch.
    Restart,
    /// It starts anew, and can read its last snapshot.
    #[serde(rename = "restart warm")]
    Warm,
}
