//! A disk through the wall without our module. A program of the client's Linux is the driver's side, and its kernel has
//! the disk by `nbd` or `ublk`. The device side is another Linux or a driver sandbox. It is killed again and again, or
//! lies.

use super::block::{SINGLE, Way, exercised, pair, script, second, serve, served};
use super::driver::{Bench, Job};
use super::system::Seen;
use super::virtio::{NEWER, OLDER, driver, look, sound};
use std::time::Duration;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("block/nbd", 240, |bench| all(bench, NBD, [NEWER, OLDER], "doorbell")),
        Job::one("block/nbd-6.1", 240, |bench| all(bench, NBD, [OLDER, NEWER], "poll")),
        Job::one("block/nbd-restarts", 240, |bench| restarts(bench, NBD, 25)),
        Job::one("block/nbd-killed", 240, |bench| killed(bench, NBD, OLDER, "doorbell")),
        Job::one("block/nbd-gone", 240, |bench| gone(bench, NBD)),
        Job::one("block/nbd-rogue", 240, |bench| rogue(bench, NBD)),
        // 6.1 has no ublk.
        Job::one("block/ublk", 240, |bench| all(bench, UBLK, [NEWER, OLDER], "doorbell")),
        Job::one("block/ublk-restarts", 240, |bench| restarts(bench, UBLK, 25)),
        Job::one("block/ublk-killed", 240, |bench| killed(bench, UBLK, NEWER, "poll")),
        Job::one("block/ublk-gone", 240, |bench| gone(bench, UBLK)),
        Job::one("block/ublk-rogue", 240, |bench| rogue(bench, UBLK)),
    ]
}

/// Option that chooses the kernel's driver, and the first disk of it.
type Kernels = (&'static str, &'static str);
const NBD: Kernels = ("--nbd", "nbd0");
const UBLK: Kernels = ("--ublk", "ublkb0");

/// The client has no module of ours, and its kernel does not complain.
fn client(seen: &Seen) -> Result<&str, String> {
    let said = driver(seen)?;
    seen.ensure(
        said.contains("modules of ours: 0"),
        "our module is loaded, or was not looked for",
    )?;
    Ok(said)
}

/// Command that says if our module is there.
const MODULES: &str = "echo modules of ours: $(grep -c bulkhead_virtio /proc/modules)";

/// A file system on it, its whole device, and a part of a file that must not be written.
fn all(
    bench: &Bench,
    (option, disk): Kernels,
    kernels: [&str; 2],
    notify: &str,
) -> Result<String, String> {
    const KIB: u32 = 24 << 10;
    let client_job = script(&format!(
        "bhvirtio attach lan {option} sh -c 'mkdir /mnt&&mount -t ext4 $DISK /mnt&&truncate -s 12M /mnt/file&&bhvirtio exercise /mnt/file 150\
         &&md5sum /mnt/file>/tmp/sum&&umount /mnt&&mount -t ext4 $DISK /mnt&&md5sum -c /tmp/sum&&umount /mnt\
         &&bhvirtio exercise $DISK 200&&echo size $(cat /sys/block/{disk}/size) cache $(cat /sys/block/{disk}/queue/write_cache)'\
         &&bhvirtio attach constant {option} sh -c 'bhvirtio refuses $DISK&&dd if=/init bs=512 skip=1 count=128 of=/tmp/part\
         &&cmp $DISK /tmp/part&&echo the part is as it is'&&{MODULES}"
    ));
    let Way { path, options, made, .. } = SINGLE;
    let server = script(&format!(
        "{};zcat /ext4.gz>{path};bhvirtio block lan {path} --serial flight-7{options}&\
         bhvirtio block constant /init --read-only --serial constant --offset 512 --length 64K",
        made(KIB)
    ));
    let mut manifest = pair(&SINGLE, kernels, [&client_job, &server], notify);
    second(&mut manifest, notify);
    let seen = look(&manifest, bench)?;
    let said = client(&seen)?;
    let facts = format!("size {} cache write back", KIB * 2);
    seen.ensure(said.contains(&facts), format!("no `{facts}`"))?;
    seen.ensure(said.contains(&format!("/dev/{disk} refuses to be written")), "it can be written")?;
    seen.ensure(said.contains("the part is as it is"), "the part of a file is another one")?;
    seen.ensure(said.contains("/mnt/file: OK"), "the file is another one after a mount")?;
    seen.ensure(sound(seen.serial(2)?), "the device side's kernel complains")?;
    let file = exercised(&seen, said, "/mnt/file")?;
    Ok(format!("ext4: {file}; raw: {}", exercised(&seen, said, &format!("/dev/{disk}"))?))
}

/// The driver sandbox is restarted so many times by the Linux itself, while that writes and reads.
fn restarts(bench: &Bench, (option, disk): Kernels, times: u32) -> Result<String, String> {
    let job = script(&format!(
        "bhvirtio attach first {option} sh -c 'bhvirtio exercise $DISK 6000&bhvirtio each {times} 200 bulkheadctl restart store;wait'&&{MODULES}"
    ));
    let mut manifest = served(|text| text, &job)?;
    manifest.0 += "restart = [\"store\"]\n";
    let seen = serve(&manifest, bench, Duration::from_secs(220))?;
    let said = client(&seen)?;
    seen.undisturbed("one", &["exited", "stopped"])?;
    let exercised = exercised(&seen, said, &format!("/dev/{disk}"))?;
    seen.ensure(!said.contains("I/O error"), "the client saw an error")?;
    let ran = said.contains(&format!("bhvirtio: ran {times} times"));
    seen.ensure(ran, "the store was not restarted so often")?;
    seen.ensure(said.contains("the device is back, session 8"), "the client saw few restarts")?;
    let store = seen.sandbox("store")?;
    seen.ensure(store.restarts == u64::from(times), format!("{} restarts", store.restarts))?;
    seen.ensure(store.denials == 0, format!("{} denials of the store", store.denials))?;
    Ok(format!("{times} restarts; {exercised}"))
}

/// The device side in a Linux is killed again and again, while the client writes and reads.
fn killed(
    bench: &Bench,
    (option, disk): Kernels,
    kernel: &str,
    notify: &str,
) -> Result<String, String> {
    const TIMES: usize = 50;
    let job = script(&format!(
        "bhvirtio attach lan {option} sh -c 'bhvirtio exercise $DISK 3400'&&{MODULES}"
    ));
    let Way { path, made, .. } = SINGLE;
    let server =
        script(&format!("{};bhvirtio again {TIMES} 50 bhvirtio block lan {path}", made(8 << 10)));
    let seen = look(&pair(&SINGLE, [kernel, NEWER], [&job, &server], notify), bench)?;
    let said = client(&seen)?;
    let exercised = exercised(&seen, said, &format!("/dev/{disk}"))?;
    let side = seen.serial(2)?;
    seen.ensure(side.contains(&format!("killed {TIMES} times")), "it was not killed so often")?;
    let sessions = side.matches("lan: Begun").count();
    seen.ensure(sessions >= TIMES / 2, format!("{sessions} sessions: it was killed too early"))?;
    seen.ensure(sound(side), "the device side's kernel complains")?;
    seen.ensure(!said.contains("I/O error"), "the client saw an error")?;
    seen.ensure(said.contains("the device is back"), "the client saw no restart")?;
    Ok(format!("{TIMES} ends, {sessions} sessions; {exercised}"))
}

/// A device side that has another disk than the one before, and one that is silent for longer than the client waits.
fn gone(bench: &Bench, (option, _): Kernels) -> Result<String, String> {
    let exercise = |limit: u32, millis: u32| {
        format!(
            "bhvirtio attach lan {option} --limit {limit} sh -c 'bhvirtio exercise $DISK {millis}'"
        )
    };
    // The first one ends with another disk, and the second one without an answer.
    let job = script(&format!(
        "{};{};{}&&{MODULES}",
        exercise(9, 3000),
        exercise(2, 8000),
        exercise(9, 20)
    ));
    let server = script(
        "truncate -s 8M /tmp/disk;timeout -s KILL 1 bhvirtio block lan /tmp/disk --serial first;\
         timeout -s KILL 3 bhvirtio block lan /tmp/disk --serial second;sleep 6;bhvirtio block lan /tmp/disk --serial third",
    );
    let seen = look(&pair(&SINGLE, [NEWER, NEWER], [&job, &server], "doorbell"), bench)?;
    let said = client(&seen)?;
    for part in ["its side has another disk", "no answer for 2 s", "I/O error", "all as written"] {
        seen.ensure(said.contains(part), format!("the client did not say `{part}`"))?;
    }
    Ok("another disk is another one, and no answer is an end".into())
}

/// A device side that lies, then an honest one.
fn rogue(bench: &Bench, (option, _): Kernels) -> Result<String, String> {
    // Each fourth life is another disk, which ends the program.
    let job = script(&format!(
        "yes 300|head -n 12|xargs -n 1 bhvirtio attach lan {option} --limit 1 bhvirtio poke;sleep 6;\
         bhvirtio attach lan {option} sh -c 'bhvirtio exercise $DISK 50'&&{MODULES}"
    ));
    let server = script(
        "truncate -s 8M /tmp/disk;bhvirtio mislead lan 5000 bhvirtio block lan /tmp/disk --serial honest",
    );
    let seen = look(&pair(&SINGLE, [NEWER, NEWER], [&job, &server], "doorbell"), bench)?;
    let said = client(&seen)?;
    let told = seen.serial(2)?.lines().find_map(|line| {
        let (before, _) = line.strip_prefix("bhvirtio: ")?.split_once(" answers that lie")?;
        before.rsplit(' ').next()?.parse::<u64>().ok()
    });
    let told = told.unwrap_or(0);
    seen.ensure(told >= 5, format!("{told} lies: the rogue is too tame"))?;
    seen.ensure(said.contains(", 0 reads were stale"), "an answer was taken for more than it was")?;
    seen.ensure(!said.contains("stale reads"), "an answer was taken for more than it was")?;
    seen.ensure(said.contains("all as written"), "the disk does not work after that")?;
    Ok(format!("{told} lies, and no complaint; then an honest disk works"))
}
