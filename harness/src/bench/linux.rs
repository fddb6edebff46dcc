//! One Linux in a sandbox and on the bare machine.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{System, event};
use crate::Failure;
use crate::rows::Row;
use bulkhead_layout::marker::id;
use bulkhead_qemu::Counts;
use bulkhead_qemu::counts::Distribution;

/// Last line of bhbench.
pub(super) const END: &str = "bhbench: done";

/// Rows that are medians of spans.
pub(super) const ROWS: [(u16, &str); 9] = [
    (id::LINUX_GETPID, "linux.getpid"),
    (id::LINUX_PAGE_TOUCH, "linux.page_touch"),
    (id::LINUX_SIGSEGV, "linux.sigsegv"),
    (id::LINUX_FORK, "linux.fork"),
    (id::LINUX_FORK_EXEC, "linux.fork_exec"),
    (id::LINUX_PIPE, "linux.pipe"),
    (id::LINUX_UDP_64, "linux.udp_64"),
    (id::LINUX_UDP_1472, "linux.udp_1472"),
    (id::LINUX_PRIMES, "linux.primes"),
];

/// All rows of one run each.
pub fn rows() -> Found {
    let system = System::new("linux", "linux").with("linux", "bulkhead.run=bhbench:all").one_core();
    let ran = system.run()?;
    let (bare, said) = system.run_bare(END)?;
    let here = &ran.outcome.serials[1].text();
    if !here.contains(END) {
        return Err(format!("bhbench did not end in the sandbox:\n{here}").into());
    }
    same_conditions(here, &said)?;
    let mut figures = Vec::new();
    for (id, name) in ROWS {
        let (value, baseline) = (spans(&ran.counts, id, name)?, spans(&bare, id, name)?);
        let row =
            Row::new(name, "instructions", value.median as f64).against(baseline.median as f64);
        let note = format!("median of {} and {}", value.n, baseline.n);
        figures.push(alike(row, 0.01).note(note));
    }
    for ((name, value), (_, baseline)) in timer(&ran.counts)?.into_iter().zip(timer(&bare)?) {
        figures.push(alike(Row::new(name, "ns", value).against(baseline), 0.01));
    }
    figures.extend(boot(&ran.counts, &bare)?);
    Ok(figures)
}

/// Rows of the periodic task.
pub(super) fn timer(counts: &Counts) -> Result<[(&'static str, f64); 2], Failure> {
    let late = counts.value(id::LINUX_TIMER).ok_or("no timer was measured")?;
    let rows = [("linux.timer_median", late.median), ("linux.timer_worst", late.max)];
    Ok(rows.map(|(name, ns)| (name, ns as f64)))
}

fn alike(row: Row, within: f64) -> Figure {
    Figure::new(row).must(Must::Ratio(1.0 - within, 1.0 + within))
}

/// All spans of an id.
pub(super) fn spans(counts: &Counts, id: u16, name: &str) -> Result<Distribution, Failure> {
    let found = counts.span(id).filter(|spans| spans.n > 0 && spans.unmatched == 0);
    Ok(found.ok_or_else(|| format!("{name} was not measured"))?)
}

/// From the kernel's first instruction to the first one of user space. In the
/// sandbox the monitor's instructions count too.
fn boot(counts: &Counts, bare: &Counts) -> Found {
    let (launch, user) = (event(counts, id::LAUNCH, 0)?, event(counts, id::USER, 0)?);
    let (entry, bare_user) = (event(bare, id::ENTRY, 0)?, event(bare, id::USER, 0)?);
    let here = (user.instructions - launch.instructions) as f64;
    let there = (bare_user.instructions - entry.instructions) as f64;
    let exits = (user.vmruns - launch.vmruns) as f64;
    Ok(vec![
        alike(Row::new("linux.boot", "instructions", here).against(there), 0.02),
        Figure::new(Row::new("exits.linux_boot", "exits", exits)).must(Must::AtMost(900.0)),
    ])
}

/// Compares bhbench's lines on kernel, clocks, CPU flags and mitigations: they must be equal.
pub(super) fn same_conditions(here: &str, there: &str) -> Result<(), Failure> {
    let info = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("info "));
        lines.map(|line| line.trim_end().to_owned()).collect()
    };
    let (here, there) = (info(here), info(there));
    if here.is_empty() {
        return Err("bhbench said nothing about the sandbox".into());
    }
    let different = here.iter().zip(&there).find(|(a, b)| a != b);
    if let Some((a, b)) = different {
        return Err(format!("the baseline differs:\n  sandbox: {a}\n  bare:    {b}").into());
    }
    if here.len() == there.len() {
        Ok(())
    } else {
        Err("the baseline differs in what bhbench can say of it".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_clocks_are_refused() {
        assert!(same_conditions("info clocksource tsc\r\nx", "info clocksource tsc\ny").is_ok());
        assert!(same_conditions("info clocksource tsc", "info clocksource hpet").is_err());
        assert!(same_conditions("info a b", "info a b\ninfo c d").is_err());
        assert!(same_conditions("", "").is_err());
    }
}
