//! Where things lie in the two address spaces that the host lays out: a guest's
//! physical one and a monitor's virtual one. `docs/memory-layout.md` draws both.

pub use bulkhead_monitor_abi::map::*;

/// Physical address at which the boot loader puts the image. Clear of what
/// SeaBIOS, GRUB and OVMF (tables at 8 to 9 MiB) keep below 16 MiB.
pub const IMAGE_PA: u64 = 0x100_0000;
/// The boot code's report: between the multiboot headers and its text, so that it
/// needs nothing of the image to find it.
pub const BOOT_REPORT_PA: u64 = IMAGE_PA + 0x110;

/// Guest RAM below 4 GiB ends here at the latest; what is left starts at [`GUEST_HIGH`].
pub const GUEST_LOW_END: u64 = 0xC000_0000;
/// Start of guest RAM above 4 GiB.
pub const GUEST_HIGH: u64 = 0x1_0000_0000;
/// Guest-physical page of [`crate::info::Info`], read-only.
pub const INFO_GPA: u64 = 0xD000_0000;
/// Guest-physical page of [`bulkhead_monitor_abi::watch::Progress`], which the guest writes.
pub const PROGRESS_GPA: u64 = INFO_GPA + 0x1000;
/// Guest-physical page that shows the epoch of each role that the guest has ([`bulkhead_monitor_abi::role`]), or 0: a
/// word for each role of the machine, read-only.
pub const ROLES_GPA: u64 = INFO_GPA + 0x2000;
/// Guest-physical base of a guest's snapshots ([`bulkhead_monitor_abi::snapshot`]), read-only.
pub const SNAPSHOTS_GPA: u64 = INFO_GPA + 0x10_0000;
/// Guest-physical base of the registers of a Linux's ends of channels, two pages for each in the manifest's
/// order ([ivshmem](https://github.com/siemens/jailhouse/blob/master/Documentation/ivshmem-v2-specification.md)).
pub const FUNCTIONS_GPA: u64 = 0xD080_0000;
/// Guest-physical base of the reports that the manifest lets a sandbox observe,
/// read-only, [`REPORT_STRIDE`] bytes for each sandbox by its index.
pub const REPORTS_GPA: u64 = 0xD100_0000;
/// Distance of two reports, in guest-physical and monitor-virtual addresses.
pub const REPORT_STRIDE: u64 = 0x4_0000;
/// Guest-physical base of the channels, in the manifest's order. One with a Linux's end has a page with
/// the peers' states before it, and begins where a base address register can.
pub const CHANNELS_GPA: u64 = 0xD200_0000;
/// End of the channels' window.
pub const CHANNELS_END: u64 = LINKS_GPA;
/// Guest-physical base of memory for channels that are made at run time, [`LINK_STRIDE`] bytes for each link: what
/// one page of table entries maps.
pub const LINKS_GPA: u64 = 0xDC00_0000;
/// End of the links' window, and of all that guests have below 4 GiB and devices.
pub const LINKS_END: u64 = LINKS_GPA + bulkhead_monitor_abi::link::MAX_LINKS as u64 * LINK_STRIDE;
/// Distance of two links, and most bytes of one.
pub const LINK_STRIDE: u64 = 0x20_0000;
/// Monitor-virtual pages of the own guest's table entries for links, by number.
pub const LINK_TABLES_VA: u64 = 0xFFFF_FFFF_80A0_0000;

/// Distance of two roles' memory in the channels' window, and most bytes of one: a page of table entries maps it.
pub const ROLE_STRIDE: u64 = LINK_STRIDE;
/// Monitor-virtual pages of the own guest's table entries for roles, by number.
pub const ROLE_TABLES_VA: u64 = 0xFFFF_FFFF_80B0_0000;

/// Monitor text, the lowest address that its linker script uses.
pub const TEXT_VA: u64 = 0xFFFF_FFFF_8000_0000;
/// Pages of channels' ends that a Linux sees as PCI functions, [`FUNCTION_STRIDE`] bytes for each end. One page each
/// has its configuration, its registers, and the peers' states; the last one is shared with the peers' monitors.
pub const FUNCTIONS_VA: u64 = 0xFFFF_FFFF_8090_0000;
/// Distance of two ends' pages.
pub const FUNCTION_STRIDE: u64 = 0x4000;
/// Pristine guest: `PRISTINE_VA + offset in the image`, this sandbox's pages only.
pub const PRISTINE_VA: u64 = 0xFFFF_A000_0000_0000;
