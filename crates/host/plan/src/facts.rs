//! Facts of an architecture on which plans and the manifest's rules depend. The planner and the checker ask
//! [`Arch::facts`] in place of assuming x86's. The image builder has the other half of an architecture,
//! `bulkhead_image::Target`.

use crate::{Arch, Bdf, Ports, Span, x86};
use bulkhead_layout::PAGE;

/// See the module.
#[derive(Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its name.
    pub name: &'static str,
    /// Name of its processor in messages, and its number in ELF files.
    pub elf: (&'static str, u16),
    /// Kind of its monitors, as images and information pages name it.
    pub monitors: u64,
    /// Beginning of the names of its monitors' files.
    pub files: &'static str,
    /// Its machines are PCs: devices have ports, an IOAPIC takes lines, and RAM is split at 4 GiB.
    pub pc: bool,
    /// Lowest address of a machine's RAM.
    pub ram: u64,
    /// Bytes of a page, the smallest piece of memory with rights of its own.
    pub page: u64,
    /// Bytes of a large page.
    pub large: u64,
    /// Bytes of a huge page.
    pub huge: u64,
    /// Bytes from one function's configuration space in memory to the next one's.
    pub function: u64,
    /// Physical address at which the boot loader puts an image.
    pub image: u64,
    /// Ticks of a watchdog come from a timer beside the cores.
    pub ticks_beside: bool,
    /// Its monitors let a debugger in.
    pub debugger: bool,
    /// Physical page of the cores' start-up code, if it has a place outside of the image.
    pub start_code: Option<u64>,
    /// Lowest address of a sandbox's memory: firmware has what lies below.
    pub lowest: u64,
    /// End of the memory that the boot code maps. It clears channels, so they lie below.
    pub boot_sees: u64,
    /// Highest identity of a core that monitors know.
    pub last_core: u32,
    /// Name of a core's identity in messages.
    pub core: &'static str,
    /// Ports that monitors answer in every sandbox, and what they are.
    pub answered: &'static [(Ports, &'static str)],
    /// Places in a guest's physical address space.
    pub guest: GuestMap,
    /// Interrupts of doorbells.
    pub doorbells: Doorbells,
}

/// Places in the physical address space of each guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestMap {
    /// RAM: the first window is filled before the second one.
    pub ram: [Span; 2],
    /// Information page.
    pub info: u64,
    /// Progress words.
    pub progress: u64,
    /// Words that show its roles.
    pub roles: u64,
    /// Its snapshots.
    pub snapshots: u64,
    /// Reports of observed sandboxes.
    pub reports: u64,
    /// Distance of two reports.
    pub report_stride: u64,
    /// Configuration space of functions.
    pub configuration: u64,
    /// Registers of a Linux's ends of channels.
    pub functions: u64,
    /// Channels.
    pub channels: Span,
    /// Distance of two roles' memory, from the beginning of the channels on: one table of entries maps it.
    pub role_stride: u64,
    /// Links: channels made at run time.
    pub links: Span,
    /// Distance of two links: one table of entries maps it.
    pub link_stride: u64,
}

impl GuestMap {
    /// Splits guest RAM into at most two pieces, one for each window.
    #[must_use]
    pub fn pieces(&self, memory: u64) -> Vec<Span> {
        let [first, second] = self.ram;
        let low = memory.min(first.len);
        let mut pieces = vec![Span { len: low, ..first }];
        if memory > low {
            pieces.push(Span { len: memory - low, ..second });
        }
        pieces
    }
}

/// Interrupts of doorbells, as an architecture numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbells {
    /// Interrupt of a receiver's first doorbell.
    pub first: u32,
    /// Distance of the next one's.
    pub step: i32,
    /// A sender rings its first doorbell by this number, and the next one by the number above: a port of x86.
    pub ring: u16,
}

impl Facts {
    /// Bytes of a structure of the ABI that has whole pages. A page of its is a page of the architecture's.
    #[must_use]
    pub const fn paged(&self, bytes: u64) -> u64 {
        bytes.div_ceil(PAGE) * self.page
    }

    /// Finds a function's configuration space in all that begins at an address.
    #[must_use]
    pub const fn configuration(&self, ecam: u64, function: Bdf) -> Span {
        Span { start: ecam + function.0 as u64 * self.function, len: self.function }
    }
}

impl Arch {
    /// Returns its facts.
    #[must_use]
    pub const fn facts(self) -> &'static Facts {
        match self {
            Self::Svm => &x86::SVM,
            Self::Vmx => &x86::VMX,
            Self::Other(facts) => facts,
        }
    }
}
