//! Tables for the first instructions, until the kernel has its own: the descriptor table of every guest, and page
//! tables. These map the first 4 GiB to themselves and the window to memory. They know no execute protection, which is
//! still off.

use crate::guest::Piece;
use crate::x86::GDT_GPA;
use bulkhead_arch_x86::start::GDT;
use bulkhead_kernel_x86::WINDOW_INDEX;
use bulkhead_layout::PAGE;

/// Their root.
pub const TABLES: u64 = 0x2000;

const TABLE: u64 = 0b11;
const LARGE: u64 = 1 << 7;

/// Both.
pub fn pieces() -> Vec<Piece> {
    let at = |n: u64| (TABLES + n * PAGE) | TABLE;
    // Root; tables of 1 GiB entries for low and window addresses; four tables of 2 MiB pages, of which the
    // window shares two.
    let mut words = vec![0u64; 7 * 512];
    words[0] = at(1);
    words[WINDOW_INDEX] = at(2);
    for n in 0..4 {
        words[512 + n as usize] = at(3 + n);
    }
    for n in 0..2 {
        words[1024 + 510 + n as usize] = at(3 + n);
    }
    for n in 0..2048 {
        words[1536 + n as usize] = n << 21 | LARGE | TABLE;
    }
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect();
    vec![Piece { gpa: GDT_GPA, bytes: bytes(&GDT) }, Piece { gpa: TABLES, bytes: bytes(&words) }]
}
