//! I/O ports by which a guest asks its monitor. They need no instruction that only a kernel may execute, so that
//! firmware tables and a kernel's programs can name them.

/// Power port: a byte written there ends ([`POWER_OFF`]) or restarts ([`POWER_RESTART`]) the writing sandbox. A Linux
/// finds it in its FADT.
pub const POWER_PORT: u16 = 0x0600;
/// Value of the FADT's RESET_VALUE.
pub const POWER_RESTART: u8 = 0x01;
/// SLP_TYP 5 with SLP_EN (ACPI 6.5, 4.8.3.7), as Linux writes it for S5.
pub const POWER_OFF: u8 = 0x34;

/// First of the ports that are a sandbox's doorbells by their number: any write rings.
/// The information page says which channel's is which.
pub const BELL_PORT: u16 = 0x0640;

/// Port from which a 32-bit read makes a hypercall ([`bulkhead_monitor_abi::hypercall`]), for programs that a guest's
/// kernel gives it. Registers are as in other hypercalls, but for the one that has the port.
pub const CALL_PORT: u16 = 0x0680;
