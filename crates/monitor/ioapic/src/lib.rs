//! The IOAPIC that a sandbox sees (Intel 82093AA; ICH9, 13.5), and its way to the one that all sandboxes share.
//!
//! A guest writes and reads back a redirection table of its own. An entry that it unmasks is checked, and only then
//! written to the machine's table. It must be a fixed interrupt, by physical destination, to a core of the sandbox, on
//! a line of the sandbox. So the machine's table only interrupts the owner of each line. Trigger mode and polarity are
//! the machine description's. The guest reads back its own bits for them, which have no effect.
//!
//! Where an IOMMU sees the IOAPIC's messages, an entry of the machine's table names a slot of the IOAPIC's remapping
//! table. The slot has the core and the vector. A slot is filled once and never changed, so that nothing has to be
//! invalidated. The boot code finds out whether the IOMMU sees the messages ([`Remapping`]). Even without remapping
//! such an entry stays with its owner's core.
//!
//! Nothing here can panic, and there is no hardware: the caller has the registers.
#![no_std]

use bulkhead_monitor_abi_x86::icr::{Ids, contains, remapped};
use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Guest-physical address of the registers.
pub const GPA: u64 = 0xFEC0_0000;
/// Offset of IOREGSEL.
pub const SELECT: u64 = 0;
/// Offset of IOWIN.
pub const WINDOW: u64 = 0x10;
/// Index of the first register of the redirection table, two a line.
pub const TABLE: u32 = 0x10;
/// Most lines.
pub const MAX_LINES: usize = 32;
/// Entries of the remapping table that messages of an IOAPIC can name. Bits 7:0 of the index are the vector, and 10:8
/// the delivery mode. Only modes 0 and 1 are remapped (AMD IOMMU specification, 2.2.5).
pub const SLOTS: usize = 512;
/// Lowest vector of a slot; exceptions have those below. An entry with a slot would send this vector without remapping.
pub const FIRST_SLOT_VECTOR: u8 = 32;
/// Lowest vector that a local APIC accepts (APM 16.6).
pub const FIRST_VECTOR: u8 = 16;

/// IOAPICVER without the number of entries. Version 0x11 has no EOI register.
const VERSION: u32 = 0x11;
const VECTOR: u32 = 0xFF;
/// The mask bit of an entry (82093AA, 3.2.4).
pub const MASK: u32 = 1 << 16;
const LEVEL: u32 = 1 << 15;
const ACTIVE_LOW: u32 = 1 << 13;
const LOGICAL: u32 = 1 << 11;
/// Bits of a redirection entry that can be written: not the delivery status, the remote IRR and reserved bits.
const WRITABLE: [u32; 2] = [0x1_AFFF, 0xFF00_0000];

/// A monitor's configuration of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Lines {
    /// Where the caller finds the machine's registers.
    pub registers: u64,
    /// Where it finds the [`Remapping`]; 0 if messages are never remapped.
    pub table: u64,
    /// Lines of the sandbox, as a set.
    pub own: u32,
    /// Level-triggered ones of them.
    pub level: u32,
    /// Active-low ones of them.
    pub low: u32,
    /// Those of them that are no line of the machine's: pins of channels' ends.
    pub channels: u32,
    /// Not 0: an entry names one of a table that has one for each vector on each core ([`Self::slots`]).
    pub indexed: u32,
    /// Lines of the IOAPIC, 1 to [`MAX_LINES`].
    pub count: u32,
    /// First slot of the remapping table that is this sandbox's, and the one after
    /// its last. Where it is [`Self::indexed`]: the first entry for edge-triggered lines and the first one for
    /// level-triggered lines, of the own core with the lowest ID.
    pub slots: [u32; 2],
    /// Where the caller finds the registers by which it tells the IOMMU what to forget; 0: others tell it, or nobody.
    pub unit: u64,
    /// Vectors of its level-triggered lines, as a set. An EOI goes to every IOAPIC by
    /// its vector alone, so they are unique in the machine.
    pub level_vectors: Ids,
}

/// The IOAPIC's remapping table with what the boot code found out about it; in a page.
#[repr(C)]
pub struct Remapping {
    /// The table: 32-bit entries.
    pub slots: [AtomicU32; SLOTS],
    /// Not 0: entries of the machine's table hold slots. Written once, before any monitor runs.
    pub applies: AtomicU32,
}

impl Remapping {
    /// Returns the slots that entries hold; none where entries hold vectors.
    #[must_use]
    pub fn slots(&self) -> &[AtomicU32] {
        if self.applies.load(Ordering::Relaxed) == 0 { &[] } else { &self.slots }
    }
}

/// Why a write is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Not 32 bits at one of the two registers.
    Access,
    /// Unmasks a line that is not the sandbox's.
    Line,
    /// SMI, NMI, INIT, ExtINT or reserved.
    Mode,
    /// Not the physical ID of an own core.
    Destination,
    /// Below [`FIRST_VECTOR`].
    Vector,
    /// Not one of [`Lines::level_vectors`], on a level-triggered line.
    LevelVector,
    /// The sandbox's slots of the remapping table are used up.
    Slots,
}

/// An entry of a redirection table: low and high register.
pub type Entry = [u32; 2];

/// An entry after a reset.
pub const MASKED: Entry = [MASK, 0];

/// Message that an unmasked entry sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Destination.
    pub core: u8,
    /// Vector.
    pub vector: u8,
    /// Delivery mode; 0 is fixed.
    pub mode: u8,
    /// The destination is a logical one.
    pub logical: bool,
}

impl Message {
    /// Reads an entry's message; `None` if it is masked. Lowest priority to one core is fixed.
    #[must_use]
    pub const fn of(entry: Entry) -> Option<Self> {
        let [low, high] = entry;
        if low & MASK != 0 {
            return None;
        }
        let logical = low & LOGICAL != 0;
        let mode = (low >> 8 & 7) as u8;
        let mode = if mode == 1 && !logical { 0 } else { mode };
        Some(Self { core: (high >> 24) as u8, vector: low as u8, mode, logical })
    }

    /// Returns it with the one core that its logical destination names, if there is one.
    #[must_use]
    pub fn to_one(self, named: impl Fn(u8) -> Option<u8>) -> Self {
        match named(self.core).filter(|_| self.logical) {
            // Lowest priority to one core is fixed.
            Some(core) if self.mode < 2 => Self { core, mode: 0, logical: false, ..self },
            Some(core) => Self { core, logical: false, ..self },
            None => self,
        }
    }

    /// As the entry of a remapping table (AMD IOMMU specification, 2.2.5.1), 32-bit
    /// format: enabled; interrupt type, destination mode, destination, vector.
    #[must_use]
    pub const fn remapped(self) -> u32 {
        1 | (self.mode as u32) << 2
            | (self.logical as u32) << 6
            | (self.core as u32) << 8
            | (self.vector as u32) << 16
    }
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// It is done, or has no effect.
    Nothing,
    /// To an entry.
    Entry {
        /// Its line.
        line: u32,
        /// Its half: 0 the low register, 1 the high one.
        half: usize,
    },
}

/// Registers as a guest has written them.
#[repr(C)]
pub struct Shadow {
    select: AtomicU32,
    entries: [[AtomicU32; 2]; MAX_LINES],
}

impl Default for Shadow {
    fn default() -> Self {
        let entry = |_| MASKED.map(AtomicU32::new);
        Self { select: AtomicU32::new(0), entries: core::array::from_fn(entry) }
    }
}

impl Shadow {
    /// Returns the index of the register that the window shows.
    #[must_use]
    pub fn select(&self) -> u32 {
        self.select.load(Ordering::Relaxed)
    }

    /// Returns an entry.
    #[must_use]
    pub fn entry(&self, line: u32) -> Entry {
        let load = |[low, high]: &[AtomicU32; 2]| {
            [low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)]
        };
        self.entries.get(line as usize).map_or(MASKED, load)
    }

    /// Replaces an entry.
    pub fn set(&self, line: u32, [low, high]: Entry) {
        if let Some(entry) = self.entries.get(line as usize) {
            entry[0].store(low, Ordering::Relaxed);
            entry[1].store(high, Ordering::Relaxed);
        }
    }

    /// Resets all entries but those that `stays` names.
    pub fn reset(&self, stays: impl Fn(u32) -> bool) {
        self.select.store(0, Ordering::Relaxed);
        (0..MAX_LINES as u32).filter(|line| !stays(*line)).for_each(|line| self.set(line, MASKED));
    }
}

impl Lines {
    /// Tells if a line is the sandbox's.
    #[must_use]
    pub const fn owns(&self, line: u32) -> bool {
        has(self.own, line)
    }

    /// Tells if it is a pin of channels' ends.
    #[must_use]
    pub const fn is_channel(&self, line: u32) -> bool {
        has(self.channels, line)
    }

    /// Returns the value of a read.
    ///
    /// # Errors
    /// [`Wrong::Access`].
    pub fn read(&self, shadow: &Shadow, offset: u64, size: u8) -> Result<u32, Wrong> {
        let at = shadow.select();
        match (offset, size) {
            (SELECT, 4) => Ok(at),
            (WINDOW, 4) => Ok(match (at, self.aim(at)) {
                (1, _) => VERSION | self.count.wrapping_sub(1) << 16,
                (_, Aim::Entry { line, half }) if self.owns(line) => shadow.entry(line)[half % 2],
                (_, Aim::Entry { half, .. }) => MASKED[half % 2],
                // ID and arbitration ID are 0, so is what does not exist.
                _ => 0,
            }),
            _ => Err(Wrong::Access),
        }
    }

    /// Finds where a write goes; one that goes to IOREGSEL is done.
    ///
    /// # Errors
    /// [`Wrong::Access`]; [`Wrong::Line`] if it would unmask a line of others. A write that masks such a line, or is to
    /// the other half of its entry, has no effect. A kernel masks all lines when it starts.
    pub fn write(
        &self,
        shadow: &Shadow,
        offset: u64,
        size: u8,
        value: u32,
        enforced: impl Fn(Wrong) -> bool,
    ) -> Result<Aim, Wrong> {
        match (offset, size) {
            (SELECT, 4) => {
                shadow.select.store(value & 0xFF, Ordering::Relaxed);
                Ok(Aim::Nothing)
            }
            (WINDOW, 4) => match self.aim(shadow.select()) {
                Aim::Entry { line, half } if !self.owns(line) && enforced(Wrong::Line) => {
                    if half == 0 && value & MASK == 0 { Err(Wrong::Line) } else { Ok(Aim::Nothing) }
                }
                aim => Ok(aim),
            },
            _ if enforced(Wrong::Access) => Err(Wrong::Access),
            // In a build without the rule a part of a register counts as the whole.
            _ => self.write(shadow, offset & WINDOW, 4, value, enforced),
        }
    }

    fn aim(&self, select: u32) -> Aim {
        match select.checked_sub(TABLE) {
            Some(at) if at < 2 * self.count => Aim::Entry { line: at / 2, half: at as usize % 2 },
            _ => Aim::Nothing,
        }
    }

    /// Computes an entry after a write.
    #[must_use]
    pub fn written(half: usize, old: Entry, value: u32) -> Entry {
        let mut entry = old;
        for ((i, to), writable) in entry.iter_mut().enumerate().zip(WRITABLE) {
            if i == half {
                *to = value & writable;
            }
        }
        entry
    }

    /// Computes an entry after a write, and the message that it sends then. A guest in xAPIC mode names cores:
    /// `named` finds the own core that has one.
    ///
    /// # Errors
    /// The part of the message that the entry may not send.
    #[allow(clippy::too_many_arguments)]
    pub fn change(
        &self,
        cores: &Ids,
        line: u32,
        half: usize,
        old: Entry,
        value: u32,
        named: impl Fn(u8) -> Option<u8>,
        enforced: impl Fn(Wrong) -> bool,
    ) -> Result<(Entry, Option<Message>), Wrong> {
        let entry = Self::written(half, old, value);
        let message = Message::of(entry).map(|m| m.to_one(named));
        if let Some(m) = message {
            // 255 is everybody, also where a core has that ID.
            let own_core = !m.logical && m.core != u8::MAX && contains(cores, m.core.into());
            let may_be_level = contains(&self.level_vectors, m.vector.into());
            let checks = [
                (m.mode == 0, Wrong::Mode),
                (own_core, Wrong::Destination),
                (m.vector >= FIRST_VECTOR, Wrong::Vector),
                (!has(self.level, line) || may_be_level, Wrong::LevelVector),
            ];
            for (right, wrong) in checks {
                if !right && enforced(wrong) {
                    return Err(wrong);
                }
            }
        }
        Ok((entry, message))
    }

    /// Computes the entry for the machine's table. `table` is the IOAPIC's remapping table, empty without remapping. A
    /// slot of it is filled if none holds the message yet. The owner of all lines says how they signal: `chosen` is its
    /// own entry then.
    ///
    /// # Errors
    /// [`Wrong::Slots`].
    pub fn hardware(
        &self,
        cores: &Ids,
        line: u32,
        message: Option<Message>,
        table: &[AtomicU32],
        chosen: Option<Entry>,
    ) -> Result<Entry, Wrong> {
        let Some(m) = message else {
            // An interrupt of before may end yet, by this vector and trigger mode.
            let kept = |[low, _]: Entry| [low & (VECTOR | LEVEL | ACTIVE_LOW) | MASK, 0];
            return Ok(chosen.map_or(MASKED, kept));
        };
        let wiring = match chosen {
            Some([low, _]) => low & (LEVEL | ACTIVE_LOW),
            None => {
                let level = if has(self.level, line) { LEVEL } else { 0 };
                level | if has(self.low, line) { ACTIVE_LOW } else { 0 }
            }
        };
        let to = u32::from(m.core) << 24;
        let [first, end] = self.slots;
        if self.indexed != 0 {
            let first = if has(self.level, line) { end } else { first };
            let index = first.wrapping_add(remapped(cores, m.core.into(), m.vector));
            return Ok(indexed(index, m.vector, wiring));
        }
        if table.is_empty() {
            let low = u32::from(m.vector) | u32::from(m.mode) << 8 | (m.logical as u32) << 11;
            return Ok([low | wiring, to]);
        }
        let filled = m.remapped();
        let range = table.get(first as usize..end as usize).unwrap_or_default();
        // No other monitor writes to these slots, and of this one's cores the one that
        // has the lock.
        let free_or_same = |slot: &AtomicU32| {
            let found = slot.load(Ordering::Relaxed);
            found == 0 || found == filled
        };
        let at = range.iter().position(free_or_same).ok_or(Wrong::Slots)?;
        if let Some(slot) = range.get(at) {
            slot.store(filled, Ordering::Release);
        }
        Ok([first.wrapping_add(at as u32) & 0x7FF | wiring, to])
    }
}

/// Returns an entry of the machine's table that names an entry of a VT-d table (VT-d specification, 5.1.2.1). The
/// vector counts for an EOI.
const fn indexed(index: u32, vector: u8, wiring: u32) -> Entry {
    const FORMAT: u32 = 1 << 16;
    [vector as u32 | wiring | (index >> 15 & 1) << 11, FORMAT | (index & 0x7FFF) << 17]
}

const fn has(set: u32, line: u32) -> bool {
    line < MAX_LINES as u32 && set >> line & 1 != 0
}

const _: () = assert!(size_of::<Lines>() == 88);
const _: () = assert!(size_of::<Remapping>() == 4 * SLOTS + 4);
const _: () = assert!(size_of::<Shadow>() == 4 + 8 * MAX_LINES);

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    const OWN: Ids = [1 << 2 | 1 << 3, 0, 0, 1 << 63];
    const ALL: fn(Wrong) -> bool = |_| true;
    const NONE: fn(u8) -> Option<u8> = |_| None;

    fn lines() -> Lines {
        Lines {
            own: 1 << 3 | 1 << 4 | 1 << 20,
            level: 1 << 20,
            low: 1 << 20,
            count: 24,
            slots: [0, 0],
            level_vectors: [0, 1 << 6, 0, 0],
            ..Lines::default()
        }
    }

    fn entry(line: u32, low: u32, high: u32) -> Result<(Entry, Option<Message>), Wrong> {
        let (entry, _) = lines().change(&OWN, line, 1, MASKED, high, NONE, ALL)?;
        lines().change(&OWN, line, 0, entry, low, NONE, ALL)
    }

    fn window(shadow: &Shadow, index: u32) -> u32 {
        assert_eq!(lines().write(shadow, SELECT, 4, index, ALL), Ok(Aim::Nothing));
        lines().read(shadow, WINDOW, 4).unwrap()
    }

    #[test]
    fn registers_read_as_an_ioapics() {
        let shadow = Shadow::default();
        assert_eq!(window(&shadow, 0), 0);
        assert_eq!(window(&shadow, 1), 0x0017_0011);
        assert_eq!(window(&shadow, 2), 0);
        assert_eq!(window(&shadow, 0x16), 1 << 16);
        shadow.set(3, [0x1_0033, 2 << 24]);
        assert_eq!([window(&shadow, 0x16), window(&shadow, 0x17)], [0x1_0033, 2 << 24]);
        // Another's line and what does not exist.
        shadow.set(5, [0x33, 2 << 24]);
        assert_eq!([window(&shadow, 0x1A), window(&shadow, 0x1B)], [1 << 16, 0]);
        assert_eq!([window(&shadow, 3), window(&shadow, 0xFF)], [0, 0]);
        assert_eq!(lines().read(&shadow, SELECT, 4), Ok(0xFF));
        shadow.reset(|line| line == 5);
        assert_eq!(shadow.entry(5), [0x33, 2 << 24]);
        assert_eq!([window(&shadow, 0x16), window(&shadow, 0x17)], [1 << 16, 0]);
    }

    #[test]
    fn only_whole_registers() {
        let shadow = Shadow::default();
        for offset in 0..0x1000 {
            for size in [1, 2, 4, 8] {
                if !(size == 4 && [SELECT, WINDOW].contains(&offset)) {
                    assert_eq!(lines().read(&shadow, offset, size), Err(Wrong::Access));
                    assert_eq!(lines().write(&shadow, offset, size, 0, ALL), Err(Wrong::Access));
                }
            }
        }
        assert_eq!(lines().read(&shadow, SELECT, 4), Ok(0));
    }

    #[test]
    fn lines_of_others_stay_as_they_are() {
        let shadow = Shadow::default();
        for line in 0..40 {
            let own = lines().owns(line);
            for half in 0..2u32 {
                window(&shadow, 0x10 + 2 * line + half);
                let aim = Aim::Entry { line, half: half as usize };
                let masked = lines().write(&shadow, WINDOW, 4, 1 << 16, ALL);
                let open = lines().write(&shadow, WINDOW, 4, 0x33, ALL);
                let nothing = Ok(Aim::Nothing);
                assert_eq!(masked, if own { Ok(aim) } else { nothing });
                let denied = if line < 24 && half == 0 { Err(Wrong::Line) } else { nothing };
                assert_eq!(open, if own { Ok(aim) } else { denied });
            }
        }
    }

    #[test]
    fn what_an_entry_may_send() {
        let sent = |core, vector| Ok(Some(Message { core, vector, mode: 0, logical: false }));
        let message = |line, low, high| entry(line, low, high).map(|(_, message)| message);
        assert_eq!(message(4, 0x33, 2 << 24), sent(2, 0x33));
        // Lowest priority to one core; trigger and polarity as the guest likes.
        assert_eq!(message(4, 0xA133, 3 << 24), sent(3, 0x33));
        assert_eq!(message(4, 0x10, 2 << 24), sent(2, 0x10));
        for mode in 2..8 {
            assert_eq!(message(4, mode << 8 | 0x33, 2 << 24), Err(Wrong::Mode));
        }
        for core in (0..256u32).filter(|core| ![2, 3].contains(core)) {
            assert_eq!(message(4, 0x33, core << 24), Err(Wrong::Destination), "{core}");
        }
        assert_eq!(message(4, 0x833, 2 << 24), Err(Wrong::Destination));
        assert_eq!(message(4, 0x933, 2 << 24), Err(Wrong::Mode));
        assert_eq!(message(4, 0xF, 2 << 24), Err(Wrong::Vector));
        assert_eq!(message(20, 0x33, 2 << 24), Err(Wrong::LevelVector));
        assert_eq!(message(20, 0x46, 2 << 24), sent(2, 0x46));
        // A masked one may hold anything.
        assert_eq!(entry(20, 0x1_FFFF, u32::MAX), Ok(([0x1_AFFF, 0xFF00_0000], None)));
    }

    #[test]
    fn a_half_is_checked_with_the_other_one() {
        let (open, _) = entry(4, 0x33, 2 << 24).unwrap();
        let to = |core: u32| lines().change(&OWN, 4, 1, open, core << 24, NONE, ALL);
        assert_eq!(to(1), Err(Wrong::Destination));
        assert_eq!(to(3).unwrap().0, [0x33, 3 << 24]);
    }

    #[test]
    fn a_name_becomes_its_core_and_an_owner_of_all_says_how_lines_signal() {
        let named = |names: u8| (names == 4).then_some(2);
        let change =
            |low: u32, high: u32| lines().change(&OWN, 3, 0, [MASK, high << 24], low, named, ALL);
        let (entry, message) = change(0xA841, 4).unwrap();
        let to_core_2 = Message { core: 2, vector: 0x41, mode: 0, logical: false };
        assert_eq!((entry, message), ([0xA841, 4 << 24], Some(to_core_2)));
        // The guest reads its own entry; the machine's has a core, and lowest priority to one is fixed.
        let hardware = |entry, message| lines().hardware(&OWN, 3, message, &[], Some(entry));
        assert_eq!(hardware(entry, message), Ok([0xA041, 2 << 24]));
        assert_eq!(change(0x0941, 4).unwrap().1, Some(to_core_2));
        assert_eq!(hardware([0x0841, 4 << 24], Some(to_core_2)), Ok([0x41, 2 << 24]));
        assert_eq!(hardware([0x1_A841, 4 << 24], None), Ok([0x1_A041, 0]));
        // Names of two cores, or of none; an NMI.
        assert_eq!(change(0x0841, 6), Err(Wrong::Destination));
        assert_eq!(change(0x0C41, 4), Err(Wrong::Mode));
    }

    #[test]
    fn the_machines_entry_has_the_machines_wiring() {
        let message = Message { core: 2, vector: 0x46, mode: 0, logical: false };
        let hardware = |line, message| lines().hardware(&OWN, line, message, &[], None);
        assert_eq!(hardware(4, Some(message)), Ok([0x46, 2 << 24]));
        assert_eq!(hardware(20, Some(message)), Ok([0xA046, 2 << 24]));
        assert_eq!(hardware(20, None), Ok(MASKED));
    }

    #[test]
    fn slots_are_filled_once() {
        let table: Vec<AtomicU32> = (0..SLOTS).map(|_| AtomicU32::new(0)).collect();
        let lines = Lines { slots: [288, 290], ..lines() };
        let send = |core, vector| {
            let message = Message { core, vector, mode: 0, logical: false };
            lines.hardware(&OWN, 4, Some(message), &table, None)
        };
        // With the core, where it would arrive if nobody remapped it.
        assert_eq!(send(2, 0x33), Ok([288, 2 << 24]));
        assert_eq!(send(3, 0x33), Ok([289, 3 << 24]));
        assert_eq!(send(2, 0x33), Ok([288, 2 << 24]));
        assert_eq!(send(2, 0x34), Err(Wrong::Slots));
        let filled: Vec<_> =
            table.iter().map(|s| s.load(Ordering::Relaxed)).filter(|s| *s != 0).collect();
        assert_eq!(filled, [0x0033_0201, 0x0033_0301]);
        // A table that is too short gives nothing, and no share of it neither.
        let message = Message::of([0x33, 2 << 24]);
        assert_eq!(lines.hardware(&OWN, 4, message, &table[..288], None), Err(Wrong::Slots));
        let none = Lines { slots: [0, 0], ..lines };
        assert_eq!(none.hardware(&OWN, 4, message, &table, None), Err(Wrong::Slots));
        // Without remapping: the vector itself.
        assert_eq!(lines.hardware(&OWN, 4, message, &[], None), Ok([0x33, 2 << 24]));
    }

    #[test]
    fn slots_count_where_the_boot_code_says_so() {
        let zero = |_| AtomicU32::new(0);
        let page = Remapping { slots: core::array::from_fn(zero), applies: AtomicU32::new(0) };
        assert!(page.slots().is_empty());
        page.applies.store(1, Ordering::Relaxed);
        assert_eq!(page.slots().len(), SLOTS);
    }

    #[test]
    fn entries_name_an_index_where_all_have_one_table() {
        let lines = Lines { indexed: 1, slots: [0x300, 0x8500], ..lines() };
        let message = |core, vector| Some(Message { core, vector, mode: 0, logical: false });
        let hardware = |line, message| lines.hardware(&OWN, line, message, &[], None).unwrap();
        // The core with the second-lowest ID; an index in bits 31:17, after the format's bit.
        assert_eq!(hardware(4, message(3, 0x33)), [0x33, 0x433 << 17 | 1 << 16]);
        // A level-triggered line, and an index with its highest bit.
        let wiring = LEVEL | ACTIVE_LOW;
        assert_eq!(
            hardware(20, message(2, 0x46)),
            [0x46 | wiring | 1 << 11, 0x546 << 17 | 1 << 16]
        );
        assert_eq!(hardware(4, None), MASKED);
    }
}
