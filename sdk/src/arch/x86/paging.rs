//! Own page tables, for guests that want to touch memory outside of the tables that they were given. They map the first
//! 1 TiB to itself, with all rights, for CPL 3 too. The nested tables decide which memory the sandbox may really touch.

use super::cpu;
use core::arch::asm;
use core::cell::UnsafeCell;

const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const USER: u64 = 4;
const LARGE: u64 = 1 << 7;
const GIB: u64 = 1 << 30;

#[repr(C, align(4096))]
struct Tables(UnsafeCell<[[u64; 512]; 7]>);

// SAFETY: written by `map_everything` alone, which every caller runs on one core.
unsafe impl Sync for Tables {}

static TABLES: Tables = Tables(UnsafeCell::new([[0; 512]; 7]));

/// Replaces the page tables; returns how many bytes are mapped: 1 TiB, or
/// 4 GiB on a CPU without 1 GiB pages.
pub fn map_everything() -> u64 {
    const PAGE_1G: u32 = 1 << 26;
    let huge = cpu::cpuid(0x8000_0001, 0)[3] & PAGE_1G != 0;
    let tables = TABLES.0.get();
    let base = tables as u64;
    let rights = PRESENT | WRITE | USER;
    // SAFETY: the tables are written before CR3 points to them, and map every
    // address that is in use to itself.
    unsafe {
        let address = |n: usize| base + 4096 * n as u64;
        (*tables)[0][0] = address(1) | rights;
        if huge {
            (*tables)[0][1] = address(6) | rights;
        }
        for n in 0..512u64 {
            if huge {
                (*tables)[1][n as usize] = (n * GIB) | rights | LARGE;
                (*tables)[6][n as usize] = ((512 + n) * GIB) | rights | LARGE;
            } else if n < 4 {
                (*tables)[1][n as usize] = address(2 + n as usize) | rights;
                for m in 0..512 {
                    (*tables)[2 + n as usize][m] =
                        (n * GIB + m as u64 * (2 << 20)) | rights | LARGE;
                }
            }
        }
        asm!("mov cr3, {}", in(reg) address(0), options(nostack, preserves_flags));
    }
    if huge { 1024 * GIB } else { 4 * GIB }
}
