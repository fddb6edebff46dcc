//! The parts that only x86-64 has: of the image's header, and the place of its start-up code.

pub mod late;

use crate::image::{self, Range};
use core::ops::{Deref, DerefMut};
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// [`image::Header::monitors`]: monitors for AMD's SVM.
pub const MONITORS_SVM: u64 = 1;
/// [`image::Header::monitors`]: monitors for Intel's VT-x.
pub const MONITORS_VMX: u64 = 2;

/// Physical page of the cores' start-up code: below 1 MiB, as a SIPI needs it.
pub const TRAMPOLINE_PA: u64 = 0x8000;

/// Header of an image: the portable part, and what only x86-64 has.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Header {
    /// Part that all architectures have.
    pub portable: image::Header,
    /// I/O port of a 16550 for the boot code's messages; 0 for none.
    pub console: u16,
    /// I/O port to which the boot code copies its messages bytewise (QEMU's and
    /// Bochs' debug console); 0 for none.
    pub debug_port: u16,
    /// Padding.
    pub reserved: u32,
    /// The IOMMU; all zero if there is none.
    pub iommu: Iommu,
}

impl Header {
    /// Bytes of x86-64's own part: [`image::Header::own`].
    pub const OWN: u32 = (size_of::<Self>() - size_of::<image::Header>()) as u32;
}

impl Deref for Header {
    type Target = image::Header;

    fn deref(&self) -> &image::Header {
        &self.portable
    }
}

impl DerefMut for Header {
    fn deref_mut(&mut self) -> &mut image::Header {
        &mut self.portable
    }
}

/// Settings that the boot code gives an AMD-Vi IOMMU (AMD IOMMU specification, 3.4). Another kind has
/// [`ConfigOp`](crate::image::ConfigOp)s, and `device_table` is all that its unit reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Iommu {
    /// Physical address of its registers, below 4 GiB; 0: none.
    pub base: u64,
    /// Its device table, in the sealed part.
    pub device_table: Range,
    /// Its command buffer, in the sealed part: a page, of which the first entries
    /// are used once.
    pub commands: Range,
    /// Its event log, in the sealed part.
    pub events: Range,
    /// How the boot code finds out whether it sees the IOAPIC's messages.
    pub lines: LineTest,
}

/// A machine does not say whether its IOMMU sees the IOAPIC's messages, and emulators differ. So the boot code fires
/// the 8254's line once, with an entry that means one vector to the IOMMU and another one without it. Then it settles
/// what becomes of such messages (docs/decisions/0029-lines-tested-at-boot.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct LineTest {
    /// Physical address of the device table entry of the IOAPIC's requester ID, which names `table`; 0: no test.
    pub entry: u64,
    /// Remapping table of the IOAPIC, a page in the sealed part.
    pub table: u64,
    /// Registers of the IOAPIC, below 4 GiB.
    pub ioapic: u64,
    /// Third word of the device table entry if the IOMMU sees the messages.
    pub seen: u64,
    /// Third word of it if it does not: who sends under this requester ID is not the IOAPIC.
    pub unseen: u64,
    /// The 8254's line, below 32.
    pub line: u32,
    /// A set of the constants below.
    pub flags: u32,
}

impl LineTest {
    /// Monitors put slots of `table` into the IOAPIC if the IOMMU sees its messages.
    pub const SLOTS: u32 = 1;
    /// The system is refused if the IOMMU sees the IOAPIC's messages.
    pub const REFUSED: u32 = 2;
    /// The machine description says that it sees them.
    pub const SAID_SEEN: u32 = 4;
    /// The machine description says that it does not.
    pub const SAID_UNSEEN: u32 = 8;
}

const _: () = assert!(core::mem::offset_of!(Header, portable) == 0);
const _: () = assert!(Header::OWN == 112);
