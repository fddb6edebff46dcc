//! Systems for tests: a manifest as text, a run, and what was seen of it.

use crate::build;
use bulkhead_audit::claim::Range;
use bulkhead_audit::{Memory as _, RamFile};
use bulkhead_explain::{Explained, Report};
use bulkhead_layout::image::BootReport;
use bulkhead_layout::report::State;
use bulkhead_manifest::{Checked, load};
use bulkhead_qemu::{Kind, Running, Time};
use bulkhead_run::audit::{Audited, ram_of};
use bulkhead_run::{Event, Options, Outcome};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Virtual time without a metronome: fast, and every run is alike; timers may be late.
pub const FAST: Time = Time::Virtual { metronome: None };

/// Debian's newer kernel for clouds, without its packing: it starts without unpacking itself. Tests below
/// `guest/`, the demo and the benches boot the packed ones, as a user does.
pub const NEWER: &str = "linux-6.12-cloud.elf";
/// The older one.
pub const OLDER: &str = "linux-6.1-cloud.elf";

/// Words for the command line of such a kernel: it leaves out tests of itself that no test here is about.
const BRIEF: &str = "cryptomgr.notests";

/// [`BRIEF`] and a space, where a kernel is not packed.
pub fn brief(kernel: &str) -> String {
    if kernel.ends_with(".elf") { format!("{BRIEF} ") } else { String::new() }
}

/// A kernel's name without the mark of one that is not packed: files that belong to it are called so.
pub fn packed(kernel: &str) -> &str {
    kernel.trim_start_matches("linux-").trim_end_matches(".elf")
}

/// Where `make build` puts programs.
pub fn artifacts() -> PathBuf {
    build::target().join("artifacts")
}

/// A manifest in the making.
#[derive(Clone)]
pub struct Manifest(pub String);

impl Manifest {
    /// For QEMU's machine.
    pub fn new() -> Self {
        Self::on("qemu-q35")
    }

    /// For a machine description's machine.
    pub fn on(machine: &str) -> Self {
        Self(format!(
            "version = 1\n[system]\nname = \"test\"\nmachine = \"machines/{machine}.toml\"\n"
        ))
    }

    /// When the run ends; comes before the sandboxes.
    pub fn ends_with(mut self, names: &[&str]) -> Self {
        let _ = writeln!(self.0, "[run]\nends_with = {names:?}");
        self
    }

    /// A bare sandbox; `more` are further lines of it.
    pub fn bare(
        mut self,
        name: &str,
        program: &str,
        args: &str,
        cores: &[u32],
        memory: &str,
        more: &str,
    ) -> Self {
        let _ = writeln!(
            self.0,
            "[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"bare\", program = \"artifact:{program}\", args = \"{args}\" }}\ncores = {cores:?}\nmemory = {}\n{more}",
            memory_of(memory)
        );
        self
    }

    /// A Linux sandbox with its console on `uart`.
    pub fn linux(
        mut self,
        name: &str,
        kernel: &str,
        job: &str,
        cores: &[u32],
        memory: &str,
        uart: u32,
    ) -> Self {
        let _ = writeln!(
            self.0,
            "[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"linux\", kernel = \"artifact:{kernel}\", initrd = \"artifact:test.cpio\", cmdline = \"console=ttyS{uart},115200 {}bulkhead.run={job}\" }}\ncores = {cores:?}\nmemory = {}\ndevices = [\"uart{uart}\"]",
            brief(kernel),
            memory_of(memory)
        );
        self
    }

    /// With a file behind one of the machine's drives.
    pub fn drive(mut self, name: &str, file: &str) -> Self {
        let _ = writeln!(self.0, "[[run.drive]]\nname = \"{name}\"\nfile = \"artifact:{file}\"");
        self
    }

    /// Restarts a sandbox after every violation.
    pub fn restarting(mut self, sandbox: &str) -> Self {
        // Not those that go with a watchdog or a peer, and no end of its own.
        let denied = |kind: &&str| !matches!(*kind, "hang" | "failure" | "corruption" | "monitor");
        let denied = bulkhead_layout::report::KIND_NAMES.into_iter().filter(denied);
        for kind in denied {
            let _ = writeln!(
                self.0,
                "[[health]]\nsandbox = \"{sandbox}\"\non = \"{kind}\"\naction = \"restart\""
            );
        }
        self
    }

    /// Writes and loads it.
    pub fn load(&self, dir: &Path) -> Result<Checked, String> {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let path = dir.join("system.toml");
        std::fs::write(&path, &self.0).map_err(|e| format!("{}: {e}", path.display()))?;
        let options = bulkhead_manifest::Options {
            artifacts: Some(artifacts()),
            skip_files: false,
            ..Default::default()
        };
        load(&path, &options).map_err(|d| bulkhead_manifest::render::human(&d, false))
    }
}

fn memory_of(memory: &str) -> String {
    if memory.starts_with('{') { memory.into() } else { format!("\"{memory}\"") }
}

/// A machine's memory, also after its end.
pub struct Memory(RamFile);

impl Memory {
    fn open(path: &Path, banks: &[Range]) -> Option<Self> {
        RamFile::flat(path, banks).ok().map(Self)
    }

    /// For the auditor.
    pub fn whole(&self) -> &RamFile {
        &self.0
    }

    /// Reads; zeros where there is no RAM.
    pub fn read(&self, pa: u64, bytes: &mut [u8]) {
        if !self.0.read(pa, bytes) {
            bytes.fill(0);
        }
    }

    /// A word.
    pub fn word(&self, pa: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(pa, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The record of a run, however it ended.
pub struct Seen {
    /// How it ended.
    pub outcome: Result<Outcome, String>,
    /// All denials, in order.
    pub denials: Vec<Explained>,
    /// All consoles' text, each line with its sandbox.
    pub console: String,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Text of its serial ports, escaped.
    pub serials: Vec<String>,
    /// The folder of its manifest.
    pub place: String,
}

impl Seen {
    /// The outcome, or why there is none.
    pub fn outcome(&self) -> Result<&Outcome, String> {
        self.outcome.as_ref().map_err(Clone::clone)
    }

    /// The boot code's finding about interrupt lines: a constant of [`BootReport`].
    pub fn lines(&self) -> Result<u64, String> {
        Ok(self.outcome()?.snapshot.boot.map_or(BootReport::UNTESTED, |boot| boot.lines))
    }

    /// Returns the audit's findings.
    pub fn audited(&self) -> Result<&Audited, String> {
        self.outcome()?.audited.as_ref().ok_or_else(|| "the run was not audited".into())
    }

    /// A sandbox's part of the report.
    pub fn sandbox(&self, name: &str) -> Result<&bulkhead_explain::Sandbox, String> {
        let report: &Report = &self.outcome()?.report;
        let found = report.sandboxes.iter().find(|s| s.name == name);
        found.ok_or_else(|| format!("no sandbox {name} in the report"))
    }

    /// Text of a serial port, escaped.
    pub fn serial(&self, n: usize) -> Result<&str, String> {
        self.outcome()?;
        self.serials.get(n).map(String::as_str).ok_or_else(|| format!("no serial port {n}"))
    }

    /// An error with what was on the consoles.
    pub fn wrong(&self, what: impl AsRef<str>) -> String {
        let mut text = format!("{}\n", what.as_ref());
        if let Err(error) = &self.outcome {
            let _ = writeln!(text, "the run: {error}");
        }
        if let Ok(outcome) = &self.outcome {
            for s in &outcome.report.sandboxes {
                let _ = writeln!(
                    text,
                    "{}: {}, exit code {:?}, {} restarts, {} denials, exits {:?}",
                    s.name, s.state, s.exit_code, s.restarts, s.denials, s.exits
                );
            }
            for (n, serial) in outcome.serials.iter().enumerate().filter(|s| !s.1.is_empty()) {
                let _ = writeln!(text, "serial {n}:\n{}", super::driver::tail(&serial.text()));
            }
        }
        let denials = self.denials.iter().rev().take(5).rev();
        denials.for_each(|d| text += &format!("denied: {d}\n"));
        text + "console:\n" + &super::driver::tail(&self.console)
    }

    /// Fails with `what` unless it is so.
    pub fn ensure(&self, right: bool, what: impl AsRef<str>) -> Result<(), String> {
        if right { Ok(()) } else { Err(self.wrong(what)) }
    }

    /// A sandbox that nobody disturbed: no restart, no denial, in one of the states.
    pub fn undisturbed(&self, name: &str, states: &[&str]) -> Result<(), String> {
        let s = self.sandbox(name)?;
        self.ensure(states.contains(&s.state), format!("{name} is {}, not {states:?}", s.state))?;
        self.ensure(s.restarts == 0, format!("{name} was restarted"))?;
        self.ensure(s.denials == 0, format!("{name} was denied something"))
    }

    /// A bare guest that ended with exit code 0.
    pub fn exited(&self, name: &str) -> Result<(), String> {
        let s = self.sandbox(name)?;
        let right = s.state == "exited" && s.exit_code == Some(0);
        self.ensure(right, format!("{name} is {} with exit code {:?}", s.state, s.exit_code))
    }
}

/// Options for tests: fast virtual time.
pub fn options(dir: &Path) -> Options {
    let mut options = Options::new(artifacts(), dir);
    options.time = FAST;
    options.limit = Duration::from_secs(60);
    options
}

/// Runs it.
pub fn run(
    manifest: &Manifest,
    dir: &Path,
    change: impl FnOnce(&mut Options),
) -> Result<Seen, String> {
    run_and(manifest, dir, change, |_, _| {})
}

/// Runs it for so long at most, and audits it while it runs: nothing may be found.
pub fn run_audited(manifest: &Manifest, dir: &Path, seconds: u64) -> Result<Seen, String> {
    let seen = run(manifest, dir, |o| {
        o.limit = Duration::from_secs(seconds);
        o.audit = true;
    })?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    Ok(seen)
}

/// Runs it; `look` is told of each state that a sandbox enters, with the machine's
/// memory at hand.
pub fn run_and(
    manifest: &Manifest,
    dir: &Path,
    change: impl FnOnce(&mut Options),
    look: impl FnMut((&str, State), &Memory),
) -> Result<Seen, String> {
    run_from(manifest, dir, change, |_| {}, look)
}

/// For [`run_from`]: gives a function the machine as soon as there is one.
pub fn started(mut then: impl FnMut(&Running)) -> impl FnMut(&Event) {
    move |event| {
        if let Event::Started(running) = event {
            then(running);
        }
    }
}

/// As [`run_and`]; `told` has each event first.
pub fn run_from(
    manifest: &Manifest,
    dir: &Path,
    change: impl FnOnce(&mut Options),
    mut told: impl FnMut(&Event),
    mut look: impl FnMut((&str, State), &Memory),
) -> Result<Seen, String> {
    let checked = manifest.load(dir)?;
    let mut options = options(dir);
    change(&mut options);
    let (mut denials, mut console, mut memory) = (Vec::new(), String::new(), None);
    // Bochs has no file with its RAM: a copy is made at its end.
    let mut left = None;
    options.ram = Some(dir.join("ram"));
    let mut take = |event: Event<'_>| match event {
        Event::Started(running) => {
            let banks = ram_of(running);
            if running.kind() == Kind::Qemu {
                memory = Memory::open(running.ram().path(), &banks);
            } else {
                left = Some(banks);
            }
        }
        Event::Console(name, text) => {
            text.lines().for_each(|l| console += &format!("[{name}] {l}\n"));
        }
        Event::Lost(name, bytes) => console += &format!("lost: {name}: {bytes} bytes\n"),
        Event::Denied(denial) => denials.push(denial),
        Event::Overwritten(name, core, records) => {
            console += &format!("overwritten: {name} core {core}: {records} records\n");
        }
        Event::Blocked(event) => console += &format!("blocked: {event}\n"),
        Event::State(name, state) => {
            console += &format!("[{name}] is now {state:?}\n");
            memory.iter().for_each(|memory| look((name, state), memory));
        }
    };
    let outcome = bulkhead_run::run(checked, &options, |event| {
        told(&event);
        take(event);
    });
    if let Some(banks) = left {
        memory = Memory::open(&dir.join("ram"), &banks);
    }
    let serials = outcome.iter().flat_map(|outcome| &outcome.serials);
    let serials = serials.map(ToString::to_string).collect();
    let (outcome, place) = (outcome.map_err(|e| e.to_string()), dir.display().to_string());
    Ok(Seen { outcome, denials, console, memory, serials, place })
}
