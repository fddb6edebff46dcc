//! A system that starts under a Linux that runs already. That Linux becomes a sandbox, and takes a block of memory from
//! itself. The image, all other sandboxes' RAM and all channels lie there. The machine's IOMMU, its functions and its
//! interrupt lines are left to that Linux.
//!
//! One function turns a checked system into the one that is baked then. All that is refused here is right in an image
//! that starts the machine itself.

use crate::{Arch, Channel, Guest, Place, RIGHTS, Sandbox, Span, System, Wanted};
use bulkhead_layout::MAX_CORES;
use bulkhead_layout::monitor::Action;
use std::fmt;

/// The block is a multiple of so many bytes, and aligned to them.
pub const BLOCK: u64 = 128 << 20;
/// Most bytes of a block. In a larger one, a huge page could map some memory at one address, and not at another one.
pub const BLOCK_MOST: u64 = (1 << 30) - BLOCK;

/// How a system starts under a Linux that runs already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderLinux {
    /// The sandbox that it becomes, by index.
    pub sandbox: usize,
    /// Bytes that are taken from it.
    pub memory: u64,
    /// Its `[under_linux]`.
    pub place: Place,
}

/// Why a system cannot start so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Line of the reason.
    pub place: Place,
    /// The reason.
    pub message: String,
    /// A way to mend it.
    pub help: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, message, help } = self;
        write!(f, "{}:{}: {message}; {help}", place.file.display(), place.line)
    }
}

impl std::error::Error for Refused {}

fn refused(place: &Place, message: String, help: &str) -> Result<(), Refused> {
    Err(Refused { place: place.clone(), message, help: help.into() })
}

impl System {
    /// Turns a system into the one that starts under a Linux, with its block at `base`. Only the first `cores` cores of
    /// the machine are there. The Linux becomes the last sandbox.
    ///
    /// # Errors
    /// The manifest does not say how, or the system has what it cannot have then.
    pub fn under_linux(&self, base: u64, cores: usize) -> Result<Self, Refused> {
        let Some(under) = &self.under_linux else {
            let place = Place { file: self.manifest.clone(), line: 1, column: 1 };
            let message = "the manifest does not say which sandbox a running Linux becomes".into();
            let help = "add `[under_linux]` with `sandbox = \"NAME\"` of a Linux sandbox";
            return Err(Refused { place, message, help: help.into() });
        };
        self.machine_can(under)?;
        self.refuse_shared(under)?;
        let mut system = self.clone();
        system.machine.core_ids.truncate(cores);
        for (index, wanted) in self.sandboxes.iter().enumerate() {
            if index == under.sandbox {
                refuse_own(&wanted.sandbox)?;
            } else {
                refuse_other(&wanted.sandbox, system.machine.core_ids.len())?;
            }
            refuse_rights(&wanted.sandbox, (under, &self.sandboxes[under.sandbox].sandbox))?;
        }
        let linux = &mut system.sandboxes[under.sandbox];
        *linux = self.running(under, &system.machine.core_ids)?;
        system.last(under.sandbox);
        let machine = &mut system.machine;
        machine.functions.clear();
        (machine.iommu, machine.controller, machine.hpet, machine.pci) = (None, None, None, None);
        let block = Span { start: base, len: under.memory };
        machine.ram = vec![block];
        system.block = Some(block);
        Ok(system)
    }

    fn machine_can(&self, under: &UnderLinux) -> Result<(), Refused> {
        let place = &under.place;
        if self.multikernel {
            let message = "a system without monitors cannot start under a Linux".into();
            return refused(place, message, "leave `monitors = false` away");
        }
        if self.machine.arch != Arch::Svm {
            let name = self.facts().name;
            let message = format!("a system cannot start under a Linux on a machine of {name}");
            return refused(place, message, "take a machine with AMD's SVM");
        }
        if under.memory == 0 || under.memory % BLOCK != 0 || under.memory > BLOCK_MOST {
            let message = format!("{} bytes cannot be taken from a Linux", under.memory);
            return refused(place, message, "take a multiple of 128 MiB up to 896 MiB");
        }
        Ok(())
    }

    /// Parts of the whole system.
    fn refuse_shared(&self, under: &UnderLinux) -> Result<(), Refused> {
        if let Some(role) = self.roles.first() {
            let message =
                format!("role `{}` cannot be in a system that starts under a Linux", role.name);
            return refused(&role.place, message, "leave it away");
        }
        let named = |channel: &&Channel| {
            channel.part == crate::Part::Program && channel.to.contains(&under.sandbox)
        };
        if let Some(channel) = self.channels.iter().find(named) {
            let message = format!(
                "channel `{}` loads a program into a Linux that runs already",
                channel.name
            );
            return refused(&channel.place, message, "leave it away");
        }
        Ok(())
    }

    /// The sandbox of the Linux that runs. Devices, functions and memory are its own already.
    fn running(&self, under: &UnderLinux, core_ids: &[u32]) -> Result<Wanted, Refused> {
        let own = &self.sandboxes[under.sandbox].sandbox;
        let others = self.sandboxes.iter().enumerate().filter(|(n, _)| *n != under.sandbox);
        let taken: Vec<usize> = others.flat_map(|(_, other)| other.sandbox.cores.clone()).collect();
        let cores: Vec<usize> = (0..core_ids.len()).filter(|core| !taken.contains(core)).collect();
        if cores.is_empty() || cores.len() > MAX_CORES {
            let message = format!("sandbox `{}` would have {} cores", own.name, cores.len());
            let help = format!("leave it 1 to {MAX_CORES} of the machine's {}", core_ids.len());
            return Err(Refused { place: own.place.clone(), message, help });
        }
        let sandbox = Sandbox {
            guest: Guest::Running,
            core_ids: cores.iter().map(|core| core_ids[*core]).collect(),
            cores,
            devices: Vec::new(),
            functions: Vec::new(),
            autostart: true,
            ..own.clone()
        };
        Ok(Wanted { sandbox, memory: 0, at: None })
    }

    /// Moves a sandbox to the end, and all indices with it.
    fn last(&mut self, sandbox: usize) {
        let last = self.sandboxes.len() - 1;
        let moved = |index: &mut usize| {
            *index = match *index {
                index if index == sandbox => last,
                index if index > sandbox => index - 1,
                index => index,
            };
        };
        self.sandboxes[sandbox..].rotate_left(1);
        for Wanted { sandbox, .. } in &mut self.sandboxes {
            sandbox.control.iter_mut().flatten().for_each(|right| moved(&mut right.sandbox));
            sandbox.observe.iter_mut().for_each(moved);
            sandbox.peers.iter_mut().for_each(|peer| moved(&mut peer.sandbox));
        }
        for channel in &mut self.channels {
            moved(&mut channel.from);
            channel.to.iter_mut().for_each(moved);
        }
        for link in &mut self.links {
            moved(&mut link.owner);
            link.to.iter_mut().for_each(moved);
        }
        self.ends_with.iter_mut().for_each(moved);
        self.scenario.iter_mut().for_each(|text| moved(&mut text.sandbox));
        self.restarts.iter_mut().for_each(|(sandbox, _)| moved(sandbox));
        if let Some(under) = &mut self.under_linux {
            moved(&mut under.sandbox);
        }
    }
}

/// Refuses what no sandbox can have then.
fn refuse_any(sandbox: &Sandbox) -> Result<(), Refused> {
    let (name, place) = (&sandbox.name, &sandbox.place);
    if sandbox.watch.is_some() {
        let message = format!("sandbox `{name}` has a watchdog, whose timer is the Linux'");
        return refused(place, message, "leave `watchdog` away");
    }
    if let Some(peer) = sandbox.peers.first() {
        let message = format!("the monitor of sandbox `{name}` looks at another one");
        return refused(&peer.place, message, "leave the `[[peer]]` away");
    }
    Ok(())
}

/// Refuses what a Linux that runs already cannot have.
fn refuse_own(sandbox: &Sandbox) -> Result<(), Refused> {
    refuse_any(sandbox)?;
    let (name, place) = (&sandbox.name, &sandbox.place);
    let why = "a Linux that runs already cannot begin anew";
    if let Some(other) = sandbox.alternatives.first() {
        let message =
            format!("guest `{}` would take the place of sandbox `{name}`: {why}", other.name);
        return refused(&other.place, message, "leave the `[[alternative]]` away");
    }
    if let Some(ladder) = sandbox.ladders.first() {
        let message = format!("sandbox `{name}` has a ladder: {why}");
        return refused(&ladder.place, message, "let the `[[health]]` stop it");
    }
    if sandbox.snapshot > 0 {
        let message = format!("sandbox `{name}` keeps a snapshot: {why}");
        return refused(place, message, "leave `snapshot` away");
    }
    if sandbox.actions.contains(&Action::Restart) {
        let message = format!("a failure restarts sandbox `{name}`: {why}");
        return refused(place, message, "let its `[[health]]` stop it");
    }
    Ok(())
}

/// Refuses what another sandbox cannot have: devices that need what is the Linux'.
fn refuse_other(sandbox: &Sandbox, cores: usize) -> Result<(), Refused> {
    refuse_any(sandbox)?;
    let name = &sandbox.name;
    if let Some(granted) = sandbox.functions.first() {
        let message = format!("sandbox `{name}` has a PCI function, and those are the Linux'");
        return refused(&granted.place, message, "leave the device to the Linux");
    }
    if let Some(device) = sandbox.devices.iter().find(|device| device.irq.is_some()) {
        let message = format!(
            "sandbox `{name}` has `{}` with an interrupt line, and those are the Linux'",
            device.name
        );
        return refused(&device.place, message, "grant it a device that has only ports");
    }
    if let Some(core) = sandbox.cores.iter().find(|core| **core >= cores) {
        let message = format!("sandbox `{name}` has core {core}, and there are {cores} cores");
        return refused(&sandbox.place, message, "give it lower ones, or raise `--cores`");
    }
    Ok(())
}

/// Refuses rights to begin the Linux anew.
fn refuse_rights(
    sandbox: &Sandbox,
    (under, linux): (&UnderLinux, &Sandbox),
) -> Result<(), Refused> {
    let over = sandbox.rights(under.sandbox).find(|(name, _)| *name != RIGHTS[0]);
    let Some((right, _)) = over else { return Ok(()) };
    let message = format!(
        "sandbox `{}` may {right} `{}`, and a Linux that runs already cannot begin anew",
        sandbox.name, linux.name
    );
    refused(&sandbox.place, message, "leave that right away")
}
