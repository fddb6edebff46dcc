//! Channels made at run time with a program of the kernel as an end (`programs/meet`): the steps of bare parties
//! (`crates/testing/scenarios`). All of it audited while it runs.

use super::driver::{Bench, Job};
use super::linux_channel::{NEWER, linux};
use super::linux_link::{BOTH, OWNER, SECOND, THIRD};
use super::system::{Manifest, Seen, run};
use bulkhead_layout::PAGE;
use std::fmt::Write;
use std::time::Duration;

pub fn jobs() -> Vec<Job> {
    vec![
        job("owns", owns),
        job("accepts", accepts),
        job("linux", with_linux),
        job("refused", refused),
        job("taken", taken),
        job("touches", touches),
        job("owner-dies", |bench| dies(bench, 0)),
        job("other-dies", |bench| dies(bench, 1)),
        job("begins-anew", begins_anew),
        job("owner-restarts", |bench| restarts(bench, 0)),
        job("other-restarts", |bench| restarts(bench, 1)),
    ]
}

fn job(what: &str, work: impl Fn(&Bench) -> Result<String, String> + 'static) -> Job {
    Job::one(format!("channel/run-time-program-{what}"), 240, work)
}

const NAMES: [&str; 3] = ["one", "two", "three"];
/// Bytes that the owner writes in a link.
const SENT: u64 = 2 * PAGE;
/// Milliseconds for each step: others may still boot.
const PATIENCE: u32 = 20_000;

/// The kind of a sandbox's guest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guest {
    Bare,
    Linux,
    /// A kernel with the party as one program, and one more that has deadlines.
    Kernel,
    /// A kernel with another program, which lets the party begin anew when it crashes.
    Guarded,
}

/// A sandbox: its guest, its steps, and the sandboxes that it may offer a link to.
struct Party(Guest, &'static str, &'static [&'static str]);

use Guest::{Bare, Guarded, Kernel, Linux};

/// The sandbox of a kernel, the `n`th, in which the party has all links of these owners.
fn kernel(n: usize, Party(guest, steps, to): &Party, owners: &[&str]) -> String {
    let name = NAMES[n];
    let mut text = format!(
        "[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"kernel\" }}\ncores = [{n}]\nmemory = \"16 MiB\"\n{}",
        may(to)
    );
    let mut program = |part: &str, file: &str, args: &str, more: &str| {
        let _ = writeln!(
            text,
            "[[program]]\nname = \"{name}-{part}\"\nsandbox = \"{name}\"\nfile = \"artifact:{file}\"\nargs = \"{args}\"\nsignals = [\"pause\"]\nwaits = [\"pause\"]\n{more}"
        );
    };
    let steps = format!("do={steps} ms={PATIENCE}");
    program("party", "program-meet", &steps, &format!("ends_sandbox = true\nlinks = {owners:?}"));
    program("keeper", "program-talk", "role=keep count=40", "");
    if *guest == Guarded {
        let more = "serves = [\"trouble\"]\nmanages = [\"thread:party\"]";
        program("guard", "flight-guard", "", more);
        let _ = writeln!(text, "[[endpoint]]\nname = \"trouble\"\nsandbox = \"{name}\"");
    }
    let _ = writeln!(text, "[[notification]]\nname = \"pause\"\nsandbox = \"{name}\"");
    let trouble = "fault = { endpoint = \"trouble\", badge = 1 }";
    let handled = if *guest == Guarded { trouble } else { "" };
    let mut thread = |part: &str, of: &str, (priority, budget): (u8, u32), more: &str| {
        let _ = writeln!(
            text,
            "[[context]]\nname = \"{part}\"\nsandbox = \"{name}\"\nbudget = \"{budget} us\"\nperiod = \"1 ms\"\n[[thread]]\nname = \"{part}\"\nprogram = \"{name}-{of}\"\npriority = {priority}\ncontext = \"{part}\"\n{more}"
        );
    };
    thread("party", "party", (100, 200), handled);
    thread("looks", "party", (90, 50), "entry = \"other\"");
    // Below the party: what that does must not take more than its budget.
    thread("keeper", "keeper", (50, 500), "");
    if *guest == Guarded {
        thread("guard", "guard", (200, 50), "");
    }
    text
}

fn may(to: &[&str]) -> String {
    if to.is_empty() {
        return String::new();
    }
    format!("links = {{ to = {to:?}, count = 1, size = \"{SENT}\" }}\n")
}

/// Parties on cores of their own, until those with these names have ended; the last of them may stop and start all
/// others.
fn meeting(bench: &Bench, parties: &[Party], ends: &[&str]) -> Result<Seen, String> {
    let mut manifest = Manifest::new().ends_with(ends);
    for (n, party) in parties.iter().enumerate() {
        let Party(guest, steps, to) = party;
        let (name, own) = (NAMES[n], may(to));
        let asks = if steps.contains("ask-") {
            let to = [NAMES[1 - n]];
            format!("stop = {to:?}\nstart = {to:?}\nrestart = {to:?}\n")
        } else {
            String::new()
        };
        let owners: Vec<&str> = { parties.iter().zip(NAMES) }
            .filter(|(other, owner)| *owner == name && !to.is_empty() || other.2.contains(&name))
            .map(|(_, owner)| owner)
            .collect();
        manifest = match guest {
            Bare => {
                let job = format!("do={steps} ms={PATIENCE}");
                manifest.bare(name, "meet", &job, &[n as u32], "4 MiB", &(own + &asks))
            }
            Linux => {
                let job = format!("bhchannel:meet,ms={PATIENCE},{steps}");
                let mut all =
                    manifest.linux(name, NEWER, &job, &[n as u32], "256 MiB", n as u32 + 1);
                all.0 += &own;
                all
            }
            Kernel | Guarded => Manifest(manifest.0 + &kernel(n, party, &owners)),
        };
    }
    let seen = run(&manifest, &bench.dir, |o| {
        o.limit = Duration::from_secs(220);
        o.audit = true;
    })?;
    let audited = seen.outcome()?.audited.as_ref().ok_or("the run was not audited")?;
    let found = &audited.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    Ok(seen)
}

/// Each party did what it was to, and was denied nothing.
fn all_well(seen: &Seen, parties: &[Party]) -> Result<(), String> {
    for (n, Party(guest, ..)) in parties.iter().enumerate() {
        match guest {
            Linux => drop(linux(seen, NAMES[n], n + 1)?),
            _ => well(seen, NAMES[n])?,
        }
    }
    Ok(())
}

fn well(seen: &Seen, name: &str) -> Result<(), String> {
    seen.exited(name)?;
    seen.ensure(seen.sandbox(name)?.denials == 0, format!("{name} was denied something"))
}

fn says(seen: &Seen, what: &str) -> Result<(), String> {
    seen.ensure(seen.console.contains(what), format!("not said: {what}"))
}

/// A program offers its link to one of another kernel, and to a bare guest.
fn owns(bench: &Bench) -> Result<String, String> {
    let parties = [Party(Kernel, OWNER, BOTH), Party(Kernel, SECOND, &[]), Party(Bare, THIRD, &[])];
    let seen = meeting(bench, &parties, &NAMES)?;
    all_well(&seen, &parties)?;
    // Interrupted for what others do: at most once for each time that it consented.
    let exits = &seen.sandbox("one")?.exits;
    let all = [&exits.boot, &exits.steady].map(|e| e.get("doorbell").copied().unwrap_or(0));
    seen.ensure(all.iter().sum::<u64>() <= 3, format!("one was interrupted {all:?} times"))?;
    Ok("600 messages".into())
}

/// A bare guest offers its link to programs of two kernels.
fn accepts(bench: &Bench) -> Result<String, String> {
    let parties = [Party(Bare, OWNER, BOTH), Party(Kernel, SECOND, &[]), Party(Kernel, THIRD, &[])];
    let seen = meeting(bench, &parties, &NAMES)?;
    all_well(&seen, &parties)?;
    Ok("600 messages".into())
}

/// A program and a Linux, each of them once as the owner.
fn with_linux(bench: &Bench) -> Result<String, String> {
    let one = "offer-1,send,told,left,close,accept,receive,told,gone,zeros,close";
    let two = "accept,receive,close,offer-0,send,joined,nap,nap,close";
    let parties = [Party(Kernel, one, &["two"]), Party(Linux, two, &["one"])];
    let seen = meeting(bench, &parties, &NAMES[..2])?;
    all_well(&seen, &parties)?;
    Ok("400 messages".into())
}

/// Whatever is not the program's: its kernel refuses it, so that its monitor has nothing to deny.
fn refused(bench: &Bench) -> Result<String, String> {
    let one = "offer-1,joined,left,refused,close,refused";
    let parties = [
        Party(Kernel, one, &["two"]),
        Party(Kernel, "accept,close,refused", &[]),
        Party(Bare, "", &[]),
    ];
    let seen = meeting(bench, &parties, &NAMES)?;
    all_well(&seen, &parties)?;
    Ok("no record".into())
}

/// A thread goes on with what its owner takes back and gives to a third: it reads zeros, and nothing that it writes
/// arrives.
fn taken(bench: &Bench) -> Result<String, String> {
    let one = "offer-1,joined,nap,close,offer-2,joined,keep,left,close";
    let two = "accept,watch,gone,zeros,nap,nap,nap,nap,nap,zeros";
    let parties =
        [Party(Bare, one, BOTH), Party(Kernel, two, &[]), Party(Kernel, "accept,keep,close", &[])];
    let seen = meeting(bench, &parties, &NAMES)?;
    all_well(&seen, &parties)?;
    Ok(seen.console.lines().find(|line| line.contains("[two] two-party: all")).unwrap_or("").into())
}

/// A program touches what it has closed: an exception of its own. Its sandbox goes on, and another program of it keeps
/// its deadlines.
fn touches(bench: &Bench) -> Result<String, String> {
    let parties = [
        Party(Bare, "offer-1,send,told,left,close,nap,nap,nap", &["two"]),
        Party(Kernel, "accept,receive,close,touch", &[]),
    ];
    let seen = meeting(bench, &parties, &["one"])?;
    well(&seen, "one")?;
    seen.undisturbed("two", &["running"])?;
    says(&seen, "[two] two-keeper: missed 0 of 40")?;
    let crashed = seen.console.lines().find(|line| line.contains("thread 1: exception 14 (0x4)"));
    // The last word of what the other one writes.
    let at = format!("address {:#x};", bulkhead_kernel_abi::at::LINKS + SENT - 8);
    let right = crashed.is_some_and(|line| line.contains(&at));
    seen.ensure(right, format!("not the exception that is to be, {at}: {crashed:?}"))?;
    Ok(crashed.unwrap_or("").into())
}

/// A program crashes with a link in its hands, and nobody lets it begin anew: the link is closed.
fn dies(bench: &Bench, who: usize) -> Result<String, String> {
    let (one, two) = match who {
        0 => ("accept,receive,told,gone,zeros,close", "offer-0,send,joined,nap,restart,nap"),
        _ => ("offer-1,send,told,left,close", "accept,receive,restart,nap"),
    };
    let to: [&[&str]; 2] = if who == 0 { [&[], &["one"]] } else { [&["two"], &[]] };
    let parties = [Party(Bare, one, to[0]), Party(Kernel, two, to[1])];
    let seen = meeting(bench, &parties, &["one"])?;
    well(&seen, "one")?;
    seen.undisturbed("two", &["running"])?;
    says(&seen, "thread 1: exception 6")?;
    Ok("closed".into())
}

/// Another program lets it begin anew: it meets the other again.
fn begins_anew(bench: &Bench) -> Result<String, String> {
    let parties = [
        Party(Bare, "offer-1,send,told,left,close,offer-1,send,told,left,close", &["two"]),
        Party(Guarded, "accept,receive,restart,accept,receive,close", &[]),
    ];
    let seen = meeting(bench, &parties, &NAMES[..2])?;
    all_well(&seen, &parties)?;
    says(&seen, "exception 6; it begins anew")?;
    Ok("400 messages".into())
}

/// The sandbox of a program is restarted in the middle; the other is told, and they meet again.
fn restarts(bench: &Bench, who: usize) -> Result<String, String> {
    let parties = match who {
        0 => [
            Party(Kernel, "offer-1,send,stay,restart,offer-1,send,told,left,close", &["two"]),
            Party(Bare, "accept,receive,ask-0-3,told,gone,zeros,close,accept,receive,close", &[]),
        ],
        _ => [
            Party(
                Bare,
                "offer-1,send,joined,ask-1-3,told,left,close,offer-1,send,told,left,close",
                &["two"],
            ),
            Party(Kernel, "accept,receive,stay,restart,accept,receive,close", &[]),
        ],
    };
    let seen = meeting(bench, &parties, &NAMES[..2])?;
    all_well(&seen, &parties)?;
    let lives = seen.sandbox(NAMES[who])?.restarts;
    seen.ensure(lives == 1, format!("{lives} restarts"))?;
    Ok("400 messages".into())
}
