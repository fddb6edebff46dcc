//! Time that a device, and a thread of a higher priority, can take from others of their sandbox.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{Ran, System};
use crate::Failure;
use crate::rows::Row;
use bulkhead_layout::marker::id;
use bulkhead_plan::kernel::ENTRY;
use bulkhead_qemu::counts::Distribution;

/// Seconds of flight under a storm, and milliseconds of the storm's driver.
const FLIGHT: u64 = 2;
const STORM: u64 = 1_900;
/// Nanoseconds of a storm with a driver that does nothing.
const ENTRIES: u64 = 900_000_000;
/// The driver's U, and what the theorem leaves it in a window of a period: (2-U)·U, %.
const SHARE: f64 = 5.0;
const WINDOW: f64 = 9.75;
/// Interrupts a second that the device has to bring.
const RATE: u64 = 200_000;

fn system(dir: &'static str) -> System {
    System::new("../../tests/kernel/storm", dir)
        .one_core()
        .changed("args = \"seconds=1\"", format!("args = \"seconds={FLIGHT}\""))
}

fn value(ran: &Ran, which: u16) -> Result<f64, Failure> {
    Ok(ran.counts.value(which).ok_or("the driver left no value")?.max as f64)
}

fn releases(ran: &Ran) -> Result<(Distribution, Distribution), Failure> {
    let late = ran.counts.value(id::FLIGHT_JITTER).ok_or("flight was not released")?;
    Ok((late, ran.counts.span(id::FLIGHT_RELEASE).ok_or("flight did nothing")?))
}

/// Runs a flight with a hog beside a driver under a storm of interrupts, and without the storm. The storm's time is
/// counted twice. The kernel's account has the time of the driver's context. The longer release of the flight has all
/// of it, the kernel's entries and the monitor's work for its masks included.
pub fn storm() -> Found {
    const JUDGED: &str = "millis=900 share=50000 period=1000000";
    let under = system("storm").changed(JUDGED, format!("millis={STORM}")).run()?;
    // A tick of 18 Hz is no storm.
    let calm = system("storm-calm").changed(JUDGED, "divisor=0 millis=100").run()?;
    // How many there are: a driver with nearly all of the core, that does nothing with them.
    let all = system("storm-rate")
        .changed("utilization = \"5 %\"", "utilization = \"90 %\"")
        .changed("kind = \"kernel\"", "kind = \"kernel\", admission = \"none\"")
        .changed(JUDGED, "millis=200 work=0")
        .run()?;
    let rate = value(&all, id::STORM_RATE)? as u64;
    if rate < RATE {
        return Err(format!("{rate} interrupts a second are no storm").into());
    }
    let share = value(&under, id::STORM_SHARE)? / 10_000.0;
    let handled = value(&under, id::STORM_RATE)?;
    let ((late, work), (idle, alone)) = (releases(&under)?, releases(&calm)?);
    let of_all = |work: &Distribution| work.sum as f64 / work.n as f64;
    let whole = 100.0 * (1.0 - of_all(&alone) / of_all(&work));
    let missed = (FLIGHT * 1000).saturating_sub(work.n);
    Ok(vec![
        Figure::new(Row::new("kernel.storm_share", "% of the core", share))
            .must(Must::AtMost(SHARE))
            .note(format!("handles {handled} of {rate} interrupts/s")),
        Figure::new(Row::new("kernel.storm_whole", "% of the core", whole))
            .must(Must::AtMost(WINDOW))
            .note("by what releases take longer: with all entries and exits"),
        Figure::new(Row::new("flight.storm_late", "ns", late.max as f64).against(idle.max as f64))
            .note(format!("median {}, 99 % {}", late.median, late.p99)),
        Figure::new(Row::new("flight.storm_missed", "releases", missed as f64))
            .must(Must::AtMost(0.0))
            .note(format!("of {}", work.n)),
    ])
}

/// Measures the time that interrupts take from others when their driver does nothing with them. The longest entry of
/// the kernel, with its monitor's work for masks, may not exceed the admission's count for one. All entries together
/// may not exceed twice the driver's own time: the admission counts that much for them. The rounds of that driver are
/// all alike. An entry that masks the source pairs with an acknowledgement that lifts the mask, each by the monitor.
/// The kernel's charge for an activation is not in the driver's time.
pub fn entries() -> Found {
    const KERNEL: &str = "kind = \"kernel\"";
    let ran = System::new("../../tests/kernel/storm", "storm-entries")
        .one_core()
        .changed(KERNEL, format!("{KERNEL}, kernel = \"artifact:kernel-trace\""))
        .changed(
            "millis=900 share=50000 period=1000000",
            format!("millis={} work=0", ENTRIES / 1_000_000),
        )
        .run()?;
    let entry = ran.counts.span(id::KERNEL_DEVICE).filter(|spans| spans.n > 1_000);
    let entry = entry.ok_or("too few interrupts")?;
    // Millionths of the storm's length; acknowledgements a second.
    let own = value(&ran, id::STORM_SHARE)? * (ENTRIES / 1_000_000) as f64;
    let acknowledged = value(&ran, id::STORM_RATE)? * (ENTRIES as f64 / 1e9);
    let often = entry.n as f64 / acknowledged;
    if !(1.0..2.1).contains(&often) {
        return Err(format!("{often} entries for an acknowledgement: two are the most").into());
    }
    let note = format!(
        "{} to {} in {} interrupts, median {}",
        entry.min, entry.max, entry.n, entry.median
    );
    Ok(vec![
        Figure::new(Row::new("kernel.interrupt_entry", "instructions", entry.max as f64))
            .must(Must::AtMost(ENTRY as f64))
            .note(note),
        Figure::new(Row::new("kernel.interrupt_share", "of its driver", entry.sum as f64 / own))
            .must(Must::AtMost(2.0))
            .note(format!(
                "{:.0} ns of a driver without work for an acknowledgement; {often:.2} entries of {:.0} ns",
                own / acknowledged,
                entry.sum as f64 / entry.n as f64
            )),
    ])
}

/// A thread below a hog: the worst latency of its answers, which is to be the hog's budget.
pub fn hog() -> Found {
    (1..=9).map(below).collect()
}

/// Periods, ms, and the number of each that are judged. It is even: a client's work in a period depends on which client
/// had the turn before.
const PERIODS: [(u64, u64); 3] = [(10, 40), (100, 10), (1_000, 4)];
/// The first client's share, %; the other one has the rest.
const SHARES: [u64; 3] = [10, 30, 50];
/// A client's throughput, by its share.
const THROUGHPUT: Must = Must::Ratio(0.97, 1.03);

/// Two clients of a passive server that encrypts 4 MiB at a time, rolled back at the ends of their budgets.
pub fn aes() -> Found {
    let all = PERIODS.iter().flat_map(|period| SHARES.map(|share| (*period, share)));
    let found: Result<Vec<_>, _> = all.map(|(period, share)| encrypted(period, share)).collect();
    Ok(found?.into_iter().flatten().collect())
}

fn encrypted((ms, periods): (u64, u64), percent: u64) -> Found {
    let period = ms * 1_000_000;
    let [a, b] = [percent, 100 - percent].map(|percent| period / 100 * percent);
    const JUDGED: &str = "budgets=3000000,7000000 period=10000000";
    let ran = System::new("../../tests/kernel/aes", "aes")
        .one_core()
        .changed(
            format!("pieces=4096 periods=8 {JUDGED}"),
            format!("pieces=16384 periods={periods} budgets={a},{b} period={period}"),
        )
        .changed(
            "budget=3000000,7000000 period=10000000\"\nserves",
            format!("budget={a},{b} period={period}\"\nserves"),
        )
        .changed_all("size = \"1 MiB\"", "size = \"4 MiB\"")
        .run()?;
    let value = |which| ran.counts.value(which).ok_or("the watcher left no value");
    let (whole, a, b) = (value(id::AES_ALONE)?, value(id::AES_A)?, value(id::AES_B)?);
    let figure = |percent: u64, found: u64| {
        let row = Row::new(
            &format!("kernel.aes_{ms}_{percent}"),
            "% of the speed",
            found as f64 / 10_000.0,
        );
        let note = format!(
            "{periods} periods of {ms} ms; a request alone {:.2} ms",
            whole.max as f64 / 1e6
        );
        Figure::new(row.against(percent as f64).higher()).must(THROUGHPUT).note(note)
    };
    match percent {
        // Both clients share a row: it has the one that is farther off.
        50 => {
            let off = |found: u64| found.abs_diff(500_000);
            Ok(vec![figure(50, if off(a.max) > off(b.max) { a.max } else { b.max })])
        }
        _ => Ok(vec![figure(percent, a.max), figure(100 - percent, b.max)]),
    }
}

/// Most that a latency may exceed the budget by, us.
const MORE: f64 = 5.0;

fn below(budget: u32) -> Result<Figure, Failure> {
    let ran = System::new("kernel-hog", "kernel-hog")
        .one_core()
        .changed("budget = \"5 ms\"", format!("budget = \"{budget} ms\""))
        .run()?;
    let [phases, worst] = [id::HOG_PHASES, id::HOG_WORST]
        .map(|which| ran.counts.value(which).ok_or("the thread below the hog answered nothing"));
    let (phases, worst) = (phases?, worst?);
    let us = |ns: u64| ns as f64 / 1000.0;
    let row = Row::new(&format!("kernel.hog_{budget}"), "us", us(phases.max.max(worst.max)));
    let average = us(phases.sum) / phases.n as f64;
    Ok(Figure::new(row)
        .must(Must::AtMost(f64::from(budget) * 1000.0 + MORE))
        .note(format!("budget {budget} of 10 ms; average of all phases {average:.0}")))
}
