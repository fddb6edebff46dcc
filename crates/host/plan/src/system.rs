//! A checked system without places for its memory, and the way from there to a [`Plan`]. The image holds the tables
//! that describe the plan, so the image's length is an input: a builder guesses it, bakes, and asks again.

use crate::place::{Refusal, Wish, place};
use crate::{
    Channel, Drive, Facts, Link, Machine, Plan, Ram, Role, Sandbox, SharedMmio, Span, UnderLinux,
};
use std::path::PathBuf;

/// A sandbox and the memory it wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The sandbox; its `ram` is empty.
    pub sandbox: Sandbox,
    /// Bytes of RAM, a multiple of a page.
    pub memory: u64,
    /// Host-physical address of the RAM, if the manifest says so.
    pub at: Option<u64>,
}

/// A system before placement.
#[derive(Clone, Debug, Default)]
pub struct System {
    /// Its name.
    pub name: String,
    /// Its manifest.
    pub manifest: PathBuf,
    /// The machine.
    pub machine: Machine,
    /// Kernels run without monitors.
    pub multikernel: bool,
    /// The sandboxes, by index.
    pub sandboxes: Vec<Wanted>,
    /// The channels' regions, `hpa` still 0, `gpa` already final.
    pub channels: Vec<Channel>,
    /// Memory for channels that are made at run time, likewise.
    pub links: Vec<Link>,
    /// Roles, by number.
    pub roles: Vec<Role>,
    /// Registers that sandboxes share.
    pub mmio: Vec<SharedMmio>,
    /// Sandboxes that end a run when they end.
    pub ends_with: Vec<usize>,
    /// Text that a scenario appends to guests' arguments.
    pub scenario: Vec<Appended>,
    /// Sandboxes that begin anew in a scenario, by index, and how often.
    pub restarts: Vec<(usize, u64)>,
    /// Files behind the machine's drives.
    pub drives: Vec<Drive>,
    /// Networks of the machine that are one.
    pub hub: Vec<String>,
    /// How it starts under a Linux that runs already, if its manifest says so. It means nothing to other images.
    pub under_linux: Option<UnderLinux>,
    /// Memory that is taken from that Linux, in a system that starts so ([`System::under_linux`]).
    pub block: Option<Span>,
}

/// Text for the end of a guest's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The sandbox, by index.
    pub sandbox: usize,
    /// The program of its kernel, by index; 0 for other guests.
    pub program: usize,
    /// The text.
    pub text: String,
}

/// Owner of memory that could not be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A sandbox, by index.
    Sandbox(usize),
    /// A channel's region, by index.
    Channel(usize),
    /// Memory for a channel that is made at run time, by index.
    Link(usize),
}

/// Why a system does not fit in its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The image does not fit in the RAM at its address ([`System::image_at`]).
    Image {
        /// Its length.
        len: u64,
        /// Bytes of RAM from there on.
        room: u64,
    },
    /// A sandbox's or channel's memory.
    Memory {
        /// Owner of the memory.
        owner: Owner,
        /// Bytes of the piece that was refused.
        len: u64,
        /// Why.
        why: Reason,
    },
}

/// [`Refusal`] with owners in place of indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The address is outside of free RAM.
    Outside {
        /// The address.
        start: u64,
        /// The RAM in which it lies, if there is some.
        holds: Option<Span>,
    },
    /// The address is the image's.
    OnImage,
    /// The address is somebody else's.
    On(Owner),
    /// Nothing free is large enough; the largest free piece.
    NoRoom(u64),
}

impl System {
    /// Places everything behind an image of `image_len` bytes.
    ///
    /// # Errors
    /// Everything that does not fit.
    pub fn plan(&self, image_len: u64) -> Result<Plan, Vec<Misfit>> {
        let image = self.image(image_len).map_err(|misfit| vec![misfit])?;
        let (owners, gpas, wishes) = self.wishes();
        let placed = place(self.facts(), &self.ram(), image, &wishes).map_err(|refused| {
            refused
                .into_iter()
                .map(|(index, why)| Misfit::Memory {
                    owner: owners[index],
                    len: wishes[index].len,
                    why: reason(&owners, wishes[index], why),
                })
                .collect::<Vec<_>>()
        })?;

        let mut sandboxes: Vec<Sandbox> =
            self.sandboxes.iter().map(|wanted| wanted.sandbox.clone()).collect();
        let (mut channels, mut links) = (self.channels.clone(), self.links.clone());
        for (index, hpa) in placed.into_iter().enumerate() {
            let (gpa, len) = (gpas[index], wishes[index].len);
            match owners[index] {
                Owner::Sandbox(sandbox) => sandboxes[sandbox].ram.push(Ram { gpa, hpa, len }),
                Owner::Channel(channel) => channels[channel].hpa = hpa,
                Owner::Link(link) => links[link].hpa = hpa,
            }
        }
        Ok(Plan {
            system: self.name.clone(),
            manifest: self.manifest.clone(),
            machine: self.machine.clone(),
            image,
            block: self.block,
            multikernel: self.multikernel,
            sandboxes,
            channels,
            links,
            roles: self.roles.clone(),
            mmio: self.mmio.clone(),
            ends_with: self.ends_with.clone(),
            drives: self.drives.clone(),
            hub: self.hub.clone(),
        })
    }

    /// Facts of its machine's architecture.
    #[must_use]
    pub const fn facts(&self) -> &'static Facts {
        self.machine.arch.facts()
    }

    /// RAM for sandboxes. Without monitors the boot code fills it, which sees a part of the memory.
    #[must_use]
    pub fn ram(&self) -> Vec<Span> {
        let seen = if self.multikernel { self.facts().boot_sees } else { u64::MAX };
        let seen = Span { start: 0, len: seen };
        self.machine.ram.iter().copied().filter(|piece| seen.encloses(*piece)).collect()
    }

    /// Address of its image.
    #[must_use]
    pub fn image_at(&self) -> u64 {
        self.block.map_or(self.facts().image, |block| block.start)
    }

    fn image(&self, len: u64) -> Result<Span, Misfit> {
        let start = self.image_at();
        let room = self
            .machine
            .ram
            .iter()
            .find(|piece| piece.contains(start))
            .map_or(0, |piece| piece.end() - start);
        match len.checked_next_multiple_of(self.facts().page) {
            Some(rounded) if rounded <= room => Ok(Span { start, len: rounded }),
            _ => Err(Misfit::Image { len, room }),
        }
    }

    /// Lists every piece of memory: its owner, its guest-physical address, and the wish.
    fn wishes(&self) -> (Vec<Owner>, Vec<u64>, Vec<Wish>) {
        let (mut owners, mut gpas, mut wishes) = (Vec::new(), Vec::new(), Vec::new());
        for (index, wanted) in self.sandboxes.iter().enumerate() {
            let mut at = wanted.at;
            // A Linux that runs already wants none.
            let pieces = self.facts().guest.pieces(wanted.memory).into_iter();
            for piece in pieces.filter(|piece| piece.len > 0) {
                owners.push(Owner::Sandbox(index));
                gpas.push(piece.start);
                wishes.push(Wish { len: piece.len, at, low: false });
                at = at.and_then(|start| start.checked_add(piece.len));
            }
        }
        for (index, channel) in self.channels.iter().enumerate() {
            owners.push(Owner::Channel(index));
            gpas.push(channel.gpa);
            wishes.push(Wish { len: channel.len, at: None, low: true });
        }
        for (index, link) in self.links.iter().enumerate() {
            owners.push(Owner::Link(index));
            gpas.push(link.gpa);
            wishes.push(Wish { len: link.len, at: None, low: false });
        }
        (owners, gpas, wishes)
    }
}

fn reason(owners: &[Owner], wish: Wish, why: Refusal) -> Reason {
    match why {
        Refusal::Outside { holds } => Reason::Outside { start: wish.at.unwrap_or(0), holds },
        Refusal::OnImage => Reason::OnImage,
        Refusal::OnOther { other } => Reason::On(owners[other]),
        Refusal::NoRoom { largest } => Reason::NoRoom(largest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn wanted(memory: u64, at: Option<u64>) -> Wanted {
        Wanted { sandbox: Sandbox { name: "a".into(), ..Sandbox::default() }, memory, at }
    }

    fn system(sandboxes: Vec<Wanted>) -> System {
        System {
            machine: Machine {
                ram: vec![
                    Span { start: MIB, len: 7 * MIB },
                    Span { start: 16 * MIB, len: 1968 * MIB },
                    Span { start: 4 * GIB, len: 4 * GIB },
                ],
                ..Machine::default()
            },
            sandboxes,
            ..System::default()
        }
    }

    #[test]
    fn guest_ram_splits_around_the_device_window() {
        let plan = system(vec![wanted(4 * GIB, Some(4 * GIB))]).plan(MIB).unwrap();
        assert_eq!(
            plan.sandboxes[0].ram,
            [
                Ram { gpa: 0, hpa: 4 * GIB, len: 3 * GIB },
                Ram { gpa: 4 * GIB, hpa: 7 * GIB, len: GIB },
            ]
        );
    }

    #[test]
    fn a_too_large_image_is_refused_with_the_room() {
        let misfits = system(Vec::new()).plan(2 * GIB).unwrap_err();
        assert_eq!(misfits, [Misfit::Image { len: 2 * GIB, room: 1968 * MIB }]);
        assert!(system(Vec::new()).plan(u64::MAX).is_err());
    }

    #[test]
    fn refusals_name_owners() {
        let both = vec![wanted(8 * MIB, Some(32 * MIB)), wanted(8 * MIB, Some(36 * MIB))];
        assert_eq!(
            system(both).plan(MIB).unwrap_err(),
            [Misfit::Memory {
                owner: Owner::Sandbox(1),
                len: 8 * MIB,
                why: Reason::On(Owner::Sandbox(0)),
            }]
        );
    }
}
