//! Figure 29 of the Quest-V article: one sandbox sends to three others, and another one pings the first of them. That
//! one's receiver and network driver break on purpose: they overwrite their side of their channels, and then memory
//! that they have no right to. They recover, and no other sandbox notices.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{Ran, System};
use crate::Failure;
use crate::rows::Row;
use bulkhead_layout::marker::id;

/// Milliseconds between messages; receivers, each on the core after the one before, and how often they look, ms.
const BEAT: u64 = 50;
const LISTENERS: [(&str, u64); 3] = [("zero", 100), ("two", 800), ("three", 1_000)];
/// When the first of them breaks, after it began, ms; and from when on, and until when, the others are judged by the
/// figure.
const BREAKS: u64 = 2_000;
const JUDGED: u64 = 4_900;
/// Milliseconds between echo requests, and their number. An answer may take a period of the driver's I/O VCPU and, on
/// each side, the millisecond in which a session's beginning is seen.
const PING: u64 = 500;
const PINGS: usize = 9;
const ANSWER: u64 = 12;

/// Messages that the receivers got.
struct Heard {
    /// For the plot.
    rates: Vec<Figure>,
    /// Messages that the others got too few or too many.
    lost: u64,
    /// When the one that broke got all of its messages again.
    back: u64,
    /// When the first of them began.
    begin: u64,
}

fn heard(ran: &Ran) -> Result<Heard, Failure> {
    let heard = ran.counts.events(id::CHANNEL_HEARD);
    let begin = heard.iter().map(|event| event.value >> 16).min().ok_or("nobody listened")?;
    let (mut rates, mut lost, mut back) = (Vec::new(), 0, None);
    for (n, (name, every)) in LISTENERS.into_iter().enumerate() {
        let looks = heard.iter().filter(|event| event.vcpu == n as u64 + 1);
        let looks = looks.map(|event| ((event.value >> 16) - begin, event.value & 0xFFFF));
        // The first one looks when it begins, so there is less than a turn's.
        let looks: Vec<_> = looks.skip(1).filter(|(at, _)| *at <= JUDGED).collect();
        for (at, messages) in &looks {
            let rate = *messages as f64 * 1_000.0 / every as f64;
            rates.push(Figure::new(Row::new(
                &format!("channel.heard_{name}_{at}"),
                "messages/s",
                rate,
            )));
        }
        let expected = every / BEAT;
        if n == 0 {
            // With its last look before it breaks it gets all of them, too.
            let mut after = looks.iter().skip_while(|(at, _)| *at < BREAKS).skip(1);
            back = after.find(|(_, messages)| *messages == expected).map(|(at, _)| *at);
        } else {
            if (looks.len() as u64) < JUDGED / every {
                return Err(format!("{name} looked {} times", looks.len()).into());
            }
            // With its first turn a session begins: the sender waits for its answer.
            let judged = looks.iter().filter(|(at, _)| *at >= every);
            lost += judged.map(|(_, messages)| expected.abs_diff(*messages)).sum::<u64>();
        }
    }
    let back = back.ok_or("the receiver that broke got no more messages")?;
    Ok(Heard { rates, lost, back, begin })
}

/// The rows of both ways to recover.
fn figures(prefix: &str, heard: &Heard) -> [Figure; 2] {
    [
        Figure::new(Row::new(&format!("{prefix}_lost"), "messages", heard.lost as f64))
            .must(Must::AtMost(0.0))
            .note("that the other receivers got too few or too many"),
        Figure::new(Row::new(&format!("{prefix}_back"), "ms", heard.back as f64))
            .must(Must::AtMost((BREAKS + 3 * LISTENERS[0].1) as f64))
            .note(format!("when the one that breaks at {BREAKS} gets all of its messages again")),
    ]
}

/// A run in which each sandbox was restarted so often by its monitor, and the sender was never late.
fn run(manifest: &'static str, restarts: &[u64]) -> Result<Ran, Failure> {
    let ran = System::new(manifest, manifest).run()?;
    let found: Vec<_> = ran.outcome.report.sandboxes.iter().map(|s| s.restarts).collect();
    if found != restarts {
        return Err(format!("restarts {found:?}, not {restarts:?}").into());
    }
    if !ran.outcome.consoles[0].contains("beat 100 times, 0 late") {
        return Err(format!("the sender was late: {}", ran.outcome.consoles[0]).into());
    }
    Ok(ran)
}

/// Receiver and driver are programs of one kernel, each with its own faults, and begin anew by a third program's hand.
pub fn programs() -> Found {
    let ran = run("channel-isolation", &[0; 5])?;
    let said = &ran.outcome.consoles[1].text();
    for name in ["listener", "driver"] {
        let broke = format!("{name}: exception 14; it begins anew");
        if said.matches(&broke).count() != 1 || said.contains("stays stopped") {
            return Err(format!("{name} has to break by a page fault, once: {said}").into());
        }
    }
    let heard = heard(&ran)?;
    let echoes = echoes(&ran, heard.begin)?;
    let both = figures("channel.isolation", &heard);
    Ok(heard.rates.into_iter().chain(both).chain(echoes).collect())
}

/// The receiver is alone in its sandbox, which its monitor restarts.
pub fn sandbox() -> Found {
    let ran = run("channel-restarted", &[0, 1, 0, 0])?;
    Ok(figures("channel.restarted", &heard(&ran)?).into())
}

/// Judges the requests: is each one answered before the next one is due? After the first one without an answer, when
/// does the next answer come?
fn echoes(ran: &Ran, begin: u64) -> Found {
    let times = |which| {
        let events = ran.counts.events(which);
        let times = events.into_iter().map(|e| (e.value & 0xFFFF, e.value >> 16));
        times.collect::<std::collections::BTreeMap<_, _>>()
    };
    let (asked, answered) = (times(id::CHANNEL_ASKED), times(id::CHANNEL_ECHOED));
    if asked.len() != PINGS {
        return Err(format!("{} requests, not {PINGS}", asked.len()).into());
    }
    let rate = |n: &u64| if answered.contains_key(n) { 1_000.0 / PING as f64 } else { 0.0 };
    let mut figures: Vec<_> = asked
        .iter()
        .map(|(n, at)| (format!("channel.echoes_{}", at - begin), rate(n)))
        .map(|(name, rate)| Figure::new(Row::new(&name, "replies/s", rate)))
        .collect();
    let (lost, at) = asked
        .iter()
        .find(|(n, _)| !answered.contains_key(n))
        .ok_or("each request was answered: the driver did not break")?;
    let back = answered.iter().find(|(n, _)| *n > lost).ok_or("no answer after the break")?;
    let slowest = answered.iter().map(|(n, at)| at - asked[n]).max().unwrap_or(u64::MAX);
    figures.extend([
        Figure::new(Row::new("channel.echo_lost", "requests", (PINGS - answered.len()) as f64))
            .must(Must::AtMost(1.0))
            .note(format!(
                "of {PINGS}: the one that broke the driver; slowest answer {slowest} ms"
            )),
        Figure::new(Row::new("channel.echo_back", "ms", (back.1 - at) as f64))
            .must(Must::AtMost((PING + ANSWER) as f64))
            .note("from that request to the next answer"),
    ]);
    Ok(figures)
}
