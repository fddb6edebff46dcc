//! Mediation of the interrupt command register and of the local vector table (APM 16.5, 16.4). It decides which
//! interrupts a guest may send, and to which cores (docs/decisions/0013-init-sipi.md).

use crate::msr::X2APIC_LVT as TIMER;
pub use bulkhead_monitor_abi::cores::{Ids, To};
use bulkhead_monitor_abi::report::Condition;

/// Treatment of an ICR write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipi {
    /// Write it as it is: it stays inside.
    Pass,
    /// A fixed interrupt. The shorthand itself would reach the whole machine.
    Fixed(To),
    /// An NMI.
    Nmi(To),
    /// INIT.
    Init(To),
    /// Start-up with this vector.
    Startup(To, u8),
    /// Has no effect on an x2APIC.
    Ignore,
    /// Leaves the sandbox, or is of a kind that no guest may send: which of these, a record says.
    Denied(Condition),
}

pub(crate) const LOGICAL: u32 = 1 << 11;
const LEVEL_ASSERT: u32 = 1 << 14;
const TRIGGER: u32 = 1 << 15;
/// Writing one of these faults; the monitor must not do it for a guest (APM 16.13).
const RESERVED: u32 = 0b11 << 12 | 0b11 << 16 | 0xFFF0_0000;
/// Destination of a broadcast in x2APIC mode.
pub const BROADCAST: u32 = u32::MAX;

/// Tells if an ID is in the set.
#[inline(always)]
#[must_use]
pub fn contains(own: &Ids, id: u32) -> bool {
    own.get(id as usize / 64).is_some_and(|w| w >> (id % 64) & 1 != 0)
}

/// Returns the number of an entry for a vector on a core. The table has 256 entries for each own core, by ascending
/// IDs.
#[must_use]
pub fn remapped(own: &Ids, core: u32, vector: u8) -> u32 {
    let below = |(n, word): (u32, &u64)| {
        let ids = core.saturating_sub(64 * n).min(64);
        let mask = if ids == 64 { u64::MAX } else { (1 << ids) - 1 };
        (word & mask).count_ones()
    };
    { (0..).zip(own) }.map(below).sum::<u32>() * 256 + u32::from(vector)
}

/// Tells if all cores of a logical destination (cluster and a bit for each of its 16 IDs, APM 16.14) are in the set.
fn contains_logical(own: &Ids, destination: u32) -> bool {
    let (cluster, cores) = (destination >> 16, u64::from(destination & 0xFFFF));
    own.get(cluster as usize / 4).is_some_and(|w| cores & !(w >> (cluster % 4 * 16)) == 0)
}

/// Tells if this is the ordinary case: a fixed interrupt to one own core by physical ID.
#[inline(always)]
#[must_use]
pub fn is_ordinary(own: &Ids, icr: u64) -> bool {
    icr as u32 & !(LEVEL_ASSERT | 0xFF) == 0 && contains(own, (icr >> 32) as u32)
}

/// Checks a value that another monitor has written. It must be a fixed interrupt to one core of these, with a vector
/// that a local APIC accepts. An error by another vector would be the sender's (APM 16.4.6).
#[must_use]
pub fn is_aim(cores: &Ids, icr: u64) -> bool {
    icr as u32 & !0xFF == 0 && icr as u8 >= 16 && contains(cores, (icr >> 32) as u32)
}

/// Decides on any ICR value.
#[must_use]
pub fn decide(own: &Ids, icr: u64) -> Ipi {
    let (low, destination) = (icr as u32, (icr >> 32) as u32);
    let logical = low & LOGICAL != 0;
    let physical = !logical && contains(own, destination);
    let (mode, shorthand) = (low >> 8 & 0b111, low >> 18 & 0b11);
    match (mode, shorthand) {
        _ if low & RESERVED != 0 => Ipi::Denied(Condition::IpiReserved),
        // Its EOI would go to the IOAPIC, and there end another's interrupt.
        (0, _) if low & TRIGGER != 0 => Ipi::Denied(Condition::IpiLevel),
        (0, 0) if destination == BROADCAST => Ipi::Fixed(To::All),
        (0, 0) if physical || logical && contains_logical(own, destination) => Ipi::Pass,
        (0, 1) => Ipi::Pass,
        (0, 2) => Ipi::Fixed(To::All),
        (0, 3) => Ipi::Fixed(To::Others),
        (4, 0) if physical => Ipi::Nmi(To::One(destination)),
        (4, 3) => Ipi::Nmi(To::Others),
        (5, _) if low & LEVEL_ASSERT == 0 => Ipi::Ignore,
        (5, 0) if physical => Ipi::Init(To::One(destination)),
        (6, 0) if physical => Ipi::Startup(To::One(destination), low as u8),
        (4..=6, 1..) => Ipi::Denied(Condition::IpiShorthand),
        (4..=6, 0) if logical => Ipi::Denied(Condition::IpiLogical),
        (0 | 4..=6, _) => Ipi::Denied(Condition::IpiDestination),
        _ => Ipi::Denied(Condition::IpiMode),
    }
}

/// A masked LVT entry.
pub const MASKED: u64 = 1 << 16;
/// Local vector table: an NMI.
pub const NMI: u64 = 0b100 << 8;

/// Returns the value that an LVT write stores: vector, mask, and for the timer its mode.
/// Delivery modes other than fixed (SMI, NMI, INIT, ExtINT) are masked, because
/// the lines behind them are not the guest's. Reserved bits are dropped: the
/// monitor would fault on them.
#[must_use]
pub const fn lvt(register: u32, value: u64, has_deadline: bool) -> u64 {
    const LINT0: u32 = TIMER + 3;
    const LINT1: u32 = TIMER + 4;
    const PERIODIC: u64 = 1 << 17;
    const DEADLINE: u64 = 1 << 18;
    let fixed = value >> 8 & 0b111 == 0;
    let own = fixed && register != LINT0 && register != LINT1;
    let mask = if own { value & MASKED } else { MASKED };
    let mode = match value & (PERIODIC | DEADLINE) {
        PERIODIC if register == TIMER => PERIODIC,
        DEADLINE if register == TIMER && has_deadline => DEADLINE,
        _ => 0,
    };
    value & 0xFF | mask | mode
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_monitor_abi::report::Condition::{
        IpiDestination, IpiLevel, IpiLogical, IpiMode, IpiReserved, IpiShorthand,
    };

    const OWN: Ids = [1 << 2 | 1 << 3, 0, 0, 1 << 63];

    fn icr(destination: u32, low: u32) -> u64 {
        u64::from(destination) << 32 | u64::from(low)
    }

    #[test]
    fn entries_are_counted_by_core_and_vector() {
        let own: Ids = [1 << 2 | 1 << 63, 1, 0, 1 << 63];
        let entry = |core, vector| remapped(&own, core, vector);
        assert_eq!(
            [entry(2, 0x31), entry(63, 0x31), entry(64, 0), entry(255, 255)],
            [0x31, 0x131, 0x200, 0x3FF]
        );
        // A foreign core gets a number, too.
        assert_eq!([entry(3, 0), entry(1, 0), entry(256, 0)], [0x100, 0, 0x400]);
    }

    #[test]
    fn fixed_interrupts_stay_inside() {
        for id in 0..300 {
            let inside = [2, 3, 255].contains(&id);
            assert_eq!(is_ordinary(&OWN, icr(id, 0x40)), inside);
            assert_eq!(decide(&OWN, icr(id, 0x40)) == Ipi::Pass, inside, "{id}");
        }
        assert_eq!(decide(&OWN, icr(BROADCAST, 0x40)), Ipi::Fixed(To::All));
    }

    #[test]
    fn an_aim_is_a_fixed_interrupt_to_one_of_the_cores() {
        for (destination, low, right) in [
            (2, 0x41, true),
            (255, 0xFF, true),
            (2, 0x10, true),
            (2, 0x0F, false),
            (2, 0, false),
            (1, 0x41, false),
            (256, 0x41, false),
            (BROADCAST, 0x41, false),
            (2, 0x441, false),
            (2, 0x841, false),
            (2, LEVEL_ASSERT | 0x41, false),
            (2, 2 << 18 | 0x41, false),
        ] {
            assert_eq!(is_aim(&OWN, icr(destination, low)), right, "{destination} {low:#x}");
        }
    }

    #[test]
    fn logical_destinations_are_checked_core_by_core() {
        assert_eq!(decide(&OWN, icr(0b1100, 0x840)), Ipi::Pass);
        assert_eq!(decide(&OWN, icr(0b1101, 0x840)), Ipi::Denied(IpiDestination));
        assert_eq!(decide(&OWN, icr(15 << 16 | 1 << 15, 0x840)), Ipi::Pass);
        assert_eq!(decide(&OWN, icr(16 << 16, 0x840)), Ipi::Denied(IpiDestination));
    }

    #[test]
    fn shorthands_never_pass_to_the_machine() {
        assert_eq!(decide(&OWN, icr(0, 2 << 18 | 0x40)), Ipi::Fixed(To::All));
        assert_eq!(decide(&OWN, icr(0, 3 << 18 | 0x40)), Ipi::Fixed(To::Others));
        assert_eq!(decide(&OWN, icr(0, 1 << 18 | 0x40)), Ipi::Pass);
        let all = icr(0, 2 << 18 | 0x500 | LEVEL_ASSERT);
        assert_eq!(decide(&OWN, all), Ipi::Denied(IpiShorthand));
        assert_eq!(decide(&OWN, icr(0, 3 << 18 | 0x400)), Ipi::Nmi(To::Others));
    }

    #[test]
    fn only_others_leaves_the_sender_out() {
        for is_sender in [false, true] {
            assert!(To::All.includes(2, is_sender));
            assert_eq!(To::Others.includes(2, is_sender), !is_sender);
            assert!(To::One(2).includes(2, is_sender));
            assert!(!To::One(3).includes(2, is_sender));
        }
    }

    #[test]
    fn forbidden_kinds() {
        for mode in [1, 2, 3, 7] {
            assert_eq!(decide(&OWN, icr(2, mode << 8 | 0x40)), Ipi::Denied(IpiMode));
        }
        assert_eq!(decide(&OWN, icr(1, 0x400)), Ipi::Denied(IpiDestination));
        assert_eq!(decide(&OWN, icr(1, 0x40)), Ipi::Denied(IpiDestination));
        assert_eq!(decide(&OWN, icr(0b0100, 0xC00)), Ipi::Denied(IpiLogical));
        assert_eq!(decide(&OWN, icr(2, 1 << 18 | 0x400)), Ipi::Denied(IpiShorthand));
        assert_eq!(decide(&OWN, icr(1, 0x4500)), Ipi::Denied(IpiDestination));
        assert_eq!(decide(&OWN, icr(2, 0x4500)), Ipi::Init(To::One(2)));
        assert_eq!(decide(&OWN, icr(3, 0x4699)), Ipi::Startup(To::One(3), 0x99));
        assert_eq!(decide(&OWN, icr(1, 0x4699)), Ipi::Denied(IpiDestination));
    }

    #[test]
    fn a_fixed_interrupt_is_never_level_triggered() {
        for shorthand in 0..4 {
            let value = icr(2, shorthand << 18 | 0xC040);
            assert_eq!(decide(&OWN, value), Ipi::Denied(IpiLevel));
        }
        assert_eq!(decide(&OWN, icr(BROADCAST, TRIGGER | 0x40)), Ipi::Denied(IpiLevel));
        assert!(!is_ordinary(&OWN, icr(2, TRIGGER | 0x40)));
        // INIT level de-assert, which every kernel sends.
        assert_eq!(decide(&OWN, icr(2, 0x8500)), Ipi::Ignore);
    }

    #[test]
    fn whatever_passes_is_fixed_and_inside() {
        let mut x = 1u64;
        for _ in 0..1_000_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = icr((x >> 40) as u32 & 0x1F_FFFF, (x >> 8) as u32 & 0xF_FFFF);
            if decide(&OWN, value) == Ipi::Pass {
                assert_eq!(value >> 8 & 7, 0);
                assert!(value >> 18 & 3 <= 1);
            }
            if value & 0xFFF3_3000 != 0 {
                assert_eq!(decide(&OWN, value), Ipi::Denied(IpiReserved));
            }
            if is_ordinary(&OWN, value) {
                assert_eq!(decide(&OWN, value), Ipi::Pass);
            }
        }
    }

    #[test]
    fn lvt_entries_other_than_fixed_are_masked() {
        assert_eq!(lvt(TIMER, 0x2_00EC, false), 0x2_00EC);
        assert_eq!(lvt(TIMER, 0x4_00EC, true), 0x4_00EC);
        assert_eq!(lvt(TIMER, 0x4_00EC, false), 0xEC);
        assert_eq!(lvt(TIMER + 5, 0xFFFF_FFFF_FFFE_F0FE, true), 0xFE);
        for mode in 1..8 {
            for register in TIMER..TIMER + 6 {
                assert_ne!(lvt(register, mode << 8, true) & MASKED, 0);
            }
        }
    }
}
