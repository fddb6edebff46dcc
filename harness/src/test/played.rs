//! The oracle's sets on the kernel itself: threads of `programs/sets` play a set in the worst pattern of releases that
//! the oracle found. Each response has to be within the bound that the admission promises. One kernel has many sets,
//! one after the other; threads of the others sleep.

use super::driver::{Bench, Job};
use super::system::{Manifest, artifacts, run};
use bulkhead_oracle::{
    Campaign, Class, Core, Op, Pattern, Promise, Rules, Set, Text, Time, judge, search, set,
};
use bulkhead_plan::kernel::OVERHEAD;
use program_sets::{HEADER, MAGIC, SEEN, Step, TABLE, Thread, WORDS};
use std::fmt::Write as _;
use std::path::Path;

/// Any other one is as good.
const SEED: u64 = 16;

/// Patterns of releases that the oracle tries to find the worst one.
const PATTERNS: u64 = 8;

/// When the first set begins: the machine has booted long before.
const BEGIN: Time = 20_000_000_000;

/// Each step is shorter than the set says by what the kernel and the program need around it.
const SLACK: Time = 15_000;

/// And by one in so many parts, for others' timers that come meanwhile on the account of its budget.
const PARTS: Time = 100;

/// Sets of one boot: what is seen of all of them fits into a console's 4 KiB, and its kernel has 512 contexts at most.
const AT_ONCE: usize = 32;

/// Response of the nearest job of each class, in thousandths of its promise, at least: a test in which nothing comes
/// near shows nothing.
const NEAR: u64 = 700;

/// Sets of each class in `make test`.
const SOME: usize = 10;

/// Sets of each class in `make soak`.
const ALL: usize = 200;

pub fn jobs() -> Vec<Job> {
    if super::soak::soaks() {
        let job = |(class, name): (Class, &str)| {
            Job::one(format!("sched/played-{name}"), 600, move |bench| judge(bench, &[class], ALL))
        };
        return Class::ALL.into_iter().map(job).collect();
    }
    let classes = Class::ALL.map(|(class, _)| class);
    vec![Job::one("sched/played", 300, move |bench| judge(bench, &classes, SOME))]
}

/// A set, and when it is to be played.
struct Play {
    class: Class,
    number: u64,
    set: Set,
    promises: Vec<Promise>,
    patterns: Vec<Pattern>,
    begin: Time,
    end: Time,
    /// Row of its first thread in what is seen.
    row: usize,
}

/// How many times as long everything is as in the oracle's sets, where the kernel's work takes no time, or a tick.
const fn scale(class: Class) -> Time {
    if matches!(class, Class::Overhead) { 4 } else { 10 }
}

fn scaled(mut set: Set, by: Time) -> Set {
    for thread in &mut set.threads {
        // A call begins with all of its `longest`, and the set has no time for the instructions before it.
        let calls = outer_calls(&thread.job) as Time;
        thread.budget = thread.budget * by + calls * SLACK;
        thread.period *= by;
        // Interrupts are other tests'.
        thread.interrupt = 0;
        for op in &mut thread.job {
            if let Op::Run(time) | Op::Ask(_, time) | Op::Sleep(time) = op {
                *time *= by;
            }
        }
    }
    for longest in set.servers.iter_mut().filter_map(|server| server.longest.as_mut()) {
        *longest *= by;
    }
    set.overhead = OVERHEAD;
    // No other sandbox is there to ring, so the promise has none.
    (set.entry, set.doorbell) = (0, None);
    set
}

/// Calls of a job that are not within another one.
fn outer_calls(job: &[Op]) -> usize {
    let mut depth = 0_usize;
    let outer = job.iter().filter(|op| match op {
        Op::Call(_) => {
            depth += 1;
            depth == 1
        }
        Op::Answer => {
            depth -= 1;
            false
        }
        _ => false,
    });
    outer.count()
}

/// The first sets of a class that are admitted, and promise something.
fn sets(class: Class, count: usize) -> Vec<Play> {
    // Each step has room for entries of the kernel.
    let rules = Rules { charges: false, ..Rules::KERNEL };
    let campaign = Campaign { seed: SEED, admitted: 0, patterns: PATTERNS, rules, threads: 1 };
    let mut core = Core::default();
    core.rules = rules;
    let play = |number| {
        let mut random = campaign.random(class, number);
        let set = scaled(set(class, &mut random), scale(class));
        let verdict = judge::Verdict::of(&set, &judge::kernel(&set));
        let promised = verdict.promises.iter().any(|promise| promise.job < Time::MAX);
        if !verdict.is_admitted() || !promised {
            return None;
        }
        let found = search(&mut core, &set, &verdict.promises, &mut random, PATTERNS);
        // A call that takes too long stops its server: others wait for it for ever.
        (!found.overran).then_some(Play {
            class,
            number,
            promises: verdict.promises,
            patterns: found.patterns,
            begin: 0,
            end: 0,
            row: 0,
            set,
        })
    };
    (0..).filter_map(play).take(count).collect()
}

fn judge(bench: &Bench, classes: &[Class], count: usize) -> Result<String, String> {
    let mut plays: Vec<Play> = classes.iter().flat_map(|class| sets(*class, count)).collect();
    let (mut jobs, mut nearest) = (0, vec![0; classes.len()]);
    for plays in plays.chunks_mut(AT_ONCE) {
        let seen = played(bench, plays)?;
        for play in plays {
            let (more, near) = play.judge(&seen)?;
            jobs += more;
            let at = classes.iter().position(|class| *class == play.class);
            if let Some(at) = at {
                nearest[at] = near.max(nearest[at]);
            }
        }
    }
    if let Some((class, near)) = classes.iter().zip(&nearest).find(|(_, near)| **near < NEAR) {
        return Err(format!(
            "{class:?}: the nearest job took {near} thousandths: nothing is tried"
        ));
    }
    Ok(format!(
        "{} sets of {} classes, {jobs} jobs, each within its response time; the nearest took {nearest:?} thousandths",
        plays.len(),
        classes.len()
    ))
}

/// Plays sets one after the other: what was seen of each row, the longest response and how many jobs.
fn played(bench: &Bench, plays: &mut [Play]) -> Result<Vec<[u64; SEEN]>, String> {
    let (mut at, mut rows) = (BEGIN, 0);
    for play in plays.iter_mut() {
        let longest = play.set.threads.iter().map(|thread| thread.period).max().unwrap_or(0);
        let last = play.patterns.iter().map(|pattern| pattern.offset).max().unwrap_or(0);
        (play.begin, play.end, play.row) = (at, at + last + 3 * longest, rows);
        (at, rows) = (play.end + 2 * longest, rows + play.set.threads.len());
    }
    let text = manifest(plays, at, rows, &bench.dir)?;
    let seen = run(&Manifest(text), &bench.dir, |options| {
        options.time = bulkhead_qemu::Time::one_core();
        options.limit = std::time::Duration::from_secs(280);
    })?;
    seen.exited("rt")?;
    let mut all = vec![[0; SEEN]; rows];
    for line in seen.console.lines().filter_map(|line| line.strip_prefix("[rt] ")) {
        let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        if let [row, words @ ..] = &numbers[..]
            && let (Some(row), Ok(words)) = (all.get_mut(*row as usize), words.try_into())
        {
            *row = words;
        }
    }
    let begun =
        seen.console.lines().find_map(|line| line.strip_prefix("[rt] begun ")?.parse().ok());
    match begun.is_some_and(|begun: Time| begun + 1_000_000_000 < BEGIN) {
        true => Ok(all),
        false => Err(seen.wrong("the first set began while the machine booted")),
    }
}

fn manifest(plays: &[Play], end: Time, rows: usize, dir: &Path) -> Result<String, String> {
    std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
    let program = artifacts().join("program-sets");
    let program = std::fs::read(&program).map_err(|e| format!("{}: {e}", program.display()))?;
    let mut text = String::from(HEAD);
    let arguments = format!("args = \"role=report until={end} rows={rows}\"");
    text += &REPORT.replace("ARGS", &arguments);
    for (n, play) in plays.iter().enumerate() {
        let (prefix, file) = (format!("x{n}"), format!("set{n}"));
        std::fs::write(dir.join(&file), play.given(&program)?).map_err(|e| e.to_string())?;
        let programs = play.programs(&prefix, &file);
        let _ = write!(text, "{}", Text { set: &play.set, prefix: &prefix, programs: &programs });
    }
    Ok(text)
}

/// The admission is asked about each set, not about all together: they have their turns.
const HEAD: &str = r#"version = 1

[system]
name = "sets"
machine = "machines/qemu-q35.toml"

[[sandbox]]
name = "rt"
guest = { kind = "kernel", admission = "none" }
cores = [0]
memory = "256 MiB"

[[shared]]
name = "seen"
sandbox = "rt"
size = "64 KiB"

[[notification]]
name = "pause"
sandbox = "rt"
"#;

const REPORT: &str = r#"
[[program]]
name = "report"
sandbox = "rt"
file = "artifact:program-sets"
ARGS
ends_sandbox = true
maps = [{ shared = "seen", access = "rw" }]
signals = ["pause"]
waits = ["pause"]

[[context]]
name = "report"
sandbox = "rt"
budget = "1 ms"
period = "10 ms"

[[thread]]
name = "report"
program = "report"
priority = 0
context = "report"
"#;

impl Play {
    /// Further lines of its programs.
    fn programs(&self, prefix: &str, file: &str) -> Vec<String> {
        let kernel = judge::kernel(&self.set);
        let threads = self.set.threads.len();
        let lines = |(n, program): (usize, &bulkhead_plan::kernel::Program)| {
            let (role, number) = match self.set.threads.get(n) {
                Some(thread) if thread.serves => ("driver", n),
                Some(_) => ("job", n),
                None => ("server", n - threads),
            };
            let calls = program.calls.iter();
            let calls: Vec<_> = calls
                .map(|call| format!("{prefix}{}", kernel.endpoints[call.endpoint].name))
                .collect();
            let calls = if calls.is_empty() { "none".into() } else { calls.join(",") };
            let row = self.row;
            format!(
                "file = \"{file}\"\nmaps = [{{ shared = \"seen\", access = \"rw\" }}]\nwaits = [\"pause\"]\n\
                 args = \"role={role} set={prefix} number={number} row={row} calls={calls}\""
            )
        };
        kernel.programs.iter().enumerate().map(lines).collect()
    }

    /// The program's file with what the set is.
    fn given(&self, program: &[u8]) -> Result<Vec<u8>, String> {
        let mark = MAGIC.map(u64::to_le_bytes).concat();
        let at = program.windows(mark.len()).position(|bytes| bytes == mark);
        let at = at.ok_or("program-sets has no table")? + mark.len();
        let mut table = [0; TABLE];
        for (n, (thread, pattern)) in self.set.threads.iter().zip(&self.patterns).enumerate() {
            let first = self.begin + pattern.offset;
            let every = thread.period + pattern.gap;
            let job = &thread.job;
            let given = Thread { first, every, end: self.end, steps: job.len() as u64 };
            let words = given.words().into_iter().chain(job.iter().map(|op| step(*op).word()));
            let row = &mut table[HEADER + n * WORDS..][..WORDS];
            if job.len() + HEADER > row.len() {
                return Err(format!("{} steps are too many", job.len()));
            }
            row.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        }
        let mut file = program.to_vec();
        let bytes = table.iter().flat_map(|word| word.to_le_bytes());
        file[at..].iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        Ok(file)
    }

    /// How many jobs ended in time, and how near the nearest came to what was promised, in thousandths.
    fn judge(&self, seen: &[[u64; SEEN]]) -> Result<(u64, u64), String> {
        let (mut all, mut nearest) = (0, 0);
        for (n, (promise, pattern)) in self.promises.iter().zip(&self.patterns).enumerate() {
            if promise.job == Time::MAX {
                continue;
            }
            let [worst, jobs] = seen[self.row + n];
            let every = self.set.threads[n].period + pattern.gap;
            let ends =
                |job: &u64| self.begin + pattern.offset + job * every + promise.job < self.end;
            let due = (0..).take_while(ends).count() as u64;
            if worst > promise.job || jobs < due {
                return Err(format!(
                    "{:?} {}: thread {n} took {worst} ns instead of {} at most; {jobs} jobs of {due}\n{}\n{:?}",
                    self.class, self.number, promise.job, self.set, self.patterns
                ));
            }
            (all, nearest) = (all + jobs, nearest.max(worst * 1_000 / promise.job));
        }
        Ok((all, nearest))
    }
}

/// A step, with room for what the kernel and the program do around it.
fn step(op: Op) -> Step {
    let less = |time: Time| time.saturating_sub(SLACK + time / PARTS).max(1);
    match op {
        Op::Run(time) => Step::Run(less(time)),
        Op::Call(server) => Step::Call(server),
        Op::Answer => Step::Answer,
        Op::Ask(driver, time) => Step::Ask(driver, less(time)),
        Op::Sleep(time) => Step::Sleep(time),
    }
}
