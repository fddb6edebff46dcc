//! Rights of the real-time clock's owner at the two ports of the clock and of the CMOS memory (MC146818, ICH9 13.6). It
//! reads date, time and status. Nothing is written: a write would outlive the system, and the firmware believes the
//! memory.

/// Port of the index; the next one is the register's.
pub const INDEX_PORT: u32 = 0x70;
/// Bits of the index. Bit 7 of the port holds NMIs off.
pub const INDEX: u8 = 0x7F;
/// Address of register 0 in a record: it is named after the data port, and no device register of a guest lies there.
pub const ADDRESS: u64 = 0x7100;
/// Registers: that many.
pub const REGISTERS: u64 = INDEX as u64 + 1;

/// Last index of date, time and status.
const LAST: u8 = 0x0D;
/// Status A, of which bit 7 changes by itself: an update is in progress.
const STATUS_A: u8 = 0x0A;
/// Status C: a read takes interrupts back.
const STATUS_C: u8 = 0x0C;
/// Why the firmware was entered by a reset. A Linux writes it before it starts a core.
const SHUTDOWN: u8 = 0x0F;

/// Result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// It gives the register.
    Reads,
    /// The register is absent: reads give 0, writes go nowhere.
    Absent,
    /// It is denied, unless these bits of the register are as they are written. Then it changes nothing, as a driver
    /// does that looks whether its interrupts are off.
    Same(u8),
    /// It is denied.
    Denied,
}

/// Decides on an access to the register at an index: a read, or a write of a value.
#[must_use]
pub const fn says(at: u8, write: Option<u8>) -> Says {
    match (at & INDEX, write) {
        (SHUTDOWN, _) => Says::Absent,
        (0..=LAST, None) => Says::Reads,
        (STATUS_A, Some(_)) => Says::Same(0x7F),
        // A read to compare with would take an interrupt back.
        (STATUS_C, Some(_)) => Says::Denied,
        (0..=LAST, Some(_)) => Says::Same(0xFF),
        _ => Says::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_time_and_status_are_read_and_nothing_is_written() {
        for at in 0..=u8::MAX {
            let index = at & 0x7F;
            let read = match index {
                0..=0x0D => Says::Reads,
                0x0F => Says::Absent,
                _ => Says::Denied,
            };
            assert_eq!(says(at, None), read, "{at:#x}");
            for value in [0, 0x55, 0xFF] {
                let written = says(at, Some(value));
                let harmless = match index {
                    // The register says if the write changes something.
                    0x0A => written == Says::Same(0x7F),
                    0x0C => written == Says::Denied,
                    0..=0x0D => written == Says::Same(0xFF),
                    0x0F => written == Says::Absent,
                    _ => written == Says::Denied,
                };
                assert!(harmless, "{at:#x} {value:#x}: {written:?}");
            }
        }
    }
}
