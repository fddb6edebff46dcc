//! What a release does: fly a millisecond, keep the books, publish them.

use bulkhead_flight::math::Vec3;
use bulkhead_flight::{Flight, Sample};
use bulkhead_sdk::layout::telemetry::{self, Record};
use bulkhead_sdk::window::{self, Window};
use bulkhead_sdk::{Context, println, time};

/// Same flight in every run.
const SEED: u64 = 0xF11;
const MILLION: f32 = 1e6;

/// The controller, its world and its books.
pub struct Pilot {
    flight: Flight,
    substeps: u32,
    record: Record,
    /// Sum of squared errors in square microradians; 2^64 is a year at 20 mrad.
    squares: u128,
    page: Option<Window>,
}

fn millionths(x: f32) -> i64 {
    // Through 32 bits: without vector registers that is the cheaper conversion.
    i64::from((x * MILLION) as i32)
}

fn vector(v: Vec3) -> [i64; 3] {
    [v.x, v.y, v.z].map(millionths)
}

impl Pilot {
    /// Takes off; telemetry goes to the channel of that name, if it may be written.
    pub fn new(context: Context, period_ns: u64, substeps: u32) -> Self {
        let page = window::channel(context, "telemetry").filter(|w| w.writable);
        if let Some(page) = page {
            telemetry::begin(page.words());
        }
        Self {
            flight: Flight::new(SEED, Default::default(), 0.0),
            substeps,
            record: Record { incarnation: context.incarnation(), period_ns, ..Record::default() },
            squares: 0,
            page,
        }
    }

    /// Whether anybody may read along.
    pub fn publishes(&self) -> bool {
        self.page.is_some()
    }

    /// The books.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Serves a release: `missed` ones passed since the last, it came `late` TSC
    /// ticks after it was due.
    pub fn serve(&mut self, missed: u64, late: u64, start: u64) {
        self.record.missed += missed;
        self.record.count_jitter(time::nanos(late));
        let sample = self.flight.step(self.substeps);
        self.enter(&sample);
        self.record.time_ns = time::nanos(time::tsc() - start);
        self.record.seq += 1;
        if let Some(page) = &self.page {
            telemetry::publish(page.words(), &self.record);
        }
    }

    /// Books the time that a release took; it is published with the next one.
    pub fn account(&mut self, ticks: u64) {
        let busy = time::nanos(ticks) * 1_000_000 / self.record.period_ns;
        self.record.busy = busy;
        self.record.busy_max = self.record.busy_max.max(busy);
    }

    fn enter(&mut self, sample: &Sample) {
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
    }

    /// What is left to say at the end.
    pub fn summary(&self) {
        let r = &self.record;
        println!(
            "flight: {} releases, missed {}, jitter worst {} ns, error rms {}.{:03} mrad",
            r.releases,
            r.missed,
            r.jitter_max,
            r.error_rms / 1_000,
            r.error_rms % 1_000
        );
        println!(
            "flight: jitter min {} ns, median up to {} ns, error max {} mrad, busy {}.{} % (worst {}.{} %)",
            r.jitter_min,
            r.jitter_median(),
            r.error_max / 1_000,
            r.busy / 10_000,
            r.busy / 1_000 % 10,
            r.busy_max / 10_000,
            r.busy_max / 1_000 % 10
        );
    }
}
