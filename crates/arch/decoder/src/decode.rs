//! MOV, MOVZX and MOVSX between memory and a register or an immediate value (APM3 3
//! and appendix A).

use crate::Operation::{Read, Write, WriteImmediate};
use crate::{Access, Bytes, Mode, Register, low, sign_extended};

/// Decodes an instruction. `None` for everything but a MOV (88 to 8B, A0 to A3, C6, C7), MOVZX or MOVSX (0F B6, B7, BE,
/// BF) with memory. Also `None` for LOCK and the repeat prefixes, and if bytes are missing.
#[must_use]
pub fn decode(bytes: Bytes, mode: Mode) -> Option<Access> {
    let mut rest = bytes;
    let (mut rex, mut other_operand, mut other_address) = (0, false, false);
    let opcode = loop {
        let byte = rest.take(1)? as u8;
        // A REX counts if nothing stands between it and the opcode.
        rex = match byte {
            0x40..=0x4F if mode == Mode::Bits64 => byte,
            0x26 | 0x2E | 0x36 | 0x3E | 0x64..=0x67 => 0,
            _ => break byte,
        };
        other_operand |= byte == 0x66;
        other_address |= byte == 0x67;
    };
    let operand = match (mode, other_operand) {
        _ if rex & 8 != 0 => 8,
        (Mode::Bits16, false) | (Mode::Bits32 | Mode::Bits64, true) => 2,
        _ => 4,
    };
    let address = match (mode, other_address) {
        (Mode::Bits64, false) => 8,
        (Mode::Bits16, false) | (Mode::Bits32, true) => 2,
        _ => 4,
    };
    // The byte form of an opcode is the even one.
    let size_of = |opcode: u8| if opcode & 1 == 0 { 1 } else { operand };
    let (operation, size) = match opcode {
        0x88..=0x8B | 0xA0..=0xA3 => {
            let size = size_of(opcode);
            // With the address in its place of ModRM, the register is RAX.
            let absolute = opcode >= 0xA0;
            let register = if absolute {
                rest.take(address)?;
                register(0, size, 0)
            } else {
                register(modrm(&mut rest, address)?, size, rex)
            };
            let reads = (opcode & 2 != 0) != absolute;
            (if reads { Read { to: register, signed: false } } else { Write(register) }, size)
        }
        0xC6 | 0xC7 => {
            if modrm(&mut rest, address)? != 0 {
                return None;
            }
            let size = size_of(opcode);
            let len = size.min(4);
            (WriteImmediate(low(sign_extended(rest.take(len)?, len), size)), size)
        }
        0x0F => {
            let opcode = rest.take(1)? as u8;
            let (0xB6 | 0xB7 | 0xBE | 0xBF) = opcode else { return None };
            let to = register(modrm(&mut rest, address)?, operand, rex);
            let size = if opcode & 1 == 0 { 1 } else { 2 };
            (Read { to, signed: opcode & 8 != 0 }, size)
        }
        _ => return None,
    };
    Some(Access { operation, size, length: bytes.len().saturating_sub(rest.len()) })
}

/// Steps over ModRM, SIB and displacement of a memory operand and returns the field
/// `reg`; `None` for a register operand. `address` is the address's size in bytes.
fn modrm(rest: &mut Bytes, address: u8) -> Option<u8> {
    let modrm = rest.take(1)? as u8;
    let (form, rm) = (modrm >> 6, modrm & 7);
    let wide = address != 2;
    // A SIB's base stands for `rm` in the choice of a displacement without a base.
    let base = if wide && rm == 4 { rest.take(1)? as u8 & 7 } else { rm };
    let displacement = match form {
        0 if wide && base == 5 => 4,
        0 if !wide && base == 6 => 2,
        0 => 0,
        1 => 1,
        2 => address.min(4),
        _ => return None,
    };
    rest.take(displacement)?;
    Some(modrm >> 3 & 7)
}

/// Returns the register of a field `reg`. Without any REX, 4 to 7 are AH to BH in a byte form.
fn register(reg: u8, size: u8, rex: u8) -> Register {
    let high = size == 1 && rex == 0 && reg >= 4;
    let number = if high { reg & 3 } else { (rex & 4) << 1 | reg };
    Register { number, size, high }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::Operation;
    use Mode::{Bits16, Bits32, Bits64};
    use std::format;

    const fn register(number: u8, size: u8) -> Register {
        Register { number, size, high: false }
    }

    const fn read(number: u8, size: u8) -> Operation {
        Read { to: register(number, size), signed: false }
    }

    const fn write(number: u8, size: u8) -> Operation {
        Write(register(number, size))
    }

    #[test]
    fn what_is_decoded() {
        let high = |number| Register { number, size: 1, high: true };
        let extended = |number, size, signed| Read { to: register(number, size), signed };
        #[rustfmt::skip]
        let table: &[(Mode, &[u8], Operation, u8)] = &[
            // mov eax, [rdi]; mov [rdi], eax
            (Bits64, &[0x8B, 0x07], read(0, 4), 4),
            (Bits64, &[0x89, 0x07], write(0, 4), 4),
            // mov ax, [rdi]; mov rax, [rdi]; with 66 as well
            (Bits64, &[0x66, 0x8B, 0x07], read(0, 2), 2),
            (Bits64, &[0x48, 0x8B, 0x07], read(0, 8), 8),
            (Bits64, &[0x66, 0x48, 0x89, 0x07], write(0, 8), 8),
            // A REX before another prefix is none.
            (Bits64, &[0x4C, 0x66, 0x89, 0x07], write(0, 2), 2),
            // mov r15d, [rip+1]; mov [r12+r13*8+0x12345678], r9b
            (Bits64, &[0x44, 0x8B, 0x3D, 1, 0, 0, 0], read(15, 4), 4),
            (Bits64, &[0x47, 0x88, 0x8C, 0xEC, 0x78, 0x56, 0x34, 0x12], write(9, 1), 1),
            // mov ah, [rdi]; mov spl, [rdi]; mov [rdi], bh
            (Bits64, &[0x8A, 0x27], Read { to: high(0), signed: false }, 1),
            (Bits64, &[0x40, 0x8A, 0x27], read(4, 1), 1),
            (Bits64, &[0x88, 0x3F], Write(high(3)), 1),
            // mov eax, [rsp]; [rbp+0x10]; [disp32]; [rbx*4+disp32]; [edi]
            (Bits64, &[0x8B, 0x04, 0x24], read(0, 4), 4),
            (Bits64, &[0x8B, 0x45, 0x10], read(0, 4), 4),
            (Bits64, &[0x8B, 0x04, 0x25, 0, 0, 0xC0, 0xFE], read(0, 4), 4),
            (Bits64, &[0x8B, 0x04, 0x9D, 0, 0, 0xC0, 0xFE], read(0, 4), 4),
            (Bits64, &[0x67, 0x8B, 0x07], read(0, 4), 4),
            // movabs eax, [..]; movabs [..], al; with a 32-bit address
            (Bits64, &[0xA1, 1, 2, 3, 4, 5, 6, 7, 8], read(0, 4), 4),
            (Bits64, &[0xA2, 1, 2, 3, 4, 5, 6, 7, 8], write(0, 1), 1),
            (Bits64, &[0x67, 0x48, 0xA3, 1, 2, 3, 4], write(0, 8), 8),
            // mov byte [rdi], -1; word; dword; qword, -2
            (Bits64, &[0xC6, 0x07, 0xFF], WriteImmediate(0xFF), 1),
            (Bits64, &[0x66, 0xC7, 0x07, 0xFE, 0xFF], WriteImmediate(0xFFFE), 2),
            (Bits64, &[0xC7, 0x07, 0xFE, 0xFF, 0xFF, 0xFF], WriteImmediate(0xFFFF_FFFE), 4),
            (Bits64, &[0x48, 0xC7, 0x07, 0xFE, 0xFF, 0xFF, 0xFF], WriteImmediate(-2i64 as u64), 8),
            // movzx eax, byte [rdi]; movzx r8, word; movsx cx, byte; movsx rdx, word
            (Bits64, &[0x0F, 0xB6, 0x07], extended(0, 4, false), 1),
            (Bits64, &[0x4C, 0x0F, 0xB7, 0x07], extended(8, 8, false), 2),
            (Bits64, &[0x66, 0x0F, 0xBE, 0x0F], extended(1, 2, true), 1),
            (Bits64, &[0x48, 0x0F, 0xBF, 0x17], extended(2, 8, true), 2),
            // mov eax, fs:[0x10] in 32-bit code; mov [esi], cx; mov al, [bx+si+0x100]
            (Bits32, &[0x64, 0xA1, 0x10, 0, 0, 0], read(0, 4), 4),
            (Bits32, &[0x66, 0x89, 0x0E], write(1, 2), 2),
            (Bits32, &[0x67, 0x8A, 0x80, 0x00, 0x01], read(0, 1), 1),
            // mov ax, [0x1234]; mov eax, es:[di]; mov ax, [esi+ecx*2]; mov [bp], dl
            (Bits16, &[0xA1, 0x34, 0x12], read(0, 2), 2),
            (Bits16, &[0x8B, 0x06, 0x34, 0x12], read(0, 2), 2),
            (Bits16, &[0x26, 0x66, 0x8B, 0x05], read(0, 4), 4),
            (Bits16, &[0x67, 0x8B, 0x04, 0x4E], read(0, 2), 2),
            (Bits16, &[0x88, 0x56, 0x00], write(2, 1), 1),
        ];
        for &(mode, code, operation, size) in table {
            let expected = Access { operation, size, length: code.len() as u8 };
            let said = format!("{mode:?} {code:02X?}");
            assert_eq!(decode(Bytes::new(code), mode), Some(expected), "{said}");
            // The next bytes are another instruction, and a part of this one is none.
            let longer = Bytes::new(&[code, &[0x90; 15]].concat());
            assert_eq!(decode(longer, mode), Some(expected), "{said}");
            for len in 0..code.len() {
                assert_eq!(decode(Bytes::new(&code[..len]), mode), None, "{len} of {said}");
            }
        }
    }

    #[test]
    fn what_is_not_decoded() {
        #[rustfmt::skip]
        let table: &[(Mode, &[u8])] = &[
            // A register as the operand; C7 /1; LOCK; REP; XRELEASE.
            (Bits64, &[0x8B, 0xC7]),
            (Bits64, &[0x0F, 0xB6, 0xC4]),
            (Bits64, &[0xC7, 0x0F, 0, 0, 0, 0]),
            (Bits64, &[0xF0, 0x89, 0x07]),
            (Bits64, &[0xF3, 0xA4]),
            (Bits64, &[0xF3, 0x89, 0x07]),
            (Bits64, &[0xF2, 0x89, 0x07]),
            // movs; stos; push; xchg; or; cmp; movsxd; mov with a segment register;
            // movbe; movaps; movnti; VEX.
            (Bits64, &[0xA5]),
            (Bits64, &[0xAB]),
            (Bits64, &[0xFF, 0x37]),
            (Bits64, &[0x87, 0x07]),
            (Bits64, &[0x09, 0x07]),
            (Bits64, &[0x3B, 0x07]),
            (Bits64, &[0x63, 0x07]),
            (Bits64, &[0x8C, 0x07]),
            (Bits64, &[0x0F, 0x38, 0xF0, 0x07]),
            (Bits64, &[0x0F, 0x28, 0x07]),
            (Bits64, &[0x0F, 0xC3, 0x07]),
            (Bits64, &[0xC5, 0xF8, 0x28, 0x07]),
            // inc eax in 32-bit code, where it is no REX.
            (Bits32, &[0x40, 0x8B, 0x07]),
            // 16 bytes.
            (Bits64, &[0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x8B, 0x07]),
        ];
        for (mode, code) in table {
            let code = [code, &[0; 15][..]].concat();
            assert_eq!(decode(Bytes::new(&code), *mode), None, "{mode:?} {code:02X?}");
        }
    }
}
