//! The machine as a Linux tells of it.

use crate::{apic, trampoline};
use bulkhead_arch::{BootMachine, CoreStart};
use bulkhead_cpu_x86::rdtsc;
use bulkhead_handover::PAGE;
use bulkhead_handover::image::Range;
use bulkhead_handover::x86::TRAMPOLINE_PA;
use bulkhead_handover::x86::late::Late;
use bulkhead_launch::RecordMemory;
use bulkhead_monitor_abi_x86::xapic;

/// Memory of the block.
pub struct Image;

impl RecordMemory for Image {
    fn zero(&mut self, dst: u64, len: u64) {
        // SAFETY: verified: a channel, in the block, of which nobody has a reference.
        unsafe { core::ptr::write_bytes(dst as *mut u64, 0, len as usize / 8) }
    }

    fn copy(&mut self, dst: u64, src: u64, len: u64) {
        // SAFETY: as for `zero`; the source is the image.
        unsafe {
            core::ptr::copy_nonoverlapping(src as *const u64, dst as *mut u64, len as usize / 8)
        }
    }

    // Refused by the check.
    fn store(&mut self, _: u64, _: u64) {}
}

/// Keeps cores of other sandboxes from their monitors, or lets them go there.
pub fn hold(held: bool) {
    // SAFETY: the start-up code's page, which is installed. The write is volatile, since other cores read there.
    unsafe { (trampoline::HELD as *mut u32).write_volatile(held.into()) };
}

/// A machine on which a Linux runs.
pub struct Running<'a> {
    late: &'a Late,
    block: Range,
    /// Slots of the start-up code's table in use, and that of the last core started.
    slots: usize,
    last: usize,
}

impl<'a> Running<'a> {
    pub fn new(late: &'a Late, block: Range) -> Self {
        Self { late, block, slots: 0, last: 0 }
    }

    fn wait(&self, micros: u64) {
        let (begin, ticks) = (rdtsc(), self.late.hz / 1_000_000 * micros);
        while rdtsc() - begin < ticks {
            core::hint::spin_loop();
        }
    }
}

/// Messages by which a core is reset, and starts in the start-up page.
const INIT: u64 = 1 << 14 | 5 << 8;
const STARTUP: u64 = 1 << 14 | 6 << 8 | TRAMPOLINE_PA >> 12;

fn send(id: u32, message: u64) {
    apic::send(u64::from(id) << 32 | message);
}

impl BootMachine for Running<'_> {
    fn is_ram(&self, start: u64, len: u64) -> bool {
        // The start-up code's page is Linux' too: since 5.13 it leaves the first MiB alone.
        let start_code = Range { start: TRAMPOLINE_PA, len: PAGE };
        [self.block, start_code].iter().any(|whole| {
            let offset = start.wrapping_sub(whole.start);
            offset <= whole.len && len <= whole.len - offset
        })
    }

    fn has_core(&self, id: u32) -> bool {
        // In xAPIC mode no message reaches a core with a greater ID.
        let named = !apic::in_page() || id < xapic::ALL;
        named && self.late.cores.iter().take(self.late.count as usize).any(|core| *core == id)
    }

    fn this_core(&self) -> u32 {
        // It is not among those that are started.
        u32::MAX
    }

    fn start_core(&mut self, id: u32, start: CoreStart, spare: Option<CoreStart>) {
        self.last = self.slots;
        self.slots += trampoline::direct(self.slots, id, start, spare);
        // It sleeps in memory of the Linux.
        send(id, INIT);
        // The MultiProcessor Specification asks for 10 ms (B.4). Linux waits 10 µs on a processor of this kind.
        self.wait(10);
        if id != self.late.mute {
            send(id, STARTUP);
        }
    }

    fn wait_for(&mut self, id: u32) -> bool {
        for again in 0..2 {
            for _ in 0..1000 {
                if trampoline::has_arrived(self.last) {
                    return true;
                }
                self.wait(10);
            }
            if again == 0 && id != self.late.mute {
                send(id, STARTUP);
            }
        }
        // It is not to come later, when nobody counts on it.
        send(id, INIT);
        false
    }
}
