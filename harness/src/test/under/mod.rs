//! An image that starts under a Linux that runs (docs/under-linux.md). It comes and goes under load, each step is made
//! to fail, and this Linux loses nothing. It is audited, and attacked.
//!
//! The machine has AMD's processor and its IOMMU, which confines this Linux' devices: then it is in xAPIC mode. Others
//! have Intel's IOMMU beside it. QEMU remaps a Linux' interrupts with that, so this Linux is in x2APIC mode.

mod attack;
mod audit;
pub mod bays;
mod channels;
mod mutant;
mod restart;

pub use mutant::{LOCAL, RELEASE};

use super::driver::{Bench, Job};
use super::system::artifacts;
use bulkhead_initramfs::{Archive, Entry};
use bulkhead_manifest::{Checked, load};
use bulkhead_plan::Drive;
use bulkhead_qemu::{Error, Machine, Running, Serial, Time};
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Bytes that go to disks and to the host.
const PATTERN: usize = 1 << 20;
/// The module that attacks, for Debian's newer kernel for clouds.
const STRIKE: &str = "bhstrike.ko";
/// An image of [`asking`].
const ASKS: &str = "ask.img";
/// A script's first word: nothing of ours has run until then.
const BEGINS: &str = "under: begins";
/// The word that ends a script that succeeded.
const DONE: &str = "under: done";

/// A machine on which a Linux runs first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// That of `machines/qemu-q35.toml`, with AMD's IOMMU, which the Linux leaves alone.
    Confined,
    /// Likewise, and it gives one away.
    Gives,
    /// Likewise, and it gives none away, and can begin anew.
    Again,
    /// That machine, and the Linux uses its IOMMU.
    Uses,
    /// With Intel's IOMMU, by which the Linux has its interrupts remapped.
    Remaps,
    /// Without one.
    Plain,
}

/// Images with systems of their own: their files, and what loads the system.
const OTHERS: [(&str, Loads); 4] = [
    (bays::IMAGE, bays::system),
    (bays::HOTPLUG, bays::with_channels),
    (channels::IMAGE, channels::system),
    (restart::IMAGE, restart::system),
];
type Loads = fn(&Bench) -> Result<Checked, String>;

/// A Linux that boots with a script.
struct Linux<'a> {
    kernel: &'a str,
    cores: usize,
    script: &'a str,
    arguments: String,
    machine: Kind,
    /// Kinds of disks.
    disks: &'a [&'a str],
    limit: Duration,
}

pub fn jobs() -> Vec<Job> {
    let mut jobs = vec![
        Job::one("under/rounds", 300, |bench| rounds(bench, &remapped(50, 280))),
        Job::one("under/rounds-2000", 8_000, |bench| rounds(bench, &remapped(2_000, 7_900))),
        Job::one("under/confined", 300, |bench| rounds(bench, &confined_load(20, 280))),
        Job::one("under/devices", 300, |bench| rounds(bench, &given(10, 280))),
        Job::one("under/devices-each", 250, each_device),
        Job::one("under/refused", 150, refused),
        Job::one("under/refused-states", 150, states),
        Job::one("under/release", 100, |bench| {
            release(bench, include_str!("release.sh"), "one was ended, and one not")
        }),
        Job::one("under/locked", 100, |bench| {
            release(bench, include_str!("locked.sh"), "a locked one keeps the machine")
        }),
        Job::one("under/show", 260, show),
        Job::one("under/programs", 500, programs),
    ];
    for kernel in ["6.1", "6.1-cloud", "6.12-cloud"] {
        jobs.push(Job::one(format!("under/{kernel}"), 150, move |bench| {
            kernels(bench, kernel, Kind::Remaps)
        }));
    }
    for kernel in ["6.1", "6.1-cloud"] {
        jobs.push(Job::one(format!("under/confined-{kernel}"), 150, move |bench| {
            kernels(bench, kernel, Kind::Confined)
        }));
    }
    for kernel in ["6.1-cloud", "6.12"] {
        let name = format!("under/xapic-{kernel}");
        jobs.push(Job::one(name, 150, move |bench| kernels(bench, kernel, Kind::Plain)));
    }
    for (name, place) in [("under/crash-kernel", ""), ("under/crash-kernel-inside", "@1856M")] {
        jobs.push(Job::one(name, 150, move |bench| crash_kernel(bench, place)));
    }
    jobs.extend(audit::jobs());
    jobs.extend(bays::jobs());
    jobs.extend(restart::jobs());
    jobs.extend(channels::jobs());
    jobs.extend(mutant::jobs());
    jobs.extend(attack::jobs());
    jobs
}

/// The bytes of [`PATTERN`]: each piece of 8 differs from all others.
fn pattern() -> Vec<u8> {
    (0..PATTERN as u64 / 8)
        .flat_map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
        .collect()
}

/// The first 4 MiB of a disk that `guests/disk` has written in four rounds, on zeros.
fn guest_bytes() -> Vec<u8> {
    const PAGE: u64 = 4096;
    let mut bytes = vec![0; 4 << 20];
    for (round, n) in (0..4).flat_map(|round| (0..8).map(move |n| (round, n))) {
        let at = (round * 97 + n * 13) * PAGE;
        let words = n * PAGE / 8..(n + 1) * PAGE / 8;
        let word = |at: u64| (round << 32 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        let page: Vec<u8> = words.flat_map(word).collect();
        bytes[at as usize..][..page.len()].copy_from_slice(&page);
    }
    bytes
}

/// Loads the system.
fn checked(machine: Kind) -> Result<Checked, String> {
    load_from(&crate::build::root().join(match machine {
        Kind::Confined | Kind::Uses => "systems/under-linux.toml",
        Kind::Gives => "tests/under/devices.toml",
        Kind::Again => "tests/under/restart.toml",
        Kind::Remaps | Kind::Plain => "tests/under/unconfined.toml",
    }))
}

fn load_from(manifest: &Path) -> Result<Checked, String> {
    let options = bulkhead_manifest::Options { artifacts: Some(artifacts()), ..Default::default() };
    load(manifest, &options).map_err(|found| bulkhead_manifest::render::human(&found, false))
}

/// Loads a system in which the Linux ends `flight` by taking its machine back, and in no other way. `stays` does not
/// agree to that; if it is `locked`, it does, and has locked itself.
fn asking(bench: &Bench, locked: bool) -> Result<Checked, String> {
    let root = crate::build::root();
    let text = std::fs::read_to_string(root.join("tests/under/unconfined.toml"));
    let text = text.map_err(|e| e.to_string())?;
    let changes = [
        ("../../machines", format!("{}/machines", root.display())),
        ("cores = [1]", "cores = [1]\nrelease = \"ask\"".into()),
        ("stop = [\"flight\"]", "stop = [\"stays\"]".into()),
        ("observe = [\"flight\"]", "observe = [\"flight\", \"stays\"]".into()),
    ];
    let mut text = changes.iter().fold(text, |text, (from, to)| text.replace(from, to));
    text.push_str("\n[[sandbox]]\nname = \"stays\"\ncores = [2]\nmemory = \"8 MiB\"\n");
    text.push_str(match locked {
        true => {
            "guest = { kind = \"bare\", program = \"artifact:victim\", args = \"lock\" }\n\
             lockable = true\nrelease = \"ask\"\n"
        }
        false => "guest = { kind = \"bare\", program = \"artifact:duty\" }\n",
    });
    let manifest = bench.dir.join("ask.toml");
    std::fs::write(&manifest, text).map_err(|e| e.to_string())?;
    load_from(&manifest)
}

/// Images in which another device is given away: their files, the device, the program that uses it.
const GIVEN: [(&str, &str, &str); 4] = [
    ("virtio.img", "pci:00:04.0", "disk"),
    ("ahci.img", "pci:00:1f.2", "disk"),
    ("net.img", "pci:01:00.0", "disk"),
    ("uart.img", "uart1", "irq"),
];

/// Loads a system in which the Linux gives this device away.
fn giving(bench: &Bench, device: &str, program: &str) -> Result<Checked, String> {
    let root = crate::build::root();
    let text = std::fs::read_to_string(root.join("tests/under/devices.toml"));
    let text = text.map_err(|e| e.to_string())?;
    let changes = [
        ("../../machines", format!("{}/machines", root.display())),
        ("pci:00:07.0", device.to_owned()),
        ("artifact:disk", format!("artifact:{program}")),
    ];
    let text = changes.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let manifest = bench.dir.join("gives.toml");
    std::fs::write(&manifest, text).map_err(|e| e.to_string())?;
    load_from(&manifest)
}

/// Makes the file for so many cores.
fn image(machine: Kind, cores: usize) -> Result<Vec<u8>, String> {
    let late = bulkhead_run::build_late(&checked(machine)?, &artifacts(), cores);
    let late = late.map_err(|e| e.to_string())?;
    Ok(late.file())
}

/// Puts scripts and images behind an initramfs that has bulkheadctl and the modules.
fn initramfs(bench: &Bench, linux: &Linux) -> Result<PathBuf, String> {
    let base = if linux.kernel.ends_with("cloud") { "virtio.cpio" } else { "virtio-stock.cpio" };
    let mut bytes = std::fs::read(artifacts().join(base)).map_err(|e| format!("{base}: {e}"))?;
    let mut archive = Archive::default();
    let mut file =
        |name: &str, bytes| archive.add(&format!("/late/{name}"), Entry::File(0o644, bytes));
    file("script.sh", format!("echo '{BEGINS}'\n{}", linux.script).into_bytes());
    file("pattern", pattern());
    file("guest", guest_bytes());
    file("system.img", image(linux.machine, linux.cores)?);
    file("more.img", image(linux.machine, linux.cores + 1)?);
    if linux.script.contains("fewer.img") {
        file("fewer.img", image(linux.machine, linux.cores - 1)?);
    }
    if linux.script.contains(ASKS) {
        let checked = asking(bench, linux.script.starts_with("# locked.sh"))?;
        let late = bulkhead_run::build_late(&checked, &artifacts(), linux.cores);
        file(ASKS, late.map_err(|e| e.to_string())?.file());
    }
    for (name, device, program) in GIVEN.iter().filter(|given| linux.script.contains(given.0)) {
        let late =
            bulkhead_run::build_late(&giving(bench, device, program)?, &artifacts(), linux.cores);
        file(name, late.map_err(|e| e.to_string())?.file());
    }
    let strike = std::fs::read(artifacts().join(STRIKE)).map_err(|e| format!("{STRIKE}: {e}"))?;
    file(STRIKE, strike);
    for (name, system) in OTHERS.iter().filter(|other| linux.script.contains(other.0)) {
        let late = bulkhead_run::build_late(&system(bench)?, &artifacts(), linux.cores);
        let late = late.map_err(|e| e.to_string())?;
        archive.add(&format!("/late/{name}"), Entry::File(0o644, late.file()));
    }
    for image in [bays::IMAGE, bays::HOTPLUG] {
        if linux.script.contains(image) {
            bays::files(&mut archive, image)?;
        }
    }
    bytes.extend(archive.to_bytes());
    let path = bench.dir.join("initramfs.cpio");
    std::fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// Runs it to the script's end, and returns its serial log.
fn run(bench: &Bench, linux: &Linux) -> Result<String, String> {
    let mut running = start(bench, linux)?;
    let text = running.wait_serial(0, "bulkhead-init: exit code", linux.limit);
    let text = text.map_err(|e| e.to_string())?.text();
    if text.contains(DONE) { Ok(text) } else { Err(first_the_reason(&text)) }
}

/// Puts the last thing that a script said, or the kernel's panic, before a log.
fn first_the_reason(text: &str) -> String {
    let tells = |line: &&str| line.contains("under: ") || line.contains("Kernel panic");
    let reason = text.lines().rev().find(tells).unwrap_or("the script said nothing");
    format!("{}\n{text}", reason.trim())
}

/// Waits until its script has said where the block is.
fn block(running: &mut Running, linux: &Linux) -> Result<u64, String> {
    const SAYS: &str = "under: block 0x";
    let found = running.wait("the block's address", linux.limit, |running| {
        let text = running.serial(0).text();
        let ends = ["bulkhead-init: exit code", "Kernel panic"].iter().any(|e| text.contains(e));
        let line = text.split_once(SAYS).and_then(|(_, rest)| rest.split_once(['\r', '\n']));
        let address = line.map(|(hex, _)| u64::from_str_radix(hex, 16).map_err(|_| text.clone()));
        address.or_else(|| ends.then(|| Err(text.clone())))
    });
    found.map_err(|e| e.to_string())?
}

/// Starts it.
fn start(bench: &Bench, linux: &Linux) -> Result<Running, String> {
    std::fs::create_dir_all(&bench.dir).map_err(|e| e.to_string())?;
    let mut machine = match linux.machine {
        Kind::Confined | Kind::Gives | Kind::Again | Kind::Uses => confined(bench, linux)?,
        kind => unconfined(bench, linux, kind)?,
    };
    // QEMU loses a write to a core's local APIC while another core moves a device's addresses (docs/limits.md). These
    // have drivers begin and end, and one core at a time loses none.
    if linux.machine == Kind::Gives || linux.script.contains(restart::IMAGE) {
        machine.time = Time::Turns;
    }
    machine.cores = linux.cores;
    machine.kernel = Some(artifacts().join(format!("linux-{}", linux.kernel)));
    machine.initrd = Some(initramfs(bench, linux)?.display().to_string());
    // Cloud kernels have no driver for the card, and QEMU's IOMMU takes it for another function.
    let net = if linux.kernel.ends_with("cloud") || linux.machine == Kind::Uses {
        ""
    } else {
        "bulkhead.net=e1000e"
    };
    let iommu = if linux.machine == Kind::Uses { "" } else { "amd_iommu=off" };
    // On a busy host too few ticks of the timer come while a kernel counts them, and it panics.
    machine.append = format!(
        "console=ttyS0 loglevel=4 {iommu} hpet=disable no_timer_check libata.force=noncq {net} bulkhead.run=sh:/late/script.sh,{}",
        linux.arguments
    );
    machine.serials = vec![Serial::File; if linux.machine == Kind::Gives { 2 } else { 1 }];
    boot(&machine, linux)
}

/// Starts it, and once more if its kernel hangs before the script begins, by the write that QEMU loses. No image has
/// been read at that time, so this hides nothing of ours. Where a kernel uses the IOMMU, user space is silent, and
/// nothing tells.
fn boot(machine: &Machine, linux: &Linux) -> Result<Running, String> {
    const BOOTED: Duration = Duration::from_secs(60);
    let start = || machine.start().map_err(|e| e.to_string());
    let mut running = start()?;
    if !matches!(linux.machine, Kind::Confined | Kind::Again) {
        return Ok(running);
    }
    match running.wait_serial(0, BEGINS, BOOTED) {
        Err(Error::TimedOut { tail, .. }) => {
            println!("its kernel hung before the script; it is started once more\n{tail}");
            drop(running);
            start()
        }
        Err(error) => Err(error.to_string()),
        Ok(_) => Ok(running),
    }
}

/// The machine of the description, with files behind its drives.
fn confined(bench: &Bench, linux: &Linux) -> Result<Machine, String> {
    let description = checked(Kind::Confined)?.system.machine;
    let drive = |(n, name): (usize, &String)| {
        Ok(Drive { name: name.clone(), file: disk(&bench.dir, n)?, keep: true })
    };
    let used = linux.disks.len();
    let drives = description.drives.iter().take(used).enumerate().map(drive);
    let drives = drives.collect::<Result<Vec<_>, String>>()?;
    Ok(bulkhead_run::machine(&description, &drives, &[], &bench.dir))
}

/// A machine with AMD's processor and these devices.
fn unconfined(bench: &Bench, linux: &Linux, kind: Kind) -> Result<Machine, String> {
    let mut machine = Machine::new(&bench.dir);
    machine.cpu = "EPYC,+svm,+npt,+x2apic".into();
    let mut args = Vec::new();
    if kind == Kind::Remaps {
        args.extend(["-device".to_owned(), "intel-iommu,intremap=on,eim=on".into()]);
    }
    args.extend(["-netdev".to_owned(), "user,id=lan".into()]);
    args.extend(["-device".to_owned(), "e1000e,netdev=lan".into()]);
    for (n, kind) in linux.disks.iter().enumerate() {
        let path = disk(&bench.dir, n)?;
        args.extend([
            "-drive".to_owned(),
            format!("if=none,id=disk{n},format=raw,file={}", path.display()),
        ]);
        args.extend(["-device".to_owned(), format!("{kind},drive=disk{n}")]);
    }
    machine.args = args;
    Ok(machine)
}

fn disk(dir: &Path, n: usize) -> Result<PathBuf, String> {
    let path = dir.join(format!("disk{n}.raw"));
    let file = std::fs::File::create(&path).map_err(|e| e.to_string())?;
    file.set_len(16 << 20).map_err(|e| e.to_string())?;
    Ok(path)
}

/// Complaints in a script's log: other bytes, failed writes, warnings of the kernel.
fn wrong(text: &str) -> impl Iterator<Item = &str> {
    let wrong = |line: &&str| {
        ["other bytes", "a write failed", "under: log "].iter().any(|bad| line.contains(bad))
    };
    text.lines().filter(wrong)
}

fn complaints(text: &str) -> Result<(), String> {
    let found: Vec<_> = wrong(text).take(8).collect();
    if found.is_empty() { Ok(()) } else { Err(format!("{}\n{text}", found.join("\n"))) }
}

/// Takes a stream of patterns, and says how many bytes of it there were.
fn listen() -> Result<(u16, mpsc::Receiver<Result<u64, String>>), String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let _ = tell.send(take(&listener));
    });
    Ok((port, told))
}

fn take(listener: &TcpListener) -> Result<u64, String> {
    let (mut stream, _) = listener.accept().map_err(|e| e.to_string())?;
    let (pattern, mut piece, mut bytes) = (pattern(), vec![0; 1 << 16], 0);
    loop {
        let len =
            stream.read(&mut piece).map_err(|e| format!("the stream after {bytes} bytes: {e}"))?;
        if len == 0 {
            return Ok(bytes);
        }
        let right =
            piece[..len].iter().zip(bytes..).all(|(b, n)| *b == pattern[n as usize % PATTERN]);
        bytes += len as u64;
        if !right {
            return Err(format!("the stream has other bytes before {bytes}"));
        }
    }
}

/// Disks and a connection that are busy on a machine.
struct Busy<'a> {
    count: usize,
    cores: usize,
    seconds: u64,
    machine: Kind,
    disks: &'a [&'a str],
    /// Their names in `/dev`.
    names: &'a [&'a str],
    /// Functions that are given away, each with its disk.
    given: &'a [&'a str],
}

/// Three disks on a machine that remaps interrupts.
const fn remapped(count: usize, seconds: u64) -> Busy<'static> {
    Busy {
        count,
        cores: 3,
        seconds,
        machine: Kind::Remaps,
        disks: &["virtio-blk-pci", "nvme,serial=late", "ide-hd,bus=ide.1"],
        names: &["vda", "nvme0n1", "sda"],
        given: &[],
    }
}

/// Four disks of the machine description, where the IOMMU confines the Linux' devices.
const fn confined_load(count: usize, seconds: u64) -> Busy<'static> {
    Busy {
        count,
        cores: 3,
        seconds,
        machine: Kind::Confined,
        disks: &[""; 4],
        names: &["vda", "vdb", "nvme0n1", "sda"],
        given: &[],
    }
}

/// The third one goes to another sandbox in each round.
const fn given(count: usize, seconds: u64) -> Busy<'static> {
    let names = &["vda", "vdb", "sda"];
    Busy {
        cores: 4,
        machine: Kind::Gives,
        names,
        given: &["0000:00:07.0=/dev/nvme0n1"],
        ..confined_load(count, seconds)
    }
}

/// Again and again, while disks and a connection are busy. Returns the log, and the bytes of the stream.
fn busy(bench: &Bench, busy: &Busy) -> Result<(String, Result<u64, String>), String> {
    let (port, stream) = listen()?;
    let names = busy.names.iter().map(|name| format!("/dev/{name}"));
    let devices = names.chain(busy.given.iter().map(|pair| (*pair).to_owned()));
    let devices = devices.map(|device| format!(",{device}")).collect::<String>();
    let text = run(
        bench,
        &Linux {
            kernel: "6.12",
            cores: busy.cores,
            script: include_str!("rounds.sh"),
            arguments: format!("{},{port}{devices}", busy.count),
            machine: busy.machine,
            disks: busy.disks,
            limit: Duration::from_secs(busy.seconds),
        },
    )?;
    let bytes = stream.recv_timeout(Duration::from_secs(10));
    let bytes = bytes.map_err(|_| "the stream has no end".to_owned()).flatten();
    let whole = |bytes: u64| bytes != 0 && bytes % PATTERN as u64 == 0;
    let bytes = bytes.and_then(|bytes| match whole(bytes) {
        true => Ok(bytes),
        false => Err(format!("the stream has {bytes} bytes, no whole pieces")),
    });
    Ok((text, bytes))
}

/// Complaints of that, a broken stream among them, and how much was done.
pub(crate) fn losses(dir: &Path, count: usize) -> Result<(usize, String), String> {
    let load = remapped(count, 280);
    let (text, bytes) = busy(&Bench { dir: dir.to_owned() }, &load)?;
    let lost = wrong(&text).map(str::to_owned).chain(bytes.as_ref().err().cloned());
    let mut all = vec![done(&text, &load, *bytes.as_ref().unwrap_or(&0))];
    all.extend(lost);
    Ok((all.len() - 1, all.join("; ")))
}

fn rounds(bench: &Bench, load: &Busy) -> Result<String, String> {
    let (text, bytes) = busy(bench, load)?;
    complaints(&text)?;
    let bytes = bytes.map_err(|why| format!("{why}\n{text}"))?;
    Ok(done(&text, load, bytes))
}

/// Says how much was done in rounds.
fn done(text: &str, load: &Busy, bytes: u64) -> String {
    let pieces = |name: &&str| said(text, &format!("under: /dev/{name}: "));
    let disks = load.names.iter().map(pieces).collect::<Vec<_>>().join(", ");
    let count = load.count;
    format!(
        "{count} rounds, {}; {disks}; {} MiB of a stream",
        said(text, &format!("under: {count} rounds, ")),
        bytes >> 20
    )
}

/// Returns the rest of the line that begins so.
fn said(text: &str, begin: &str) -> String {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(begin));
    line.unwrap_or("nothing").to_owned()
}

/// Another of Debian's kernels.
fn kernels(bench: &Bench, kernel: &str, machine: Kind) -> Result<String, String> {
    let text = run(
        bench,
        &Linux {
            kernel,
            cores: 3,
            script: include_str!("rounds.sh"),
            arguments: "4,0,/dev/vda".into(),
            machine,
            disks: &["virtio-blk-pci"],
            limit: Duration::from_secs(130),
        },
    )?;
    complaints(&text)?;
    let [memory, pieces] = ["under: 4 rounds, ", "under: /dev/vda: "].map(|part| said(&text, part));
    Ok(format!("4 rounds, {memory}; /dev/vda: {pieces}"))
}

/// Memory for a crash kernel lies above the block, in one line of `/proc/iomem` with it. Or it lies where the block
/// would be, and the block is taken elsewhere: no page is tried that cannot move.
fn crash_kernel(bench: &Bench, place: &str) -> Result<String, String> {
    let text = run(
        bench,
        &Linux {
            kernel: "6.12-cloud",
            cores: 2,
            script: include_str!("rounds.sh"),
            arguments: format!("4,0,/dev/vda crashkernel=64M{place}"),
            machine: Kind::Remaps,
            disks: &["virtio-blk-pci"],
            limit: Duration::from_secs(130),
        },
    )?;
    complaints(&text)?;
    let said = said(&text, "under: 4 rounds, ");
    if said.ends_with(", 0 pages did not move") { Ok(said) } else { Err(text) }
}

/// A Debian under the load of its own programs, one of which sends a stream to this host.
fn programs(bench: &Bench) -> Result<String, String> {
    const SECONDS: &str = "450";
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.map_err(|e| e.to_string())?.port().to_string();
    let mut server = Command::new("iperf3")
        .args(["--server", "--port", &port])
        .stdout(std::process::Stdio::null())
        .spawn()
        .map_err(|e| format!("iperf3: {e}"))?;
    let shown = Command::new(crate::build::root().join("tools/under-linux.sh"))
        .args(["harness/src/test/under/programs.sh"])
        .arg(format!("bulkhead.net=e1000e under.port={port}"))
        .arg(SECONDS)
        .arg(&bench.dir)
        .env("CI", "true")
        .output();
    let _ = server.kill();
    let _ = server.wait();
    let shown = shown.map_err(|e| e.to_string())?;
    let [said, wrong] = [&shown.stdout, &shown.stderr].map(|text| String::from_utf8_lossy(text));
    let serial = std::fs::read_to_string(bench.dir.join("serial.log")).unwrap_or_default();
    match (shown.status.success(), serial.lines().find(|line| line.contains("10 rounds; "))) {
        (true, Some(line)) => Ok(line.trim().to_owned()),
        _ => Err(format!("{}\n{said}{wrong}{serial}", shown.status)),
    }
}

/// `make run-under-linux`, as a user has it without a terminal.
fn show(_: &Bench) -> Result<String, String> {
    let script = crate::build::root().join("tools/under-linux.sh");
    let shown = Command::new(script).env("CI", "true").output().map_err(|e| e.to_string())?;
    let [said, wrong] = [&shown.stdout, &shown.stderr].map(|text| String::from_utf8_lossy(text));
    if !shown.status.success() {
        return Err(format!("{}\n{said}{wrong}", shown.status));
    }
    let seen = ["A flight controller runs", "KVM works again", "kvm-peer: the guest ended"];
    match seen.iter().find(|part| !said.contains(**part)) {
        Some(part) => Err(format!("\"{part}\" was not shown:\n{said}")),
        None => Ok(format!("{} lines", said.lines().count())),
    }
}

/// The Linux takes its machine back: one sandbox lets it, and one does not, or has locked itself.
fn release(bench: &Bench, script: &'static str, right: &str) -> Result<String, String> {
    run(
        bench,
        &Linux {
            kernel: "6.12-cloud",
            cores: 3,
            script,
            arguments: String::new(),
            machine: Kind::Remaps,
            disks: &[],
            limit: Duration::from_secs(80),
        },
    )?;
    Ok(right.into())
}

/// Each kind of device in turn, the refusals of those that are in use, and steps that fail once one is taken.
fn each_device(bench: &Bench) -> Result<String, String> {
    let text = run(
        bench,
        &Linux {
            kernel: "6.12",
            cores: 4,
            script: include_str!("devices.sh"),
            arguments: String::new(),
            machine: Kind::Gives,
            disks: &[""; 4],
            limit: Duration::from_secs(230),
        },
    )?;
    complaints(&text)?;
    let [given, refused] =
        ["given", "refused"].map(|what| text.matches(&format!("under: {what} ")).count());
    Ok(format!("{given} given, {refused} refused"))
}

/// A Linux is refused in the state in which it has been booted: with the IOMMU in its hands, in both ways, and locked
/// down.
fn states(bench: &Bench) -> Result<String, String> {
    const MEND: &str = "the_IOMMU_cannot_be_used:_this_Linux_uses_it";
    let all = [
        (Kind::Uses, format!("{MEND} iommu.passthrough=0")),
        (Kind::Uses, format!("{MEND} iommu=pt")),
        (Kind::Confined, "this_kernel_is_locked_down lockdown=integrity".to_owned()),
    ];
    for (machine, arguments) in all {
        let script = include_str!("states.sh");
        let limit = Duration::from_secs(45);
        let linux =
            Linux { kernel: "6.12", cores: 2, script, arguments, machine, disks: &[""; 4], limit };
        let mut running = start(bench, &linux)?;
        let text = running.wait("the script's end", limit, |running| {
            let text = running.serial(0).text();
            ["under: done", "bulkhead-init: exit code"]
                .iter()
                .any(|e| text.contains(e))
                .then_some(text)
        });
        let text = text.map_err(|e| e.to_string())?;
        if !text.contains(DONE) {
            return Err(first_the_reason(&text));
        }
    }
    Ok("3 states".into())
}

/// Each step fails in turn.
fn refused(bench: &Bench) -> Result<String, String> {
    let text = run(
        bench,
        &Linux {
            kernel: "6.12-cloud",
            cores: 3,
            script: include_str!("refused.sh"),
            arguments: String::new(),
            machine: Kind::Remaps,
            disks: &[],
            limit: Duration::from_secs(130),
        },
    )?;
    Ok(format!("{} times", text.matches("under: refused").count()))
}
