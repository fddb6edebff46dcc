//! The machine's time while it stands, by a timer that always runs. QEMU's clock then has the time at which the running
//! core's slice began, so a time is right to the length of a slice.

use crate::{Error, Result, Stand, System};

const NANOSECONDS: u128 = 1_000_000_000;
/// Frequency of the ACPI PM timer, which counts 24 bits (ACPI 6.5, 4.8.3.3).
const PM_HZ: u128 = 3_579_545;
const PM_TICKS: u128 = 1 << 24;
/// Class of that timer.
const PM_TIMER: &str = "pmtimer";

/// Clock of a system. Its times are nanoseconds since the machine's start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    port: u16,
    /// Ticks of the processors' counters in a second.
    hz: u64,
}

impl Clock {
    /// The clock of a system with processors' counters of a frequency.
    pub fn new(system: &System, hz: u64) -> Result<Self> {
        let mut devices = system.baked.plan.machine.devices.iter();
        let timer = devices.find(|device| device.class == PM_TIMER);
        let port = timer.and_then(|timer| Some(timer.ports.first()?.first));
        let none = || Error::Other(format!("the machine has no device of the class {PM_TIMER}"));
        Ok(Self { port: port.ok_or_else(none)?, hz })
    }

    /// The time now, which is at most 4.6 s behind `after`.
    pub fn now(&self, stand: &mut Stand, after: u64) -> Result<u64> {
        Ok(following(after, u128::from(stand.port(self.port)?) % PM_TICKS))
    }

    /// The time of a processor's counter.
    pub fn of_ticks(&self, ticks: u64) -> u64 {
        (u128::from(ticks) * NANOSECONDS / u128::from(self.hz.max(1))) as u64
    }
}

/// The first time from `after` on at which the PM timer has so many ticks. A tick earlier counts, too: `after` may be
/// a reading in the middle of one.
fn following(after: u64, pm: u128) -> u64 {
    let from = (u128::from(after) * PM_HZ / NANOSECONDS).saturating_sub(1);
    let ticks = from + (pm + PM_TICKS - from % PM_TICKS) % PM_TICKS;
    u64::try_from(ticks * NANOSECONDS / PM_HZ).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_the_timer_are_counted() {
        let round = 4_686_968_874u64;
        for now in [5_000_000, round - 1_000, round + 7_000_000, 3 * round + 1_000_000] {
            let pm = (u128::from(now) * PM_HZ / NANOSECONDS) % PM_TICKS;
            for before in [0, 100, 1_000_000] {
                let found = following(now - before, pm);
                assert!(found.abs_diff(now) < 600, "{now}, {before}: {found}");
            }
        }
    }

    #[test]
    fn a_reading_is_its_own_follower() {
        let at = following(1_000_000_000, 3_600_000);
        assert_eq!(following(at, 3_600_000), at);
    }
}
