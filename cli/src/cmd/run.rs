//! `bulkhead run`: boots a system in QEMU and tells what happens.

use super::ManifestArguments;
use crate::interrupt::Interrupt;
use crate::output;
use bulkhead_layout::report::State;
use bulkhead_qemu::Time;
use bulkhead_run::{Event, Options, Outcome, judge};
use std::fs::{File, TryLockError};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Build a system, boot it in QEMU and watch it. With a terminal: live, until a
/// guest powers off or Ctrl-C; it reports and judges nothing. Without one, or with
/// CI=true: the scenario in deterministic virtual time, to its end, and every promise
/// is judged.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// Architecture of the machine.
    #[arg(long, default_value = "x86-64", value_parser = ["x86-64"])]
    arch: String,
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
    /// Give up after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// Write the report, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What shells say of a command that Ctrl-C ended: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// What a run in host time cannot tell.
const NOT_JUDGED: &str = "  not judged: this was a live run, in which you stop and start what you like, and the emulator's threads \
    wait for the host's cores; CI=true or --icount runs the scenario in virtual time and judges every promise\n";

/// A guest that was cut off may have left its own screen, without a cursor: back to
/// the usual one, below what is there.
const LEAVE_SCREEN: &str = "\x1b[?1047l\x1b[?25h\x1b[999H\n";

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let checked = match arguments.manifest.load(false) {
        Ok(checked) => checked,
        Err(findings) => {
            super::show(&findings);
            return ExitCode::FAILURE;
        }
    };
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    let terminal = std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && !ci
        && !arguments.icount;
    let timed = !(terminal || arguments.live);
    let name = checked.system.name.clone();
    // Held until this process ends.
    let (folder, _lock) = match free_folder(&name) {
        Ok(free) => free,
        Err(error) => return output::fail(&error),
    };
    let mut options = Options::new(arguments.manifest.folder(), folder);
    options.terminal = terminal;
    options.cores = arguments.smp.map(usize::from);
    options.limit = Duration::from_secs(arguments.limit);
    options.duration = arguments.duration.map(Duration::from_secs);
    if !timed {
        options.time = Time::Live;
    }
    options.scenario = !terminal;
    // In virtual time, at the end: nothing that is measured waits for it.
    options.audit = timed;
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
    let shown = !terminal;
    let interrupt = Interrupt::default();
    let asked = interrupt.clone();
    options.stop = Some(Box::new(move || asked.came()));
    let result = bulkhead_run::run(checked, &options, |event| {
        if let Event::Started(_) = event {
            interrupt.arm();
        }
        tell(&event, shown);
    });
    let interrupted = interrupt.came();
    if interrupted && terminal {
        output::result(LEAVE_SCREEN);
    }
    let mut outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => return output::fail(&error.to_string()),
    };
    // What a person does in a live run is no breach of anything.
    if timed {
        outcome.report.promises = judge(&outcome, timed);
    }
    let status = finish(&outcome, timed, arguments.report.as_ref());
    if interrupted {
        output::complain("interrupted");
        return ExitCode::from(INTERRUPTED);
    }
    status
}

/// The first of `target/run/NAME`, `target/run/NAME-2` and so on, below the current
/// folder, that no other run uses: two runs would write each other's logs and answer
/// each other's requests.
pub fn free_folder(name: &str) -> Result<(PathBuf, File), String> {
    const MOST: usize = 64;
    for number in 1..=MOST {
        let name = if number == 1 { name.into() } else { format!("{name}-{number}") };
        let folder = PathBuf::from("target/run").join(name);
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

fn tell(event: &Event, shown: bool) {
    match event {
        Event::Started(_) => {}
        _ if !shown => {}
        Event::Console(name, text) => {
            for line in text.lines() {
                output::result(&format!("[{name}] {line}\n"));
            }
        }
        Event::Denied(denial) => output::result(&format!("[denied] {denial}\n")),
        Event::Blocked(event) => output::result(&format!("[blocked] {event}\n")),
        Event::State(name, state)
            if matches!(state, State::Stopped | State::Exited | State::Failed) =>
        {
            output::result(&format!("[{name}] is now {state:?}\n").to_lowercase());
        }
        Event::State(..) => {}
    }
}

/// Prints the end report and writes the file.
fn finish(outcome: &Outcome, timed: bool, file: Option<&PathBuf>) -> ExitCode {
    let report = &outcome.report;
    let mut text = String::new();
    for serial in outcome.serials.iter().skip(1).filter(|s| !s.is_empty()) {
        let lines: Vec<_> = serial.lines().collect();
        let last = lines.len().saturating_sub(12);
        text += "last lines of a serial port:\n";
        lines[last..].iter().for_each(|l| text += &format!("  {l}\n"));
    }
    text += &format!("\n{}: report\n", report.system);
    for sandbox in &report.sandboxes {
        text += &format!(
            "  {:<12} cores {:?}, {}, {} restarts, {} denied accesses; exits: boot {}, steady {} in {:.2} s\n",
            sandbox.name,
            sandbox.cores,
            sandbox.state,
            sandbox.restarts,
            sandbox.denials,
            sandbox.exits.boot.values().sum::<u64>(),
            sandbox.exits.steady.values().sum::<u64>(),
            sandbox.exits.steady_seconds
        );
    }
    for promise in &report.promises {
        let mark = if promise.held { "held  " } else { "BROKEN" };
        text += &format!("  {mark} {}: {}\n", promise.name, promise.detail);
    }
    let plan = &outcome.baked.plan;
    for (who, lessons) in plan.sandboxes.iter().zip(&outcome.lessons).filter(|(who, _)| who.learn) {
        text += &lessons.text(who, plan);
    }
    if !timed {
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

fn write(file: &PathBuf, report: &bulkhead_watch::Report) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::other)?;
    std::fs::write(file, text + "\n")
}
