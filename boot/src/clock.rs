//! Frequencies of the time stamp counter and of the local APIC timer, measured against the ACPI PM timer (ACPI 6.5,
//! 4.8.3.3). The other cores' INIT has to be waited for meanwhile, so measuring costs no time of its own.

use bulkhead_cpu_x86::{inl, rdmsr, rdtsc, wrmsr};
use bulkhead_monitor_abi::monitor::Clock;
use bulkhead_monitor_abi_x86::msr;

const PM_HZ: u64 = 3_579_545;
/// A PM timer has 24 bits or 32; the lower ones suffice for 10 ms.
const PM_MASK: u32 = 0xFF_FFFF;
/// 10 ms, as INIT needs (MultiProcessor Specification 1.4, B.4).
const TICKS: u32 = (PM_HZ / 100) as u32;
/// Processors' clocks are multiples of this.
const STEP: u64 = 25_000_000;
const LAPIC: u64 = 0xFEE0_0000;

/// Measured rates.
pub struct Measured {
    pub clock: Clock,
    /// TSC ticks that it took.
    pub waited: u64,
}

/// The local APIC timer in whichever mode the firmware left it. The x2APIC
/// counter is only read where there is no other way: under icount, QEMU aborts at it.
struct Lapic {
    x2apic: bool,
}

impl Lapic {
    fn write(&self, register: u32, value: u32) {
        // SAFETY: this core's own APIC, identity-mapped; its timer is masked.
        unsafe {
            if self.x2apic {
                wrmsr(0x800 + (register >> 4), u64::from(value));
            } else {
                ((LAPIC + u64::from(register)) as *mut u32).write_volatile(value);
            }
        }
    }

    fn count(&self) -> u32 {
        // SAFETY: this core's own APIC; a read of the count changes nothing.
        unsafe {
            if self.x2apic {
                rdmsr(msr::X2APIC_TMCCT) as u32
            } else {
                ((LAPIC + 0x390) as *const u32).read_volatile()
            }
        }
    }
}

fn pm(port: u16) -> u32 {
    // SAFETY: the FADT says that this is the PM timer; reading it changes nothing.
    unsafe { inl(port) & PM_MASK }
}

/// Waits for the next tick, for at most a second of any plausible clock.
fn edge(port: u16, after: u32) -> u32 {
    for _ in 0..100_000_000u32 {
        let now = pm(port);
        if now != after {
            return now;
        }
    }
    after
}

/// Measures for 10 ms.
pub fn measure(port: u16) -> Measured {
    // SAFETY: APIC_BASE is on every processor that the boot code accepts.
    let base = unsafe { rdmsr(msr::APIC_BASE) };
    let lapic = Lapic { x2apic: base & 1 << 10 != 0 };
    lapic.write(0x320, 1 << 16); // timer masked
    // The divisor that guests and kernels set: the rate is for it.
    lapic.write(0x3E0, 0b1011); // divide by 1
    let begin = rdtsc();
    // From edge to edge: the error is then one read of the port at each end, not a tick of 280 ns.
    let first = edge(port, pm(port));
    let start = rdtsc();
    lapic.write(0x380, u32::MAX);
    let mut now = first;
    while now.wrapping_sub(first) & PM_MASK < TICKS {
        let next = edge(port, now);
        if next == now {
            // The loop must end without a timer, too.
            break; // the timer does not run
        }
        now = next;
    }
    let end = rdtsc();
    // Read right after the TSC, so that both clocks have counted for one time.
    let count = lapic.count();
    // Stopped, as after a reset.
    lapic.write(0x380, 0);
    let ticks = u64::from(now.wrapping_sub(first) & PM_MASK).max(1);
    Measured {
        clock: Clock {
            hz: round((end - start) * PM_HZ / ticks),
            timer_hz: round(u64::from(u32::MAX - count) * PM_HZ / ticks),
        },
        waited: end - begin,
    }
}

/// Returns the nearest multiple of [`STEP`] where the measurement (good to 100 ppm) fits it.
fn round(hz: u64) -> u64 {
    let near = (hz + STEP / 2) / STEP * STEP;
    // A rate beyond 200 ppm of a multiple is no rounding error but another clock.
    if near.abs_diff(hz) * 5_000 < hz { near } else { hz }
}
