//! Words between a Linux that runs and the code that starts the image under it. `linux/enable` has the C side.

use crate::image::{HEADER_WORD, Range};

/// Offset in the image of a word with the address of that code.
pub const CODE_WORD: u64 = HEADER_WORD + 8;

/// Cores that it can have, at most.
pub const CORES: usize = 64;
/// PCI functions that it can have, at most.
pub const FUNCTIONS: usize = 256;
/// Bytes of a refusal's text.
pub const SAYS: usize = 256;

/// Words between them, in memory of that Linux.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Late {
    /// Ticks of the time stamp counter in a second.
    pub hz: u64,
    /// Ticks of a core's timer in a second, divided by 1.
    pub timer_hz: u64,
    /// Memory of zeros for all time, a device table with an entry for each bus: an IOMMU that is off may look there.
    pub zeros: Range,
    /// x2APIC IDs of the machine's cores.
    pub cores: [u32; CORES],
    /// Logical destinations of these cores (APM 16.6.1), in xAPIC mode.
    pub names: [u8; CORES],
    /// PCI functions, as requester IDs.
    pub functions: [u16; FUNCTIONS],
    /// How many there are.
    pub function_count: u32,
    /// IOAPICs of the machine, by its firmware tables.
    pub ioapics: u32,
    /// How many there are.
    pub count: u32,
    /// Bytes of `says`.
    pub len: u32,
    /// x2APIC ID of a core that is not to be started, for a test; `u32::MAX`: none.
    pub mute: u32,
    /// IOMMUs of AMD's, likewise.
    pub iommus: u32,
    /// Address of the boot parameters of that Linux, a page; 0: it does not tell them.
    pub boot_params: u64,
    /// Why it cannot be, as text.
    pub says: [u8; SAYS],
}

/// First argument of the code: the image is looked at, and the cores of all other sandboxes come to the start-up page.
/// Then comes the address of a [`Late`]. The result is 0, or the number of the refusal.
pub const PREPARE: u64 = 0;
/// First argument of the code: this core enters its monitor. Then come its number in its sandbox, and the stack pointer
/// and the instruction with which the Linux goes on. It has returned from there if there is no result. The other
/// sandboxes begin when the last core of the Linux comes.
pub const ENTER: u64 = 1;
/// First argument of the code: all cores of the Linux have stopped, and its devices are confined from here on. The
/// other arguments and the result are those of [`PREPARE`]. If it is refused, devices are as before.
pub const CONFINE: u64 = 2;
/// First argument of the code: all cores of the Linux have left their monitors and stopped, and devices are as before
/// [`CONFINE`] from here on. The address of a [`Late`] comes next.
pub const RESTORE: u64 = 3;

const _: () = assert!(size_of::<Late>() == 40 + 5 * CORES + 2 * FUNCTIONS + 24 + SAYS);

/// Guest-physical places of what a Linux begins anew with. All of it lies in the first MiB, which a kernel leaves
/// alone, and clear of [`super::TRAMPOLINE_PA`]. A bare guest's descriptor table and page tables lie below.
pub mod restart {
    /// The zero page.
    pub const ZERO_PAGE_GPA: u64 = 0x9000;
    /// The command line.
    pub const CMDLINE_GPA: u64 = 0xA000;
    /// A copy of ACPI's root tables and of the table of cores.
    pub const ACPI_GPA: u64 = 0xC000;
    /// End of it.
    pub const ACPI_END: u64 = 0x1_0000;
}

/// Offsets in a zero page (Linux, Documentation/arch/x86/zero-page.rst).
pub mod zero {
    use crate::image::Range;

    /// Bytes of what the screen is, at the page's start.
    pub const SCREEN: usize = 0x40;
    /// Physical address of the RSDP.
    pub const ACPI_RSDP: usize = 0x70;
    /// Number of entries of the memory map, a byte.
    pub const E820_ENTRIES: usize = 0x1E8;
    /// Where the kernel wants to lie, eight bytes of its header.
    pub const PREF_ADDRESS: usize = 0x258;
    /// Bytes of memory that it uses from there on while it starts, four bytes of its header.
    pub const INIT_SIZE: usize = 0x260;
    /// The memory map: start, length, and a type of four bytes.
    pub const E820_TABLE: usize = 0x2D0;
    /// Bytes of an entry.
    pub const E820_ENTRY: usize = 20;
    /// Most entries.
    pub const E820_MOST: usize = 128;
    /// Type of memory.
    pub const E820_RAM: u32 = 1;
    /// Type of memory that nobody uses.
    pub const E820_RESERVED: u32 = 2;

    /// Returns the memory that a kernel uses while it starts, by its header: it unpacks itself there.
    #[must_use]
    pub fn room(page: &[u8]) -> Range {
        let int = |at: usize, len: usize| {
            let bytes = page.get(at..at + len).unwrap_or(&[]);
            bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        Range { start: int(PREF_ADDRESS, 8), len: int(INIT_SIZE, 4) }
    }
}
