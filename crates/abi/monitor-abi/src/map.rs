//! Where things lie in a monitor's address space. The host lays it out;
//! `bulkhead_layout::map` has the rest, `docs/memory-layout.md` draws it.

use crate::PAGE;

/// [`crate::monitor::Config`], its tables and the launch records, read-only.
pub const CONFIG_VA: u64 = 0xFFFF_FFFF_8010_0000;
/// A monitor's table of vectors, read-only.
pub const VECTORS_VA: u64 = 0xFFFF_FFFF_8020_0000;
/// [`crate::report::Report`] of this sandbox, without its cores' parts.
pub const REPORT_VA: u64 = 0xFFFF_FFFF_8030_0000;
/// Mailbox pages of all monitors by sandbox index: the own one writable.
pub const MAILBOX_VA: u64 = 0xFFFF_FFFF_8040_0000;
/// Page of the own guest's progress words ([`crate::watch::Progress`]), read-only. Only with a watchdog that looks at
/// them.
pub const PROGRESS_VA: u64 = 0xFFFF_FFFF_8038_0000;
/// Page that shows the own guest its roles, where it can have some.
pub const ROLES_VA: u64 = 0xFFFF_FFFF_8039_0000;
/// Page of a debugger ([`crate::debug`]), where the manifest lets one in.
pub const DEBUG_VA: u64 = 0xFFFF_FFFF_803A_0000;
/// Guest-physical base of the PCI configuration space (ECAM) that a sandbox sees.
pub const ECAM_GPA: u64 = 0xC000_0000;
/// Its size: 256 buses.
pub const ECAM_SIZE: u64 = 256 << 20;
/// Guest RAM: `GUEST_VA + gpa`. From channels it has only the words that doorbells need ([`crate::bell`]).
pub const GUEST_VA: u64 = 0xFFFF_9000_0000_0000;
/// Device registers: `MMIO_VA + physical address`, this sandbox's pages only.
pub const MMIO_VA: u64 = 0xFFFF_B000_0000_0000;
/// Words in which the monitor keeps what a guest wrote to registers that it
/// does not reach ([`crate::pci`]).
pub const SHADOW_VA: u64 = 0xFFFF_FFFF_8060_0000;
/// The lock of the machine's interrupt lines, shared by all monitors with interrupt lines; a
/// page on: what the own guest has written. A sandbox without lines has neither.
pub const LINES_VA: u64 = 0xFFFF_FFFF_8070_0000;
/// Commands to the IOMMU, in a monitor that has them.
pub const COMMANDS_VA: u64 = LINES_VA + 2 * PAGE;
/// First core's block of [`CORE_STRIDE`] bytes; unmapped pages around the
/// stack catch an overflow.
pub const CORES_VA: u64 = 0xFFFF_FFFF_8050_0000;
/// Distance of two cores' blocks.
pub const CORE_STRIDE: u64 = 0x1_0000;
/// Snapshots of the own guest ([`crate::snapshot`]), where the manifest has room for them.
pub const SNAPSHOTS_VA: u64 = 0xFFFF_FFFF_8080_0000;
/// In a core's block: stack, with the core's own state at its base.
pub const CORE_STACK: u64 = 0x2000;
/// Size of stack and state; also their alignment, so that a doorbell's handler finds
/// the state from its stack pointer.
pub const CORE_STACK_SIZE: u64 = 2 * PAGE;
/// In a core's block: its control block.
pub const CORE_CONTROL: u64 = 0x8000;
/// In a core's block: a page of the processor's own, where the architecture maps one.
pub const CORE_HOST: u64 = 0x9000;
/// In a core's block: its [`crate::report::CoreReport`].
pub const CORE_REPORT: u64 = 0xA000;
