//! One machine and its driver: inputs go in, and after each of them it is looked whether a monitor failed or somebody
//! else was disturbed.

use super::cover::Cover;
use super::input::{Input, Maker, Step};
use bulkhead_image::Baked;
use bulkhead_layout::report::{CAUSES, KINDS, State};
use bulkhead_plan::Plan;
use bulkhead_run::audit;
use bulkhead_watch::SandboxSnapshot;
use fuzz_guest::{CORES, Command, DONE, OPS, OPS_COUNT, READY, STAGE, TAKEN, WANTED};
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
/// Operations of an input.
const STEPS: usize = 2000;
/// Inputs worth keeping.
const CORPUS: usize = 600;
/// How long an input may stay without progress before its sandbox is restarted, and how long that may take.
const PATIENCE: Duration = Duration::from_secs(3);
const DESPAIR: Duration = Duration::from_secs(45);
const POLL: Duration = Duration::from_micros(300);
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

    fn write(&self, pa: u64, bytes: &[u8]) -> Result<(), String> {
        self.file.write_all_at(bytes, self.at(pa)).map_err(|e| format!("the machine's RAM: {e}"))
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

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub exits: u64,
    pub causes: [u64; CAUSES],
    /// Denials by kind: whether there was one.
    pub kinds: [bool; KINDS],
    pub inputs: u64,
    pub restarts: u64,
    /// Inputs after which the keeper had to restart a sandbox, because nothing came any more.
    pub stuck: u64,
    pub audits: u64,
    /// What they took, with the machine stopped or not.
    pub audited: Duration,
    pub corpus: usize,
    /// By byte of the monitor's text.
    pub reached: Vec<bool>,
    pub took: Duration,
}

/// The dialogue.
pub struct Dialogue {
    ram: Ram,
    dir: PathBuf,
    plan: Plan,
    reports: Vec<u64>,
    claim: bulkhead_audit::claim::Claim,
    makers: Vec<Maker>,
    covers: Vec<Cover>,
    /// Inputs sent, by sandbox.
    sent: Vec<u64>,
    victim: Victim,
    done: Done,
    audited_at: (u64, u64),
}

/// What is compared of the victim.
#[derive(Default)]
struct Victim {
    exits: Vec<u64>,
    /// Sum of each page that it leaves alone by itself.
    pages: Vec<Option<u64>>,
}

impl Dialogue {
    pub fn new(
        ram: Ram,
        dir: &Path,
        baked: &Baked,
        artifacts: &Path,
        seed: u64,
    ) -> Result<Self, String> {
        let plan = baked.plan.clone();
        let claim = audit::claim(&plan, artifacts).map_err(|e| e.to_string())?;
        let maker = |&i: &usize| Maker::new(&plan, i, seed ^ (i as u64) << 32);
        Ok(Self {
            ram,
            dir: dir.to_owned(),
            makers: FUZZERS.iter().map(maker).collect(),
            covers: FUZZERS.iter().map(|i| Cover::new(dir.join(format!("cover{i}")))).collect(),
            sent: vec![0; plan.sandboxes.len()],
            plan,
            reports: baked.map.reports.clone(),
            claim,
            victim: Victim::default(),
            done: Done::default(),
            audited_at: (0, 0),
        })
    }

    /// Goes on until the goal is reached; an error is a finding, or a machine that does not answer.
    pub fn run(mut self, goal: Goal) -> Result<Done, String> {
        let begun = Instant::now();
        let result = self.go(goal, begun);
        // Also after a finding: the run is over once the keeper is.
        let ended = self.command(Command::Exit, 0);
        self.done.took = begun.elapsed();
        let corpora = self.makers.iter().map(|maker| maker.corpus.len());
        self.done.corpus = corpora.sum();
        let about =
            format!("seed {}, input {}, {} exits: ", goal.seed, self.done.inputs, self.done.exits);
        result.map_err(|why| about.clone() + &why)?;
        ended.map_err(|why| about + &why)?;
        let texts: Vec<_> = self.covers.iter().map(Cover::bytes).collect();
        let len = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let reached = |at: usize| texts.iter().any(|text| text.get(at) == Some(&true));
        self.done.reached = (0..len).map(reached).collect();
        Ok(self.done)
    }

    fn go(&mut self, goal: Goal, begun: Instant) -> Result<(), String> {
        for i in FUZZERS.into_iter().chain([KEEPER]) {
            self.until(Duration::from_secs(60), "its guest is ready", i, |d| {
                d.mail(i, READY) != 0
            })?;
        }
        let steady = |d: &Self| d.sandbox(VICTIM).is_some_and(|s| s.cores[0].steady_tsc != 0);
        self.until(Duration::from_secs(60), "it stands by", VICTIM, steady)?;
        self.learn();
        while self.done.exits < goal.exits && begun.elapsed() < goal.time {
            self.round()?;
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
        self.ram.write(self.hpa(sandbox, at), &value.to_le_bytes())
    }

    fn sandbox(&self, index: usize) -> Option<SandboxSnapshot> {
        let read = |pa: u64, bytes: &mut [u8]| self.ram.read(pa, bytes);
        bulkhead_watch::sandbox(&read, self.reports[index], self.plan.sandboxes[index].cores.len())
    }

    fn until(
        &self,
        limit: Duration,
        what: &str,
        sandbox: usize,
        is: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        let end = Instant::now() + limit;
        while !is(self) {
            if Instant::now() > end {
                let name = &self.plan.sandboxes[sandbox].name;
                return Err(format!("{name}: waited {} s until {what}", limit.as_secs()));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Has the keeper do something.
    fn command(&mut self, command: Command, sandbox: usize) -> Result<(), String> {
        self.sent[KEEPER] += 1;
        let number = self.sent[KEEPER];
        self.post(KEEPER, OPS_COUNT, command as u64)?;
        self.post(KEEPER, CORES, sandbox as u64)?;
        self.post(KEEPER, WANTED, number)?;
        if command == Command::Exit {
            return Ok(());
        }
        self.until(DESPAIR, "it has done what it was told", KEEPER, |d| {
            d.mail(KEEPER, DONE) == number
        })
    }

    /// What the victim is like when nobody disturbs it.
    fn learn(&mut self) {
        self.victim.pages = self.pages().into_iter().map(Some).collect();
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(40));
            let now = self.pages();
            self.victim
                .pages
                .iter_mut()
                .zip(now)
                .for_each(|(page, now)| *page = page.filter(|was| *was == now));
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

    /// An input for each, and what comes of it.
    fn round(&mut self) -> Result<(), String> {
        let mut under_way = Vec::new();
        for (n, i) in FUZZERS.into_iter().enumerate() {
            let steps = self.makers[n].steps(STEPS);
            under_way.push((n, i, self.send(n, i, &steps)?, steps));
        }
        for (n, i, restarts, steps) in under_way {
            self.wait(i, restarts)?;
            let found = self.covers[n].news();
            self.keep(n, &steps, found);
        }
        self.done.inputs += 1;
        self.look()
    }

    /// Hands an input over; how often the sandbox had been restarted then.
    fn send(&mut self, n: usize, i: usize, steps: &[Step]) -> Result<u64, String> {
        self.sent[i] += 1;
        let input = Input::of(steps);
        let restarts = self.sandbox(i).map_or(0, |s| s.report.restarts);
        // Some cores, or all.
        let all = self.plan.sandboxes[i].cores.len();
        let cores = 1 + self.makers[n].random.below(all) as u64;
        self.ram.write(self.hpa(i, STAGE), &input.stage)?;
        self.ram.write(self.hpa(i, OPS), &input.bytes())?;
        self.post(i, OPS_COUNT, input.ops.len() as u64)?;
        self.post(i, CORES, cores)?;
        self.post(i, TAKEN, 0)?;
        self.post(i, WANTED, self.sent[i])?;
        Ok(restarts)
    }

    /// Until it is through, or until its sandbox has begun anew.
    fn wait(&mut self, i: usize, restarts: u64) -> Result<(), String> {
        let (begun, mut last, mut since, mut polls) = (Instant::now(), 0, Instant::now(), 0u32);
        loop {
            if self.mail(i, DONE) == self.sent[i] {
                return Ok(());
            }
            polls += 1;
            // A sandbox' state is a larger read.
            if polls % 8 == 0 {
                let seen = self.sandbox(i).ok_or("no report")?;
                let (state, now) = (seen.state, seen.report.restarts);
                if state == State::Failed {
                    return Err(self.failed(i, &seen));
                }
                if now != restarts && state == State::Running && self.mail(i, READY) == now + 1 {
                    return Ok(());
                }
                if matches!(state, State::Stopped | State::Exited) {
                    self.command(Command::Start, i)?;
                }
                let taken = self.mail(i, TAKEN).wrapping_add(now << 32);
                if taken != last {
                    (last, since) = (taken, Instant::now());
                }
                if since.elapsed() > PATIENCE {
                    self.done.stuck += 1;
                    since = Instant::now();
                    self.command(Command::Restart, i)?;
                }
                if begun.elapsed() > DESPAIR {
                    let name = &self.plan.sandboxes[i].name;
                    return Err(format!("{name} is {state:?} and does not come back by a restart"));
                }
            }
            std::thread::sleep(POLL);
        }
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

    /// Keeps the steps by which something new was reached.
    fn keep(&mut self, n: usize, steps: &[Step], tags: impl IntoIterator<Item = u64>) {
        /// Steps before the one that was taken last: on as many cores others are under way.
        const BEFORE: usize = 6;
        let maker = &mut self.makers[n];
        for tag in tags {
            let end = (tag as usize).min(steps.len());
            if end > 0 && tag as usize <= steps.len() + 8 {
                maker.corpus.push(steps[end.saturating_sub(BEFORE)..end].to_vec());
            }
        }
        while maker.corpus.len() > CORPUS {
            let n = maker.random.below(CORPUS);
            maker.corpus.swap_remove(n);
        }
    }

    /// Whether all others are as before, and whether an audit is due.
    fn look(&mut self) -> Result<(), String> {
        let (mut causes, mut restarts) = ([0; CAUSES], 0);
        for i in 0..self.plan.sandboxes.len() {
            let seen = self.sandbox(i).ok_or("no report")?;
            if seen.state == State::Failed || seen.report.fault != [0; 2] {
                return Err(self.failed(i, &seen));
            }
            if FUZZERS.contains(&i) {
                restarts += seen.report.restarts;
                for core in &seen.cores {
                    causes.iter_mut().zip(core.exits).for_each(|(sum, exits)| *sum += exits);
                    core.kept.iter().for_each(|d| self.done.kinds[d.kind as usize % KINDS] = true);
                }
            } else {
                let (name, state) = (&self.plan.sandboxes[i].name, seen.state);
                if state != State::Running || seen.report.restarts != 0 || seen.denials() != 0 {
                    return Err(format!(
                        "{name} is {state:?}, {} restarts, {} denials",
                        seen.report.restarts,
                        seen.denials()
                    ));
                }
            }
            if i == VICTIM && seen.cores[0].exits.to_vec() != self.victim.exits {
                return Err(format!(
                    "exits of the victim: {:?}, before {:?}",
                    seen.cores[0].exits, self.victim.exits
                ));
            }
        }
        self.done.exits = causes.iter().sum();
        (self.done.causes, self.done.restarts) = (causes, restarts);
        let (exits, before) = self.audited_at;
        if restarts != before || self.done.exits - exits >= AUDIT_AFTER {
            self.audit()
        } else {
            Ok(())
        }
    }

    /// The auditor's own look, and the victim's memory.
    fn audit(&mut self) -> Result<(), String> {
        self.audited_at = (self.done.exits, self.done.restarts);
        self.done.audits += 1;
        let begun = Instant::now();
        let audited = audit::attached(&self.dir, &self.claim).map_err(|e| e.to_string())?;
        if !audited.report.findings.is_empty() {
            return Err(format!("the audit: {:?}", audited.report.findings));
        }
        self.done.audited += begun.elapsed();
        let changed = |(page, now): (&Option<u64>, u64)| page.is_some_and(|was| was != now);
        let at = self.victim.pages.iter().zip(self.pages()).position(changed);
        at.map_or(Ok(()), |page| Err(format!("page {page:#x} of the victim's memory is changed")))
    }
}
