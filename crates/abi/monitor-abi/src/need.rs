//! Needs of a sandbox that its monitor has code for. A monitor is built for a set of needs, and a sandbox gets the
//! smallest monitor that has all of its own.

/// PCI functions, channels shown as such, interrupt lines, the real-time clock.
pub const DEVICES: u32 = 1 << 0;
/// More than one core.
pub const CORES: u32 = 1 << 1;
/// Links: channels made at run time.
pub const LINKS: u32 = 1 << 2;
/// A program that another sandbox may leave.
pub const LOADS: u32 = 1 << 3;
/// Requests, to other sandboxes or by them.
pub const CONTROL: u32 = 1 << 4;
/// Channels with ends or doorbells of its own.
pub const CHANNELS: u32 = 1 << 5;
/// An unmodified Linux.
pub const LINUX: u32 = 1 << 6;
/// A watchdog.
pub const WATCHDOG: u32 = 1 << 7;
/// Ladders, and guests that can take the place of the first one ([`crate::ladder`]).
pub const LADDER: u32 = 1 << 8;
/// Snapshots ([`crate::snapshot`]).
pub const SNAPSHOT: u32 = 1 << 9;
/// Roles ([`crate::role`]).
pub const ROLE: u32 = 1 << 10;
/// A Linux that runs before its monitor does.
pub const RUNNING: u32 = 1 << 11;
/// Ranges of shared registers ([`crate::mmio`]).
pub const MMIO: u32 = 1 << 12;
/// Locks ([`crate::hypercall::LOCK`]): of its own, or of a sandbox that it may end.
pub const LOCK: u32 = 1 << 13;
/// A debugger ([`crate::debug`]).
pub const DEBUG: u32 = 1 << 14;
/// All of them.
pub const ALL: u32 = (1 << 15) - 1;
/// Needs of a sandbox that outlives failures.
const RECOVERY: u32 = WATCHDOG | LADDER;
/// Needs of few sandboxes. They share monitors.
const RARE: u32 = MMIO | LOCK;
/// Needs of sandboxes that start with the machine.
const BOOTED: u32 = ALL & !RUNNING;
/// Those of one that is used, and not looked into.
const USED: u32 = BOOTED & !DEBUG;

/// Monitors that are built, by the names of their files: a smaller one first, then the one with code for all. The last
/// one is that one, built with checks and another layout.
pub const MONITORS: [(&str, u32); 18] = [
    ("monitor-small", CHANNELS),
    ("monitor-control", SMALL),
    ("monitor-control-locks", SMALL | LOCK),
    ("monitor-control-watched", SMALL | RECOVERY),
    ("monitor-control-warm", SMALL | RECOVERY | SNAPSHOT),
    ("monitor-control-standby", SMALL | RECOVERY | SNAPSHOT | ROLE),
    ("monitor-control-registers", SMALL | RARE),
    ("monitor-plain", USED & !(DEVICES | RECOVERY | SNAPSHOT | ROLE | RARE)),
    ("monitor", USED & !(RECOVERY | SNAPSHOT | ROLE | RARE)),
    ("monitor-locks", USED & !(RECOVERY | SNAPSHOT | ROLE | MMIO)),
    ("monitor-watched", USED & !(SNAPSHOT | ROLE | RARE)),
    ("monitor-warm", USED & !(ROLE | RARE)),
    ("monitor-standby", USED & !RARE),
    ("monitor-registers", USED),
    ("monitor-debug", BOOTED),
    ("monitor-running", LATE),
    ("monitor-running-devices", LATE | DEVICES),
    ("monitor-checked", BOOTED),
];

/// Index in [`MONITORS`] of the one that is built with checks.
pub const CHECKED: usize = MONITORS.len() - 1;

/// Needs of a Linux that runs already, without its devices.
const LATE: u32 = CHANNELS | CONTROL | CORES | LINUX | LOCK | RUNNING;

/// Needs of a sandbox without devices that is no Linux.
const SMALL: u32 = CHANNELS | CONTROL | CORES | LOADS;

/// Returns the index in [`MONITORS`] of the smallest one with code for all of these needs; [`CHECKED`] if none has.
#[must_use]
pub fn smallest(needs: u32) -> usize {
    let covers = |&(_, has): &(&str, u32)| needs & !has == 0;
    MONITORS.iter().position(covers).unwrap_or(CHECKED)
}

/// Returns the index in [`MONITORS`] of the one that a sandbox with these needs gets.
#[must_use]
pub fn chosen(needs: u32, checked: bool) -> usize {
    if checked { CHECKED } else { smallest(needs) }
}

/// Tells if a set has a need.
#[inline(always)]
#[must_use]
pub const fn has(set: u32, need: u32) -> bool {
    set & need != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_needs_gets_the_first_monitor_that_has_them() {
        let running = MONITORS[CHECKED - 1].1;
        let some = |needs: &u32| [BOOTED, running].iter().any(|all| needs & !all == 0);
        for needs in (0..=ALL).filter(some) {
            let at = smallest(needs);
            assert_eq!(needs & !MONITORS[at].1, 0, "{needs:#b}");
            assert!(MONITORS[..at].iter().all(|(_, has)| needs & !has != 0), "{needs:#b}");
            assert_eq!([false, true].map(|checked| chosen(needs, checked)), [at, CHECKED]);
            assert_ne!(at, CHECKED, "only the manifest asks for it");
        }
        assert_eq!(MONITORS[smallest(0)].0, "monitor-small");
        assert_eq!(MONITORS[smallest(DEVICES)].0, "monitor");
        assert_eq!(MONITORS[smallest(LINUX)].0, "monitor-plain");
        assert_eq!(MONITORS[smallest(WATCHDOG)].0, "monitor-control-watched");
        assert_eq!(MONITORS[smallest(WATCHDOG | LINUX)].0, "monitor-watched");
        assert_eq!(MONITORS[smallest(SNAPSHOT)].0, "monitor-control-warm");
        assert_eq!(MONITORS[smallest(SNAPSHOT | DEVICES)].0, "monitor-warm");
        assert_eq!(MONITORS[smallest(ROLE)].0, "monitor-control-standby");
        assert_eq!(MONITORS[smallest(ROLE | DEVICES)].0, "monitor-standby");
        assert_eq!(MONITORS[smallest(MMIO)].0, "monitor-control-registers");
        assert_eq!(MONITORS[smallest(MMIO | LINUX)].0, "monitor-registers");
        assert_eq!(MONITORS[smallest(LOCK)].0, "monitor-control-locks");
        assert_eq!(MONITORS[smallest(LOCK | LINUX)].0, "monitor-locks");
        assert_eq!(MONITORS[smallest(LOCK | WATCHDOG)].0, "monitor-registers");
        assert_eq!(MONITORS[smallest(DEBUG)].0, "monitor-debug");
        assert_eq!(MONITORS[smallest(RUNNING | LINUX | CORES)].0, "monitor-running");
        assert_eq!(MONITORS[smallest(RUNNING | DEVICES)].0, "monitor-running-devices");
    }
}
