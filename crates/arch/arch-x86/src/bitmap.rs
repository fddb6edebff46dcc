//! I/O and MSR permission maps (APM 15.10.1, 15.11). A set bit intercepts.

/// Bytes of an I/O permission map: 65,536 ports and the bits after the last one.
pub const IOPM: usize = 3 * 4096;
/// Bytes of an MSR permission map.
pub const MSRPM: usize = 2 * 4096;

/// Lets a guest use a port directly.
pub fn allow_port(map: &mut [u8], port: u16) {
    map[port as usize / 8] &= !(1 << (port % 8));
}

/// Accesses of a guest to an MSR without an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// Read.
    Read,
    /// Read and write.
    Both,
    /// Write.
    Write,
}

/// Bit of an MSR's read intercept; the write intercept follows it. `None`: the
/// MSR is outside the map's three ranges and always intercepted.
#[must_use]
pub fn msr_bit(msr: u32) -> Option<usize> {
    let base = match msr & !0x1FFF {
        0 => 0,
        0xC000_0000 => 0x800,
        0xC001_0000 => 0x1000,
        _ => return None,
    };
    Some(base * 8 + (msr & 0x1FFF) as usize * 2)
}

/// Lets a guest use an MSR directly.
pub fn allow_msr(map: &mut [u8], msr: u32, direct: Direct) {
    let Some(bit) = msr_bit(msr) else { return };
    let bits = match direct {
        Direct::Read => 0b01,
        Direct::Write => 0b10,
        Direct::Both => 0b11,
    };
    map[bit / 8] &= !(bits << (bit % 8));
}
