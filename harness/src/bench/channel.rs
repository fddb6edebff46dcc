//! Channels: between sandboxes, and natively against crates that pass messages within one process.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{Ran, System};
use crate::program::Program as _;
use crate::rows::Row;
use crate::{Failure, build};
use bulkhead_layout::marker::id;
use bulkhead_plan::Guest;
use bulkhead_plan::kernel::{ENTRY, Policy};
use bulkhead_qemu::counts::Distribution;
use std::process::Command;

/// Beginnings of their names.
pub const ROWS: [&str; 2] = ["channel.native_rtrb", "channel.mailbox"];

/// Runs `crates/channel/channel-memory/benches/native`: two threads of this machine, so no other part runs meanwhile.
/// The figures are the host's time, and never a test.
pub fn native() -> Found {
    let out = Command::new("cargo")
        .args(["bench", "--locked", "-q", "-p", "bulkhead-channel-memory", "--bench", "native"])
        .current_dir(build::root())
        .printed()?;
    if !out.status.success() {
        return Err(format!("cargo bench: {}", String::from_utf8_lossy(&out.stderr)).into());
    }
    let said = String::from_utf8_lossy(&out.stdout);
    said.lines().filter(|line| line.starts_with("channel.")).map(figure).collect()
}

/// Measures a message of 64 bytes between cores that both look for it, and the sender's look at whether the receiver
/// sleeps.
pub fn messages() -> Found {
    let ran = System::new("channel", "channel").run()?;
    let (send, receive) = (span(&ran, id::CHANNEL_SEND)?, span(&ran, id::CHANNEL_RECEIVE)?);
    let ring = span(&ran, id::CHANNEL_RING)?;
    let row = Row::new("channel.message_64", "instructions", (send.median + receive.median) as f64);
    let note = format!(
        "{} to send, {} to receive; {} to see that nobody sleeps",
        send.median, receive.median, ring.median
    );
    let exits = Row::new("channel.spin_kick_exits", "exits", ring.vmruns as f64);
    Ok(vec![
        Figure::new(row).must(Must::AtMost(60.0)).note(note),
        Figure::new(exits)
            .must(Must::AtMost(0.0))
            .note(format!("in {} messages to a receiver that looks", ring.n)),
    ])
}

/// Measures a ring for a thread that sleeps, in two spans. The sender's goes from before its look at the armed word to
/// where its core goes on. The receiver's goes from where its core sleeps to the thread's message.
pub fn doorbell() -> Found {
    // A kernel that says where it sleeps.
    let marked = format!("{KERNEL}, kernel = \"artifact:kernel-trace\"");
    let ran = System::new("channel-bell", "channel-bell").changed(KERNEL, marked).run()?;
    let (ring, wake) = (span(&ran, id::CHANNEL_RING)?, span(&ran, id::CHANNEL_WAKE)?);
    let both = (ring.median + wake.median) as f64;
    let note = format!(
        "{} of the sender, its monitor's included; {} of the receiver, from where its core sleeps to its message",
        ring.median, wake.median
    );
    let exits = Row::new("exits.channel_doorbell", "exits", ring.vmruns as f64 / ring.n as f64);
    let others = Row::new("exits.channel_woken", "exits", wake.vmruns as f64);
    Ok(vec![
        Figure::new(Row::new("channel.doorbell_to_thread", "instructions", both))
            .must(Must::AtMost(900.0))
            .note(note),
        Figure::new(exits).must(Must::AtMost(1.0)).note(format!("a message, of {}", ring.n)),
        Figure::new(others).must(Must::AtMost(0.0)).note("of the receiver in all of them"),
    ])
}

/// Milliseconds of flood, and of that those in which the receiver counts: then it ends.
const FLOOD: [u32; 2] = [300, 250];

/// Floods a program on an I/O VCPU, above all of a flight, with a sender's rings. Counts the kernel's interrupts for
/// each one that the program asked for. Compares the flight's latest release with that of a run without the flood.
pub fn flood() -> Found {
    const WOKEN: &str = "file = \"artifact:program-talk\"\nargs = \"role=woken channel=news ms=WOKEN\"\nwaits = [\"news\"]\nchannels = [{ channel = \"news\", notification = \"news\" }]";
    const QUEUE: &str = "kind = \"queue\"\nmessage = 64\nsize = \"4 KiB\"";
    let [under, calm] = [FLOOD, [1, 1]].map(|[rings, counts]| {
        let woken = WOKEN.replace("WOKEN", &counts.to_string());
        flight("channel-flood", &woken, &format!("ms={rings}"), QUEUE).run()
    });
    let (under, calm) = (under?, calm?);
    let interrupts = under.counts.value(id::KERNEL_INTERRUPT).map_or(0, |value| value.n);
    let armings =
        armings(&under.outcome.consoles.iter().map(ToString::to_string).collect::<String>())?;
    let (late, idle, most) = latest(&under, &calm)?;
    let entry = span(&under, id::KERNEL_DEVICE)?;
    let exits = under.counts.exits().map_or(0, |exits| exits.n);
    let late = |name| {
        Figure::new(Row::new(name, "ns", late as f64).against(idle as f64))
            .must(Must::Above(most as f64))
            .note("the flight's latest release; against the same without a flood")
    };
    Ok(vec![
        Figure::new(Row::new(
            "channel.flood",
            "interrupts/arming",
            interrupts as f64 / armings as f64,
        ))
        .must(Must::AtMost(1.0))
        .note(format!("{interrupts} interrupts, {armings} armings, {exits} exits of the sender")),
        Figure::new(Row::new("kernel.bell_entry", "instructions", entry.max as f64))
            .must(Must::AtMost(ENTRY as f64))
            .note(format!("the longest of {}", entry.n)),
        late("channel.flood_late"),
        late("flight.jitter_right_bells"),
    ])
}

/// One who sends frames and rings for ever to a driver of a network above all of a flight, on an I/O VCPU.
pub fn network() -> Found {
    const ECHO: &str = "file = \"artifact:net-echo\"\nargs = \"to=back from=news address=10.9.0.2\"\nwaits = [\"news\"]\nchannels = [\"back\", { channel = \"news\", notification = \"news\" }]";
    const RECORDS: &str = "kind = \"records\"\nsize = \"16 KiB\"\n[[channel]]\nname = \"back\"\nfrom = \"flight\"\nto = [\"one\"]\nsize = \"16 KiB\"\nkind = \"records\"";
    let beside =
        |millis: u32| flight("flight-network", ECHO, &format!("ms={millis} pace=0"), RECORDS).run();
    let (under, calm) = (beside(FLOOD[0])?, beside(1)?);
    let (late, idle, most) = latest(&under, &calm)?;
    let all = under.outcome.consoles.iter().map(ToString::to_string).collect::<String>();
    let said = all.lines().find_map(|line| line.split_once("one: ")).map_or("", |line| line.1);
    let interrupts = under.counts.value(id::KERNEL_INTERRUPT).map_or(0, |value| value.n);
    let row = Row::new("flight.jitter_right_networks", "ns", late as f64).against(idle as f64);
    Ok(vec![
        Figure::new(row)
            .must(Must::Above(most as f64))
            .note(format!("{said}; {interrupts} interrupts")),
    ])
}

/// Finds a flight's latest release under a flood and without it, and their largest allowed difference. The I/O VCPU's
/// theorem gives that: (2-U)·U·T in each window of T.
fn latest(under: &Ran, calm: &Ran) -> Result<(u64, u64, u64), Failure> {
    let [late, idle] = [under, calm].map(|ran| {
        let late = ran.counts.value(id::FLIGHT_JITTER).filter(|late| late.n >= 900);
        Ok::<_, Failure>(late.ok_or("flight was not released")?.max)
    });
    Ok((late?, idle?, interference(under, "storm")?))
}

/// The storm's flight, with a driver of a channel in place of the storm, and a flood.
fn flight(dir: &'static str, driver: &str, flood: &str, channel: &str) -> System {
    const STORM: &str = "file = \"artifact:program-storm\"\nargs = \"millis=900 share=50000 period=1000000\"\nwaits = [\"storm\"]\nmanages = [\"context:storm\"]\ndevices = [{ device = \"pit\", interrupts = [{ notification = \"storm\" }] }]";
    const LAST: &str = "priority = 210\ncontext = \"storm\"";
    let more = format!(
        "{LAST}\nstack = \"32 KiB\"\n[[sandbox]]\nname = \"one\"\nguest = {{ kind = \"bare\", program = \"artifact:talk\", args = \"role=flood channel=news {flood}\" }}\ncores = [1]\nmemory = \"4 MiB\"\n[[channel]]\nname = \"news\"\nfrom = \"one\"\nto = [\"flight\"]\nnotify = \"doorbell\"\n{channel}"
    );
    System::new("../../tests/kernel/storm", dir)
        .precise()
        .changed(KERNEL, format!("{KERNEL}, kernel = \"artifact:kernel-trace\""))
        .changed("devices = [\"pit\"]\n", "")
        .changed(STORM, driver)
        .changed("[[notification]]\nname = \"storm\"", "[[notification]]\nname = \"news\"")
        .changed(LAST, more)
}

/// Computes the most that a PIBS context takes in any window of its period, by the manifest.
fn interference(ran: &Ran, name: &str) -> Result<u64, Failure> {
    let kernels = ran.outcome.baked.plan.sandboxes.iter().filter_map(|s| match &s.guest {
        Guest::Kernel(kernel) => Some(kernel),
        _ => None,
    });
    let context = kernels.flat_map(|kernel| &kernel.contexts).find(|context| context.name == name);
    match context.map(|context| context.policy) {
        Some(Policy::Pibs { utilization, period }) => {
            let most = utilization.of(period);
            Ok(2 * most - utilization.of(most))
        }
        _ => Err(format!("{name} is no I/O VCPU").into()),
    }
}

/// How often the receiver says that it asked to be woken.
fn armings(console: &str) -> Result<u64, Failure> {
    let line = console.lines().find(|line| line.ends_with("messages") && line.contains("armings"));
    let words: Vec<_> = line.unwrap_or_default().split(' ').collect();
    let at = words.iter().position(|word| word.starts_with("armings"));
    let number = at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok());
    Ok(number.filter(|n| *n > 0).ok_or("the receiver does not say how often it asked")?)
}

/// Sizes of the messages that `crates/testing/scenarios` exchanges.
const SIZES: [u64; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes of a piece, and the length of a window, ns: two periods. A pair with all of the processor needs less.
const PIECE: u64 = 64;
const WINDOW: u64 = 200_000_000;
const SHORT: u64 = 20_000_000;

/// Figure 31 of the Quest-V article: microseconds for a message and its answer between two kernels, by size. One pair
/// has half of the time and the highest priority, and another one has 40 % below a shell. The baseline is the pair's
/// time with all of the processor, divided by its share.
pub fn rates() -> Found {
    const LOW: &str = "budget = \"40 ms\"\nperiod = \"100 ms\"";
    const PRIORITY: [&str; 2] = ["priority = 100", "priority = 220"];
    let system = |dir| System::new("channel-rate", dir);
    let high =
        |dir, time: &str| system(dir).changed_all(LOW, time).changed_all(PRIORITY[0], PRIORITY[1]);
    let all = high("channel-rate-all", "policy = \"full\"\nperiod = \"100 ms\"")
        .changed_all(format!("={WINDOW}"), format!("={SHORT}"));
    let whole = exchanged(&all, SHORT)?;
    let half = exchanged(&high("channel-rate-high", &LOW.replace("40", "50")), WINDOW)?;
    let low = exchanged(&system("channel-rate-low"), WINDOW)?;
    let figures = |name: &'static str, found: [f64; SIZES.len()], share: f64| {
        SIZES.into_iter().zip(found).zip(whole).map(move |((size, took), whole)| {
            let row = Row::new(&format!("channel.rate_{name}_{size}"), "us", took / 1_000.0);
            let note = format!("{:.2} us with all of the time", whole / 1_000.0);
            Figure::new(row.against(whole / share / 1_000.0))
                .must(Must::Ratio(0.95, 1.05))
                .note(note)
        })
    };
    Ok(figures("high", half, 0.5).chain(figures("low", low, 0.4)).collect())
}

/// Nanoseconds for a message of each size, from how many pieces went in a window.
fn exchanged(system: &System, window: u64) -> Result<[f64; SIZES.len()], Failure> {
    let ran = system.run()?;
    let pieces: Vec<_> = ran.counts.events(id::CHANNEL_EXCHANGE).iter().map(|e| e.value).collect();
    let pieces: [u64; SIZES.len()] = pieces.try_into().map_err(|found: Vec<u64>| {
        format!("messages of {} sizes, not {}", found.len(), SIZES.len())
    })?;
    if pieces.contains(&0) {
        return Err("a window without a message".into());
    }
    let mut sizes = SIZES.into_iter();
    Ok(pieces.map(|n| window as f64 * sizes.next().unwrap_or(PIECE) as f64 / (n * PIECE) as f64))
}

/// How a manifest says it.
const KERNEL: &str = "kind = \"kernel\"";

fn span(ran: &Ran, which: u16) -> Result<Distribution, Failure> {
    let found = ran.counts.span(which).filter(|spans| spans.n >= 100);
    Ok(found.ok_or_else(|| format!("too few spans {which:#x}"))?)
}

/// From `name unit value baseline judged what`.
fn figure(line: &str) -> Result<Figure, Failure> {
    let mut words = line.splitn(6, ' ');
    let mut word = || words.next().ok_or_else(|| format!("not a figure: {line}"));
    let (name, unit, value, baseline) = (word()?, word()?, word()?.parse()?, word()?.parse()?);
    let (judged, what) = (word()?, word()?);
    let row = Row::new(name, unit, value).against(baseline);
    let note = format!("medians, against {what}; lower quartile of the rounds {judged}");
    if judged == "-" {
        let why = "the host was busy in nearly all rounds: not judged";
        return Ok(Figure::new(row).note(format!("{note}; {why}")));
    }
    Ok(Figure::new(row).must(bound(name, judged.parse()?)).note(note))
}

/// Judges our time divided by that of the best other crate, so less is better: 1.0 and 1.2 times as fast. A mailbox is
/// judged by the cycles above a copy. Rounds in which a side waited for a core do not count. The lower quartile of the
/// others is judged: three quarters have to be worse to fail. Batches against batches are only reported, and so are two
/// operations at once.
fn bound(name: &str, judged: f64) -> Must {
    match name.rsplit('_').next() {
        Some("copy" | "place" | "trip") => Must::Often(1.0, judged),
        // In place making 4 KiB and adding them up is nearly all, and alike for each: a batch saves one line of 65.
        Some("batch") if name.ends_with("4k_place_batch") => Must::Often(1.0, judged),
        Some("batch") => Must::Often(1.0 / 1.2, judged),
        Some("read" | "write") => Must::Often(25.0, judged),
        _ => Must::Reported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_figure() {
        let line = "channel.native_rtrb_64_copy_batch ns 5.0 10.0 0.49 rtrb copy";
        let one = figure(line).expect("one");
        assert_eq!((one.row.ratio, one.reached()), (Some(0.5), true));
        assert!(one.note.starts_with("medians, against rtrb copy;"), "{}", one.note);
        let slow = figure(&line.replace("0.49", "0.9")).expect("one");
        assert!(!slow.reached());
        let dear = figure("channel.mailbox_256_read cycles 31.0 5.0 26.0 memcpy").expect("one");
        assert!(!dear.reached());
        assert!(figure("channel.x ns five").is_err());
    }

    #[test]
    fn a_busy_moment_of_the_host_is_no_failure() {
        // The medians say that it is slower, but a quarter of the rounds says that it need not be.
        let one = figure("channel.native_rtrb_64_place_trip ns 90.0 80.0 0.98 rtrb").expect("one");
        assert!(one.reached(), "{}", one.verdict());
        // A host that was busy all the time is not judged.
        let one = figure("channel.native_rtrb_64_copy ns 437.0 422.0 - rtrb").expect("one");
        assert_eq!(one.verdict(), "reported");
        assert!(one.note.contains("not judged"), "{}", one.note);
    }
}
