//! QEMU's `edu`, 00:08.0: it carries bytes between memory and a buffer of its own (QEMU, docs/specs/edu).

use bulkhead_scenarios::edu::{
    BUFFER, COMMAND, COUNT, DESTINATION, LIVENESS, RAISE, SOURCE, START, TO_RAM,
};
use bulkhead_sdk::{Moved, pci};

/// Its configuration space.
pub const FUNCTION: pci::Function = pci::Function(0x40);
/// Its registers, by the machine description.
const REGISTERS: u64 = 0xFEA0_0000;

fn load(offset: u64) -> u64 {
    // SAFETY: the device's registers: a read there changes nothing that this program relies on.
    unsafe { u64::load(REGISTERS + offset) }
}

fn store(offset: u64, value: u64) {
    // SAFETY: the device's registers. It reaches memory of the role alone, which is shared and atomic here.
    unsafe { value.store(REGISTERS + offset) }
}

/// Tells if the device answers.
pub fn answers() -> bool {
    const WORD: u32 = 0x1234_5678;
    // SAFETY: as in `load` and `store`, by 32 bits: the register is one of these.
    unsafe {
        WORD.store(REGISTERS + LIVENESS);
        u32::load(REGISTERS + LIVENESS) == !WORD
    }
}

/// Starts to carry a page to the device's buffer, or from there.
pub fn start(page: u64, to_ram: bool) {
    let (from, to) = if to_ram { (BUFFER, page) } else { (page, BUFFER) };
    store(SOURCE, from);
    store(DESTINATION, to);
    store(COUNT, 4096);
    store(COMMAND, START | if to_ram { TO_RAM } else { 0 });
}

/// Tells if it still carries.
pub fn busy() -> bool {
    load(COMMAND) & START != 0
}

/// Has it send a message: by its capability, and then by its register for that.
pub fn send_to(target: u32, vector: u32) {
    /// Offset of its MSI capability, by the machine description; enable.
    const MSI: u16 = 0x40;
    const ENABLE: u32 = 1 << 16;
    FUNCTION.write(MSI + 4, target);
    FUNCTION.write(MSI + 8, 0);
    FUNCTION.write(MSI + 12, vector);
    FUNCTION.write(MSI, ENABLE);
    store(RAISE, 1);
}

/// Starts a write to where messages go.
pub fn forge(target: u64) {
    store(SOURCE, BUFFER);
    store(DESTINATION, target);
    store(COUNT, 4);
    store(COMMAND, START | TO_RAM);
}
