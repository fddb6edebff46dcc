//! The benches' Linux and programs under Debian's KVM, in this emulator.

use super::Found;
use super::figure::Figure;
use super::linux::{END, ROWS, spans, timer};
use crate::build;
use crate::rows::Row;
use bulkhead_qemu::{Machine, Plugin, Time};
use std::time::Duration;

/// Longest wall time; an idle host needs 50 s.
const LIMIT: Duration = Duration::from_secs(500);
/// The host keeps the fewest parameters; after the comma-separated arguments of
/// `kvm-peer` come those of the guest's kernel. It reboots by a triple fault,
/// which ends it.
const CMDLINE: &str = "console=ttyS0,115200 bulkhead.run=kvm-peer:/peer/kernel,/peer/initrd,512,\
                       console=ttyS0,reboot=t,bulkhead.then=reboot,bulkhead.run=bhbench:all";

/// Finds medians, as rows with `peer.` before the names. Spans count all
/// instructions of the core: the guest's, KVM's and its host's.
pub fn rows() -> Found {
    let artifacts = build::target().join("artifacts");
    let mut machine = Machine::new(build::target().join("bench/peer"));
    machine.cores = 1;
    machine.kernel = Some(artifacts.join("linux-6.12"));
    machine.initrd = Some(artifacts.join("peer.cpio").display().to_string());
    machine.append = CMDLINE.into();
    machine.time = Time::one_core();
    machine.plugin = Some(Plugin { library: build::plugin()?, ..Plugin::default() });
    let mut running = machine.start()?;
    running.wait(END, LIMIT, |m| m.serial(0).contains(END).then_some(()))?;
    running.quit()?;
    let counts = running.counts()?;
    let said = running.serial(0).text();
    let clock = said
        .lines()
        .find_map(|line| line.strip_prefix("info clocksource "))
        .ok_or("the peer did not name its clock source")?;
    let mut figures = Vec::new();
    for (id, name) in ROWS {
        let d = spans(&counts, id, name)?;
        let row = Row::new(&format!("peer.{name}"), "instructions", d.median as f64);
        let entries = d.vmruns as f64 / d.n as f64;
        let note = format!("median of {}; entries into the guest: {entries:.1} each", d.n);
        figures.push(Figure::new(row).note(note));
    }
    for (name, ns) in timer(&counts)? {
        let row = Row::new(&format!("peer.{name}"), "ns", ns);
        figures.push(Figure::new(row).note(format!("by its clock, {}", clock.trim())));
    }
    Ok(figures)
}
