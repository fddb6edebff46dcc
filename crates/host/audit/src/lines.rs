//! Interrupt lines: the IOAPIC's redirection entries (82093AA, 3.2.4) and the two
//! 8259A.

use crate::check::Context;
use crate::claim::Place;
use crate::iommu::Interrupts;
use crate::vtd::Units;

const MASKED: u64 = 1 << 16;
const LEVEL: u64 = 1 << 15;
const LOGICAL: u64 = 1 << 11;
const DELIVERY: u64 = 0b111 << 8;
const LOWEST: u64 = 0b001 << 8;

impl Context<'_> {
    /// Every line that is not masked.
    pub fn lines(&mut self, unit: Option<&Units>) {
        let nobody = Place::default();
        if let Some(masks) = self.registers.pic_masks.filter(|m| *m != [0xFF; 2]) {
            let message =
                format!("the 8259A let lines through: masks {:#x}, {:#x}", masks[0], masks[1]);
            self.find("line-owner", &nobody, None, message, "0xff, 0xff");
        }
        let Some(ioapic) = &self.registers.ioapic else {
            self.remarks.push("the IOAPIC's entries are not known".into());
            return;
        };
        let mut levels: Vec<(u8, u32)> = Vec::new();
        for (pin, &entry) in (0u32..).zip(&ioapic.entries) {
            if entry & MASKED == 0 {
                self.line(unit, pin, entry, &mut levels);
            }
        }
    }

    fn line(&mut self, unit: Option<&Units>, pin: u32, entry: u64, levels: &mut Vec<(u8, u32)>) {
        let owner = self
            .claim
            .sandboxes
            .iter()
            .enumerate()
            .find_map(|(i, s)| Some((i, s.lines.iter().find(|l| l.pin == pin)?)));
        let Some((i, line)) = owner else {
            let message = format!("line {pin} is not masked ({entry:#x}) and belongs to nobody");
            self.find("line-owner", &Place::default(), self.claim.ioapic, message, "masked");
            return;
        };
        let mut wrong = Vec::new();
        if (entry & LEVEL != 0) != line.level {
            let what = format!("is level: {}, not {}", entry & LEVEL != 0, line.level);
            wrong.push(("line-mode", what));
        }
        // Nothing says whether the IOMMU sees the message: it has to stay with its owner either way.
        let ways = match unit {
            // It sees all messages.
            Some(Units::Vtd(unit)) if self.remaps() => [Some(self.indexed(unit, entry)), None],
            _ => [self.remapped(unit, entry), Some(direct(entry))],
        };
        for (n, way) in ways.into_iter().flatten().enumerate() {
            match way {
                Ok(Some((apic, vector))) => {
                    if !self.claim.sandboxes[i].apic_ids.contains(&apic) {
                        wrong.push(("line-core", format!("arrives at APIC {apic}")));
                    }
                    let taken = levels.iter().find(|l| l.0 == vector && line.level);
                    if let Some((_, other)) = taken {
                        let what = format!("has the vector {vector} of line {other}");
                        wrong.push(("line-level-vector", what));
                    }
                    // The message after the IOMMU has remapped it, if it does.
                    if n == 0 {
                        self.access[i].lines.push((pin, apic, vector));
                        if line.level {
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
            self.find(rule, &place, self.claim.ioapic, message, right);
        }
    }

    fn remaps(&self) -> bool {
        self.claim.iommu.as_ref().is_some_and(|iommu| iommu.remaps)
    }

    /// APIC and vector of a line that is not masked, by the IOMMU's table, if it has one for the IOAPIC.
    fn remapped(&self, unit: Option<&Units>, entry: u64) -> Option<Arrival> {
        let requester = self.claim.iommu.as_ref().and_then(|i| i.ioapic);
        let Some(Units::Amd(unit)) = unit else { return None };
        let (unit, device) =
            Some(unit).zip(requester).and_then(|(u, bdf)| Some((u, u.entry(bdf)?)))?;
        if device.interrupts() != Interrupts::Remapped {
            return None;
        }
        // Bits 10:0 of the message, delivery mode and vector, are the index.
        let index = entry & (DELIVERY | 0xFF);
        let all = unit.remapped(self.words, device);
        Some(Ok(all.iter().find(|r| r.index == index).map(|r| (r.destination(), r.vector()))))
    }
}

/// Where a line arrives: APIC and vector, or nowhere; or the rule that it breaks, and how.
pub type Arrival = Result<Option<(u32, u8)>, (&'static str, String)>;

/// The first vector that an APIC takes (APM volume 2, 16.6.1). Those of exceptions from there on harm their owner only.
pub const FIRST_VECTOR: u8 = 16;

/// Delivery mode of the entry. Lowest priority to one core counts as fixed.
fn direct(entry: u64) -> Arrival {
    match entry & DELIVERY {
        0 | LOWEST => {}
        _ => return Err(("line-mode", "has another delivery mode than fixed".into())),
    }
    match entry {
        _ if entry & LOGICAL != 0 => Err(("line-core", "has a logical destination".into())),
        _ if (entry as u8) < FIRST_VECTOR => {
            Err(("line-vector", "has a vector that no APIC takes".into()))
        }
        _ => Ok(Some(((entry >> 56) as u32, entry as u8))),
    }
}
