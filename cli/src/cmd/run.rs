//! `bulkhead run`: boots a system in its machine's emulator and tells what happens.

use super::ManifestArguments;
use crate::denied::Denied;
use crate::interrupt::Interrupt;
use crate::output::{self, Progress};
use crate::status;
use bulkhead_explain::Untrusted;
use bulkhead_layout::report::State;
use bulkhead_plan::{Arch, Emulator};
use bulkhead_qemu::Time;
use bulkhead_run::{Event, Log, Options, Outcome, judge};
use std::cell::RefCell;
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Build a system, boot it in QEMU, or in Bochs where the machine description says so, and watch it. With a terminal:
/// live, until a guest powers off or Ctrl-C; it reports and judges nothing. Without one, or with
/// CI=true: the scenario in deterministic virtual time, to its end, and every promise
/// is judged.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// Cores of the machine [default: as many as the manifest uses].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    smp: Option<u8>,
    /// Deterministic virtual time, even with a terminal.
    #[arg(long)]
    icount: bool,
    /// Host time, even without a terminal.
    #[arg(long, conflicts_with = "icount")]
    live: bool,
    /// QEMU waits for gdb on port 1234; the sandbox's first core is named.
    #[arg(long, value_name = "SANDBOX")]
    gdb: Option<String>,
    /// End after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Give up after so many seconds: 300 without this, and 900 in Bochs, which is slower.
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Show all that serial ports sent, not only their last lines.
    #[arg(long)]
    serial: bool,
    /// Write the report, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Words for the promises that a run in host time cannot judge.
const NOT_JUDGED: &str = "  not judged: this was a live run, in which you stop and start what you like, and the emulator's threads \
    wait for the host's cores; CI=true or --icount runs the scenario in virtual time and judges every promise\n";

/// Limits of a run in Bochs.
const NOT_TIMED: &str = "  Bochs' time is not counted in instructions: promises about time are not judged (docs/vtx.md)\n";

/// Makes the command's later lines visible, below the screen's text. The guest may have left the terminal with an open
/// sequence, another screen, no cursor, hidden letters, a smaller region, another character set, no wrapping. ST and
/// CAN end a sequence, and DECSTR resets. The rest resets the states that some terminals leave out of
/// that.
const LEAVE_SCREEN: &str =
    "\x1b\\\x18\x1b[!p\x1b[?1047l\x1b[?25h\x1b[?7h\x1b[?5l\x1b[0m\x1b[r\x1b(B\x0f\x1b[999H\n";

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let checked = match super::make::load(&arguments.manifest) {
        Ok(checked) => checked,
        Err(status) => return status,
    };
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    let terminal = std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && !ci
        && !arguments.icount;
    // Bochs' time has nothing to do with instructions.
    let bochs = checked.system.machine.emulator == Emulator::Bochs;
    let timed = !(terminal || arguments.live || bochs);
    let name = checked.system.name.clone();
    // Held until this process ends.
    let (folder, _lock) = match free_folder(&name) {
        Ok(free) => free,
        Err(error) => return output::fail(&error),
    };
    let mut options = Options::new(arguments.manifest.folder(), folder);
    options.terminal = terminal && !bochs;
    options.cores = arguments.smp.map(usize::from);
    options.limit = Duration::from_secs(arguments.limit.unwrap_or(if bochs { 900 } else { 300 }));
    options.duration = arguments.duration.map(Duration::from_secs);
    if !timed {
        options.time = Time::Live;
    }
    options.scenario = !options.terminal;
    // At the end: nothing that is measured waits for it. Bochs shows no VMCB.
    let vmx = checked.system.machine.arch == Arch::Vmx;
    options.audit = timed || vmx && !terminal && !arguments.live;
    if let Some(sandbox) = &arguments.gdb {
        let Some(found) = checked.system.sandboxes.iter().find(|s| s.sandbox.name == *sandbox)
        else {
            return output::fail(&format!("--gdb: there is no sandbox {sandbox}"));
        };
        let core = found.sandbox.cores.first().map_or(1, |c| c + 1);
        output::complain(&format!(
            "gdb: `target remote :1234`, then `thread {core}` is {sandbox}'s first core"
        ));
        options.qemu.extend(["-s".into(), "-S".into()]);
    }
    // A system without monitors confines nobody anyway.
    if !(checked.system.multikernel || bochs) {
        output::complain(&bulkhead_qemu::confines(bulkhead_qemu::PROGRAM));
    }
    let shown = !options.terminal;
    let interrupt = Interrupt::default();
    let asked = interrupt.clone();
    let progress = RefCell::new(Progress::begin());
    options.stop = Some(Box::new(move || {
        if shown {
            progress.borrow_mut().tell("the machine runs");
        }
        asked.came()
    }));
    let mut denied = Denied::default();
    let result = bulkhead_run::run(checked, &options, |event| {
        if let Event::Started(_) = event {
            interrupt.arm();
        }
        tell(event, &mut denied, shown);
    });
    output::result(&denied.rest());
    let interrupted = interrupt.came();
    if options.terminal {
        output::result(LEAVE_SCREEN);
    }
    let mut outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => return output::fail(&error.to_string()),
    };
    outcome.report.manifest = Some(arguments.manifest.manifest.display().to_string());
    // A person's commands in a live run break no promise; nobody types into Bochs.
    if timed || bochs {
        outcome.report.promises = judge(&outcome, timed);
    }
    let status = finish(&outcome, arguments, timed);
    if interrupted {
        output::complain("interrupted");
        return ExitCode::from(status::INTERRUPTED);
    }
    status
}

/// Finds the first of `target/run/NAME`, `target/run/NAME-2` and so on, below the current folder, that no other run
/// uses. Two runs in one folder would write each other's logs and answer each other's requests.
pub fn free_folder(name: &str) -> Result<(PathBuf, File), String> {
    const MOST: usize = 64;
    for number in 1..=MOST {
        let name = if number == 1 { name.into() } else { format!("{name}-{number}") };
        let folder = super::run_folder(&name);
        let error = |e: std::io::Error| {
            let folder = folder.display();
            format!("{folder}, for the image and the logs of a run here: {e}")
        };
        std::fs::create_dir_all(&folder).map_err(error)?;
        let lock = File::create(folder.join("lock")).map_err(error)?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => {}
            // A file system without locks: then it is the user who keeps runs apart.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok((folder, lock)),
        }
    }
    Err(format!("{MOST} runs of {name} are under way here"))
}

fn tell(event: Event, denied: &mut Denied, shown: bool) {
    match event {
        Event::Started(_) => {}
        _ if !shown => {}
        Event::Console(name, text) => {
            for row in text.rows(&format!("[{name}] "), output::columns()) {
                output::result(&(row + "\n"));
            }
        }
        Event::Lost(name, bytes) => output::result(&format!(
            "[lost] {name}: {bytes} bytes of its console were overwritten before they were read\n"
        )),
        Event::Denied(denial) => {
            denied.tell(denial).iter().for_each(|line| output::result(line));
        }
        Event::Overwritten(name, core, records) => output::result(&format!(
            "[denied] {name} core {core}: {records} records were overwritten before they were read\n"
        )),
        Event::Blocked(event) => output::result(&format!("[blocked] {event}\n")),
        Event::State(name, state)
            if matches!(state, State::Stopped | State::Exited | State::Failed) =>
        {
            output::result(&format!("[{name}] is now {state:?}\n").to_lowercase());
        }
        Event::State(..) => {}
    }
}

/// A serial port's name among the logs.
const SERIAL: &str = "serial port";
/// Lines of a serial port that are shown at the end.
const LAST: usize = 12;

/// Prints all that a serial port sent, escaped, line by line: it may be long.
fn show_whole(log: &Log) -> std::io::Result<()> {
    /// Bytes that are taken for a line at most.
    const LINE: u64 = 1 << 16;
    let (mark, columns) = (format!("  {}: ", log.name), output::columns());
    let mut file = BufReader::new(File::open(&log.path)?);
    loop {
        let mut bytes = Vec::new();
        if (&mut file).take(LINE).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(());
        }
        for row in Untrusted::new(bytes).rows(&mark, columns) {
            output::result(&(row + "\n"));
        }
    }
}

/// Prints the end report and writes the file.
fn finish(outcome: &Outcome, arguments: &Arguments, timed: bool) -> ExitCode {
    let (file, whole) = (arguments.report.as_ref(), arguments.serial);
    let report = &outcome.report;
    let mut text = String::new();
    let bochs = outcome.baked.plan.machine.emulator == Emulator::Bochs;
    // QEMU's first port has the boot code's messages before a guest's; in Bochs it is often a guest's.
    let serials = outcome.serials.iter().enumerate().skip(usize::from(!bochs));
    for (n, serial) in serials.filter(|(_, s)| !whole && !s.is_empty()) {
        let mark = format!("  serial port {}: ", n + 1);
        for row in serial.last_rows(LAST, &mark, output::columns()) {
            text += &(row + "\n");
        }
    }
    for log in outcome.logs.iter().filter(|log| whole && log.name.starts_with(SERIAL)) {
        if let Err(error) = show_whole(log) {
            output::complain(&format!("{}: {error}", log.path.display()));
        }
    }
    text += &format!("\n{}: report\n", report.system);
    for sandbox in &report.sandboxes {
        text += &format!(
            "  {:<12} cores {:?}, {}, {} restarts, {} denied accesses{}; exits: boot {}, steady {} in {:.2} s\n",
            sandbox.name,
            sandbox.cores,
            sandbox.state,
            sandbox.restarts,
            sandbox.denials,
            match sandbox.overwritten {
                0 => String::new(),
                records => format!(", {records} records overwritten by later ones"),
            },
            sandbox.exits.boot.values().sum::<u64>(),
            sandbox.exits.steady.values().sum::<u64>(),
            sandbox.exits.steady_seconds
        );
        for deed in &sandbox.newest_deeds {
            text += &format!("    {deed}\n");
        }
        for refused in sandbox.by_condition.iter().filter(|_| sandbox.overwritten > 0) {
            let first = refused.first.as_ref().map_or("being written".into(), ToString::to_string);
            text += &format!("    {} ×{}, the first: {first}\n", refused.condition, refused.count);
        }
    }
    if report.blocked_dma_full {
        text += "  the IOMMU's log is full: what it blocked later is not among the lines above\n";
    }
    for promise in &report.promises {
        let mark = if promise.held { "held  " } else { "BROKEN" };
        text += &format!("  {mark} {}: {}\n", promise.name, promise.detail);
    }
    for log in &outcome.logs {
        text += &format!(
            "  {}: {} bytes, as they came, in {}",
            log.name,
            log.bytes,
            log.path.display()
        );
        if log.cut + log.lost > 0 {
            let Log { cut, lost, .. } = log;
            text += &format!(
                ", but {cut} that did not fit and {lost} that were overwritten before they were read"
            );
        }
        text.push('\n');
    }
    let plan = &outcome.baked.plan;
    for (who, lessons) in plan.sandboxes.iter().zip(&outcome.lessons).filter(|(who, _)| who.learn) {
        text += &lessons.text(who, plan);
    }
    if bochs {
        text += NOT_TIMED;
    } else if !timed {
        text += NOT_JUDGED;
    }
    output::result(&text);
    if let Some(file) = file
        && let Err(error) = write(file, report)
    {
        return output::fail(&format!("{}: {error}", file.display()));
    }
    let failed = report.sandboxes.iter().find(|sandbox| sandbox.state == "failed");
    match failed {
        Some(sandbox) => output::fail(&format!("the monitor of {} failed", sandbox.name)),
        None if report.promises.iter().all(|p| p.held) => ExitCode::SUCCESS,
        None => output::fail("a promise was broken"),
    }
}

fn write(file: &PathBuf, report: &bulkhead_explain::Report) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::other)?;
    std::fs::write(file, text + "\n")
}
