//! The rules of a manifest, one function each.
//!
//! A rule looks at the decoded part of a manifest and adds its findings. It knows no other rule, and skips a piece that
//! another rule refuses. `tests/manifests/bad` has a manifest for each rule that breaks it.

pub mod alternative;
pub mod bay;
pub mod build;
pub mod channels;
pub mod commands;
pub mod cores;
pub mod debug;
mod devices;
pub mod guests;
pub mod health;
pub mod kernel;
pub mod link;
pub mod memory;
pub mod mmio;
pub mod monitors;
pub mod names;
pub mod pci;
pub mod peer;
pub mod rights;
pub mod role;
pub mod role_device;
mod snapshot;
pub mod under_linux;
pub mod watch;

use crate::diagnostic::Diagnostic;
use crate::guest_file::{Kernel, Program};
use crate::raw;
use crate::source::{Document, Location, Step, k, n};
use bulkhead_plan::{Arch, Facts, Machine};
use std::ops::Deref;
use std::path::PathBuf;

/// A rule.
pub type Rule = fn(&Context<'_, '_>, &mut Vec<Diagnostic>);

/// All rules.
pub const ALL: &[Rule] = &[
    names::version_known,
    names::name_plain,
    names::name_twice,
    names::sandbox_none,
    commands::build_command,
    names::ends_with_known,
    names::scenario_known,
    names::drive_known,
    names::hub_known,
    cores::core_none,
    cores::core_unknown,
    cores::core_twice,
    cores::cores_too_many,
    memory::memory_size,
    memory::memory_place,
    memory::memory_total,
    memory::memory_fits,
    devices::device_unknown,
    devices::device_nobody,
    devices::device_twice,
    devices::port_twice,
    devices::port_emulated,
    devices::irq_twice,
    devices::line_level,
    devices::line_forged,
    devices::line_none,
    pci::pci_unknown,
    pci::pci_nobody,
    pci::pci_twice,
    pci::pci_dma,
    pci::pci_group,
    pci::pci_source,
    pci::pci_page,
    pci::pci_window,
    guests::path_plain,
    guests::file_missing,
    guests::kernel_format,
    guests::program_format,
    guests::program_segments,
    guests::cmdline_text,
    guests::args_text,
    guests::memory_small,
    channels::channel_size,
    channels::channel_from,
    channels::channel_to,
    channels::channel_self,
    channels::channel_message,
    channels::channel_notify,
    channels::channel_program,
    bay::bay_channel,
    channels::bells_too_many,
    channels::channels_window,
    channels::windows_too_many,
    link::link_known,
    link::link_count,
    link::link_size,
    rights::right_known,
    rights::right_every,
    rights::observe_known,
    health::health_known,
    health::health_twice,
    health::health_ignore,
    health::health_action,
    health::health_ladder,
    health::health_limit,
    alternative::alternative_known,
    alternative::alternative_twice,
    alternative::alternative_guest,
    alternative::alternative_unused,
    watch::watchdog_time,
    watch::alive_time,
    watch::health_hang,
    watch::sweep_time,
    watch::health_corruption,
    watch::watchdog_timer,
    watch::program_watchdog,
    peer::peer_known,
    peer::peer_twice,
    peer::peer_watchdog,
    peer::peer_time,
    peer::peer_core,
    peer::health_monitor,
    role::role_holders,
    role::role_count,
    role::role_channel,
    role::role_size,
    role_device::role_device,
    role_device::role_dma,
    role::health_failover,
    mmio::shared_mmio_page,
    mmio::shared_mmio_device,
    mmio::shared_mmio_twice,
    mmio::shared_mmio_part,
    mmio::shared_mmio_overlap,
    peer::spare_unused,
    debug::debug_sandbox,
    snapshot::snapshot_size,
    snapshot::snapshot_guest,
    snapshot::snapshot_unused,
    snapshot::health_warm,
    under_linux::under_linux_known,
    under_linux::under_linux_memory,
    under_linux::under_linux_release,
    under_linux::under_linux_restart,
    monitors::monitors_guest,
    monitors::monitors_right,
    monitors::monitors_line,
    kernel::names::part_sandbox,
    kernel::names::part_twice,
    kernel::names::part_unknown,
    kernel::names::part_again,
    kernel::names::signal_bits,
    kernel::programs::kernel_core,
    kernel::programs::kernel_idle,
    kernel::programs::part_size,
    kernel::programs::kernel_memory,
    kernel::programs::kernel_places,
    kernel::programs::program_slots,
    kernel::programs::program_names,
    kernel::alternative::program_alternative,
    kernel::programs::program_device,
    kernel::programs::program_dma,
    kernel::programs::program_interrupt,
    kernel::programs::program_line,
    kernel::programs::program_channel,
    kernel::links::program_links,
    kernel::links::link_program,
    kernel::contexts::context_time,
    kernel::contexts::context_share,
    kernel::contexts::context_policy,
    kernel::contexts::context_budget,
    kernel::contexts::context_refills,
    kernel::contexts::context_bound,
    kernel::contexts::contexts_too_many,
    kernel::threads::thread_entry,
    kernel::threads::thread_fpu,
    kernel::threads::thread_passive,
    kernel::threads::thread_timeout,
    kernel::threads::endpoint_server,
    kernel::threads::notification_idle,
    // The last rule: it judges only a manifest that is right otherwise.
    kernel::admission::admission,
];

/// Names of all rules, those of the shape and of machine descriptions too.
pub const NAMES: &[&str] = &[
    "admission",
    "alive-time",
    "alternative-guest",
    "alternative-known",
    "alternative-twice",
    "alternative-unused",
    "args-text",
    "bells-too-many",
    "build-command",
    "channel-from",
    "channel-message",
    "channel-notify",
    "channel-program",
    "bay-channel",
    "channel-self",
    "channel-size",
    "channel-to",
    "channels-window",
    "cmdline-text",
    "context-bound",
    "context-budget",
    "context-policy",
    "context-refills",
    "context-share",
    "context-time",
    "contexts-too-many",
    "right-known",
    "right-every",
    "core-none",
    "core-twice",
    "core-unknown",
    "cores-too-many",
    "debug-sandbox",
    "device-nobody",
    "device-twice",
    "device-unknown",
    "drive-known",
    "hub-known",
    "endpoint-server",
    "ends-with-known",
    "file-missing",
    "health-action",
    "health-corruption",
    "health-hang",
    "health-ignore",
    "health-known",
    "health-ladder",
    "health-limit",
    "health-failover",
    "health-monitor",
    "health-twice",
    "health-warm",
    "image-large",
    "irq-twice",
    "kernel-core",
    "kernel-format",
    "kernel-idle",
    "kernel-memory",
    "line-forged",
    "line-level",
    "line-none",
    "link-count",
    "link-known",
    "link-program",
    "link-size",
    "machine-arch",
    "machine-console",
    "machine-cores",
    "machine-device",
    "machine-emulator",
    "machine-hpet",
    "machine-image",
    "machine-memory",
    "machine-missing",
    "machine-pci",
    "machine-ram",
    "machine-reserved",
    "machine-version",
    "memory-outside",
    "memory-overlap",
    "memory-place",
    "memory-room",
    "memory-size",
    "memory-small",
    "memory-total",
    "missing-key",
    "monitors-guest",
    "monitors-line",
    "monitors-right",
    "name-plain",
    "name-twice",
    "notification-idle",
    "observe-known",
    "out-of-range",
    "part-again",
    "part-sandbox",
    "part-size",
    "part-twice",
    "part-unknown",
    "path-plain",
    "pci-dma",
    "pci-group",
    "pci-nobody",
    "pci-page",
    "pci-source",
    "pci-twice",
    "pci-unknown",
    "pci-window",
    "peer-core",
    "peer-known",
    "peer-time",
    "peer-twice",
    "peer-watchdog",
    "port-emulated",
    "port-twice",
    "program-alternative",
    "program-channel",
    "program-device",
    "program-format",
    "program-dma",
    "program-interrupt",
    "program-line",
    "program-links",
    "program-names",
    "program-segments",
    "program-slots",
    "program-watchdog",
    "role-channel",
    "role-count",
    "role-device",
    "role-dma",
    "role-holders",
    "role-size",
    "sandbox-none",
    "sandboxes-too-many",
    "scenario-known",
    "shared-mmio-device",
    "shared-mmio-overlap",
    "shared-mmio-page",
    "shared-mmio-part",
    "shared-mmio-twice",
    "signal-bits",
    "syntax",
    "thread-entry",
    "thread-fpu",
    "thread-passive",
    "thread-timeout",
    "too-many",
    "under-linux-known",
    "under-linux-memory",
    "under-linux-release",
    "under-linux-restart",
    "unknown-key",
    "unknown-value",
    "version-known",
    "snapshot-guest",
    "snapshot-size",
    "snapshot-unused",
    "spare-unused",
    "sweep-time",
    "watchdog-time",
    "watchdog-timer",
    "windows-too-many",
    "wrong-type",
];

/// An element of an array of tables.
#[derive(Clone, Debug)]
pub struct Item<T> {
    /// The array's key.
    pub table: &'static str,
    /// Its index in the file.
    pub index: usize,
    /// Its content.
    pub raw: T,
}

impl<T> Deref for Item<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.raw
    }
}

/// Content of a guest's file.
#[derive(Clone, Debug)]
pub enum GuestFile {
    /// A kernel.
    Kernel(Kernel),
    /// A program, or a kernel that is an ELF file.
    Program(Program),
    /// An initial RAM file system.
    Initrd,
}

/// Kind that a file has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Linux kernel.
    Linux,
    /// An initial RAM file system.
    Initrd,
    /// A program on the bare virtual machine.
    Bare,
    /// Bulkhead's kernel.
    Kernel,
    /// A program of a kernel.
    Program,
}

/// A file that a guest or a program names.
#[derive(Debug)]
pub struct Opened {
    /// Array of tables that names it.
    pub table: &'static str,
    /// Its index there.
    pub index: usize,
    /// Index of a program in an alternative.
    pub inner: usize,
    /// The key that names the file.
    pub key: &'static str,
    /// Kind that it has to have.
    pub kind: Kind,
    /// Its name in the manifest.
    pub written: String,
    /// Its path.
    pub path: PathBuf,
    /// Its size, or why it cannot be read.
    pub len: Result<u64, String>,
    /// Its content, or the reason why it has another kind; nothing if it cannot be read.
    pub file: Option<Result<GuestFile, String>>,
}

/// Everything that a rule may look at.
pub struct Context<'a, 't> {
    /// The manifest's tree, for places.
    pub document: &'a Document<'t>,
    /// `version`.
    pub version: Option<u32>,
    /// `[system]`.
    pub system: Option<raw::System>,
    /// `[build]`.
    pub build: Option<raw::Commands>,
    /// `[run]`.
    pub run: Option<raw::Run>,
    /// `[under_linux]`.
    pub under_linux: Option<raw::UnderLinux>,
    /// The sandboxes that could be decoded.
    pub sandboxes: Vec<Item<raw::Sandbox>>,
    /// The channels that could be decoded.
    pub channels: Vec<Item<raw::Channel>>,
    /// The health entries that could be decoded.
    pub healths: Vec<Item<raw::Health>>,
    /// The alternatives that could be decoded.
    pub alternatives: Vec<Item<raw::Alternative>>,
    /// The peers that could be decoded.
    pub peers: Vec<Item<raw::Peer>>,
    /// The roles that could be decoded.
    pub roles: Vec<Item<raw::Role>>,
    /// The shared registers that could be decoded.
    pub mmios: Vec<Item<raw::SharedMmio>>,
    /// The programs that could be decoded.
    pub programs: Vec<Item<raw::Program>>,
    /// The threads that could be decoded.
    pub threads: Vec<Item<raw::Thread>>,
    /// The scheduling contexts that could be decoded.
    pub contexts: Vec<Item<raw::Context>>,
    /// The endpoints that could be decoded.
    pub endpoints: Vec<Item<raw::Endpoint>>,
    /// The notifications that could be decoded.
    pub notifications: Vec<Item<raw::Notification>>,
    /// The shared memory that could be decoded.
    pub shared: Vec<Item<raw::Shared>>,
    /// The machine, if it is right.
    pub machine: Option<Machine>,
    /// The manifest's folder.
    pub base: PathBuf,
    /// The folder of artifacts.
    pub artifacts: PathBuf,
    /// Guests' files are not opened.
    pub skip_files: bool,
    /// Kernels' contexts need not be admitted.
    pub skip_admission: bool,
    /// Files that guests and programs name.
    pub guests: Vec<Opened>,
    /// Sandboxes with vacant guests, by their index in the file.
    pub bays: Vec<usize>,
    /// A bay with a part in it, and the folder of the part's files, which are opened.
    pub put: Option<(usize, PathBuf)>,
}

impl Context<'_, '_> {
    /// Returns the machine's architecture, or the usual one while there is no machine.
    #[must_use]
    pub fn arch(&self) -> Arch {
        self.machine.as_ref().map(|machine| machine.arch).unwrap_or_default()
    }

    /// Returns the facts of the machine's architecture.
    #[must_use]
    pub fn facts(&self) -> &'static Facts {
        self.arch().facts()
    }

    /// True if the manifest does without monitors.
    #[must_use]
    pub fn multikernel(&self) -> bool {
        self.system.as_ref().is_some_and(|system| !system.monitors)
    }

    /// Returns the place of a part of an element.
    pub fn at<T>(&self, item: &Item<T>, path: &[Step<'_>]) -> Location {
        let mut full = vec![k(item.table), n(item.index)];
        full.extend_from_slice(path);
        self.document.at(&full)
    }

    /// Name of the sandbox at an index of the file, decoded or not.
    #[must_use]
    pub fn sandbox_name(&self, index: usize) -> Option<&str> {
        self.document.get(&[k("sandbox"), n(index), k("name")])?.get_ref().as_str()
    }

    /// Names of all sandboxes, decoded or not, so that one error in a sandbox
    /// does not make all references to it wrong.
    pub fn sandbox_names(&self) -> impl Iterator<Item = &str> {
        let array = self.document.get(&[k("sandbox")]).and_then(|node| node.get_ref().as_array());
        (0..array.map_or(0, |array| array.len())).filter_map(|index| self.sandbox_name(index))
    }

    /// True if a sandbox of that name is in the file.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.sandbox_names().any(|known| known == name)
    }

    /// Index of the sandbox of that name among the decoded ones.
    #[must_use]
    pub fn sandbox_index(&self, name: &str) -> Option<usize> {
        self.sandboxes.iter().position(|sandbox| sandbox.name == name)
    }

    /// The role of that name.
    #[must_use]
    pub fn role(&self, name: &str) -> Option<(usize, &Item<raw::Role>)> {
        self.roles.iter().enumerate().find(|(_, role)| role.name == name)
    }

    /// True if an end of a channel is a sandbox', by itself or as a role's holder.
    #[must_use]
    pub fn is_end(&self, end: &str, sandbox: &str) -> bool {
        let holds = |role: &raw::Role| role.holders.iter().any(|holder| holder == sandbox);
        end == sandbox || self.role(end).is_some_and(|(_, role)| holds(role))
    }

    /// Index of the sandbox at an end of a channel: of a role, the first one that holds it.
    #[must_use]
    pub fn end_index(&self, end: &str) -> Option<usize> {
        let first = |role: &Item<raw::Role>| self.sandbox_index(role.holders.first()?);
        self.sandbox_index(end).or_else(|| first(self.role(end)?.1))
    }

    /// The finding for a name that is no sandbox's.
    fn unknown_sandbox(&self, rule: &'static str, at: Location, name: &str) -> Diagnostic {
        let mut names: Vec<&str> = self.sandbox_names().collect();
        names.sort_unstable();
        names.dedup();
        let help = match crate::diagnostic::nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there is {}", crate::diagnostic::list(&names)),
        };
        let message = format!("there is no sandbox `{}`", crate::shape::brief(name));
        Diagnostic::new(rule, at, message).label("not the name of a sandbox").help(help)
    }
}

/// Places of a checked manifest's memory sizes.
#[derive(Clone, Debug)]
pub struct Places {
    /// One for each sandbox.
    pub sandboxes: Vec<Location>,
    /// One for each channel.
    pub channels: Vec<Location>,
    /// One for each link.
    pub links: Vec<Location>,
    /// Place of the manifest as a whole.
    pub system: Location,
}
