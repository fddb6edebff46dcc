//! Messages of a function that its owner uses already, before its monitor mediates them. No message gets lost.
//!
//! The order is [`note`], [`lead`], the IOMMU is switched on, [`translate`]. The way back is [`restore`], the IOMMU is
//! switched off, [`open`]. The function has no other user meanwhile.

use crate::x86::{Routes, message};
use crate::{Denied, ENABLE, Hardware, MASKED, entry, message_registers};
use bulkhead_monitor_abi::pci::{Function, Register};

/// Bits of a message's data that are an index of a remapping table.
const INDEX: u32 = 0x1FF;

/// Notes what the function sends, and that its base address registers are as they are shown.
///
/// # Errors
/// Offset of one that the host found elsewhere.
pub fn note(hw: &impl Hardware, function: &Function) -> Result<(), u16> {
    let bars = || hw.registers(function).iter().filter(|r| r.kind == Register::BAR);
    let moved = |r: &&Register| hw.config(function, r.offset) & r.write != r.keep & r.write;
    if let Some(register) = bars().find(moved) {
        return Err(register.offset);
    }
    bars().for_each(|r| hw.set_shadow(r.shadow, r.keep));
    if function.msi != 0 {
        for (n, at) in (0..).zip(msi(function)) {
            // Bits 31:16 of the last register are no data.
            let mask = if n == 2 { 0xFFFF } else { u32::MAX };
            let value = at.map_or(0, |at| hw.config(function, at) & mask);
            hw.set_shadow(function.msi_shadow.wrapping_add(n), value);
        }
    }
    for word in 0..function.vectors * 4 {
        let value = hw.page(function.table.wrapping_add(u64::from(word) * 4), 4) as u32;
        hw.set_shadow(function.shadow.wrapping_add(word), value);
    }
    Ok(())
}

/// Notes a channel's end, which nobody has used: its base address registers, and that its entries are masked.
pub fn begin(hw: &impl Hardware, end: &Function) {
    let bars = hw.registers(end).iter().filter(|r| r.kind == Register::BAR);
    bars.for_each(|r| hw.set_shadow(r.shadow, r.keep));
    let control = |number: u32| end.shadow.wrapping_add(number * 4 + 3);
    (0..end.vectors).for_each(|number| hw.set_shadow(control(number), MASKED));
}

/// Registers of MSI: address, its upper half if there is one, data.
fn msi(function: &Function) -> [Option<u16>; 3] {
    let address = function.msi.wrapping_add(4);
    let upper = function.msi.wrapping_add(8);
    [Some(address), Some(upper).filter(|at| *at < function.msi_data), Some(function.msi_data)]
}

/// Returns the message that MSI sends, if it is on.
pub fn of_msi(hw: &impl Hardware, function: &Function) -> Option<[u32; 3]> {
    let on = function.msi != 0 && hw.config(function, function.msi) & ENABLE != 0;
    let word = |n| hw.shadow(function.msi_shadow.wrapping_add(n));
    on.then(|| [word(0), word(1), word(2)])
}

/// Returns the message of an entry of MSI-X, if it is not masked.
fn of_entry(hw: &impl Hardware, function: &Function, number: u32) -> Option<[u32; 3]> {
    let word = |n: u32| hw.shadow(function.shadow.wrapping_add(number * 4 + n));
    (word(3) & MASKED == 0).then(|| [word(0), word(1), word(2)])
}

fn control(function: &Function, number: u32) -> u64 {
    function.table.wrapping_add(u64::from(number) * 16 + 12)
}

/// Fills the function's remapping table so that each message finds its way as it is. Two entries of MSI-X can have one
/// index: then the second one is masked, and waits.
///
/// # Errors
/// [`Denied`]: a message that its owner may not send.
pub fn lead(hw: &impl Routes, function: &Function) -> Result<(), Denied> {
    let way = |wanted: [u32; 3]| -> Result<bool, Denied> {
        let slot = message(hw, function, wanted)?[2] as usize;
        let own = hw.remap(function, slot).unwrap_or(0);
        let at = (wanted[2] & INDEX) as usize;
        Ok(hw.set_remap(function, at, own) || hw.remap(function, at) == Some(own))
    };
    if let Some(wanted) = of_msi(hw, function) {
        /// Multiple message enable: the function counts messages up in the data's low bits.
        const SEVERAL: u32 = 0b111 << 20;
        if hw.config(function, function.msi) & SEVERAL != 0 {
            return Err(Denied);
        }
        way(wanted)?;
    }
    for number in 0..function.vectors {
        if let Some(wanted) = of_entry(hw, function, number)
            && !way(wanted)?
        {
            mask(hw, function, number);
        }
    }
    Ok(())
}

/// Masks an entry of MSI-X. The read makes sure that the function has seen it, and that no message is on its way.
fn mask(hw: &impl Hardware, function: &Function, number: u32) {
    hw.set_page(control(function, number), 4, u64::from(MASKED));
    hw.page(control(function, number), 4);
}

/// Lets each message name its entry of the remapping table. Both the old and the new form of one are right meanwhile.
///
/// # Errors
/// [`Denied`]: see [`lead`], which has found it before.
pub fn translate(hw: &impl Routes, function: &Function) -> Result<(), Denied> {
    if of_msi(hw, function).is_some() {
        message_registers(hw, function)?;
    }
    let open = (0..function.vectors).filter(|n| of_entry(hw, function, *n).is_some());
    open.map(|number| entry(hw, function, number.into())).fold(Ok(()), Result::and)
}

/// Writes messages as the owner wants them. Entries of MSI-X are masked, and wait. The message of MSI may get lost.
pub fn restore(hw: &impl Hardware, function: &Function) {
    if function.msi != 0 {
        for (n, at) in (0..).zip(msi(function)) {
            if let Some(at) = at {
                hw.set_config(function, at, hw.shadow(function.msi_shadow.wrapping_add(n)));
            }
        }
    }
    for number in 0..function.vectors {
        mask(hw, function, number);
        for word in number * 4..number * 4 + 3 {
            let value = hw.shadow(function.shadow.wrapping_add(word));
            hw.set_page(function.table.wrapping_add(u64::from(word) * 4), 4, u64::from(value));
        }
    }
}

/// Opens the entries of MSI-X that their owner has open.
pub fn open(hw: &impl Hardware, function: &Function) {
    for number in 0..function.vectors {
        let mask = hw.shadow(function.shadow.wrapping_add(number * 4 + 3));
        hw.set_page(control(function, number), 4, u64::from(mask));
    }
}
