//! Roles: releases that are missed when another sandbox takes over, and instructions of the monitors.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{Ran, System};
use crate::Failure;
use crate::rows::Row;
use crate::test::standby::in_a_row;
use crate::test::voter::Flown;
use bulkhead_layout::ladder::Rung;
use bulkhead_layout::marker::id;
use bulkhead_layout::report::Deed;

/// Places of the holders in the manifest.
const HOLDERS: [usize; 2] = [1, 2];

/// The longest time from a failure to the next holder with the role, ns of the machine's clock.
fn longest(ran: &Ran) -> Result<u64, Failure> {
    let of = |holder: usize, action: u8| {
        let deeds = ran.outcome.snapshot.sandboxes[holder].report.deeds;
        deeds.into_iter().filter(move |deed| deed.seq != 0 && deed.action == action)
    };
    let failed = |holder: usize| of(holder, Rung::FAILOVER).filter(|deed| deed.roles != 0);
    let [one, two] = HOLDERS;
    let took = [(one, two), (two, one)].into_iter().flat_map(|(from, to)| {
        // The next takeover behind each failure.
        failed(from).filter_map(move |failure: Deed| {
            of(to, Rung::TOOK)
                .map(|deed| deed.found)
                .filter(|at| *at > failure.found)
                .min()
                .map(|at| at - failure.found)
        })
    });
    let hz = ran.outcome.snapshot.boot.map(|boot| boot.hz).ok_or("the boot left no report")?;
    let most = took.max().ok_or("no role was taken over")?;
    Ok((u128::from(most) * 1_000_000_000 / u128::from(hz)) as u64)
}

/// Failures of a flight controller with a hot standby.
pub fn flight() -> Found {
    let ran = System::new("standby", "standby").run()?;
    let text = |n: usize| ran.outcome.consoles[n].text();
    let vehicle = text(0);
    let flown = Flown::of(&vehicle).ok_or("the vehicle does not say how it flew")?;
    let takes = |n: usize| text(n).matches("takes over in epoch").count();
    let times = HOLDERS.into_iter().map(takes).sum::<usize>() - 1;
    if times < 50 || flown.count("wrong") != 0 {
        return Err(format!("{times} failures, {} wrong outputs", flown.count("wrong")).into());
    }
    let row = Row::new("recover.flight_missed_hot", "releases", in_a_row(&vehicle) as f64);
    let replace = Row::new("recover.replace", "instructions", longest(&ran)? as f64);
    let (missed, all) = (flown.not_right(), flown.count("releases"));
    Ok(vec![
        Figure::new(row).must(Must::AtMost(1.0)).note(format!(
            "in a row without a right output, {missed} of {all} in all; {times} failures of four kinds at three places of a release"
        )),
        Figure::new(replace).must(Must::AtMost(10_503.0)).note(
            "from a monitor's finding of a failure to the next holder with the role, of all cores; the longest of those with records; Quest-V: 10,503 cycles",
        ),
    ])
}

/// A role that comes to a guest, with 64 KiB of memory.
pub fn takeover() -> Found {
    let ran = System::new("takeover", "takeover").run()?;
    let found = ran.counts.span(id::TAKEOVER).filter(|d| d.n >= 30).ok_or("too few takeovers")?;
    if found.vmruns != found.n {
        return Err(format!("{} exits for {} takeovers", found.vmruns, found.n).into());
    }
    let each = found.privileged as f64 / found.n as f64;
    let row = Row::new("recover.takeover", "instructions", each);
    Ok(vec![Figure::new(row).must(Must::AtMost(1_000.0)).note(format!(
        "in the monitor of the next holder: doorbell, words, 16 entries, record; mean of {}",
        found.n
    ))])
}

/// A monitor tells another one: a request by a right on one side, and on the other side a role without memory.
pub fn remote_ipi() -> Found {
    let ran = System::new("remote-ipi", "remote-ipi").run()?;
    let each = |of: u16| {
        let found = ran.counts.span(of).filter(|d| d.n >= 30).ok_or("too few of them")?;
        if found.vmruns != found.n {
            return Err(Failure::from(format!("{} exits for {}", found.vmruns, found.n)));
        }
        Ok((found.privileged as f64 / found.n as f64, found.n))
    };
    let ((sends, sent), (takes, taken)) = (each(id::REMOTE_IPI)?, each(id::TAKEOVER)?);
    let row = Row::new("recover.remote_ipi", "instructions", sends + takes);
    Ok(vec![Figure::new(row).must(Must::AtMost(500.0)).note(format!(
        "{sends:.0} of the sender's monitor: call, right, rate, word, IPI, mean of {sent}; {takes:.0} of the receiver's: doorbell, all mail, a role without memory, record, mean of {taken}; Quest-V: 4,542 cycles"
    ))])
}
