//! The decoder against an established one, both ways. An accepted instruction means there what it means here, and every
//! plain MOV with memory that is known there is accepted.

use bulkhead_decoder::{Access, Bytes, Mode, Operation, Register, decode};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register as Theirs};

/// Numbers that repeat in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.next() as usize % from.len()]
    }
}

const MODES: [(Mode, u32); 3] = [(Mode::Bits16, 16), (Mode::Bits32, 32), (Mode::Bits64, 64)];

/// The other decoder's answer in our terms: a MOV between memory and one register or an immediate value.
fn theirs(code: &[u8], bits: u32) -> Option<Access> {
    let mut instruction = Instruction::default();
    Decoder::new(bits, code, DecoderOptions::NONE).decode_out(&mut instruction);
    let i = &instruction;
    let plain = matches!(i.mnemonic(), Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx);
    let repeated = i.has_rep_prefix() || i.has_repne_prefix();
    if !plain || i.has_lock_prefix() || repeated || i.op_count() != 2 {
        return None;
    }
    let size = i.memory_size().size();
    let operation = match (i.op0_kind(), i.op1_kind()) {
        (OpKind::Memory, OpKind::Register) => Operation::Write(register(i.op1_register())?),
        (OpKind::Register, OpKind::Memory) => Operation::Read {
            to: register(i.op0_register())?,
            signed: i.mnemonic() == Mnemonic::Movsx,
        },
        (OpKind::Memory, _) => {
            Operation::WriteImmediate(i.immediate(1) & u64::MAX >> (64 - 8 * size))
        }
        _ => return None,
    };
    Some(Access { operation, size: size as u8, length: i.len() as u8 })
}

fn register(register: Theirs) -> Option<Register> {
    register.is_gpr().then(|| Register {
        number: register.full_register().number() as u8,
        size: register.size() as u8,
        high: matches!(register, Theirs::AH | Theirs::CH | Theirs::DH | Theirs::BH),
    })
}

/// Compares; whether it was accepted.
fn agree(code: &[u8]) -> u32 {
    let mut accepted = 0;
    for (mode, bits) in MODES {
        let ours = decode(Bytes::new(code), mode);
        assert_eq!(ours, theirs(code, bits), "{mode:?} {code:02X?}");
        accepted += u32::from(ours.is_some());
    }
    accepted
}

const PREFIXES: [u8; 15] =
    [0x66, 0x67, 0x66, 0x67, 0x48, 0x40, 0x44, 0x41, 0x4F, 0x2E, 0x36, 0x64, 0xF0, 0xF2, 0xF3];
const OPCODES: [u8; 16] = [
    0x88, 0x89, 0x8A, 0x8B, 0xA0, 0xA1, 0xA2, 0xA3, 0xC6, 0xC7, 0x8C, 0x8E, 0xA4, 0xA5, 0x63, 0x87,
];
const EXTENDED: [u8; 6] = [0xB6, 0xB7, 0xBE, 0xBF, 0xC3, 0x38];

/// Every opcode, each ModRM, under the prefixes that matter.
#[test]
fn all_forms() {
    let prefixes: [&[u8]; 16] = [
        &[],
        &[0x66],
        &[0x67],
        &[0x66, 0x67],
        &[0x40],
        &[0x48],
        &[0x66, 0x48],
        &[0x67, 0x4D],
        &[0x47],
        &[0x48, 0x66],
        &[0x44, 0x41],
        &[0x64, 0x42],
        &[0xF0],
        &[0xF2],
        &[0xF3],
        &[0xF3, 0x48],
    ];
    let mut accepted = 0;
    for opcode in (0..=0xFFu8).map(|o| vec![o]).chain((0..=0xFF).map(|o| vec![0x0F, o])) {
        let is_mov = match opcode[..] {
            [opcode] => OPCODES.contains(&opcode),
            [_, opcode] => EXTENDED.contains(&opcode),
            _ => false,
        };
        for prefix in prefixes {
            // Others are refused whatever follows: a few of them do.
            for modrm in (0..=0xFF).step_by(if is_mov { 1 } else { 37 }) {
                for sib in [0x25, 0xE4] {
                    let code = [prefix, &opcode, &[modrm, sib, 0x81, 2, 0x93, 4, 5, 6, 7, 8]];
                    accepted += agree(&code.concat());
                }
            }
        }
    }
    // 12 prefixes without LOCK and REP, 192 ModRMs with memory, at least 8 opcodes.
    assert!(accepted > 12 * 192 * 8 * 2, "{accepted}");
}

#[test]
fn random_bytes() {
    let mut random = Random(2026);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..300_000 {
        let mut code = Vec::new();
        for _ in 0..random.pick(&[0, 0, 1, 1, 2, 3, 5, 14]) {
            code.push(random.pick(&PREFIXES));
        }
        match random.next() % 4 {
            0 => code.extend([0x0F, random.pick(&EXTENDED)]),
            1 => {}
            _ => code.push(random.pick(&OPCODES)),
        }
        // Sometimes the bytes end in the middle of an instruction.
        let len = random.pick(&[15, 15, 15, 0, 1, 2, 3, 4, 5, 6]);
        code.extend((0..len).map(|_| random.next() as u8));
        code.truncate(15);
        match agree(&code) {
            0 => refused += 1,
            _ => accepted += 1,
        }
    }
    assert!(accepted > 30_000 && refused > 30_000, "{accepted} accepted, {refused} refused");
}
