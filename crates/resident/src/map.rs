//! Where things lie in a monitor's address space. The host lays it out;
//! `bulkhead_layout::map` has the rest, `docs/memory-layout.md` draws it.

use crate::PAGE;

/// [`crate::monitor::Config`], its tables and the launch records, read-only.
pub const CONFIG_VA: u64 = 0xFFFF_FFFF_8010_0000;
/// [`crate::report::Report`] of this sandbox, without its cores' parts.
pub const REPORT_VA: u64 = 0xFFFF_FFFF_8030_0000;
/// Mailbox pages of all monitors by sandbox index: the own one writable.
pub const MAILBOX_VA: u64 = 0xFFFF_FFFF_8040_0000;
/// First core's block of [`CORE_STRIDE`] bytes; unmapped pages around the
/// stack catch an overflow.
pub const CORES_VA: u64 = 0xFFFF_FFFF_8050_0000;
/// Distance of two cores' blocks.
pub const CORE_STRIDE: u64 = 0x1_0000;
/// In a core's block: stack, with the core's own state at its base.
pub const CORE_STACK: u64 = 0x2000;
/// Size of stack and state; also their alignment, so that an NMI handler finds
/// the state from its stack pointer.
pub const CORE_STACK_SIZE: u64 = 2 * PAGE;
/// In a core's block: the VMCB.
pub const CORE_VMCB: u64 = 0x8000;
/// In a core's block: its [`crate::report::CoreReport`].
pub const CORE_REPORT: u64 = 0xA000;
