//! Channels made at run time (`guests/meet`): made, used, closed and taken back by sandboxes that may. Others keep on
//! using a channel that they have no more.

use super::driver::{Bench, Job};
use super::system::{Manifest, Seen, run_audited};
use bulkhead_layout::PAGE;
use bulkhead_layout::map::LINKS_GPA;
use bulkhead_layout::report::Kind;

pub fn jobs() -> Vec<Job> {
    vec![
        job("channel/run-time", made),
        job("channel/run-time-refused", refused),
        job("channel/run-time-taken", taken),
        job("channel/run-time-closed", closed),
        job("channel/run-time-two", two),
        job("channel/run-time-stopped", stopped),
        job("channel/run-time-owner-closed", owner_closed),
        job("channel/run-time-audited-open", |bench| audited(bench, ["", ""])),
        job("channel/run-time-audited-taken", |bench| audited(bench, ["close", "gone"])),
        job("channel/run-time-owner-touches", |bench| touches(bench, 0)),
        job("channel/run-time-other-touches", |bench| touches(bench, 1)),
        job("channel/run-time-other-restarts", |bench| restarts(bench, 1)),
        job("channel/run-time-owner-restarts", |bench| restarts(bench, 0)),
    ]
}

fn job(name: &'static str, work: impl Fn(&Bench) -> Result<String, String> + 'static) -> Job {
    Job::one(name, 120, work)
}

const NAMES: [&str; 3] = ["one", "two", "three"];
const ALONE: [&[u32]; 3] = [&[0], &[1], &[2]];
/// The second has another core, which goes on reading and writing.
const WATCHED: [&[u32]; 3] = [&[0], &[1, 3], &[2]];
/// Bytes that the owner writes in a link.
const SENT: u64 = 2 * PAGE;

/// Three parties, each with what it does; the first may offer so many links to those in `to`, and control them.
fn meeting(
    bench: &Bench,
    steps: [&str; 3],
    cores: [&[u32]; 3],
    (to, links, ends): (&[&str], u32, &[&str]),
) -> Result<Seen, String> {
    let mut manifest = Manifest::new().ends_with(ends);
    for (n, name) in NAMES.into_iter().enumerate() {
        let may = format!(
            "stop = {to:?}\nstart = {to:?}\nrestart = {to:?}\nlinks = {{ to = {to:?}, count = {links}, size = \"{SENT}\" }}"
        );
        let steps = format!("do={}", steps[n]);
        let more = if n == 0 { &may } else { "" };
        manifest = manifest.bare(name, "meet", &steps, cores[n], "4 MiB", more);
    }
    run_audited(&manifest, &bench.dir, 100)
}

/// One link for both others, until all have ended.
const BOTH: (&[&str], u32, &[&str]) = (&["two", "three"], 1, &NAMES);

fn all_well(seen: &Seen) -> Result<(), String> {
    NAMES.into_iter().try_for_each(|name| {
        seen.exited(name)?;
        seen.ensure(seen.sandbox(name)?.denials == 0, format!("{name} was denied something"))
    })
}

/// One link, for one after the other, closed by each side in turn.
fn made(bench: &Bench) -> Result<String, String> {
    let one = "offer-1,send,told,left,close,offer-2,send,joined,told,close,offer-1,send,nap,close";
    let two = "accept,receive,close,accept,receive,told,gone,close";
    let seen = meeting(bench, [one, two, "accept,receive,close"], ALONE, BOTH)?;
    all_well(&seen)?;
    // Interrupted for what others do: at most once for each time that it consented.
    let mut doorbells = Vec::new();
    for (name, consents) in NAMES.into_iter().zip([3, 2, 1]) {
        let exits = seen.sandbox(name)?.exits.boot.get("doorbell").copied().unwrap_or(0);
        seen.ensure(exits <= consents, format!("{name} was interrupted {exits} times"))?;
        doorbells.push(exits);
    }
    Ok(format!("600 messages, {doorbells:?} interrupts"))
}

/// Whatever is not the sandbox's to offer, accept, close or know, with a record of each.
fn refused(bench: &Bench) -> Result<String, String> {
    let one = "offer-1,joined,left,refused,close,refused";
    let to = (&["two"][..], 1, &NAMES[..]);
    let seen = meeting(bench, [one, "accept,close,refused", "refused"], ALONE, to)?;
    NAMES.into_iter().try_for_each(|name| seen.exited(name))?;
    let calls = |name: &str| {
        let all = seen.denials.iter().filter(|d| d.sandbox == name);
        all.filter(|d| d.record.kind == Kind::Hypercall as u16).count()
    };
    // 4 offers to sandboxes without a right, and 3 calls for each of 4 links that are not there.
    let counts = NAMES.map(calls);
    seen.ensure(counts == [32, 16, 16], format!("records: {counts:?}"))?;
    let right = |text: &str| seen.denials.iter().any(|d| d.to_string().contains(text));
    let told = right("links = { to = [\"three\"], … }") && right("there is no such link");
    seen.ensure(told, "the records do not say what would allow it")?;
    Ok(format!("{counts:?} records"))
}

/// Tests an owner that takes back a link that both cores of another sandbox use, and gives it to a third. The second
/// one goes on unharmed, and nothing that it writes arrives.
fn taken(bench: &Bench) -> Result<String, String> {
    let one = "offer-1,joined,nap,close,offer-2,joined,keep,left,close";
    let two = "accept,watch,gone,nap,nap,nap,nap,nap";
    let seen = meeting(bench, [one, two, "accept,keep,close"], WATCHED, BOTH)?;
    all_well(&seen)?;
    Ok(seen.console.lines().find(|line| line.contains("[two] two: all")).unwrap_or("").into())
}

/// One core of a sandbox closes what another of its cores is at: that is denied it, and the next one has it alone.
fn closed(bench: &Bench) -> Result<String, String> {
    let one = "offer-1,joined,left,close,offer-2,joined,keep,left,close";
    let two = "accept,watch,nap,close,nap";
    let seen = meeting(bench, [one, two, "accept,keep,close"], WATCHED, BOTH)?;
    seen.exited("one")?;
    seen.exited("three")?;
    let within = LINKS_GPA + PAGE..LINKS_GPA + SENT + PAGE;
    let right = |d: &bulkhead_explain::Explained| {
        d.sandbox == "two" && d.core == 1 && within.contains(&d.record.address)
    };
    seen.ensure(
        matches!(&seen.denials[..], [d] if right(d)),
        "not one denial, of its second core",
    )?;
    Ok(seen.denials[0].to_string())
}

/// Two links at a time, of an owner with two cores that begins anew while both are in use: neither is left over.
fn two(bench: &Bench) -> Result<String, String> {
    let one = "offer-1,joined,offer-2,joined,nap,restart,offer-1,joined,offer-2,joined,left,close";
    let two = "accept,gone,close,accept,nap,nap,gone,close";
    let three = "accept,gone,close,accept,nap,close";
    let both = (&["two", "three"][..], 2, &NAMES[..]);
    let seen = meeting(bench, [one, two, three], [&[0, 3], &[1], &[2]], both)?;
    all_well(&seen)?;
    let lives = seen.sandbox("one")?.restarts;
    seen.ensure(lives == 1, format!("{lives} restarts"))?;
    Ok("four channels".into())
}

/// Stops the sandbox that has the link, which closes it. Started again, the sandbox takes part again.
fn stopped(bench: &Bench) -> Result<String, String> {
    let one = "offer-1,joined,nap,ask-1-1,left,close,offer-2,joined,keep,left,close,ask-1-2,offer-1,send,told,left,close";
    let two = "accept,stay,restart,accept,receive,close";
    let seen = meeting(bench, [one, two, "accept,keep,close"], [&[0], &[1, 3], &[2]], BOTH)?;
    all_well(&seen)?;
    Ok("stopped and started".into())
}

/// One core of the owner's closes what another of its cores is at.
fn owner_closed(bench: &Bench) -> Result<String, String> {
    let two = "accept,gone,close";
    let to = (&["two"][..], 1, &["two", "three"][..]);
    let cores: [&[u32]; 3] = [&[0, 3], &[1], &[2]];
    let seen = meeting(bench, ["offer-1,joined,watch,nap,close,nap", two, ""], cores, to)?;
    seen.exited("two")?;
    let within = LINKS_GPA..LINKS_GPA + SENT + PAGE;
    let right = |d: &bulkhead_explain::Explained| {
        d.sandbox == "one" && d.core == 1 && within.contains(&d.record.address)
    };
    seen.ensure(
        matches!(&seen.denials[..], [d] if right(d)),
        "not one denial, of its second core",
    )?;
    Ok(seen.denials[0].to_string())
}

/// The audit of a channel that is open, and of one that was taken back.
fn audited(bench: &Bench, then: [&str; 2]) -> Result<String, String> {
    let one = format!("offer-1,joined,{},stay", then[0]);
    let two = format!("accept,{},stay", then[1]);
    let seen = meeting(bench, [&one, &two, "nap,nap,nap,nap"], ALONE, (&["two"], 1, &["three"]))?;
    let frames = seen.audited()?.report.frames.iter().map(|f| f.owner.as_str());
    let taken = frames.filter(|owner| owner.starts_with("page in place of")).count();
    seen.ensure((taken > 0) == (then[1] == "gone"), format!("{taken} pages in place"))?;
    Ok(format!("{taken} pages in place of it"))
}

/// A party reads what it has closed.
fn touches(bench: &Bench, who: usize) -> Result<String, String> {
    let mut steps = ["offer-1,joined,left,close", "accept,close", ""];
    let touching = format!("{},touch", steps[who]);
    steps[who] = &touching;
    let seen = meeting(bench, steps, ALONE, BOTH)?;
    let name = NAMES[who];
    // The last word of what the other one writes.
    let at = LINKS_GPA + SENT + if who == 0 { PAGE } else { 0 } - 8;
    let right = matches!(&seen.denials[..], [d] if d.sandbox == name && d.record.address == at);
    seen.ensure(right, format!("not one denial, of {name} at {at:#x}"))?;
    let text = seen.denials[0].to_string();
    seen.ensure(text.contains("link 0 of one"), "the record does not say whose it is")?;
    Ok(text)
}

/// A party ends in the middle; the other is told, and they meet again.
fn restarts(bench: &Bench, who: usize) -> Result<String, String> {
    let steps = [
        [
            "offer-1,send,nap,restart,offer-1,send,told,left,close",
            "accept,receive,told,gone,close,accept,receive,close",
            "",
        ],
        [
            "offer-1,send,told,left,close,offer-1,send,told,left,close",
            "accept,receive,restart,accept,receive,close",
            "",
        ],
    ];
    let seen = meeting(bench, steps[who], ALONE, BOTH)?;
    all_well(&seen)?;
    let lives = seen.sandbox(NAMES[who])?.restarts;
    seen.ensure(lives == 1, format!("{lives} restarts"))?;
    Ok("400 messages".into())
}
