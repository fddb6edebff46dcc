//! A sandbox with two functions, the first of which does not come to rest.

use bulkhead_monitor_abi::pci::{COMMAND, Function, Register};
use bulkhead_pci::{Denied, Hardware, config, stop_all};
use bulkhead_pci_fake::{Fake, all};
use bulkhead_plan::Granted;

/// The one that hangs, and one with a reset of PCI's.
struct Two {
    hangs: Fake,
    other: Fake,
}

/// Address of the other one; the fakes share it.
const OTHER: u32 = 0x0020;

impl Two {
    fn of(&self, function: &Function) -> &Fake {
        if function.bdf == OTHER { &self.other } else { &self.hangs }
    }

    fn at(&self, address: u64) -> &Fake {
        let f = self.other.function();
        if address.wrapping_sub(f.trap) < f.trap_len { &self.other } else { &self.hangs }
    }
}

impl Hardware for Two {
    fn registers(&self, function: &Function) -> &[Register] {
        self.of(function).registers(function)
    }

    fn config(&self, function: &Function, offset: u16) -> u32 {
        self.of(function).config(function, offset)
    }

    fn set_config(&self, function: &Function, offset: u16, value: u32) {
        self.of(function).set_config(function, offset, value);
    }

    fn shadow(&self, word: u32) -> u32 {
        panic!("shadow {word} is read")
    }

    fn set_shadow(&self, word: u32, _: u32) {
        panic!("shadow {word} is written")
    }

    fn wait(&self, milliseconds: u32, done: impl Fn() -> bool) -> bool {
        self.hangs.wait(milliseconds, done)
    }

    fn page(&self, address: u64, size: u8) -> u64 {
        self.at(address).page(address, size)
    }

    fn set_page(&self, address: u64, size: u8, value: u64) {
        self.at(address).set_page(address, size, value);
    }

    fn message(&self, _: &Function, wanted: [u32; 3]) -> Result<[u32; 3], Denied> {
        panic!("message {wanted:x?} is asked for")
    }

    fn sends(&self, message: [u32; 3]) -> u64 {
        panic!("the word of {message:x?} is asked for")
    }

    fn ring(&self, bell: u32) {
        panic!("doorbell {bell} is rung")
    }

    fn line(&self, line: u32) -> u64 {
        panic!("line {line} is asked for")
    }

    fn aim(&self, word: usize, _: u64) {
        panic!("word {word} is written")
    }
}

#[test]
fn one_that_goes_on_keeps_no_other_from_being_stopped() {
    let flr = |g: &Granted| g.function.pcie.is_some_and(|c| c.flr);
    let granted = all();
    let hangs = granted.iter().find(|g| !flr(g) && !g.function.reset.is_empty()).unwrap();
    let other = granted.iter().find(|g| flr(g)).unwrap();
    let two = Two { hangs: Fake::new(hangs, true), other: Fake::new(other, true) };
    let functions = [*two.hangs.function(), Function { bdf: OTHER, ..*two.other.function() }];
    for function in &functions {
        config(&two, function, COMMAND, 2, Some(6)).unwrap();
    }
    two.hangs.hang();
    let steps = [two.hangs.steps(), two.other.steps()];
    let result = stop_all(&two, functions.iter().zip(steps));
    assert_eq!(result, Err(hangs.function.reset[0].at));
    for fake in [&two.hangs, &two.other] {
        assert_eq!(fake.hardware(COMMAND) & 6, 2, "it reaches memory, or is out of reach");
        fake.wrong().unwrap();
    }
}
