//! The keeper: starts sandboxes that have ended, restarts those that do nothing any more, and says which one did not
//! come back. No program outside of the machine has a part in that, so a run depends on nothing but its seed.

use crate::word;
use bulkhead_sdk::text;
use bulkhead_sdk::{Context, hypercall, time, window};
use core::sync::atomic::Ordering;
use fuzz_guest::{BOOK, LOST, READY, TOLD, book};

/// Nanoseconds between two looks.
const LOOK: u64 = 2_000_000;
/// Looks without a sign of life after which a sandbox is restarted, and after which it is lost.
const PATIENCE: u32 = 30;
const DESPAIR: u32 = 600;

/// States as `STATUS` gives them: [`bulkhead_sdk::layout::report::State`].
const STOPPED: u8 = 3;
const EXITED: u8 = 4;

/// The keeper's knowledge of a sandbox.
#[derive(Clone, Copy)]
struct Kept {
    sandbox: u32,
    /// Where its book is.
    book: u64,
    beat: u64,
    /// Looks since that has moved.
    quiet: u32,
}

impl Kept {
    fn of(context: Context, sandbox: u32) -> Option<Self> {
        let name = text::of(context.info().names.get(sandbox as usize)?);
        let own = |w: &window::Window| w.name.strip_prefix(BOOK) == Some(name);
        let book = window::all(context).find(own)?.gpa;
        Some(Self { sandbox, book, beat: 0, quiet: 0 })
    }

    fn look(&mut self) {
        let beat = word(self.book + book::BEAT).load(Ordering::Relaxed);
        // It is 0 until the first life has been audited.
        self.quiet = if beat == self.beat && beat != 0 { self.quiet + 1 } else { 0 };
        self.beat = beat;
        let state = hypercall::status(self.sandbox) as u8;
        // A request that comes too early is made again at the next look.
        if state == STOPPED || state == EXITED {
            let _ = hypercall::control(self.sandbox, hypercall::CONTROL_START);
        } else if self.quiet >= PATIENCE && self.quiet.is_multiple_of(PATIENCE) {
            let _ = hypercall::control(self.sandbox, hypercall::CONTROL_RESTART);
        }
        if self.quiet == DESPAIR {
            word(LOST).store(u64::from(self.sandbox) + 1, Ordering::SeqCst);
        }
    }
}

/// Keeps these sandboxes, two at most, until the driver ends it.
pub fn keep(context: Context, sandboxes: &str) -> u32 {
    let mut numbers = sandboxes.split(',').filter_map(|text| text.parse().ok());
    let mut kept = [(); 2].map(|()| numbers.next().and_then(|n| Kept::of(context, n)));
    word(READY).store(1, Ordering::SeqCst);
    hypercall::ready();
    while word(TOLD).load(Ordering::Acquire) == 0 {
        time::sleep(LOOK);
        kept.iter_mut().flatten().for_each(Kept::look);
    }
    0
}
