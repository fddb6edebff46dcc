//! A monitor's treatment of accesses to PCI: to a function's configuration space, or to a page that holds an MSI-X
//! table. Portable; the hardware is behind [`Hardware`].
//!
//! It keeps three things true. A BAR stays where the host put it. A message is an interrupt that the sandbox may raise,
//! on one of its cores. Elsewhere only the bits that the host allowed are ever written.
//!
//! Encodings of messages are the architecture's: [`Hardware::message`].
#![no_std]

pub mod late;
pub mod x86;

use bulkhead_monitor_abi::PAGE;
use bulkhead_monitor_abi::pci::{COMMAND, Function, INTX_OFF, Register, Reset, end};

/// The machine, as the logic needs it. Two cores of a sandbox come one after the other: a reset in the midst of
/// another's access would move its BARs.
pub trait Hardware {
    /// Returns the registers of a function that are particular.
    fn registers(&self, function: &Function) -> &[Register];
    /// Reads a register of the configuration space.
    fn config(&self, function: &Function, offset: u16) -> u32;
    /// Writes it.
    fn set_config(&self, function: &Function, offset: u16, value: u32);
    /// Returns a word of shadow.
    fn shadow(&self, word: u32) -> u32;
    /// Sets it.
    fn set_shadow(&self, word: u32, value: u32);
    /// Reads 1, 2, 4 or 8 bytes of a trapped page, or of one with a register that
    /// resets the function.
    fn page(&self, address: u64, size: u8) -> u64;
    /// Writes them.
    fn set_page(&self, address: u64, size: u8, value: u64);
    /// Waits for so many milliseconds, or until something is done: then it is true.
    fn wait(&self, milliseconds: u32, done: impl Fn() -> bool) -> bool;
    /// Translates a message of the guest's for the hardware: address, upper half, data.
    ///
    /// # Errors
    /// [`Denied`]: it is not an interrupt that the sandbox may raise on one of its cores.
    fn message(&self, function: &Function, wanted: [u32; 3]) -> Result<[u32; 3], Denied>;
    /// Returns the word by which a monitor sends the interrupt of a message that [`Self::message`] has allowed.
    fn sends(&self, message: [u32; 3]) -> u64;
    /// Rings a doorbell of the sandbox's.
    fn ring(&self, bell: u32);
    /// Finds where the guest's own table sends a line, as such a word; 0: nowhere.
    fn line(&self, line: u32) -> u64;
    /// Says where interrupts of a channel go, in a word of the sandbox's.
    fn aim(&self, at: usize, word: u64);
    /// Tells if a rule is enforced: all are, but for the mutation gate.
    fn holds(&self, _: Rule) -> bool {
        true
    }
}

/// A check of an access, besides that of a core's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It is within one register.
    Form,
    /// An offset for which the host named no register is not written.
    Unnamed,
    /// A bridge stays as it is.
    Fixed,
    /// A message has the form of an ordinary interrupt to one core.
    Message,
    /// Its interrupt is one that devices may raise.
    Vector,
    /// The MSI-X table is accessed by 32 or 64 bits, a channel's registers by 32.
    Table,
}

/// An access that is denied: the hardware goes on as before, or is masked. The guest nevertheless reads back a message
/// that is not allowed, as it wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;

/// MSI control: enable.
const ENABLE: u32 = 1 << 16;
/// MSI-X vector control: mask.
const MASKED: u32 = 1;

/// Reads, or writes where `write` says what, `size` bytes (1, 2, 4) at `offset`
/// of a function's configuration space. A write gives 0.
///
/// # Errors
/// [`Denied`]: not within one register, a BAR that would move, a message beyond
/// the sandbox's right.
pub fn config(
    hw: &impl Hardware,
    function: &Function,
    offset: u16,
    size: u8,
    write: Option<u32>,
) -> Result<u32, Denied> {
    let at = offset & 0xFFC;
    let byte = u32::from(offset & 3);
    let within = matches!(size, 1 | 2 | 4) && byte + u32::from(size) <= 4;
    if !within && hw.holds(Rule::Form) {
        return Err(Denied);
    }
    let shift = byte * 8;
    let mask = u32::MAX >> (32u32.saturating_sub(8 * u32::from(size)) & 31);
    let register = hw.registers(function).iter().find(|r| r.offset == at);
    let Some(value) = write else {
        return Ok(read(hw, function, at, register) >> shift & mask);
    };
    match register {
        Some(register) => store(hw, function, register, (value & mask) << shift, mask << shift)
            .and_then(|()| aim(hw, function)),
        None => {
            if !hw.holds(Rule::Unnamed) {
                hw.set_config(function, at, value);
            }
            Ok(())
        }
    }?;
    Ok(0)
}

fn read(hw: &impl Hardware, function: &Function, at: u16, register: Option<&Register>) -> u32 {
    match register {
        None => hw.config(function, at),
        Some(r) if r.kind == Register::BAR => hw.shadow(r.shadow) & r.write | r.set,
        Some(r) if r.kind == Register::MESSAGE => hw.shadow(r.shadow),
        Some(r) => hw.config(function, at) & r.keep | r.set,
    }
}

/// Writes the `bytes` of a register.
fn store(
    hw: &impl Hardware,
    function: &Function,
    r: &Register,
    value: u32,
    bytes: u32,
) -> Result<(), Denied> {
    let merged = |old: u32| old & !bytes | value;
    match r.kind {
        Register::BAR => {
            let new = merged(hw.shadow(r.shadow)) & r.write;
            // All ones asks for its size, 0 takes it out of use: it stays nevertheless.
            if new != r.write && new != r.keep & r.write && new != 0 {
                return Err(Denied);
            }
            hw.set_shadow(r.shadow, new);
        }
        Register::FIXED => {
            let changed = (hw.config(function, r.offset) ^ value) & r.write & bytes != 0;
            if changed && hw.holds(Rule::Fixed) {
                return Err(Denied);
            }
        }
        Register::MESSAGE => {
            hw.set_shadow(r.shadow, merged(hw.shadow(r.shadow)));
            if hw.config(function, function.msi) & ENABLE != 0 {
                message_registers(hw, function)?;
            }
        }
        Register::MSI => {
            let enable = merged(hw.config(function, r.offset)) & ENABLE;
            if enable != 0 {
                message_registers(hw, function)?;
            }
            hw.set_config(function, r.offset, enable);
        }
        _ => {
            let bits = r.write & bytes;
            if bits == 0 {
                return Ok(());
            }
            let placed = if r.kind == Register::COMMAND { place(hw, function) } else { Ok(()) };
            // Without its BARs in their places a function decodes nothing and reaches no memory.
            let set = if placed.is_ok() { value & bits | r.set } else { INTX_OFF };
            let held = hw.config(function, r.offset) & (r.hold | r.write & !bytes);
            hw.set_config(function, r.offset, held | set);
            placed?;
        }
    }
    Ok(())
}

/// Puts the BARs where they belong: a reset by power management or FLR has moved
/// them to 0. While it lasts they stay there.
fn place(hw: &impl Hardware, function: &Function) -> Result<(), Denied> {
    let bars = || hw.registers(function).iter().filter(|b| b.kind == Register::BAR);
    bars().for_each(|b| hw.set_config(function, b.offset, b.keep));
    let there = |b: &Register| hw.config(function, b.offset) & b.write == b.keep & b.write;
    if bars().all(there) { Ok(()) } else { Err(Denied) }
}

/// Stops a function: no DMA, no message, nothing left of its state. A reset that is tried counts if the function has
/// shown all that the try waits for. Otherwise the steps in its place are carried out, too.
///
/// # Errors
/// The address of a register that did not show in time that the function is at rest.
/// Its DMA and its messages are off, until somebody switches them on again.
pub fn stop(hw: &impl Hardware, function: &Function, steps: &[Reset]) -> Result<(), u64> {
    let (mut at_rest, mut shown) = (Ok(()), true);
    for step in steps {
        if step.when == if shown { Reset::ELSE } else { Reset::TRY } {
            continue;
        }
        let (at, size) = (step.at, step.size);
        let bits = || hw.page(at, size) as u32 & step.mask;
        match step.kind {
            Reset::STORE => {
                let kept = if step.mask == 0 { 0 } else { bits() };
                hw.set_page(at, size, u64::from(kept | step.value));
            }
            Reset::AWAIT if hw.wait(step.wait, || bits() == step.value) => {}
            Reset::AWAIT if step.when == Reset::TRY => shown = false,
            Reset::AWAIT => at_rest = Err(at),
            _ => {
                // The registers' masks hold for this, too.
                let _ = config(hw, function, step.at as u16, 4, Some(step.value));
                hw.wait(step.wait, || false);
            }
        }
    }
    mask(hw, function);
    at_rest
}

/// Stops functions as [`stop`] does: each of them, also after one that goes on.
///
/// # Errors
/// That of the first one that goes on.
pub fn stop_all<'a>(
    hw: &impl Hardware,
    all: impl Iterator<Item = (&'a Function, &'a [Reset])>,
) -> Result<(), u64> {
    all.map(|(function, steps)| stop(hw, function, steps)).fold(Ok(()), Result::and)
}

/// Masks every entry of the MSI-X table in the hardware, with the function's DMA and messages off. A function without a
/// reset still holds the messages of a former life.
fn mask(hw: &impl Hardware, function: &Function) {
    if function.vectors == 0
        || function.state != 0
        || config(hw, function, COMMAND, 2, Some(INTX_OFF)).is_err()
    {
        return;
    }
    for number in 0..u64::from(function.vectors) {
        let at = function.table.wrapping_add(number * 16);
        hw.set_page(at.wrapping_add(12), 4, u64::from(MASKED));
    }
}

/// Writes the MSI that the guest wants to the hardware.
fn message_registers(hw: &impl Hardware, function: &Function) -> Result<(), Denied> {
    let word = |n: u32| hw.shadow(function.msi_shadow.wrapping_add(n));
    let data = hw.message(function, [word(0), word(1), word(2)])?;
    let address = function.msi.wrapping_add(4);
    hw.set_config(function, address, data[0]);
    // As with the BARs: the first one that stays says that no reset lasts.
    if hw.config(function, address) != data[0] {
        return Err(Denied);
    }
    if function.msi_data > function.msi.wrapping_add(8) {
        hw.set_config(function, function.msi.wrapping_add(8), data[1]);
    }
    hw.set_config(function, function.msi_data, data[2]);
    Ok(())
}

/// Reads `size` bytes (1, 2, 4, 8), or writes those of `write`, in the pages that hold the function's MSI-X table. The
/// address is guest-physical.
///
/// # Errors
/// [`Denied`]: not aligned; an entry that would send beyond the sandbox's right
/// stays masked.
pub fn table(
    hw: &impl Hardware,
    function: &Function,
    address: u64,
    size: u8,
    write: Option<u64>,
) -> Result<u64, Denied> {
    if !matches!(size, 1 | 2 | 4 | 8) || address & (u64::from(size) - 1) != 0 {
        return Err(Denied);
    }
    let is_end = function.state != 0;
    if is_end && address.wrapping_sub(function.trap) < PAGE {
        return channel(hw, function, address & 0xFFF, size, write.unwrap_or(0));
    }
    let bytes = u64::from(function.vectors) * 16;
    let Some(offset) = address.checked_sub(function.table).filter(|offset| *offset < bytes) else {
        // Other registers of the owner's own function.
        return Ok(match write {
            // No pending bit: an interrupt that found no way comes when there is one.
            _ if is_end => 0,
            None => hw.page(address, size),
            Some(value) => {
                hw.set_page(address, size, value);
                0
            }
        });
    };
    // The specification knows 32 and 64 bits here (PCI 3.0, 6.8.2).
    if size < 4 && hw.holds(Rule::Table) {
        return Err(Denied);
    }
    let word = function.shadow.wrapping_add(offset as u32 / 4);
    let upper = (size == 8).then_some(word.wrapping_add(1));
    let Some(value) = write else {
        let high = upper.map_or(0, |upper| u64::from(hw.shadow(upper)));
        return Ok(u64::from(hw.shadow(word)) | high << 32);
    };
    hw.set_shadow(word, value as u32);
    if let Some(upper) = upper {
        hw.set_shadow(upper, (value >> 32) as u32);
    }
    match is_end {
        true => aim(hw, function)?,
        false => entry(hw, function, offset / 16)?,
    }
    Ok(0)
}

/// Writes a register of a channel's end (ivshmem version 2, register region): the guest reads the page itself,
/// and so does not come here. A write beside the registers has no effect.
fn channel(
    hw: &impl Hardware,
    function: &Function,
    offset: u64,
    size: u8,
    value: u64,
) -> Result<u64, Denied> {
    if size != 4 && hw.holds(Rule::Table) {
        return Err(Denied);
    }
    match offset {
        end::CONTROL => {
            hw.set_page(function.end + offset, 4, value & 1);
            aim(hw, function)?;
        }
        end::DOORBELL if value == u64::from(function.peer) << 16 && function.bell != 0 => {
            hw.ring(u32::from(function.bell) - 1);
        }
        end::STATE => {
            hw.set_page(function.end + offset, 4, value);
            hw.set_page(function.state, 4, value);
        }
        _ => {}
    }
    Ok(0)
}

/// Says where the interrupts of a channel's end go, after anything that decides on it: where its MSI-X table says, or
/// its line without MSI-X. The command register's bit against the line is not asked. The receiver's armed word holds
/// interrupts back, so none of them costs a write of that bit.
///
/// # Errors
/// [`Denied`]: beyond the sandbox's right. Then they go nowhere.
pub fn aim(hw: &impl Hardware, function: &Function) -> Result<(), Denied> {
    /// MSI-X control, bits 15:14: enable, mask of all.
    const ENABLED: u32 = 0b10;
    const ENABLED_AND_MASKED: u32 = 0b11;
    let Some(to) = usize::from(function.woken).checked_sub(1) else { return Ok(()) };
    let word = |n: u32| hw.shadow(function.shadow.wrapping_add(n));
    let found = match hw.config(function, function.msix) >> 30 {
        _ if hw.page(function.end + end::CONTROL, 4) & 1 == 0 => Ok(0),
        ENABLED if word(3) & MASKED == 0 => {
            hw.message(function, [word(0), word(1), word(2)]).map(|message| hw.sends(message))
        }
        ENABLED | ENABLED_AND_MASKED => Ok(0),
        _ => Ok(hw.line(function.line)),
    };
    hw.aim(to, found.as_ref().map_or(0, |word| *word));
    found.map(drop)
}

/// Brings an entry of the hardware's MSI-X table up to date.
fn entry(hw: &impl Hardware, function: &Function, number: u64) -> Result<(), Denied> {
    let word = |n: u32| hw.shadow(function.shadow.wrapping_add(number as u32 * 4).wrapping_add(n));
    let at = function.table.wrapping_add(number * 16);
    let wanted = [word(0), word(1), word(2)];
    let message =
        if word(3) & MASKED == 0 { hw.message(function, wanted).map(Some) } else { Ok(None) };
    hw.set_page(at + 12, 4, u64::from(MASKED));
    if let Some(message) = message? {
        for (i, value) in (0u64..).zip(message) {
            hw.set_page(at + 4 * i, 4, u64::from(value));
        }
        hw.set_page(at + 12, 4, 0);
    }
    Ok(())
}
