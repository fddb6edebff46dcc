//! A hostile peer at each end of each kind of channel (`crates/talk`): it writes garbage into everything that it
//! can write, for two seconds of virtual time, and at last to what it may only read. The victim keeps its deadlines.
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

/// Milliseconds that the rogue has.
const MILLIS: u32 = 2000;
/// Periods of 10 ms that the victim has: all of that time.
const PERIODS: u32 = MILLIS / 10;

pub fn jobs() -> Vec<Job> {
    let kinds = KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]);
    kinds.map(|((kind, more), sends)| job(kind, more, sends)).collect()
}

fn job(kind: &'static str, more: &'static str, sends: bool) -> Job {
    let what = if sends { "sends" } else { "receives" };
    Job::one(format!("channel/rogue-{what}-{kind}"), 240, move |bench| {
        hold_out(bench, kind, more, sends)
    })
}

fn hold_out(bench: &Bench, kind: &str, more: &str, sends: bool) -> Result<String, String> {
    let ends = if sends { ["rogue", "victim"] } else { ["victim", "rogue"] };
    let victim = format!("role=victim channel=news count={PERIODS}");
    let rogue = format!("role=rogue channel=news ms={MILLIS} poke=1");
    let mut manifest = Manifest::new()
        .ends_with(&["victim", "rogue"])
        .bare("victim", "talk", &victim, &[0], "4 MiB", "")
        .bare("rogue", "talk", &rogue, &[1], "4 MiB", "");
    let [from, to] = ends;
    let _ = writeln!(
        manifest.0,
        "[[channel]]\nname = \"news\"\nfrom = \"{from}\"\nto = [\"{to}\"]\nsize = \"4 KiB\"\nkind = \"{kind}\"\n{more}"
    );
    let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(200))?;
    seen.undisturbed("victim", &["exited"])?;
    seen.exited("victim")?;
    let kept = format!("victim missed 0 of {PERIODS}; some messages");
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
    Ok(format!("{PERIODS} periods kept; then: {text}"))
}
