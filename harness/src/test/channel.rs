//! A hostile peer at each end of each kind of channel (`crates/talk`): it writes garbage into everything that it
//! can write, for two seconds of virtual time, and at last to what it may only read. The victim keeps its deadlines.
//! And each end of each kind restarts twice, in the middle of what it does: the other is told each time, no message
//! is lost that was not announced as lost, and none is taken for one of another life.
//! Channels between ends that mean well are `tests/channel`'s ([`super::kernel`]).

use super::driver::{Bench, Job};
use super::system::{Manifest, run};
use bulkhead_channel::layout::ARMED;
use bulkhead_layout::PAGE;
use bulkhead_layout::map::CHANNELS_GPA;
use bulkhead_layout::report::Kind;
use std::fmt::Write as _;
use std::time::Duration;

/// Kinds, with what else the manifest says of them.
const KINDS: [(&str, &str); 3] =
    [("queue", "message = 64"), ("records", ""), ("mailbox", "message = 64")];

/// Whether it is to last long: `make soak`.
pub fn soaks() -> bool {
    std::env::var_os("SOAK").is_some()
}

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
    let kinds = kinds.flat_map(|(kind, sends)| [job(kind.0, kind.1, sends), restart(kind, sends)]);
    kinds.chain([doorbell()]).chain(super::bell::jobs()).collect()
}

/// Messages of a run with restarts.
const COUNT: u32 = 2000;
/// Lives of the end that restarts.
const LIVES: u32 = 3;

fn restart((kind, more): (&'static str, &'static str), sends: bool) -> Job {
    let what = if sends { "sender" } else { "receiver" };
    Job::one(format!("channel/restart-{what}-{kind}"), 120, move |bench| {
        let lives = |restarts: bool| if restarts { LIVES } else { 1 };
        let end = |role: &str, restarts: bool| {
            format!("role={role} channel=news count={COUNT} lives={}", lives(restarts))
        };
        let mut manifest = Manifest::new()
            .ends_with(&["one", "two"])
            .bare("one", "talk", &end("send", sends), &[0], "4 MiB", "")
            .bare("two", "talk", &end("receive", !sends), &[1], "4 MiB", "");
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

fn job(kind: &'static str, more: &'static str, sends: bool) -> Job {
    let what = if sends { "sends" } else { "receives" };
    let patience = if soaks() { 3_600 } else { 240 };
    Job::one(format!("channel/rogue-{what}-{kind}"), patience, move |bench| {
        hold_out(bench, kind, more, sends)
    })
}

/// A receiver whose armed word is garbage, too: its sender rings for it, and keeps its deadlines.
fn doorbell() -> Job {
    let patience = if soaks() { 3_600 } else { 240 };
    Job::one("channel/rogue-receives-doorbell", patience, move |bench| {
        let found = hold_out(bench, "queue", "message = 64\nnotify = \"doorbell\"", false)?;
        if found.contains("some rings") { Ok(found) } else { Err("nobody was rung for".into()) }
    })
}

fn hold_out(bench: &Bench, kind: &str, more: &str, sends: bool) -> Result<String, String> {
    let ends = if sends { ["rogue", "victim"] } else { ["victim", "rogue"] };
    let victim = format!("role=victim channel=news count={}", periods());
    let rogue = format!("role=rogue channel=news ms={} poke=1", millis());
    let mut manifest = Manifest::new()
        .ends_with(&["victim", "rogue"])
        .bare("victim", "talk", &victim, &[0], "4 MiB", "")
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
        matches!(denied[..], [("rogue", r)] if r.kind == Kind::Memory as u32 && r.address == peers);
    seen.ensure(right, format!("not one denial, of a write to {peers:#x}"))?;
    let text = seen.denials[0].to_string();
    let whose = if sends { "news rx" } else { "news tx" };
    seen.ensure(text.contains("written by"), format!("the denial does not say why: {whose}"))?;
    let rings = if seen.console.contains("some rings") { "some rings; " } else { "" };
    Ok(format!("{} periods kept; {rings}then: {text}", periods()))
}
