//! Runs the systems of systems/bench.

use crate::test::{ALONE, PLAIN};
use crate::{Failure, bare, build};
use bulkhead_layout::marker::id;
use bulkhead_layout::report::CAUSES;
use bulkhead_plan::Plan;
use bulkhead_qemu::counts::Event;
use bulkhead_qemu::{Counts, Time};
use bulkhead_run::{Options, Outcome};
use std::path::PathBuf;
use std::time::Duration;

/// Longest wall time of one run; several times what an idle host needs.
pub const LIMIT: Duration = Duration::from_secs(900);

/// A system, and what to append to its guests' arguments.
pub struct System {
    /// Name of the manifest below systems/bench.
    pub manifest: &'static str,
    /// Folder for logs, below target/bench.
    pub dir: String,
    /// Sandbox, text.
    pub arguments: Vec<(&'static str, String)>,
    /// Changes of the manifest's text: what stands there once, what is to stand there.
    pub changes: Vec<(String, String)>,
    /// Changes of all occurrences of a text, if any.
    pub everywhere: Vec<(String, String)>,
    /// How its time passes.
    pub time: Time,
    /// Model of processor, where not the machine's.
    pub cpu: Option<&'static str>,
}

impl System {
    /// In virtual time.
    pub fn new(manifest: &'static str, dir: impl Into<String>) -> Self {
        Self {
            manifest,
            dir: dir.into(),
            arguments: Vec::new(),
            changes: Vec::new(),
            everywhere: Vec::new(),
            time: Time::virtual_time(),
            cpu: None,
        }
    }

    /// With more arguments for a sandbox's guest.
    pub fn with(mut self, sandbox: &'static str, more: impl Into<String>) -> Self {
        self.arguments.push((sandbox, more.into()));
        self
    }

    /// With another text in place of one of its manifest.
    pub fn changed(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.changes.push((from.into(), to.into()));
        self
    }

    /// Changes all occurrences of a text, if any.
    pub fn changed_all(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.everywhere.push((from.into(), to.into()));
        self
    }

    /// With a disk of 64 MiB behind a drive of the machine, which keeps what is written for as long as it runs.
    pub fn disk(self, drive: &str) -> Result<Self, Failure> {
        let dir = dir(&self.dir);
        std::fs::create_dir_all(&dir)?;
        std::fs::File::create(dir.join("disk.img"))?.set_len(64 << 20)?;
        let table = format!("[run]\ndrive = [{{ name = \"{drive}\", file = \"disk.img\" }}]\n");
        Ok(self.changed("[run]\n", table))
    }

    /// On the machine of another description.
    pub fn on(self, machine: &str) -> Self {
        self.changed_all("qemu-q35.toml", format!("{machine}.toml"))
    }

    /// Without monitors, on a processor that could have none.
    pub fn without_monitors(mut self) -> Self {
        self.cpu = Some(PLAIN);
        ALONE.iter().fold(self, |system, (from, to)| system.changed_all(*from, *to))
    }

    /// For a system with one core.
    pub fn one_core(mut self) -> Self {
        self.time = Time::one_core();
        self
    }

    /// In coarser time, where only exits are counted.
    pub fn coarse(mut self) -> Self {
        self.time = Time::coarse();
        self
    }

    /// In finer time.
    pub fn precise(mut self) -> Self {
        self.time = Time::precise();
        self
    }

    /// Loads its manifest.
    pub(super) fn checked(&self) -> Result<bulkhead_manifest::Checked, Failure> {
        let path = self.written()?;
        let loaded = bulkhead_manifest::load(&path, &bulkhead_manifest::Options::default());
        let mut checked = loaded.map_err(bulkhead_run::Error::Manifest)?;
        for wanted in &mut checked.system.sandboxes {
            let name = &wanted.sandbox.name;
            for (_, more) in self.arguments.iter().filter(|(sandbox, _)| sandbox == name) {
                if let Some(text) = wanted.sandbox.guest.arguments(0) {
                    *text = format!("{text} {more}").trim().to_owned();
                }
            }
        }
        Ok(checked)
    }

    /// Its folder.
    pub(super) fn dir(&self) -> PathBuf {
        dir(&self.dir)
    }

    /// Its manifest, changed.
    fn written(&self) -> Result<PathBuf, Failure> {
        let path = build::root().join("systems/bench").join(format!("{}.toml", self.manifest));
        if self.changes.is_empty() && self.everywhere.is_empty() {
            return Ok(path);
        }
        // It lies elsewhere then.
        let machines = format!("\"{}/", build::root().join("machines").display());
        let mut text = std::fs::read_to_string(&path)?;
        for from in ["\"../../machines/", "\"machines/"] {
            text = text.replace(from, &machines);
        }
        for (from, to) in &self.changes {
            if text.matches(from).count() != 1 {
                return Err(
                    format!("{}: `{from}` does not stand there once", path.display()).into()
                );
            }
            text = text.replace(from, to);
        }
        for (from, to) in &self.everywhere {
            text = text.replace(from, to);
        }
        let dir = dir(&self.dir);
        std::fs::create_dir_all(&dir)?;
        let path = dir.join("system.toml");
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Runs it to its end.
    pub fn run(&self) -> Result<Ran, Failure> {
        let mut options = Options::new(build::target().join("artifacts"), dir(&self.dir));
        options.time = self.time;
        options.cpu = self.cpu.map(String::from);
        options.limit = LIMIT;
        options.plugin = Some(build::plugin()?);
        let mut outcome = bulkhead_run::run(self.checked()?, &options, |_| {})?;
        let counts = outcome.counts.take().ok_or("the plugin left no counts")?;
        Ok(Ran { outcome, counts })
    }

    /// Runs it to its end on the machine with VT-x, in Bochs.
    pub fn run_vmx(self) -> Result<Outcome, Failure> {
        let moved = self.on("bochs-vmx");
        let mut options = Options::new(build::target().join("artifacts"), dir(&moved.dir));
        options.limit = LIMIT;
        Ok(bulkhead_run::run(moved.checked()?, &options, |_| {})?)
    }

    /// Its image, without running it.
    pub fn baked(&self) -> Result<bulkhead_image::Baked, Failure> {
        Ok(bulkhead_run::build(&self.checked()?, &build::target().join("artifacts"))?)
    }

    /// Runs its first sandbox's Linux on the bare machine, until COM2 shows a text.
    pub fn run_bare(&self, until: &str) -> Result<(Counts, String), Failure> {
        let plan: Plan = self.baked()?.plan;
        let sandbox = plan.sandboxes.first().ok_or("a system without sandboxes")?;
        let dir = dir(&format!("{}-bare", self.dir));
        let mut machine = bare::machine(sandbox, &plan.machine, &plan.drives, &dir)?;
        machine.time = self.time;
        let mut running = machine.start()?;
        running.wait(until, LIMIT, |m| m.serial(1).contains(until).then_some(()))?;
        running.quit()?;
        Ok((running.counts()?, running.serial(1).text()))
    }
}

fn dir(name: &str) -> PathBuf {
    build::target().join("bench").join(name)
}

/// Results of a run.
pub struct Ran {
    /// Reports, consoles.
    pub outcome: Outcome,
    /// The plugin's counts.
    pub counts: Counts,
}

/// The only event of this id on a core.
pub fn event(counts: &Counts, which: u16, vcpu: u64) -> Result<Event, Failure> {
    let name = bulkhead_layout::marker::NAMES.iter().find(|(id, _)| *id == which);
    let mut found = counts.events(which).into_iter().filter(|event| event.vcpu == vcpu);
    let missing = || format!("no event {} on core {vcpu}", name.map_or("?", |(_, name)| name));
    Ok(found.next().ok_or_else(missing)?)
}

/// Entries into the guest between START and FINISH on a core: each but the first
/// follows an exit.
pub fn entries(counts: &Counts, vcpu: u64) -> Result<u64, Failure> {
    let (start, finish) = (event(counts, id::START, vcpu)?, event(counts, id::FINISH, vcpu)?);
    Ok(finish.vmruns - start.vmruns)
}

/// Exits by cause from an event's words: sums over cores.
pub fn by_cause(words: &[u64]) -> [u64; CAUSES] {
    std::array::from_fn(|cause| words.iter().skip(cause).step_by(CAUSES).sum())
}

/// All exits of each core from an event's words.
pub fn by_core(words: &[u64]) -> Vec<u64> {
    words.chunks(CAUSES).map(|causes| causes.iter().sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::{by_cause, by_core};
    use bulkhead_layout::report::CAUSES;

    #[test]
    fn causes_add_up_over_cores() {
        let mut words = [0; 2 * CAUSES];
        (words[1], words[CAUSES + 1], words[CAUSES]) = (3, 4, 5);
        assert_eq!(by_cause(&words)[..3], [5, 7, 0]);
        assert_eq!(by_core(&words), [3, 9]);
    }
}
