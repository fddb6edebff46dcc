//! Snapshots of programs: one that fails goes on from the last one that was whole, which its keeper has.

use super::driver::{Bench, Job};
use super::system::{Manifest, Seen, run, run_from, started};
use bulkhead_layout::PAGE;
use bulkhead_layout::snapshot::{Buffer, Head, place};
use bulkhead_qemu::Time;
use core::mem::offset_of;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Steps of a life of the ward, and pages of its state.
const ROUNDS: u64 = 20;
const PAGES: u64 = 16;
/// In the ward's state, behind its count, while it waits for flips (`programs/keeper`).
const WAITS: u64 = 0x5354_4941_5700_0001;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("keeper/restart", 120, restart),
        Job::one("keeper/alternative", 120, alternative),
        Job::one("keeper/in-c", 120, in_c),
        Job::one("keeper/budget", 120, budget),
        Job::one("keeper/call", 120, call),
        Job::one("keeper/flip", 120, flip),
        Job::one("keeper/lost", 120, lost),
        Job::one("keeper/attacks", 120, attacks),
        Job::one("keeper/mutants", 120, mutants),
    ]
}

/// A program of a kernel and its thread. `own` are further lines of the program, `thread` of the thread.
fn program(name: &str, file: &str, args: &str, priority: u8, [own, thread]: [&str; 2]) -> String {
    format!(
        "[[program]]\nname = \"{name}\"\nsandbox = \"rt\"\nfile = \"artifact:{file}\"\nargs = \"{args}\"\n{own}
[[thread]]\nname = \"{name}\"\nprogram = \"{name}\"\npriority = {priority}\nstack = \"32 KiB\"\n{thread}\n"
    )
}

/// A thing of the kernel's sandbox that has a name.
fn named(kind: &str, name: &str, more: &str) -> String {
    format!("[[{kind}]]\nname = \"{name}\"\nsandbox = \"rt\"\n{more}\n")
}

fn context(name: &str, budget: &str, period: &str) -> String {
    named("context", name, &format!("budget = \"{budget}\"\nperiod = \"{period}\""))
}

fn shared(name: &str, pages: u64) -> String {
    named("shared", name, &format!("size = \"{} KiB\"", pages * PAGE / 1024))
}

/// A keeper: its file, its arguments, its priority, and a context if it has one of its own.
struct Keeper {
    file: &'static str,
    args: &'static str,
    priority: u8,
    own: &'static str,
}

/// Passive, and above the guard: no call of it is cut off.
const KEEPER: Keeper = Keeper { file: "program-keeper", args: "", priority: 120, own: "" };

/// A ward: name, arguments, budget in 10 ms.
type Ward = (&'static str, &'static str, &'static str);

/// Its lines: the first ward ends the sandbox.
fn ward(number: usize, (name, args, budget): Ward) -> String {
    let own = format!(
        "ends_sandbox = {}\ncalls = [{{ endpoint = \"keeper\", badge = {number} }}]\nwaits = [\"pause\"]
signals = [\"pause\"]
maps = [{{ shared = \"{name}\", access = \"rw\" }}, \"{name}-kept\", {{ shared = \"alive-{name}\", access = \"rw\" }}]",
        number == 1
    );
    let fault = format!("fault = {{ endpoint = \"trouble\", badge = {number} }}");
    let thread = format!("context = \"{name}\"\n{fault}");
    program(name, "program-warm", &format!("state={name} {args}"), 10, [&own, &thread])
        + &context(name, budget, "10 ms")
        + &shared(name, PAGES)
        + &shared(&format!("{name}-kept"), 1 + 2 * PAGES)
        + &shared(&format!("alive-{name}"), 1)
}

/// A kernel with a guard, a keeper and wards. The keeper knows the states of the first `known`.
fn system(keeper: &Keeper, guard: &str, known: usize, wards: &[Ward]) -> Manifest {
    let list = |of: &[Ward], by: &dyn Fn(&str) -> String, between| {
        of.iter().map(|(name, ..)| by(name)).collect::<Vec<_>>().join(between)
    };
    let signs = list(wards, &|name| format!("\"alive-{name}\""), ", ");
    let threads = list(wards, &|name| format!("\"thread:{name}\""), ", ");
    let looks = list(wards, &|name| format!("alive-{name}=50:200"), " ");
    let states = list(&wards[..known], &|name| name.into(), ":");
    let maps = |name: &str| format!("\"{name}\", {{ shared = \"{name}-kept\", access = \"rw\" }}");
    let kept = list(&wards[..known], &maps, ", ");
    let guards = format!(
        "ends_sandbox = true\nserves = [\"trouble\"]\nmaps = [{signs}]\nmanages = [{threads}]"
    );
    let keeps = format!("serves = [\"keeper\"]\nmaps = [{kept}]");
    let args = format!("states={states} {}", keeper.args);
    let guard = format!("restarts=3 {looks} {guard}");
    let parts = [
        "[[sandbox]]\nname = \"rt\"\nguest = { kind = \"kernel\" }\ncores = [0]\nmemory = \"8 MiB\"\n"
            .into(),
        named("endpoint", "trouble", ""),
        named("endpoint", "keeper", "longest = \"500 us\""),
        named("notification", "pause", ""),
        program("guard", "flight-guard", &guard, 100, [&guards, "context = \"guard\""]),
        context("guard", "200 us", "2 ms"),
        program("keeper", keeper.file, &args, keeper.priority, [&keeps, keeper.own]),
        (1..).zip(wards).map(|(number, it)| ward(number, *it)).collect(),
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
    let last = format!("[rt] {name}: life {} ", lives.len());
    seen.ensure(!seen.console.contains(&last), format!("there is {last:?}"))?;
    seen.ensure(!seen.console.contains("is torn"), "a state is torn")
}

/// Lives that go on, each where the one before was.
fn on<const N: usize>() -> [(u64, u64); N] {
    core::array::from_fn(|life| (life as u64 * ROUNDS, life as u64 * ROUNDS))
}

/// By an exception, a hang, a write to its snapshots, and in the middle of a snapshot.
fn restart(bench: &Bench) -> Result<String, String> {
    let ward = ("count", "way=each fails=4", "2 ms");
    let manifest = system(&KEEPER, "", 1, &[ward]);
    let manifest = Manifest(manifest.0.replace("restarts=3", "restarts=4"));
    let seen = ran(&manifest, bench)?;
    lived(&seen, "count", &on::<5>())?;
    seen.exited("rt")?;
    for why in ["exception 6", "it hangs", "exception 14"] {
        let says = format!("count: {why}; it begins anew");
        seen.ensure(seen.console.contains(&says), format!("no {says:?}"))?;
    }
    let unfinished = seen.console.contains("count: Ok(1) in the middle");
    seen.ensure(unfinished, "no snapshot was unfinished")?;
    Ok(format!("4 ways, {} steps", 4 * ROUNDS))
}

/// Another program takes the place, and counts on.
fn alternative(bench: &Bench) -> Result<String, String> {
    let ward = ("count", "", "2 ms");
    let manifest = system(&KEEPER, "alternative=count:plain:count", 1, &[ward]);
    let text = manifest.0.replace("restarts=3", "restarts=2");
    let text = text
        .replace("[\"thread:count\"]", "[\"thread:count\", \"thread:plain\", \"context:count\"]");
    let own = "alternative_to = \"count\"\nends_sandbox = true\ncalls = [{ endpoint = \"keeper\", badge = 1 }]\nwaits = [\"pause\"]\nsignals = [\"pause\"]
maps = [{ shared = \"count\", access = \"rw\" }, \"count-kept\"]";
    let fault = "fault = { endpoint = \"trouble\", badge = 2 }";
    let plain = program("plain", "program-warm", "state=count every=5 fails=1", 10, [own, fault]);
    let seen = ran(&Manifest(text + &plain), bench)?;
    lived(&seen, "count", &on::<3>())?;
    lived(&seen, "plain", &[(60, 60), (80, 80)])?;
    // The word of the first one stands still, and is nobody's.
    seen.ensure(!seen.console.contains("it hangs"), "the other one was found hanging")?;
    seen.exited("rt")?;
    Ok("it counts on, too".into())
}

/// One in C.
fn in_c(bench: &Bench) -> Result<String, String> {
    let manifest = system(&KEEPER, "", 1, &[("count", "steps=40", "2 ms")]);
    let seen = ran(&Manifest(manifest.0.replace("program-warm\"", "program-warm-c\"")), bench)?;
    for step in [0, 20, 40] {
        let says = format!("[rt] count: from snapshot {step} at step {step}\n");
        seen.ensure(seen.console.matches(&says).count() == 1, format!("no {says:?}"))?;
    }
    seen.exited("rt")?;
    Ok("40 steps".into())
}

/// A budget that has room for few calls: the others wait for a refill, and none is cut off.
fn budget(bench: &Bench) -> Result<String, String> {
    let ward = ("count", "rounds=200 fails=1", "540 us");
    let seen = ran(&system(&KEEPER, "", 1, &[ward]), bench)?;
    lived(&seen, "count", &[(0, 0), (200, 200)])?;
    seen.exited("rt")?;
    Ok("200 steps".into())
}

/// A keeper with time of its own, and little: its ward is found hanging in the middle of a call, and begins anew there.
fn call(bench: &Bench) -> Result<String, String> {
    let own = "context = \"keeper\"";
    let manifest = system(
        &Keeper { priority: 20, own, ..KEEPER },
        "",
        1,
        &[("count", "way=middle rounds=1 fails=2", "2 ms")],
    );
    // The guard is patient until a life has its first snapshot.
    let text = manifest.0.replace("alive-count=50:200", "alive-count=40:2000");
    let seen = ran(&Manifest(text + &context("keeper", "6 us", "30 ms")), bench)?;
    lived(&seen, "count", &[(0, 0), (1, 1), (2, 2)])?;
    let in_call =
        "count: a snapshot of 0xffff\n[rt] guard: warning: count: it hangs; it begins anew";
    let cut = seen.console.matches(in_call).count();
    seen.ensure(cut == 2, format!("{cut} calls were cut off"))?;
    seen.exited("rt")?;
    Ok("2 calls were cut off".into())
}

/// A ward's state and its snapshots in the machine's memory.
struct Found {
    ram: File,
    /// First byte of the snapshots.
    store: u64,
}

impl Found {
    /// Finds them in the sandbox's memory, once the ward waits.
    fn wait(ram: File, [start, end]: [u64; 2]) -> io::Result<Self> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            let (mut store, mut waits) = (None, false);
            for pa in (start..end).step_by(PAGE as usize) {
                let mut page = [0; PAGE as usize];
                ram.read_exact_at(&mut page, pa)?;
                let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
                let pages = |n: usize| word(offset_of!(Head, pages) + 8 * n) == n as u64 * PAGE;
                if word(offset_of!(Head, named)) == PAGES && (0..PAGES as usize).all(pages) {
                    store = Some(pa);
                }
                waits |= [word(0), word(8)] == [ROUNDS, WAITS];
            }
            if let Some(store) = store.filter(|_| waits) {
                return Ok(Self { ram, store });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(io::Error::other("the ward does not wait"))
    }

    fn word(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.ram.read_exact_at(&mut bytes, self.store + at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Flips a bit of the last word of so many buffers, that with the newest snapshot first.
    fn flip(&self, flips: usize) -> io::Result<()> {
        let generation = |buffer: usize| {
            let header = offset_of!(Head, buffers) + buffer * size_of::<Buffer>();
            self.word((header + offset_of!(Buffer, generation)) as u64)
        };
        let newest = usize::from(generation(1)? > generation(0)?);
        for buffer in [newest, 1 - newest].into_iter().take(flips) {
            let at = place(PAGES, buffer, PAGES as usize - 1) + PAGE - 8;
            let word = self.word(at)? ^ 1 << 40;
            self.ram.write_all_at(&word.to_le_bytes(), self.store + at)?;
        }
        Ok(())
    }
}

/// Runs a ward that takes snapshots in its first life. Its second one takes none, and waits until a bit has flipped in
/// each of so many.
fn flipped(bench: &Bench, keeper: &Keeper, flips: usize) -> Result<Seen, String> {
    let args = ["still=1 fails=2", "still=2 fails=2"][flips - 1];
    let manifest = system(keeper, "", 1, &[("count", args, "2 ms")]);
    // A ward that waits moves no word.
    let manifest = Manifest(manifest.0.replace("alive-count=50:200", ""));
    let range = Rc::new(Cell::new([0; 2]));
    let told = Rc::clone(&range);
    let mut flipping = None;
    let seen = run_from(
        &manifest,
        &bench.dir,
        |o| {
            o.time = Time::one_core();
            o.spoil = Some(Box::new(move |_, baked| {
                let ram = &baked.plan.sandboxes[0].ram[0];
                told.set([ram.hpa, ram.hpa + ram.len]);
            }));
        },
        started(|running| {
            let (path, range) = (running.ram().path().to_owned(), range.get());
            flipping = Some(std::thread::spawn(move || {
                let ram = File::options().read(true).write(true).open(path)?;
                Found::wait(ram, range)?.flip(flips)
            }));
        }),
        |_, _| {},
    )?;
    let flipping = flipping.ok_or("the machine has not started")?;
    let done = flipping.join().map_err(|_| "no bit was flipped")?;
    done.map_err(|error| error.to_string())?;
    Ok(seen)
}

/// A bit of the newest snapshot: its sum finds it, and the one before is offered.
fn flip(bench: &Bench) -> Result<String, String> {
    let seen = flipped(bench, &KEEPER, 1)?;
    lived(&seen, "count", &[(0, 0), (20, 20), (19, 19)])?;
    let told = seen.console.contains("keeper: count begins with snapshot 19, 1 not whole");
    seen.ensure(told, "the keeper does not say so")?;
    seen.exited("rt")?;
    Ok("the one before was offered".into())
}

/// A bit of both: neither is offered.
fn lost(bench: &Bench) -> Result<String, String> {
    let seen = flipped(bench, &KEEPER, 2)?;
    lived(&seen, "count", &[(0, 0), (20, 20), (0, 0)])?;
    let told = seen.console.contains("keeper: count begins with snapshot 0, 2 not whole");
    seen.ensure(told, "the keeper does not say so")?;
    seen.exited("rt")?;
    Ok("neither was offered".into())
}

/// Requests that are none, floods, snapshots without an end, writes, and a caller without a state. The other ward of
/// the keeper counts on, in its periods.
fn attacks(bench: &Bench) -> Result<String, String> {
    let wards = [
        ("count", "every=5 rounds=60 fails=2", "1 ms"),
        ("thief", "attack=1 way=write", "2 ms"),
        ("stranger", "", "1 ms"),
    ];
    // A flood moves no word.
    let manifest = system(&KEEPER, "", 2, &wards);
    let text = manifest.0.replace("alive-thief=50:200 alive-stranger=50:200", "");
    let seen = ran(&Manifest(text), bench)?;
    lived(&seen, "count", &[(0, 0), (60, 60), (120, 120)])?;
    seen.exited("rt")?;
    for says in [
        "thief: the other one's memory: false",
        "thief: request 0x0 got Ok(2)",
        "thief: request 0x3 got Ok(2)",
        "thief: request 0xffffffffffff got Ok(2)",
        "thief: request 0x100000000 got Ok(2)",
        "thief: a message without time got Err(NoContext",
        "thief: of a flood 0 were refused",
        "thief: of snapshots without an end 0 came to one",
        "thief: life 3 from snapshot",
        "thief: exception 14; it stays stopped",
        "stranger: Keeper",
    ] {
        seen.ensure(seen.console.contains(says), format!("no {says:?}"))?;
    }
    Ok("the other ward counts on".into())
}

/// Keepers without a rule of the snapshots: each is noticed.
fn mutants(bench: &Bench) -> Result<String, String> {
    let without = |args: &'static str| Keeper { file: "program-keeper-rogue", args, ..KEEPER };
    let torn = |seen: &Seen| seen.console.contains("its state is torn");
    let middle = |keeper: &Keeper| {
        let ward = ("count", "way=middle fails=1", "2 ms");
        ran(&system(keeper, "", 1, &[ward]), bench)
    };
    // With all rules it is a keeper.
    lived(&middle(&without(""))?, "count", &on::<2>())?;
    let seen = flipped(bench, &without("omits=snapshot-whole"), 1)?;
    seen.ensure(torn(&seen), "without sums the state is not torn")?;
    let seen = middle(&without("omits=snapshot-union"))?;
    seen.ensure(torn(&seen), "without the union the state is not torn")?;
    let seen = middle(&without("omits=snapshot-buffer"))?;
    let none = seen.console.contains("count: life 1 from snapshot 0 at step 0");
    seen.ensure(none, "with one buffer a snapshot is left")?;
    Ok("3 rules".into())
}
