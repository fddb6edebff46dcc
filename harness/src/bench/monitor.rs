//! The cost of the monitor itself.

use super::Found;
use super::figure::{Figure, Must};
use super::system::System;
use crate::program::Program as _;
use crate::rows::Row;
use crate::{Failure, build, selftest};
use bulkhead_layout::PAGE;
use bulkhead_layout::marker::id;
use bulkhead_qemu::counts::Distribution;
use bulkhead_run::audit::program_of;
use std::process::Command;

/// Lives of the guest that is restarted.
const LIVES: u64 = 8;

/// A null hypercall and an interrupt to another core, from before the guest's
/// instruction to after it: that one, the monitor's, and its VMRUN.
pub fn calls() -> Found {
    let ran = System::new("micro", "micro").run()?;
    let one = |id, name: &str, most| -> Result<Figure, Failure> {
        let d = ran.counts.span(id).filter(|d| d.n > 0).ok_or_else(|| format!("no {name}"))?;
        let note = format!(
            "{} to {} in {} rounds; {:.1} of them in the monitor",
            d.min,
            d.max,
            d.n,
            d.privileged as f64 / d.n as f64
        );
        Ok(Figure::new(Row::new(name, "instructions", d.median as f64))
            .must(Must::AtMost(most))
            .note(note))
    };
    // Both have room of a tenth.
    Ok(vec![
        one(id::HYPERCALL, "monitor.hypercall", 76.0)?,
        one(id::ICR, "monitor.icr", 92.0)?,
        // Quest-V's table IV has an exit and an entry, with nothing between them.
        one(id::HYPERCALL, "recover.exit_enter", 120.0)?,
    ])
}

/// Measures a doorbell that takes a channel away, the dearest that ends no life: the receiver's monitor does all of the
/// work. The first run has the smallest system, and each other one has more of a part that costs time.
pub fn doorbells() -> Found {
    Ok(vec![
        doorbell("monitor.doorbell", "doorbell", [1, 1], "4 KiB")?,
        doorbell("monitor.doorbell_sandboxes", "doorbell-sandboxes", [6, 1], "4 KiB")?,
        doorbell("monitor.doorbell_links", "doorbell-links", [1, 16], "4 KiB")?,
        doorbell("monitor.doorbell_pages", "doorbell-pages", [1, 1], "1 MiB")?,
    ])
}

/// Measures that doorbell with so many other sandboxes, and links of a size.
fn doorbell(
    name: &str,
    dir: &'static str,
    [others, links]: [usize; 2],
    size: &str,
) -> Result<Figure, Failure> {
    // A monitor looks at the mail of those alone that have a right.
    const RIGHT: &str = " }\nstop = [{ sandbox = \"micro\", every = \"1 s\" }]";
    const CORES: &str = "cores = [0, 1]\nmemory = \"4 MiB\"\n";
    let bare = |name: &str, core: usize, program: &str, more: &str| {
        format!(
            "[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"bare\", program = \"artifact:{program}\"{more}\ncores = [{core}]\nmemory = \"4 MiB\"\n"
        )
    };
    let does = format!(
        ", args = \"do=taken ms=1000 blind=1\" }}\nlinks = {{ to = [\"micro\"], count = {links}, size = \"{size}\" }}"
    );
    let mut text = CORES.replace("[0, 1]", "[0]") + &bare("owner", 1, "abuser", &does);
    for other in 2..=others {
        text += &bare(&format!("other{other}"), other, "hello", RIGHT);
    }
    let ran = System::new("micro", dir)
        .changed(CORES, text)
        .changed(
            "[[sandbox]]\nname = \"micro\"",
            "[run]\nends_with = [\"micro\"]\n\n[[sandbox]]\nname = \"micro\"",
        )
        .with("micro", "rung")
        .run()?;
    let spans = ran.counts.span(id::DOORBELL).filter(|d| d.n >= 50);
    let found = spans.ok_or("too few doorbells")?;
    if found.vmruns != found.n {
        return Err(format!("{} exits for {} doorbells", found.vmruns, found.n).into());
    }
    let each = found.privileged as f64 / found.n as f64;
    let most = ran.outcome.baked.plan.doorbell(0);
    let note =
        format!("beside {others} sandboxes, with {links} links of {size}; mean of {}", found.n);
    Ok(Figure::new(Row::new(name, "instructions", each)).must(Must::AtMost(most as f64)).note(note))
}

/// From before a violation to the first instruction of the next life, less the
/// zeroing and copying of the memory. One core runs, so the TSC ticks that its
/// monitor notes around these are its instructions.
pub fn restart() -> Found {
    let ran = System::new("restart", "restart")
        .with("rogue", format!("attack=read-far lives={LIVES}"))
        .one_core()
        .run()?;
    let spans = ran.counts.span(id::RESTART).filter(|d| d.n >= LIVES - 1);
    let Distribution { median, n, .. } = spans.ok_or("rogue was not restarted")?;
    let report = &ran.outcome.snapshot.sandboxes[0].report;
    let reload = report.played_ticks - report.begin_ticks;
    let row = Row::new("monitor.restart", "instructions", (median - reload) as f64);
    let note = format!("and {reload} to zero and copy its memory; median of {n}");
    Ok(vec![Figure::new(row).must(Must::AtMost(20_000.0)).note(note)])
}

/// Sizes and the boot, from the report of a system with three sandboxes.
pub fn sizes() -> Found {
    let ran = System::new("micro", "sizes").run()?;
    let report = &ran.outcome.report;
    let boot = report.boot.as_ref().ok_or("the boot left no report")?;
    let bytes = |name: &str, n: u64| Row::new(name, "bytes", n as f64);
    let text = |name: &str| -> Result<u64, Failure> {
        let segments = program_of(&build::target().join("artifacts").join(name))?;
        Ok(segments.iter().filter(|s| s.execute).map(|s| s.len).sum())
    };
    let mut all = Vec::new();
    // Each has room of a tenth.
    for (name, row, most, what) in [
        ("monitor", "monitor.text", 25_600.0, "with code for all needs"),
        ("monitor-plain", "monitor.text_plain", 13_312.0, "without devices"),
        (
            "monitor-control",
            "monitor.text_control",
            10_752.0,
            "without a Linux' needs and links, too",
        ),
    ] {
        all.push(Figure::new(bytes(row, text(name)?)).must(Must::AtMost(most)).note(what));
    }
    let watched = text("monitor-watched")? - text("monitor")?;
    let figure = Figure::new(bytes("monitor.text_watchdog", watched)).must(Must::AtMost(4_608.0));
    all.push(figure.note("what watchdogs, sweeps, ladders and peers add to the largest; 1,536 for looks, for answers and for peers"));
    let warm = text("monitor-control-warm")? - text("monitor-control-watched")?;
    let figure = Figure::new(bytes("monitor.text_snapshot", warm)).must(Must::AtMost(1_536.0));
    all.push(figure.note("what snapshots add to the smaller one with watchdogs and ladders"));
    let standby = text("monitor-control-standby")? - text("monitor-control-warm")?;
    let figure = Figure::new(bytes("monitor.text_failover", standby)).must(Must::AtMost(2_816.0));
    all.push(figure.note("what roles add to the smaller one with snapshots"));
    let registers = text("monitor-control-registers")? - text("monitor-control-locks")?;
    let figure =
        Figure::new(bytes("monitor.text_registers", registers)).must(Must::AtMost(4_096.0));
    all.push(figure.note("what ranges of shared registers add to the smaller one, the decoder of instructions with them"));
    let running = bytes("monitor.text_running", text("monitor-running")?);
    let figure = Figure::new(running).must(Must::AtMost(14_336.0));
    all.push(figure.note("that of a Linux that runs already, 8,693 of it before one in xAPIC mode could be; none of it is in the others"));
    let devices = bytes("monitor.text_running_devices", text("monitor-running-devices")?);
    let figure = Figure::new(devices).must(Must::AtMost(26_624.0));
    all.push(figure.note("that of a Linux that runs already, whose devices are confined"));
    let checked = bytes("monitor.text_checked", text("monitor-checked")?);
    all.push(Figure::new(checked).note("with code for all needs, built with checks and for speed"));
    let kernel = System::new("kernel", "sizes").baked()?;
    let own = kernel.map.parts.iter().filter(|part| part.owner == Some(0) && part.mapped);
    let own = own.filter(|part| part.what != "pristine guest").map(|part| part.len).sum::<u64>();
    let note = format!("{} pages that its monitor alone maps", own / PAGE);
    let text = kernel.map.texts.first().map_or(0, |(_, bytes)| *bytes);
    let figure = Figure::new(bytes("monitor.text_kernel", text));
    all.push(figure.must(Must::AtMost(8_192.0)).note(note));
    all.extend([
        Figure::new(bytes("monitor.resident", report.monitor.resident_bytes)),
        Figure::new(bytes("boot.bytes", report.monitor.boot_bytes)),
        Figure::new(Row::new("boot.instructions", "instructions", boot.instructions as f64))
            .must(Must::AtMost(2_000_000.0))
            .note(format!(
                "and {} µs of waiting, {} µs of zeroing and copying",
                boot.waiting_us, boot.copying_us
            )),
    ]);
    Ok(all)
}

/// The clock's own error; outside of its bounds no other figure counts.
pub fn clock() -> Found {
    const TICKS: u32 = 500;
    let dir = build::target().join("bench/selftest");
    let (rows, faults) = selftest::run(&dir, TICKS)?;
    if faults.is_empty() {
        Ok(rows.into_iter().map(Figure::new).collect())
    } else {
        Err(faults.join("; ").into())
    }
}

/// A number of lines that tools/lines.sh prints behind a word.
pub fn counted(part: &str) -> Result<f64, Failure> {
    let counted = Command::new(build::root().join("tools/lines.sh")).arg("-q").printed()?;
    let text = String::from_utf8_lossy(&counted.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(part));
    let number = line.and_then(|line| line.trim().parse().ok());
    Ok(number.ok_or_else(|| format!("tools/lines.sh says nothing of {part}: {text}"))?)
}

/// Linked privileged lines.
pub fn lines() -> Found {
    let (monitor, boot) = (counted("monitor ")?, counted("boot ")?);
    let row = |name, lines| Row::new(name, "lines", lines);
    Ok(vec![
        Figure::new(row("monitor.lines", monitor))
            .must(Must::AtMost(8_300.0))
            .note("2,800 before channels were PCI functions, had doorbells, and were closed for who has ended; 2,950 before a Linux could be woken, and programs made calls and were loaded; 3,100 before channels were made at run time; 3,420 before rights had rates and denials were kept by condition; 4,000 before no late core broke the IOAPIC's lock and the clock was answered by index, with 10 % of room since; 4,250 before it was portable: a contract between its crates, and outcomes that handlers return; 5,400 before ladders; 5,600 before peers and snapshots; 6,700 before a Linux that runs already; 7,500 before a debugger"),
        Figure::new(row("boot.lines", boot))
            .must(Must::AtMost(2_500.0))
            .note("with the monitor's lines at most 6,500 before a monitor was portable; with its bound 7,700 since; 2,300 before it told its reasons to two kinds of starts"),
        Figure::new(row("late.lines", counted("late ")?))
            .must(Must::AtMost(1_150.0))
            .note("beside files of the boot code, to start under a Linux; none of it stays; 550 before devices were confined, 793 before some were given away, and 894 before a Linux could begin anew"),
        Figure::new(row("module.lines", counted("module ")?))
            .must(Must::AtMost(1_700.0))
            .note("of C and assembly, in the Linux; 1,000 before devices were confined, and before all cores entered or none; 1,104 before devices were given away, and 1,389 before channels and restarts"),
    ])
}
