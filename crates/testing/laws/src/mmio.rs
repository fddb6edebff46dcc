//! The decoder of trapped accesses (APM volume 3, 1.2, and its MOV, MOVZX, MOVSX).

use crate::Lawful;
use bulkhead_decoder::{Access, Bytes, Mode, Operation, Register, Registers, decode};

/// Registers of a guest's.
#[derive(Clone, Copy)]
struct File([u64; 16]);

impl Registers for File {
    fn get(&self, number: u8) -> u64 {
        self.0[usize::from(number & 15)]
    }

    fn set(&mut self, number: u8, value: u64) {
        self.0[usize::from(number & 15)] = value;
    }
}

/// Any 15 bytes in any mode. A decoded access has a possible size and length, does not depend on bytes behind it, and
/// needs all of its own. Decode assists give an equal result. True if it is a MOV.
///
/// # Errors
/// The law that is broken, in words.
pub fn decoded(code: &[u8; 15], mode: Mode) -> Lawful {
    let found = decode(Bytes::new(code), mode);
    let high = code.iter().rev().fold(0u128, |word, byte| word << 8 | u128::from(*byte)) << 8 | 15;
    if decode(Bytes::assisted([high as u64, (high >> 64) as u64]), mode) != found {
        return Err("another access with decode assists");
    }
    let Some(access) = found else { return Ok(false) };
    let length = usize::from(access.length);
    if !(2..=15).contains(&length) {
        return Err("a length that there is not");
    }
    if decode(Bytes::new(&code[..length]), mode) != found
        || decode(Bytes::new(&code[..length - 1]), mode).is_some()
    {
        return Err("it hangs on other bytes than its own");
    }
    effect(&access, 0x0123_4567_89AB_CDEF, 0xF0E1_D2C3_B4A5_9687)?;
    Ok(true)
}

/// The effect of an access with registers that all hold `held`, and a device that gives `given`. A read changes its own
/// part of one register, a write none, and no value is wider than the access.
///
/// # Errors
/// The law that is broken, in words.
pub fn effect(access: &Access, held: u64, given: u64) -> Result<(), &'static str> {
    let is_size = |size: u8| matches!(size, 1 | 2 | 4 | 8);
    let right =
        |r: Register| r.number < 16 && is_size(r.size) && (!r.high || r.size == 1 && r.number < 4);
    let fits = |value: u64| access.size == 8 || value >> (8 * u32::from(access.size)) == 0;
    let mut file = File([held; 16]);
    let written = access.written(&file);
    access.complete(&mut file, given);
    let changed = |n: usize| file.0[n] != held;
    if !is_size(access.size) {
        return Err("a size that there is not");
    }
    match (access.operation, written) {
        (Operation::Read { to, .. }, None) if right(to) && to.size >= access.size => {
            let n = usize::from(to.number);
            let kept = match (to.size, to.high) {
                (8, _) => 0,
                (4, _) if file.0[n] >> 32 == 0 => 0,
                (4, _) => return Err("a 32-bit register with more"),
                (2, _) => !0xFFFF,
                (_, true) => !0xFF00,
                (_, false) => !0xFF,
            };
            if (0..16).any(|other| other != n && changed(other)) || (file.0[n] ^ held) & kept != 0 {
                return Err("more than its part of a register");
            }
        }
        (Operation::Write(from), Some(value))
            if right(from) && from.size == access.size && fits(value) => {}
        (Operation::WriteImmediate(_), Some(value)) if fits(value) => {}
        _ => return Err("neither read nor write, or of another size"),
    }
    match written.is_some() && (0..16).any(changed) {
        true => Err("a write changes a register"),
        false => Ok(()),
    }
}
