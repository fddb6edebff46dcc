//! Debian on a disk: the image, its initramfs, the host's peer and the programs of the I/O figures. They run on the
//! bare machine with the devices that its description names. A sandbox with devices of its own is compared with this.
//!
//! All of it in virtual time, on one core: these tests are about kernels, drivers and
//! programs. In real time with two cores the emulator now and then loses a core's wake-up when the host is busy. A
//! Linux then waits for it for ever.

use super::driver::Job;
use super::system::{Manifest, artifacts};
use bulkhead_plan::Drive;
use bulkhead_qemu::{Peer, Time};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A Linux on the bare machine.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Name in `tools/kernels.sh`, without `linux-`.
    kernel: &'static str,
    /// The machine's drive that is the disk, and the guest's name for it.
    disk: (&'static str, &'static str),
    /// Driver of the network card.
    card: &'static str,
    /// More for the kernel's command line.
    more: &'static str,
    /// Rows of `bhio` on the disk itself: everything, or a little.
    all: bool,
    time: Time,
}

/// Longest wall time in seconds; an idle host needs a tenth.
const LIMIT: u64 = 400;

const VIRTIO: Case = Case {
    name: "disk/virtio",
    kernel: "6.12-cloud",
    disk: ("disk0", "/dev/vda"),
    card: "virtio_net",
    more: "",
    all: true,
    // With a metronome: a disk's answer takes the host's time, and without one 30 s of
    // an idle guest's may have passed until then.
    time: Time::Virtual { metronome: Some(10) },
};
/// Flavours for real machines have a driver of AMD's IOMMU that fails with QEMU's model: the timer's remapped interrupt
/// is lost, and the kernel panics. No sandbox sees an IOMMU either.
const NO_IOMMU: &str = "amd_iommu=off";
const NVME: (&str, &str) = ("disk2", "/dev/nvme0n1");
const AHCI: (&str, &str) = ("disk3", "/dev/sda");

/// One test for each kernel and kind of device.
pub fn jobs() -> Vec<Job> {
    let some = Case { all: false, ..VIRTIO };
    let plain = Case { card: "e1000e", more: NO_IOMMU, ..some };
    let cases = [
        VIRTIO,
        Case { name: "disk/nvme", disk: NVME, ..some },
        Case { name: "disk/ahci", disk: AHCI, ..some },
        Case { name: "disk/e1000e", kernel: "6.12", ..plain },
        Case { name: "disk/linux-6.1", kernel: "6.1", disk: NVME, ..plain },
        Case { name: "disk/linux-6.1-cloud", kernel: "6.1-cloud", ..some },
    ];
    let mut jobs: Vec<_> = cases
        .into_iter()
        .map(|case| Job::one(case.name, LIMIT + 20, move |bench| works(&case, &bench.dir)))
        .collect();
    jobs.push(Job::one("disk/missing", 120, |bench| missing(&bench.dir)));
    jobs
}

/// Traces of the rows on the console, and how often each must be there.
const TRACES: [(&str, usize); 8] = [
    ("row io.blk_rand4k ", 2),
    ("row io.blk_seq1m ", 2),
    ("row io.blk_write1m ", 1),
    ("row io.net_udp ", 1),
    ("row io.net_tcp ", 1),
    ("row io.net_tcp_from ", 1),
    // The stream's amount, as both ends saw it.
    ("row io.iperf3 ", 1),
    ("bulkhead-init: poweroff", 1),
];
const MORE_TRACES: [(&str, usize); 5] = [
    ("total number of events:              200", 1),
    ("row io.sysbench ", 1),
    ("passed: 1: ", 6),
    ("row io.stress_ng ", 1),
    ("row io.cyclictest ", 1),
];

fn works(case: &Case, dir: &Path) -> Result<String, String> {
    let mut peer = Peer::start().map_err(|e| e.to_string())?;
    peer.iperf3(dir).map_err(|e| e.to_string())?;
    let (_, disk) = case.disk;
    let before = state()?;
    let said = boot(case, dir, disk, &work(&peer, disk, case.all))?;
    if state()? != before {
        return Err("the image was written to".into());
    }
    done(&said, case.all)?;
    Ok(format!("root on {disk}, network by {}", case.card))
}

/// A job for the disk that is the root: everything that `bhio` does, or a little.
pub(super) fn work(peer: &Peer, disk: &str, all: bool) -> String {
    let mut work = peer.arguments();
    let file = "disk=/var/tmp/bhio.data,rand4k=50,seq1m=10,write1m=10";
    work.push(format!("disk={disk},rand4k=100,seq1m=10,{file},udp=100,tcp=2,tcp_from=2,iperf3=2"));
    if all {
        work.push("sysbench=200,stress-ng=20,cyclictest=200".into());
    }
    format!("bhio:{}", work.join(","))
}

/// Checks on the console that all of that job was done.
pub(super) fn done(said: &str, all: bool) -> Result<(), String> {
    let more = if all { &MORE_TRACES[..] } else { &[] };
    for (trace, times) in TRACES.iter().chain(more) {
        let found = said.matches(trace).count();
        if found != *times {
            return Err(format!("{trace:?} is there {found} times, not {times}\n{}", tail(said)));
        }
    }
    if !said.contains("bhio: done") {
        return Err(format!("bhio did not end\n{}", tail(said)));
    }
    Ok(())
}

/// A disk that does not come is named, with those that did.
fn missing(dir: &Path) -> Result<String, String> {
    // A slower metronome: it waits for 30 s, and does nothing.
    let case = Case { time: Time::Virtual { metronome: Some(1000) }, ..VIRTIO };
    let said = boot(&case, dir, "/dev/vdz", "boot")?;
    let expected = "no /dev/vdz within 30 s; there are nvme0n1, sda, vda, vdb";
    match said.lines().find(|line| line.contains("/dev/vdz within")) {
        Some(line) if line.contains(expected) => Ok(line.trim().into()),
        Some(line) => Err(format!("{line}; expected: {expected}")),
        None => Err(format!("no message\n{}", tail(&said))),
    }
}

/// Debian's.
pub(super) fn image() -> PathBuf {
    artifacts().join("debian.img")
}

/// Changes when somebody writes to the image.
pub(super) fn state() -> Result<(u64, SystemTime), String> {
    let meta = std::fs::metadata(image()).map_err(|e| format!("{}: {e}", image().display()))?;
    Ok((meta.len(), meta.modified().map_err(|e| e.to_string())?))
}

/// Boots to the machine's end; what the console showed.
fn boot(case: &Case, dir: &Path, root: &str, job: &str) -> Result<String, String> {
    let checked = Manifest::new().bare("none", "hello", "", &[0], "4 MiB", "").load(dir)?;
    let (drive, _) = case.disk;
    let drives = [Drive { name: drive.to_owned(), file: image(), keep: false }];
    let mut machine = bulkhead_run::machine(&checked.system.machine, &drives, &[], dir);
    machine.kernel = Some(artifacts().join(format!("linux-{}", case.kernel)));
    let initrd = artifacts().join(format!("disk-{}.cpio", case.kernel));
    machine.initrd = Some(initrd.display().to_string());
    machine.append = format!(
        "console=ttyS0,115200 panic=-1 {} bulkhead.root={root} bulkhead.net={} bulkhead.run={job}",
        case.more, case.card
    );
    machine.cores = 1;
    machine.memory = 2 << 30;
    machine.time = case.time;
    let mut running = machine.start().map_err(|e| e.to_string())?;
    let limit = Duration::from_secs(LIMIT);
    running.wait_end("the guest to power off", limit).map_err(|e| e.to_string())?;
    Ok(running.serial(0).text())
}

fn tail(said: &str) -> String {
    super::driver::tail(said)
}
