//! Watchdogs: how soon a core that stops is found, and what a tick costs.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{Ran, System};
use crate::Failure;
use crate::configuration::Configuration;
use crate::rows::Row;
use bulkhead_layout::marker::id;
use bulkhead_layout::watch::PART;

/// Ways to stop (`guests/hang`), one for each sandbox of a run.
const WAYS: [[&str; 6]; 2] = [
    ["off", "on", "sleep", "sleep-off", "shadow", "masked"],
    ["nmi", "itself", "deaf", "calls", "cpuid", "registers"],
];
const NAMES: [&str; 6] = ["one", "two", "three", "four", "five", "six"];
/// Seconds of a period.
const PERIOD: f64 = 0.005;
/// Ticks that are measured.
const TICKS: u64 = 100;

/// Nanoseconds from a sandbox' last kick or later to the record of its hang, in periods.
fn taken(ran: &Ran, sandbox: usize, way: &str) -> Result<f64, Failure> {
    let said = format!("hang: {way} at ");
    let text = ran.outcome.consoles[sandbox].to_string();
    let at = text.split_once(&said).and_then(|(_, rest)| rest.lines().next());
    let at: u64 = at.and_then(|at| at.trim().parse().ok()).ok_or("it does not say when")?;
    let all = ran.outcome.report.sandboxes[sandbox].by_condition.iter();
    let hang = all.filter(|c| c.condition == "hang").filter_map(|c| c.first.as_ref()).next();
    let found = hang.ok_or_else(|| format!("{way} was not found"))?.record.ticks;
    let hz = ran.outcome.snapshot.boot.map(|boot| boot.hz).ok_or("the boot left no report")?;
    Ok((found - at) as f64 / hz as f64 / PERIOD)
}

/// The worst time to a hang's finding, over all ways, and the rate of ticks beside them.
pub fn found() -> Found {
    let (mut worst, mut slowest, mut over) = (0.0, "", 0.0_f64);
    for (n, ways) in WAYS.iter().enumerate() {
        let mut system = System::new("watchdog", format!("watchdog-{n}")).precise();
        for (name, way) in NAMES.iter().zip(ways) {
            system = system.with(name, format!("way={way}"));
        }
        let ran = system.run()?;
        for (sandbox, way) in ways.iter().enumerate() {
            let took = taken(&ran, sandbox, way)?;
            if took > worst {
                (worst, slowest) = (took, way);
            }
        }
        let exits = &ran.outcome.report.sandboxes[NAMES.len()].exits;
        let ticks = exits.steady.get("watchdog").copied().unwrap_or(0) as f64;
        let asked = exits.steady_seconds / PERIOD;
        // A tick at each end of the time.
        over = over.max((ticks - asked - 1.0).max(0.0) / exits.steady_seconds);
    }
    let hang = Row::new("recover.hang_found", "periods", worst);
    let note = format!(
        "by `{slowest}`, the slowest of 12 ways to stop; period of 5 ms, word moved each 4 ms"
    );
    let rate = Row::new("exits.watchdog", "exits/s", over);
    Ok(vec![
        Figure::new(hang).must(Must::AtMost(2.0)).note(note),
        Figure::new(rate)
            .must(Must::AtMost(0.0))
            .note("of the cause `watchdog` over the 200 asked for, of a sandbox that goes on"),
    ])
}

/// A tick's instructions in the monitor, all looks on, and for each word that a sweep looks at.
pub fn tick() -> Found {
    let (short, _) = ticking("")?;
    let (all, words) = ticking("sweep = \"200 ms\"\n")?;
    // A tick that takes longer than a microsecond would meet the second message of the emulator's timer.
    let (longer, more) = ticking("sweep = \"40 ms\"\n")?;
    if more <= words {
        return Err(format!("{more} words in a tick are not more than {words}").into());
    }
    let each = (longer - all) / (more - words);
    let (looks, _) = ticking(PEER)?;
    let row = Row::new("recover.tick", "instructions", all);
    let most = 400.0 + 2.0 * words;
    let note = format!(
        "in the monitor: mail, progress word, control block and {words:.0} words of text; {short:.0} without a sweep; \
         mean of {TICKS}"
    );
    let word = Row::new("recover.sweep_word", "instructions", each);
    Ok(vec![
        Figure::new(row).must(Must::AtMost(most)).note(note),
        Figure::new(word)
            .must(Must::AtMost(2.0))
            .note("more for each further word of text that a tick looks at"),
        // Room of a tenth.
        Figure::new(Row::new("recover.peer_look", "instructions", looks - short))
            .must(Must::AtMost(92.0))
            .note("more for a look at another monitor, of one core, which goes on"),
    ])
}

/// A sandbox with a monitor that has nothing to do but its heartbeats, and a look at it.
const PEER: &str =
    "\n[[sandbox]]\nname = \"other\"\nguest = { kind = \"bare\", program = \"artifact:micro\" }
cores = [1]\nmemory = \"4 MiB\"\nwatchdog = \"1 ms\"\nautostart = false
[[peer]]\nsandbox = \"micro\"\nwatches = \"other\"\nevery = \"10 ms\"\n";

/// Instructions of a tick, and words of text that it looks at.
fn ticking(more: &str) -> Result<(f64, f64), Failure> {
    const CORES: &str = "cores = [0, 1]\nmemory = \"4 MiB\"\n";
    let own = "cores = [0]\nmemory = \"4 MiB\"\nwatchdog = \"1 ms\"\nalive = \"2 ms\"\n";
    let ran = System::new("micro", "watchdog-tick")
        .changed(CORES, format!("{own}{more}"))
        .with("micro", format!("ticks rounds={TICKS}"))
        .one_core()
        .run()?;
    let found = ran.counts.span(id::TICK).filter(|d| d.n == TICKS).ok_or("too few ticks")?;
    // Beside another core the guest takes that one's turns for ticks, too: the exits are counted.
    if found.vmruns != found.n && !more.contains("[[peer]]") || found.vmruns == 0 {
        return Err(format!("{} exits for {} ticks", found.vmruns, found.n).into());
    }
    let baked = &ran.outcome.baked;
    let config = Configuration::of(&baked.bytes, baked, 0).ok_or("no configuration")?;
    let start = config.fields.start;
    let words = start.parts * PART as u64;
    Ok((found.privileged as f64 / found.vmruns as f64, words as f64))
}
