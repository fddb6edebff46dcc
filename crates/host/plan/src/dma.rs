//! Memory that a function reaches where a program of a kernel drives it. The IOMMU's tables, the auditor's claim, the
//! explanation of a blocked access and the table of `bulkhead plan` derive from this list.

use crate::kernel::{Driven, Reached};
use crate::{Channel, Guest, Part, Plan};
use bulkhead_channel::layout::Shape;
use bulkhead_virtio::layout::POOL;

/// A range that a function reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dma {
    /// Address by which the function finds it: guest-physical.
    pub gpa: u64,
    /// Physical address.
    pub hpa: u64,
    /// Bytes, whole pages.
    pub len: u64,
    /// It may be written.
    pub write: bool,
    /// Memory that it is all or a part of: shared memory, or the one region of a channel.
    pub what: Reached,
}

impl Plan {
    /// Lists the memory that a function reaches: the memory that its driver's entry in the manifest names. `None`: it
    /// reaches all memory of its sandbox, or of the machine.
    #[must_use]
    pub fn dma(&self, sandbox: usize, function: usize) -> Option<Vec<Dma>> {
        let owner = &self.sandboxes[sandbox];
        if let Some(role) = owner.functions[function].role {
            return Some(self.role_dma(sandbox, role));
        }
        let Guest::Kernel(kernel) = &owner.guest else { return None };
        let ram = owner.ram.first().filter(|_| !owner.functions[function].unconfined)?;
        let Some((program, used)) = kernel.driver(Driven::Function(function)) else {
            return Some(Vec::new());
        };
        let shared = |n: usize| {
            let map = program.maps.iter().find(|map| map.shared == n)?;
            let at = kernel.place_for_devices(n, ram.len)?;
            let (gpa, hpa, len) = (ram.gpa + at, ram.hpa + at, kernel.shared[n].len);
            Some(Dma { gpa, hpa, len, write: map.write, what: Reached::Shared(n) })
        };
        let all = used.dma.iter().flat_map(|reached| match *reached {
            Reached::Shared(n) => shared(n).into_iter().collect::<Vec<_>>(),
            Reached::Channel(n) => self.sections(sandbox, n),
        });
        Some(all.collect())
    }

    /// Lists the memory that a role's functions reach, whoever has it: all holders see it at one address.
    fn role_dma(&self, holder: usize, role: usize) -> Vec<Dma> {
        let names = self.roles.get(role).map_or(&[][..], |role| &role.dma);
        let of = |(_, channel): &(usize, &Channel)| {
            channel.stands(holder).is_some_and(|stand| stand.role == role)
                && channel.part == Part::Pages
                && names.contains(&channel.name)
        };
        let reached = |(n, channel): (usize, &Channel)| Dma {
            gpa: channel.gpa,
            hpa: channel.hpa,
            len: channel.len,
            write: channel.writes(holder),
            what: Reached::Channel(n),
        };
        self.channels.iter().enumerate().filter(of).map(reached).collect()
    }

    /// Parts of a channel's regions that hold data. A device writes to regions of its own sandbox only.
    fn sections(&self, sandbox: usize, first: usize) -> Vec<Dma> {
        let Some(channel) = self.channels.get(first) else { return Vec::new() };
        // It would reach the memory of another holder's role.
        if channel.stands(sandbox).is_some() {
            return Vec::new();
        }
        let at = channel.data();
        let count = if channel.part.shape().is_some() { 2 } else { 1 };
        let part = |(n, region): (usize, &Channel)| Dma {
            gpa: region.gpa + at,
            hpa: region.hpa + at,
            len: region.len.saturating_sub(at),
            write: region.writes(sandbox),
            what: Reached::Channel(n),
        };
        self.channels.iter().enumerate().skip(first).take(count).map(part).collect()
    }
}

impl Channel {
    /// Returns the offset of the first page that holds nothing but data, in the channel's first region and in the
    /// receiver's behind it.
    #[must_use]
    pub const fn data(&self) -> u64 {
        match self.part {
            Part::Tx(Shape::Virtio { .. }) => POOL as u64,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{DeviceUse, Kernel, Map, Program, Shared};
    use crate::{Granted, Place, Ram, Sandbox};

    const SECTION: u64 = 256 << 10;
    const CLIENT: usize = 0;
    const DRIVER: usize = 1;

    fn region(part: Part, from: usize, to: usize, at: u64) -> Channel {
        let (hpa, gpa, place) = (0x100_0000 + at, 0x8000_0000 + at, Place::default());
        Channel {
            name: "disk".into(),
            place,
            part,
            bell: None,
            from,
            to: vec![to],
            stand: None,
            hpa,
            gpa,
            len: SECTION,
        }
    }

    /// A driver sandbox, with a page of shared memory and a channel for its device.
    fn plan(first: Part, dma: Vec<Reached>) -> Plan {
        let shared = |len| Shared { name: "rings".into(), place: Place::default(), len };
        let device = DeviceUse { device: Driven::Function(0), interrupts: Vec::new(), dma };
        let driver = Program {
            maps: vec![Map { shared: 0, write: true }],
            devices: vec![device],
            ..Program::default()
        };
        let kernel =
            Kernel { programs: vec![driver], shared: vec![shared(0x1000)], ..Kernel::default() };
        let owner = Sandbox {
            guest: Guest::Kernel(Box::new(kernel)),
            ram: vec![Ram { gpa: 0, hpa: 0x200_0000, len: 1 << 20 }],
            functions: vec![Granted::default(), Granted::default()],
            ..Sandbox::default()
        };
        let channels = vec![
            region(first, CLIENT, DRIVER, 0),
            region(Part::Rx, DRIVER, CLIENT, SECTION),
            region(Part::Pages, DRIVER, CLIENT, 2 * SECTION),
        ];
        Plan { sandboxes: vec![Sandbox::default(), owner], channels, ..Plan::default() }
    }

    #[test]
    fn a_device_reaches_buffers_of_a_channel_and_no_header() {
        let virtio = Part::Tx(Shape::Virtio { bytes: SECTION as u32 });
        let plan = plan(virtio, vec![Reached::Shared(0), Reached::Channel(0), Reached::Channel(2)]);
        let all = plan.dma(DRIVER, 0).expect("a driver");
        let pool = POOL as u64;
        let seen = |dma: &Dma| (dma.gpa, dma.hpa, dma.len, dma.write, dma.what);
        assert_eq!(
            all.iter().map(seen).collect::<Vec<_>>(),
            [
                (0xFF000, 0x20F_F000, 0x1000, true, Reached::Shared(0)),
                (0x8000_0000 + pool, 0x100_0000 + pool, SECTION - pool, false, Reached::Channel(0)),
                (
                    0x8000_0000 + SECTION + pool,
                    0x100_0000 + SECTION + pool,
                    SECTION - pool,
                    true,
                    Reached::Channel(1)
                ),
                (
                    0x8000_0000 + 2 * SECTION,
                    0x100_0000 + 2 * SECTION,
                    SECTION,
                    true,
                    Reached::Channel(2)
                ),
            ]
        );
    }

    #[test]
    fn a_device_without_a_driver_reaches_nothing_and_an_unconfined_one_all() {
        let mut plan = plan(Part::Pages, vec![Reached::Channel(0)]);
        assert_eq!(plan.dma(DRIVER, 1), Some(Vec::new()));
        assert_eq!(plan.dma(DRIVER, 0).map(|all| all.len()), Some(1));
        plan.sandboxes[DRIVER].functions[0].unconfined = true;
        assert_eq!(plan.dma(DRIVER, 0), None);
        plan.sandboxes[DRIVER].guest = Guest::default();
        assert_eq!(plan.dma(DRIVER, 1), None);
    }
}
