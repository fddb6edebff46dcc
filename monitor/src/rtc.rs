//! The real-time clock for its owner: date, time and status can be read, and nothing is written. What CMOS memory holds
//! outlives the system, and the firmware reads it (docs/decisions/0038-clock.md).

use crate::core::{alone, config, shared_of};
use crate::enforced;
use ::core::arch::asm;
use ::core::sync::atomic::Ordering;
use bulkhead_resident::cmos::{self, Says};

/// Whether an access to a port of `size` bytes is one that [`port`] answers for.
pub fn answers(port: u32, size: u8) -> bool {
    config().clock != 0 && port & !1 == cmos::INDEX_PORT && size == 1
}

/// A port access that [`answers`]; what a read gives. With a denial comes the register's address. `None`: this core's
/// turn has not come, nothing is done.
pub fn port(port: u32, write: Option<u8>) -> Option<Result<u8, u64>> {
    let index = &shared_of(0).cmos_index;
    if port == cmos::INDEX_PORT {
        // Bit 7 is no part of it: it holds NMIs off, of all cores.
        write.inspect(|value| index.store(value & cmos::INDEX, Ordering::Relaxed));
        return Some(Ok(u8::MAX));
    }
    let at = index.load(Ordering::Relaxed);
    let look = || alone(|| read(at));
    match cmos::says(at, write) {
        Says::Reads => look().map(Ok),
        Says::Absent => Some(Ok(0)),
        Says::Same(mask) if (look()? ^ write.unwrap_or(0)) & mask == 0 => Some(Ok(0)),
        _ if enforced("clock-write") => Some(Err(cmos::ADDRESS + u64::from(at))),
        _ => alone(|| write.map_or_else(|| read(at), |value| store(at, value))).map(Ok),
    }
}

fn read(at: u8) -> u8 {
    let value;
    select(at);
    // SAFETY: the clock's data port, whose owner is this sandbox; reads at these indices change nothing.
    unsafe {
        asm!("in al, dx", in("dx") cmos::INDEX_PORT as u16 + 1, out("al") value, options(nomem, nostack))
    };
    value
}

/// In a monitor without the rule only.
fn store(at: u8, value: u8) -> u8 {
    select(at);
    // SAFETY: as above, but it writes.
    unsafe {
        asm!("out dx, al", in("dx") cmos::INDEX_PORT as u16 + 1, in("al") value, options(nomem, nostack));
    }
    0
}

fn select(at: u8) {
    // SAFETY: the clock's index port; NMIs stay on.
    unsafe {
        asm!("out dx, al", in("dx") cmos::INDEX_PORT as u16, in("al") at, options(nomem, nostack))
    };
}
