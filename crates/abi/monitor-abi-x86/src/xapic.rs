//! Mediation of the local APIC in xAPIC mode: its registers are in a page (APM 16.3). A Linux that runs already may use
//! this mode. It reads the page without an exit, and each write is decided on here.

use crate::icr::{self, BROADCAST, LOGICAL};
use crate::msr::{X2APIC_ICR, X2APIC_LVT};

/// Physical address of the page.
pub const PAGE: u64 = 0xFEE0_0000;
/// Distance of two registers.
const STRIDE: u64 = 16;

/// Task priority.
pub const TPR: u64 = 0x80;
/// End of interrupt.
pub const EOI: u64 = 0xB0;
/// Logical destination: the names of this core, in bits 31:24.
pub const LDR: u64 = 0xD0;
/// Destination format.
pub const DFR: u64 = 0xE0;
/// Spurious vector.
pub const SVR: u64 = 0xF0;
/// Error status.
pub const ESR: u64 = 0x280;
/// Interrupt command, low half: a write of it sends.
pub const ICR: u64 = 0x300;
/// Interrupt command, high half: the destination, in bits 31:24.
pub const ICR_HIGH: u64 = 0x310;
/// First entry of the local vector table (timer).
const LVT: u64 = 0x320;
/// Last one (error).
const LVT_LAST: u64 = 0x370;
/// Initial count of the timer.
pub const TMICT: u64 = 0x380;
/// Divide configuration of the timer.
pub const TDCR: u64 = 0x3E0;

/// The flat format of logical destinations, which is that of a reset: a bit for each of eight cores.
pub const FLAT: u32 = u32::MAX;
/// In [`ICR`]: a message has not been accepted yet. Read-only.
pub const PENDING: u32 = 1 << 12;
/// Number of a destination that is none of a core: in this mode all cores take it.
pub const ALL: u32 = 0xFF;

/// Returns the offset of the register that has this number in x2APIC mode.
#[inline(always)]
#[must_use]
pub const fn offset(register: u32) -> u64 {
    (register & 0xFF) as u64 * STRIDE
}

/// Treatment of a write to the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Store this.
    Store(u32),
    /// Store this entry of the local vector table.
    Local(u32),
    /// Let these be the core's names, and store them.
    Names(u8),
    /// Send what [`command`] makes of it.
    Send,
    /// Not for a guest: an ID would take another core's interrupts, another format would change the names' meaning.
    Denied,
}

/// Decides on a write of 32 bits.
#[must_use]
pub const fn decide(offset: u64, value: u32, has_deadline: bool) -> Write {
    match offset {
        TPR => Write::Store(value & 0xFF),
        EOI | ESR => Write::Store(0),
        LDR => Write::Names((value >> 24) as u8),
        // Bits 27:0 are ones whatever is written (APM 16.6.1).
        DFR if value >> 28 == FLAT >> 28 => Write::Store(FLAT),
        SVR => Write::Store(value & 0x3FF),
        ICR => Write::Send,
        ICR_HIGH => Write::Store(value & 0xFF << 24),
        LVT..=LVT_LAST if offset % STRIDE == 0 => {
            let register = X2APIC_LVT + ((offset - LVT) / STRIDE) as u32;
            Write::Local(icr::lvt(register, value as u64, has_deadline) as u32)
        }
        TMICT => Write::Store(value),
        TDCR => Write::Store(value & 0b1011),
        _ => Write::Denied,
    }
}

/// Message that a guest asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// By the register of x2APIC mode it would be this value.
    One(u64),
    /// To each core with one of these names. The value is that to one core, without its ID.
    Named(u8, u32),
}

/// Reads both halves of an interrupt command.
#[must_use]
pub fn command(low: u32, high: u32) -> Command {
    const VECTOR: u32 = 0xFF;
    const ASSERT: u32 = 1 << 14;
    const LOGICAL_NMI: u32 = LOGICAL | 4 << 8;
    let (low, destination) = (low & !PENDING, high >> 24);
    let to = if destination == ALL { BROADCAST } else { destination };
    match low & !(VECTOR | ASSERT) {
        // The hardware never gets names: a core of another sandbox could have them in x2APIC mode.
        LOGICAL | LOGICAL_NMI if to != BROADCAST => {
            Command::Named(destination as u8, low & !LOGICAL)
        }
        LOGICAL | LOGICAL_NMI => Command::One(u64::from(to) << 32 | u64::from(low & !LOGICAL)),
        // No logical one of these is passed on: each is of a kind that no guest may send so.
        _ => Command::One(u64::from(to) << 32 | u64::from(low)),
    }
}

/// Returns both halves of the command, high one first, that sends a message of x2APIC mode to one core. `None`: no core
/// in this mode has such an ID.
#[must_use]
pub const fn halves(message: u64) -> Option<[u32; 2]> {
    let id = (message >> 32) as u32;
    if id < ALL { Some([id << 24, message as u32]) } else { None }
}

const _: () = assert!(offset(X2APIC_ICR) == ICR && offset(X2APIC_LVT) == LVT);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icr::{Ids, Ipi, To, contains};
    use bulkhead_monitor_abi::report::Condition::{
        IpiDestination, IpiLevel, IpiLogical, IpiMode, IpiReserved, IpiShorthand,
    };

    const OWN: Ids = [1 << 0 | 1 << 2, 0, 0, 1 << 63];

    #[test]
    fn registers_of_the_core_alone_are_stored_without_reserved_bits() {
        for (offset, stored) in [
            (TPR, 0xFF),
            (EOI, 0),
            (ESR, 0),
            (SVR, 0x3FF),
            (ICR_HIGH, 0xFF00_0000),
            (TMICT, u32::MAX),
            (TDCR, 0xB),
            (DFR, FLAT),
        ] {
            assert_eq!(decide(offset, u32::MAX, true), Write::Store(stored), "{offset:#x}");
        }
        assert_eq!(decide(LDR, 0x0400_1234, true), Write::Names(4));
        assert_eq!(decide(ICR, 0, true), Write::Send);
    }

    #[test]
    fn all_other_registers_are_denied() {
        // ID, version, arbitration and processor priority, remote read, the read-only ones, AMD's further entries.
        let known = [TPR, EOI, LDR, SVR, ESR, ICR, ICR_HIGH, TMICT, TDCR];
        for offset in 0..0x1000 {
            let entry = (0x320..=0x370).contains(&offset) && offset % 16 == 0;
            let denied = decide(offset, 0, true) == Write::Denied;
            assert_eq!(denied, !known.contains(&offset) && !entry, "{offset:#x}");
        }
        // Cluster format.
        assert_eq!(decide(DFR, 0x0FFF_FFFF, true), Write::Denied);
    }

    #[test]
    fn entries_of_the_vector_table_follow_the_rule_of_the_other_mode() {
        assert_eq!(decide(0x320, 0x2_00EC, false), Write::Local(0x2_00EC));
        assert_eq!(decide(0x320, 0x4_00EC, false), Write::Local(0xEC));
        assert_eq!(decide(0x320, 0x4_00EC, true), Write::Local(0x4_00EC));
        // NMI of the counters, ExtINT and NMI of the two pins, SMI of the error: all masked.
        for (offset, value) in [(0x340, 0x400), (0x350, 0x700), (0x360, 0x400), (0x370, 0x2FE)] {
            assert_eq!(decide(offset, value, true), Write::Local(value & 0xFF | 1 << 16));
        }
    }

    #[test]
    fn a_command_to_an_id_is_decided_on_as_in_the_other_mode() {
        let ipi = |low: u32, high: u32| match command(low, high) {
            Command::One(icr) => icr::decide(&OWN, icr),
            named => panic!("{named:?}"),
        };
        assert_eq!(ipi(0x40, 2 << 24), Ipi::Pass);
        assert_eq!(ipi(0x40, 1 << 24), Ipi::Denied(IpiDestination));
        // To all: each own core, one by one. The own core 255 cannot be meant.
        assert_eq!(ipi(0x40, 0xFF << 24), Ipi::Fixed(To::All));
        assert_eq!(ipi(0x840, 0xFF << 24), Ipi::Fixed(To::All));
        assert_eq!(ipi(0xC00, 0xFF << 24), Ipi::Denied(IpiDestination));
        assert_eq!(ipi(1 << 18 | 0x40, 0), Ipi::Pass);
        assert_eq!(ipi(2 << 18 | 0x840, 0), Ipi::Fixed(To::All));
        assert_eq!(ipi(3 << 18 | 0x840, 0), Ipi::Fixed(To::Others));
        assert_eq!(ipi(3 << 18 | 0x400, 0), Ipi::Nmi(To::Others));
        assert_eq!(ipi(2 << 18 | 0x4500, 0), Ipi::Denied(IpiShorthand));
        assert_eq!(ipi(0x4500, 2 << 24), Ipi::Init(To::One(2)));
        assert_eq!(ipi(0x4699, 1 << 24), Ipi::Denied(IpiDestination));
        // The read-only bit does not count.
        assert_eq!(ipi(PENDING | 0x40, 2 << 24), Ipi::Pass);
        assert_eq!(ipi(1 << 13 | 0x40, 2 << 24), Ipi::Denied(IpiReserved));
    }

    #[test]
    fn names_never_reach_the_hardware() {
        assert_eq!(command(0x840, 6 << 24), Command::Named(6, 0x40));
        assert_eq!(command(0x4840, 6 << 24), Command::Named(6, 0x4040));
        assert_eq!(command(0xC02, 6 << 24), Command::Named(6, 0x402));
        let denied = |low: u32| match command(low, 4 << 24) {
            Command::One(icr) => icr::decide(&OWN, icr),
            named => panic!("{named:?}"),
        };
        assert_eq!(denied(0x940), Ipi::Denied(IpiMode));
        assert_eq!(denied(0x4D00), Ipi::Denied(IpiLogical));
        assert_eq!(denied(0x4E99), Ipi::Denied(IpiLogical));
        assert_eq!(denied(0x8840), Ipi::Denied(IpiLevel));
        assert_eq!(denied(1 << 20 | 0x840), Ipi::Denied(IpiReserved));
    }

    #[test]
    fn whatever_passes_goes_to_an_own_core() {
        let mut x = 1u64;
        for _ in 0..1_000_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (low, high) = ((x >> 8) as u32 & 0xF_FFFF, (x >> 32) as u32);
            match command(low, high) {
                Command::Named(_, low) => assert_eq!(low & !(0x4000 | 0x400 | 0xFF), 0),
                Command::One(icr) => {
                    let itself = low >> 18 & 3 == 1;
                    if icr::decide(&OWN, icr) == Ipi::Pass && !itself {
                        assert_eq!(icr & u64::from(LOGICAL), 0);
                        assert!(contains(&OWN, (icr >> 32) as u32) && high >> 24 != ALL);
                        assert_eq!(halves(icr).map(|[high, _]| high), Some(high & 0xFF00_0000));
                    }
                }
            }
        }
        assert_eq!(halves(0xFF << 32), None);
        assert_eq!(halves(u64::MAX), None);
    }
}
