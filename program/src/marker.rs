//! Markers for the measuring plugin ([`bulkhead_layout::marker`]): on a processor they are NOPs, in user mode
//! too.

pub use bulkhead_layout::marker::*;

/// Executes a marker, with RAX = the value if there is one; the code is a
/// constant, such as `marker::VALUE | marker::id::FLIGHT_JITTER`.
#[macro_export]
macro_rules! mark {
    ($code:expr) => {
        $crate::mark!($code, 0u64)
    };
    ($code:expr, $value:expr) => {{
        const BYTES: [u8; $crate::marker::LENGTH] = $crate::marker::encode($code);
        let value: u64 = $value;
        // SAFETY: an eight-byte NOP; it reads and writes nothing.
        unsafe {
            ::core::arch::asm!(
                ".byte {}, {}, {}, {}, {}, {}, {}, {}",
                const BYTES[0], const BYTES[1], const BYTES[2], const BYTES[3],
                const BYTES[4], const BYTES[5], const BYTES[6], const BYTES[7],
                in("rax") value,
                options(nostack, preserves_flags),
            );
        }
    }};
}
