//! Guests of the IOAPIC: several sandboxes write whatever they like, and after each
//! write the machine's table must hold nothing that leaves a line's owner.

use crate::{Input, Seen};
use bulkhead_ioapic::{
    Aim, Entry, Lines, MASKED, Message, SELECT, SLOTS, Shadow, TABLE, WINDOW, Wrong,
};
use bulkhead_monitor_abi_x86::icr::{Ids, contains};
use bulkhead_pci_fake::Words;
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

/// Accesses of all of them to one IOAPIC, with or without remapping.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    without(None, bytes)
}

/// Makes accesses with a rule left out.
fn without(rule: Option<Wrong>, bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let mut machine = Machine::new(input.byte() % 2 == 0);
    let mut seen = Seen::default();
    while !input.is_empty() {
        seen.add(machine.access(&mut input, |wrong| Some(wrong) != rule)?);
    }
    Ok(seen)
}

/// The machine.
struct Machine {
    sandboxes: Vec<Sandbox>,
    table: Vec<Entry>,
    remapping: Vec<AtomicU32>,
    /// Earlier content of the remapping table.
    before: Vec<u32>,
}

impl Machine {
    /// With or without remapping.
    fn new(remaps: bool) -> Self {
        let sandbox = |i: usize| Sandbox {
            lines: Lines {
                own: OWN[i],
                level: LEVEL[i],
                low: LEVEL[i],
                count: LINES,
                slots: [288 + 74 * i as u32, 362 + 74 * i as u32],
                level_vectors: [0, 0xF << (16 * i), 0, 1 << (40 + i)],
                ..Lines::default()
            },
            cores: [0b11 << (2 * i), 0, 0, if i == 0 { 1 << 63 } else { 0 }],
            shadow: Shadow::default(),
        };
        Self {
            sandboxes: (0..SANDBOXES).map(sandbox).collect(),
            table: vec![MASKED; LINES as usize],
            // The boot code's finding: slots, or none.
            remapping: (0..if remaps { SLOTS } else { 0 }).map(|_| AtomicU32::new(0)).collect(),
            before: vec![0; SLOTS],
        }
    }

    /// One access by one sandbox; whether the table was written.
    fn access(
        &mut self,
        input: &mut Input,
        enforced: impl Fn(Wrong) -> bool + Copy,
    ) -> Result<bool, String> {
        let who = input.below(SANDBOXES);
        let Sandbox { lines, cores, shadow } = &self.sandboxes[who];
        let (mut offset, mut size) = (WINDOW, 4);
        if input.below(4) == 0 {
            offset = input.pick(&[0, WINDOW, WINDOW, WINDOW, 4, 0x11, 0x40, 0xFFC]);
            size = input.pick(&[4, 4, 4, 4, 4, 4, 1, 2, 8]);
        } else {
            // The way of drivers: the index, then the window.
            let at = input.byte() as u32 % (2 * LINES + 2);
            lines.write(shadow, SELECT, 4, TABLE + at, enforced).map_err(|e| format!("{e:?}"))?;
        }
        let value = value(input, offset, shadow.select());
        if input.below(4) == 0 {
            let others = |at: u32| at >= 0x10 && lines.own >> ((at - 0x10) / 2 % 32) & 1 == 0;
            let found = lines.read(shadow, offset, size);
            let fresh = matches!(found, Ok(0 | 0x1_0000));
            if found.is_ok() && offset == WINDOW && others(shadow.select()) && !fresh {
                return Err(format!("{who} reads {found:x?} at {:#x}", shadow.select()));
            }
            return Ok(false);
        }
        let aim = lines.write(shadow, offset, size, value, enforced);
        let Ok(Aim::Entry { line, half }) = aim else { return Ok(false) };
        let old = shadow.entry(line);
        let change = || {
            let (new, message) = lines.change(cores, line, half, old, value, |_| None, enforced)?;
            let hardware = lines.hardware(cores, line, message, &self.remapping, None)?;
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
        let unmapped = Message::of(entry);
        let message = match lines.slots {
            _ if self.remapping.is_empty() => unmapped,
            [first, end] => {
                // If nobody remapped it after all: a vector that may be wrong, but its owner's core.
                let own = |m: Message| contains(cores, m.core.into()) && m.core != 255;
                if !unmapped.is_some_and(|m| own(m) && m.mode == 0 && m.vector >= 32) {
                    return wrong("to where only a remapping keeps it in");
                }
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
fn value(input: &mut Input, offset: u64, select: u32) -> u32 {
    match (input.below(8), offset, select % 2) {
        (0, ..) => input.next() as u32,
        (_, SELECT, _) => TABLE + u32::from(input.byte()) % (2 * LINES + 2),
        // The high half: a core.
        (_, _, 1) => input.pick(&[0, 1, 2, 3, 4, 5, 6, 254, 255]) << 24,
        // The low one: often fixed, with a vector that some sandbox has.
        (kind, ..) => {
            let vector = input.pick(&[3, 16, 0x33, 0x40, 0x51, 0x62, 0xE8, 0xE9, 0xEA]);
            let more = if kind < 3 { input.below(0x200) as u32 } else { 0 };
            vector | more << 8
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_random::SplitMix64;

    fn inputs(seed: u64, count: usize) -> impl Iterator<Item = Vec<u8>> {
        let mut random = SplitMix64(seed);
        (0..count).map(move |_| (0..4096).map(|_| random.any() as u8).collect())
    }

    #[test]
    fn guests_get_some_lines_open() {
        for (n, input) in inputs(3, 20).enumerate() {
            let seen = run(&input).unwrap();
            assert!(seen.through > 15 && seen.through < seen.tried / 2, "input {n}: {seen:?}");
        }
    }

    #[test]
    fn a_rule_that_is_left_out_is_told() {
        let all = [Wrong::Line, Wrong::Mode, Wrong::Destination, Wrong::Vector, Wrong::LevelVector];
        for rule in all {
            let told = inputs(5, 200).find_map(|input| without(Some(rule), &input).err());
            assert!(told.is_some(), "{rule:?}");
        }
    }
}
