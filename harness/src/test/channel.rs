//! A hostile peer at each end of each kind of channel (`crates/testing/scenarios`). For two seconds of virtual time it
//! writes garbage into everything that it can write. At last it writes to memory that it may only read. The victim
//! keeps its deadlines. Then each end of each kind restarts twice, in the middle of its work. The other end is told
//! each time, every lost message is announced, and none is taken for one of another life. All of it runs with ends in
//! C, too. Channels between ends that mean well are `tests/channel`'s ([`super::kernel`]).

use super::driver::{Bench, Job};
use super::spoil::Spoil;
use super::system::{Manifest, artifacts, run};
use crate::build;
use crate::program::Program as _;
use bulkhead_channel::layout::ARMED;
use bulkhead_image::Baked;
use bulkhead_layout::PAGE;
use bulkhead_layout::map::CHANNELS_GPA;
use bulkhead_layout::report::Kind;
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

/// Kinds, with what else the manifest says of them.
const KINDS: [(&str, &str); 3] =
    [("queue", "message = 64"), ("records", ""), ("mailbox", "message = 64")];

use super::soak::soaks;

/// Milliseconds that the rogue has.
fn millis() -> u32 {
    if soaks() { 60_000 } else { 2_000 }
}

/// Periods of 10 ms that the victim has: all of that time.
fn periods() -> u32 {
    millis() / 10
}

pub fn jobs() -> Vec<Job> {
    let kinds = KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]);
    let kinds = kinds.flat_map(|(kind, sends)| {
        let of = |program| [job(kind, sends, program), restart(kind, sends, program)];
        of(RUST).into_iter().chain(of(C)).chain([doze(kind, sends)])
    });
    let others = [wait_out(), doorbell(), refuse("poll"), refuse("doorbell"), vectors(), cleared()];
    kinds.chain(others).chain(super::bell::jobs()).collect()
}

/// Memory of a channel that holds something else before the boot: zeros at both guests' first look. Without the boot
/// code's clearing, they find it.
fn cleared() -> Job {
    Job::one("channel/cleared-at-boot", 60, |bench| {
        const SIZE: usize = 64 << 10;
        let args = "zeros only=zeros";
        let mut manifest = Manifest::new().ends_with(&["one", "two"]);
        for (name, core) in [("one", 0), ("two", 1)] {
            manifest = manifest.bare(name, "selftest", args, &[core], "4 MiB", "");
        }
        manifest.0 +=
            "[[channel]]\nname = \"raw\"\nfrom = \"one\"\nto = [\"two\"]\nsize = \"64 KiB\"\n";
        let checked = manifest.load(&bench.dir)?;
        let baked = bulkhead_run::build(&checked, &artifacts()).map_err(|e| e.to_string())?;
        let at = baked.plan.channels[0].hpa;
        let garbage = bench.dir.join("garbage.bin");
        std::fs::write(&garbage, [0xA5; SIZE]).map_err(|e| e.to_string())?;
        let loader = format!("loader,file={},addr={at:#x},force-raw=on", garbage.display());
        for clears in [true, false] {
            let seen = run(&manifest, &bench.dir, |o| {
                o.qemu = vec!["-device".into(), loader.clone()];
                o.spoil = (!clears).then(|| -> bulkhead_run::Spoil {
                    Box::new(|bytes: &mut Vec<u8>, baked: &Baked| {
                        let mut spoil = Spoil::new(bytes, baked);
                        spoil.header(|header| header.launch.len = 0);
                        spoil.seal();
                    })
                });
            })?;
            for name in ["one", "two"] {
                let code = seen.sandbox(name)?.exit_code;
                let right = code == Some(u32::from(!clears));
                seen.ensure(
                    right,
                    format!("{name}: {code:?}, and the channel is cleared: {clears}"),
                )?;
            }
        }
        Ok(format!("{SIZE} bytes of garbage at {at:#x}: zeros; found where nothing clears them"))
    })
}

/// Ends in Rust, and in C.
const RUST: &str = "talk";
const C: &str = "talk-c";

/// Before a test's name.
fn prefix(program: &str) -> &'static str {
    if program == C { "channel/c-" } else { "channel/" }
}

/// Messages of a run with restarts.
const COUNT: u32 = 2000;
/// Lives of the end that restarts.
const LIVES: u32 = 3;

/// The end that restarts is the program's, the other one in Rust.
fn restart((kind, more): (&'static str, &'static str), sends: bool, program: &'static str) -> Job {
    let what = if sends { "sender" } else { "receiver" };
    Job::one(format!("{}restart-{what}-{kind}", prefix(program)), 120, move |bench| {
        let lives = |restarts: bool| if restarts { LIVES } else { 1 };
        let end = |role: &str, restarts: bool| {
            format!("role={role} channel=news count={COUNT} lives={}", lives(restarts))
        };
        let [one, two] = if sends { [program, RUST] } else { [RUST, program] };
        let mut manifest = Manifest::new()
            .ends_with(&["one", "two"])
            .bare("one", one, &end("send", sends), &[0], "4 MiB", "")
            .bare("two", two, &end("receive", !sends), &[1], "4 MiB", "");
        channel(&mut manifest, ["one", "two"], kind, more);
        let seen = run(&manifest, &bench.dir, |_| {})?;
        for (name, restarts) in [("one", sends), ("two", !sends)] {
            seen.exited(name)?;
            let s = seen.sandbox(name)?;
            let right = s.restarts == u64::from(lives(restarts) - 1) && s.denials == 0;
            seen.ensure(right, format!("{name} restarted {} times", s.restarts))?;
        }
        let all = format!("received up to {COUNT}, 0 wrong");
        seen.ensure(seen.console.contains(&all), "it was not received as it was sent")?;
        // It depends on when it looks: between two lives, or in the second.
        let told = seen.console.matches(": Lost").count() + seen.console.matches(": Left").count();
        // A writer of a mailbox need not be told, and its reader may miss a life.
        let times = if kind == "mailbox" {
            0..=LIVES as usize - 1
        } else {
            LIVES as usize - 1..=LIVES as usize - 1
        };
        seen.ensure(times.contains(&told), format!("told {told} times, not {times:?}"))?;
        Ok(format!("told {told} times; {all}"))
    })
}

fn channel(manifest: &mut Manifest, [from, to]: [&str; 2], kind: &str, more: &str) {
    let _ = writeln!(
        manifest.0,
        "[[channel]]\nname = \"news\"\nfrom = \"{from}\"\nto = [\"{to}\"]\nsize = \"4 KiB\"\nkind = \"{kind}\"\n{more}"
    );
}

/// An end in C sends to one in Rust that sleeps, or receives from it, asleep; in a loop of its own, too.
fn doze((kind, more): (&'static str, &'static str), sends: bool) -> Job {
    const MESSAGES: u32 = 200;
    let what = if sends { "sends" } else { "receives" };
    Job::one(format!("channel/c-{what}-{kind}"), 120, move |bench| {
        let loops: &[&str] = if sends { &[""] } else { &["", " own=1"] };
        let mut woken = Vec::new();
        for own in loops {
            let end = |role: &str, own: &str| {
                format!("role={role} channel=news count={MESSAGES} gap=300{own}")
            };
            let [one, two] = if sends { [C, RUST] } else { [RUST, C] };
            let mut manifest = Manifest::new()
                .ends_with(&["one", "two"])
                .bare("one", one, &end("send", ""), &[0], "4 MiB", "")
                .bare("two", two, &end("receive", own), &[1], "4 MiB", "");
            channel(&mut manifest, ["one", "two"], kind, &format!("{more}\nnotify = \"doorbell\""));
            let seen = run(&manifest, &bench.dir, |_| {})?;
            for name in ["one", "two"] {
                seen.exited(name)?;
                seen.undisturbed(name, &["exited"])?;
            }
            let all = format!("received up to {MESSAGES}, 0 wrong");
            seen.ensure(seen.console.contains(&all), "it was not received as it was sent")?;
            if sends {
                let rings = seen.sandbox("one")?.exits.boot.get("ring").copied().unwrap_or(0);
                seen.ensure(rings >= u64::from(MESSAGES) / 2, format!("it rang {rings} times"))?;
                woken.push(rings);
                continue;
            }
            let count = seen.console.split_once("woken ").and_then(|(_, s)| s.split_once(" times"));
            let count = count.and_then(|(count, _)| count.parse().ok()).unwrap_or(0);
            // It asks once for each message, and may find one that came meanwhile.
            let right = (u64::from(MESSAGES) / 2..=u64::from(MESSAGES) + 8).contains(&count);
            seen.ensure(right, format!("it was woken {count} times"))?;
            woken.push(count);
        }
        Ok(format!("{MESSAGES} messages, woken {woken:?} times"))
    })
}

/// Tests the refusals of ends in C, and the limit of a wait: of one that looks, and of one that sleeps.
fn refuse(notify: &'static str) -> Job {
    Job::one(format!("channel/c-refuses-{notify}"), 60, move |bench| {
        let args = format!("role=refuse channel=news bell={}", u32::from(notify != "poll"));
        let mut manifest = Manifest::new()
            .ends_with(&["one", "two"])
            .bare("one", C, &args, &[0], "4 MiB", "")
            .bare("two", C, &args, &[1], "4 MiB", "");
        let more = format!("message = 64\nnotify = \"{notify}\"");
        channel(&mut manifest, ["one", "two"], "queue", &more);
        let seen = run(&manifest, &bench.dir, |_| {})?;
        seen.exited("one")?;
        seen.exited("two")?;
        Ok(String::new())
    })
}

/// Interrupts of a guest in C save no vector registers, so what it links of ours in Rust uses none.
fn vectors() -> Job {
    Job::one("channel/c-no-vectors", 60, |_| {
        let library = "x86_64-unknown-none/guest/libbulkhead_sdk_c.a";
        let text =
            Command::new("objdump").arg("-d").arg(build::target().join(library)).printed()?.stdout;
        let text = String::from_utf8_lossy(&text);
        // Beside it lies what the compiler brings for sums that nobody here does.
        let ours = text.split("\nbulkhead_sdk_c").skip(1);
        let ours: Vec<_> = ours.filter_map(|part| part.split("file format").nth(1)).collect();
        let parts = ["<bulkhead_send>:", "<bulkhead_receive>:"];
        let there = parts.iter().all(|part| ours.iter().any(|text| text.contains(part)));
        let lines = || ours.iter().flat_map(|text| text.lines());
        let vectors = lines().filter(|l| l.contains("%xmm") || l.contains("%mm")).count();
        match (there, vectors) {
            (true, 0) => Ok(format!("{} lines of instructions", lines().count())),
            _ => Err(format!("{library}: {vectors} of vectors, of {} lines", lines().count())),
        }
    })
}

fn job((kind, more): (&'static str, &'static str), sends: bool, program: &'static str) -> Job {
    let what = if sends { "sends" } else { "receives" };
    let patience = if soaks() { 3_600 } else { 240 };
    Job::one(format!("{}rogue-{what}-{kind}", prefix(program)), patience, move |bench| {
        hold_out(bench, kind, more, sends, program, "")
    })
}

/// A receiver in C that sleeps in each call until there is something, for 2 ms at most: whatever the rogue does, it
/// wakes up.
fn wait_out() -> Job {
    let patience = if soaks() { 3_600 } else { 240 };
    Job::one("channel/c-rogue-sends-waits", patience, move |bench| {
        let more = "message = 64\nnotify = \"doorbell\"";
        let found = hold_out(bench, "queue", more, true, C, " wait=2")?;
        if found.contains("some waits") { Ok(found) } else { Err("it never had to wait".into()) }
    })
}

/// Tests a receiver with garbage in its armed word, too: its sender rings for it, and keeps its deadlines.
fn doorbell() -> Job {
    let patience = if soaks() { 3_600 } else { 240 };
    Job::one("channel/rogue-receives-doorbell", patience, move |bench| {
        let more = "message = 64\nnotify = \"doorbell\"";
        let found = hold_out(bench, "queue", more, false, RUST, "")?;
        if found.contains("some rings") { Ok(found) } else { Err("nobody was rung for".into()) }
    })
}

fn hold_out(
    bench: &Bench,
    kind: &str,
    more: &str,
    sends: bool,
    program: &str,
    args: &str,
) -> Result<String, String> {
    let ends = if sends { ["rogue", "victim"] } else { ["victim", "rogue"] };
    let victim = format!("role=victim channel=news count={}{args}", periods());
    let rogue = format!("role=rogue channel=news ms={} poke=1", millis());
    let mut manifest = Manifest::new()
        .ends_with(&["victim", "rogue"])
        .bare("victim", program, &victim, &[0], "4 MiB", "")
        .bare("rogue", "talk", &rogue, &[1], "4 MiB", "");
    channel(&mut manifest, ends, kind, more);
    let seen = run(&manifest, &bench.dir, |o| {
        o.limit = Duration::from_secs(if soaks() { 3_000 } else { 200 })
    })?;
    seen.undisturbed("victim", &["exited"])?;
    seen.exited("victim")?;
    let kept = format!("victim missed 0 of {}; some messages", periods());
    seen.ensure(seen.console.contains(&kept), "the victim did not keep its deadlines")?;
    let spoilt = kind == "mailbox" || seen.console.contains("some corrupted");
    seen.ensure(spoilt, "nothing was spoilt: the rogue is too tame")?;
    // The sender's region comes first, one page of it; then the receiver's.
    let peers = CHANNELS_GPA + if sends { PAGE } else { 0 } + ARMED as u64;
    let denied: Vec<_> = seen.denials.iter().map(|d| (d.sandbox.as_str(), d.record)).collect();
    let right =
        matches!(denied[..], [("rogue", r)] if r.kind == Kind::Memory as u16 && r.address == peers);
    seen.ensure(right, format!("not one denial, of a write to {peers:#x}"))?;
    let text = seen.denials[0].to_string();
    let whose = if sends { "news rx" } else { "news tx" };
    seen.ensure(text.contains("written by"), format!("the denial does not say why: {whose}"))?;
    let also = ["some rings; ", "some waits; "];
    let also = also.map(|what| if seen.console.contains(&what[..10]) { what } else { "" }).concat();
    Ok(format!("{} periods kept; {also}then: {text}", periods()))
}
