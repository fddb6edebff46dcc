//! Snapshots of programs: one that fails goes on from the last one that was whole, which its keeper has.

use super::driver::{Bench, Job};
use super::system::{Manifest, Seen, run};
use bulkhead_qemu::Time;

/// Steps of a life of the ward, and pages of its state.
const ROUNDS: u64 = 20;
const PAGES: u64 = 16;

pub fn jobs() -> Vec<Job> {
    vec![Job::one("keeper/restart", 120, restart)]
}

/// A program of a kernel, with a thread: name, file, arguments, priority, lines of the program and of the thread.
fn program(name: &str, file: &str, args: &str, priority: u8, [own, thread]: [&str; 2]) -> String {
    format!(
        "[[program]]\nname = \"{name}\"\nsandbox = \"rt\"\nfile = \"artifact:{file}\"\nargs = \"{args}\"\n{own}
[[thread]]\nname = \"{name}\"\nprogram = \"{name}\"\npriority = {priority}\nstack = \"32 KiB\"\n{thread}\n"
    )
}

fn context(name: &str, [budget, period]: [&str; 2]) -> String {
    format!(
        "[[context]]\nname = \"{name}\"\nsandbox = \"rt\"\nbudget = \"{budget}\"\nperiod = \"{period}\"\n"
    )
}

fn shared(name: &str, size: u64) -> String {
    format!("[[shared]]\nname = \"{name}\"\nsandbox = \"rt\"\nsize = \"{} KiB\"\n", size << 2)
}

/// A ward and its state: its number from 1.
fn ward(name: &str, number: u64, args: &str) -> String {
    let maps = format!(
        "maps = [{{ shared = \"{name}\", access = \"rw\" }}, \"{name}-kept\", {{ shared = \"alive-{name}\", access = \"rw\" }}]\n"
    );
    let own = format!(
        "ends_sandbox = true\ncalls = [{{ endpoint = \"keeper\", badge = {number} }}]\n{maps}"
    );
    let thread =
        format!("context = \"{name}\"\nfault = {{ endpoint = \"trouble\", badge = {number} }}");
    program(name, "program-warm", &format!("state={name} {args}"), 10, [&own, &thread])
        + &context(name, ["2 ms", "10 ms"])
        + &shared(name, PAGES)
        + &shared(&format!("{name}-kept"), 1 + 2 * PAGES)
        + &shared(&format!("alive-{name}"), 1)
}

/// A kernel with a guard, a keeper and wards, which have these names and arguments.
fn system(keeper: &str, guard: &str, wards: &[(&str, &str)]) -> Manifest {
    let list = |of: &dyn Fn(&str) -> String| {
        wards.iter().map(|(name, _)| of(name)).collect::<Vec<_>>().join(", ")
    };
    let looks = wards.iter().map(|(name, _)| format!(" alive-{name}=20:100")).collect::<String>();
    let guarding = format!(
        "ends_sandbox = true\nserves = [\"trouble\"]\nmaps = [{}]\nmanages = [{}]",
        list(&|name| format!("\"alive-{name}\"")),
        list(&|name| format!("\"thread:{name}\""))
    );
    let keeping = format!(
        "serves = [\"keeper\"]\nmaps = [{}]",
        list(&|name| format!("\"{name}\", {{ shared = \"{name}-kept\", access = \"rw\" }}"))
    );
    let states = wards.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(":");
    let endpoints = "[[endpoint]]\nname = \"trouble\"\nsandbox = \"rt\"
[[endpoint]]\nname = \"keeper\"\nsandbox = \"rt\"\nlongest = \"500 us\"\n";
    let own = "[[sandbox]]\nname = \"rt\"\nguest = { kind = \"kernel\" }\ncores = [0]\nmemory = \"8 MiB\"\n";
    let parts = [
        own.into(),
        endpoints.into(),
        program(
            "guard",
            "flight-guard",
            &format!("restarts=3 {guard}{looks}"),
            100,
            [&guarding, "context = \"guard\""],
        ),
        context("guard", ["200 us", "2 ms"]),
        program("keeper", keeper, &format!("states={states}"), 120, [&keeping, ""]),
        (1..).zip(wards).map(|(n, (name, args))| ward(name, n, args)).collect(),
    ];
    Manifest(Manifest::new().ends_with(&["rt"]).0 + &parts.concat())
}

fn ran(manifest: &Manifest, bench: &Bench) -> Result<Seen, String> {
    run(manifest, &bench.dir, |o| o.time = Time::one_core())
}

/// Compares what a ward said of its lives: generation and step of each.
fn lived(seen: &Seen, name: &str, lives: &[(u64, u64)]) -> Result<(), String> {
    for (life, (generation, step)) in lives.iter().enumerate() {
        let says = format!("[rt] {name}: life {life} from snapshot {generation} at step {step}\n");
        seen.ensure(seen.console.contains(&says), format!("no {says:?}"))?;
    }
    seen.ensure(!seen.console.contains("is torn"), "a state is torn")
}

/// Each kind of failure: each life goes on where the one before was.
fn restart(bench: &Bench) -> Result<String, String> {
    let seen = ran(&system("program-keeper", "", &[("count", "way=each fails=3")]), bench)?;
    let lives = [0, 1, 2, 3].map(|life| (life * ROUNDS, life * ROUNDS));
    lived(&seen, "count", &lives)?;
    seen.exited("rt")?;
    Ok(format!("{} steps", 3 * ROUNDS))
}
