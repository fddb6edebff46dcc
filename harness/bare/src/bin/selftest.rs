//! The machine's side of the clock's self-test: a loop of known length, then a 1 ms timer on one core. The other cores
//! sleep first, and then compute.
//!
//! Command line: `samples=N` ticks for each; `spare=NS` lets the last core run a
//! periodic timer (a metronome made of a core); `only=busy` or `only=idle`.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod bare {
    use bulkhead_layout::marker::{BEGIN, DUMP, END, VALUE, id};
    use core::sync::atomic::{AtomicU32, Ordering};
    use harness_bare::{cpu, mark, println, start};

    /// Other cores.
    const OTHERS: u32 = 3;
    /// 1 ms at QEMU's 1 GHz.
    const PERIOD: u32 = 1_000_000;
    /// Period of the spare core's timer; 0 for none.
    static SPARE: AtomicU32 = AtomicU32::new(0);

    pub fn main(boot: start::Boot) -> ! {
        let samples = boot.number("samples").unwrap_or(200);
        SPARE.store(boot.number("spare").unwrap_or(0) as u32, Ordering::SeqCst);
        for _ in 0..8 {
            known_loop();
        }
        start::start_cores(OTHERS, sleep);
        if boot.number("busy") != Some(1) {
            for _ in 0..samples {
                mark!(VALUE | id::SELFTEST_IDLE, lateness(true));
            }
        }
        start::start_cores(OTHERS, compute);
        if boot.number("idle") != Some(1) {
            for n in 0..samples {
                mark!(VALUE | id::SELFTEST_BUSY, lateness(n & 1 == 0));
            }
        }
        println!("done {samples} {}", cpu::rdtsc());
        mark!(DUMP);
        cpu::power_off()
    }

    /// 3,004 instructions between the markers.
    fn known_loop() {
        mark!(BEGIN | id::SELFTEST_LOOP);
        // SAFETY: counts a register down.
        unsafe {
            core::arch::asm!(
                "mov ecx, 1000", "2:", "nop", "dec ecx", "jnz 2b", "nop", "nop", "nop",
                out("ecx") _, options(nomem, nostack)
            );
        }
        mark!(END | id::SELFTEST_LOOP);
    }

    /// About 1 ms: a constant period would meet few phases of the metronome's,
    /// and the worst lateness seen would be luck.
    fn period() -> u32 {
        static SEED: AtomicU32 = AtomicU32::new(1);
        let seed = SEED.load(Ordering::Relaxed).wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        SEED.store(seed, Ordering::Relaxed);
        PERIOD + (seed >> 16) % 20_000
    }

    /// TSC ticks by which a 1 ms one-shot timer's handler ran late, seen from a
    /// sleeping or a computing core.
    fn lateness(asleep: bool) -> u64 {
        let period = period();
        let armed = cpu::rdtsc();
        start::arm(period, false);
        loop {
            if asleep {
                cpu::wait_interrupt();
            } else {
                cpu::poll_interrupt();
            }
            if let Some(tick) = start::take_tick() {
                return tick - armed - u64::from(period);
            }
        }
    }

    /// The last core ticks if it is the metronome.
    fn metronome() {
        let period = SPARE.load(Ordering::SeqCst);
        if period != 0 && start::core_number() == OTHERS as usize {
            start::arm(period, true);
            loop {
                cpu::wait_interrupt();
            }
        }
    }

    fn sleep() -> ! {
        metronome();
        loop {
            cpu::wait_interrupt();
        }
    }

    fn compute() -> ! {
        metronome();
        let mut x = 1u64;
        loop {
            x = core::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

#[cfg(target_os = "none")]
use bare::main;
harness_bare::entry!(main);
