//! Time that a system has run, counted from its launch. Virtual time is the machine's, so that a loaded host changes
//! nothing; else it is the host's.

use bulkhead_layout::image::BootReport;
use bulkhead_plan::Plan;
use bulkhead_qemu::{Running, Time};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Frequency of the ACPI PM timer, which counts 24 bits (ACPI 6.5, 4.8.3.3).
const PM_HZ: u64 = 3_579_545;
const PM_TICKS: u64 = 1 << 24;
const NANOSECONDS: u64 = 1_000_000_000;
/// Class of that timer.
const PM_TIMER: &str = "pmtimer";

/// See the module.
pub struct Clock {
    /// The PM timer's port, in virtual time.
    port: Option<u16>,
    /// When the launch was seen, in the host's time.
    seen: Option<Instant>,
}

impl Clock {
    /// Clock of a run.
    pub fn new(plan: &Plan, time: &Time) -> Self {
        let timer = plan.machine.devices.iter().find(|device| device.class == PM_TIMER);
        let port = timer.and_then(|device| Some(device.ports.first()?.first));
        Self { port: port.filter(|_| matches!(time, Time::Virtual { .. })), seen: None }
    }

    /// Returns the time since the launch; `None` before it, or if the machine does not say.
    pub fn since_launch(
        &mut self,
        boot: Option<&BootReport>,
        running: &Running,
    ) -> Option<Duration> {
        let boot = boot.filter(|boot| boot.left_ticks != 0 && boot.error == 0)?;
        let seen = *self.seen.get_or_insert_with(Instant::now);
        let Some(port) = self.port else { return Some(seen.elapsed()) };
        // The TSC begins with the machine.
        let launched =
            u128::from(boot.left_ticks) * u128::from(NANOSECONDS) / u128::from(boot.hz.max(1));
        let now = now(running, port)?;
        Some(Duration::from_nanos(now.saturating_sub(u64::try_from(launched).ok()?)))
    }
}

/// Returns the nanoseconds of the machine's time: its real-time clock gives seconds, the PM timer the rest. The former
/// counts from the time that QEMU is started with.
fn now(running: &Running, port: u16) -> Option<u64> {
    let mut qmp = running.qmp().ok()?;
    let date = qmp.execute("qom-get", json!({"path": "/machine", "property": "rtc-time"})).ok()?;
    let line = json!({"command-line": format!("i /w {port:#x}")});
    let said = qmp.execute("human-monitor-command", line).ok()?;
    Some(together(seconds(&date)?, ticks(said.as_str()?)?))
}

/// Seconds since [`bulkhead_qemu::EPOCH`]'s midnight; `None` if a guest has set another month.
fn seconds(date: &Value) -> Option<u64> {
    let field = |name: &str| date.get(name)?.as_u64();
    let (year, month) = bulkhead_qemu::EPOCH;
    let same = field("tm_year")? + 1900 == year && field("tm_mon")? + 1 == month;
    let days = same.then_some(field("tm_mday")?.checked_sub(1)?)?;
    Some(((days * 24 + field("tm_hour")?) * 60 + field("tm_min")?) * 60 + field("tm_sec")?)
}

/// Returns the number that QEMU says: `portl[0x0608] = 0x00123456`.
fn ticks(said: &str) -> Option<u64> {
    let number = said.rsplit_once("= 0x")?.1.trim();
    u64::from_str_radix(number, 16).ok().map(|ticks| ticks % PM_TICKS)
}

/// Finds the first time from `seconds` on at which the PM timer has `ticks`. Its round takes 4.7 s, and the clock is
/// less than a second behind.
fn together(seconds: u64, ticks: u64) -> u64 {
    let from = seconds * PM_HZ;
    let ahead = (ticks + PM_TICKS - from % PM_TICKS) % PM_TICKS;
    let at = u128::from(from + ahead) * u128::from(NANOSECONDS) / u128::from(PM_HZ);
    u64::try_from(at).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clocks_make_one() {
        for at in [0, 1, 999_999_999, 4_686_000_000, 4_688_000_000, 3_600_123_456_789] {
            let ticks = u128::from(at) * u128::from(PM_HZ) / u128::from(NANOSECONDS);
            let found = together(at / NANOSECONDS, ticks as u64 % PM_TICKS);
            assert!(at.abs_diff(found) < 300, "{at}: {found}");
        }
    }

    #[test]
    fn what_qemu_says_is_read() {
        let date = |month, day, hour| json!({"tm_year": 126, "tm_mon": month, "tm_mday": day, "tm_hour": hour, "tm_min": 2, "tm_sec": 3});
        assert_eq!(seconds(&date(0, 1, 0)), Some(123));
        assert_eq!(seconds(&date(0, 2, 1)), Some(25 * 3600 + 123));
        // Set by a guest.
        assert_eq!(seconds(&date(1, 1, 0)), None);
        assert_eq!(seconds(&json!({})), None);
        assert_eq!(ticks("portl[0x0608] = 0x00a0b0c0\r\n"), Some(0xA0_B0C0));
        assert_eq!(ticks("unknown command"), None);
    }
}
