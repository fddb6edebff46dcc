//! The content of a kernel's sandbox: programs, and everything that each program may do. Numbers in these types are
//! indices into the lists of one [`Kernel`], in the manifest's order, unless they say otherwise. The builder of the
//! kernel's objects gives the rights that are listed here, and no others.

use crate::Place;
pub use bulkhead_sched::Utilization;
pub use bulkhead_sched::admission::Test;
pub use bulkhead_sched::call_needs;
use std::path::PathBuf;

/// Time that the kernel spends on an activation of a context, in nanoseconds. Admission counts it, and the kernel
/// charges it; no other place states a number. It is the sum of the kernel's own goals, rounded up: a timer interrupt
/// that replenishes (320) and two switches (320 each). The kernel's benchmarks measure these.
pub const OVERHEAD: u64 = 1_000;

/// Longest entry of an interrupt or a channel's doorbell into the kernel, in nanoseconds, with the monitor's work for
/// its mask. Admission counts it in others' time; the kernel charges the time that an entry takes. The rows
/// `kernel.interrupt_entry` and `kernel.bell_entry` measure it. The longest entry masks an interrupt of a driver
/// without budget, looks after timers and switches: 2,191 instructions. The rest is room.
pub const ENTRY: u64 = 3_000;

/// Most slots of a capability space; a power of two. A capability's address has 16 bits for each of two levels.
pub const SLOTS: std::ops::RangeInclusive<u32> = 16..=1 << 16;

/// Places for the objects and pages that an image's kernel begins with, as a power of two. They are slots of the node
/// in which these are made.
pub const PLACE_BITS: u8 = 14;

/// A kernel and its programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The kernel itself: an ELF64 file.
    pub file: PathBuf,
    /// Test that admitted its contexts.
    pub admission: Test,
    /// Time that an activation of a context costs, in nanoseconds: [`OVERHEAD`].
    pub overhead: u64,
    /// Longest entry of an interrupt, in nanoseconds: [`ENTRY`].
    pub entry: u64,
    /// Bytes of the ring in which it records its actions, a power of two; 0: it records nothing. The ring lies at the
    /// end of its memory, behind a page.
    pub trace: u64,
    /// Least time between two requests, in nanoseconds, for each right that others have over its sandbox's life. Each
    /// request can be a doorbell, which is an exit in the time of the running thread.
    pub doorbells: Vec<u64>,
    /// Longest time of such a doorbell, in nanoseconds: an exit and the monitor's look into its mail
    /// ([`crate::doorbell`]).
    pub doorbell: u64,
    /// Programs.
    pub programs: Vec<Program>,
    /// Their threads.
    pub threads: Vec<Thread>,
    /// Budgets.
    pub contexts: Vec<Context>,
    /// Endpoints at which calls are received.
    pub endpoints: Vec<Endpoint>,
    /// Words of bits to signal and wait for.
    pub notifications: Vec<Notification>,
    /// Memory that several programs see.
    pub shared: Vec<Shared>,
}

/// A program: an address space and a capability space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its name; unique in the manifest.
    pub name: String,
    /// Its `[[program]]`.
    pub place: Place,
    /// Static ELF64 file without segments that can be both written and executed.
    pub file: PathBuf,
    /// Text for it.
    pub args: String,
    /// Bytes of zeroed memory for its heap, whole pages; 0: none.
    pub heap: u64,
    /// Bytes of untyped memory of its own, for objects at run time, whole pages; 0: none.
    pub memory: u64,
    /// Slots of its capability space, a power of two.
    pub slots: u32,
    /// It has its core's `sched_control`: it may configure contexts.
    pub sched_control: bool,
    /// It may end its sandbox, and say that it has started.
    pub ends: bool,
    /// It moves the progress word of its sandbox.
    pub watchdog: bool,
    /// Endpoints that it may call, in the manifest's order.
    pub calls: Vec<Call>,
    /// Endpoints that it may receive from.
    pub serves: Vec<usize>,
    /// Notifications that it may signal.
    pub signals: Vec<Signal>,
    /// Notifications that it may wait for.
    pub waits: Vec<usize>,
    /// Shared memory that it sees.
    pub maps: Vec<Map>,
    /// Devices that it drives. No device has two programs, but for an alternative.
    pub devices: Vec<DeviceUse>,
    /// Another program: this one can take its place, with its devices, and its threads wait for that.
    pub alternative_to: Option<usize>,
    /// Channels of its sandbox that it sees.
    pub channels: Vec<ChannelUse>,
    /// Links that it may offer or accept: indices into [`crate::Plan::links`]. No link has two programs of a kernel.
    pub links: Vec<usize>,
    /// Objects that it gets full capabilities to.
    pub manages: Vec<Managed>,
}

/// The right to call an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub endpoint: usize,
    /// Number that tells the receiver which caller this is; 0: no number.
    pub badge: u64,
    /// Capabilities may be passed with a call.
    pub grant: bool,
}

/// The right to signal a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Which.
    pub notification: usize,
    /// The bits that a signal sets; not 0.
    pub bits: u64,
}

/// Shared memory in a program's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// Which.
    pub shared: usize,
    /// May be written.
    pub write: bool,
}

/// A device that a program drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// Which.
    pub device: Driven,
    /// Notifications for its interrupts. Interrupts that are not listed stay masked.
    pub interrupts: Vec<Interrupt>,
    /// Memory of the program that a PCI function reaches, with the program's rights. It reaches no other memory
    /// ([`crate::Plan::dma`]).
    pub dma: Vec<Reached>,
}

/// Memory that a program lets its device reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Shared memory that the program maps.
    Shared(usize),
    /// A channel that the program sees, by its first region: index into [`crate::Plan::channels`].
    Channel(usize),
}

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// Index into [`crate::Sandbox::devices`].
    Device(usize),
    /// Index into [`crate::Sandbox::functions`].
    Function(usize),
}

/// An interrupt as a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Which message of a PCI function (entry of its MSI-X table); 0 for a line.
    pub number: u16,
    /// Notification that it signals.
    pub notification: usize,
    /// The bits that it sets; not 0.
    pub bits: u64,
}

/// A channel that a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelUse {
    /// Index into [`crate::Plan::channels`]: of messages the sender's region, behind which lies the receiver's.
    pub channel: usize,
    /// The sandbox is the channel's sender.
    pub write: bool,
    /// Signal that its doorbell sends.
    pub signal: Option<Signal>,
}

/// An object that a program has full capabilities to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managed {
    /// A program's capability space and address space; not its threads.
    Program(usize),
    /// A thread.
    Thread(usize),
    /// A context; to configure it takes `sched_control`, too.
    Context(usize),
}

/// A thread of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its name; unique in the kernel.
    pub name: String,
    /// Its `[[thread]]`.
    pub place: Place,
    /// Its program.
    pub program: usize,
    /// The ELF symbol at which it begins; `None`: the file's entry.
    pub entry: Option<String>,
    /// Priority; a higher number runs earlier. On a PIBS context it holds while no thread asks for its work.
    pub priority: u8,
    /// The highest priority that it may give to a thread, itself included.
    pub max_priority: u8,
    /// Context that it runs on; `None`: it is passive, and runs on its callers' contexts.
    pub context: Option<usize>,
    /// Bytes of its stack, whole pages.
    pub stack: u64,
    /// It may use the floating-point unit.
    pub fpu: bool,
    /// Endpoint that gets its faults; `None`: a fault stops it.
    pub fault: Option<Route>,
    /// Endpoint that learns when its budget ends; `None`: it waits for the next refill.
    pub timeout: Option<Route>,
}

/// An endpoint, and the badge of messages that arrive by this route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The endpoint.
    pub endpoint: usize,
    /// Number that tells the receiver the origin; 0: no number.
    pub badge: u64,
}

/// A scheduling context. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Its name; unique among contexts of the kernel.
    pub name: String,
    /// Its `[[context]]`.
    pub place: Place,
    /// How it gets its time.
    pub policy: Policy,
    /// Runs below all priorities when it has no budget.
    pub background: bool,
    /// Admission sees to it that it gets its budget in time.
    pub guaranteed: bool,
    /// How often it is activated in a period: once, and once more for each time that its
    /// thread waits for something. At least 1.
    pub activations: u32,
    /// Thread or notification that runs on it.
    pub user: User,
}

/// Policy by which a context gets its time. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Sporadic server, Quest's Main VCPU.
    Sporadic(Budget),
    /// At most C in every window of length T.
    Strict(Budget),
    /// Quest's I/O VCPU.
    Pibs {
        /// U.
        utilization: Utilization,
        /// T while no thread asks for its work.
        period: u64,
    },
    /// C = T: all time that is left, in turns with others of its priority.
    Full {
        /// A turn.
        slice: u64,
    },
}

/// Budget of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// C: time that the thread gets in each period, without the kernel's own ([`Context::gross`]).
    pub budget: u64,
    /// T.
    pub period: u64,
    /// Length of its refill list, the one in use included.
    pub refills: u32,
}

/// User of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// A thread, always.
    Thread(usize),
    /// Whatever passive thread takes a signal from a notification.
    Notification(usize),
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name; unique among endpoints of the kernel.
    pub name: String,
    /// Its `[[endpoint]]`.
    pub place: Place,
    /// Longest time of a call on its caller's budget, in nanoseconds, which the kernel enforces; `None`: no limit.
    pub longest: Option<u64>,
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Its name; unique among notifications of the kernel.
    pub name: String,
    /// Its `[[notification]]`.
    pub place: Place,
    /// The context that it lends to a passive thread that takes a signal.
    pub context: Option<usize>,
}

/// Memory that several programs see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Its name; unique among shared memory of the kernel.
    pub name: String,
    /// Its `[[shared]]`.
    pub place: Place,
    /// Bytes, whole pages.
    pub len: u64,
}

impl Kernel {
    /// Returns the bytes at the end of its memory for the record of its actions: a page, and the ring.
    #[must_use]
    pub const fn ring(&self) -> u64 {
        const PAGE: u64 = 4096;
        if self.trace > 0 { PAGE.saturating_add(self.trace) } else { 0 }
    }

    /// Bytes below those that devices reach.
    #[must_use]
    pub fn for_devices(&self) -> u64 {
        (0..self.shared.len()).filter(|n| self.is_reached(*n)).map(|n| self.shared[n].len).sum()
    }

    /// Returns the offset, in memory of that many bytes, of shared memory that a device reaches; `None`: no device
    /// reaches it, and it lies anywhere.
    #[must_use]
    pub fn place_for_devices(&self, shared: usize, memory: u64) -> Option<u64> {
        let before = (0..shared).filter(|n| self.is_reached(*n)).map(|n| self.shared[n].len);
        let start = memory.checked_sub(self.ring())?.checked_sub(self.for_devices())?;
        self.is_reached(shared).then(|| start + before.sum::<u64>())
    }

    fn is_reached(&self, shared: usize) -> bool {
        let mut uses = self.programs.iter().flat_map(|program| &program.devices);
        uses.any(|used| used.dma.contains(&Reached::Shared(shared)))
    }

    /// Returns the devices that a program has, or will have in another one's place.
    #[must_use]
    pub fn devices_of(&self, program: usize) -> &[DeviceUse] {
        let Some(own) = self.programs.get(program) else { return &[] };
        let other = own.alternative_to.and_then(|other| self.programs.get(other));
        &other.unwrap_or(own).devices
    }

    /// Tells if a thread waits to begin in another one's place.
    #[must_use]
    pub fn stands_by(&self, thread: &Thread) -> bool {
        let program = self.programs.get(thread.program);
        program.is_some_and(|program| program.alternative_to.is_some())
    }

    /// Finds the program that drives a device, and its entry of the device.
    #[must_use]
    pub fn driver(&self, device: Driven) -> Option<(&Program, &DeviceUse)> {
        self.programs.iter().find_map(|program| {
            let used = program.devices.iter().find(|used| used.device == device)?;
            Some((program, used))
        })
    }
}

impl Context {
    /// Returns the time in nanoseconds that its server needs so that the thread gets its budget: the budget, and
    /// `overhead` for each activation. For [`Policy::Full`] it is the slice, for [`Policy::Pibs`] U·T.
    #[must_use]
    pub fn gross(&self, overhead: u64) -> u64 {
        match self.policy {
            Policy::Sporadic(server) | Policy::Strict(server) => {
                let kernel = overhead.saturating_mul(self.activations.into());
                server.budget.saturating_add(kernel)
            }
            Policy::Pibs { utilization, period } => utilization.of(period),
            Policy::Full { slice } => slice,
        }
    }

    /// T, in nanoseconds; of [`Policy::Full`] the slice.
    #[must_use]
    pub const fn period(&self) -> u64 {
        match self.policy {
            Policy::Sporadic(server) | Policy::Strict(server) => server.period,
            Policy::Pibs { period, .. } => period,
            Policy::Full { slice } => slice,
        }
    }
}
