//! The form of the view: text from data, nothing else.

use crate::sources::Observed;
use bulkhead_layout::telemetry::Record;
use std::fmt::Write;

/// Ends a line of a frame, whatever was there before.
const END: &str = "\x1b[K\r\n";
/// First line where it is so.
const BEHIND: &str = "\x1b[7m  THIS HOST CAN'T KEEP UP: flight's cores wait for it, so the times below are the host's  \x1b[0m";
/// Characters of a bar.
const WIDTH: usize = 41;

/// Microradians in degrees.
fn degrees(microradians: i64) -> f64 {
    (microradians as f64 / 1e6).to_degrees()
}

fn unsigned(microradians: u64) -> f64 {
    degrees(i64::try_from(microradians).unwrap_or(i64::MAX))
}

/// Nanoseconds in the unit that suits them.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// A screenful.
pub fn frame(name: &str, record: Option<&Record>, observed: &[Observed]) -> String {
    let mut out = String::from("\x1b[H");
    if record.is_some_and(is_behind) {
        add(&mut out, BEHIND);
    }
    heading(&mut out, name, record);
    match record {
        Some(record) => controller(&mut out, record),
        None => add(&mut out, "  no telemetry yet"),
    }
    add(&mut out, "");
    for sandbox in observed {
        add(&mut out, &format!("  {}", neighbour(sandbox)));
    }
    add(&mut out, "");
    add(&mut out, "\x1b[2m  q: leave the view\x1b[0m");
    out.push_str("\x1b[J");
    out
}

fn add(out: &mut String, line: &str) {
    out.push_str(line);
    out.push_str(END);
}

fn heading(out: &mut String, name: &str, record: Option<&Record>) {
    let mut line = format!("\x1b[1m  Bulkhead\x1b[0m  seen from {name}");
    if let Some(record) = record {
        let seconds = record.time_ns as f64 / 1e9;
        let _ = write!(line, "   flying for {seconds:.1} s, launch {}", record.incarnation + 1);
    }
    add(out, &line);
    add(out, "");
}

fn controller(out: &mut String, record: &Record) {
    for (axis, name) in ["roll", "pitch", "yaw"].iter().enumerate() {
        let (now, wanted) = (degrees(record.euler[axis]), degrees(record.setpoint[axis]));
        let bar = dial(now, wanted, if axis == 2 { 180.0 } else { 45.0 });
        add(out, &format!("  {name:<6}{now:>7.2}°  {bar}  wanted {wanted:>7.2}°"));
    }
    let motors = record.motors.map(|motor| format!("{:>3} %", motor / 10_000)).join("  ");
    add(out, "");
    add(out, &format!("  motors    {motors}"));
    let (rms, max) = (unsigned(record.error_rms), unsigned(record.error_max));
    let error = unsigned(record.error);
    add(out, &format!("  error     {error:.2}°   rms {rms:.2}°   worst {max:.2}°"));
    let (last, worst) = (time(record.jitter_last), time(record.jitter_max));
    let median = time(record.jitter_median());
    add(out, &format!("  jitter    {last}   median up to {median}   worst {worst}"));
    let counts = format!("{} served, {} missed", record.releases, record.missed);
    let (busy, most) = (part(record.busy), part(record.busy_max));
    add(out, &format!("  releases  {counts}   computing {busy}, at most {most}"));
    if record.takeovers > 0 {
        let (release, late) = (record.takeover_release, time(record.takeover_latest));
        add(
            out,
            &format!("  takeover  in release {release}, {late} late   {} in all", record.takeovers),
        );
    }
    add(out, "            (host time in an emulator; `CI=true make run` is their judge)");
}

/// A part of the period. More than all of it is no computing: the host's core was elsewhere.
fn part(millionths: u64) -> String {
    match millionths {
        0..=1_000_000 => format!("{} %", millionths / 10_000),
        _ => "more than the period".into(),
    }
}

/// Tells if the host runs the cores too seldom for the flight: one release of a hundred is missed, or one took over a
/// period. Then all that follows says more of the host than of the flight.
fn is_behind(record: &Record) -> bool {
    record.missed.saturating_mul(100) > record.releases.saturating_add(record.missed)
        || record.busy_max > 1_000_000
}

/// A scale from `-range` to `range` with the wanted value and the actual one.
fn dial(now: f64, wanted: f64, range: f64) -> String {
    let place = |value: f64| {
        let part = (value / range).clamp(-1.0, 1.0);
        ((part + 1.0) / 2.0 * (WIDTH - 1) as f64).round() as usize
    };
    let mut bar = vec!['·'; WIDTH];
    bar[WIDTH / 2] = '|';
    bar[place(wanted)] = '○';
    bar[place(now)] = '●';
    bar.into_iter().collect()
}

fn neighbour(sandbox: &Observed) -> String {
    let Observed { name, state, restarts, denials, last } = sandbox;
    let mut line = format!("{name:<9} {state:<9} {restarts} restarts, {denials} denials");
    if let Some((kind, address)) = last {
        let _ = write!(line, ", last {kind} {address:#x}");
    }
    line
}

/// One line of the log, `key=value`.
pub fn line(record: Option<&Record>, observed: &[Observed]) -> String {
    let mut line = String::new();
    match record {
        None => line.push_str("telemetry=none"),
        Some(record) => {
            for (axis, name) in ["roll", "pitch", "yaw"].iter().enumerate() {
                let _ = write!(line, "{name}={:.2} ", degrees(record.euler[axis]));
            }
            let _ = write!(
                line,
                "error={:.3} error_rms={:.3} error_max={:.3} jitter_last={} jitter_max={} \
                 releases={} missed={} busy={} incarnation={}",
                unsigned(record.error),
                unsigned(record.error_rms),
                unsigned(record.error_max),
                record.jitter_last,
                record.jitter_max,
                record.releases,
                record.missed,
                record.busy,
                record.incarnation,
            );
        }
    }
    for Observed { name, state, restarts, denials, .. } in observed {
        let _ = write!(
            line,
            " {name}.state={state} {name}.restarts={restarts} {name}.denials={denials}"
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Record, Vec<Observed>) {
        let mut record = Record {
            time_ns: 2_500_000_000,
            euler: [174_533, -87_266, 1_570_796],
            setpoint: [0, 0, 1_570_796],
            motors: [500_000; 4],
            busy: 400_000,
            ..Record::default()
        };
        record.count_jitter(120);
        let rogue = Observed {
            name: "rogue".into(),
            state: "running",
            restarts: 3,
            denials: 7,
            last: Some(("memory-violation", 0xFEE0_0000)),
        };
        (record, vec![rogue])
    }

    #[test]
    fn the_log_line_has_every_figure() {
        let (record, observed) = sample();
        assert_eq!(
            line(Some(&record), &observed),
            "roll=10.00 pitch=-5.00 yaw=90.00 error=0.000 error_rms=0.000 error_max=0.000 \
             jitter_last=120 jitter_max=120 releases=1 missed=0 busy=400000 incarnation=0 \
             rogue.state=running rogue.restarts=3 rogue.denials=7"
        );
        assert_eq!(line(None, &[]), "telemetry=none");
    }

    #[test]
    fn the_frame_fits_a_terminal_and_wipes_what_was_there() {
        let (record, observed) = sample();
        let frame = frame("ground", Some(&record), &observed);
        assert!(frame.lines().count() <= 20);
        assert!(frame.lines().all(|line| line.chars().count() < 100));
        assert!(frame.contains("roll    10.00°") && frame.contains("memory-violation 0xfee00000"));
        assert!(frame.starts_with("\x1b[H") && frame.ends_with("\x1b[J"));
    }

    /// Issue 16: "116198 of 13618 missed" and "computing 4187 %" on a loaded host.
    #[test]
    fn a_host_that_cannot_keep_up_is_told_first() {
        let mut record = Record { releases: 13_618, missed: 116_198, ..Record::default() };
        record.busy = 41_870_000;
        record.busy_max = record.busy;
        let behind = frame("ground", Some(&record), &[]);
        let first = behind.lines().next().unwrap_or_default();
        assert!(first.contains("THIS HOST CAN'T KEEP UP"), "{first}");
        assert!(behind.contains("13618 served, 116198 missed"), "{behind}");
        assert!(behind.contains("computing more than the period, at most more than the period"));
        assert!(!behind.contains(" of 13618"));
        let (good, observed) = sample();
        assert!(!frame("ground", Some(&good), &observed).contains(BEHIND));
        let few = Record { releases: 13_618, missed: 3, ..Record::default() };
        assert!(!is_behind(&few) && is_behind(&Record { releases: 98, missed: 2, ..few }));
        assert!(is_behind(&Record { busy_max: 1_000_001, ..few }));
    }

    #[test]
    fn the_dial_stays_on_its_scale() {
        for (now, wanted) in [(1e9, -1e9), (f64::NAN, 0.0), (0.0, 0.0)] {
            assert_eq!(dial(now, wanted, 45.0).chars().count(), WIDTH);
        }
    }
}
