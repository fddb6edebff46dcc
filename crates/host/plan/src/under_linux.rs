//! A system that starts under a Linux that runs already. That Linux becomes a sandbox, and takes a block of memory from
//! itself. The image, all other sandboxes' RAM and all channels lie there. That Linux has the machine's functions and
//! interrupt lines, but for those of others. The IOMMU is the monitors', where there is one that they know.
//!
//! One function turns a checked system into the one that is baked then. All that is refused here is right in an image
//! that starts the machine itself.

use crate::{
    Arch, BarKind, Bdf, Channel, Device, Function, Granted, Guest, Iommu, IommuKind, Place, Plan,
    RIGHTS, Right, Sandbox, Span, System, Trigger, Wanted,
};
use bulkhead_layout::MAX_CORES;
use bulkhead_layout::monitor::Action;
use bulkhead_layout::report::Kind;
use std::fmt;

/// The block is a multiple of so many bytes, and aligned to them.
pub const BLOCK: u64 = 128 << 20;
/// Words on the command line of a Linux that begins anew: its kernel leaves the IOMMU to the monitors.
const LEAVES_IOMMU: &str = "amd_iommu=off";
/// Class of the devices with an interrupt line that a Linux can give away.
const SERIAL: &str = "uart16550";
/// Most bytes of a block. In a larger one, a huge page could map some memory at one address, and not at another one.
pub const BLOCK_MOST: u64 = (1 << 30) - BLOCK;

/// How a system starts under a Linux that runs already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderLinux {
    /// The sandbox that it becomes, by index.
    pub sandbox: usize,
    /// Bytes that are taken from it.
    pub memory: u64,
    /// The manifest accepts that nothing confines DMA and messages of its devices.
    pub unconfined: bool,
    /// The image keeps the sandbox' guest, so that it can begin anew.
    pub restart: bool,
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

impl Plan {
    /// Memory of a Linux that runs already, as far as nothing that it is shown takes the memory's place. Its monitor
    /// reads instructions there, and tables that lead to them. The block is among it, until there is one.
    #[must_use]
    pub fn running_memory(&self, sandbox: usize) -> Vec<Span> {
        if !self.runs(sandbox) {
            return Vec::new();
        }
        let facts = self.machine.arch.facts();
        let start_code = facts.start_code.map(|start| Span { start, len: facts.page });
        let shown =
            self.reach(sandbox).into_iter().map(|reach| Span { start: reach.at, len: reach.len });
        let banks = self.machine.banks.iter().copied().filter(|bank| bank.len > 0);
        beside(banks.collect(), shown.chain(start_code))
    }

    /// Lists addresses at which the machine description names nothing. It names RAM, the firmware's memory, pages of
    /// devices and base address registers. A Linux that runs already reaches none of them where it is confined.
    #[must_use]
    pub fn unnamed(&self, all: Span) -> Vec<Span> {
        let machine = &self.machine;
        let Some(root) = self.block.and(machine.pci.as_ref()) else { return Vec::new() };
        let page = machine.arch.facts().page;
        let reserved = machine.reserved.iter().map(|(_, span)| *span).collect();
        // A window of PCI has base address registers, and nothing else.
        let reserved = beside(reserved, root.memory.iter().copied());
        let bars = machine.functions.iter().flat_map(|function| &function.bars);
        let bars = bars.filter(|bar| bar.kind != BarKind::Io).map(|bar| bar.span);
        let devices = machine.devices.iter().flat_map(|device| device.mmio.iter().copied());
        let named = machine.banks.iter().copied().chain(reserved).chain(bars).chain(devices);
        beside(vec![all], named.map(|span| span.pages_of(page)))
    }

    /// Lists the devices that are nobody's with their registers in this span. Such a Linux reads these, and no write of
    /// it arrives.
    pub fn withheld(&self, all: Span) -> impl Iterator<Item = (&Device, Span)> {
        let confined = self.block.and(self.machine.pci.as_ref()).is_some();
        let devices = self.machine.devices.iter();
        let nobodys = devices.filter(move |device| confined && device.nobody.is_some());
        let pages = nobodys.flat_map(|device| device.mmio.iter().map(move |span| (device, *span)));
        pages.filter(move |(_, span)| all.encloses(*span))
    }
}

/// Returns the pieces of spans that holes leave.
fn beside(all: Vec<Span>, holes: impl Iterator<Item = Span>) -> Vec<Span> {
    holes.fold(all, |left, hole| left.into_iter().flat_map(|piece| piece.without(hole)).collect())
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
                refuse_own(under, &wanted.sandbox)?;
            } else {
                refuse_other(&wanted.sandbox, system.machine.core_ids.len(), under)?;
                self.refuse_functions(under, &wanted.sandbox)?;
            }
            refuse_rights(&wanted.sandbox, (under, &self.sandboxes[under.sandbox].sandbox))?;
        }
        let linux = &mut system.sandboxes[under.sandbox];
        *linux = self.running(under, &system.machine.core_ids)?;
        system.last(under.sandbox);
        let machine = &mut system.machine;
        if under.unconfined {
            machine.functions.clear();
            (machine.iommu, machine.controller, machine.pci) = (None, None, None);
            machine.hpet = None;
        }
        let block = Span { start: base, len: under.memory };
        machine.ram = vec![block];
        system.block = Some(block);
        Ok(system)
    }

    fn machine_can(&self, under: &UnderLinux) -> Result<(), Refused> {
        let place = &under.place;
        if under.restart && under.unconfined {
            let message = "nothing would stop the devices of a Linux that begins anew".into();
            return refused(place, message, "`restart = true` needs `dma = \"confined\"`");
        }
        if self.multikernel {
            let message = "a system without monitors cannot start under a Linux".into();
            return refused(place, message, "leave `monitors = false` away");
        }
        if self.machine.arch != Arch::Svm {
            let name = self.facts().name;
            let message = format!("a system cannot start under a Linux on a machine of {name}");
            return refused(place, message, "take a machine with AMD's SVM");
        }
        let remaps = |iommu: &Iommu| {
            matches!(iommu.kind, IommuKind::AmdVi { .. }) && iommu.remaps_interrupts
        };
        let confines = self.machine.iommu.as_ref().is_some_and(remaps)
            && self.machine.pci.is_some()
            && self.machine.ioapic().is_some();
        if !under.unconfined && !confines {
            let message = "the machine has no IOMMU of AMD's that remaps interrupts, with PCI and \
                           an IOAPIC: nothing would confine devices of the Linux"
                .into();
            return refused(place, message, "`dma = \"unconfined\"` accepts that");
        }
        if let Some(taken) = self.taken() {
            let message = format!(
                "the machine has something at {:#x}, where each guest is shown its channels",
                taken.start
            );
            return refused(place, message, "take a machine without RAM or registers there");
        }
        if under.memory == 0 || under.memory % BLOCK != 0 || under.memory > BLOCK_MOST {
            let message = format!("{} bytes cannot be taken from a Linux", under.memory);
            return refused(place, message, "take a multiple of 128 MiB up to 896 MiB");
        }
        Ok(())
    }

    /// Finds RAM or registers of the machine's where guests have their information pages, reports and channels.
    fn taken(&self) -> Option<Span> {
        let guest = &self.facts().guest;
        let shown = Span { start: guest.info, len: guest.links.end() - guest.info };
        let bars = self.machine.functions.iter().flat_map(|function| &function.bars);
        let bars = bars.filter(|bar| bar.kind != BarKind::Io).map(|bar| bar.span);
        let mut all = self.machine.banks.iter().copied().chain(bars);
        all.find(|span| span.overlaps(shown))
    }

    /// Parts of the whole system.
    fn refuse_shared(&self, under: &UnderLinux) -> Result<(), Refused> {
        if let Some(shared) = self.mmio.first() {
            let name = &shared.name;
            let message =
                format!("registers `{name}` cannot be shared under a Linux: it keeps such devices");
            return refused(&shared.place, message, "leave it away");
        }
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

    /// Refuses functions that a Linux cannot give to another sandbox.
    fn refuse_functions(&self, under: &UnderLinux, sandbox: &Sandbox) -> Result<(), Refused> {
        let name = &sandbox.name;
        for Granted { function, unconfined, line, place, .. } in &sandbox.functions {
            if under.unconfined || *unconfined {
                let message = format!(
                    "nothing confines the DMA of {}, which sandbox `{name}` has",
                    function.bdf
                );
                return refused(place, message, "leave the device to the Linux");
            }
            if *line {
                let message = format!(
                    "{} of sandbox `{name}` signals by an interrupt line, and those are the Linux'",
                    function.bdf
                );
                return refused(
                    place,
                    message,
                    "take a function with MSI or MSI-X, and without `line`",
                );
            }
            for other in self.left(under) {
                let above = |f: &&Function| {
                    f.bridge.is_some_and(|b| {
                        b.acs.is_none()
                            && (b.secondary..=b.subordinate).contains(&other.function.bdf.bus())
                    })
                };
                if let Some(port) = self.machine.functions.iter().find(above) {
                    let message = format!(
                        "{} of the Linux could pass for {} of sandbox `{name}`: the port {} above it has no source \
                         validation",
                        other.function.bdf, function.bdf, port.bdf
                    );
                    return refused(place, message, "leave the device to the Linux");
                }
                if let Some(how) = function.alike(&other.function) {
                    let message = format!(
                        "{} of sandbox `{name}` and {} of the Linux {how}: their DMA cannot be told apart",
                        function.bdf, other.function.bdf
                    );
                    return refused(place, message, "give all functions of a group to one sandbox");
                }
            }
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
        // It asks by the right to stop.
        let mut control = own.control.clone();
        let released =
            self.sandboxes.iter().enumerate().filter(|(_, other)| other.sandbox.releases);
        for (sandbox, _) in released {
            if !control[0].iter().any(|right| right.sandbox == sandbox) {
                control[0].push(Right { sandbox, every: Right::EVERY });
            }
        }
        let again = under.restart.then(|| {
            let mut guest = own.guest.clone();
            // The firmware's tables name the IOMMU, which is not that Linux'. Words behind `--` are not the kernel's.
            if let Guest::Linux { cmdline, .. } = &mut guest {
                *cmdline = format!("{LEAVES_IOMMU} {cmdline}").trim_end().to_owned();
            }
            Box::new(guest)
        });
        let sandbox = Sandbox {
            guest: Guest::Running,
            again,
            control,
            core_ids: cores.iter().map(|core| core_ids[*core]).collect(),
            cores,
            devices: Vec::new(),
            functions: if under.unconfined { Vec::new() } else { self.left(under) },
            autostart: true,
            ..own.clone()
        };
        Ok(Wanted { sandbox, memory: 0, at: None })
    }

    /// Functions that no other sandbox has, and some sandbox could.
    fn left(&self, under: &UnderLinux) -> Vec<Granted> {
        let others = self.sandboxes.iter().enumerate().filter(|(index, _)| *index != under.sandbox);
        let taken: Vec<Bdf> = others
            .flat_map(|(_, other)| &other.sandbox.functions)
            .map(|granted| granted.function.bdf)
            .collect();
        let free = |f: &&Function| f.nobody.is_none() && !taken.contains(&f.bdf);
        let granted = |function: &Function| Granted {
            line: function.irq.is_some(),
            function: function.clone(),
            unconfined: false,
            role: None,
            place: under.place.clone(),
        };
        self.machine.functions.iter().filter(free).map(granted).collect()
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

/// Why a Linux is not begun anew.
const ONCE: &str = "the image keeps nothing to begin a Linux anew that runs already";
/// How it could be.
const RESTART: &str = "say `restart = true` in [under_linux]";

/// Refuses what a Linux that runs already cannot have.
fn refuse_own(under: &UnderLinux, sandbox: &Sandbox) -> Result<(), Refused> {
    refuse_any(sandbox)?;
    let (name, place) = (&sandbox.name, &sandbox.place);
    let why = "a Linux that runs already has one guest, without a ladder, a snapshot or a debugger";
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
    if sandbox.debug {
        let message = format!("a debugger is let into sandbox `{name}`: {why}");
        return refused(place, message, "leave `debug` away");
    }
    if sandbox.actions[Kind::Failure as usize] != Action::Ignore {
        let message = format!("a failure of sandbox `{name}` has an answer: its monitor sees none");
        return refused(place, message, "leave `failure` out of its `[[health]]`");
    }
    if sandbox.actions.contains(&Action::Restart) && !under.restart {
        let message = format!("a finding restarts sandbox `{name}`: {ONCE}");
        return refused(place, message, &format!("let its `[[health]]` stop it, or {RESTART}"));
    }
    Ok(())
}

/// Refuses what another sandbox cannot have: devices that need what is the Linux'.
fn refuse_other(sandbox: &Sandbox, cores: usize, under: &UnderLinux) -> Result<(), Refused> {
    refuse_any(sandbox)?;
    let name = &sandbox.name;
    // The Linux' module knows of no others.
    let given = |device: &&Device| {
        device.irq.is_none()
            || device.class == SERIAL && device.trigger == Trigger::Edge && !under.unconfined
    };
    if let Some(device) = sandbox.devices.iter().find(|device| !given(device)) {
        let message = format!(
            "sandbox `{name}` has `{}` with an interrupt line, and that is the Linux'",
            device.name
        );
        return refused(
            &device.place,
            message,
            "grant it a serial port, or a device that has only ports",
        );
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
    let begins = |(name, _): &(&str, _)| *name != RIGHTS[0] && !under.restart;
    let over = sandbox.rights(under.sandbox).find(begins);
    let Some((right, _)) = over else { return Ok(()) };
    let message = format!("sandbox `{}` may {right} `{}`: {ONCE}", sandbox.name, linux.name);
    refused(&sandbox.place, message, &format!("leave that right away, or {RESTART}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Alternative, Bar, Bridge, Controller, Device, Hpet, Ioapic, Link, Machine, Part, PciRoot,
        Peer, Role, SharedMmio, Watch,
    };

    const MIB: u64 = 1 << 20;
    const BASE: u64 = 0x3000_0000;

    fn place(line: usize) -> Place {
        Place { file: "m.toml".into(), line, column: 1 }
    }

    fn right(sandbox: usize) -> Right {
        Right { sandbox, every: Right::EVERY }
    }

    fn channel(from: usize, to: Vec<usize>) -> Channel {
        Channel {
            name: "told".into(),
            place: place(60),
            part: Part::Pages,
            bell: None,
            from,
            to,
            stand: None,
            hpa: 0,
            gpa: 0xD200_0000,
            len: 4096,
        }
    }

    /// A guest, the Linux, and another guest, with rights and memory between all of them.
    fn system() -> System {
        let sandbox = |n: usize| Sandbox {
            name: ["left", "linux", "right"][n].into(),
            place: place(10 * (n + 1)),
            cores: vec![2 * n, 2 * n + 1],
            core_ids: vec![4 * n as u32, 4 * n as u32 + 2],
            ..Sandbox::default()
        };
        let mut all = [0, 1, 2].map(sandbox);
        all[1].guest = Guest::Linux { kernel: "k".into(), initrd: None, cmdline: String::new() };
        all[1].actions[Kind::Failure as usize] = Action::Ignore;
        all[1].control = [vec![right(0), right(2)], vec![right(2)], vec![right(0)]];
        all[1].observe = vec![2, 0];
        all[0].observe = vec![1];
        all[2].control[0] = vec![right(1)];
        System {
            manifest: "m.toml".into(),
            machine: Machine {
                core_ids: (0..8).map(|n| 2 * n).collect(),
                ram: vec![Span { start: 16 * MIB, len: 1024 * MIB }],
                hpet: Some(Hpet::default()),
                ..Machine::default()
            },
            sandboxes: { all.into_iter() }
                .map(|sandbox| Wanted { sandbox, memory: 16 * MIB, at: None })
                .collect(),
            channels: vec![channel(1, vec![0, 2]), channel(2, vec![1])],
            links: vec![Link {
                owner: 2,
                to: vec![1],
                place: place(50),
                hpa: 0,
                gpa: 0xDC00_0000,
                len: 8192,
                sent: 4096,
            }],
            ends_with: vec![1, 2],
            restarts: vec![(2, 1)],
            under_linux: Some(UnderLinux {
                sandbox: 1,
                memory: BLOCK,
                unconfined: true,
                restart: false,
                place: place(5),
            }),
            ..System::default()
        }
    }

    #[test]
    fn the_linux_becomes_the_last_sandbox_and_all_that_names_one_follows() {
        let turned = system().under_linux(BASE, usize::MAX).unwrap();
        let names: Vec<_> = turned.sandboxes.iter().map(|s| s.sandbox.name.as_str()).collect();
        assert_eq!(names, ["left", "right", "linux"]);
        let [left, other, linux] = [0, 1, 2].map(|n| &turned.sandboxes[n]);
        let own = &linux.sandbox;
        assert_eq!((&own.guest, linux.memory, linux.at), (&Guest::Running, 0, None));
        assert_eq!(own.control, [vec![right(0), right(1)], vec![right(1)], vec![right(0)]]);
        assert_eq!(own.observe, [1, 0]);
        assert_eq!(left.sandbox.observe, [2]);
        assert_eq!(other.sandbox.control[0], [right(2)]);
        let ends = |n: usize| (turned.channels[n].from, &turned.channels[n].to[..]);
        assert_eq!((ends(0), ends(1)), ((2, &[0, 1][..]), (1, &[2][..])));
        assert_eq!((turned.links[0].owner, &turned.links[0].to[..]), (1, &[2][..]));
        assert_eq!((&turned.ends_with[..], &turned.restarts[..]), (&[2, 1][..], &[(1, 1)][..]));
        assert_eq!(turned.under_linux.map(|under| under.sandbox), Some(2));
    }

    #[test]
    fn it_may_stop_those_that_are_released_and_no_others() {
        let mut system = system();
        let stops = |system: &System| {
            let turned = system.under_linux(BASE, usize::MAX).unwrap();
            { turned.sandboxes[2].sandbox.control.clone() }
                .map(|rights| rights.iter().map(|right| right.sandbox).collect::<Vec<_>>())
        };
        system.sandboxes[1].sandbox.control = Default::default();
        assert_eq!(stops(&system), [vec![], vec![], vec![]]);
        system.sandboxes[2].sandbox.releases = true;
        assert_eq!(stops(&system), [vec![1], vec![], vec![]]);
        // One that it may stop anyway has no second right, and keeps its time.
        system.sandboxes[1].sandbox.control[0] = vec![right(0), right(2)];
        assert_eq!(stops(&system), [vec![0, 1], vec![], vec![]]);
    }

    #[test]
    fn it_has_all_cores_that_nobody_else_has_and_the_machine_is_its() {
        let all = system();
        let cores = |n| all.under_linux(BASE, n).map(|s| s.sandboxes[2].sandbox.core_ids.clone());
        assert_eq!(cores(usize::MAX), Ok(vec![4, 6, 12, 14]));
        assert_eq!(cores(7), Ok(vec![4, 6, 12]));
        let turned = all.under_linux(BASE, usize::MAX).unwrap();
        assert_eq!(turned.machine.ram, [Span { start: BASE, len: BLOCK }]);
        assert_eq!((turned.machine.hpet, turned.image_at()), (None, BASE));
        assert_eq!((all.image_at(), all.block), (all.facts().image, None));
        let plan = turned.plan(MIB).unwrap();
        assert_eq!((plan.image.start, plan.block), (BASE, Some(Span { start: BASE, len: BLOCK })));
        assert!(plan.sandboxes[2].ram.is_empty());
        assert!(plan.runs(2) && !plan.runs(1) && !plan.runs(3) && plan.ends(2).is_empty());
        let inside = |hpa: u64| (BASE + MIB..BASE + BLOCK).contains(&hpa);
        assert!(plan.sandboxes.iter().flat_map(|s| &s.ram).all(|ram| inside(ram.hpa)));
        assert!(plan.channels.iter().all(|channel| inside(channel.hpa)));
        // Too much for the block is a misfit of it.
        let mut large = system();
        large.sandboxes[0].memory = 256 * MIB;
        assert!(large.under_linux(BASE, usize::MAX).unwrap().plan(MIB).is_err());
    }

    fn function(bdf: u16, irq: Option<u32>, nobody: Option<&str>) -> Function {
        let nobody = nobody.map(Into::into);
        Function { bdf: Bdf(bdf), irq, nobody, ..Function::default() }
    }

    fn granted(bdf: u16) -> Granted {
        let (unconfined, line, role, place) = (false, false, None, place(31));
        Granted { function: function(bdf, None, None), unconfined, line, role, place }
    }

    /// A machine with three functions, of which one is nobody's, and an IOMMU that confines them.
    fn confined(all: &mut System) {
        all.under_linux.as_mut().unwrap().unconfined = false;
        all.machine.functions = vec![
            function(0x18, Some(20), None),
            function(0x20, None, Some("it forwards")),
            function(0x28, None, None),
        ];
        all.machine.iommu = Some(Iommu { remaps_interrupts: true, ..Iommu::default() });
        all.machine.pci = Some(PciRoot::default());
        all.machine.controller = Some(Controller::Ioapic(Ioapic::default()));
    }

    #[test]
    fn it_has_all_functions_that_nobody_else_has_where_an_iommu_confines_them() {
        let mut all = system();
        confined(&mut all);
        let mut given = all.clone();
        given.sandboxes[2].sandbox.functions = vec![granted(0x18)];
        let turned = given.under_linux(BASE, usize::MAX).unwrap();
        let owners = turned.sandboxes.iter().map(|wanted| wanted.sandbox.functions.iter());
        let owners: Vec<Vec<_>> =
            owners.map(|own| own.map(|own| own.function.bdf.0).collect()).collect();
        assert_eq!(owners, [vec![], vec![0x18], vec![0x28]]);
        let turned = all.under_linux(BASE, usize::MAX).unwrap();
        let own = turned.sandboxes[2].sandbox.functions.iter();
        let own: Vec<_> = own.map(|own| (own.function.bdf.0, own.line, own.unconfined)).collect();
        assert_eq!(own, [(0x18, true, false), (0x28, false, false)]);
        let machine = &turned.machine;
        assert!(machine.iommu.is_some() && machine.pci.is_some() && machine.hpet.is_some());
        let mut crowded = all.clone();
        crowded.machine.banks = vec![Span { start: 0, len: 0xE000_0000 }];
        let why = crowded.under_linux(BASE, usize::MAX).unwrap_err();
        assert!(why.message.contains("shown its channels") && why.place.line == 5, "{why}");
        let without: &[fn(&mut Machine)] = &[
            |m| m.iommu = None,
            |m| m.iommu.as_mut().unwrap().remaps_interrupts = false,
            |m| m.iommu.as_mut().unwrap().kind = IommuKind::VtD { ioapic: None },
            |m| m.pci = None,
            |m| m.controller = None,
        ];
        for change in without {
            let mut system = all.clone();
            change(&mut system.machine);
            let why = system.under_linux(BASE, usize::MAX).unwrap_err();
            assert!(why.help.contains("unconfined") && why.place.line == 5, "{why}");
        }
    }

    #[test]
    fn it_begins_anew_as_the_manifest_has_its_guest_where_that_is_wanted() {
        let mut all = system();
        confined(&mut all);
        let again = |system: &System| {
            let turned = system.under_linux(BASE, usize::MAX).unwrap();
            turned.sandboxes[2].sandbox.again.clone()
        };
        assert_eq!(again(&all), None);
        all.under_linux.as_mut().unwrap().restart = true;
        let linux = |cmdline: &str| Guest::Linux {
            kernel: "k".into(),
            initrd: None,
            cmdline: cmdline.into(),
        };
        // The IOMMU is the monitors', whatever the manifest's author wrote.
        assert_eq!(again(&all), Some(Box::new(linux("amd_iommu=off"))));
        all.sandboxes[1].sandbox.guest = linux("quiet");
        assert_eq!(again(&all), Some(Box::new(linux("amd_iommu=off quiet"))));
        // Each one that may begin it, does.
        all.sandboxes[0].sandbox.control[1] = vec![right(1)];
        all.sandboxes[0].sandbox.control[2] = vec![right(1)];
        all.sandboxes[1].sandbox.actions[0] = Action::Restart;
        assert!(again(&all).is_some());
    }

    #[test]
    fn below_4_gib_it_has_what_the_description_names() {
        let span = |start: u64, end: u64| Span { start, len: end - start };
        let low = span(0, 1 << 32);
        let window = span(0xC000_0000, 0xFEC0_0000);
        let device = |start, nobody: Option<&str>| Device {
            mmio: vec![span(start, start + 0x1000)],
            nobody: nobody.map(Into::into),
            ..Device::default()
        };
        let described = |unconfined| {
            let mut all = system();
            confined(&mut all);
            all.under_linux.as_mut().unwrap().unconfined = unconfined;
            let machine = &mut all.machine;
            machine.banks = vec![span(0, 0x8000_0000), span(1 << 32, 5 << 30)];
            machine.reserved = vec![
                ("PCI memory".into(), window),
                ("flash".into(), span(0xFFC0_0000, 1 << 32)),
                // A part of each of two pages.
                ("table".into(), span(0x8000_0F00, 0x8000_1100)),
            ];
            machine.pci.as_mut().unwrap().memory = vec![window];
            let kind = BarKind::Memory { wide: false, prefetchable: false };
            let bar = |number, kind, start| Bar { number, kind, span: span(start, start + 0x80) };
            machine.functions[0].bars =
                vec![bar(0, kind, 0xFEB0_1F80), bar(1, BarKind::Io, 0xD000_0000)];
            machine.functions[1].bars = vec![bar(0, kind, 0xFEB0_3000)];
            machine.devices.push(device(0xFED1_C000, Some("it resets the machine")));
            machine.devices.push(device(0xFED1_D000, None));
            machine.devices.push(device(5 << 32, Some("it is far above")));
            all.under_linux(BASE, usize::MAX).unwrap().plan(MIB).unwrap()
        };
        let plan = described(false);
        let unnamed = [
            span(0x8000_2000, 0xFEB0_1000),
            span(0xFEB0_2000, 0xFEB0_3000),
            span(0xFEB0_4000, 0xFED1_C000),
            span(0xFED1_E000, 0xFFC0_0000),
        ];
        assert_eq!(plan.unnamed(low), unnamed);
        let withheld: Vec<_> = plan.withheld(low).map(|(_, pages)| pages).collect();
        assert_eq!(withheld, [span(0xFED1_C000, 0xFED1_D000)]);
        // One that is trusted with DMA reaches all of it.
        let trusted = described(true);
        assert_eq!((trusted.unnamed(low), trusted.withheld(low).count()), (vec![], 0));
    }

    /// A change of a system, the line of the refusal, and a word of it.
    type Refusal = (fn(&mut System), usize, &'static str);

    #[test]
    fn a_system_that_cannot_start_so_is_refused_with_its_line() {
        fn of(system: &mut System, n: usize) -> &mut Sandbox {
            &mut system.sandboxes[n].sandbox
        }
        let all: &[Refusal] = &[
            (|s| s.under_linux = None, 1, "add `[under_linux]`"),
            (|s| s.multikernel = true, 5, "without monitors"),
            (|s| s.machine.arch = Arch::Vmx, 5, "x86-64-vmx"),
            (|s| s.under_linux.as_mut().unwrap().memory = 0, 5, "0 bytes"),
            (|s| s.under_linux.as_mut().unwrap().memory += MIB, 5, "128 MiB"),
            (|s| s.under_linux.as_mut().unwrap().memory = 8 * BLOCK, 5, "128 MiB"),
            (
                |s| {
                    let (name, place) = ("leads".into(), place(40));
                    let (holders, dma) = (vec![0, 2], Vec::new());
                    let (least_loaded, cold, gpa) = (false, false, 0);
                    s.roles = vec![Role { name, place, holders, least_loaded, cold, gpa, dma }];
                },
                40,
                "role `leads`",
            ),
            (
                |s| {
                    let (name, place) = ("panel".into(), place(44));
                    s.mmio = vec![SharedMmio { name, place, ..SharedMmio::default() }];
                },
                44,
                "registers `panel`",
            ),
            (|s| s.channels[1].part = Part::Program, 60, "loads a program"),
            (|s| of(s, 0).watch = Some(Watch::default()), 10, "watchdog"),
            (|s| of(s, 1).watch = Some(Watch::default()), 20, "watchdog"),
            (
                |s| {
                    let (place, sandbox, every, first) = (place(41), 0, 1, None);
                    let (takes, quiets) = (true, true);
                    of(s, 2).peers = vec![Peer { place, sandbox, every, first, takes, quiets }];
                },
                41,
                "looks at another",
            ),
            (
                |s| of(s, 2).functions = vec![granted(0x18)],
                31,
                "nothing confines the DMA of 00:03.0",
            ),
            (
                |s| {
                    confined(s);
                    of(s, 2).functions = vec![Granted { unconfined: true, ..granted(0x18) }];
                },
                31,
                "nothing confines",
            ),
            (
                |s| {
                    confined(s);
                    of(s, 2).functions = vec![Granted { line: true, ..granted(0x18) }];
                },
                31,
                "by an interrupt line",
            ),
            (
                |s| {
                    confined(s);
                    of(s, 2).functions = vec![granted(0x18)];
                    for function in &mut s.machine.functions {
                        function.group = Some(7);
                    }
                    of(s, 2).functions[0].function.group = Some(7);
                },
                31,
                "00:05.0 of the Linux are in IOMMU group 7",
            ),
            (
                |s| {
                    confined(s);
                    of(s, 2).functions = vec![granted(0x18)];
                    let bridge = Bridge { secondary: 0, subordinate: 0, ..Bridge::default() };
                    s.machine.functions[1].bridge = Some(bridge);
                },
                31,
                "the port 00:04.0 above it has no source",
            ),
            (
                |s| {
                    confined(s);
                    let (name, place) = ("rtc".into(), place(32));
                    let device = Device {
                        name,
                        place,
                        irq: Some(8),
                        class: "rtc".into(),
                        ..Device::default()
                    };
                    of(s, 2).devices = vec![device];
                },
                32,
                "`rtc`",
            ),
            (
                |s| {
                    let (name, place) = ("uart1".into(), place(32));
                    of(s, 2).devices =
                        vec![Device { name, place, irq: Some(4), ..Device::default() }];
                },
                32,
                "`uart1`",
            ),
            (
                |s| {
                    let (name, place, guest) = ("other".into(), place(42), Guest::default());
                    of(s, 1).alternatives = vec![Alternative { name, place, guest }];
                },
                42,
                "guest `other`",
            ),
            (
                |s| {
                    let (place, rungs) = (place(43), Vec::new());
                    of(s, 1).ladders = vec![crate::Ladder { place, rungs }];
                },
                43,
                "ladder",
            ),
            (|s| of(s, 1).snapshot = 1, 20, "snapshot"),
            (
                |s| s.under_linux.as_mut().unwrap().restart = true,
                5,
                "nothing would stop the devices",
            ),
            (|s| of(s, 1).actions[0] = Action::Restart, 20, "restarts"),
            (|s| of(s, 1).actions[Kind::Failure as usize] = Action::Stop, 20, "a failure"),
            (|s| of(s, 0).control[1] = vec![right(1)], 10, "may start `linux`"),
            (|s| of(s, 0).control[2] = vec![right(1)], 10, "may restart `linux`"),
            (|s| of(s, 0).cores = (0..8).collect(), 20, "0 cores"),
            (|s| s.machine.core_ids.truncate(5), 30, "has core 5"),
        ];
        for (change, line, word) in all {
            let mut system = system();
            change(&mut system);
            let why = system.under_linux(BASE, usize::MAX).expect_err(word);
            let said = why.to_string();
            assert!(why.place.line == *line && said.contains(word), "{word}: {said}");
            assert!(said.starts_with(&format!("m.toml:{line}: ")) && !why.help.is_empty());
        }
        // The Linux' own devices are not looked at, and a device with ports alone has no line.
        let mut own = system();
        of(&mut own, 1).devices = vec![Device { irq: Some(4), ..Device::default() }];
        of(&mut own, 0).devices = vec![Device::default()];
        let turned = own.under_linux(BASE, usize::MAX).unwrap();
        let devices = |n: usize| turned.sandboxes[n].sandbox.devices.len();
        assert_eq!([0, 1, 2].map(devices), [1, 0, 0]);
        // A serial port has one that the Linux gives away.
        confined(&mut own);
        of(&mut own, 0).devices =
            vec![Device { irq: Some(3), class: SERIAL.into(), ..Device::default() }];
        assert!(own.under_linux(BASE, usize::MAX).is_ok());
    }
}
