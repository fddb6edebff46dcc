//! Runs jobs side by side, each in a process group of its own with a time limit.

use crate::rows::{Row, Rows};
use crate::{Failure, build};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// Arguments of `bulkhead-harness test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only tests with this text in their names.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Only the jobs that `make test` leaves to `make soak`.
    #[arg(long)]
    left: bool,
    /// Only list the tests.
    #[arg(long)]
    list: bool,
    /// Jobs side by side.
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Run one job in this process: what the driver itself uses.
    #[arg(long, hide = true)]
    job: Option<String>,
}

/// Result of a test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// It passed; a remark.
    Passed(String),
    /// It cannot be made here, and why.
    Skipped(String),
    /// It failed: reason and logs.
    Failed(String),
}

#[derive(Serialize, Deserialize)]
struct Line {
    test: String,
    verdict: Verdict,
}

/// Starts a line that carries a verdict, among whatever else a job prints.
const MARK: &str = "@verdict ";
/// Starts a job's last line: the processor time that it and its children took, in seconds.
const SPENT: &str = "@spent ";
/// Remark of a test that ran twice.
const CRASHED_BEFORE: &str = "the emulator had crashed";
/// Jobs named at the end of a run as the slowest.
const SLOWEST: usize = 10;

/// The things that a job works with.
pub struct Bench {
    /// Folder of its own.
    pub dir: PathBuf,
}

impl Bench {
    /// Gives a verdict.
    pub fn verdict(&self, test: &str, verdict: Verdict) {
        let line = Line { test: test.into(), verdict };
        let text = serde_json::to_string(&line).unwrap_or_default();
        println!("{MARK}{text}");
    }

    /// Gives the verdict that a result is.
    pub fn result(&self, test: &str, result: Result<impl Into<String>, String>) {
        match result {
            Ok(remark) => self.verdict(test, Verdict::Passed(remark.into())),
            Err(reason) => self.verdict(test, Verdict::Failed(reason)),
        }
    }
}

type Body = Box<dyn Fn(&Bench)>;

/// See the module above.
pub struct Job {
    /// Its name.
    pub name: String,
    /// The tests on which it gives verdicts.
    pub tests: Vec<String>,
    /// Time that it may take.
    pub limit: Duration,
    body: Body,
}

impl Job {
    /// A job with many tests.
    pub fn new(
        name: impl Into<String>,
        tests: impl IntoIterator<Item = String>,
        seconds: u64,
        body: impl Fn(&Bench) + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            tests: tests.into_iter().collect(),
            limit: Duration::from_secs(seconds),
            body: Box::new(body),
        }
    }

    /// A job that is one test.
    pub fn one(
        name: impl Into<String>,
        seconds: u64,
        body: impl Fn(&Bench) -> Result<String, String> + 'static,
    ) -> Self {
        let name = name.into();
        let test = name.clone();
        Self::new(name.clone(), [name], seconds, move |bench| {
            let mut result = body(bench);
            // A bug of the emulator's says nothing about what runs in it. Twice in a row it is no chance.
            if let Err(reason) = &result
                && reason.contains(bulkhead_run::CRASHED)
            {
                println!("{reason}\nonce more");
                result =
                    body(bench).map(|remark| format!("{remark} (once more: {CRASHED_BEFORE})"));
            }
            bench.result(&test, result);
        })
    }
}

/// Runs the tests that were asked for.
///
/// # Errors
/// The driver's own: processes that cannot be started.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut jobs = super::jobs();
    let home = build::target().join("test");
    if let Some(name) = &arguments.job {
        let job = jobs.iter().find(|j| j.name == *name);
        let job = job.ok_or_else(|| format!("there is no job {name}"))?;
        let dir = home.join(name.replace('/', "-"));
        std::fs::create_dir_all(&dir)?;
        std::env::set_current_dir(build::root())?;
        (job.body)(&Bench { dir });
        println!("{SPENT}{}", spent());
        return Ok(ExitCode::SUCCESS);
    }
    let all = jobs.len();
    match (&arguments.filter, arguments.left) {
        (_, true) => jobs.retain(super::soak::left),
        (None, false) => jobs.retain(|job| !super::soak::left(job)),
        _ => {}
    }
    let left = if arguments.left { 0 } else { all - jobs.len() };
    let whole = arguments.filter.is_none() && !arguments.left && !super::soak::soaks();
    if let Some(filter) = &arguments.filter {
        jobs.iter_mut().for_each(|j| j.tests.retain(|t| t.contains(filter)));
        jobs.retain(|j| !j.tests.is_empty());
    }
    if arguments.list {
        jobs.iter().flat_map(|j| &j.tests).for_each(|t| println!("{t}"));
        if arguments.left {
            super::soak::LEFT.iter().for_each(|(job, why)| println!("# {job}: {why}"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    std::fs::create_dir_all(&home)?;
    let board = Mutex::new(Board::default());
    let queue = Mutex::new(jobs.into_iter().map(Order::from).collect::<VecDeque<_>>());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while let Some(order) = next(&queue) {
                    perform(&order, &home, &board);
                }
            });
        }
    });
    let mut board = board.into_inner().map_err(|_| "a driver's thread failed")?;
    board.tell_times(&home);
    if whole {
        board.judge_times(&build::target().join("bench/results.json"));
    }
    if left > 0 {
        println!(
            "  {left} jobs are left to `make soak`: `bulkhead-harness test --left --list` says which and why"
        );
    }
    Ok(board.conclude(begun.elapsed()))
}

/// The parts of a job that a thread needs.
struct Order {
    name: String,
    tests: Vec<String>,
    limit: Duration,
}

impl From<Job> for Order {
    fn from(job: Job) -> Self {
        Self { name: job.name, tests: job.tests, limit: job.limit }
    }
}

/// Reads the processor time of this process and of its children that have ended, in seconds. Fields 14 to 17 have it in
/// ticks of 10 ms (proc(5), `/proc/pid/stat`). Unlike the time on the wall it hardly depends on what else the host
/// does.
fn spent() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in brackets, which may hold spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(4).filter_map(|field| field.parse::<u32>().ok());
    f64::from(ticks.sum::<u32>()) / 100.0
}

fn next(queue: &Mutex<VecDeque<Order>>) -> Option<Order> {
    queue.lock().ok()?.pop_front()
}

/// Starts the job, takes its verdicts, and fails what it leaves out.
fn perform(order: &Order, home: &Path, board: &Mutex<Board>) {
    let mut owed = order.tests.clone();
    let log = home.join(format!("{}.log", order.name.replace('/', "-")));
    let begun = Instant::now();
    let mut last = begun;
    let mut give = |owed: &mut Vec<String>, test: &str, verdict: Verdict| {
        if let (Some(at), Ok(mut board)) = (owed.iter().position(|t| t == test), board.lock()) {
            owed.remove(at);
            board.note(test, last.elapsed(), &verdict);
            last = Instant::now();
        }
    };
    let end = supervise(order, &log, |test, verdict| give(&mut owed, test, verdict));
    if let Ok(mut board) = board.lock() {
        let spent = end.as_ref().ok().and_then(|end| end.spent);
        board.times.push(Time {
            job: order.name.clone(),
            wall: begun.elapsed().as_secs_f64(),
            spent,
        });
    }
    let tail = tail(&std::fs::read_to_string(&log).unwrap_or_default());
    for test in owed.clone() {
        let reason = match &end {
            Ok(end) => format!("no verdict: the job {} {}\n{tail}", order.name, end.how),
            Err(error) => format!("the job {} cannot be run: {error}", order.name),
        };
        give(&mut owed, &test, Verdict::Failed(reason));
    }
}

/// Last lines of a log.
pub fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let from = lines.len().saturating_sub(25);
    lines[from..].iter().map(|l| format!("  {l}\n")).collect()
}

fn supervise(
    order: &Order,
    log: &Path,
    mut give: impl FnMut(&str, Verdict),
) -> std::io::Result<End> {
    let log = File::create(log)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["test", "--job", &order.name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.try_clone()?)
        .process_group(0)
        .spawn()?;
    let (sender, lines) = mpsc::channel();
    let out = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let lines = out.into_iter().flat_map(|o| BufReader::new(o).lines());
        lines.map_while(Result::ok).for_each(|l| drop(sender.send(l)));
    });
    let deadline = Instant::now() + order.limit;
    let mut log = &log;
    let mut spent = None;
    let how = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => match line.strip_prefix(MARK).map(serde_json::from_str::<Line>) {
                Some(Ok(line)) => give(&line.test, line.verdict),
                _ => match line.strip_prefix(SPENT) {
                    Some(seconds) => spent = seconds.parse().ok(),
                    None => writeln!(log, "{line}")?,
                },
            },
            Err(mpsc::RecvTimeoutError::Timeout) => {
                break format!("took longer than {} s", order.limit.as_secs());
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                break format!("ended with {}", child.wait()?);
            }
        }
    };
    end(&mut child);
    let _ = reader.join();
    Ok(End { how, spent })
}

/// End of a job.
struct End {
    /// In words.
    how: String,
    /// Processor time in seconds; nothing if the job did not come to its end.
    spent: Option<f64>,
}

/// Ends the job and everything that it started.
fn end(child: &mut Child) {
    let group = format!("-{}", child.id());
    let kill = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    if kill.is_err() {
        // Without the program, at least the job itself.
        let _ = child.kill();
    }
    let _ = child.wait();
}

#[derive(Default)]
struct Board {
    passed: usize,
    skipped: usize,
    failed: Vec<(String, String)>,
    times: Vec<Time>,
}

/// Time that a job took, in seconds.
#[derive(Serialize)]
struct Time {
    job: String,
    /// On the wall.
    wall: f64,
    /// Processor time.
    spent: Option<f64>,
}

impl Time {
    /// Processor time; the time on the wall where a job did not come to its end.
    fn cost(&self) -> f64 {
        self.spent.unwrap_or(self.wall)
    }
}

/// Row of a whole run's processor time, divided by the cores of the machine that the bound is for.
const MINUTES: &str = "test.minutes";
const MOST_MINUTES: f64 = 20.0;
const CORES: f64 = 2.0;
/// Row of the part of it that is Bochs', on one core.
const BOCHS: &str = "test.bochs_seconds";
const MOST_BOCHS: f64 = 180.0;
/// Jobs that run in Bochs, by the beginnings of their names.
const IN_BOCHS: [&str; 3] = ["bochs", "vmx", "ring/"];
/// A run fails from so many times a bound on, which is an hour for the whole. Continuous integration has an hour and a
/// half for build and tests. Below that a bound is an aim: other processors take up to 1.9 times as long for it.
const FAILS: f64 = 3.0;

/// Rows of a whole run, in processor time.
fn rows(times: &[Time]) -> Result<[Row; 2], String> {
    if let Some(time) = times.iter().find(|time| time.spent.is_none()) {
        return Err(format!("the job {} did not come to its end: no sum", time.job));
    }
    let sum =
        |of: fn(&&Time) -> bool| times.iter().filter(of).fold(0.0, |sum, time| sum + time.cost());
    let row = |name, unit, value: f64, most: f64| {
        let mut row = Row::new(name, unit, (value * 10.0).round() / 10.0);
        (row.bound, row.reached) = (Some(format!("at most {most}")), Some(row.value <= most));
        row
    };
    let bochs = sum(|time| IN_BOCHS.iter().any(|name| time.job.starts_with(name)));
    Ok([
        row(MINUTES, "min", sum(|_| true) / CORES / 60.0, MOST_MINUTES),
        row(BOCHS, "s", bochs, MOST_BOCHS),
    ])
}

/// A row as a test's verdict: a bound that is missed by little is said to be, and is not a failure.
fn verdict(row: &Row, most: f64, stored: &Result<(), String>) -> Verdict {
    let missed = if row.reached == Some(true) { "" } else { ": NOT reached" };
    let said = format!(
        "{} {} of a processor, {}{missed}",
        row.value,
        row.unit,
        row.bound.as_deref().unwrap_or_default()
    );
    match stored {
        Err(why) => Verdict::Failed(why.clone()),
        Ok(()) if row.value <= most * FAILS => Verdict::Passed(said),
        Ok(()) => Verdict::Failed(said),
    }
}

impl Board {
    fn note(&mut self, test: &str, took: Duration, verdict: &Verdict) {
        let (word, remark) = match verdict {
            Verdict::Passed(remark) => {
                self.passed += 1;
                ("ok  ", remark.lines().next().unwrap_or_default())
            }
            Verdict::Skipped(why) => {
                self.skipped += 1;
                ("skip", why.as_str())
            }
            Verdict::Failed(reason) => {
                self.failed.push((test.into(), reason.clone()));
                ("FAIL", "")
            }
        };
        println!("{word} {:>6.1} s  {test:<36} {remark}", took.as_secs_f64());
        if let Verdict::Failed(reason) = verdict {
            println!("  {}", reason.trim_end().replace('\n', "\n  "));
        }
    }

    /// Prints the slowest jobs, and leaves all times in `target/test/times.json`.
    fn tell_times(&mut self, home: &Path) {
        self.times.sort_by(|one, other| other.cost().total_cmp(&one.cost()));
        println!("\nthe slowest jobs, in seconds of a processor (and on the wall):");
        for time in self.times.iter().take(SLOWEST) {
            println!("  {:>6.1} ({:>6.1})  {}", time.cost(), time.wall, time.job);
        }
        let total: f64 = self.times.iter().map(Time::cost).sum();
        println!("  {total:>6.1} all {} jobs", self.times.len());
        let text = serde_json::to_string_pretty(&self.times).unwrap_or_default();
        // The verdicts are on the screen; without this file nothing else is missing.
        let _ = std::fs::write(home.join("times.json"), text);
    }

    /// Judges the time of a whole run, and leaves it as rows in the figures' file.
    fn judge_times(&mut self, file: &Path) {
        let rows = match rows(&self.times) {
            Ok(rows) => rows,
            Err(why) => return self.note(MINUTES, Duration::ZERO, &Verdict::Failed(why)),
        };
        let stored = Rows::add_to(file, &rows).map_err(|why| why.to_string());
        for (row, most) in rows.iter().zip([MOST_MINUTES, MOST_BOCHS]) {
            self.note(&row.name, Duration::ZERO, &verdict(row, most, &stored));
        }
    }

    fn conclude(&self, took: Duration) -> ExitCode {
        if !self.failed.is_empty() {
            println!("\nfailed:");
        }
        for (test, reason) in &self.failed {
            println!("  {test}: {}", reason.lines().next().unwrap_or_default());
        }
        println!("\n{} s, {} skipped", took.as_secs(), self.skipped);
        println!("{} passed, {} failed", self.passed, self.failed.len());
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(job: &str, spent: impl Into<Option<f64>>) -> Time {
        Time { job: job.into(), wall: 9_999.0, spent: spent.into() }
    }

    #[test]
    fn processor_time_is_held_and_the_walls_is_not() {
        let values = |times: &[Time]| {
            rows(times).map(|rows| rows.map(|row| (row.value, row.reached == Some(true))))
        };
        let all = [time("host", 2_200.0), time("bochs/restart", 179.0), time("bochs-attack", 1.0)];
        assert_eq!(values(&all), Ok([(19.8, true), (180.0, true)]));
        assert_eq!(values(&[time("host", 2_412.0)]), Ok([(20.1, false), (0.0, true)]));
        assert_eq!(values(&[time("vmx/a", 181.0)]), Ok([(1.5, true), (181.0, false)]));
        assert!(values(&[time("host", 1.0), time("hangs", None)]).is_err());
    }

    #[test]
    fn a_row_out_of_bounds_fails_the_run() {
        let dir = std::env::temp_dir().join(format!("bulkhead-minutes-{}", std::process::id()));
        let file = dir.join("results.json");
        let failed = |spent: f64| {
            let mut board = Board { times: vec![time("host", spent)], ..Board::default() };
            board.judge_times(&file);
            board.failed.into_iter().map(|(test, _)| test).collect::<Vec<_>>()
        };
        assert_eq!(failed(2_400.0), Vec::<String>::new());
        assert_eq!(failed(7_100.0), Vec::<String>::new());
        let stored = Rows::read(&file).expect("it was written");
        let minutes =
            |rows: &Rows| rows.rows.iter().find(|row| row.name == MINUTES).map(|row| row.reached);
        assert_eq!(minutes(&stored), Some(Some(false)));
        assert_eq!(failed(7_300.0), [MINUTES]);
        let stored = Rows::read(&file).expect("it was written");
        assert_eq!(
            stored.rows.iter().find(|row| row.name == MINUTES).map(|row| row.value),
            Some(60.8)
        );
        std::fs::remove_dir_all(dir).expect("it is there");
    }
}
