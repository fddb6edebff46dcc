//! Unmodified Linux on its own disk and network card in a sandbox: every kernel and kind of device that `disk` has on
//! the bare machine. They run two at once, through restarts, and on a machine without an IOMMU. All of it is in virtual
//! time, for the reason given in `disk`.

use super::disk::{self, done, work};
use super::driver::{Job, tail};
use super::system::{Manifest, Seen, brief, run};
use bulkhead_qemu::{Peer, Time};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// A sandbox.
#[derive(Clone, Copy)]
struct Linux {
    name: &'static str,
    /// Name in `tools/kernels.sh`, without `linux-`.
    kernel: &'static str,
    cores: &'static [u32],
    /// Its console, by COM port from 0.
    uart: u32,
    /// The machine's drive that is the disk, the disk's function, its name in Linux.
    disk: (&'static str, &'static str, &'static str),
    /// The network card's function and driver.
    card: (&'static str, &'static str),
    /// As a manifest has it.
    memory: &'static str,
}

const VIRTIO: Linux = Linux {
    name: "linux",
    kernel: "6.12-cloud",
    cores: &[0],
    uart: 1,
    disk: ("disk0", "00:03.0", "/dev/vda"),
    card: ("00:05.0", "virtio_net"),
    memory: "\"512 MiB\"",
};
/// Another one, beside it.
const SECOND: Linux = Linux {
    name: "second",
    kernel: "6.1-cloud",
    cores: &[1],
    uart: 2,
    disk: ("disk1", "00:04.0", "/dev/vda"),
    card: ("00:06.0", "virtio_net"),
    ..VIRTIO
};
const NVME: (&str, &str, &str) = ("disk2", "00:07.0", "/dev/nvme0n1");
const AHCI: (&str, &str, &str) = ("disk3", "00:1f.2", "/dev/sda");
const E1000E: (&str, &str) = ("01:00.0", "e1000e");

impl Linux {
    /// Adds it, with its drive, to a manifest.
    fn add(&self, manifest: Manifest, job: &str) -> Manifest {
        let ((drive, disk, root), (card, driver)) = (self.disk, self.card);
        let mut manifest = manifest.drive(drive, "debian.img");
        let Self { name, kernel, cores, uart, memory, .. } = self;
        let cmdline = format!(
            "console=ttyS{uart},115200 {}bulkhead.root={root} bulkhead.net={driver} bulkhead.run={job}",
            brief(".elf")
        );
        let _ = writeln!(
            manifest.0,
            "[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"linux\", kernel = \"artifact:linux-{kernel}.elf\", initrd = \"artifact:disk-{kernel}.cpio\", cmdline = \"{cmdline}\" }}\ncores = {cores:?}\nmemory = {memory}\ndevices = [\"uart{uart}\", \"pci:{disk}\", \"pci:{card}\"]"
        );
        manifest
    }
}

/// A run of everything, or of a little of each.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    machine: &'static str,
    linux: &'static [Linux],
    all: bool,
}

/// With a metronome: a disk's answer takes the host's time, and without one 30 s of
/// an idle guest's may have passed until then.
const TIME: Time = Time::Virtual { metronome: Some(50) };
/// Longest wall time of a run in seconds; an idle host needs a tenth.
const LIMIT: u64 = 500;

pub fn jobs() -> Vec<Job> {
    const PLAIN: Linux = Linux { card: E1000E, ..VIRTIO };
    let machine = "qemu-q35";
    let some = |name, linux| Case { name, machine, linux, all: false };
    let vtd = |name, linux| Case { machine: "qemu-q35-vtd", ..some(name, linux) };
    let cases = [
        Case { name: "linux-io/two", machine, linux: &[VIRTIO, SECOND], all: true },
        vtd("vtd/linux-two", &[VIRTIO, Linux { cores: &[1, 2], ..SECOND }]),
        vtd("vtd/linux-nvme", &[Linux { disk: NVME, ..VIRTIO }]),
        vtd("vtd/linux-ahci-e1000e", &[Linux { kernel: "6.12", disk: AHCI, ..PLAIN }]),
        some("linux-io/two-cores", &[Linux { cores: &[0, 1], ..VIRTIO }]),
        some("linux-io/nvme", &[Linux { disk: NVME, ..VIRTIO }]),
        some("linux-io/ahci-e1000e", &[Linux { kernel: "6.12", disk: AHCI, ..PLAIN }]),
        some("linux-io/linux-6.1", &[Linux { kernel: "6.1", disk: NVME, ..PLAIN }]),
    ];
    let works = cases
        .into_iter()
        .map(|case| Job::one(case.name, LIMIT + 20, move |bench| works(&case, &bench.dir)));
    let mut jobs: Vec<_> = works.collect();
    jobs.push(Job::one("linux-io/sees", 120, |bench| sees(&bench.dir)));
    jobs.push(Job::one("linux-io/reboot", 300, |bench| reboot(&bench.dir)));
    jobs.push(Job::one("linux-io/crash", 300, |bench| crash(&bench.dir)));
    jobs.push(Job::one("linux-io/stopped-under-load", 400, |bench| stopped(&bench.dir)));
    jobs
}

fn works(case: &Case, dir: &Path) -> Result<String, String> {
    let mut manifest = Manifest::on(case.machine);
    let mut peers = Vec::new();
    for linux in case.linux {
        let mut peer = Peer::start().map_err(|e| e.to_string())?;
        peer.iperf3(&dir.join(linux.name)).map_err(|e| e.to_string())?;
        manifest = linux.add(manifest, &work(&peer, linux.disk.2, case.all));
        peers.push(peer);
    }
    let before = disk::state()?;
    let seen = run(&manifest, dir, |options| {
        options.time = TIME;
        options.limit = Duration::from_secs(LIMIT);
    })?;
    if disk::state()? != before {
        return Err("the image was written to".into());
    }
    let mut remarks = Vec::new();
    for linux in case.linux {
        undisturbed(&seen, linux)?;
        let said = seen.serial(linux.uart as usize)?;
        done(said, case.all).map_err(|why| seen.wrong(why))?;
        let exits = &seen.sandbox(linux.name)?.exits;
        remarks.push(format!("{}: exits {:?} {:?}", linux.name, exits.boot, exits.steady));
    }
    Ok(remarks.join("; "))
}

/// Checks that it powered off by itself, and was denied only accesses that its kernel tries on any PC. These are the
/// other serial ports, where another sandbox's are (absent ones would be silent). Kernels for real machines also unhide
/// function 1 of an Intel south bridge (drivers/platform/x86/p2sb.c).
fn undisturbed(seen: &Seen, linux: &Linux) -> Result<(), String> {
    const P2SB: &str = "configuration register 0xe0 of 00:1f.1";
    let s = seen.sandbox(linux.name)?;
    let right = s.state == "stopped" && s.restarts == 0;
    seen.ensure(right, format!("{} is {}, {} restarts", s.name, s.state, s.restarts))?;
    let expected = |text: &str| {
        text.contains("(class uart16550)")
            || !linux.kernel.ends_with("-cloud") && text.contains(P2SB)
    };
    let denied = seen.denials.iter().map(ToString::to_string).find(|text| !expected(text));
    denied.map_or(Ok(()), |text| Err(seen.wrong(text)))
}

/// A program of the shell's: a parameter of the kernel has no blanks, and init takes
/// commas for them. Words of the language itself cannot come from an expansion, so
/// there are none of them.
fn script(text: &str) -> String {
    format!("bash:-c,{}", text.replace(' ', "${IFS}"))
}

/// Prints what Linux finds on its PCI bus.
const LIST: &str = "cd /sys/bus/pci/devices;grep . */vendor */device */class";

/// Compares what that printed.
fn found(seen: &Seen, linux: &Linux, expected: &[(&str, &str)]) -> Result<String, String> {
    undisturbed(seen, linux)?;
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for line in seen.serial(1)?.lines().filter(|line| line.starts_with("0000:")) {
        let (function, attribute) = line.split_once('/').unwrap_or((line, ""));
        found.entry(function).or_default().push(attribute.rsplit(':').next().unwrap_or("").trim());
    }
    let found: Vec<_> = found.into_iter().map(|(f, ids)| (f, ids.join(" "))).collect();
    let same = found.iter().map(|(function, ids)| (*function, &**ids)).eq(expected.iter().copied());
    seen.ensure(same, format!("it sees {found:#?}"))?;
    Ok(format!("{} functions", found.len()))
}

/// Checks the functions that a Linux sees: its own ones, the bridge above one of them, and a placeholder. The
/// placeholder is function 0 of the other one's slot: a Linux without it would not look at that slot.
fn sees(dir: &Path) -> Result<String, String> {
    const EXPECTED: [(&str, &str); 4] = [
        ("0000:00:02.0", "0x1b36 0x000c 0x060400"),
        ("0000:00:1f.0", "0x1b36 0x00bd 0xff0000"),
        ("0000:00:1f.2", "0x8086 0x2922 0x010601"),
        ("0000:01:00.0", "0x8086 0x10d3 0x020000"),
    ];
    let linux = Linux { disk: AHCI, card: E1000E, kernel: "6.12", ..VIRTIO };
    let manifest = linux.add(Manifest::new(), &script(LIST));
    let seen = run(&manifest, dir, |options| options.limit = Duration::from_secs(100))?;
    found(&seen, &linux, &EXPECTED)
}

/// Lives that a rebooting Linux is given, the first one included.
const LIVES: usize = 3;

/// Linux reboots by itself, each time after it has used both devices.
fn reboot(dir: &Path) -> Result<String, String> {
    let peer = Peer::start().map_err(|e| e.to_string())?;
    let [address] = &peer.arguments()[..] else { return Err("no address".into()) };
    let job = format!("bhio:{address},disk=/dev/vda,rand4k=50,udp=20 bulkhead.then=reboot");
    lives(&VIRTIO, &job, "bhio: done", dir)
}

/// Tests a Linux that resets itself while its disk and its card are busy, without a word to them. Its earlier writes to
/// the disk are there in the next life.
fn crash(dir: &Path) -> Result<String, String> {
    let peer = Peer::start().map_err(|e| e.to_string())?;
    let [address] = &peer.arguments()[..] else { return Err("no address".into()) };
    let linux = Linux { cores: &[0, 1], ..VIRTIO };
    let job = script(&format!(
        "echo life >>/root/lives;sync;wc -l /root/lives;\
         bhio disk=/dev/vda rand4k=9999999&bhio {address} tcp_from=9999&\
         dd if=/dev/zero of=/root/big bs=1M count=200 oflag=direct&\
         sleep .3;echo b >/proc/sysrq-trigger;sleep 99"
    ));
    let remark = lives(&linux, &job, " /root/lives", dir)?;
    let said = std::fs::read_to_string(dir.join("serial1.log")).map_err(|e| e.to_string())?;
    for life in 1..=LIVES {
        let line = format!("{life} /root/lives");
        if !said.contains(&line) {
            return Err(format!("no {line:?}\n{}", tail(&said)));
        }
    }
    Ok(remark)
}

/// Runs it until its console has shown `trace` in each of its lives.
fn lives(linux: &Linux, job: &str, trace: &str, dir: &Path) -> Result<String, String> {
    let console = dir.join("serial1.log");
    let trace = trace.to_owned();
    // The command line, which the console shows too, has `${IFS}` before it.
    let seen = run(&linux.add(Manifest::new(), job), dir, |options| {
        options.time = TIME;
        options.limit = Duration::from_secs(280);
        options.stop = Some(Box::new(move || {
            std::fs::read_to_string(&console)
                .is_ok_and(|said| said.matches(&trace).count() >= LIVES)
        }));
    })?;
    let s = seen.sandbox(linux.name)?;
    seen.ensure(s.state == "running" && s.denials == 0, "it was stopped or denied something")?;
    seen.ensure(s.restarts + 1 == LIVES as u64, format!("{} restarts", s.restarts))?;
    Ok(format!("{} restarts, each one up again from its disk", s.restarts))
}

/// A warden restarts Linux and later stops it, both in the midst of disk and network
/// load. The next life does its work, and a witness's memory stays as it is. `drive` tests a disk's late answers to a
/// life that has ended.
fn stopped(dir: &Path) -> Result<String, String> {
    const TRACE: &str = "row io.net_udp ";
    let peer = Peer::start().map_err(|e| e.to_string())?;
    let [address] = &peer.arguments()[..] else { return Err("no address".into()) };
    let job = script(&format!(
        "bhio {address} disk=/dev/vda rand4k=20 udp=20;\
         bhio {address} tcp_from=9999&bhio disk=/dev/vda rand4k=9999999"
    ));
    let mut manifest = Manifest::new().ends_with(&["warden"]);
    let steps =
        "do=wait,nap,nap,restart,nap,nap,stop,sleep,sleep,sleep,sleep,sleep nap=2000 target=1";
    manifest = manifest.bare(
        "warden",
        "warden",
        steps,
        &[1],
        "4 MiB",
        "stop = [\"linux\"]\nstart = [\"linux\"]\nrestart = [\"linux\"]",
    );
    manifest = VIRTIO.add(manifest, &job);
    manifest = manifest.bare("witness", "victim", "", &[2], "8 MiB", "");
    let seen = run(&manifest, dir, |options| {
        options.time = TIME;
        options.limit = Duration::from_secs(380);
    })?;
    seen.exited("warden")?;
    seen.undisturbed("witness", &["running"])?;
    let s = seen.sandbox(VIRTIO.name)?;
    seen.ensure(s.state == "stopped", format!("it is {}", s.state))?;
    seen.ensure(s.restarts == 1 && s.denials == 0, format!("{} restarts", s.restarts))?;
    let said = seen.serial(1)?;
    let works = said.matches(TRACE).count();
    seen.ensure(works == 2, format!("it came to its load {works} times, not 2"))?;
    Ok("restarted and stopped under load".into())
}
