//! The books of a flight: the telemetry of each release.

use crate::Sample;
use crate::math::Vec3;
use bulkhead_layout::telemetry::Record;
use core::fmt;

const MILLION: f32 = 1e6;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Books {
    /// As it is published.
    pub record: Record,
    /// Sum of squared errors in square microradians; 2^64 is a year at 20 mrad.
    squares: u128,
}

fn millionths(x: f32) -> i64 {
    // Through 32 bits: without vector registers that is the cheaper conversion.
    i64::from((x * MILLION) as i32)
}

fn vector(v: Vec3) -> [i64; 3] {
    [v.x, v.y, v.z].map(millionths)
}

impl Books {
    /// Empty ones, of releases every so many nanoseconds.
    #[must_use]
    pub fn new(incarnation: u64, period_ns: u64) -> Self {
        Self { record: Record { incarnation, period_ns, ..Record::default() }, squares: 0 }
    }

    /// A release: so many were missed before it, and it came so many nanoseconds late.
    pub fn released(&mut self, missed: u64, late: u64) {
        self.record.missed += missed;
        self.record.count_jitter(late);
    }

    /// Books of a flight that another sandbox has begun: its newest record, and the words of [`Books::words`].
    #[must_use]
    pub fn resumed(record: Record, [low, high]: [u64; 2]) -> Self {
        Self { record, squares: u128::from(high) << 64 | u128::from(low) }
    }

    /// The part of the books that no record has.
    #[must_use]
    pub fn words(&self) -> [u64; 2] {
        [self.squares as u64, (self.squares >> 64) as u64]
    }

    /// The first release behind a takeover: so many were missed before it, and it came so many nanoseconds late.
    pub fn took_over(&mut self, missed: u64, late: u64) {
        self.record.missed += missed;
        self.record.count_takeover(late);
    }

    /// Enters the work of the release, done so many nanoseconds after the start.
    pub fn enter(&mut self, sample: &Sample, time_ns: u64) {
        let record = &mut self.record;
        let q = sample.estimate;
        record.attitude = [q.w, q.v.x, q.v.y, q.v.z].map(millionths);
        record.euler = q.euler().map(millionths);
        record.setpoint = sample.setpoint.attitude.euler().map(millionths);
        record.rates = vector(sample.rates);
        record.motors = sample.motors.map(millionths);
        record.error = millionths(sample.error).unsigned_abs();
        record.estimation_error = millionths(sample.estimation_error).unsigned_abs();
        record.error_max = record.error_max.max(record.error);
        self.squares += u128::from(record.error * record.error);
        let mean = self.squares / u128::from(record.releases.max(1));
        record.error_rms = u64::try_from(mean).unwrap_or(u64::MAX).isqrt();
        record.time_ns = time_ns;
        record.seq += 1;
    }

    /// How many nanoseconds the release took; published with the next one.
    pub fn account(&mut self, took: u64) {
        let busy = took * 1_000_000 / self.record.period_ns.max(1);
        self.record.busy = busy;
        self.record.busy_max = self.record.busy_max.max(busy);
    }
}

/// Summary of the flight, for the end.
impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.record;
        write!(
            f,
            "{} releases, missed {}, error rms {}.{:03} mrad, at most {} mrad",
            r.releases,
            r.missed,
            r.error_rms / 1_000,
            r.error_rms % 1_000,
            r.error_max / 1_000
        )
    }
}

/// The summary's times, apart because they differ from machine to machine.
#[derive(Clone, Copy, Debug)]
pub struct Times<'a>(pub &'a Books);

impl fmt::Display for Times<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.0.record;
        write!(
            f,
            "jitter min {} ns, median up to {} ns, worst {} ns, busy {}.{} % (worst {}.{} %)",
            r.jitter_min,
            r.jitter_median(),
            r.jitter_max,
            r.busy / 10_000,
            r.busy / 1_000 % 10,
            r.busy_max / 10_000,
            r.busy_max / 1_000 % 10
        )
    }
}
