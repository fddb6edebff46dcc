//! Timers that bring the ticks of watchdogs: comparators of the High Precision Event Timer (IA-PC HPET 1.0a). Each
//! sends one core an NMI at its own pace. After the launch nobody reaches its registers.

use bulkhead_layout::image::ConfigOp;
use bulkhead_plan::{Hpet, Plan, Tick};

/// Registers (2.3.3).
mod register {
    /// COUNTER_CLK_PERIOD, the upper half of the capabilities.
    pub const PERIOD: u16 = 0x04;
    /// General configuration.
    pub const CONFIGURATION: u16 = 0x10;
    /// Main counter, two halves.
    pub const COUNTER: u16 = 0xF0;
    /// Configuration of the first comparator.
    pub const TIMER: u16 = 0x100;
    /// Distance of two comparators.
    pub const STRIDE: u16 = 0x20;
    /// Value of a comparator.
    pub const VALUE: u16 = 0x08;
    /// Message of a comparator: data, then address (2.3.9.2.3).
    pub const MESSAGE: u16 = 0x10;
}

/// Configuration of a comparator (2.3.8).
mod bit {
    /// Tn_INT_ENB_CNF.
    pub const ENABLED: u32 = 1 << 2;
    /// Tn_TYPE_CNF.
    pub const PERIODIC: u32 = 1 << 3;
    /// Tn_PER_INT_CAP.
    pub const CAN_REPEAT: u32 = 1 << 4;
    /// Tn_VAL_SET_CNF: the next write of the value is its first one, and not its period.
    pub const FIRST: u32 = 1 << 6;
    /// Tn_32MODE_CNF: half of a register is written at a time.
    pub const NARROW: u32 = 1 << 8;
    /// Tn_FSB_EN_CNF.
    pub const MESSAGES: u32 = 1 << 14;
    /// Tn_FSB_INT_DEL_CAP.
    pub const CAN_SEND: u32 = 1 << 15;
}

/// ENABLE_CNF of the general configuration.
const RUN: u32 = 1;
/// Message of an NMI (SDM volume 3, 11.11.2).
const NMI: u32 = 4 << 8;
/// Nanoseconds from the start of the counter to a first tick, at least: by then all cores are in their monitors.
const FIRST: u64 = 20_000_000;

/// Returns the steps; the last one lets the counter run, behind the start of all cores but the booting one.
pub fn steps(plan: &Plan) -> Vec<ConfigOp> {
    let ticks = plan.ticks();
    let Some(hpet) = plan.machine.hpet.filter(|_| !ticks.is_empty()) else { return Vec::new() };
    let op = |kind, offset, value| ConfigOp { bdf: 0, offset, kind, value };
    let set = |offset, value| op(ConfigOp::SET, offset, value);
    let mut ops = vec![
        op(ConfigOp::AT, 0, hpet.base as u32),
        // A firmware may have used it.
        set(register::CONFIGURATION, 0),
        // With another period all ticks would come too early or too late: these two together compare all bits.
        op(ConfigOp::NEED, register::PERIOD, hpet.period),
        op(ConfigOp::CLEAR, register::PERIOD, !hpet.period),
        set(register::COUNTER, 0),
        set(register::COUNTER + 4, 0),
    ];
    for n in 0..hpet.comparators {
        ops.push(set(at(n), 0));
    }
    ops.extend(ticks.iter().flat_map(|tick| comparator(hpet, tick)));
    ops.push(op(ConfigOp::LAST, register::CONFIGURATION, RUN));
    ops
}

/// Address of a comparator's registers.
const fn at(comparator: u32) -> u16 {
    register::TIMER + register::STRIDE * comparator as u16
}

fn comparator(hpet: Hpet, tick: &Tick) -> [ConfigOp; 6] {
    let at = at(tick.comparator);
    let op = |kind, offset: u16, value| ConfigOp { bdf: 0, offset: at + offset, kind, value };
    let counts = |time: u64| (time * 1_000_000 / u64::from(hpet.period)) as u32;
    [
        op(ConfigOp::NEED, 0, bit::CAN_REPEAT | bit::CAN_SEND),
        op(ConfigOp::SET, register::MESSAGE, NMI),
        op(ConfigOp::SET, register::MESSAGE + 4, 0xFEE0_0000 | tick.core << 12),
        op(
            ConfigOp::SET,
            0,
            bit::ENABLED | bit::PERIODIC | bit::FIRST | bit::NARROW | bit::MESSAGES,
        ),
        op(ConfigOp::SET, register::VALUE, counts(FIRST.max(tick.period))),
        op(ConfigOp::SET, register::VALUE, counts(tick.period)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_plan::{Machine, Sandbox, Watch};

    #[test]
    fn each_watched_core_gets_its_comparator_and_nothing_runs_before_the_last_step() {
        let machine = Machine {
            hpet: Some(Hpet { base: 0xFED0_0000, comparators: 3, period: 10_000_000 }),
            ..Machine::default()
        };
        let watch = Some(Watch { period: 5_000_000, alive: None, sweep: None });
        let watched = Sandbox { core_ids: vec![2, 7], watch, ..Sandbox::default() };
        let plan =
            Plan { machine, sandboxes: vec![Sandbox::default(), watched], ..Plan::default() };
        let ops = steps(&plan);
        let all = |kind| ops.iter().filter(move |op| op.kind == kind);
        let set = |offset| -> Vec<u32> {
            all(ConfigOp::SET).filter(|op| op.offset == offset).map(|op| op.value).collect()
        };
        // 20 ms, then each 5 ms, of 10 ns each; to cores 2 and 7.
        for (timer, address) in [(0x100, 0xFEE0_2000), (0x120, 0xFEE0_7000)] {
            assert_eq!(set(timer), [0, 0x414C]);
            assert_eq!(set(timer + 0x08), [2_000_000, 500_000]);
            assert_eq!((set(timer + 0x10), set(timer + 0x14)), (vec![0x400], vec![address]));
        }
        assert_eq!(set(0x140), [0]);
        let last: Vec<_> = all(ConfigOp::LAST).map(|op| (op.offset, op.value)).collect();
        assert_eq!((last, ops.last().map(|op| op.kind)), (vec![(0x10, 1)], Some(ConfigOp::LAST)));
        assert_eq!(set(0x10), [0]);
        // No sandbox has a watchdog.
        assert!(steps(&Plan { sandboxes: vec![Sandbox::default()], ..plan }).is_empty());
    }
}
