//! A Linux's ends of channels: functions of a PCI bus that no hardware has (ivshmem, version 2).
//!
//! A sender and its receivers are *peers*, the sender first. Their shared memory is a page with the peers' states,
//! then a section for each peer that only that peer writes. All sections have the size of the channel's.

use crate::{Bdf, Bell, Channel, Guest, Part, Plan, Sandbox, Span};
use bulkhead_layout::PAGE;

/// A Linux's end of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Index of the channel's first region in [`Plan::channels`]: peers have it in common.
    pub region: usize,
    /// Its number among the peers; the sender's is 0.
    pub id: u32,
    /// The peers' sandboxes, by number.
    pub peers: Vec<usize>,
    /// Its address on the bus.
    pub bdf: Bdf,
    /// Other functions of its device follow.
    pub more: bool,
    /// Guest-physical page of its registers. The one behind it holds its MSI-X table, if it is woken.
    pub registers: u64,
    /// The doorbell that it rings, if there is one.
    pub rings: Option<Bell>,
    /// The one that wakes it, if there is one.
    pub woken: Option<Woken>,
    /// The shared memory, guest-physical: a power of two, aligned to its length. Behind the peers'
    /// sections there is nothing.
    pub memory: Span,
}

/// How an end is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// The doorbell.
    pub bell: Bell,
    /// By MSI-X, and by this pin, too, if it has one.
    pub pin: Option<Pin>,
}

/// An interrupt pin of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// 1 for A to 4 for D.
    pub number: u8,
    /// The line of the sandbox's own IOAPIC that it leads to.
    pub line: u32,
}

impl End {
    /// Its interrupt pin, if it has one.
    #[must_use]
    pub fn pin(&self) -> Option<Pin> {
        self.woken.and_then(|woken| woken.pin)
    }

    /// Its pages of registers: its MSI-X table is in the second one.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        if self.woken.is_some() { 2 * PAGE } else { PAGE }
    }
}

/// Bytes of the window to the memory that `peers` of a channel share, each with so many.
#[must_use]
pub const fn window(section: u64, peers: u64) -> u64 {
    let all = section.saturating_mul(peers).saturating_add(PAGE);
    match all.checked_next_power_of_two() {
        Some(len) => len,
        None => u64::MAX,
    }
}

/// The peers of the channel that begins with a region, by number.
#[must_use]
pub fn peers(region: &Channel) -> Vec<usize> {
    [&[region.from][..], &region.to].concat()
}

impl Plan {
    /// Returns the ends of a Linux sandbox, in the manifest's order; an empty list for any other guest. A Linux that
    /// runs already has them if its monitor answers for the configuration space. It keeps the machine's interrupt
    /// lines, and none is left for their pins.
    #[must_use]
    pub fn ends(&self, sandbox: usize) -> Vec<End> {
        let runs = match self.sandboxes[sandbox].guest {
            Guest::Linux { .. } => false,
            Guest::Running if self.machine.pci.is_some() => true,
            _ => return Vec::new(),
        };
        let begins = self.channels.iter().enumerate().filter(|(_, c)| c.part != Part::Rx);
        let own = begins.filter(|(_, c)| c.writes(sandbox) || c.reads(sandbox));
        let own: Vec<(usize, &Channel)> = own.collect();
        let (count, lines) = (own.len(), free_lines(&self.sandboxes[sandbox]));
        let end = |(n, bdf): (usize, Bdf)| {
            let (region, c) = own[n];
            let peers = peers(c);
            let id = peers.iter().position(|peer| *peer == sandbox).unwrap_or(0) as u32;
            let (there, back) = (self.bell(region), self.back(region));
            let (rings, wakes) = if id == 0 { (there, back) } else { (back, there) };
            // A device has four pins; two of its eight functions have one in common.
            let (device, pin) = (n / 8, n % 4);
            let line = lines.iter().cycle().nth(4 * device + pin);
            let pin = line.map(|line| Pin { number: pin as u8 + 1, line: *line });
            let pin = pin.filter(|_| !runs);
            let woken = wakes.filter(|_| runs || pin.is_some()).map(|bell| Woken { bell, pin });
            End {
                region,
                id,
                rings,
                woken,
                bdf,
                more: bdf.function() == 0 && n + 1 < count,
                registers: self.machine.arch.facts().guest.functions + n as u64 * 2 * PAGE,
                memory: Span { start: c.gpa - PAGE, len: window(c.len, peers.len() as u64) },
                peers,
            }
        };
        (0..count).zip(self.vacant()).map(end).collect()
    }

    /// Addresses on bus 0 in devices that the machine has not: from the middle on, where machines have few.
    fn vacant(&self) -> impl Iterator<Item = Bdf> {
        let has = |device: u8| {
            self.machine.functions.iter().any(|f| f.bdf.bus() == 0 && f.bdf.device() == device)
        };
        let devices: Vec<u8> = (16..32).chain(1..16).filter(|device| !has(*device)).collect();
        devices.into_iter().flat_map(|device| (0..8).map(move |f| Bdf(u16::from(device) << 3 | f)))
    }
}

/// Lines of an IOAPIC of the sandbox's own that no device of its has, above those of ISA, which Linux gives away
/// unwillingly.
fn free_lines(sandbox: &Sandbox) -> Vec<u32> {
    let devices = sandbox.devices.iter().filter_map(|device| device.irq);
    let functions =
        sandbox.functions.iter().filter(|one| one.line).filter_map(|one| one.function.irq);
    let taken: Vec<u32> = devices.chain(functions).collect();
    (16..32).filter(|line| !taken.contains(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_states_and_sections() {
        assert_eq!(window(PAGE, 2), 4 * PAGE);
        assert_eq!(window(2 * PAGE, 2), 8 * PAGE);
        assert_eq!(window(PAGE, 3), 4 * PAGE);
        assert_eq!(window(u64::MAX, 2), u64::MAX);
    }
}
