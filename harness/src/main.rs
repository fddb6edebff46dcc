//! The harness's command.

use bulkhead_harness::{Failure, bare, bench, build, numbers, plot, rows::Rows, selftest, test};
use bulkhead_plan::Guest;
use bulkhead_qemu::bochs::{self, Bochs};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures in deterministic virtual time.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
    /// File that takes the rows.
    #[arg(long, global = true)]
    results: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Show the clock's own error; fails when it is outside its bounds.
    Selftest {
        /// Timer ticks in each part.
        #[arg(long, default_value_t = 500)]
        samples: u32,
    },
    /// Show what Bochs' SVM really does.
    BochsProbe,
    /// Run a Linux on the bare machine until a serial port shows a text.
    Bare {
        /// bzImage.
        kernel: PathBuf,
        /// Initial RAM file system.
        #[arg(long)]
        initrd: Option<PathBuf>,
        /// Kernel command line.
        #[arg(long, default_value = "console=ttyS1,115200")]
        cmdline: String,
        /// Cores.
        #[arg(long, default_value_t = 1)]
        cores: usize,
        /// Text to wait for on COM2.
        #[arg(long)]
        until: String,
    },
    /// Measure everything that is promised; fails when a bound is not reached.
    Bench {
        /// Only figures with names that begin so, or with one of several beginnings with commas between them.
        #[arg(long, default_value = "", hide_default_value = true)]
        only: String,
    },
    /// Print all rows.
    Table,
    /// Say where the tables of docs/numbers.md differ from the rows; fails where they do.
    Numbers {
        /// Write the rows into the page.
        #[arg(long)]
        write: bool,
    },
    /// Draw plots of the rows.
    Plot {
        /// Folder for the files.
        #[arg(default_value = "target/bench")]
        dir: PathBuf,
    },
    /// Feed all fuzz targets without libFuzzer: corpora, changed and random input.
    Fuzz {
        /// For how long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Repeats a run that began with it.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run the tests; the last line is `N passed, N failed`.
    Test(test::Arguments),
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bulkhead-harness: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    let default = || build::target().join("bench/results.json");
    let results = options.results.clone().unwrap_or_else(default);
    match &options.command {
        Command::Selftest { samples } => {
            let dir = build::target().join("bench/selftest");
            let (rows, faults) = selftest::run(&dir, *samples)?;
            Rows::add_to(&results, &rows)?;
            print!("{}", Rows { rows }.table());
            faults.iter().for_each(|fault| eprintln!("clock: {fault}"));
            Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::BochsProbe => {
            let dir = build::target().join("bochs-probe");
            let iso = bochs::pack(&build::bare("svm-probe")?, &dir)?;
            let console = Bochs::new(&dir, iso).run(Duration::from_secs(60))?;
            let facts = console.lines().filter(|line| line.contains(" = "));
            facts.for_each(|line| println!("{line}"));
            Ok(ExitCode::SUCCESS)
        }
        Command::Bare { kernel, initrd, cmdline, cores, until } => {
            let guest = Guest::Linux {
                kernel: kernel.clone(),
                initrd: initrd.clone(),
                cmdline: cmdline.clone(),
            };
            let sandbox = bare::sandbox(guest, *cores, 512 << 20);
            let machine = bare::machine(
                &sandbox,
                &bulkhead_plan::Machine::default(),
                &[],
                &build::target().join("bench/bare"),
            )?;
            let mut running = machine.start()?;
            running.wait(until, Duration::from_secs(120), |m| {
                m.serial(1).contains(until).then_some(())
            })?;
            running.quit()?;
            print!("{}", running.serial(1).text());
            let counts = running.counts()?;
            for vcpu in counts.vcpus() {
                println!("core {vcpu}: {} instructions", counts.instructions(vcpu, None));
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Test(arguments) => test::run(arguments),
        Command::Fuzz { seconds, seed } => {
            let clock = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            let seed = seed.unwrap_or(clock.as_nanos() as u64);
            println!("fuzz: seed {seed}, {seconds} s");
            println!("{}", test::fuzz(seed, Duration::from_secs(*seconds))?);
            println!("fuzz: nothing found");
            Ok(ExitCode::SUCCESS)
        }
        Command::Bench { only } => {
            let (figures, failures) = bench::run(only);
            let rows: Vec<_> = figures.iter().map(bench::Figure::to_row).collect();
            Rows::add_to(&results, &rows)?;
            plot::draw(&Rows::read(&results)?, &build::target().join("bench"))?;
            print!("{}", bench::table(&figures));
            failures.iter().for_each(|why| eprintln!("bench: {why}"));
            let missed = figures.iter().filter(|figure| !figure.reached());
            for figure in missed {
                let (name, verdict) = (&figure.row.name, figure.verdict());
                eprintln!("bench: {name} = {}: {verdict}", figure.row.value);
            }
            let reached = failures.is_empty() && figures.iter().all(bench::Figure::reached);
            Ok(if reached { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Numbers { write } => {
            let compared = numbers::compare(&Rows::read(&results)?, *write)?;
            compared.differ.iter().for_each(|lines| println!("{lines}"));
            compared.missing.iter().for_each(|row| println!("in no table: {row}"));
            let same = compared.differ.is_empty() || *write;
            Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Plot { dir } => {
            let drawn = plot::draw(&Rows::read(&results)?, dir)?;
            drawn.iter().for_each(|file| println!("{}", dir.join(&**file).display()));
            Ok(ExitCode::SUCCESS)
        }
        Command::Table => {
            print!("{}", Rows::read(&results)?.table());
            Ok(ExitCode::SUCCESS)
        }
    }
}
