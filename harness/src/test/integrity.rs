//! File systems on a disk through the wall, exercised against a model (`linux/bhfs`). They are ext4 and ext2, with
//! read-ahead and without. A driver sandbox has each kind of device, and a Linux a RAM disk or a loop device.
//! `make test` has one combination, `make soak` has all, with Debian's stress-ng and fio.

use super::block::{SEVERAL, Way, pair, script, serve, served};
use super::driver::{Bench, Job};
use super::store::{ahci, nvme};
use super::system::{Manifest, Seen};
use super::virtio::{NEWER, driver, look_for, sound};
use std::time::Duration;

/// Longest time of all combinations on a driver sandbox' disk.
const LIMIT: Duration = Duration::from_secs(1400);
/// Longest time of one combination between two Linux.
const LIMIT_OF_PAIRS: Duration = Duration::from_secs(2800);
/// The combination of `make test`.
const SHORT: [&str; 1] = ["/ext4.gz 128 1 100 0"];
/// Image, read-ahead, seed, operations of each process, seconds of each stressor.
const ALL: [&str; 4] =
    ["/ext4.gz 128 2 800 1", "/ext4.gz 0 3 800 1", "/ext2.gz 128 4 800 1", "/ext2.gz 0 5 800 1"];

/// A RAM disk of the device side's Linux.
const RAM: Way = Way {
    queues: 2,
    made: |kib| format!("modprobe brd rd_nr=1 rd_size={kib}"),
    path: "/dev/ram0",
    options: " --queues 4",
};

pub fn jobs() -> Vec<Job> {
    let sandbox = |name: &str, disk: fn(String) -> String| {
        Job::one(name, 1500, move |bench| by_sandbox(bench, disk, &ALL, "artifact:stress.cpio"))
    };
    let mut jobs = vec![
        Job::one("block/files", 240, |bench| {
            by_sandbox(bench, |text| text, &SHORT, "artifact:checks.cpio")
        }),
        sandbox("block/files-virtio", |text| text),
        sandbox("block/files-nvme", nvme),
        sandbox("block/files-ahci", ahci),
    ];
    // A machine for each combination: beside a RAM disk the client never waits, so no time can be left out.
    for (number, one) in ALL.iter().enumerate() {
        for (name, way) in [("ram", &RAM), ("loop", &SEVERAL)] {
            let job = move |bench: &Bench| by_linux(bench, way, one);
            jobs.push(Job::one(format!("block/files-{name}-{number}"), 2900, job));
        }
    }
    jobs
}

/// The client's work: each combination, one after the other.
fn work(combinations: &[&str]) -> String {
    let each = combinations.iter().map(|one| format!("bhfs disk /dev/vda {one}"));
    script(&format!("bhvirtio disk;{}", each.collect::<Vec<_>>().join("&&")))
}

fn by_sandbox(
    bench: &Bench,
    disk: fn(String) -> String,
    combinations: &[&str],
    initrd: &str,
) -> Result<String, String> {
    let mut manifest = served(disk, &work(combinations))?;
    manifest.0 = with(&manifest, initrd).replace("first:0:16384", "first:0:65536");
    let seen = serve(&manifest, bench, LIMIT)?;
    seen.undisturbed("one", &["exited", "stopped"])?;
    seen.undisturbed("store", &["running"])?;
    judged(&seen, combinations)
}

fn by_linux(bench: &Bench, way: &Way, combination: &str) -> Result<String, String> {
    let Way { path, options, .. } = way;
    let server = script(&format!("{};bhvirtio block lan {path}{options}", (way.made)(32 << 10)));
    let mut manifest = pair(way, [NEWER, NEWER], [&work(&[combination]), &server], "doorbell");
    // One core of the client is enough here; the emulator runs all in turn.
    manifest.0 = with(&manifest, "artifact:stress.cpio").replace("cores = [0, 1]", "cores = [0]");
    let seen = look_for(&manifest, bench, LIMIT_OF_PAIRS)?;
    seen.ensure(sound(seen.serial(2)?), "the device side's kernel complains")?;
    judged(&seen, &[combination])
}

/// With other programs, for which there has to be room.
fn with(manifest: &Manifest, initrd: &str) -> String {
    let text = manifest.0.replace("artifact:virtio.cpio", initrd);
    text.replace("memory = \"256 MiB\"", "memory = \"512 MiB\"")
}

/// Each combination was sound to its end, and the kernel saw no error.
fn judged(seen: &Seen, combinations: &[&str]) -> Result<String, String> {
    // stress-ng asks for the places of blocks that no file has (FIBMAP), and ext4 warns of that.
    let answered = |line: &&str| !line.contains("ext4_block_to_path");
    let said: Vec<&str> = driver(seen)?.lines().filter(answered).collect();
    let said = said.join("\n");
    for wrong in ["I/O error", "EXT4-fs error", "EXT4-fs warning", "the device is gone"] {
        seen.ensure(!said.contains(wrong), format!("the client's Linux says `{wrong}`"))?;
    }
    let sounds = said.matches("of read-ahead is sound").count();
    let all = combinations.len();
    seen.ensure(sounds == all, format!("{sounds} of {all} combinations came to their end"))?;
    Ok(format!("{all} combinations"))
}
