//! A channel's registers: what a guest writes reaches its own state and its own interrupt control, and
//! nothing else.

use bulkhead_pci::{Denied, Hardware, table};
use bulkhead_resident::pci::{Function, Register};
use std::cell::RefCell;

/// Where its registers are, and its entry of the state table.
const REGISTERS: u64 = 0x5000;
const STATE: u64 = 0x7004;
const GUEST: u64 = 0xD080_0000;

/// Writes to pages, in order.
#[derive(Default)]
struct Pages(RefCell<Vec<(u64, u8, u64)>>);

impl Hardware for Pages {
    fn registers(&self, _: &Function) -> &[Register] {
        &[]
    }
    fn config(&self, _: &Function, _: u16) -> u32 {
        panic!("configuration is read")
    }
    fn set_config(&self, _: &Function, _: u16, _: u32) {
        panic!("configuration is written")
    }
    fn shadow(&self, _: u32) -> u32 {
        panic!("shadow is read")
    }
    fn set_shadow(&self, _: u32, _: u32) {
        panic!("shadow is written")
    }
    fn page(&self, _: u64, _: u8) -> u64 {
        panic!("a page is read")
    }
    fn set_page(&self, address: u64, size: u8, value: u64) {
        self.0.borrow_mut().push((address, size, value));
    }
    fn wait(&self, _: u32, _: impl Fn() -> bool) -> bool {
        panic!("somebody waits")
    }
    fn owns_core(&self, _: u32) -> bool {
        panic!("a core is asked for")
    }
    fn remap(&self, _: &Function, _: usize) -> Option<u32> {
        panic!("remapping is read")
    }
    fn set_remap(&self, _: &Function, _: usize, _: u32) -> bool {
        panic!("remapping is written")
    }
}

/// Writes a register; what the monitor wrote.
fn write(offset: u64, size: u8, value: u64) -> Result<Vec<(u64, u8, u64)>, Denied> {
    let function = Function {
        trap: GUEST,
        trap_len: 4096,
        table: REGISTERS,
        state: STATE,
        ..Function::default()
    };
    let pages = Pages::default();
    table(&pages, &function, GUEST + offset, size, Some(value))?;
    Ok(pages.0.into_inner())
}

#[test]
fn the_state_goes_to_the_page_and_to_the_table() {
    assert_eq!(write(0x10, 4, 7), Ok(vec![(REGISTERS + 0x10, 4, 7), (STATE, 4, 7)]));
}

#[test]
fn interrupt_control_has_one_bit() {
    assert_eq!(write(0x08, 4, 0xFFFF_FFFF), Ok(vec![(REGISTERS + 8, 4, 1)]));
}

#[test]
fn all_else_takes_nothing() {
    for offset in (0..4096).step_by(4).filter(|offset| ![0x08, 0x10].contains(offset)) {
        assert_eq!(write(offset, 4, 1), Ok(Vec::new()), "{offset:#x}");
    }
}

#[test]
fn other_widths_are_denied() {
    for (offset, size) in [(0x10, 1), (0x12, 2), (0x10, 8), (0x11, 4), (0x0E, 4), (0x10, 3)] {
        assert_eq!(write(offset, size, 1), Err(Denied), "{offset:#x} by {size}");
    }
}
