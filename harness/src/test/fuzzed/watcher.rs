//! Watches a machine in which random exits are made: whether a monitor fails or somebody else is disturbed. It takes no
//! part in what the guests do, but that each of their lives begins once it has been audited.

use super::cover;
use bulkhead_explain::SandboxSnapshot;
use bulkhead_image::Baked;
use bulkhead_layout::report::{CAUSES, CONDITIONS, Condition, Denial, State};
use bulkhead_plan::Plan;
use bulkhead_run::audit;
use fuzz_guest::code::SHUTDOWN;
use fuzz_guest::{BOOK, CORES, LOST, Op, READY, TOLD, TRAIL, book};
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Sandboxes by index: who must not notice anything, who makes exits, who starts them again.
pub const VICTIM: usize = 0;
pub const FUZZERS: [usize; 2] = [1, 2];
pub const KEEPER: usize = 3;
/// Exits from one audit to the next, at most; restarts come before.
const AUDIT_AFTER: u64 = 50_000;
const POLL: Duration = Duration::from_millis(4);
/// How long a new life may take to ask for its audit.
const SOON: Duration = Duration::from_millis(100);
/// How long no exit may be made.
const DESPAIR: Duration = Duration::from_secs(60);
const PAGE: u64 = 4096;

/// A machine's RAM, to be read and written while it runs.
pub struct Ram {
    file: File,
    below_4g: u64,
}

impl Ram {
    pub fn open(path: &Path, below_4g: u64) -> Result<Self, String> {
        let file = File::options().read(true).write(true).open(path);
        Ok(Self { file: file.map_err(|e| format!("{}: {e}", path.display()))?, below_4g })
    }

    fn at(&self, pa: u64) -> u64 {
        const HIGH: u64 = 1 << 32;
        if pa >= HIGH { pa - HIGH + self.below_4g } else { pa }
    }

    fn read(&self, pa: u64, bytes: &mut [u8]) -> bool {
        self.file.read_exact_at(bytes, self.at(pa)).is_ok()
    }

    fn set(&self, pa: u64, word: u64) -> Result<(), String> {
        let written = self.file.write_all_at(&word.to_le_bytes(), self.at(pa));
        written.map_err(|e| format!("the machine's RAM: {e}"))
    }

    fn word(&self, pa: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(pa, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// When it is enough.
#[derive(Clone, Copy)]
pub struct Goal {
    pub exits: u64,
    /// Wall time; it ends with fewer exits, too.
    pub time: Duration,
    pub seed: u64,
}

/// Counts of the work done.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub exits: u64,
    pub causes: [u64; CAUSES],
    /// Denials by condition.
    pub conditions: [u64; CONDITIONS],
    pub operations: u64,
    pub restarts: u64,
    /// Lives of a guest that began before their audit.
    pub unaudited: u64,
    /// Triple faults that no operation was made for, each with its core's last operations.
    pub shutdowns: Vec<String>,
    pub audits: u64,
    /// Time of the audits, with the machine stopped or not.
    pub audited: Duration,
    /// Inputs by which something new was reached.
    pub kept: u64,
    /// By byte of the monitor's text.
    pub reached: Vec<bool>,
    pub took: Duration,
}

/// Observer of the machine: it audits, and compares the victim with its first state.
pub struct Watcher {
    ram: Ram,
    dir: PathBuf,
    plan: Plan,
    reports: Vec<u64>,
    claim: bulkhead_audit::claim::Claim,
    victim: Victim,
    done: Done,
    /// By fuzzer: the life that was audited last.
    lives: [u64; FUZZERS.len()],
    /// Exits and restarts at the last audit, and since when there have been more restarts.
    audited_at: (u64, u64),
    restarted: Option<Instant>,
}

/// Parts of the victim that are compared.
#[derive(Default)]
struct Victim {
    exits: Vec<u64>,
    /// Sum of each page that it leaves alone by itself.
    pages: Vec<Option<u64>>,
}

impl Watcher {
    pub fn new(ram: Ram, dir: &Path, baked: &Baked, artifacts: &Path) -> Result<Self, String> {
        let plan = baked.plan.clone();
        let claim = audit::claim(&plan, artifacts).map_err(|e| e.to_string())?;
        Ok(Self {
            ram,
            dir: dir.to_owned(),
            plan,
            reports: baked.map.reports.clone(),
            claim,
            victim: Victim::default(),
            done: Done::default(),
            lives: [0; FUZZERS.len()],
            audited_at: (0, 0),
            restarted: None,
        })
    }

    /// Goes on until the goal is reached; an error is a finding, or a machine that does not answer.
    pub fn run(mut self, goal: Goal) -> Result<Done, String> {
        let begun = Instant::now();
        let result = self.go(goal, begun);
        let _ = std::fs::write(self.dir.join("shutdowns.txt"), self.done.shutdowns.concat());
        // Also after a finding: the run is over once the keeper is.
        let ended = self.post(KEEPER, TOLD, 1);
        self.done.took = begun.elapsed();
        result.map_err(|why| {
            format!("seed {}, {} exits: {why}\n{}", goal.seed, self.done.exits, self.trails())
        })?;
        ended?;
        let word = |i: usize, at: u64| self.book(i).map_or(0, |book| self.ram.word(book + at));
        let cores = (0..CORES as u64).map(|core| book::DONE + 8 * core);
        let operations = cores.flat_map(|at| FUZZERS.map(|i| word(i, at))).sum();
        let kept = FUZZERS.map(|i| word(i, book::KEPT)).iter().sum();
        (self.done.operations, self.done.kept) = (operations, kept);
        self.done.reached = cover::reached(&FUZZERS.map(|i| self.dir.join(format!("cover{i}"))));
        Ok(self.done)
    }

    fn go(&mut self, goal: Goal, begun: Instant) -> Result<(), String> {
        let steady = |d: &Self| d.sandbox(VICTIM).is_some_and(|s| s.cores[0].steady_ticks != 0);
        self.until("the victim stands by", steady)?;
        for i in FUZZERS.into_iter().chain([KEEPER]) {
            self.until("each guest is ready", |d| d.mail(i, READY) != 0)?;
        }
        self.learn();
        let mut moved = (0, Instant::now());
        while self.done.exits < goal.exits && begun.elapsed() < goal.time {
            self.look()?;
            if self.done.exits != moved.0 {
                moved = (self.done.exits, Instant::now());
            }
            if moved.1.elapsed() > DESPAIR {
                return Err(format!("no exit in {} s", DESPAIR.as_secs()));
            }
            std::thread::sleep(POLL);
        }
        self.audit()
    }

    fn hpa(&self, sandbox: usize, gpa: u64) -> u64 {
        let ram = &self.plan.sandboxes[sandbox].ram[0];
        gpa - ram.gpa + ram.hpa
    }

    fn mail(&self, sandbox: usize, at: u64) -> u64 {
        self.ram.word(self.hpa(sandbox, at))
    }

    fn post(&self, sandbox: usize, at: u64, value: u64) -> Result<(), String> {
        self.ram.set(self.hpa(sandbox, at), value)
    }

    fn sandbox(&self, index: usize) -> Option<SandboxSnapshot> {
        let read = |pa: u64, bytes: &mut [u8]| self.ram.read(pa, bytes);
        bulkhead_explain::sandbox(
            &read,
            self.reports[index],
            self.plan.sandboxes[index].cores.len(),
        )
    }

    /// Where a sandbox' book lies.
    fn book(&self, sandbox: usize) -> Option<u64> {
        let name = format!("{BOOK}{}", self.plan.sandboxes[sandbox].name);
        self.plan.channels.iter().find(|channel| channel.name == name).map(|channel| channel.hpa)
    }

    fn until(&self, what: &str, is: impl Fn(&Self) -> bool) -> Result<(), String> {
        let end = Instant::now() + DESPAIR;
        while !is(self) {
            if Instant::now() > end {
                return Err(format!("waited {} s until {what}", DESPAIR.as_secs()));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Learns the undisturbed victim: the guests wait for their first audit, or begin.
    fn learn(&mut self) {
        self.victim.pages = self.pages().into_iter().map(Some).collect();
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(40));
            let now = self.pages();
            let pages = self.victim.pages.iter_mut().zip(now);
            pages.for_each(|(page, now)| *page = page.filter(|was| *was == now));
        }
        self.victim.exits =
            self.sandbox(VICTIM).map(|s| s.cores[0].exits.to_vec()).unwrap_or_default();
    }

    fn pages(&self) -> Vec<u64> {
        let ram = &self.plan.sandboxes[VICTIM].ram[0];
        let mut bytes = vec![0; ram.len as usize];
        self.ram.read(ram.hpa, &mut bytes);
        let sum = |page: &[u8]| {
            let words = page.chunks_exact(8).map(|w| w.try_into().map_or(0, u64::from_le_bytes));
            words.fold(0u64, |sum, word| {
                (sum.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            })
        };
        bytes.chunks_exact(PAGE as usize).map(sum).collect()
    }

    fn failed(&self, i: usize, seen: &SandboxSnapshot) -> String {
        let name = &self.plan.sandboxes[i].name;
        let (fault, detail) = (seen.report.fault, seen.report.fault_detail);
        let denials = seen.cores.iter().flat_map(|core| core.kept.last());
        let last: Vec<_> = denials.map(|d| (d.kind, d.address, d.info)).collect();
        format!(
            "the monitor of {name} failed: {fault:x?} {detail:x?}; its cores' last denials: {last:x?}"
        )
    }

    /// Checks that all others are as before, and audits when that is due.
    fn look(&mut self) -> Result<(), String> {
        let mut done = Done::default();
        for i in 0..self.plan.sandboxes.len() {
            let seen = self.sandbox(i).ok_or("no report")?;
            if seen.state == State::Failed || seen.report.fault != [0; 2] {
                return Err(self.failed(i, &seen));
            }
            if FUZZERS.contains(&i) {
                done.restarts += seen.report.restarts;
                for core in &seen.cores {
                    done.causes.iter_mut().zip(core.exits).for_each(|(sum, exits)| *sum += exits);
                    let tallies = done.conditions.iter_mut().zip(&core.tallies);
                    tallies.for_each(|(sum, tally)| *sum += tally.count);
                }
            } else {
                self.undisturbed(i, &seen)?;
            }
        }
        (self.done.causes, self.done.conditions) = (done.causes, done.conditions);
        (self.done.exits, self.done.restarts) = (done.causes.iter().sum(), done.restarts);
        match self.mail(KEEPER, LOST) {
            0 => self.audit_if_due(),
            lost => {
                let name = &self.plan.sandboxes[lost as usize - 1].name;
                let state = self.sandbox(lost as usize - 1).map(|seen| seen.state);
                Err(format!("{name} is {state:?} and does not come back by a restart"))
            }
        }
    }

    fn undisturbed(&self, i: usize, seen: &SandboxSnapshot) -> Result<(), String> {
        let (name, state) = (&self.plan.sandboxes[i].name, seen.state);
        if state != State::Running || seen.report.restarts != 0 || seen.denials() != 0 {
            let (restarts, denials) = (seen.report.restarts, seen.denials());
            return Err(format!("{name} is {state:?}, {restarts} restarts, {denials} denials"));
        }
        let exits = seen.cores[0].exits;
        if i == VICTIM && exits[..] != self.victim.exits[..] {
            return Err(format!("exits of the victim: {exits:?}, before {:?}", self.victim.exits));
        }
        Ok(())
    }

    /// Audits if a guest waits for that, or after so many exits.
    fn audit_if_due(&mut self) -> Result<(), String> {
        let waits = FUZZERS.map(|i| self.mail(i, READY));
        let new = |(life, audited): (&u64, u64)| *life != 0 && *life != audited;
        let begun = waits.iter().zip(self.lives).any(new);
        // A life that does not ask for it is audited soon after its beginning.
        let since = (self.done.restarts != self.audited_at.1).then(Instant::now);
        self.restarted = since.map(|now| self.restarted.unwrap_or(now));
        let late = self.restarted.is_some_and(|since| since.elapsed() > SOON);
        if !begun && !late && self.done.exits - self.audited_at.0 < AUDIT_AFTER {
            return Ok(());
        }
        self.audit()?;
        for (n, life) in waits.into_iter().enumerate().filter(|(_, life)| *life != 0) {
            // Lives that were over before anybody looked.
            self.done.unaudited += life.saturating_sub(self.lives[n] + 1);
            if life != self.lives[n] {
                self.note_end(FUZZERS[n], life);
            }
            self.lives[n] = life;
            self.post(FUZZERS[n], TOLD, life)?;
        }
        Ok(())
    }

    /// The auditor's own look, and the victim's memory.
    fn audit(&mut self) -> Result<(), String> {
        self.audited_at = (self.done.exits, self.done.restarts);
        self.restarted = None;
        self.done.audits += 1;
        let begun = Instant::now();
        let audited = audit::attached(&self.dir, &self.claim).map_err(|e| e.to_string())?;
        let findings = &audited.report.findings;
        if let Some(first) = findings.first() {
            return Err(format!("{} findings of the audit, first {first:?}", findings.len()));
        }
        self.done.audited += begun.elapsed();
        let changed = |(page, now): (&Option<u64>, u64)| page.is_some_and(|was| was != now);
        let at = self.victim.pages.iter().zip(self.pages()).position(changed);
        at.map_or(Ok(()), |page| Err(format!("page {page:#x} of the victim's memory is changed")))
    }

    /// Looks why the life before this one ended: its book has not been written since.
    fn note_end(&mut self, i: usize, life: u64) {
        /// As many as anybody reads.
        const NOTED: usize = 50;
        let Some(seen) = self.sandbox(i).filter(|_| self.done.shutdowns.len() < NOTED) else {
            return;
        };
        for (core, seen) in seen.cores.iter().enumerate() {
            // Lives count from 1 here, and from 0 there.
            let shut = |d: &&Denial| {
                d.condition == Condition::Shutdown as u16 && u64::from(d.incarnation) + 2 == life
            };
            let ops = self.trail(i, core);
            let meant = ops.last().is_none_or(|op| op.snippet() == SHUTDOWN);
            if let Some(denial) = seen.kept.iter().rev().find(shut).filter(|_| !meant) {
                let name = &self.plan.sandboxes[i].name;
                let last: Vec<_> = ops.iter().rev().take(6).map(|op| format!("  {op}\n")).collect();
                let text =
                    format!("{name} core {core}, RIP {:#x}, newest first:\n", denial.instruction);
                self.done.shutdowns.push(text + &last.concat());
            }
        }
    }

    /// The last operations of a core, oldest first.
    fn trail(&self, i: usize, core: usize) -> Vec<Op> {
        let Some(book) = self.book(i).filter(|_| core < CORES) else { return Vec::new() };
        let done = self.ram.word(book + book::DONE + 8 * core as u64);
        let op = |n| {
            let at = book + book::trail(core, n);
            Op::from_words(std::array::from_fn(|word| self.ram.word(at + 8 * word as u64)))
        };
        (done.saturating_sub(TRAIL as u64)..done).map(op).collect()
    }

    /// The last operations of each core.
    fn trails(&self) -> String {
        let mut text = String::new();
        for i in FUZZERS {
            for core in 0..self.plan.sandboxes[i].cores.len() {
                for op in self.trail(i, core) {
                    let name = &self.plan.sandboxes[i].name;
                    let _ = writeln!(text, "{name} core {core}: {op}");
                }
            }
        }
        text
    }
}
