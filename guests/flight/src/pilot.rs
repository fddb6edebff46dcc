//! The work of a release: fly a millisecond, keep the books, publish them.

use bulkhead_flight::Flight;
use bulkhead_flight::books::{Books, Times};
use bulkhead_sdk::layout::telemetry::{self, Record};
use bulkhead_sdk::window::{self, Window};
use bulkhead_sdk::{Context, println, time};

/// Same flight in every run.
const SEED: u64 = 0xF11;

/// The controller, its world and its books.
pub struct Pilot {
    flight: Flight,
    substeps: u32,
    books: Books,
    page: Option<Window>,
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
            books: Books::new(context.incarnation(), period_ns),
            page,
        }
    }

    /// Tells if there is a page for readers.
    pub fn publishes(&self) -> bool {
        self.page.is_some()
    }

    /// The books.
    pub fn record(&self) -> &Record {
        &self.books.record
    }

    /// Serves a release: `missed` ones passed since the last, it came `late` TSC
    /// ticks after it was due.
    pub fn serve(&mut self, missed: u64, late: u64, start: u64) {
        self.books.released(missed, time::nanos(late));
        let sample = self.flight.step(self.substeps);
        self.books.enter(&sample, time::nanos(time::counter() - start));
        if let Some(page) = &self.page {
            telemetry::publish(page.words(), &self.books.record);
        }
    }

    /// Books the time that a release took; it is published with the next one.
    pub fn account(&mut self, ticks: u64) {
        self.books.account(time::nanos(ticks));
    }

    /// Prints the summary at the end.
    pub fn summary(&self) {
        println!("flight: {}", self.books);
        println!("flight: {}", Times(&self.books));
    }
}
