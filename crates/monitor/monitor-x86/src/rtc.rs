//! The real-time clock for its owner: date, time and status can be read, and nothing is written. CMOS memory
//! outlives the system, and the firmware reads it (docs/decisions/0038-clock.md).

use crate::X86;
use bulkhead_monitor::contract::alone;
use bulkhead_monitor_abi_x86::cmos::{self, Says};
use core::sync::atomic::Ordering;

/// Number of the latch of the clock's index port.
const LATCH: usize = 1;

/// Tells if [`port`] answers for an access of `size` bytes to a port.
pub fn answers<M: X86>(m: &M, port: u32, size: u8) -> bool {
    m.x86().clock != 0 && port & !1 == cmos::INDEX_PORT && size == 1
}

/// Answers a port access; the value of a read. With a denial comes the register's address. `None`: this core's
/// turn has not come, nothing is done.
pub fn port<M: X86>(m: &M, port: u32, write: Option<u8>) -> Option<Result<u8, u64>> {
    let index = &m.shared(0).latches[LATCH];
    if port == cmos::INDEX_PORT {
        // Bit 7 is no part of it: it holds NMIs off, of all cores.
        write.inspect(|value| index.store(u32::from(value & cmos::INDEX), Ordering::Relaxed));
        return Some(Ok(u8::MAX));
    }
    let at = index.load(Ordering::Relaxed) as u8;
    let look = || alone(m, || m.load_clock(at));
    match cmos::says(at, write) {
        Says::Reads => look().map(Ok),
        Says::Absent => Some(Ok(0)),
        Says::Same(mask) if (look()? ^ write.unwrap_or(0)) & mask == 0 => Some(Ok(0)),
        _ if M::enforced("clock-write") => Some(Err(cmos::ADDRESS + u64::from(at))),
        _ => {
            let store = |value| {
                m.store_clock(at, value);
                0
            };
            alone(m, || write.map_or_else(|| m.load_clock(at), store)).map(Ok)
        }
    }
}
