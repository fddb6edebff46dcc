//! Messages of x86: they name a local APIC and a vector, or an entry of the IOMMU's.

use crate::{Denied, Hardware, MASKED, Rule};
use bulkhead_monitor_abi::pci::{Function, Remapping, SLOTS};

/// Addresses of messages.
const WINDOW: u32 = 0xFEE0_0000;

/// Ways of a sandbox's messages.
pub trait Routes: Hardware {
    /// Tells if a local APIC is one of the sandbox's.
    fn owns_core(&self, id: u32) -> bool;
    /// Returns the own core that alone has these logical names (APM 16.6.1), where a guest can use some.
    fn named(&self, _: u8) -> Option<u32> {
        None
    }
    /// Returns the number of the entry for a vector on an own core, counted from the sandbox's first one
    /// ([`Remapping::Entries`]).
    fn entry(&self, core: u32, vector: u8) -> u32;
    /// Returns an entry of the function's remapping table, if it has one.
    fn remap(&self, function: &Function, slot: usize) -> Option<u32>;
    /// Makes an entry that is 0 so; false if it is not 0 any more.
    fn set_remap(&self, function: &Function, slot: usize, entry: u32) -> bool;
    /// Makes all entries 0 but those that are [`used`], and has the IOMMU forget the function's; false if it cannot.
    fn empty(&self, _: &Function) -> bool {
        false
    }
}

/// Entries of a remapping table, as a set.
pub type Used = [u64; SLOTS / 64];

/// Returns the word that sends the interrupt of a message without a remapping, as an ICR takes it.
#[must_use]
pub fn sends([address, _, vector]: [u32; 3]) -> u64 {
    u64::from(address >> 12 & 0xFF) << 32 | u64::from(vector)
}

/// Translates a message of the guest's for the hardware: address, upper half, data (APM 16.12; AMD IOMMU specification,
/// 2.2.5).
///
/// # Errors
/// [`Denied`]: not fixed or of lowest priority by an edge, or not to an own core with a vector that an APIC accepts.
pub fn message(
    hw: &impl Routes,
    function: &Function,
    [address, upper, data]: [u32; 3],
) -> Result<[u32; 3], Denied> {
    const DESTINATION: u32 = 0xFF000;
    /// The destination is a logical one.
    const LOGICAL: u32 = 1 << 2;
    /// All cores, even where one has this ID.
    const BROADCAST: u32 = 0xFF;
    /// Vector; fixed or lowest priority; the level's assertion, which an edge ignores.
    const ALLOWED: u32 = 0xFF | 1 << 8 | 1 << 14;
    let (mut address, mut core, vector) = (address, address >> 12 & 0xFF, data & 0xFF);
    if let Some(named) = hw.named(core as u8).filter(|_| address & LOGICAL != 0) {
        // The hardware never gets names: in x2APIC mode another sandbox' core could have them.
        (core, address) = (named, address & !(DESTINATION | LOGICAL) | named << 12);
    }
    // Physical destination by now, without a redirection hint (bits 2 and 3), edge. The end of a level-triggered one
    // would reach the IOAPIC, and there another sandbox' line of that vector.
    let known = address & !DESTINATION == WINDOW && upper == 0 && data & !ALLOWED == 0;
    if !known && hw.holds(Rule::Message) || vector < 16 && hw.holds(Rule::Vector) {
        return Err(Denied);
    }
    let remapping = function.remapping();
    if !known && matches!(remapping, Remapping::Entries(_)) {
        // In a build without the rule, to see that the IOMMU refuses another's entry.
        return Ok([address, upper, data]);
    }
    if core == BROADCAST || !hw.owns_core(core) {
        return Err(Denied);
    }
    if let Remapping::Entries(first) = remapping {
        /// An index of 16 bits, the highest of them apart (VT-d specification, 5.1.2.2). The data is not looked at.
        const INDEXED: u32 = WINDOW | 1 << 4;
        let index = first.wrapping_add(hw.entry(core, vector as u8));
        return Ok([INDEXED | (index & 0x7FFF) << 5 | (index >> 15 & 1) << 2, 0, 0]);
    }
    if hw.remap(function, 0).is_none() {
        return Ok([WINDOW | core << 12, 0, vector]);
    }
    let wanted = 1 | core << 8 | vector << 16;
    let named = || (0..SLOTS).find(|slot| fits(hw, function, *slot, wanted));
    // An entry is filled in at no cost, since the IOMMU holds none that is 0. So old ones go only once all are filled.
    let slot = named().or_else(|| if hw.empty(function) { named() } else { None });
    slot.map(|slot| [WINDOW, 0, slot as u32]).ok_or(Denied)
}

/// Tells if an entry sends a message, and fills it if it is 0.
fn fits(hw: &impl Routes, function: &Function, slot: usize, wanted: u32) -> bool {
    match hw.remap(function, slot) {
        Some(0) => hw.set_remap(function, slot, wanted),
        entry => entry == Some(wanted),
    }
}

/// Finds the entries that the hardware's messages name. An entry of MSI-X that is masked gets a new one when it is
/// opened. The reads come after all messages that the function has sent.
#[must_use]
pub fn used(hw: &impl Routes, function: &Function) -> Used {
    let mut used = Used::default();
    let mut add = |data: u32| {
        let slot = data as usize % SLOTS;
        if let Some(word) = used.get_mut(slot / 64) {
            *word |= 1 << (slot % 64);
        }
    };
    if function.msi != 0 {
        add(hw.config(function, function.msi_data));
    }
    for number in 0..u64::from(function.vectors) {
        let at = function.table.wrapping_add(number * 16);
        if hw.page(at.wrapping_add(12), 4) as u32 & MASKED == 0 {
            add(hw.page(at.wrapping_add(8), 4) as u32);
        }
    }
    used
}
