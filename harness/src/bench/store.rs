//! Failures of a driver in a driver sandbox: the time until its client's requests are answered again. The client is a
//! Linux with one request after the other. All kinds of faults that `programs/store-rogue` has are planted, each once.

use super::Found;
use super::block::script;
use super::figure::{Figure, Must};
use super::system::System;
use crate::rows::Row;
use bulkhead_layout::marker::id;

/// Kinds of faults, in the order in which they come. A disk that was told garbage comes last: of AHCI it is silent.
pub const KINDS: [&str; 13] = [
    "crash", "spin", "sleep", "kernel", "client", "state", "dma", "index", "id", "length", "short",
    "status", "rings",
];
/// Ticks of the virtual clock in a millisecond.
const MILLISECOND: f64 = 1e6;

/// A disk: name of the row, changes of the manifest, kinds of faults, and the longest time to an answer, ms.
pub struct Disk {
    row: &'static str,
    changes: &'static [(&'static str, &'static str)],
    longest: f64,
    /// Kinds that are left out, at the end of the list.
    left_out: usize,
}

/// A virtio block device.
pub const VIRTIO: Disk =
    Disk { row: "block.recovery_ms", changes: &[], longest: 30.0, left_out: 0 };
/// An NVMe controller. It is reset by its own registers: a function-level reset takes 100 ms (PCIe 5.0, 6.6.2).
pub const NVME: Disk = Disk {
    row: "block.recovery_nvme_ms",
    changes: &[
        ("pci:00:03.0", "pci:00:07.0"),
        ("number = 0", "number = 1"),
        ("16 KiB\"\n\n[[health", "64 KiB\"\n\n[[health"),
    ],
    longest: 30.0,
    left_out: 0,
};
/// An AHCI controller. Told garbage, the disk is silent, and is reset after five seconds: that kind is left out.
pub const AHCI: Disk = Disk {
    row: "block.recovery_ahci_ms",
    changes: &[("pci:00:03.0", "pci:00:1f.2")],
    longest: 30.0,
    left_out: 1,
};

/// Measures all kinds, one after the other. The slowest counts.
pub fn recovery(disk: &Disk) -> Found {
    let kinds = &KINDS[..KINDS.len() - disk.left_out];
    let faults =
        format!("faults={} kinds={} complaint=0 least=64 within=16", kinds.len(), kinds.join(","));
    let job = script("bhvirtio disk bhvirtio answers /dev/vda 4500");
    let mut system = System::new("store-recovery", disk.row)
        .changed("faults=0 kinds=crash", faults)
        .with("one", job);
    for (from, to) in disk.changes {
        system = system.changed_all(*from, *to);
    }
    let ran = system.run()?;
    let said = ran.outcome.consoles[0].text();
    let times =
        |which| ran.counts.events(which).into_iter().map(|event| event.value).collect::<Vec<_>>();
    let [faults, disks, answers] = [id::BLOCK_FAULT, id::BLOCK_DISK, id::BLOCK_ANSWER].map(times);
    if faults.len() != kinds.len() {
        return Err(format!("{} faults, not {}: {said}", faults.len(), kinds.len()).into());
    }
    let restarts = ran.outcome.report.sandboxes[0].restarts;
    if restarts != kinds.len() as u64 {
        return Err(format!("{restarts} restarts for {} faults: {said}", kinds.len()).into());
    }
    let mut all = Vec::new();
    for (n, (kind, fault)) in kinds.iter().zip(&faults).enumerate() {
        let after = |times: &[u64]| times.iter().copied().find(|time| time > fault);
        let none = || format!("no answer after {kind}: {said}");
        let (ready, answer) = (after(&disks).ok_or_else(none)?, after(&answers).ok_or_else(none)?);
        if faults.get(n + 1).is_some_and(|next| *next < answer) {
            return Err(format!("no answer between {kind} and the next fault: {said}").into());
        }
        let millis = |ticks: u64| ticks as f64 / MILLISECOND;
        all.push((*kind, millis(answer - fault), millis(ready - fault)));
    }
    let slowest = all.iter().map(|(_, whole, _)| *whole).fold(0.0, f64::max);
    let each = all.iter().map(|(kind, whole, ready)| format!("{kind} {whole:.1} ({ready:.1})"));
    let note = format!("to the answer (to the disk): {}", each.collect::<Vec<_>>().join(", "));
    Ok(vec![
        Figure::new(Row::new(disk.row, "ms", slowest)).must(Must::AtMost(disk.longest)).note(note),
    ])
}
