//! Messages of an architecture that is not x86. Each names one of eight events at one address. The monitor's word for
//! an event has its bits elsewhere. The portable part takes them as they are.

use bulkhead_monitor_abi::pci::{Function, Register, end};
use bulkhead_pci::{Denied, Hardware, aim, config, table};
use std::cell::{Cell, RefCell};

/// Where messages go: above 4 GiB.
const TO: [u32; 2] = [0x0808_0040, 0x3];
const MSI: u16 = 0x50;
const MSIX: u16 = 0x70;
const TABLE: u64 = 0x9000;
/// Registers of a channel's end.
const END: u64 = 0xA000;
const ENABLE: u32 = 1 << 16;

const REGISTERS: [Register; 4] = {
    let none = Register {
        offset: MSI,
        kind: Register::MSI,
        write: ENABLE,
        keep: u32::MAX,
        set: 0,
        hold: 0,
        shadow: 0,
    };
    let message = Register { kind: Register::MESSAGE, write: u32::MAX, ..none };
    [
        none,
        Register { offset: MSI + 4, ..message },
        Register { offset: MSI + 8, shadow: 1, ..message },
        Register { offset: MSI + 12, shadow: 2, ..message },
    ]
};

#[derive(Default)]
struct Odd {
    config: RefCell<[u32; 32]>,
    shadow: RefCell<[u32; 16]>,
    pages: RefCell<Vec<(u64, u64)>>,
    aimed: Cell<Option<u64>>,
}

impl Hardware for Odd {
    fn registers(&self, _: &Function) -> &[Register] {
        &REGISTERS
    }

    fn config(&self, _: &Function, offset: u16) -> u32 {
        self.config.borrow()[usize::from(offset) / 4]
    }

    fn set_config(&self, _: &Function, offset: u16, value: u32) {
        self.config.borrow_mut()[usize::from(offset) / 4] = value;
    }

    fn shadow(&self, word: u32) -> u32 {
        self.shadow.borrow()[word as usize]
    }

    fn set_shadow(&self, word: u32, value: u32) {
        self.shadow.borrow_mut()[word as usize] = value;
    }

    fn page(&self, address: u64, _: u8) -> u64 {
        self.pages
            .borrow()
            .iter()
            .rev()
            .find(|(at, _)| *at == address)
            .map_or(0, |(_, value)| *value)
    }

    fn set_page(&self, address: u64, _: u8, value: u64) {
        self.pages.borrow_mut().push((address, value));
    }

    fn wait(&self, _: u32, _: impl Fn() -> bool) -> bool {
        true
    }

    fn message(&self, _: &Function, [low, high, event]: [u32; 3]) -> Result<[u32; 3], Denied> {
        if [low, high] == TO && event < 8 { Ok([low, high, event + 0x100]) } else { Err(Denied) }
    }

    fn sends(&self, [_, _, event]: [u32; 3]) -> u64 {
        u64::from(event) << 40
    }

    fn ring(&self, bell: u32) {
        panic!("doorbell {bell} is rung")
    }

    fn line(&self, line: u32) -> u64 {
        u64::from(line) << 44
    }

    fn aim(&self, at: usize, word: u64) {
        assert_eq!(at, 6);
        self.aimed.set(Some(word));
    }
}

fn function() -> Function {
    Function {
        msi: MSI,
        msi_data: MSI + 12,
        shadow: 4,
        trap: TABLE,
        trap_len: 0x1000,
        table: TABLE,
        vectors: 1,
        msix: MSIX,
        ..Function::default()
    }
}

#[test]
fn a_message_is_written_as_the_architecture_has_it() {
    for (event, expected) in [(7, Ok(0)), (8, Err(Denied))] {
        let (odd, f) = (Odd::default(), function());
        for (offset, value) in [(4, TO[0]), (8, TO[1]), (12, event)] {
            assert_eq!(config(&odd, &f, MSI + offset, 4, Some(value)), Ok(0));
        }
        assert_eq!(config(&odd, &f, MSI, 4, Some(ENABLE)), expected);
        let written = [4, 8, 12].map(|offset| odd.config(&f, MSI + offset));
        let on = odd.config(&f, MSI) & ENABLE != 0;
        match expected {
            Ok(_) => assert_eq!((written, on), ([TO[0], TO[1], 0x107], true)),
            Err(_) => assert_eq!((written, on), ([0; 3], false)),
        }
        // The guest reads its own message.
        assert_eq!(config(&odd, &f, MSI + 12, 4, None), Ok(event));
    }
}

#[test]
fn an_entry_that_is_denied_stays_masked() {
    for (event, expected) in [(3, Ok(0)), (9, Err(Denied))] {
        let (odd, f) = (Odd::default(), function());
        odd.set_shadow(7, 1);
        let address = u64::from(TO[1]) << 32 | u64::from(TO[0]);
        assert_eq!(table(&odd, &f, TABLE, 8, Some(address)), Ok(0));
        assert_eq!(table(&odd, &f, TABLE + 8, 4, Some(event)), Ok(0));
        assert_eq!(table(&odd, &f, TABLE + 12, 4, Some(0)), expected);
        assert_eq!(odd.page(TABLE + 12, 4), u64::from(expected.is_err()));
        let event = if expected.is_ok() { event + 0x100 } else { 0 };
        assert_eq!(odd.page(TABLE + 8, 4), event);
    }
}

#[test]
fn interrupts_of_a_channels_end_go_by_the_architectures_word() {
    let end_of = |line| Function { state: 1, end: END, woken: 7, line, ..function() };
    let odd = Odd::default();
    odd.set_page(END + end::CONTROL, 4, 1);
    // Without MSI-X by its line.
    assert_eq!(aim(&odd, &end_of(5)), Ok(()));
    assert_eq!(odd.aimed.get(), Some(5 << 44));
    // With it by its entry, if that is allowed.
    let f = end_of(5);
    odd.set_config(&f, MSIX, 1 << 31);
    for (event, expected) in [(2, Ok(())), (8, Err(Denied))] {
        [TO[0], TO[1], event, 0]
            .into_iter()
            .zip(4..)
            .for_each(|(value, word)| odd.set_shadow(word, value));
        assert_eq!(aim(&odd, &f), expected);
        let word = if expected.is_ok() { (0x100 + u64::from(event)) << 40 } else { 0 };
        assert_eq!(odd.aimed.get(), Some(word));
    }
}
