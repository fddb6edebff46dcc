//! The instruction of a marker: an eight-byte `NOPL disp32(%rax,%rax,1)` (0F 1F /0, AMD64 APM volume 3, NOP) with a
//! signature and a code in its displacement. RAX has the value.

/// Upper half of the displacement.
pub const SIGNATURE: u16 = 0xB417;
/// The instruction up to its displacement.
pub const OPCODE: [u8; 4] = [0x0F, 0x1F, 0x84, 0x00];
/// Bytes of a marker.
pub const LENGTH: usize = 8;

/// The bytes of a marker.
#[must_use]
pub const fn encode(code: u16) -> [u8; LENGTH] {
    let [c0, c1] = code.to_le_bytes();
    let [s0, s1] = SIGNATURE.to_le_bytes();
    [OPCODE[0], OPCODE[1], OPCODE[2], OPCODE[3], c0, c1, s0, s1]
}

/// The code, if these bytes are a marker.
#[must_use]
pub fn decode(instruction: &[u8]) -> Option<u16> {
    let bytes: [u8; LENGTH] = instruction.try_into().ok()?;
    let code = u16::from_le_bytes([bytes[4], bytes[5]]);
    (bytes == encode(code)).then_some(code)
}

/// Executes a marker, on a processor a NOP, in user mode too, with RAX = the value if there is one. The code is a
/// constant, such as `marker::BEGIN | marker::id::ICR`, or depends on a generic parameter.
#[macro_export]
macro_rules! mark {
    ($code:expr) => {
        $crate::mark!($code, 0u64)
    };
    ($code:expr, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: an eight-byte NOP; it reads and writes nothing.
        unsafe {
            ::core::arch::asm!(
                ".byte {}, {}, {}, {}, {}, {}, {}, {}",
                const $crate::marker::encode($code)[0], const $crate::marker::encode($code)[1],
                const $crate::marker::encode($code)[2], const $crate::marker::encode($code)[3],
                const $crate::marker::encode($code)[4], const $crate::marker::encode($code)[5],
                const $crate::marker::encode($code)[6], const $crate::marker::encode($code)[7],
                in("rax") value,
                options(nostack, preserves_flags),
            );
        }
    }};
}
