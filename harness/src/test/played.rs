//! The oracle's sets on the kernel itself: threads of `programs/sets` play a set in the worst pattern of releases that
//! the oracle found. Each response has to be within the bound that the admission promises. One kernel has many sets,
//! one after the other; threads of the others sleep.

use super::driver::{Bench, Job};
use super::system::{Manifest, artifacts, run};
use bulkhead_oracle::{
    Campaign, Class, Core, Op, Pattern, Policy, Promise, Rules, Set, Text, Thread as OfSet, Time,
    judge, search, set,
};
use bulkhead_plan::kernel::{ENTRY, OVERHEAD};
use program_sets::{HEADER, MAGIC, SEEN, Step, TABLE, THREADS, Thread, WORDS};
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

/// Time that a handler and its server need for a call that is too long, until the server waits for the next one.
const HANDLED: Time = 100_000;

/// Thousandths of a promise that something takes in the oracle, at least, of a set that is worth a boot of its own.
const WORTH: u64 = 600;

/// Priority of a driver that is interrupted: above all others.
const ABOVE: u8 = 70;

/// Which of a class's sets are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No call takes too long, and no interrupts come.
    Quiet,
    /// A call takes too long, and is stopped.
    Stopped,
    /// A driver has interrupts, of the machine's one timer.
    Interrupted,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "sched/played",
            Self::Stopped => "sched/played-stopped",
            Self::Interrupted => "sched/played-interrupted",
        }
    }

    const fn classes(self) -> &'static [Class] {
        match self {
            Self::Quiet => &[
                Class::Independent,
                Class::Direct,
                Class::Calls,
                Class::Nested,
                Class::Inside,
                Class::Strict,
                Class::Lists,
                Class::Overhead,
            ],
            Self::Stopped => &[Class::Calls, Class::Nested, Class::Inside],
            Self::Interrupted => &[Class::Direct, Class::Inside, Class::Overhead],
        }
    }

    /// Sets of one boot. Results of all of them fit into a console's 4 KiB, and a kernel has 512 contexts at most. A
    /// timer has one driver.
    const fn at_once(self) -> usize {
        match self {
            Self::Interrupted => 1,
            Self::Quiet | Self::Stopped => 32,
        }
    }

    /// Least response of the nearest job of each class, in thousandths of its promise: a test in which nothing comes
    /// near shows nothing. A driver with interrupts counts three times in a promise.
    const fn near(self) -> u64 {
        if matches!(self, Self::Interrupted) { 400 } else { 700 }
    }

    /// Sets of each class in `make test` and in `make soak`.
    const fn count(self) -> [usize; 2] {
        match self {
            Self::Quiet => [10, 200],
            Self::Stopped => [8, 200],
            Self::Interrupted => [2, 100],
        }
    }
}

pub fn jobs() -> Vec<Job> {
    [Kind::Quiet, Kind::Stopped, Kind::Interrupted].into_iter().flat_map(jobs_of).collect()
}

fn jobs_of(kind: Kind) -> Vec<Job> {
    let [some, all] = kind.count();
    if !super::soak::soaks() {
        let judged = move |bench: &Bench| judge(bench, kind, kind.classes(), some);
        return vec![Job::one(kind.name(), 300, judged)];
    }
    let job = |class: &'static Class| {
        let name = Class::ALL.iter().find(|(other, _)| other == class).map_or("", |(_, name)| name);
        let judged = move |bench: &Bench| judge(bench, kind, std::slice::from_ref(class), all);
        Job::one(format!("{}-{name}", kind.name()), 900, judged)
    };
    kind.classes().iter().map(job).collect()
}

/// A set, and when it is to be played.
struct Play {
    kind: Kind,
    class: Class,
    number: u64,
    set: Set,
    promises: Vec<Promise>,
    patterns: Vec<Pattern>,
    /// The thread that ends calls that are too long.
    handler: Option<usize>,
    begin: Time,
    end: Time,
    /// Row of its first thread in what is seen.
    row: usize,
}

/// How many times as long everything is as in the oracle's sets, where the kernel's work takes no time, or a tick.
const fn scale(class: Class) -> Time {
    if matches!(class, Class::Overhead) { 4 } else { 10 }
}

fn scaled(mut set: Set, by: Time, kind: Kind) -> Set {
    let mut timers = usize::from(kind == Kind::Interrupted);
    for thread in &mut set.threads {
        // A call begins with all of its `longest`, and the set has no time for the instructions before it.
        let calls = outer_calls(&thread.job) as Time;
        thread.budget = thread.budget * by + calls * SLACK;
        thread.period *= by;
        for op in &mut thread.job {
            if let Op::Run(time) | Op::Ask(_, time) | Op::Sleep(time) = op {
                *time *= by;
            }
        }
        if thread.interrupt > 0 && timers > 0 {
            timers -= 1;
            // Beside an entry of the kernel its driver's work is as long as in the set, and comes as often.
            let to = |time: Time| (time * ENTRY).checked_div(set.entry).unwrap_or(time * by);
            (thread.interrupt, thread.every) = (to(thread.interrupt), to(thread.every));
            // A driver that is below others has to be asked before it disturbs them.
            thread.priority = ABOVE;
        } else {
            thread.interrupt = 0;
        }
    }
    for longest in set.servers.iter_mut().filter_map(|server| server.longest.as_mut()) {
        *longest *= by;
    }
    set.overhead = OVERHEAD;
    set.entry = if kind == Kind::Interrupted { ENTRY } else { 0 };
    // No other sandbox is there to ring, so the promise has none.
    set.doorbell = None;
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

fn calls(job: &[Op]) -> usize {
    job.iter().filter(|op| matches!(op, Op::Call(_))).count()
}

/// True if a job has a call that takes longer than its server says, by the steps that are played.
fn overruns(thread: &OfSet, set: &Set) -> bool {
    let (mut depth, mut used, mut longest) = (0, 0, Time::MAX);
    thread.job.iter().any(|op| {
        match *op {
            Op::Call(server) if depth == 0 => {
                let says = set.servers[usize::from(server)].longest;
                (depth, used, longest) = (1, 0, says.unwrap_or(Time::MAX));
            }
            Op::Call(_) => depth += 1,
            Op::Answer => depth -= 1,
            Op::Run(time) if depth > 0 => used += less(time),
            Op::Run(_) | Op::Ask(..) | Op::Sleep(_) => {}
        }
        used > longest && depth > 0
    })
}

/// A set with a handler above all others, which has time for each call that could be too long. Where calls are within
/// others it would have to know of all servers on the way, so there is none.
fn with_handler(mut set: Set) -> Option<Set> {
    if set.threads.iter().any(|thread| calls(&thread.job) != outer_calls(&thread.job)) {
        return None;
    }
    let callers = set.threads.iter().filter(|thread| calls(&thread.job) > 0);
    let period = callers.clone().map(|thread| thread.period).min()?;
    let calls: usize = callers.map(|thread| calls(&thread.job)).sum();
    let highest = set.threads.iter().map(|thread| thread.priority).max()?;
    set.threads.push(OfSet {
        policy: Policy::Sporadic,
        budget: HANDLED * calls as Time,
        period,
        refills: (calls + 2).min(OfSet::MOST_REFILLS),
        guaranteed: true,
        background: false,
        activations: calls as u32,
        priority: highest + 1,
        job: Vec::new(),
        serves: true,
        interrupt: 0,
        every: period,
    });
    (set.threads.len() <= THREADS).then_some(set)
}

/// The first sets of a class that are admitted, and promise something.
fn sets(kind: Kind, class: Class, count: usize) -> Vec<Play> {
    let mut core = Core::default();
    core.rules = Rules::KERNEL;
    (0..).filter_map(|number| play(kind, class, number, &mut core)).take(count).collect()
}

fn play(kind: Kind, class: Class, number: u64, core: &mut Core) -> Option<Play> {
    let rules = Rules::KERNEL;
    let campaign = Campaign { seed: SEED, admitted: 0, patterns: PATTERNS, rules, threads: 1 };
    let mut random = campaign.random(class, number);
    let set = scaled(set(class, &mut random), scale(class), kind);
    let interrupted = set.threads.iter().any(|thread| thread.interrupt > 0);
    if interrupted != (kind == Kind::Interrupted) {
        return None;
    }
    let mut tried = |mut set: Set| {
        let verdict = judge::Verdict::of(&set, &judge::kernel(&set));
        verdict.shorten(&mut set);
        let found = verdict
            .is_admitted()
            .then(|| search(core, &set, &verdict.promises, &mut random, PATTERNS))?;
        Some((set, verdict.promises, found))
    };
    let (mut set, mut promises, mut found) = tried(set)?;
    let too_long = set.threads.iter().any(|thread| !thread.serves && overruns(thread, &set));
    if (found.overran, too_long) != (kind == Kind::Stopped, kind == Kind::Stopped) {
        return None;
    }
    let mut handler = None;
    if let Some(handled) = with_handler(set.clone()).filter(|_| kind == Kind::Stopped) {
        (set, promises, found) = tried(handled)?;
        handler = Some(set.threads.len() - 1);
    } else if kind == Kind::Stopped {
        // Without a handler the server is stopped for ever. Those that call nobody have their promises.
        let to = promises.iter_mut().zip(&set.threads);
        to.filter(|(_, thread)| calls(&thread.job) > 0).for_each(|(to, _)| *to = Promise::NONE);
    }
    let promised = promises.iter().any(|promise| promise.job < Time::MAX);
    let promised = promised && (kind != Kind::Interrupted || found.worst >= WORTH);
    let patterns = found.patterns;
    let (begin, end, row) = (0, 0, 0);
    let play = Play { kind, class, number, set, promises, patterns, handler, begin, end, row };
    promised.then_some(play)
}

fn judge(bench: &Bench, kind: Kind, classes: &[Class], count: usize) -> Result<String, String> {
    let mut plays: Vec<Play> = classes.iter().flat_map(|class| sets(kind, *class, count)).collect();
    let (mut jobs, mut events, mut nearest) = (0, 0, vec![0; classes.len()]);
    for plays in plays.chunks_mut(kind.at_once()) {
        let seen = played(bench, plays)?;
        for play in plays {
            let (more, near) = play.judge(&seen)?;
            (jobs, events) = (jobs + more, events + play.events(&seen)?);
            let at = classes.iter().position(|class| *class == play.class);
            if let Some(at) = at {
                nearest[at] = near.max(nearest[at]);
            }
        }
    }
    let far = classes.iter().zip(&nearest).find(|(_, near)| **near < kind.near());
    if let Some((class, near)) = far {
        return Err(format!(
            "{class:?}: the nearest job took {near} thousandths: nothing is tried"
        ));
    }
    let told = match kind {
        Kind::Quiet => String::new(),
        Kind::Stopped => format!(", {events} calls ended by a handler"),
        Kind::Interrupted => format!(", {events} interrupts"),
    };
    Ok(format!(
        "{} sets of {} classes{told}, {jobs} jobs, each within its response time; \
         the nearest took {nearest:?} thousandths",
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
    if plays.iter().any(|play| play.kind == Kind::Interrupted) {
        text = text.replace("cores = [0]", "cores = [0]\ndevices = [\"pit\"]");
        text += "[[notification]]\nname = \"irq\"\nsandbox = \"rt\"\n";
    }
    let arguments = format!("args = \"role=report until={end} rows={rows}\"");
    text += &REPORT.replace("ARGS", &arguments);
    for (n, play) in plays.iter().enumerate() {
        let (prefix, file) = (format!("x{n}"), format!("set{n}"));
        std::fs::write(dir.join(&file), play.given(&program)?).map_err(|e| e.to_string())?;
        let (programs, threads) = (play.programs(&prefix, &file), play.threads(&prefix));
        let (set, prefix) = (&play.set, prefix.as_str());
        text += &Text { set, prefix, programs: &programs, threads: &threads }.to_string();
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

[[endpoint]]
name = "over"
sandbox = "rt"
"#;

const TIMER: &str = "devices = [{ device = \"pit\", interrupts = [{ notification = \"irq\" }] }]";

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
serves = ["over"]

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
        let called =
            |n: usize| kernel.programs.iter().any(|p| p.calls.iter().any(|c| c.endpoint == n));
        let servers: Vec<usize> = (0..self.set.servers.len()).filter(|n| called(*n)).collect();
        let lines = |(n, program): (usize, &bulkhead_plan::kernel::Program)| {
            let (mut waits, mut more) = ("[\"pause\"]", String::new());
            let (role, number) = match self.set.threads.get(n) {
                Some(_) if self.handler == Some(n) => {
                    let names = servers.iter().map(|n| format!("\"thread:{prefix}s{n}\""));
                    let names = names.collect::<Vec<_>>().join(", ");
                    more =
                        format!("sched_control = true\nmemory = \"4 KiB\"\nmanages = [{names}]\n");
                    ("handler", n)
                }
                Some(thread) if thread.serves => {
                    if thread.interrupt > 0 {
                        waits = "[\"pause\", \"irq\"]";
                        more = format!("manages = [\"thread:{prefix}t{n}\"]\n{TIMER}\n");
                    }
                    ("driver", n)
                }
                Some(_) => ("job", n),
                None => ("server", n - threads),
            };
            let calls = program.calls.iter();
            let calls: Vec<_> = calls
                .map(|call| format!("{prefix}{}", kernel.endpoints[call.endpoint].name))
                .collect();
            let calls = if calls.is_empty() { "none".into() } else { calls.join(",") };
            let row = self.row;
            let bits: u64 = servers.iter().map(|n| 1 << n).sum();
            format!(
                "file = \"{file}\"\nmaps = [{{ shared = \"seen\", access = \"rw\" }}]\nwaits = {waits}\n{more}\
                 args = \"role={role} set={prefix} number={number} row={row} servers={bits} calls={calls}\""
            )
        };
        kernel.programs.iter().enumerate().map(lines).collect()
    }

    /// Further lines of its threads. A server that is stopped without a handler has a line of the kernel's, which takes
    /// others' time. No thread listens at `over`, so it waits there for ever.
    fn threads(&self, prefix: &str) -> Vec<String> {
        let threads = self.set.threads.len();
        let line = |n: usize| match (self.kind, self.handler) {
            (Kind::Stopped, Some(handler)) if n >= threads => {
                format!(
                    "timeout = {{ endpoint = \"{prefix}d{handler}\", badge = {} }}",
                    n - threads
                )
            }
            (Kind::Stopped, None) if n >= threads => "timeout = \"over\"".into(),
            _ => String::new(),
        };
        (0..threads + self.set.servers.len()).map(line).collect()
    }

    /// The program's file with what the set is.
    fn given(&self, program: &[u8]) -> Result<Vec<u8>, String> {
        let mark = MAGIC.map(u64::to_le_bytes).concat();
        let at = program.windows(mark.len()).position(|bytes| bytes == mark);
        let at = at.ok_or("program-sets has no table")? + mark.len();
        let mut table = [0; TABLE];
        for (n, (thread, pattern)) in self.set.threads.iter().zip(&self.patterns).enumerate() {
            let first = self.begin + pattern.offset;
            let every = if thread.serves { thread.every } else { thread.period } + pattern.gap;
            let (job, interrupt) = (&thread.job, thread.interrupt);
            let given = Thread { first, every, end: self.end, steps: job.len() as u64, interrupt };
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

    /// How many calls its handler ended, or interrupts its driver served.
    fn events(&self, seen: &[[u64; SEEN]]) -> Result<u64, String> {
        let interrupted = self.set.threads.iter().position(|thread| thread.interrupt > 0);
        let Some(n) = self.handler.or(interrupted) else { return Ok(0) };
        match seen[self.row + n][1] {
            0 => Err(format!(
                "{:?} {}: thread {n} has nothing to do\n{}",
                self.class, self.number, self.set
            )),
            events => Ok(events),
        }
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

/// A time with room for the kernel's work and the program's own around it.
fn less(time: Time) -> Time {
    time.saturating_sub(SLACK + time / PARTS).max(1)
}

/// A step as it is played.
fn step(op: Op) -> Step {
    match op {
        Op::Run(time) => Step::Run(less(time)),
        Op::Call(server) => Step::Call(server),
        Op::Answer => Step::Answer,
        Op::Ask(driver, time) => Step::Ask(driver, less(time)),
        Op::Sleep(time) => Step::Sleep(time),
    }
}
