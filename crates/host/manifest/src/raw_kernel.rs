//! The format of a manifest for the programs of a kernel's sandbox: programs, threads, contexts, and the objects that
//! they share. Like [`crate::raw`], it is checked for its shape only.

use schemars::JsonSchema;
use serde::Deserialize;

/// Which arithmetic has to admit a kernel's contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// The sum of utilizations, for rate-monotonic priorities.
    Utilization,
    /// Response times, for any priorities.
    #[default]
    ResponseTime,
    /// No test: overcommitment is shown, not refused.
    None,
}

/// A budget of time on the core of a kernel's sandbox: a VCPU of Quest's.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Its name, unique among the contexts of its sandbox.
    pub name: String,
    /// The sandbox; its guest is a kernel.
    pub sandbox: String,
    /// Rule by which it gets its time.
    #[serde(default)]
    pub policy: Policy,
    /// C, such as `"200 us"`: time that its thread gets in each period.
    pub budget: Option<String>,
    /// T, such as `"1 ms"`. For a full context it is the length of a turn; for a PIBS context, the period while no
    /// thread asks for its work.
    pub period: Option<String>,
    /// U of a PIBS context, such as `"4 %"`.
    pub utilization: Option<String>,
    /// Length of the refill list, 2 to 64; 8 if it is not given.
    pub refills: Option<u32>,
    /// True if it runs below all priorities when it has no budget.
    #[serde(default)]
    pub background: bool,
    /// True if admission has to make sure that it gets its budget in time. Not for a full context.
    pub guaranteed: Option<bool>,
    /// Number of its activations in a period: one, and one more for each time that its thread waits. 1 if it is not
    /// given.
    pub activations: Option<u32>,
}

/// How a context gets its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Sporadic server: Quest's Main VCPU.
    #[default]
    Sporadic,
    /// At most C in every window of length T.
    Strict,
    /// For interrupt work, at its requester's priority: Quest's I/O VCPU.
    Pibs,
    /// As much as there is, in turns with others of its priority.
    Full,
}

/// A program: an address space and a capability space. A right that is not listed here it does not have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name, unique among all programs: threads name it.
    pub name: String,
    /// The sandbox; its guest is a kernel.
    pub sandbox: String,
    /// Static ELF64 file: a path from the manifest's folder, or `artifact:NAME`.
    pub file: String,
    /// Text handed to it.
    pub args: Option<String>,
    /// Size of its heap, such as `"64 KiB"`.
    pub heap: Option<String>,
    /// Size of untyped memory of its own, for objects that it makes at run time.
    pub memory: Option<String>,
    /// Slots of its capability space, a power of two; 64 if it is not given.
    pub slots: Option<u32>,
    /// True if it may configure contexts of its core.
    #[serde(default)]
    pub sched_control: bool,
    /// True if it may end its sandbox, and say that it has started.
    #[serde(default)]
    pub ends_sandbox: bool,
    /// True if it moves the progress word of its sandbox, which has `alive`.
    #[serde(default)]
    pub watchdog: bool,
    /// Endpoints that it may call.
    #[serde(default)]
    pub calls: Vec<Call>,
    /// Endpoints that it may receive from.
    #[serde(default)]
    pub serves: Vec<String>,
    /// Notifications that it may signal.
    #[serde(default)]
    pub signals: Vec<Signal>,
    /// Notifications that it may wait for.
    #[serde(default)]
    pub waits: Vec<String>,
    /// Shared memory that it sees.
    #[serde(default)]
    pub maps: Vec<Map>,
    /// Devices of its sandbox that it drives.
    #[serde(default)]
    pub devices: Vec<DeviceUse>,
    /// A program of its sandbox: this one can take its place. It has the devices of that one, and its threads wait.
    pub alternative_to: Option<String>,
    /// Channels of its sandbox that it sees.
    #[serde(default)]
    pub channels: Vec<ChannelUse>,
    /// Links that it may offer or accept, by the sandbox that offers them.
    #[serde(default)]
    pub links: Vec<LinkUse>,
    /// Objects that it has full capabilities to: `thread:NAME`, `context:NAME`, `program:NAME`.
    #[serde(default)]
    pub manages: Vec<String>,
}

/// The right to call an endpoint.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Call {
    /// Its name.
    Name(String),
    /// Its name, and the terms for this caller.
    Detailed(DetailedCall),
}

/// The right to call an endpoint, and the terms for this caller.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedCall {
    /// The endpoint.
    pub endpoint: String,
    /// Number that tells the receiver which caller this is.
    #[serde(default)]
    pub badge: u64,
    /// True if capabilities may be passed with a call.
    #[serde(default)]
    pub grant: bool,
}

/// The right to signal a notification.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Signal {
    /// Its name.
    Name(String),
    /// Its name, and the bits.
    Detailed(DetailedSignal),
}

/// The right to signal a notification with bits of the author's choice.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedSignal {
    /// The notification.
    pub notification: String,
    /// The bits that a signal sets; 1 if it is not given.
    pub bits: Option<u64>,
}

/// Shared memory that a program sees.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Map {
    /// Its name: it may be read.
    Name(String),
    /// Its name and the access.
    Detailed(DetailedMap),
}

/// Shared memory that a program sees, and how.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedMap {
    /// The shared memory.
    pub shared: String,
    /// Kind of access that the program has.
    #[serde(default)]
    pub access: MapAccess,
}

/// A program's access to shared memory. No program may execute it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MapAccess {
    /// Read it.
    #[default]
    R,
    /// Read and write it.
    Rw,
}

/// A device that a program drives, by the name that its sandbox has it by.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DeviceUse {
    /// Its name: without interrupts.
    Name(String),
    /// Its name, and where its interrupts go.
    Detailed(DetailedUse),
}

/// A device that a program drives, and where its interrupts go.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedUse {
    /// The device.
    pub device: String,
    /// Notifications for its interrupts. Interrupts that are not listed stay masked.
    #[serde(default)]
    pub interrupts: Vec<Interrupt>,
    /// Memory that a PCI function reads and, where the program may, writes: shared memory among the program's `maps`,
    /// and channels among its `channels`. It reaches no other memory.
    #[serde(default)]
    pub dma: Vec<String>,
}

/// A channel that a program sees.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ChannelUse {
    /// Its name.
    Name(String),
    /// Its name, and the notification that its doorbell signals.
    Detailed(DetailedChannel),
}

/// A channel that a program receives from or that has a virtio device, and the notification that its doorbell signals.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedChannel {
    /// The channel.
    pub channel: String,
    /// The notification that the doorbell signals.
    pub notification: String,
    /// The bits that it sets; 1 if it is not given.
    pub bits: Option<u64>,
}

/// Links that a program may offer or accept.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum LinkUse {
    /// The sandbox that offers them: all that this one may offer or be offered.
    Name(String),
    /// That sandbox, and which of them.
    Detailed(DetailedLink),
}

/// Some of the links that a sandbox offers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedLink {
    /// The sandbox with `links`.
    pub sandbox: String,
    /// Which of its links, from 0.
    pub numbers: Vec<u32>,
}

/// An interrupt as a signal.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interrupt {
    /// Which message of a PCI function, from 0; 0 for a line.
    #[serde(default)]
    pub number: u16,
    /// The notification that it signals.
    pub notification: String,
    /// The bits that it sets; 1 if it is not given.
    pub bits: Option<u64>,
}

/// A thread of a program.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    /// Its name, unique among the threads of its program's sandbox.
    pub name: String,
    /// The program.
    pub program: String,
    /// The ELF symbol at which it begins; the file's entry if it is the program's first.
    pub entry: Option<String>,
    /// The higher, the earlier: 0 to 255.
    pub priority: u8,
    /// The highest priority that it may give to a thread, itself included.
    #[serde(default)]
    pub max_priority: u8,
    /// The context that it runs on; without one it is passive and runs on its callers'.
    pub context: Option<String>,
    /// Size of its stack; `"16 KiB"` if it is not given.
    pub stack: Option<String>,
    /// True if it may use the floating-point unit.
    #[serde(default)]
    pub fpu: bool,
    /// The endpoint to which its faults go; without one they stop it.
    pub fault: Option<Route>,
    /// The endpoint to which the ends of its budget go; without one it waits for the next refill.
    pub timeout: Option<Route>,
}

/// An endpoint to which the kernel sends messages about a thread.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Route {
    /// Its name.
    Name(String),
    /// Its name and a badge.
    Detailed(DetailedRoute),
}

/// An endpoint to which the kernel sends messages, and their badge.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedRoute {
    /// The endpoint.
    pub endpoint: String,
    /// Number that tells the receiver which thread this is.
    #[serde(default)]
    pub badge: u64,
}

/// An endpoint at which programs of a sandbox receive calls.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Its name, unique among the endpoints of its sandbox.
    pub name: String,
    /// The sandbox; its guest is a kernel.
    pub sandbox: String,
    /// Longest time of a call on its caller's budget, such as `"20 us"`. A caller can keep other threads waiting that
    /// long, by a passive server above them. A server that takes longer has a fault.
    pub longest: Option<String>,
}

/// A word of bits that programs and interrupts of a sandbox signal, and programs wait for.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Notification {
    /// Its name, unique among the notifications of its sandbox.
    pub name: String,
    /// The sandbox; its guest is a kernel.
    pub sandbox: String,
    /// A context that it lends to a passive thread that takes a signal.
    pub context: Option<String>,
}

/// Memory that several programs of a sandbox see.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Its name, unique among the shared memory of its sandbox.
    pub name: String,
    /// The sandbox; its guest is a kernel.
    pub sandbox: String,
    /// Its size, such as `"64 KiB"`.
    pub size: String,
}

impl Call {
    /// Returns the call as written, or with its defaults.
    #[must_use]
    pub fn detailed(&self) -> DetailedCall {
        match self {
            Self::Name(name) => DetailedCall { endpoint: name.clone(), badge: 0, grant: false },
            Self::Detailed(detailed) => detailed.clone(),
        }
    }
}

impl Signal {
    /// The notification's name, and the bits or their default.
    #[must_use]
    pub fn parts(&self) -> (&str, u64) {
        match self {
            Self::Name(name) => (name, 1),
            Self::Detailed(detailed) => (&detailed.notification, detailed.bits.unwrap_or(1)),
        }
    }
}

impl Map {
    /// The shared memory's name, and the access or its default.
    #[must_use]
    pub fn parts(&self) -> (&str, MapAccess) {
        match self {
            Self::Name(name) => (name, MapAccess::R),
            Self::Detailed(detailed) => (&detailed.shared, detailed.access),
        }
    }
}

impl ChannelUse {
    /// The channel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Detailed(detailed) => &detailed.channel,
        }
    }

    /// Returns the notification that its doorbell signals.
    #[must_use]
    pub const fn signal(&self) -> Option<&DetailedChannel> {
        match self {
            Self::Name(_) => None,
            Self::Detailed(detailed) => Some(detailed),
        }
    }
}

impl LinkUse {
    /// The sandbox that offers them.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Detailed(detailed) => &detailed.sandbox,
        }
    }

    /// Returns the numbers of the links that it uses; `None`: all.
    #[must_use]
    pub fn numbers(&self) -> Option<&[u32]> {
        match self {
            Self::Name(_) => None,
            Self::Detailed(detailed) => Some(&detailed.numbers),
        }
    }
}

impl DeviceUse {
    /// The device's name, and where its interrupts go.
    #[must_use]
    pub fn parts(&self) -> (&str, &[Interrupt]) {
        match self {
            Self::Name(name) => (name, &[]),
            Self::Detailed(detailed) => (&detailed.device, &detailed.interrupts),
        }
    }

    /// Names of the shared memory and channels that it reaches.
    #[must_use]
    pub fn dma(&self) -> &[String] {
        match self {
            Self::Name(_) => &[],
            Self::Detailed(detailed) => &detailed.dma,
        }
    }
}

impl Route {
    /// The endpoint's name, and the badge or its default.
    #[must_use]
    pub fn parts(&self) -> (&str, u64) {
        match self {
            Self::Name(name) => (name, 0),
            Self::Detailed(detailed) => (&detailed.endpoint, detailed.badge),
        }
    }
}
