//! Faults in devices: wrong answers to reads of their ports and memory, and wrong bits in what they write.

use crate::strike::{Place, place};
use crate::{Result, Stand, System};
use bulkhead_plan::{BarKind, Bdf, Span};
use bulkhead_random::SplitMix64;

/// Something that a device answers at.
pub enum Answering {
    Ports(u16, u16),
    Memory(Span),
}

/// Devices of the target that answer, by name, and where they do.
pub fn all(system: &System) -> Vec<(String, Vec<Answering>)> {
    let target = system.struck();
    let ports = target.devices.iter().map(|device| {
        let ports = device.ports.iter().map(|ports| Answering::Ports(ports.first, ports.last));
        (device.name.clone(), ports.collect())
    });
    let memory = target.functions.iter().map(|granted| {
        let bars = granted.function.bars.iter();
        let bars = bars.filter(|bar| matches!(bar.kind, BarKind::Memory { .. }));
        (title(granted.function.bdf), bars.map(|bar| Answering::Memory(bar.span)).collect())
    });
    ports.chain(memory).filter(|(_, places): &(_, Vec<_>)| !places.is_empty()).collect()
}

/// A PCI function of the target that writes memory, and one range of that as the function sees it.
pub struct Writer {
    id: Bdf,
    span: Span,
}

/// All of them.
pub fn writers(system: &System) -> Vec<Writer> {
    let target = system.struck();
    let all = target.functions.iter().enumerate().map(|(nth, granted)| {
        let spans = match system.baked.plan.dma(system.target, nth) {
            Some(reached) => {
                let written = reached.iter().filter(|dma| dma.write);
                written.map(|dma| Span { start: dma.gpa, len: dma.len }).collect()
            }
            None if granted.unconfined => Vec::new(),
            None => target.ram.iter().map(|ram| Span { start: ram.gpa, len: ram.len }).collect(),
        };
        spans.into_iter().map(|span: Span| Writer { id: granted.function.bdf, span })
    });
    all.flatten().collect()
}

/// As manifests name it.
fn title(id: Bdf) -> String {
    format!("pci:{id}")
}

/// Some of the next reads, or all of them, have wrong answers.
pub fn answers(
    system: &System,
    stand: &mut Stand,
    core: usize,
    nonsense: bool,
    random: &mut SplitMix64,
) -> Result<Place> {
    const FOR_EVER: u64 = u64::MAX - 1;
    let all = all(system);
    let (name, places) = &all[random.index(all.len())];
    let answering = &places[random.index(places.len())];
    let reads = if random.below(2) == 0 { 1 + random.below(64) } else { FOR_EVER };
    let seed = nonsense.then(|| random.below(u64::MAX));
    match answering {
        Answering::Ports(first, last) => stand.spoil_ports(core, (*first, *last), seed, reads)?,
        Answering::Memory(at) => stand.spoil_memory((at.start, at.start + at.len), seed, reads)?,
    }
    let often = if reads == FOR_EVER { "for ever".into() } else { format!("{reads} reads") };
    Ok(place(name.clone(), often))
}

/// One of the next writes of a function has a wrong bit. A write has 8 bytes at most: larger ones are several.
pub fn writes(system: &System, stand: &mut Stand, random: &mut SplitMix64) -> Result<Place> {
    /// Writes of which one is struck: sometimes 1, sometimes so many.
    const MOST: u64 = 9;
    let all = writers(system);
    let writer = &all[random.index(all.len())];
    let most = 1 << random.below(MOST + 1);
    let (before, bit) = (random.below(most), random.below(64));
    let span = (writer.span.start, writer.span.start + writer.span.len);
    stand.spoil_write(writer.id.0, span, before, bit)?;
    let detail = format!("bit {bit} of write {} to {:#x} and on", before + 1, span.0);
    Ok(place(title(writer.id), detail))
}
