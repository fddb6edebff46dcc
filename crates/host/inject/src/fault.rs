//! Faults: what happens, when, and where. The campaign's seed and the fault's number draw all of it, with the state of
//! the machine at the instant. That state is equal in each run.

use crate::{Golden, System, device};
use bulkhead_random::SplitMix64;

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A bit of a general register.
    Register,
    /// A bit of the guest's memory, in a page that is not all zero.
    Memory,
    /// A bit of an entry of the guest's page tables.
    PageTable,
    /// A bit in a page with text that was executed.
    Text,
    /// A bit of a channel with an end in the sandbox.
    Channel,
    /// The next interrupt of a core's timer does not come.
    InterruptLost,
    /// An interrupt of a core's timer comes once more.
    InterruptDoubled,
    /// The next interrupt of a core's timer comes late.
    InterruptLate,
    /// A device answers nonsense.
    DeviceNonsense,
    /// A device does not answer.
    DeviceSilent,
    /// A bit of what a device writes into memory is wrong.
    DeviceDma,
    /// A core stops: it stays at an instruction.
    CoreStops,
    /// A bit of the data of the sandbox's monitor.
    MonitorData,
    /// A bit of the control block of a core.
    ControlBlock,
}

/// All of them, with the names of tables and databases.
pub const KINDS: [(Kind, &str); 14] = [
    (Kind::Register, "register"),
    (Kind::Memory, "memory"),
    (Kind::PageTable, "page-table"),
    (Kind::Text, "text"),
    (Kind::Channel, "channel"),
    (Kind::InterruptLost, "interrupt-lost"),
    (Kind::InterruptDoubled, "interrupt-doubled"),
    (Kind::InterruptLate, "interrupt-late"),
    (Kind::DeviceNonsense, "device-nonsense"),
    (Kind::DeviceSilent, "device-silent"),
    (Kind::DeviceDma, "device-dma"),
    (Kind::CoreStops, "core-stops"),
    (Kind::MonitorData, "monitor-data"),
    (Kind::ControlBlock, "control-block"),
];

impl Kind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("?", |(_, name)| name)
    }

    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KINDS.iter().find(|(_, own)| *own == name).map(|(kind, _)| *kind)
    }

    /// A fault in what confines the guest. It is reported apart: nothing is promised about it.
    #[must_use]
    pub const fn is_apart(self) -> bool {
        matches!(self, Self::MonitorData | Self::ControlBlock)
    }

    /// Tells if the target has a place for it.
    #[must_use]
    pub fn fits(self, system: &System) -> bool {
        let (plan, target) = (&system.baked.plan, system.target);
        match self {
            Self::Channel => plan.channels.iter().any(|c| c.writes(target) || c.reads(target)),
            Self::DeviceNonsense | Self::DeviceSilent => !device::all(system).is_empty(),
            Self::DeviceDma => !device::writers(system).is_empty(),
            _ => true,
        }
    }
}

/// A fault that is to be struck.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Its number in the campaign.
    pub id: u64,
    /// Its kind.
    pub kind: Kind,
    /// Number of the instruction at which the machine stands, at the earliest.
    pub at: u64,
    /// Index of the struck core among those of the sandbox.
    pub core: usize,
    /// Draws the place.
    pub random: SplitMix64,
}

impl Fault {
    /// Draws a fault of a kind, or of any that has a place in the system.
    #[must_use]
    pub fn draw(system: &System, golden: &Golden, seed: u64, id: u64, kinds: &[Kind]) -> Self {
        let mut random = SplitMix64(SplitMix64(seed).any() ^ SplitMix64(id).any());
        let all = KINDS.iter().map(|(kind, _)| *kind);
        let wanted = all.filter(|kind| kinds.is_empty() || kinds.contains(kind));
        let possible: Vec<Kind> = wanted.filter(|kind| kind.fits(system)).collect();
        let kind = possible.get(random.index(possible.len())).copied().unwrap_or(Kind::Memory);
        // The rest of the run shows what comes of it.
        let at = golden.begin + random.below((golden.end - golden.begin) / 2);
        let core = random.index(system.struck().cores.len());
        Self { id, kind, at, core, random }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kinds_are_read_back() {
        for (kind, name) in KINDS {
            assert_eq!(Kind::named(name), Some(kind));
            assert_eq!(kind.name(), name);
        }
        assert_eq!(KINDS.iter().filter(|(kind, _)| kind.is_apart()).count(), 2);
    }
}
