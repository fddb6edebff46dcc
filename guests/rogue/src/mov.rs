//! Accesses of any size to device registers, by one instruction each, wherever they point.

use crate::aim::Aim;
use crate::expect::Got;
use bulkhead_sdk::fault::catch;
use core::arch::asm;

/// Reads `BYTES` bytes by one MOV.
pub fn load<const BYTES: u8, const AT: u64>(_: &Aim) -> Got {
    // SAFETY: an attack on device registers, which hold nothing of this program's.
    unsafe {
        catch(|| {
            let mut value = 0u64;
            match BYTES {
                1 => asm!("mov {:l}, byte ptr [{}]", inout(reg_abcd) value, in(reg) AT),
                2 => asm!("mov {:x}, word ptr [{}]", inout(reg) value, in(reg) AT),
                4 => asm!("mov {:e}, dword ptr [{}]", inout(reg) value, in(reg) AT),
                _ => asm!("mov {}, qword ptr [{}]", inout(reg) value, in(reg) AT),
            }
            value
        })
    }
}

/// Writes so many bytes of a value by one MOV.
pub fn put(bytes: u8, at: u64, value: u64) -> Got {
    // SAFETY: an attack on device registers, which hold nothing of this program's.
    unsafe {
        catch(|| match bytes {
            1 => asm!("mov byte ptr [{}], {:l}", in(reg) at, in(reg_abcd) value),
            2 => asm!("mov word ptr [{}], {:x}", in(reg) at, in(reg) value),
            4 => asm!("mov dword ptr [{}], {:e}", in(reg) at, in(reg) value),
            _ => asm!("mov qword ptr [{}], {}", in(reg) at, in(reg) value),
        })
    }
    .map(|()| 0)
}

/// Writes `BYTES` bytes by one MOV.
pub fn store<const BYTES: u8, const AT: u64, const VALUE: u64>(_: &Aim) -> Got {
    put(BYTES, AT, VALUE)
}

/// Writes `BYTES` bytes of zeros by one MOV of an immediate value.
pub fn clear<const BYTES: u8, const AT: u64>(_: &Aim) -> Got {
    // SAFETY: an attack on device registers, which hold nothing of this program's.
    unsafe {
        catch(|| match BYTES {
            1 => asm!("mov byte ptr [{}], 0", in(reg) AT),
            2 => asm!("mov word ptr [{}], 0", in(reg) AT),
            4 => asm!("mov dword ptr [{}], 0", in(reg) AT),
            _ => asm!("mov qword ptr [{}], 0", in(reg) AT),
        })
    }
    .map(|()| 0)
}
