//! A guest's registers in the page of a debugger ([`bulkhead_monitor_abi::debug`]).

/// The instruction that stops the guest: INT1, which no program has by chance (APM volume 3, INT1).
pub const BREAKPOINT: u8 = 0xF1;

/// Registers: the general ones by their numbers in encodings, then these.
pub const RIP: usize = 16;
/// See [`RIP`].
pub const RFLAGS: usize = 17;
/// Selectors: CS, SS, DS, ES, FS, GS.
pub const SELECTORS: usize = 18;
/// See [`RIP`].
pub const FS_BASE: usize = 24;
/// See [`RIP`].
pub const GS_BASE: usize = 25;
/// See [`RIP`].
pub const CR0: usize = 26;
/// See [`RIP`].
pub const CR2: usize = 27;
/// See [`RIP`].
pub const CR3: usize = 28;
/// See [`RIP`].
pub const CR4: usize = 29;
/// See [`RIP`].
pub const EFER: usize = 30;
/// Flags that a debugger changes: those of arithmetic, TF, IF, DF, IOPL, NT, AC, ID.
pub const FLAGS: u64 = 0x24_7FD5;

const _: () = assert!(EFER < bulkhead_monitor_abi::debug::COUNT);
