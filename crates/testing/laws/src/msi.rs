//! A function's configuration space, and the message that it is told to send (PCI 3.0, 6.8.1; APM 16.12).

use crate::Lawful;
use crate::icr::owns;
use bulkhead_monitor_abi::pci::{Function, Register};
use bulkhead_monitor_abi_x86::icr::Ids;
use bulkhead_pci::x86::{self, Routes};
use bulkhead_pci::{Denied, Hardware, Rule, config};
use core::cell::Cell;

/// Offset of the MSI capability.
const MSI: u16 = 0x50;
const ENABLE: u32 = 1 << 16;
/// Bits of a plain register that its owner may write, and those beside them that stay.
const PLAIN: [u32; 2] = [0x0000_0F0F, 0x00F0_0000];
const PLAIN_AT: u16 = 0x44;

/// Registers of a function with a 64-bit MSI capability, one plain register, and no IOMMU before it.
const REGISTERS: [Register; 5] = {
    let none = Register {
        offset: 0,
        kind: Register::PLAIN,
        write: 0,
        keep: u32::MAX,
        set: 0,
        hold: 0,
        shadow: 0,
    };
    let message = Register { kind: Register::MESSAGE, write: u32::MAX, ..none };
    [
        Register { offset: PLAIN_AT, write: PLAIN[0], hold: PLAIN[1], ..none },
        Register { offset: MSI, kind: Register::MSI, write: ENABLE, ..none },
        Register { offset: MSI + 4, ..message },
        Register { offset: MSI + 8, shadow: 1, ..message },
        Register { offset: MSI + 12, shadow: 2, ..message },
    ]
};

/// A function that keeps what is written to it, and notes what must not be.
struct Kept<'a> {
    own: &'a Ids,
    /// Configuration space from 0x40 to 0x60.
    words: [Cell<u32>; 8],
    shadow: [Cell<u32>; 3],
    strayed: Cell<bool>,
    without: Option<Rule>,
}

impl Kept<'_> {
    fn at(&self, offset: u16) -> Option<&Cell<u32>> {
        self.words.get(usize::from(offset.wrapping_sub(0x40)) / 4)
    }
}

impl Hardware for Kept<'_> {
    fn registers(&self, _: &Function) -> &[Register] {
        &REGISTERS
    }
    fn config(&self, _: &Function, offset: u16) -> u32 {
        self.at(offset).map_or(0, Cell::get)
    }
    fn set_config(&self, _: &Function, offset: u16, value: u32) {
        let named = REGISTERS.iter().any(|r| r.offset == offset);
        match self.at(offset) {
            Some(word) if named => word.set(value),
            _ => self.strayed.set(true),
        }
    }
    fn shadow(&self, word: u32) -> u32 {
        self.shadow.get(word as usize).map_or(0, Cell::get)
    }
    fn set_shadow(&self, word: u32, value: u32) {
        match self.shadow.get(word as usize) {
            Some(word) => word.set(value),
            None => self.strayed.set(true),
        }
    }
    fn page(&self, _: u64, _: u8) -> u64 {
        0
    }
    fn set_page(&self, _: u64, _: u8, _: u64) {
        self.strayed.set(true);
    }
    fn wait(&self, _: u32, _: impl Fn() -> bool) -> bool {
        false
    }
    fn message(&self, function: &Function, wanted: [u32; 3]) -> Result<[u32; 3], Denied> {
        x86::message(self, function, wanted)
    }
    fn sends(&self, message: [u32; 3]) -> u64 {
        x86::sends(message)
    }
    fn ring(&self, _: u32) {
        self.strayed.set(true);
    }
    fn line(&self, _: u32) -> u64 {
        0
    }
    fn aim(&self, _: usize, _: u64) {
        self.strayed.set(true);
    }
    fn holds(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}

impl Routes for Kept<'_> {
    fn owns_core(&self, id: u32) -> bool {
        owns(self.own, id)
    }
    fn entry(&self, _: u32, _: u8) -> u32 {
        0
    }
    fn remap(&self, _: &Function, _: usize) -> Option<u32> {
        None
    }
    fn set_remap(&self, _: &Function, _: usize, _: u32) -> bool {
        false
    }
}

fn function(own: &Ids, without: Option<Rule>) -> (Kept<'_>, Function) {
    let words = [const { Cell::new(0) }; 8];
    let shadow = [const { Cell::new(0) }; 3];
    let function = Function { msi: MSI, msi_data: MSI + 12, ..Function::default() };
    (Kept { own, words, shadow, strayed: Cell::new(false), without }, function)
}

/// An owner writes address, upper half and data of a message, and switches it on. It is on only under these conditions,
/// and then it is the requested interrupt:
/// * it goes to a core of the owner's, fixed or of lowest priority, by an edge;
/// * an APIC accepts the vector.
///
/// `without` leaves a rule out, for tests of this.
///
/// # Errors
/// The law that is broken, in words.
pub fn sent(own: &Ids, [address, upper, data]: [u32; 3], without: Option<Rule>) -> Lawful {
    let (kept, function) = function(own, without);
    for (offset, value) in [(4, address), (8, upper), (12, data)] {
        if config(&kept, &function, MSI + offset, 4, Some(value)) != Ok(0) {
            return Err("what is off is refused");
        }
    }
    let switched = config(&kept, &function, MSI, 4, Some(ENABLE));
    let on = kept.config(&function, MSI) & ENABLE != 0;
    let [to, to_upper, sends] = [4, 8, 12].map(|at| kept.config(&function, MSI + at));
    let (core, vector) = (to >> 12 & 0xFF, sends & 0xFF);
    let harmless = address & !0xFF000 == 0xFEE0_0000
        && upper == 0
        && data & !0x41FF == 0
        && data & 0xFF >= 16
        && address >> 12 & 0xFF != 0xFF
        && owns(own, address >> 12 & 0xFF);
    if kept.strayed.get() {
        Err("it writes what is none of it")
    } else if on != switched.is_ok() {
        Err("on, and denied; or off, and not denied")
    } else if on != harmless {
        Err("on, and harmful; or off, and harmless")
    } else if on && (to & !0xFF000 != 0xFEE0_0000 || to_upper != 0 || sends & !0xFF != 0) {
        Err("not what an interrupt looks like")
    } else if on && (core, vector) != (address >> 12 & 0xFF, data & 0xFF) {
        Err("another interrupt")
    } else {
        Ok(on)
    }
}

/// Any access to the configuration space, where a plain register held `old`. An access that is not within one register
/// is denied. Only named registers are written, and in a plain one only the bits that its owner may write.
///
/// # Errors
/// The law that is broken, in words.
pub fn accessed(
    offset: u16,
    size: u8,
    write: Option<u32>,
    old: u32,
    without: Option<Rule>,
) -> Lawful {
    let own = Ids::default();
    let (kept, function) = function(&own, without);
    let place = kept.at(PLAIN_AT).ok_or("no register")?;
    place.set(old);
    let done = config(&kept, &function, offset, size, write);
    let (byte, bits) = (u32::from(offset & 3), 8 * u32::from(size));
    let within = matches!(size, 1 | 2 | 4) && byte + u32::from(size) <= 4;
    let mask = if within { (u32::MAX >> (32 - bits)) << (8 * byte) } else { 0 };
    let here = offset & 0xFFC == PLAIN_AT && write.is_some() && PLAIN[0] & mask != 0;
    let writable = if here { PLAIN[0] & mask } else { 0 };
    let wanted = write.unwrap_or(0).checked_shl(8 * byte).unwrap_or(0);
    // Beside what is written, what 1 clears is written as 0.
    let held = if here { old & (PLAIN[1] | PLAIN[0]) } else { old };
    if done.is_ok() && !within {
        Err("not within one register")
    } else if kept.strayed.get() {
        Err("it writes what nobody named")
    } else if place.get() != held & !writable | wanted & writable {
        Err("other bits are written, or other values")
    } else if let (None, Ok(value)) = (write, done)
        && bits < 32
        && value >> bits != 0
    {
        Err("a read gives more than its bytes")
    } else {
        Ok(done.is_ok())
    }
}
