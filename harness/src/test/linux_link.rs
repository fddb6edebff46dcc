//! Channels made at run time with a Linux as an end, 6.1 and 6.12. A process of root's does the steps of bare parties
//! (`crates/testing/scenarios`), and uses lines on its command line. All of it is audited while it runs.

use super::driver::{Bench, Job};
use super::linux_channel::{NEWER, OLDER, linux};
use super::system::{Manifest, Seen, run_audited};
use bulkhead_layout::PAGE;
use bulkhead_layout::map::LINKS_GPA;
use bulkhead_layout::report::Kind;

pub fn jobs() -> Vec<Job> {
    vec![
        job("owns", owns),
        job("accepts", accepts),
        job("refused", refused),
        job("taken", |bench| taken(bench, NEWER)),
        job("taken-6.1", |bench| taken(bench, OLDER)),
        job("touches", touches),
        job("owner-restarts", |bench| restarts(bench, 0)),
        job("other-restarts", |bench| restarts(bench, 1)),
        job("lines", lines),
        job("left-open", |bench| left_open(bench, [NEWER, OLDER])),
        job("left-open-6.1", |bench| left_open(bench, [OLDER, NEWER])),
    ]
}

fn job(what: &str, work: impl Fn(&Bench) -> Result<String, String> + 'static) -> Job {
    Job::one(format!("channel/run-time-linux-{what}"), 240, work)
}

const NAMES: [&str; 3] = ["one", "two", "three"];
/// Bytes that the owner writes in a link.
const SENT: u64 = 2 * PAGE;
/// Milliseconds for each step: others may still boot.
const PATIENCE: u32 = 60_000;

/// A sandbox: its kernel, if it is a Linux, its job or steps, and the sandboxes that it may offer a link to.
struct Party {
    kernel: Option<&'static str>,
    job: String,
    to: &'static [&'static str],
}

fn bare(steps: &str) -> Party {
    Party { kernel: None, job: format!("do={steps} ms={PATIENCE}"), to: &[] }
}

fn does(kernel: &'static str, steps: &str) -> Party {
    runs(kernel, &format!("bhchannel:meet,ms={PATIENCE},{steps}"))
}

fn runs(kernel: &'static str, job: &str) -> Party {
    Party { kernel: Some(kernel), job: job.replace(' ', "${IFS}"), to: &[] }
}

impl Party {
    fn offers(self, to: &'static [&'static str]) -> Self {
        Self { to, ..self }
    }
}

/// Parties on cores of their own, of which the second has two, until those with these names have ended.
fn meeting(bench: &Bench, parties: &[Party], ends: &[&str]) -> Result<Seen, String> {
    meeting_with(bench, parties, ends, "")
}

/// Runs a meeting with more in the manifest.
fn meeting_with(
    bench: &Bench,
    parties: &[Party],
    ends: &[&str],
    more: &str,
) -> Result<Seen, String> {
    let cores: [&[u32]; 3] = [&[0], &[1, 3], &[2]];
    let mut manifest = Manifest::new().ends_with(ends);
    for (n, party) in parties.iter().enumerate() {
        let (name, job) = (NAMES[n], &party.job);
        manifest = match party.kernel {
            None => manifest.bare(name, "meet", job, cores[n], "4 MiB", ""),
            Some(kernel) => manifest.linux(name, kernel, job, cores[n], "256 MiB", n as u32 + 1),
        };
        if !party.to.is_empty() {
            let to = party.to;
            let may = format!("links = {{ to = {to:?}, count = 1, size = \"{SENT}\" }}\n");
            manifest.0 += &may;
        }
    }
    manifest.0 += more;
    run_audited(&manifest, &bench.dir, 220)
}

/// Checks that each party did its part, and was denied nothing. Returns each Linux' lines, by its number.
fn all_well<'a>(seen: &'a Seen, parties: &[Party]) -> Result<[&'a str; 3], String> {
    let mut said = [""; 3];
    for (n, party) in parties.iter().enumerate() {
        let name = NAMES[n];
        if party.kernel.is_some() {
            said[n] = linux(seen, name, n + 1)?;
        } else {
            seen.exited(name)?;
            let denials = seen.sandbox(name)?.denials;
            seen.ensure(denials == 0, format!("{name} was denied something"))?;
        }
    }
    Ok(said)
}

pub const BOTH: &[&str] = &["two", "three"];

/// An owner's steps with one party after the other; each side closes first in turn.
pub const OWNER: &str =
    "offer-1,send,told,left,close,offer-2,send,joined,told,close,offer-1,send,nap,nap,close";
pub const SECOND: &str = "accept,receive,close,accept,receive,told,gone,zeros,close";
pub const THIRD: &str = "accept,receive,close";

/// A Linux offers its link to another one and to a bare guest.
fn owns(bench: &Bench) -> Result<String, String> {
    let parties = [does(NEWER, OWNER).offers(BOTH), does(OLDER, SECOND), bare(THIRD)];
    let seen = meeting(bench, &parties, &NAMES)?;
    all_well(&seen, &parties)?;
    Ok("600 messages".into())
}

/// A bare guest offers its link to a Linux of each kind.
fn accepts(bench: &Bench) -> Result<String, String> {
    let parties = [bare(OWNER).offers(BOTH), does(OLDER, SECOND), does(NEWER, THIRD)];
    let seen = meeting(bench, &parties, &NAMES)?;
    all_well(&seen, &parties)?;
    Ok("600 messages".into())
}

/// Whatever is not the sandbox's to offer, accept, close or know: a record of each, which names the line that would
/// allow it.
fn refused(bench: &Bench) -> Result<String, String> {
    let one = does(NEWER, "offer-1,joined,left,refused,close,refused").offers(&["two"]);
    let parties = [one, does(OLDER, "accept,close,refused"), bare("refused")];
    let seen = meeting(bench, &parties, &NAMES)?;
    let ended =
        |n: usize| seen.outcome().map(|o| o.serials[n].contains("bulkhead-init: exit code 0"));
    seen.ensure(ended(1)? && ended(2)?, "a Linux got what it may not have")?;
    let calls = |name: &str| {
        let all = seen.denials.iter().filter(|d| d.sandbox == name);
        all.filter(|d| d.record.kind == Kind::Hypercall as u16).count()
    };
    // 4 offers to sandboxes without a right, and 3 calls for each of 4 links that are not there.
    let counts = NAMES.map(calls);
    seen.ensure(counts == [32, 16, 16], format!("records: {counts:?}"))?;
    let told = |name: &str, text: &str| {
        seen.denials.iter().any(|d| d.sandbox == name && d.to_string().contains(text))
    };
    let right = told("one", "links = { to = [\"three\"], … }")
        && told("two", "links = { to = [\"three\"], … }")
        && told("one", "there is no such link");
    seen.ensure(right, "the records do not say what would allow it")?;
    Ok(format!("{counts:?} records"))
}

/// Tests a process that goes on using a link that its owner takes back and gives to a third. It reads zeros, and
/// nothing that it writes arrives.
fn taken(bench: &Bench, kernel: &'static str) -> Result<String, String> {
    let one = "offer-1,joined,nap,close,offer-2,joined,keep,left,close";
    let two = "accept,watch,gone,zeros,nap,nap,nap,nap,nap,zeros";
    let parties = [bare(one).offers(BOTH), does(kernel, two), bare("accept,keep,close")];
    let seen = meeting(bench, &parties, &NAMES)?;
    let said = all_well(&seen, &parties)?[1];
    let looks = said.lines().find_map(|line| line.split_once("all came to pass, "));
    Ok(looks.map_or("", |(_, looks)| looks.trim_end()).into())
}

/// A process reads what its sandbox has closed.
fn touches(bench: &Bench) -> Result<String, String> {
    let parties = [
        does(NEWER, "offer-1,joined,left,close,nap,nap").offers(&["two"]),
        does(OLDER, "accept,close,touch"),
    ];
    let seen = meeting(bench, &parties, &NAMES[..2])?;
    linux(&seen, "one", 1)?;
    let memory = seen.denials.iter().filter(|d| d.record.kind == Kind::Memory as u16);
    let memory: Vec<_> = memory.collect();
    // The last word of what the other one writes.
    let at = LINKS_GPA + SENT - 8;
    let right = matches!(memory[..], [d] if d.sandbox == "two" && d.record.address == at);
    seen.ensure(right, format!("not one denial, of two at {at:#x}"))?;
    let text = memory[0].to_string();
    seen.ensure(text.contains("link 0 of one"), "the record does not say whose it is")?;
    Ok(text)
}

/// A Linux ends in the middle; the other is told, and they meet again.
fn restarts(bench: &Bench, who: usize) -> Result<String, String> {
    let parties = match who {
        0 => [
            does(NEWER, "offer-1,send,nap,restart,offer-1,send,told,left,close"),
            bare("accept,receive,told,gone,zeros,close,accept,receive,close"),
        ],
        _ => [
            bare("offer-1,send,told,left,close,offer-1,send,told,left,close"),
            does(OLDER, "accept,receive,restart,accept,receive,close"),
        ],
    };
    let [one, two] = parties;
    let parties = [one.offers(&["two"]), two];
    let seen = meeting(bench, &parties, &NAMES[..2])?;
    all_well(&seen, &parties)?;
    let lives = seen.sandbox(NAMES[who])?.restarts;
    seen.ensure(lives == 1, format!("{lives} restarts"))?;
    Ok("400 messages".into())
}

/// Sends lines between two, both ways at once, on the command line.
fn lines(bench: &Bench) -> Result<String, String> {
    let both = |other: &str, line: &str, [there, back]: [u32; 2]| {
        format!(
            "sh:-c,echo {line}|bhchannel offer {other} {there}&bhchannel accept {other} {back};wait;bhchannel list"
        )
    };
    let parties = [
        runs(NEWER, &both("two", "good", [7, 8])).offers(&["two"]),
        runs(OLDER, &both("one", "news", [8, 7])).offers(&["one"]),
    ];
    let seen = meeting(bench, &parties, &NAMES[..2])?;
    let said = all_well(&seen, &parties)?;
    for (n, line) in ["news", "good"].into_iter().enumerate() {
        let came = said[n].lines().any(|said| said.trim_end() == line);
        seen.ensure(came, format!("{} was not told: {line}", NAMES[n]))?;
    }
    let own = "link 0 of one sends 8192 bytes, idle here, gone there: offer 1, to two, tag 7";
    seen.ensure(said[0].contains(own), "its link is not listed")?;
    Ok("good news".into())
}

/// Tests a link that a killed process leaves open. It stays the sandbox's, and another process closes it, but not under
/// one that uses it. Its memory is cached and reserved; the windows of a channel of the manifest beside it are not.
fn left_open(bench: &Bench, kernels: [&'static str; 2]) -> Result<String, String> {
    let script = "sh:-c,mount -t debugfs debugfs /sys/kernel/debug;\
        (sleep 1000|bhchannel offer two 7)&sleep 3;bhchannel close 0;\
        grep dc000000 /sys/kernel/debug/x86/pat_memtype_list;grep dc000000 /proc/iomem;bhchannel list;\
        killall -9 bhchannel;sleep 1;bhchannel close 0;bhchannel close 0;bhchannel list;echo line|bhchannel offer two 8";
    let parties =
        [runs(kernels[0], script).offers(&["two"]), runs(kernels[1], "bhchannel:accept,one,8")];
    let news = "[[channel]]\nname = \"news\"\nfrom = \"one\"\nto = [\"two\"]\nsize = \"4 KiB\"\n";
    let seen = meeting_with(bench, &parties, &NAMES[..2], news)?;
    let said = all_well(&seen, &parties)?;
    for text in [
        " uses link 0; end it first",
        "write-back",
        "dc000000-dfffffff : Reserved",
        "news 0000:00:10.0 pages sends 4096 bytes",
        "link 0 of one sends 8192 bytes, open here, idle there: offer 1, to two, tag 7",
        "there is no such offer, or nothing to close",
        "link 0 of one sends 8192 bytes, idle here, idle there: offer 1, to two, tag 7",
    ] {
        seen.ensure(said[0].contains(text), format!("not said: {text}"))?;
    }
    let came = said[1].lines().any(|line| line.trim_end() == "line");
    seen.ensure(came, "no line by the next offer")?;
    Ok("closed after it".into())
}
