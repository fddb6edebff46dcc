//! Snapshots: a guest that fails goes on from the last one that was whole.

use super::driver::{Bench, Job};
use super::mutate;
use super::peer::{deaf, struck_in};
use super::system::{Manifest, Seen, run, run_from, started};
use bulkhead_explain::Deed;
use bulkhead_layout::PAGE;
use bulkhead_layout::map::{SNAPSHOTS_GPA, SNAPSHOTS_VA};
use bulkhead_layout::snapshot::{Buffer, Head, place};
use core::mem::offset_of;
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Tests of monitors that lack something.
pub const WHOLE: &str = "warm/mutant-whole";
pub const RANGE: &str = "warm/mutant-range";
pub const ROOM: &str = "warm/mutant-room";

/// Steps of a life of the guest, and pages of its state.
const ROUNDS: u64 = 20;
const PAGES: u64 = 16;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("warm/restart", 120, restart),
        Job::one("warm/ladder", 120, |bench| climbed(&run(&each(), &bench.dir, audited)?)),
        Job::one("warm/middle", 120, middle),
        Job::one("warm/cold", 120, cold),
        Job::one("warm/start", 120, start),
        Job::one("warm/monitor", 120, monitor),
        Job::one("warm/flip", 120, flip),
        Job::one("warm/lost", 120, lost),
        Job::one("warm/write", 120, write),
        Job::one("warm/attacks", 120, attacks),
        Job::one(WHOLE, 400, whole),
        Job::one(RANGE, 400, range),
        Job::one(ROOM, 400, room),
    ]
}

fn audited(options: &mut bulkhead_run::Options) {
    options.audit = true;
}

/// A sandbox with `guests/warm` and an answer to all kinds of its failures.
fn warm(name: &str, core: u32, args: &str, answer: &str) -> String {
    let watch = match args.contains("hang") || args.contains("each") {
        true => "watchdog = \"20 ms\"\nalive = \"15 ms\"\n",
        false => "",
    };
    let hang = if watch.is_empty() { "" } else { ", \"hang\"" };
    format!(
        "[[sandbox]]\nname = \"{name}\"\ncores = [{core}]\nmemory = \"4 MiB\"\nsnapshot = \"{} KiB\"
guest = {{ kind = \"bare\", program = \"artifact:warm\", args = \"{args}\" }}
{watch}[[health]]\nsandbox = \"{name}\"
on = [\"failure\", \"memory-violation\", \"triple-fault\"{hang}]\n{answer}\n",
        (PAGES * PAGE) >> 10
    )
}

const EACH_TIME: &str = "action = \"restart warm\"";

fn system(ends: &[&str], parts: &[String]) -> Manifest {
    Manifest(Manifest::new().ends_with(ends).0 + &parts.concat())
}

/// Action of a deed, the generation that it went on from, the number of snapshots that were not whole.
type Done = (&'static str, Option<u64>, u32);

fn deeds(seen: &Seen, name: &str) -> Result<Vec<Done>, String> {
    let deed = |deed: &Deed| (deed.action, deed.snapshot, deed.broken);
    Ok(seen.sandbox(name)?.newest_deeds.iter().map(deed).collect())
}

/// Compares deeds, and what the guest said of its lives: generation and step of each.
fn expect(
    seen: &Seen,
    name: &str,
    expected: &[(&'static str, Option<u64>, u32)],
    lives: &[(u64, u64)],
) -> Result<(), String> {
    let found = deeds(seen, name)?;
    seen.ensure(found == expected, format!("{name}: {found:?}, expected {expected:?}"))?;
    for (life, (generation, step)) in lives.iter().enumerate() {
        let says =
            format!("[{name}] warm: life {life} from snapshot {generation} at step {step}\n");
        seen.ensure(seen.console.contains(&says), format!("no {says:?}"))?;
    }
    seen.ensure(!seen.console.contains("is torn"), "a state is torn")
}

/// Each kind of failure, three times: each life goes on where the one before was.
fn restart(bench: &Bench) -> Result<String, String> {
    const WAYS: [&str; 4] = ["exit", "memory", "shutdown", "hang"];
    let parts = (0..).zip(WAYS);
    let parts = parts.map(|(core, way)| warm(way, core, &format!("way={way} fails=3"), EACH_TIME));
    let manifest = system(&WAYS, &parts.collect::<Vec<_>>());
    let manifest = manifest.bare("steady", "victim", "", &[4], "8 MiB", "");
    let seen = run(&manifest, &bench.dir, |o| {
        audited(o);
        o.limit = Duration::from_secs(100);
    })?;
    for way in WAYS {
        let warm = |life| ("restart warm", Some(life * ROUNDS), 0);
        let lives = [0, 1, 2, 3].map(|life| (life * ROUNDS, life * ROUNDS));
        expect(&seen, way, &[1, 2, 3].map(warm), &lives)?;
        seen.exited(way)?;
    }
    seen.undisturbed("steady", &["running", "exited"])?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    let deed = seen.sandbox("exit")?.newest_deeds[0].to_string();
    let told = deed.contains("restart warm (rung 1), from snapshot 20, exit began");
    seen.ensure(told, format!("the deed says {deed}"))?;
    Ok(format!("{} ways, {} steps", WAYS.len(), 3 * ROUNDS))
}

/// A sandbox that fails in all ways in turn, with a ladder of two warm restarts, a cold one, a stop.
pub fn each() -> Manifest {
    let once = |times| format!("at_most = {{ times = {times}, within = \"100 s\" }}");
    let ladder = format!(
        "ladder = [{{ action = \"restart warm\", {} }}, {{ action = \"restart\", {} }}, {{ action = \"stop\" }}]",
        once(2),
        once(1)
    );
    system(&["one"], &[warm("one", 0, "way=each", &ladder)])
}

/// It has climbed its ladder: what was offered twice is not offered to the cold life.
pub fn climbed(seen: &Seen) -> Result<String, String> {
    let warm = |generation| ("restart warm", Some(generation), 0);
    let expected = [warm(20), warm(40), ("restart", None, 0), ("stop", None, 0)];
    expect(seen, "one", &expected, &[(0, 0), (20, 20), (40, 40), (0, 0)])?;
    Ok("two warm lives, a cold one, a stop".into())
}

/// It fails in the middle of a snapshot: the one before is offered.
fn middle(bench: &Bench) -> Result<String, String> {
    let manifest = system(&["one"], &[warm("one", 0, "middle=1 fails=4", EACH_TIME)]);
    let seen = run(&manifest, &bench.dir, audited)?;
    let warm = |life| ("restart warm", Some(life * ROUNDS), 0);
    let lives = [0, 1, 2, 3, 4].map(|life| (life * ROUNDS, life * ROUNDS));
    expect(&seen, "one", &[1, 2, 3, 4].map(warm), &lives)?;
    let unfinished = seen.console.matches("warm: 0xfffffffffffffffc in the middle").count();
    seen.ensure(unfinished == 4, format!("{unfinished} snapshots were unfinished"))?;
    seen.exited("one")?;
    Ok("4 unfinished snapshots, none was offered".into())
}

/// A guest that fails before its first snapshot is whole begins cold, and the record says so.
fn cold(bench: &Bench) -> Result<String, String> {
    let manifest = system(&["one"], &[warm("one", 0, "rounds=0 middle=1 fails=2", EACH_TIME)]);
    let seen = run(&manifest, &bench.dir, |_| {})?;
    let none = ("restart warm", None, 0);
    expect(&seen, "one", &[none, none], &[(0, 0), (0, 0), (0, 0)])?;
    let deed = seen.sandbox("one")?.newest_deeds[0].to_string();
    let told = deed.contains("restart warm (rung 1), without a snapshot, one began");
    seen.ensure(told, format!("the deed says {deed}"))?;
    Ok("2 lives without a snapshot".into())
}

/// A guest that another sandbox starts begins cold.
fn start(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().ends_with(&["keeper"]).bare(
        "keeper",
        "warden",
        "do=gone,flood,nap,gone calls=1 ask=start nap=20",
        &[1],
        "4 MiB",
        "start = [\"one\"]\n",
    );
    let ladder = "ladder = [{ action = \"restart warm\", at_most = { times = 1, within = \"100 s\" } }, { action = \"stop\" }]";
    let manifest = Manifest(manifest.0 + &warm("one", 0, "", ladder));
    let seen = run(&manifest, &bench.dir, |_| {})?;
    seen.exited("keeper")?;
    let (warm, stop) = (("restart warm", Some(20), 0), ("stop", None, 0));
    expect(&seen, "one", &[warm, stop, warm, stop], &[(0, 0), (20, 20), (0, 0), (20, 20)])?;
    Ok("its snapshots were dropped".into())
}

/// Its monitor stops, while it takes one snapshot after the other. The spare monitor offers the last one that is whole.
fn monitor(bench: &Bench) -> Result<String, String> {
    let watch = "watchdog = \"20 ms\"\n";
    let alive = format!("{watch}alive = \"15 ms\"\n");
    let own = warm("one", 1, "rounds=100000000", EACH_TIME)
        .replace("on = [", "on = [\"monitor\", ")
        .replace("[[health]]", &format!("{watch}[[health]]"));
    let peer = "[[peer]]\nsandbox = \"guard\"\nwatches = \"one\"\nevery = \"40 ms\"\nfirst = \"1 s\"\nmay = [\"init\"]\n";
    let manifest = Manifest::new().ends_with(&["guard"]).bare(
        "guard",
        "hang",
        "kicks=60",
        &[0],
        "4 MiB",
        &alive,
    );
    let manifest = Manifest(manifest.0 + &own + peer);
    let seen = struck_in(&manifest, &bench.dir, ("one", 1), deaf(0), audited)?;
    seen.exited("guard")?;
    let done = deeds(&seen, "one")?;
    let [("restart warm", Some(generation), broken)] = done[..] else {
        return Err(seen.wrong(format!("{done:?}")));
    };
    let deed = seen.sandbox("one")?.newest_deeds[0].to_string();
    seen.ensure(deed.contains("monitor-hang"), format!("the deed says {deed}"))?;
    let lives = [(0, 0), (generation, generation)];
    expect(&seen, "one", &[("restart warm", Some(generation), broken)], &lives)?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    Ok(format!("it went on from snapshot {generation}, {broken} was not whole"))
}

/// A sandbox's snapshots in the machine's memory.
struct Store {
    ram: File,
    pa: u64,
}

impl Store {
    fn word(&self, at: u64) -> std::io::Result<u64> {
        let mut bytes = [0; 8];
        self.ram.read_exact_at(&mut bytes, self.pa + at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Waits until a life was offered a snapshot and has read it: then it names its pages.
    fn wait(&self, generation: u64) -> std::io::Result<()> {
        let begun = Instant::now();
        while self.word(offset_of!(Head, offered) as u64)? != generation
            || self.word(offset_of!(Head, named) as u64)? == 0
        {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(std::io::Error::other("no second life was seen"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Flips a bit of the last word of a buffer.
    fn flip(&self, buffer: usize) -> std::io::Result<()> {
        let at = place(PAGES, buffer, PAGES as usize - 1) + PAGE - 8;
        let word = self.word(at)? ^ 1 << 40;
        self.ram.write_all_at(&word.to_le_bytes(), self.pa + at)
    }

    /// Numbers of the buffers with the newest snapshot, and with the one before.
    fn buffers(&self) -> std::io::Result<[usize; 2]> {
        let generation = |buffer: usize| {
            let header = offset_of!(Head, buffers) + buffer * size_of::<Buffer>();
            self.word((header + offset_of!(Buffer, generation)) as u64)
        };
        Ok(if generation(0)? > generation(1)? { [0, 1] } else { [1, 0] })
    }
}

/// Runs a sandbox that takes snapshots in its first life. Its second one takes none, and waits until a bit has flipped
/// in each of so many, the newest one first.
fn flipped(
    bench: &Bench,
    flips: usize,
    change: impl FnOnce(&mut bulkhead_run::Options),
) -> Result<Seen, String> {
    let args = format!("still={flips} fails=2");
    let manifest = system(&["one"], &[warm("one", 0, &args, EACH_TIME)]);
    let pa = Rc::new(Cell::new(0));
    let keep = Rc::clone(&pa);
    let mut flipping = None;
    let seen = run_from(
        &manifest,
        &bench.dir,
        |o| {
            change(o);
            o.spoil = Some(Box::new(move |_, baked| {
                let all = &baked.map.spaces[0].monitor.regions;
                let own = all.iter().find(|region| region.at == SNAPSHOTS_VA);
                keep.set(own.map_or(0, |region| region.pa));
            }));
        },
        started(|running| {
            let (path, pa) = (running.ram().path().to_owned(), pa.get());
            flipping = Some(std::thread::spawn(move || {
                let store = Store { ram: File::options().read(true).write(true).open(path)?, pa };
                store.wait(ROUNDS)?;
                store.buffers()?[..flips].iter().try_for_each(|buffer| store.flip(*buffer))
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
    let seen = flipped(bench, 1, |_| {})?;
    let expected = [("restart warm", Some(20), 0), ("restart warm", Some(19), 1)];
    expect(&seen, "one", &expected, &[(0, 0), (20, 20), (19, 19)])?;
    seen.exited("one")?;
    let deed = seen.sandbox("one")?.newest_deeds[1].to_string();
    let told = deed.contains("from snapshot 19, 1 was not whole, one began");
    seen.ensure(told, format!("the deed says {deed}"))?;
    Ok("the one before was offered".into())
}

/// A bit of both: neither is offered.
fn lost(bench: &Bench) -> Result<String, String> {
    let seen = flipped(bench, 2, |_| {})?;
    let expected = [("restart warm", Some(20), 0), ("restart warm", None, 2)];
    expect(&seen, "one", &expected, &[(0, 0), (20, 20), (0, 0)])?;
    seen.exited("one")?;
    Ok("neither was offered".into())
}

/// It writes to a snapshot, and is denied that.
fn write(bench: &Bench) -> Result<String, String> {
    let manifest = system(&["one"], &[warm("one", 0, "way=write fails=2", EACH_TIME)]);
    let seen = run(&manifest, &bench.dir, audited)?;
    let warm = |life| ("restart warm", Some(life * ROUNDS), 0);
    expect(&seen, "one", &[1, 2].map(warm), &[(0, 0), (20, 20), (40, 40)])?;
    let own = seen.denials.iter().find(|d| d.condition == "memory-write");
    let own = own.ok_or_else(|| seen.wrong("no write was denied"))?;
    let right = own.record.address == SNAPSHOTS_GPA + PAGE
        && own.to_string().contains("its own, without that right");
    seen.ensure(right, format!("the record says {own}"))?;
    Ok("2 writes were denied".into())
}

/// Claims that are no pages of its own memory, more of them than there is room for, calls of a second core, a flood.
fn attacks(bench: &Bench) -> Result<String, String> {
    let manifest = system(&["one"], &[warm("one", 0, "attack=1", EACH_TIME)]);
    let manifest = Manifest(manifest.0.replace("cores = [0]", "cores = [0, 1]"));
    let manifest = manifest.bare("steady", "victim", "", &[4], "8 MiB", "");
    let seen = run(&manifest, &bench.dir, audited)?;
    seen.exited("one")?;
    let refused = "0xfffffffffffffffe";
    for what in ["nothing named", "more than there is room for", "one page more", "the second core"]
    {
        let says = format!("[one] warm: {what} got {refused}\n");
        seen.ensure(seen.console.contains(&says), format!("no {says:?}"))?;
    }
    let own: Vec<_> = seen.denials.iter().filter(|d| d.condition == "snapshot-range").collect();
    let claims: u64 = own.iter().map(|d| d.times).sum();
    seen.ensure(claims == 12, format!("{claims} claims were denied"))?;
    let told = own.iter().all(|d| d.to_string().contains("snapshot-range"));
    seen.ensure(told, format!("the records say {own:?}"))?;
    let s = seen.sandbox("one")?;
    seen.ensure((s.state, s.restarts) == ("exited", 0), format!("{}, {}", s.state, s.restarts))?;
    seen.undisturbed("steady", &["running", "exited"])?;
    Ok(format!("{claims} claims"))
}

/// A monitor that believes each snapshot offers one with a wrong bit.
fn whole(bench: &Bench) -> Result<String, String> {
    mutate::build_mutants()?;
    let folder = mutate::monitor_without("snapshot-whole")?;
    let seen = flipped(bench, 1, |o| o.artifacts = folder)?;
    seen.ensure(seen.console.contains("its state is torn"), "the state is not torn")?;
    Ok("a monitor without sums offers a torn state".into())
}

/// A monitor that believes each address takes what is nobody's.
fn range(bench: &Bench) -> Result<String, String> {
    failed(bench, "snapshot-range", "attack=far", "far got 0x0")
}

/// A monitor that believes each number of pages.
fn room(bench: &Bench) -> Result<String, String> {
    failed(bench, "snapshot-room", "attack=1", "no page got")
}

/// A monitor without a rule ends for good, by its own tables, and harms its own sandbox alone.
fn failed(bench: &Bench, rule: &str, args: &str, says: &str) -> Result<String, String> {
    mutate::build_mutants()?;
    let folder = mutate::monitor_without(rule)?;
    let manifest = system(&["timer"], &[warm("one", 0, args, EACH_TIME)]);
    let watch = "watchdog = \"40 ms\"\nalive = \"30 ms\"\n";
    let manifest = manifest.bare("timer", "hang", "", &[3], "4 MiB", watch);
    let with = run(&manifest, &bench.dir, |_| {})?;
    let state = with.sandbox("one")?.state;
    with.ensure(state == "exited", format!("with the rule it is {state}"))?;
    let seen = run(&manifest, &bench.dir, |o| o.artifacts = folder)?;
    let state = seen.sandbox("one")?.state;
    seen.ensure(seen.console.contains(says), format!("no {says:?}"))?;
    seen.ensure(state == "failed", format!("without the rule it is {state}"))?;
    seen.exited("timer")?;
    Ok("it fails, alone".into())
}
