//! The C runtime's services for this library (`sdk/c/bell.h`). Tests on the host have a stand-in.

pub use way::*;

#[cfg(target_os = "none")]
mod way {
    use bulkhead_channel_memory::typed::Doorbell;

    // Declared as `sdk/c/bell.h` and `bulkhead.h` do, and defined by the runtime that every guest is linked with.
    unsafe extern "C" {
        safe fn bulkhead_counter() -> u64;
        safe fn bulkhead_ticks(nanos: u64) -> u64;
        safe fn bulkhead_exit(code: u32) -> !;
        safe fn bulkhead_bell_here() -> bool;
        safe fn bulkhead_bell_rung(interrupt: u8) -> u64;
        safe fn bulkhead_bell_sleep(interrupt: u8, seen: u64, until: u64) -> u64;
        safe fn bulkhead_bell_ring(bell: u16);
        fn bulkhead_bell_answer(interrupt: u8);
    }

    /// The counter of the clock.
    pub fn counter() -> u64 {
        bulkhead_counter()
    }

    /// Nanoseconds in its ticks.
    pub fn ticks(nanos: u64) -> u64 {
        bulkhead_ticks(nanos)
    }

    /// Ends the guest, as an unexpected exception does.
    pub fn give_up() -> ! {
        bulkhead_exit(101)
    }

    /// Tells if this is the core that interrupts go to.
    pub fn is_first_core() -> bool {
        bulkhead_bell_here()
    }

    /// Counts a channel's interrupts of this number.
    pub fn answer(interrupt: u8) {
        // SAFETY: the number is one that the information page gives a channel, so no other handler is replaced; the
        // handler only counts.
        unsafe { bulkhead_bell_answer(interrupt) }
    }

    /// How often it came.
    pub fn rung(interrupt: u8) -> u64 {
        bulkhead_bell_rung(interrupt)
    }

    /// Sleeps until it has come more often than `seen`, or that time; may return earlier. How often it came.
    pub fn sleep(interrupt: u8, seen: u64, until: u64) -> u64 {
        bulkhead_bell_sleep(interrupt, seen, until)
    }

    /// A channel's doorbell.
    #[derive(Debug)]
    pub struct Call(u16);

    impl Call {
        /// For a sender.
        pub fn of(doorbell: Doorbell) -> Self {
            Self(doorbell.at)
        }

        /// Rings.
        pub fn ring(&self) {
            bulkhead_bell_ring(self.0);
        }
    }
}

#[cfg(not(target_os = "none"))]
#[allow(missing_docs)] // The module for a guest documents them.
mod way {
    use bulkhead_channel_memory::typed::Doorbell;
    use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::time::Instant;

    /// Time, which goes on with every look at it, and the rings that came, as if each doorbell had the interrupt with
    /// its number.
    static NOW: AtomicU64 = AtomicU64::new(0);
    static RUNG: AtomicU64 = AtomicU64::new(0);

    pub fn counter() -> u64 {
        NOW.fetch_add(100, SeqCst)
    }

    pub fn ticks(nanos: u64) -> u64 {
        nanos
    }

    pub fn is_first_core() -> bool {
        true
    }

    pub fn answer(_: u8) {}

    pub fn rung(_: u8) -> u64 {
        RUNG.load(SeqCst)
    }

    pub fn sleep(_: u8, seen: u64, until: u64) -> u64 {
        let begun = Instant::now();
        while rung(0) == seen && NOW.load(SeqCst) < until {
            assert!(begun.elapsed().as_secs() < 20, "nobody rings");
            NOW.fetch_add(1_000, SeqCst);
            std::thread::yield_now();
        }
        rung(0)
    }

    #[derive(Debug)]
    pub struct Call;

    impl Call {
        pub fn of(_: Doorbell) -> Self {
            Self
        }

        pub fn ring(&self) {
            RUNG.fetch_add(1, SeqCst);
        }
    }
}
