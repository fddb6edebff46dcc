//! Interrupt lines: the IOAPIC's redirection entries (82093AA, 3.2.4) and the two
//! 8259A.

use super::FIRST_VECTOR;
use crate::check::Context;
use crate::claim::Place;
use crate::dma::{Arrival, Unit};

const MASKED: u64 = 1 << 16;
const LEVEL: u64 = 1 << 15;
const LOGICAL: u64 = 1 << 11;
pub const DELIVERY: u64 = 0b111 << 8;
const LOWEST: u64 = 0b001 << 8;

impl Context<'_> {
    /// Every line that is not masked.
    pub(super) fn lines(&mut self, unit: Option<&dyn Unit>) {
        let nobody = Place::default();
        if let Some(masks) = self.registers.own.pic_masks.filter(|m| *m != [0xFF; 2]) {
            let message =
                format!("the 8259A let lines through: masks {:#x}, {:#x}", masks[0], masks[1]);
            self.find("line-owner", &nobody, None, message, "0xff, 0xff");
        }
        let Some(ioapic) = &self.registers.own.ioapic else {
            self.remarks.push("the IOAPIC's entries are not known".into());
            return;
        };
        let mut levels: Vec<(u32, u32)> = Vec::new();
        for (pin, &entry) in (0u32..).zip(&ioapic.entries) {
            if entry & MASKED == 0 {
                self.line(unit, pin, entry, &mut levels);
            }
        }
    }

    fn line(
        &mut self,
        unit: Option<&dyn Unit>,
        pin: u32,
        entry: u64,
        levels: &mut Vec<(u32, u32)>,
    ) {
        let owner = self
            .claim
            .sandboxes
            .iter()
            .enumerate()
            .find_map(|(i, s)| Some((i, s.lines.iter().find(|l| l.pin == pin)?)));
        let Some((i, line)) = owner else {
            let message = format!("line {pin} is not masked ({entry:#x}) and belongs to nobody");
            self.find("line-owner", &Place::default(), self.claim.controller, message, "masked");
            return;
        };
        let mut wrong = Vec::new();
        let level = line.level.unwrap_or(entry & LEVEL != 0);
        if (entry & LEVEL != 0) != level {
            let what = format!("is level: {}, not {level}", entry & LEVEL != 0);
            wrong.push(("line-mode", what));
        }
        let ways = unit.map_or_else(|| vec![direct(entry)], |unit| unit.line(self, entry));
        for (n, way) in ways.into_iter().enumerate() {
            match way {
                Ok(Some((apic, vector))) => {
                    if !self.claim.sandboxes[i].core_ids.contains(&apic) {
                        wrong.push(("line-core", format!("arrives at APIC {apic}")));
                    }
                    let taken = levels.iter().find(|l| l.0 == vector && line.level == Some(true));
                    if let Some((_, other)) = taken {
                        let what = format!("has the vector {vector} of line {other}");
                        wrong.push(("line-level-vector", what));
                    }
                    // The message after the IOMMU has remapped it, if it does.
                    if n == 0 {
                        self.access[i].lines.push((pin, apic, vector));
                        if level {
                            levels.push((vector, pin));
                        }
                    }
                }
                // It arrives nowhere.
                Ok(None) => {}
                Err(why) => wrong.push(why),
            }
        }
        wrong.dedup();
        let place = self.claim.sandboxes[i].place.clone();
        for (rule, what) in wrong {
            let message = format!("line {pin} of {} {what} ({entry:#x})", self.name(i));
            let right = "fixed, to a core of its own, with a vector of its own";
            self.find(rule, &place, self.claim.controller, message, right);
        }
    }
}

/// Delivery mode of the entry. Lowest priority to one core counts as fixed.
pub fn direct(entry: u64) -> Arrival {
    match entry & DELIVERY {
        0 | LOWEST => {}
        _ => return Err(("line-mode", "has another delivery mode than fixed".into())),
    }
    match entry {
        _ if entry & LOGICAL != 0 => Err(("line-core", "has a logical destination".into())),
        _ if (entry as u8) < FIRST_VECTOR => {
            Err(("line-vector", "has a vector that no APIC takes".into()))
        }
        _ => Ok(Some(((entry >> 56) as u32, u32::from(entry as u8)))),
    }
}
