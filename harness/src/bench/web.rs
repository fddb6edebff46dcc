//! Figure 30 of the Quest-V article: the network driver of a web server fails while 120 requests a second come. It
//! begins anew, and in the end another one has its place.

use super::Found;
use super::figure::{Figure, Must};
use super::system::System;
use crate::Failure;
use crate::rows::Row;
use crate::web::{CLIENT, Web, dooms};

/// Requests a second, and seconds of them.
const RATE: u64 = 120;
const SECONDS: u64 = 23;
/// Failures without which the figure is none.
const FAILURES: usize = 50;
/// When the driver fails, in milliseconds since the processors' start: the client asks before.
const TIMES: &str = "first=2800 every=400 count=47 then=220";
/// The guard's limit: it is reached when failures come more often.
const LIMIT: &str = "restarts=8 within=3200";

/// When the driver fails, and when all of its sandbox does.
const DRIVER: &str = "first=2800 every=400";
const WHOLE: &str = "first=3000 every=1200";

/// For the plots: the driver fails once, in the worst way, or the whole sandbox hangs.
const ONCE: &str = "first=4500 every=1000000 kind=4";
const WHOLE_ONCE: &str = "first=4500 every=1000000 kind=1";
const PLOTTED: u64 = 6;
/// Milliseconds of an interval, as in the article.
const INTERVAL: u64 = 500;

/// The worst of many failures, and the course of one.
pub fn local() -> Found {
    let web = run("web", TIMES, LIMIT, SECONDS)?;
    let healed = web.healed();
    if healed < FAILURES || !web.replaced {
        let what = if web.replaced { "" } else { ", and no other driver took the place" };
        return Err(format!("{healed} failures{what}").into());
    }
    let slowest = web.slowest().ok_or("a request has no answer")?;
    let (gap, at) = web.gap();
    let kind = web.before(at + gap).map_or("none", |fault| &fault.kind);
    let millis = |micros: u64| micros as f64 / 1_000.0;
    let mut figures = vec![
        Figure::new(Row::new("recover.web_gap_local", "ms", millis(gap)))
            .must(Must::AtMost(30.0))
            .note(format!(
                "the worst of {healed} failures, by {kind}; {} requests, one each {:.1} ms",
                web.requests.len(),
                1_000.0 / RATE as f64
            )),
        Figure::new(Row::new("recover.web_slowest", "ms", millis(slowest)))
            .must(Must::AtMost(250.0))
            .note("a request that is lost goes again after 200 ms, Linux' least"),
        Figure::new(Row::new("recover.web_wrong", "answers", web.wrong as f64))
            .must(Must::AtMost(0.0))
            .note(format!("wrong, torn or doubled; {} connections broke", web.lost)),
    ];
    let once = run("web-once", ONCE, LIMIT, PLOTTED)?;
    figures.extend(course("local", &once, once.healed())?);
    Ok(figures)
}

/// The worst of many failures of the driver and of the whole sandbox, behind which another sandbox goes on. Then the
/// course of one.
pub fn remote() -> Found {
    let web = run_remote("web-remote", Some(DRIVER), WHOLE, SECONDS)?;
    let outlived = web.outlived();
    if outlived < FAILURES || web.broken > 0 {
        return Err(format!("{outlived} failures outlived, {} broken records", web.broken).into());
    }
    let (gap, at) = web.gap();
    let kind = web.before(at + gap).map_or("none", |fault| &fault.kind);
    let mut figures = vec![
        Figure::new(Row::new("recover.web_gap_remote", "ms", gap as f64 / 1_000.0))
            .must(Must::AtMost(30.0))
            .note(format!(
                "the worst of {outlived} failures, by {kind}; the watchdog's period is 1 ms"
            )),
        Figure::new(Row::new("recover.web_lost", "connections", web.lost as f64))
            .must(Must::AtMost(0.0))
            .note(format!("{} wrong answers of {}", web.wrong, web.requests.len())),
    ];
    let once = run_remote("web-remote-once", None, WHOLE_ONCE, PLOTTED)?;
    figures.extend(course("remote", &once, once.outlived())?);
    Ok(figures)
}

/// A run with two holders, with a driver that fails at such times, and a sandbox that does at others.
fn run_remote(dir: &str, driver: Option<&str>, whole: &str, seconds: u64) -> Result<Web, Failure> {
    const NIC: &str = "file = \"artifact:web-nic\"\nargs = \"role=website\"\n";
    let job = format!("bulkhead.run=bhweb:10.0.2.16,rate={RATE},seconds={seconds}");
    let mut system = System::new("web-remote", dir);
    if let Some(times) = driver {
        let rogue = format!("file = \"artifact:web-rogue\"\nargs = \"role=website {times}\"\n");
        system = system.changed_all(NIC, rogue);
    }
    let ran = system.changed(CLIENT, dooms(whole)).with("client", job).coarse().run()?;
    let consoles: String = ran.outcome.consoles.iter().map(|console| console.text()).collect();
    Ok(Web::read(&ran.outcome, &consoles)?)
}

/// A run with a driver that fails at such times.
fn run(dir: &str, times: &str, limit: &str, seconds: u64) -> Result<Web, Failure> {
    const NIC: &str = "file = \"artifact:web-nic\"\n";
    let rogue = format!("file = \"artifact:web-rogue\"\nargs = \"{times}\"\n");
    let job = format!("bulkhead.run=bhweb:10.0.2.16,rate={RATE},seconds={seconds}");
    let ran = System::new("web", dir)
        .changed(NIC, rogue)
        .changed("restarts=3 within=10000", limit)
        .with("client", job)
        .coarse()
        .run()?;
    let web = &ran.outcome.report.sandboxes[0];
    if (web.restarts, web.state) != (0, "running") {
        return Err(
            format!("the server's sandbox is {}, {} restarts", web.state, web.restarts).into()
        );
    }
    Ok(Web::read(&ran.outcome, &ran.outcome.consoles[0].text())?)
}

/// Requests and answers a second by intervals, and where the one failure was.
fn course(place: &str, web: &Web, outlived: usize) -> Found {
    let ([fault], 1) = (&web.faults[..], outlived) else {
        return Err(format!("{} failures, {outlived} outlived, not one", web.faults.len()).into());
    };
    let begin = web.requests.first().ok_or("no requests")?.asked;
    let rates = |name: &str, times: Vec<u64>| {
        let within = |n: u64| {
            let count = times.iter().filter(|at| (*at - begin) / (1_000 * INTERVAL) == n).count();
            let rate = count as f64 * 1_000.0 / INTERVAL as f64;
            let end = (n + 1) * INTERVAL;
            Figure::new(Row::new(&format!("recover.web_{place}_{name}_{end}"), "a second", rate))
        };
        (0..1_000 * PLOTTED / INTERVAL).map(within).collect::<Vec<_>>()
    };
    let mut figures = rates("asked", web.requests.iter().map(|one| one.asked).collect());
    figures.extend(rates("answered", web.answers()));
    let at = (fault.at - begin) / 1_000;
    figures.push(Figure::new(Row::new(
        &format!("recover.web_{place}_failed_{at}"),
        "a second",
        0.0,
    )));
    Ok(figures)
}
