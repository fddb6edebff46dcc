//! Random guests for the IOAPIC: several sandboxes write whatever they like, and after
//! each write the machine's table must hold nothing that leaves a line's owner.

use super::Random;
use bulkhead_ioapic::{Aim, Entry, Lines, MASKED, Message, SLOTS, Shadow, WINDOW, Wrong};
use bulkhead_resident_x86::icr::{Ids, contains};
use std::sync::atomic::{AtomicU32, Ordering};

const SANDBOXES: usize = 3;
const LINES: u32 = 24;
/// A line of two sandboxes would be the manifest's error.
const OWN: [u32; SANDBOXES] = [0x00_001A, 0x01_0044, 0xFE_0100];
const LEVEL: [u32; SANDBOXES] = [0, 0x01_0000, 0xFC_0000];

struct Sandbox {
    lines: Lines,
    cores: Ids,
    shadow: Shadow,
}

/// The machine.
pub struct Machine {
    sandboxes: Vec<Sandbox>,
    table: Vec<Entry>,
    remapping: Vec<AtomicU32>,
    /// What the remapping table held before.
    before: Vec<u32>,
}

impl Machine {
    /// With or without remapping.
    pub fn new(remaps: bool) -> Self {
        let sandbox = |i: usize| Sandbox {
            lines: Lines {
                own: OWN[i],
                level: LEVEL[i],
                low: LEVEL[i],
                count: LINES,
                slots: if remaps { [272 + 80 * i as u32, 352 + 80 * i as u32] } else { [0, 0] },
                level_vectors: [0, 0xF << (16 * i), 0, 1 << (40 + i)],
                ..Lines::default()
            },
            cores: [0b11 << (2 * i), 0, 0, if i == 0 { 1 << 63 } else { 0 }],
            shadow: Shadow::default(),
        };
        Self {
            sandboxes: (0..SANDBOXES).map(sandbox).collect(),
            table: vec![MASKED; LINES as usize],
            remapping: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            before: vec![0; SLOTS],
        }
    }

    /// One access by one sandbox; whether the table was written.
    pub fn access(&mut self, random: &mut Random) -> Result<bool, String> {
        let who = random.below(SANDBOXES);
        let Sandbox { lines, cores, shadow } = &self.sandboxes[who];
        let offset = random.pick(&[0, WINDOW, WINDOW, WINDOW, 4, 0x11, 0x40, 0xFFC]);
        let size = random.pick(&[4, 4, 4, 4, 4, 4, 1, 2, 8]);
        let value = value(random, offset, shadow.select());
        if random.below(4) == 0 {
            let others = |at: u32| at >= 0x10 && lines.own >> ((at - 0x10) / 2 % 32) & 1 == 0;
            let found = lines.read(shadow, offset, size);
            let fresh = matches!(found, Ok(0 | 0x1_0000));
            if found.is_ok() && offset == WINDOW && others(shadow.select()) && !fresh {
                return Err(format!("{who} reads {found:x?} at {:#x}", shadow.select()));
            }
            return Ok(false);
        }
        let aim = lines.write(shadow, offset, size, value, |_| true);
        let Ok(Aim::Entry { line, half }) = aim else { return Ok(false) };
        let old = shadow.entry(line);
        let change = || {
            let (new, message) = lines.change(cores, line, half, old, value, |_| true)?;
            let hardware = lines.hardware(line, message, &self.remapping)?;
            Ok::<_, Wrong>((new, hardware))
        };
        let Ok((new, hardware)) = change() else { return Ok(false) };
        shadow.set(line, new);
        let entry = self.table.get_mut(line as usize).ok_or("a line beyond the last")?;
        *entry = hardware;
        self.inside(who, line)?;
        Ok(true)
    }

    /// The entry that was written stays in its owner, and so does what it names.
    fn inside(&mut self, who: usize, line: u32) -> Result<(), String> {
        let Sandbox { lines, cores, .. } = &self.sandboxes[who];
        let wrong = |what: &str| Err(format!("{who} opens line {line} {what}"));
        let entry = self.table[line as usize];
        for (slot, before) in self.remapping.iter().zip(&mut self.before) {
            let now = slot.load(Ordering::Relaxed);
            if *before != 0 && *before != now {
                return wrong("and changes a slot that was filled");
            }
            *before = now;
        }
        if OWN[who] >> line & 1 == 0 {
            return wrong("which is another's");
        }
        if entry[0] & 1 << 16 != 0 {
            return Ok(());
        }
        let level = LEVEL[who] >> line & 1 != 0;
        if (entry[0] >> 15 & 1 != 0) != level || (entry[0] >> 13 & 1 != 0) != level {
            return wrong("with another wiring");
        }
        let message = match lines.slots {
            [0, 0] => Message::of(entry),
            [first, end] => {
                let slot = entry[0] & 0x7FF;
                let filled = self.before.get(slot as usize).copied().unwrap_or(0);
                if !(first..end).contains(&slot) || filled & 1 == 0 {
                    return wrong("with a slot that is not its own, or empty");
                }
                Some(Message {
                    core: (filled >> 8) as u8,
                    vector: (filled >> 16) as u8,
                    mode: (filled >> 2 & 7) as u8,
                    logical: filled >> 6 & 1 != 0,
                })
            }
        };
        let Some(m) = message else { return wrong("without a message") };
        if m.mode != 0 || m.logical || m.vector < 16 {
            return wrong("with a message of another kind");
        }
        if m.core == 255 || !contains(cores, m.core.into()) {
            return wrong("to a foreign core");
        }
        if level && !contains(&lines.level_vectors, m.vector.into()) {
            return wrong("with a vector that is not its own");
        }
        Ok(())
    }
}

/// Anything, but mostly something near what is allowed there.
fn value(random: &mut Random, offset: u64, select: u32) -> u32 {
    let any = random.next() as u32;
    match (random.below(8), offset, select % 2) {
        (0, ..) => any,
        (_, 0, _) => 0x10 + any % (2 * LINES + 2),
        // The high half: a core.
        (_, _, 1) => random.pick(&[0, 1, 2, 3, 4, 5, 6, 254, 255]) << 24,
        // The low one: often fixed, with a vector that some sandbox has.
        (kind, ..) => {
            let vector = random.pick(&[3, 16, 0x33, 0x40, 0x51, 0x62, 0xE8, 0xE9, 0xEA]);
            vector | if kind < 3 { any & 0x1_FF00 } else { 0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_guests_stay_inside() {
        const ROUNDS: usize = 300_000;
        let mut random = Random::new(3);
        for remaps in [false, true] {
            let mut machine = Machine::new(remaps);
            let (mut written, mut opened) = (0, [false; LINES as usize]);
            for _ in 0..ROUNDS {
                written += usize::from(machine.access(&mut random).unwrap());
                let lines = opened.iter_mut().zip(&machine.table);
                lines.for_each(|(opened, entry)| *opened |= entry[0] & 1 << 16 == 0);
            }
            let opened = opened.iter().filter(|o| **o).count();
            assert!(written > ROUNDS / 200 && opened > 6, "{written} writes, {opened} lines");
        }
    }
}
