//! Linux's ends of channels: functions of a virtual PCI bus (ivshmem version 2). Messages of each kind go to and from a
//! bare guest and another Linux, 6.1 and 6.12. Peers see each other's states, also when one ends and begins anew. A
//! hostile Linux attacks the other end, the registers and the configuration. Interrupts come, their number and cost are
//! measured, and a restart leaves none.

use super::device::attacks;
use super::driver::{Bench, Job};
use super::system::{Manifest, Seen, run};
pub use super::system::{NEWER, OLDER, packed};
use bulkhead_layout::report::Kind;
use bulkhead_qemu::Time;
use std::fmt::Write as _;
use std::time::Duration;

/// Kinds, with what else the manifest says of them.
const KINDS: [(&str, &str); 3] = [
    ("queue", "message = 64\nnotify = \"doorbell\""),
    ("records", "notify = \"adaptive\""),
    ("mailbox", "message = 64"),
];
/// Messages of a run.
const COUNT: u32 = 2000;
/// Milliseconds that a rogue has, and periods of 10 ms that its victim has: that time, and a boot's.
const MILLIS: u32 = 2000;
const PERIODS: u32 = MILLIS / 10 + 250;

pub fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for kind in KINDS {
        jobs.push(Job::one(format!("channel/linux-linux-{}", kind.0), 240, move |bench| {
            both_linux(bench, kind)
        }));
    }
    for (kind, sends) in [(KINDS[0], true), (KINDS[1], false), (KINDS[2], false)] {
        let what = if sends { "sends" } else { "receives" };
        let name = format!("channel/linux-{what}-{}", kind.0);
        jobs.push(Job::one(name, 240, move |bench| with_bare(bench, kind, sends)));
    }
    // Bare rogues show the attacks on each kind: they are faster.
    for sends in [true, false] {
        let what = if sends { "sends" } else { "receives" };
        let name = format!("channel/linux-rogue-{what}");
        jobs.push(Job::one(name, 240, move |bench| rogue(bench, KINDS[0], sends)));
    }
    for (kernel, name) in [(NEWER, "6.12"), (OLDER, "6.1")] {
        let name = format!("channel/linux-woken-{name}");
        jobs.push(Job::one(name, 240, move |bench| woken(bench, kernel, false)));
    }
    jobs.push(Job::one("channel/linux-program", 240, rounds));
    jobs.push(Job::one("channel/linux-c", 240, c));
    jobs.push(Job::one("channel/linux-flood", 240, |bench| woken(bench, NEWER, true)));
    jobs.push(Job::one("channel/linux-restart", 240, restart));
    jobs.push(Job::one("channel/linux-lines", 240, lines));
    jobs.push(Job::one("channel/linux-terminal", 240, terminal));
    jobs.push(Job::one("channel/linux-network", 240, network));
    jobs.push(Job::one("channel/linux-network-large", 240, large));
    jobs.push(Job::one("channel/linux-uio", 240, uio));
    jobs.push(Job::one("channel/linux-states", 240, states));
    jobs.push(Job::one("channel/linux-attacks", 240, hostile));
    jobs
}

fn channel(manifest: &mut Manifest, [from, to]: [&str; 2], (kind, more): (&str, &str)) {
    let _ = writeln!(
        manifest.0,
        "[[channel]]\nname = \"news\"\nfrom = \"{from}\"\nto = [\"{to}\"]\nsize = \"8 KiB\"\nkind = \"{kind}\"\n{more}"
    );
}

/// Each Linux has its kernel's drivers: a receiver that is woken needs one.
fn look(manifest: &Manifest, bench: &Bench) -> Result<Seen, String> {
    run(&equipped(manifest), &bench.dir, |o| o.limit = Duration::from_secs(220))
}

fn equipped(manifest: &Manifest) -> Manifest {
    let with = |line: &str| match line.split_once("artifact:linux-") {
        Some((_, kernel)) => {
            let kernel = kernel.split('"').next().unwrap_or_default();
            line.replace("artifact:test.cpio", &format!("artifact:disk-{}.cpio", packed(kernel)))
        }
        None => line.to_owned(),
    };
    Manifest(manifest.0.lines().flat_map(|line| [with(line), "\n".into()]).collect())
}

/// Runs the manifest where a guest keeps deadlines.
fn look_in_time(manifest: &Manifest, bench: &Bench) -> Result<Seen, String> {
    run(&equipped(manifest), &bench.dir, |o| {
        o.time = Time::coarse();
        o.limit = Duration::from_secs(220);
    })
}

/// A Linux's job as the kernel's command line has it.
fn talk(words: &str) -> String {
    format!("bhchannel:talk,channel=news,{words}")
}

/// Returns the lines that a Linux printed; it ended well.
pub fn linux<'a>(seen: &'a Seen, name: &str, serial: usize) -> Result<&'a str, String> {
    let said = seen.serial(serial)?;
    seen.ensure(said.contains("bulkhead-init: exit code 0"), format!("{name} failed"))?;
    // A kernel looks for serial ports where another sandbox has one.
    let denied =
        |d: &&bulkhead_explain::Explained| d.sandbox == name && d.record.kind != Kind::Port as u16;
    match seen.denials.iter().find(denied) {
        Some(denial) => Err(seen.wrong(format!("{name} was denied something: {denial}"))),
        None => Ok(said),
    }
}

fn received(seen: &Seen, said: &str) -> Result<String, String> {
    let all = format!("received up to {COUNT}, 0 wrong");
    seen.ensure(said.contains(&all), "it was not received as it was sent")?;
    Ok(all)
}

fn both_linux(bench: &Bench, kind: (&str, &str)) -> Result<String, String> {
    let job = |role: &str| talk(&format!("role={role},count={COUNT}"));
    let mut manifest = Manifest::new()
        .ends_with(&["one", "two"])
        .linux("one", NEWER, &job("send"), &[0], "256 MiB", 1)
        .linux("two", OLDER, &job("receive"), &[1], "256 MiB", 2);
    channel(&mut manifest, ["one", "two"], kind);
    let seen = look(&manifest, bench)?;
    linux(&seen, "one", 1)?;
    received(&seen, linux(&seen, "two", 2)?)
}

fn with_bare(bench: &Bench, kind: (&str, &str), sends: bool) -> Result<String, String> {
    let [own, other] = if sends { ["send", "receive"] } else { ["receive", "send"] };
    let mut manifest = Manifest::new()
        .ends_with(&["linux", "bare"])
        .linux("linux", NEWER, &talk(&format!("role={own},count={COUNT}")), &[0], "256 MiB", 1)
        .bare(
            "bare",
            "talk",
            &format!("role={other} channel=news count={COUNT}"),
            &[1],
            "4 MiB",
            "",
        );
    let ends = if sends { ["linux", "bare"] } else { ["bare", "linux"] };
    channel(&mut manifest, ends, kind);
    let seen = look(&manifest, bench)?;
    seen.exited("bare")?;
    let said = linux(&seen, "linux", 1)?;
    received(&seen, if sends { &seen.console } else { said })
}

/// A Linux that writes garbage into its own end for two seconds, then to the bare victim's.
fn rogue(bench: &Bench, kind: (&str, &str), sends: bool) -> Result<String, String> {
    let ends = if sends { ["linux", "victim"] } else { ["victim", "linux"] };
    let victim = format!("role=victim channel=news count={PERIODS}");
    let job = talk(&format!("role=rogue,ms={MILLIS},poke=1"));
    let mut manifest = Manifest::new()
        .ends_with(&["victim", "linux"])
        .bare("victim", "talk", &victim, &[0], "4 MiB", "")
        .linux("linux", NEWER, &job, &[1], "256 MiB", 1);
    channel(&mut manifest, ends, kind);
    let seen = look_in_time(&manifest, bench)?;
    seen.undisturbed("victim", &["exited"])?;
    seen.exited("victim")?;
    let kept = format!("victim missed 0 of {PERIODS}");
    seen.ensure(seen.console.contains(&kept), "the victim did not keep its deadlines")?;
    let spoilt = kind.0 == "mailbox" || seen.console.contains("some corrupted");
    seen.ensure(spoilt, "nothing was spoilt: the rogue is too tame")?;
    let denied = seen.denials.last().ok_or_else(|| seen.wrong("no denial"))?;
    let right = denied.sandbox == "linux" && denied.record.kind == Kind::Memory as u16;
    seen.ensure(right && seen.denials.len() == 1, "not one denial, of a write to the victim's")?;
    Ok(format!("{PERIODS} periods kept; then: {denied}"))
}

/// A line of one is printed by the other.
fn lines(bench: &Bench) -> Result<String, String> {
    let job = "sh:-c,echo${IFS}good${IFS}news|bhchannel${IFS}send${IFS}news";
    let mut manifest = Manifest::new()
        .ends_with(&["one", "two"])
        .linux("one", NEWER, job, &[0], "256 MiB", 1)
        .linux("two", OLDER, "bhchannel:receive,news,1", &[1], "256 MiB", 2);
    channel(&mut manifest, ["one", "two"], KINDS[1]);
    let seen = look(&manifest, bench)?;
    linux(&seen, "one", 1)?;
    let said = linux(&seen, "two", 2)?;
    seen.ensure(said.lines().any(|line| line.trim_end() == "good news"), "no news")?;
    Ok("good news".into())
}

/// A shell of one on a terminal of the other.
fn terminal(bench: &Bench) -> Result<String, String> {
    // The answer is not in the line, which comes back as it is typed.
    let ask = "bhchannel:ask,keys,screen,tty;echo${IFS}sum$((40+2)),sum42";
    let mut manifest = Manifest::new()
        .ends_with(&["one"])
        .linux("one", NEWER, ask, &[0], "256 MiB", 1)
        .linux("two", OLDER, "bhchannel:serve,screen,keys", &[1], "256 MiB", 2);
    there_and_back(&mut manifest, ["keys", "screen"]);
    let seen = look(&manifest, bench)?;
    let said = linux(&seen, "one", 1)?;
    seen.ensure(said.contains("/dev/pts/0") && said.contains("sum42"), "no shell answered")?;
    Ok("its shell is on /dev/pts/0 and adds up".into())
}

/// Channels between two, one each way.
fn there_and_back(manifest: &mut Manifest, [there, back]: [&str; 2]) {
    for (name, from, to) in [(there, "one", "two"), (back, "two", "one")] {
        let _ = writeln!(
            manifest.0,
            "[[channel]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = [\"{to}\"]\nsize = \"8 KiB\"\nkind = \"records\"\nnotify = \"doorbell\""
        );
    }
}

/// Packets between two, by the kernel's own driver.
fn network(bench: &Bench) -> Result<String, String> {
    let mut manifest = Manifest::new()
        .ends_with(&["one"])
        .linux(
            "one",
            NEWER,
            "bhchannel:net,bh0,there,back,10.9.0.1/24,ping,-c,5,10.9.0.2",
            &[0],
            "256 MiB",
            1,
        )
        .linux("two", NEWER, "bhchannel:net,bh0,back,there,10.9.0.2/24", &[1], "256 MiB", 2);
    there_and_back(&mut manifest, ["there", "back"]);
    let seen = look(&manifest, bench)?;
    let all = "5 packets transmitted, 5 packets received";
    seen.ensure(linux(&seen, "one", 1)?.contains(all), "packets were lost")?;
    Ok(all.into())
}

/// Sends a file of 2 MB by TCP through rings with room for packets of 64 KiB. It arrives unchanged, in far fewer
/// packets than with an MTU of 1,500 bytes.
fn large(bench: &Bench) -> Result<String, String> {
    /// By 1,448 bytes each it is more than 1,300.
    const PACKETS: u32 = 400;
    // A connection that is begun before the other end is there has small packets for good.
    const HEARD: &str = "ping${IFS}-c${IFS}1${IFS}-W${IFS}60${IFS}10.9.0.2";
    const SENT: &str = "nc${IFS}10.9.0.2${IFS}7</bin/busybox";
    let send = format!(
        "bhchannel:net,bh0,there,back,10.9.0.1/24,sh,-c,md5sum</bin/busybox;{HEARD};sleep${{IFS}}1;{SENT}||(sleep${{IFS}}4;{SENT})"
    );
    let receive = "bhchannel:net,bh0,back,there,10.9.0.2/24,sh,-c,nc${IFS}-l${IFS}-p${IFS}7|md5sum;cat${IFS}/proc/net/dev";
    let mut manifest = Manifest::new()
        .ends_with(&["one", "two"])
        .linux("one", NEWER, &send, &[0], "256 MiB", 1)
        .linux("two", OLDER, receive, &[1], "256 MiB", 2);
    there_and_back(&mut manifest, ["there", "back"]);
    manifest.0 = manifest.0.replace("\"8 KiB\"", "\"1 MiB\"");
    // TCP makes its packets as large as a round trip is short: the two cores have to take turns often.
    let seen = look_in_time(&manifest, bench)?;
    let (sent, received) = (linux(&seen, "one", 1)?, linux(&seen, "two", 2)?);
    let sum = |said: &str| said.lines().find_map(|line| Some(line.split_once("  -")?.0.to_owned()));
    let arrived = sum(received);
    seen.ensure(arrived.is_some() && arrived == sum(sent), "another file arrived")?;
    let counts = received.lines().find_map(|line| line.trim().strip_prefix("bh0:"));
    let packets = counts.and_then(|counts| counts.split_whitespace().nth(1)?.parse::<u32>().ok());
    let packets = packets.ok_or("the device said nothing of its packets")?;
    seen.ensure(packets < PACKETS, format!("{packets} packets: they were cut up"))?;
    Ok(format!("2 MB in {packets} packets"))
}

/// The kernel's generic driver takes the function.
fn uio(bench: &Bench) -> Result<String, String> {
    let job = "sh:-c,modprobe${IFS}uio_pci_generic;echo${IFS}110a${IFS}4106>/sys/bus/pci/drivers/uio_pci_generic/new_id;\
        cat${IFS}/sys/class/uio/uio0/name";
    let mut manifest = Manifest::new()
        .ends_with(&["one"])
        .linux("one", NEWER, job, &[0], "256 MiB", 1)
        .bare("two", "talk", "role=receive channel=news count=1", &[1], "4 MiB", "");
    channel(&mut manifest, ["one", "two"], KINDS[0]);
    let seen = look(&manifest, bench)?;
    let bound = |line: &str| line.trim_end() == "uio_pci_generic";
    seen.ensure(linux(&seen, "one", 1)?.lines().any(bound), "it is not bound")?;
    Ok("uio0 is uio_pci_generic".into())
}

/// Peers see states, and that one has ended: its state is 0 again before it begins anew.
fn states(bench: &Bench) -> Result<String, String> {
    let mut manifest = Manifest::new()
        .ends_with(&["two"])
        .linux("one", NEWER, "bhchannel:state,news,7,200 bulkhead.then=reboot", &[0], "256 MiB", 1)
        .linux("two", OLDER, "bhchannel:until,news,0,7,0,7", &[1], "256 MiB", 2);
    channel(&mut manifest, ["one", "two"], KINDS[0]);
    let seen = look(&manifest, bench)?;
    linux(&seen, "two", 2)?;
    let again = seen.sandbox("one")?.restarts;
    seen.ensure(again > 0, "it did not begin anew")?;
    Ok(format!("7, 0, 7 over {again} restarts"))
}

/// Sleeps between messages, and no exit for any of them but the driver's read of the status register; or under one who
/// rings for ever. At most an interrupt for each time that the receiver asked, and one when it began to listen.
fn woken(bench: &Bench, kernel: &str, flood: bool) -> Result<String, String> {
    /// Configuration exits of a Linux that binds its driver, and at last masks each line of its IOAPIC: some 320.
    const ELSE: u64 = 360;
    // News of the sender ends it. Its time ends a flood, for exits are slow where they are emulated.
    // At least so many interrupts and messages: a flood's messages come one a millisecond. Cores run in turns, and in
    // the first 40 ms the Linux has so few that it takes hardly an interrupt; later 25 a millisecond.
    let (millis, role, least) = match flood {
        true => (100, "role=flood ms=1000000", [100, 4]),
        // A pause in which its scheduler puts it to sleep, also on a host with much else to do.
        false => (1_000_000, "role=send count=600 gap=3000", [400, 400]),
    };
    let job = format!(
        "sh:-c,bhchannel${{IFS}}talk${{IFS}}channel=news${{IFS}}role=woken${{IFS}}ms={millis}&&\
        grep${{IFS}}uio_pci_generic${{IFS}}/proc/interrupts"
    );
    let mut manifest = Manifest::new()
        .ends_with(&["linux"])
        .linux("linux", kernel, &job, &[0], "256 MiB", 1)
        .bare("bare", "talk", &format!("{role} channel=news"), &[1], "4 MiB", "");
    channel(&mut manifest, ["bare", "linux"], KINDS[0]);
    // Where cores run in turns, one who rings does so for all of its turn.
    let seen = if flood { look_in_time(&manifest, bench)? } else { look(&manifest, bench)? };
    let said = linux(&seen, "linux", 1)?;
    let count = |what: &str| -> Result<u64, String> {
        let all = said.lines().find(|line| line.contains("armings"));
        let words: Vec<&str> = all.unwrap_or_default().split([' ', ',']).collect();
        let at = words.iter().position(|word| *word == what).and_then(|at| at.checked_sub(1));
        let number = at.and_then(|at| words[at].parse().ok());
        number.ok_or_else(|| seen.wrong(format!("it does not say how many {what}")))
    };
    let (armings, messages) = (count("armings")?, count("messages")?);
    let taken = |line: &str| -> Option<u64> {
        let (numbers, _) =
            line.strip_suffix("uio_pci_generic").map(str::trim)?.split_once("IO-APIC")?;
        numbers.split_once(':')?.1.split_whitespace().map(|n| n.parse::<u64>().ok()).sum()
    };
    let interrupts = said.lines().find_map(|line| taken(line.trim_end()));
    let interrupts = interrupts.ok_or_else(|| seen.wrong("the kernel counts no interrupt"))?;
    seen.ensure(interrupts <= armings + 1, format!("{interrupts} for {armings} armings"))?;
    let enough = interrupts >= least[0] && messages >= least[1];
    seen.ensure(enough, format!("{interrupts} interrupts, {messages} messages"))?;
    let exits = &seen.sandbox("linux")?.exits.steady;
    let config = exits.get("config").copied().unwrap_or(0);
    seen.ensure(config <= ELSE + interrupts, format!("{exits:?} for {messages} messages"))?;
    Ok(format!(
        "{interrupts} interrupts, {armings} armings, {messages} messages, {config} configuration exits"
    ))
}

/// Rounds between a Linux and a program, and the number of rounds in which both have to sleep. On a busy host a message
/// may be there already. Microseconds before each message, for the other end to go to sleep.
const ROUNDS: u64 = 300;
const SLEPT: u64 = 200;
const PAUSE: u64 = 1_000;

/// Sends between a Linux and a program of a kernel, through channels with receivers that sleep. The program sleeps at
/// its notification, Linux on a file descriptor.
fn rounds(bench: &Bench) -> Result<String, String> {
    let job =
        format!("bhchannel:talk,channel=there,and=back,role=round,count={ROUNDS},gap={PAUSE}");
    let seen = look(&with_program(&job, "back"), bench)?;
    let said = linux(&seen, "linux", 1)?;
    let slept = slept(&seen, &seen.console)?;
    let linux = self::slept(&seen, said)?;
    Ok(format!("{ROUNDS} rounds; a program woken {slept} times, Linux {linux}"))
}

/// Sends rounds with a Linux' program in C, which sleeps in a loop of its own.
fn c(bench: &Bench) -> Result<String, String> {
    let job = format!("bhback:back,there,{ROUNDS}");
    let seen = look(&with_program(&job, "round"), bench)?;
    let said = linux(&seen, "linux", 1)?;
    let slept = slept(&seen, &seen.console)?;
    let words = said.lines().find_map(|line| line.strip_prefix("bhback: "));
    let words: Vec<&str> = words.unwrap_or_default().split([' ', ',']).collect();
    let [messages, "messages", "", "slept", times, ..] = words[..] else {
        return Err(seen.wrong("bhback does not say what it did"));
    };
    let all = messages.parse() == Ok(ROUNDS);
    seen.ensure(all, format!("{messages} messages, not {ROUNDS}"))?;
    let often = times.parse::<u64>().is_ok_and(|times| times >= SLEPT);
    seen.ensure(often, format!("it slept {times} times"))?;
    Ok(format!("{ROUNDS} rounds; a program woken {slept} times, C slept {times}"))
}

/// How often who says it was woken in all rounds: no more often than it asked, but for once.
fn slept(seen: &Seen, said: &str) -> Result<u64, String> {
    let all = format!("{ROUNDS} rounds, ");
    let numbers = said.lines().find_map(|line| Some(line.split_once(&all)?.1));
    let numbers = numbers.ok_or_else(|| seen.wrong("not all rounds"))?;
    let mut numbers = numbers.split(' ').filter_map(|word| word.parse::<u64>().ok());
    let (Some(woken), Some(armings)) = (numbers.next(), numbers.next()) else {
        return Err(seen.wrong("it does not say how often it slept"));
    };
    let told = format!("{woken} interrupts for {armings} armings");
    seen.ensure((SLEPT..=armings + 1).contains(&woken), told)?;
    Ok(woken)
}

/// A Linux that sends through `there` and receives through `back`, and a program of a kernel at the other ends.
fn with_program(job: &str, role: &str) -> Manifest {
    let mut manifest = Manifest::new().ends_with(&["linux", "program"]).linux(
        "linux",
        NEWER,
        job,
        &[0],
        "256 MiB",
        1,
    );
    for (name, from, to) in [("there", "linux", "program"), ("back", "program", "linux")] {
        let _ = writeln!(
            manifest.0,
            "[[channel]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = [\"{to}\"]\nsize = \"4 KiB\"\nkind = \"queue\"\nmessage = 64\nnotify = \"doorbell\""
        );
    }
    let _ = writeln!(
        manifest.0,
        r#"[[sandbox]]
name = "program"
guest = {{ kind = "kernel" }}
cores = [1]
memory = "16 MiB"
[[program]]
name = "program"
sandbox = "program"
file = "artifact:program-talk"
args = "role={role} channel=there and=back count={ROUNDS} gap={PAUSE}"
ends_sandbox = true
channels = ["back", {{ channel = "there", notification = "news" }}]
signals = ["pause"]
waits = ["pause", "news"]
[[notification]]
name = "news"
sandbox = "program"
[[notification]]
name = "pause"
sandbox = "program"
[[context]]
name = "main"
sandbox = "program"
budget = "900 us"
period = "1 ms"
[[thread]]
name = "main"
program = "program"
priority = 100
context = "main""#
    );
    manifest
}

/// A receiver begins anew twice: it is woken in each of its lives, and nothing of a former one comes to it.
fn restart(bench: &Bench) -> Result<String, String> {
    // The ring holds 112: so the sender needs three sessions.
    let job = "sh:-c,bhchannel${IFS}receive${IFS}news${IFS}4>/dev/null bulkhead.then=reboot";
    let mut manifest = Manifest::new()
        .ends_with(&["bare"])
        .linux("linux", NEWER, job, &[0], "256 MiB", 1)
        .bare("bare", "talk", "role=send channel=news count=300", &[1], "4 MiB", "");
    channel(&mut manifest, ["bare", "linux"], KINDS[0]);
    let seen = look(&manifest, bench)?;
    seen.exited("bare")?;
    let lives = seen.sandbox("linux")?.restarts;
    seen.ensure(lives >= 2, format!("{lives} restarts"))?;
    // As a kernel says that a vector came which it has not given away.
    let stray = seen.serial(1)?.contains("No irq handler for vector");
    seen.ensure(!stray, "an interrupt of a former life came")?;
    Ok(format!("300 messages over {lives} restarts"))
}

fn hostile(bench: &Bench) -> Result<String, String> {
    let victim = format!("role=victim channel=news count={PERIODS}");
    let mut manifest = Manifest::new()
        .ends_with(&["victim", "linux"])
        .bare("victim", "talk", &victim, &[0], "4 MiB", "")
        .linux("linux", NEWER, "bhchannel:attack,back,news", &[1], "256 MiB", 1);
    channel(&mut manifest, ["linux", "victim"], KINDS[0]);
    let _ = writeln!(
        manifest.0,
        "[[channel]]\nname = \"back\"\nfrom = \"victim\"\nto = [\"linux\"]\nsize = \"4 KiB\"\nkind = \"records\"\nnotify = \"doorbell\""
    );
    let seen = look_in_time(&manifest, bench)?;
    seen.undisturbed("victim", &["exited"])?;
    let kept = format!("victim missed 0 of {PERIODS}");
    seen.ensure(seen.console.contains(&kept), "the victim did not keep its deadlines")?;
    let (all, denied) = attacks(&seen, 1, "write-states")?;
    Ok(format!("{all} attacks, {denied} denials"))
}
