//! The kernel's cost to its programs, in a sandbox and on the bare machine.

use super::Found;
use super::figure::{Figure, Must};
use super::system::System;
use crate::rows::Row;
use crate::{Failure, build};
use bulkhead_layout::marker::{NAMES, id};
use bulkhead_qemu::Counts;

/// Last line of the programs.
const END: &str = "measure: done";
/// Least samples of each span.
const ENOUGH: u64 = 40;

/// Messages and signals.
pub fn calls() -> Found {
    measured(
        "kernel",
        &[
            // With the selectors and the thread pointer of who goes on (decision 34): 10 instructions.
            (id::KERNEL_CALL, 165.0),
            (id::KERNEL_REPLY, 175.0),
            (id::KERNEL_CALL_SLOW, 450.0),
            (id::KERNEL_REPLY_SLOW, 550.0),
            (id::KERNEL_CALL_CAP, 450.0),
            (id::KERNEL_REPLY_CAP, 550.0),
            (id::KERNEL_SIGNAL, 120.0),
            (id::KERNEL_WAIT, 120.0),
            (id::KERNEL_SCHEDULE, 320.0),
        ],
    )
}

/// Measures calls between threads that have vector registers.
pub fn vectors() -> Found {
    let ran = System::new("kernel-fpu", "kernel-fpu").one_core().run()?;
    let one = |which| reported(&ran.counts, which);
    Ok(vec![one(id::KERNEL_CALL_FPU)?, one(id::KERNEL_REPLY_FPU)?])
}

/// Measures activities that begin by themselves.
pub fn times() -> Found {
    // Both have room of a tenth.
    let mut figures = measured("kernel-replenish", &[(id::KERNEL_REPLENISH, 340.0)])?;
    figures.extend(measured("kernel-timeout", &[(id::KERNEL_TIMEOUT, 475.0)])?);
    Ok(figures)
}

/// Measures the cost of an event in a traced kernel: the extra time of a call and its answer, by the number of their
/// events.
pub fn trace() -> Found {
    // A donation or its end, and who runs from then on.
    const EVENTS: f64 = 2.0 + 2.0;
    let quiet = System::new("kernel", "kernel-quiet").one_core().run()?;
    let wanted = "admission = \"none\"";
    let traced = System::new("kernel", "kernel-traced")
        .changed(wanted, format!("{wanted}, trace = \"1 MiB\""))
        .one_core()
        .run()?;
    let both = |counts: &Counts| -> Result<f64, Failure> {
        let one = |which| Ok(reported(counts, which)?.row.value);
        one(id::KERNEL_CALL).and_then(|call| Ok(call + one(id::KERNEL_REPLY)?))
    };
    let (quiet, traced) = (both(&quiet.counts)?, both(&traced.counts)?);
    // Six words of a record, each an atomic store, what is told being new, and the TSC: 54, and 10 % of room.
    let row = Row::new("kernel.trace_event", "instructions", (traced - quiet) / EVENTS);
    let note = format!("call and answer: {traced} with a trace, {quiet} without");
    Ok(vec![Figure::new(row).must(Must::AtMost(60.0)).note(note)])
}

/// A device's message, up to the driver's thread.
pub fn interrupt() -> Found {
    let wanted = |dir| System::new("kernel-irq", dir).one_core();
    let ran = wanted("kernel-irq").run()?;
    let bare = wanted("kernel-irq-alone").without_monitors().run()?;
    let [value, baseline] = [&ran, &bare].map(|ran| reported(&ran.counts, id::KERNEL_IRQ));
    let (value, baseline) = (value?, baseline?);
    let row = value.row.against(baseline.row.value);
    let exits = { ran.counts.span(id::KERNEL_IRQ) }.map_or(f64::NAN, |spans| spans.vmruns as f64);
    Ok(vec![
        Figure::new(row).must(Must::AtMostAndAlike(320.0)).note(value.note),
        Figure::new(Row::new("exits.kernel_irq", "exits", exits)).must(Must::AtMost(0.0)),
    ])
}

/// Measures interrupts by the function's line, which is level-triggered.
pub fn line() -> Found {
    const GIVEN: &str = "devices = [\"pci:1234:11e8\"]";
    let wanted = |dir| System::new("kernel-irq", dir).one_core();
    let line = "devices = [{ device = \"pci:1234:11e8\", line = true }]";
    let ran = wanted("kernel-line").changed(GIVEN, line).run()?;
    let row = reported(&ran.counts, id::KERNEL_IRQ)?;
    let exits = { ran.counts.span(id::KERNEL_IRQ) }.map_or(f64::NAN, |spans| spans.vmruns as f64);
    let (value, note) = (row.row.value, row.note);
    Ok(vec![
        Figure::new(Row::new("kernel.line_to_thread", "instructions", value)).note(note),
        Figure::new(Row::new("exits.kernel_line", "exits", exits)).must(Must::AtMost(0.0)),
    ])
}

/// A program's snapshot of 64 KiB of which 4 KiB changed, in the worst order: the page before was another one.
pub fn snapshot() -> Found {
    const LIMIT: &str = "longest = \"100 us\"\n";
    let wanted = |dir| System::new("keeper", dir).one_core();
    let ran = wanted("kernel-snapshot").run()?;
    let plain = wanted("kernel-snapshot-plain").changed(LIMIT, "").run()?;
    let [figure, plain] = [&ran, &plain].map(|ran| reported(&ran.counts, id::KERNEL_SNAPSHOT));
    let (figure, plain) = (figure?, plain?.row.value);
    let note = format!(
        "with the call of the keeper and its answer, {plain} where the call has no `longest`; two pages are copied and summed up, the one that changed and the one before; {}",
        figure.note
    );
    Ok(vec![Figure::new(figure.row).must(Must::AtMost(7_000.0)).note(note)])
}

/// Each span in a sandbox, and how it compares to the bare machine's.
fn measured(system: &'static str, rows: &[(u16, f64)]) -> Found {
    let wanted = || System::new(system, system).one_core();
    let ran = wanted().run()?;
    let (bare, _) = wanted().run_bare(END)?;
    let mut figures = Vec::new();
    for (which, most) in rows {
        figures.push(alike(&ran.counts, &bare, *which)?.must(Must::AtMostAndAlike(*most)));
    }
    Ok(figures)
}

/// Compares a span in a sandbox with one of the kernel without a monitor.
pub(super) fn alike(counts: &Counts, alone: &Counts, which: u16) -> Result<Figure, Failure> {
    let (figure, alone) = (reported(counts, which)?, reported(alone, which)?);
    Ok(Figure::new(figure.row.against(alone.row.value)).note(figure.note))
}

/// Computes the most that an activation of a context costs, in instructions: the interrupt that refills it, and two
/// switches.
pub fn activation() -> Result<u64, Failure> {
    let most = |system: &'static str, which| -> Result<u64, Failure> {
        let ran = System::new(system, "kernel-activation").one_core().run()?;
        let spans = ran.counts.span(which).filter(|spans| spans.n >= ENOUGH);
        Ok(spans.ok_or_else(|| format!("{system} measured nothing"))?.max)
    };
    let refill = most("kernel-replenish", id::KERNEL_REPLENISH)?;
    Ok(refill + 2 * most("kernel", id::KERNEL_SCHEDULE)?)
}

/// A span of a run.
pub(super) fn reported(counts: &Counts, which: u16) -> Result<Figure, Failure> {
    let name = NAMES.iter().find(|(id, _)| *id == which).map_or("?", |(_, name)| name);
    let spans = counts.span(which).filter(|spans| spans.n >= ENOUGH);
    let spans = spans.ok_or_else(|| format!("{name} was not measured"))?;
    let row = Row::new(name, "instructions", spans.median as f64);
    let note = format!("{} to {} in {} rounds", spans.min, spans.max, spans.n);
    Ok(Figure::new(row).note(format!("{note}; {} exits", spans.vmruns)))
}

/// Systems of the tests in which programs do what takes the kernel long, or try to.
const BUSY: [&str; 5] = ["hostile", "overrun", "familiar", "vcpu", "edf"];
/// Most instructions of an entry, during which interrupts are off.
const ENTRY: f64 = 10_000.0;
/// Instructions before the marker of an entry and behind that of its end: two pushes, a jump, and the return.
const AROUND: u64 = 4;

/// The longest time that the kernel keeps an interrupt waiting.
pub fn entries() -> Found {
    const KERNEL: &str = "kind = \"kernel\"";
    let longest = |name: &&'static str| -> Result<(u64, u64, &'static str), Failure> {
        let path: &'static str = format!("../../tests/kernel/{name}").leak();
        let system = System::new(path, "kernel-entries").one_core().without_monitors();
        let marked = format!("{KERNEL}, kernel = \"artifact:kernel-trace\"");
        let ran = system.changed_all(KERNEL, marked).run()?;
        let spans = ran.counts.span(id::KERNEL_ENTRY).filter(|spans| spans.n >= ENOUGH);
        let spans = spans.ok_or_else(|| format!("{name}: no entries"))?;
        Ok((spans.max + AROUND, spans.n, name))
    };
    let all = BUSY.iter().map(longest).collect::<Result<Vec<_>, _>>()?;
    let entries: u64 = all.iter().map(|(_, n, _)| n).sum();
    let (most, _, name) = all.iter().max().ok_or("no systems")?;
    let row = Row::new("kernel.entry_longest", "instructions", *most as f64);
    let note = format!("{entries} entries in {} systems; the longest in {name}", all.len());
    Ok(vec![Figure::new(row).must(Must::AtMost(ENTRY)).note(note)])
}

/// The kernel's text, without what runs once at the start.
pub fn text() -> Found {
    let image = std::fs::read(build::target().join("artifacts/kernel"))?;
    let row = |name, section| -> Result<Row, Failure> {
        let bytes = bulkhead_image::section_len("kernel", &image, section)?;
        Ok(Row::new(name, "bytes", bytes as f64))
    };
    Ok(vec![
        // 2 KiB for calls with limits (decision 30), 1 KiB for selectors, bases and vectors (decision 34), and room
        // of a tenth.
        Figure::new(row("kernel.text", ".text")?).must(Must::AtMost(40_960.0)),
        Figure::new(row("kernel.start", ".start")?).note("runs once"),
    ])
}
