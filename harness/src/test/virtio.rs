//! Stock virtio drivers of a Linux over a channel, with our module, and device sides in another Linux. The devices are
//! a network card and a console, on 6.12 and 6.1. Either side begins anew, or writes garbage. Headers of packets lie,
//! also between two sides without our module.

use super::driver::{Bench, Job};
use super::linux_channel::linux;
use super::system::{Manifest, Seen, run};
pub use super::system::{NEWER, OLDER};
use std::fmt::Write as _;
use std::time::Duration;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("channel/virtio-net", 240, |bench| net(bench, [NEWER, OLDER])),
        Job::one("channel/virtio-net-6.1", 240, |bench| net(bench, [OLDER, NEWER])),
        Job::one("channel/virtio-sleeps", 240, |bench| sleeps(bench, [NEWER, NEWER])),
        Job::one("channel/virtio-sleeps-6.1", 240, |bench| sleeps(bench, [OLDER, OLDER])),
        Job::one("channel/virtio-console", 240, |bench| console(bench, [NEWER, NEWER], "doorbell")),
        Job::one("channel/virtio-console-6.1", 240, |bench| console(bench, [OLDER, NEWER], "poll")),
        Job::one("channel/virtio-rogue-device", 240, |bench| rogue_device(bench, "doorbell")),
        Job::one("channel/virtio-rogue-polled", 240, |bench| rogue_device(bench, "poll")),
        Job::one("channel/virtio-rogue-driver", 240, rogue_driver),
        Job::one("channel/virtio-lies", 240, |bench| lies_of_a_card(bench, NEWER, "doorbell")),
        Job::one("channel/virtio-lies-6.1", 240, |bench| lies_of_a_card(bench, OLDER, "poll")),
        Job::one("channel/virtio-lies-driver", 240, |bench| lies_of_a_driver(bench, NEWER, "poll")),
        Job::one("channel/virtio-lies-driver-6.1", 240, |bench| {
            lies_of_a_driver(bench, OLDER, "doorbell")
        }),
        Job::one("channel/linux-network-lies", 240, |bench| lies_in_records(bench, NEWER)),
        Job::one("channel/linux-network-lies-6.1", 240, |bench| lies_in_records(bench, OLDER)),
        Job::one("channel/virtio-deaf", 240, deaf),
        Job::one("channel/virtio-restart", 240, restart),
    ]
}

/// Two with a channel for a device between them, and how its ends are woken: `one` has the driver.
pub fn two([one, two]: [&str; 2], jobs: [&str; 2], notify: &str) -> Manifest {
    let mut manifest = Manifest::new()
        .ends_with(&["one"])
        .linux("one", one, jobs[0], &[0], "256 MiB", 1)
        .linux("two", two, jobs[1], &[1], "256 MiB", 2);
    let _ = writeln!(
        manifest.0,
        "[[channel]]\nname = \"lan\"\nfrom = \"one\"\nto = [\"two\"]\nsize = \"4 MiB\"\nkind = \"virtio\"\nnotify = \"{notify}\""
    );
    manifest.0 = manifest.0.replace("artifact:test.cpio", "artifact:virtio.cpio");
    manifest
}

pub fn look(manifest: &Manifest, bench: &Bench) -> Result<Seen, String> {
    look_for(manifest, bench, Duration::from_secs(220))
}

/// With another limit.
pub fn look_for(manifest: &Manifest, bench: &Bench, limit: Duration) -> Result<Seen, String> {
    run(manifest, &bench.dir, |o| o.limit = limit)
}

/// No kernel has complained of itself: of a fault, a core that something kept, or an interrupt that nobody awaits.
pub fn sound(said: &str) -> bool {
    const COMPLAINTS: [&str; 7] = [
        "BUG:",
        "Oops",
        "WARNING: CPU",
        "Call Trace",
        "rcu: INFO",
        "soft lockup",
        "No irq handler",
    ];
    !COMPLAINTS.iter().any(|word| said.contains(word))
}

/// Returns the lines that the driver's side printed; it ended well.
pub fn driver(seen: &Seen) -> Result<&str, String> {
    let said = linux(seen, "one", 1)?;
    seen.ensure(sound(said), "its kernel complains")?;
    Ok(said)
}

/// Packets between a stock network driver and a tap.
fn net(bench: &Bench, kernels: [&str; 2]) -> Result<String, String> {
    let jobs = [
        "bhvirtio:card,10.9.0.1/24,ping,-c,5,-s,1400,10.9.0.2",
        "bhvirtio:net,tap0,lan,10.9.0.2/24",
    ];
    let seen = look(&two(kernels, jobs, "poll"), bench)?;
    let all = "5 packets transmitted, 5 packets received";
    seen.ensure(driver(&seen)?.contains(all), "packets were lost")?;
    Ok(all.into())
}

/// Both sides sleep, and are woken: the driver's by MSI-X, of which there is none but for packets.
fn sleeps(bench: &Bench, kernels: [&str; 2]) -> Result<String, String> {
    // Interrupts, whether the module's timer runs, packets.
    const COUNT: &str = "echo $(grep bulkhead_virtio /proc/interrupts; grep -c ticked /proc/timer_list; cat /sys/class/net/eth0/statistics/rx_packets /sys/class/net/eth0/statistics/tx_packets)";
    let script = format!(
        "ping -c 5 -i 0.2 -s 1400 10.9.0.2; {COUNT}; sleep 4; {COUNT}; ping -c 1 10.9.0.2; {COUNT}"
    );
    let card = format!("bhvirtio:card,10.9.0.1/24,sh,-c,{}", script.replace(' ', "${IFS}"));
    // How often the device side has gone to sleep, each second.
    let look_at = "sleep 1; echo slept $(grep -h ^vol $p); ".repeat(12);
    let watch = format!("p=/proc/$(pidof bhvirtio)/task/*/status; {look_at}sleep 1000");
    let net = format!("bhvirtio:net,tap0,lan,10.9.0.2/24,sh,-c,{}", watch.replace(' ', "${IFS}"));
    let jobs = [&card[..], &net];
    let seen = look(&two(kernels, jobs, "doorbell"), bench)?;
    let said = driver(&seen)?;
    seen.ensure(said.contains(PINGED), "packets were lost")?;
    // Interrupts, and packets either way.
    let counts = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let message = words.iter().any(|word| word.contains("MSI"));
        let [_, interrupts, .., timers, received, sent] = words[..] else { return None };
        let [interrupts, timers, received, sent] =
            [interrupts, timers, received, sent].map(|n| n.parse::<u32>().ok());
        Some([interrupts?, received? + sent?, timers?]).filter(|_| message)
    };
    let lines = said.lines().filter(|line| line.contains("bulkhead_virtio"));
    let all: Vec<_> = lines.filter_map(counts).collect();
    let &[busy, idle, woken] = &all[..] else {
        return Err(seen.wrong(format!("no three counts of interrupts: {all:?}")));
    };
    let more = |from: [u32; 3], to: [u32; 3]| [to[0] - from[0], to[1] - from[1]];
    let ([interrupts, packets], [last, _]) = (more(busy, idle), more(idle, woken));
    seen.ensure(busy[0] > 5 && last > 0, "its packets did not wake it")?;
    seen.ensure(interrupts <= packets, "it was woken while nothing came")?;
    seen.ensure(idle[2] == 0, "the module's timer runs while nothing comes")?;
    let rests: Vec<u32> = { seen.serial(2)?.lines() }
        .filter_map(|line| line.trim().strip_prefix("slept "))
        .map(|line| line.split_whitespace().filter_map(|word| word.parse::<u32>().ok()).sum())
        .collect();
    let least = rests.windows(2).map(|pair| pair[1] - pair[0]).min();
    let quiet = least.is_some_and(|least| least <= 20);
    seen.ensure(quiet, format!("the device side never slept for a second: {rests:?}"))?;
    Ok(format!("{} interrupts for 5 packets; in 4 s {interrupts} for {packets}", busy[0]))
}

/// A shell on a stock console, spoken to from the other side.
fn console(bench: &Bench, kernels: [&str; 2], notify: &str) -> Result<String, String> {
    // The answer is not in the line, which comes back as it is typed.
    let jobs = ["bhvirtio:terminal", "bhvirtio:ask,lan,tty;echo${IFS}sum$((40+2)),sum42"];
    let mut manifest = two(kernels, jobs, notify);
    manifest.0 = manifest.0.replace("ends_with = [\"one\"]", "ends_with = [\"two\"]");
    let seen = look(&manifest, bench)?;
    let said = linux(&seen, "two", 2)?;
    seen.ensure(said.contains("/dev/hvc0") && said.contains("sum42"), "no shell answered")?;
    seen.ensure(sound(seen.serial(1)?), "the driver's kernel complains")?;
    Ok("its shell is on /dev/hvc0 and adds up".into())
}

const PINGED: &str = "5 packets transmitted, 5 packets received";

/// A device side that writes garbage into all that it can write, and then is an honest one.
fn rogue_device(bench: &Bench, notify: &str) -> Result<String, String> {
    // Whoever is not woken has no line there, which grep would call a failure.
    let card = match notify {
        "poll" => "bhvirtio:card,10.9.0.1/24,ping,-c,5,-W,1,10.9.0.2",
        _ => {
            "bhvirtio:card,10.9.0.1/24,sh,-c,ping${IFS}-c${IFS}5${IFS}-W${IFS}1${IFS}10.9.0.2&&grep${IFS}bulkhead_virtio${IFS}/proc/interrupts"
        }
    };
    let jobs = [card, "bhvirtio:rogue,lan,4000,bhvirtio,net,tap0,lan,10.9.0.2/24"];
    let seen = look(&two([NEWER, NEWER], jobs, notify), bench)?;
    let said = driver(&seen)?;
    let spoilt = said.matches("the device side spoilt").count();
    seen.ensure(spoilt > 0, "nothing was spoilt: the rogue is too tame")?;
    seen.ensure(said.contains(PINGED), "the card does not work after that")?;
    let rung =
        said.lines().filter(|line| line.contains("MSIX") && line.contains("bulkhead_virtio"));
    let mut counts = rung.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u32>().ok());
    let Some(rung) = counts.next_back() else {
        seen.ensure(notify == "poll", "no interrupts are listed")?;
        return Ok(format!("{spoilt} times refused; then {PINGED}"));
    };
    // In 4 s one each 50 us at most, however often it rings.
    seen.ensure((100..=80_000).contains(&rung), format!("it was interrupted {rung} times"))?;
    Ok(format!("{spoilt} times refused, {rung} interrupts; then {PINGED}"))
}

/// A driver that writes garbage, and then the module's.
fn rogue_driver(bench: &Bench) -> Result<String, String> {
    let count = "sleep 1; grep uio /proc/interrupts; ".repeat(14) + "sleep 1000";
    let net = format!("bhvirtio:net,tap0,lan,10.9.0.2/24,sh,-c,{}", count.replace(' ', "${IFS}"));
    let jobs = ["bhvirtio:rogue,lan,4000,bhvirtio,card,10.9.0.1/24,ping,-c,5,-W,1,10.9.0.2", &net];
    let seen = look(&two([NEWER, NEWER], jobs, "doorbell"), bench)?;
    let side = seen.serial(2)?;
    let spoilt = side.matches("Corrupted").count();
    seen.ensure(driver(&seen)?.contains(PINGED), "the device side does not work after that")?;
    seen.ensure(spoilt > 0, "nothing was spoilt: the rogue is too tame")?;
    seen.ensure(sound(side), "the device side's kernel complains")?;
    let counts = side.lines().filter(|line| line.contains("IO-APIC") && line.contains("uio_pci"));
    let mut counts = counts.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u32>().ok());
    let rung = counts.next_back().unwrap_or(0);
    // In 4 s one each millisecond, however often it rings, and some more for garbage that could be packets.
    seen.ensure((100..=8_000).contains(&rung), format!("it was interrupted {rung} times"))?;
    Ok(format!("{spoilt} times refused, {rung} interrupts; then {PINGED}"))
}

/// Milliseconds of packets with headers that lie.
const LIES: &str = "2000";

/// Tests a network card with lies in its packets' headers; the driver's Linux takes them for itself and sends them on.
fn lies_of_a_card(bench: &Bench, kernel: &str, notify: &str) -> Result<String, String> {
    let jobs = [
        // Its card outlives the liar, who answers nobody: the last of these is answered by the honest one.
        "sh:-c,bhvirtio${IFS}gate&bhvirtio${IFS}card${IFS}10.9.0.1/24${IFS}ping${IFS}-c${IFS}12${IFS}-W${IFS}1${IFS}10.9.0.2",
        &format!("bhvirtio:lie,lan,{LIES},bhvirtio,net,tap0,lan,10.9.0.2/24"),
    ];
    let seen = look(&two([kernel, NEWER], jobs, notify), bench)?;
    let said = driver(&seen)?;
    seen.ensure(said.contains("seq=11 "), "the network does not work after that")?;
    let spoilt = said.contains("the device side spoilt queue 0: packet of length");
    seen.ensure(spoilt, "a number of buffers that cannot be was taken")?;
    told_lies(&seen, seen.serial(2)?, said)
}

/// Tests a driver's lies, against the Linux of a device side that sends the packets on.
fn lies_of_a_driver(bench: &Bench, kernel: &str, notify: &str) -> Result<String, String> {
    let lie = format!("bhvirtio:lie,lan,{LIES},bhvirtio,card,10.9.0.1/24,ping,-c,5,-W,1,10.9.0.2");
    let jobs = [
        &lie[..],
        "sh:-c,bhvirtio${IFS}gate&bhvirtio${IFS}net${IFS}tap0${IFS}lan${IFS}10.9.0.2/24",
    ];
    let seen = look(&two([NEWER, kernel], jobs, notify), bench)?;
    let said = driver(&seen)?;
    let side = seen.serial(2)?;
    seen.ensure(sound(side), "the device side's kernel complains")?;
    seen.ensure(said.contains(PINGED), "the network does not work after that")?;
    told_lies(&seen, said, side)
}

/// Tests such lies at the other end of `bhchannel net`.
fn lies_in_records(bench: &Bench, kernel: &str) -> Result<String, String> {
    let jobs = [
        // The first one waits until there is somebody.
        "sh:-c,bhvirtio${IFS}gate&bhchannel${IFS}net${IFS}bh0${IFS}there${IFS}back${IFS}10.9.0.1/24${IFS}\
         sh${IFS}-c${IFS}'ping${IFS}-c${IFS}1${IFS}-W${IFS}60${IFS}10.9.0.2;ping${IFS}-c${IFS}5${IFS}10.9.0.2'",
        &format!("bhvirtio:lie,back,{LIES},bhchannel,net,bh0,back,there,10.9.0.2/24"),
    ];
    let mut manifest = two([kernel, NEWER], jobs, "poll");
    let (before, _) = manifest.0.split_once("[[channel]]").unwrap_or_default();
    manifest.0 = before.to_owned();
    for (name, from, to) in [("there", "one", "two"), ("back", "two", "one")] {
        let _ = writeln!(
            manifest.0,
            "[[channel]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = [\"{to}\"]\nsize = \"1 MiB\"\nkind = \"records\""
        );
    }
    let seen = look(&manifest, bench)?;
    let said = driver(&seen)?;
    seen.ensure(said.contains(PINGED), "the network does not work after that")?;
    told_lies(&seen, seen.serial(2)?, said)
}

/// That headers lied, and the other side's kernel took enough of these packets.
fn told_lies(seen: &Seen, liar: &str, said: &str) -> Result<String, String> {
    /// Packets that lied, and of those that came through to each place.
    const LEAST: [u64; 2] = [1000, 32];
    let told =
        liar.lines().find_map(|line| line.strip_prefix("bhvirtio: ")?.split_once(" packets with"));
    let told: u64 = told.and_then(|(count, _)| count.parse().ok()).unwrap_or(0);
    seen.ensure(told >= LEAST[0], format!("{told} packets: the rogue is too tame"))?;
    let at = |place: &str| {
        let start = format!("bhvirtio: gate {place}: ");
        said.lines()
            .rev()
            .find_map(|line| line.trim_end().strip_prefix(&start)?.parse::<u64>().ok())
    };
    let came = ["small", "large", "program"].map(|place| at(place).unwrap_or(0));
    let enough = came.iter().all(|count| *count >= LEAST[1]);
    seen.ensure(enough, format!("{came:?} came through: the kernel refuses all"))?;
    Ok(format!("{told} packets lied, at least {came:?} were taken; then the network works"))
}

/// Tests a console with a device side that takes nothing, while the driver's Linux prints more than there is room for.
/// Then another device side replaces it. The driver is not held up, and is unplugged without harm.
fn deaf(bench: &Bench) -> Result<String, String> {
    let jobs = [
        "sh:-c,(sleep${IFS}2;yes|head${IFS}-c${IFS}1000000>/dev/hvc0)&bhvirtio${IFS}terminal",
        "bhvirtio:deaf,lan,6000,bhvirtio,deaf,lan,2000,true",
    ];
    let mut manifest = two([NEWER, NEWER], jobs, "doorbell");
    manifest.0 = manifest.0.replace("ends_with = [\"one\"]", "ends_with = [\"two\"]");
    let seen = look(&manifest, bench)?;
    linux(&seen, "two", 2)?;
    let said = seen.serial(1)?;
    seen.ensure(sound(said), "the driver's kernel complains")?;
    for part in ["a shell on hvc0", "its side began anew", "the shell has ended: signal: 1"] {
        seen.ensure(said.contains(part), format!("the driver's Linux did not say `{part}`"))?;
    }
    Ok("nothing took its output; unplugged without harm".into())
}

/// The driver's Linux begins anew: the device side is told, and serves its next life.
fn restart(bench: &Bench) -> Result<String, String> {
    // A ping waits for a second, and so it has to be away for longer: its kernel alone boots in less.
    let card = "sleep 2; bhvirtio card 10.9.0.1/24 sleep 4".replace(' ', "${IFS}");
    let card = format!("sh:-c,{card} bulkhead.then=reboot");
    let jobs = [&card[..], "bhvirtio:net,tap0,lan,10.9.0.2/24,bhvirtio,reach,10.9.0.1"];
    let mut manifest = two([NEWER, NEWER], jobs, "doorbell");
    manifest.0 = manifest.0.replace("ends_with = [\"one\"]", "ends_with = [\"two\"]");
    let seen = look(&manifest, bench)?;
    let said = linux(&seen, "two", 2)?;
    let lives = said.matches("lan: Begun").count();
    seen.ensure(lives > 1 && said.contains("lan: Lost"), "the device side was not told")?;
    seen.ensure(sound(seen.serial(1)?), "the driver's kernel complains")?;
    Ok(format!("{lives} sessions, {} restarts", seen.sandbox("one")?.restarts))
}
