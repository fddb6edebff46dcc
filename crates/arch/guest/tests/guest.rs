//! Parts of a guest that a host has, too: moves, the counter, and the words of pages.

use bulkhead_guest::{Here, Instructions, Moved, Registers, packed, scale, windows};
use bulkhead_layout::info::{Info, MAX_CHANNELS};

/// Registers in memory.
fn registers(memory: &mut [u64; 2], writable: bool) -> Registers {
    // SAFETY: the memory outlives each test's accesses, and nothing else is in it.
    unsafe { Registers::new(memory.as_mut_ptr() as u64, 16, writable) }
}

#[test]
fn each_move_has_its_size() {
    let mut memory = [u64::MAX; 2];
    let at = registers(&mut memory, true);
    // The larger ones first: a move that is too large would change the ones before.
    at.write64(8, 0xFFEE_DDCC_BBAA_9988);
    at.write32(4, 0x7766_5544);
    at.write16(2, 0x3322);
    at.write8(1, 0x11);
    assert_eq!((at.read64(0), at.read64(8)), (0x7766_5544_3322_11FF, 0xFFEE_DDCC_BBAA_9988));
    assert_eq!((at.read8(3), at.read16(6), at.read32(12)), (0x33, 0x7766, 0xFFEE_DDCC));
    assert_eq!(at.bytes(), 16);
    let mut value = 7u32;
    // SAFETY: a number of this function's.
    let loaded = unsafe {
        9u32.store(&raw mut value as u64);
        u32::load(&raw const value as u64)
    };
    assert_eq!(loaded, 9);
}

#[test]
#[should_panic(expected = "offset 0x8 of registers with 0xc bytes")]
fn a_register_beyond_the_end_is_none() {
    let mut memory = [0u64; 2];
    // SAFETY: the memory is there, and has four bytes more.
    let _ = unsafe { Registers::new(memory.as_mut_ptr() as u64, 12, true) }.read64(8);
}

#[test]
#[should_panic(expected = "offset 0x2 of registers")]
fn a_register_lies_at_a_multiple_of_its_size() {
    let _ = registers(&mut [0; 2], true).read32(2);
}

#[test]
#[should_panic(expected = "only be read")]
fn what_can_only_be_read_is_not_written() {
    registers(&mut [0; 2], false).write32(0, 1);
}

#[test]
fn the_counter_goes_on() {
    let first = Here::counter();
    let second = Here::ordered_counter();
    assert!(first < second && second < Here::ordered_counter());
    assert_eq!(scale(u64::MAX, 1 << 31), u64::MAX / 2);
    assert_eq!(scale(3 << 40, 3 << 32), 9 << 40);
}

#[test]
fn text_is_packed_with_zeros_behind_it() {
    assert_eq!(packed(b"abcdefghi"), [u64::from_le_bytes(*b"abcdefgh"), u64::from(b'i'), 0]);
    assert_eq!(packed(b""), [0; 2]);
    assert_eq!(packed(&[0xFF; 24]), [u64::MAX; 2]);
}

#[test]
fn an_information_page_shows_no_more_windows_than_it_has() {
    // SAFETY: an information page is numbers.
    let mut info: Box<Info> = unsafe { Box::new(core::mem::zeroed()) };
    info.bells[1] = 0x1_0031;
    info.window[1].message = 64;
    info.windows = 2;
    let seen: Vec<_> = windows(&info).map(|(window, bell)| (window.message, bell)).collect();
    assert_eq!(seen, [(0, 0), (64, 0x1_0031)]);
    info.windows = u32::MAX;
    assert_eq!(windows(&info).count(), MAX_CHANNELS);
}
