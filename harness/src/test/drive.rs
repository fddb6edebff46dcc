//! A bare guest drives a disk of its own by interrupts, and nothing of what it began in
//! one life comes to the next one.

use super::driver::Job;
use super::system::{Manifest, Memory, Seen, run, run_and};
use crate::build;
use bulkhead_layout::report::State;
use std::cell::Cell;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Bytes of the disk's file, and what the guest says of it.
const SIZE: u64 = 64 << 20;
const BLOCKS: &str = "131072 blocks of 512 bytes";
/// Drive of a slow disk.
const HELD: &str = "held";

/// A kind of disk.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The machine's drive, the function, and QEMU's device without its drive.
    drive: &'static str,
    function: &'static str,
    device: &'static str,
    /// More options where it holds requests back.
    held: &'static str,
}

pub const NVME: Kind =
    Kind { drive: "disk2", function: "00:07.0", device: "nvme,addr=07.0,drive=", held: "" };
pub const VIRTIO: Kind = Kind {
    drive: "disk0",
    function: "00:03.0",
    device: "virtio-blk-pci,addr=03.0,drive=",
    // Else QEMU itself waits for all requests when bus mastering goes off.
    held: "ioeventfd=off,",
};
pub const AHCI: Kind =
    Kind { drive: "disk3", function: "00:1f.2", device: "ide-hd,bus=ide.0,drive=", held: "" };

pub fn jobs() -> Vec<Job> {
    let job =
        |name, kind: Kind, lives| Job::one(name, 120, move |bench| works(kind, lives, &bench.dir));
    let not_reset =
        |name, kind: Kind| Job::one(name, 120, move |bench| not_reset(kind, &bench.dir));
    let stopped = |name, kind: Kind| Job::one(name, 120, move |bench| stopped(kind, &bench.dir));
    let held = |name, kind: Kind| Job::one(name, 120, move |bench| held(kind, &bench.dir));
    vec![
        job("drive/nvme", NVME, 1),
        job("drive/nvme-restarts", NVME, 5),
        job("drive/virtio", VIRTIO, 1),
        job("drive/virtio-restarts", VIRTIO, 5),
        job("drive/ahci", AHCI, 1),
        job("drive/ahci-restarts", AHCI, 5),
        held("drive/nvme-held", NVME),
        held("drive/virtio-held", VIRTIO),
        held("drive/ahci-held", AHCI),
        stopped("drive/nvme-held-stopped", NVME),
        stopped("drive/virtio-held-stopped", VIRTIO),
        stopped("drive/ahci-held-stopped", AHCI),
        not_reset("drive/nvme-held-not-reset", NVME),
        not_reset("drive/virtio-held-not-reset", VIRTIO),
        not_reset("drive/ahci-held-not-reset", AHCI),
    ]
}

/// Runs the guest on its disk, beside a victim, in real time: virtual time runs ahead of
/// a disk.
fn guest(manifest: Manifest, kind: Kind, args: &str, dir: &Path) -> Result<Seen, String> {
    let device = format!("devices = [\"pci:{}\"]", kind.function);
    let manifest = manifest.bare("guest", "disk", args, &[0], "4 MiB", &device).bare(
        "victim",
        "victim",
        "",
        &[1],
        "8 MiB",
        "",
    );
    run(&manifest, dir, |options| {
        options.time = bulkhead_qemu::Time::Live;
        options.limit = Duration::from_secs(100);
    })
}

/// Makes the disk's file.
fn file(dir: &Path) -> Result<(), String> {
    let file =
        std::fs::create_dir_all(dir).and_then(|()| std::fs::File::create(dir.join("disk.img")));
    file.and_then(|f| f.set_len(SIZE)).map_err(|e| format!("disk.img: {e}"))
}

/// Tests a guest that drives the disk without an exit. Each life but the last ends in the middle of that, and the next
/// one works again.
fn works(kind: Kind, lives: u64, dir: &Path) -> Result<String, String> {
    file(dir)?;
    let mut manifest = Manifest::new().ends_with(&["guest"]);
    manifest.0 += &format!("[[run.drive]]\nname = \"{}\"\nfile = \"disk.img\"\n", kind.drive);
    let seen = guest(manifest, kind, &format!("rounds=16 lives={lives}"), dir)?;
    worked(&seen, lives)
}

/// It ended well in the last of its lives.
fn worked(seen: &Seen, lives: u64) -> Result<String, String> {
    seen.exited("guest")?;
    seen.undisturbed("victim", &["running"])?;
    let s = seen.sandbox("guest")?;
    seen.ensure(s.restarts == lives - 1 && s.denials == 0, "restarts or denials")?;
    seen.ensure(seen.console.contains(BLOCKS), format!("no {BLOCKS:?}"))?;
    // Its last lines, and its end, are hypercalls.
    let asked = s.exits.steady.iter().all(|(cause, n)| *cause == "hypercall" && *n < 10);
    seen.ensure(asked, format!("exits in steady state: {:?}", s.exits.steady))?;
    let worked = seen.console.lines().find_map(|l| l.split_once("rounds, interrupts: "));
    let worked = worked.ok_or_else(|| seen.wrong("it does not say what it did"))?.1;
    Ok(format!("{worked}; {} exits in its last life", s.exits.boot.values().sum::<u64>()))
}

/// Two lives with the disk held back. The first ends when the disk has taken its requests and carried out few of them.
/// The second one looks at those requests' memory for a second, before it makes requests of its own. The disk answers
/// every 100 ms, and the first life ends between two answers. An AHCI port may stop at an answer without bus mastering.
const HELD_BACK: &str = "rounds=1 lives=2 linger=150 watch=1000";

/// Tests that the disk's late answers to one life don't come to the next one.
fn held(kind: Kind, dir: &Path) -> Result<String, String> {
    worked(&guest(slow(kind, 10, dir, Ok)?.ends_with(&["guest"]), kind, HELD_BACK, dir)?, 2)
}

/// Tests a warden's stop while the disk owes the guest all but a few of its requests. The guest's memory stays as it is
/// for longer than the disk takes for the rest. Without the steps that reset the function it does not.
fn stopped(kind: Kind, dir: &Path) -> Result<String, String> {
    let changed = |manifest: Manifest| -> Result<bool, String> {
        let [parked, now] = stop(manifest, kind, dir)?;
        Ok(parked != now)
    };
    if changed(slow(kind, 4, dir, Ok)?)? {
        return Err("the disk wrote to a stopped sandbox's memory".into());
    }
    if !changed(slow(kind, 4, dir, |text| without_reset(kind, text))?)? {
        return Err("without a reset nothing changed: this shows nothing".into());
    }
    Ok("its memory stays as it is, and without a reset does not".into())
}

/// The guest's memory as it was when it was seen to be stopped, and some seconds later.
fn stop(manifest: Manifest, kind: Kind, dir: &Path) -> Result<[u64; 2], String> {
    /// More than the disk takes for all requests.
    const PATIENCE: Duration = Duration::from_secs(5);
    const RAM: (u64, usize) = (1 << 30, 4 << 20);
    let device = format!("devices = [\"pci:{}\"]", kind.function);
    let memory = "{ size = \"4 MiB\", at = \"1 GiB\" }";
    let args = "rounds=0 lives=2 linger=60000";
    let steps = "do=wait,nap,stop nap=300 target=0";
    let control = "stop = [\"guest\"]\nstart = [\"guest\"]\nrestart = [\"guest\"]";
    let manifest = manifest
        .bare("guest", "disk", args, &[0], memory, &device)
        .bare("warden", "warden", steps, &[1], "4 MiB", control)
        .bare("victim", "victim", "", &[2], "8 MiB", "");
    let since = Rc::new(Cell::new(None::<Instant>));
    let mut parked = 0;
    let look = |(name, state): (&str, State), memory: &Memory| {
        if name == "guest" && state == State::Stopped {
            parked = hash(memory, RAM);
            since.set(Some(Instant::now()));
        }
    };
    let at = since.clone();
    let change = |options: &mut bulkhead_run::Options| {
        options.time = bulkhead_qemu::Time::Live;
        options.stop = Some(Box::new(move || at.get().is_some_and(|at| at.elapsed() > PATIENCE)));
    };
    let seen = run_and(&manifest, dir, change, look)?;
    seen.exited("warden")?;
    seen.undisturbed("victim", &["running"])?;
    let restarts = seen.sandbox("guest")?.restarts;
    seen.ensure(since.get().is_some() && restarts == 0, "it was not stopped")?;
    let now = seen.memory.as_ref().map_or(0, |memory| hash(memory, RAM));
    Ok([parked, now])
}

/// Without the steps that reset the function it does: the guest sees it, and what its
/// sandbox does not own stays as it is.
fn not_reset(kind: Kind, dir: &Path) -> Result<String, String> {
    let manifest = slow(kind, 10, dir, |text| without_reset(kind, text))?;
    let seen = guest(manifest.ends_with(&["guest"]), kind, HELD_BACK, dir)?;
    let s = seen.sandbox("guest")?;
    seen.ensure(s.restarts == 1 && s.exit_code == Some(1), "nothing came of the former life")?;
    seen.undisturbed("victim", &["running"])?;
    let said = seen.console.lines().find(|line| line.contains("is changed to"));
    Ok(said.unwrap_or("an interrupt came").to_owned())
}

/// A machine description without the steps that reset such a disk, and without a function-level reset.
pub fn without_reset(kind: Kind, text: String) -> Result<String, String> {
    let none = || format!("machines/qemu-q35.toml has no reset of {}", kind.function);
    let address = format!("address = \"{}\"", kind.function);
    let (before, rest) = text.split_once(&address).ok_or_else(none)?;
    let (function, after) = rest.split_once("\n\n").ok_or_else(none)?;
    let (function, steps) = function.split_once("\nreset = [").ok_or_else(none)?;
    // They end in the line's end, or in a line of their own.
    if !steps.ends_with(']') || steps.contains("]\n") {
        return Err(none());
    }
    let function = function.replace("flr = true", "flr = false");
    Ok(format!("{before}{address}{function}\n\n{after}"))
}

/// Changes the manifest for a machine with a disk that carries out so many requests a second.
pub fn slow(
    kind: Kind,
    rate: u32,
    dir: &Path,
    change: impl FnOnce(String) -> Result<String, String>,
) -> Result<Manifest, String> {
    let error = |e: std::io::Error| format!("{}: {e}", dir.display());
    file(dir)?;
    let text = std::fs::read_to_string(build::root().join("machines/qemu-q35.toml"));
    let text = text.map_err(error)?;
    let device = format!("    \"-device\", \"{}", kind.device);
    if text.matches(&device).count() != 1 {
        return Err(format!("machines/qemu-q35.toml has not one {device:?}"));
    }
    // A comma in an option's value is written twice.
    let disk = dir.join("disk.img").display().to_string().replace(',', ",,");
    let drive =
        format!("if=none,id=held,file={disk},format=raw,snapshot=on,throttling.iops-total={rate}");
    let whole = format!("{device}{}", kind.drive);
    let text = text.replace(
        &whole,
        &format!(
            "    \"-drive\", {drive:?},\n{}held",
            device.replace("drive=", &format!("{}drive=", kind.held))
        ),
    );
    let machines = dir.join("machines");
    std::fs::create_dir_all(&machines).map_err(error)?;
    std::fs::write(machines.join(format!("{HELD}.toml")), change(text)?).map_err(error)?;
    Ok(Manifest::on(HELD))
}

/// Hashes a range of memory.
fn hash(memory: &Memory, (start, len): (u64, usize)) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut bytes = vec![0; 1 << 20];
    for at in (0..len as u64).step_by(bytes.len()) {
        memory.read(start + at, &mut bytes);
        hasher.write(&bytes);
    }
    hasher.finish()
}
