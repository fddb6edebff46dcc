//! A disk through the wall: the stock driver of a Linux, 6.12 and 6.1, over a channel, with our module. Another Linux
//! has the device side, a file or a loop device. The device side is killed again and again, or lies.

use super::driver::{Bench, Job};
use super::system::{Manifest, Seen, run};
use super::virtio::{NEWER, OLDER, driver, look, sound, two};
use crate::bench::store::KINDS;
use crate::build;
use std::fmt::Write as _;
use std::time::Duration;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("block/linux-6.12", 240, |bench| all(bench, [NEWER, OLDER], "doorbell", &SEVERAL)),
        Job::one("block/linux-6.1", 240, |bench| all(bench, [OLDER, NEWER], "poll", &SINGLE)),
        Job::one("block/stock-6.12", 240, |bench| stock(bench, "linux-6.12", "doorbell")),
        Job::one("block/stock-6.1", 240, |bench| stock(bench, "linux-6.1", "poll")),
        Job::one("block/restarts", 240, |bench| restarts(bench, NEWER, "adaptive", &SEVERAL)),
        Job::one("block/restarts-6.1", 240, |bench| restarts(bench, OLDER, "poll", &SINGLE)),
        Job::one("block/spins", 240, |bench| spins(bench, NEWER, "poll", 0)),
        Job::one("block/spins-6.1", 240, |bench| spins(bench, OLDER, "poll", 0)),
        Job::one("block/spins-adaptive", 240, |bench| spins(bench, NEWER, "adaptive", 64)),
        Job::one("block/waits", 240, waits),
        Job::one("block/gone", 240, gone),
        Job::one("block/store", 240, |bench| store(bench, 0)),
        Job::one("block/store-restarts", 240, |bench| store(bench, 50)),
        Job::one("block/faults-raw", 400, |bench| faults(bench, |text| text, "raw", 52)),
        Job::one("block/faults-ext4", 400, |bench| faults(bench, |text| text, "ext4", 52)),
        Job::one("block/faults-nvme", 400, |bench| faults(bench, believing, "raw", 13)),
        Job::one("block/faults-ahci", 400, |bench| faults(bench, but_garbage, "raw", 12)),
        Job::one("block/faults-soak", 1200, |bench| faults(bench, |text| text, "ext4", 1000)),
        Job::one("block/lies-integrity", 240, lies),
        Job::one("block/rogue", 240, |bench| rogue(bench, NEWER, "doorbell", &SEVERAL)),
        Job::one("block/rogue-6.1", 240, |bench| rogue(bench, OLDER, "poll", &SINGLE)),
    ]
}

/// The client's programs, with those that check a disk.
const CHECKS: &str = "artifact:checks.cpio";

/// A way to serve a disk.
pub(super) struct Way {
    /// Queues that the client uses: one for each of its cores.
    pub(super) queues: u32,
    /// Commands that make a disk of so many KiB at the device side, and its path.
    pub(super) made: fn(u32) -> String,
    pub(super) path: &'static str,
    /// Options of the device side.
    pub(super) options: &'static str,
}

/// One queue, and a file in memory: no request waits at the device side.
pub(super) const SINGLE: Way = Way {
    queues: 1,
    made: |kib| format!("truncate -s {kib}K /tmp/disk"),
    path: "/tmp/disk",
    options: "",
};
/// Several queues, and a block device: some requests wait there, while other threads go on.
pub(super) const SEVERAL: Way = Way {
    queues: 2,
    made: |kib| format!("modprobe loop;truncate -s {kib}K /tmp/disk;losetup /dev/loop0 /tmp/disk"),
    path: "/dev/loop0",
    options: " --queues 4",
};

/// Two Linuxes, the client with a core for each queue.
pub(super) fn pair(way: &Way, kernels: [&str; 2], jobs: [&str; 2], notify: &str) -> Manifest {
    let mut manifest = two(kernels, jobs, notify);
    let cores: Vec<u32> = (0..way.queues).collect();
    let both = [
        ("cores = [1]", format!("cores = [{}]", way.queues)),
        ("cores = [0]", format!("cores = {cores:?}")),
    ];
    for (of, to) in both {
        manifest.0 = manifest.0.replace(of, &to);
    }
    manifest
}

/// A program's arguments, or a script of simple commands, as one word of a kernel's command line.
pub(super) fn word(text: &str) -> String {
    text.replace(' ', "${IFS}")
}

/// A script that runs in the background of a sandbox's job.
pub(super) fn script(text: &str) -> String {
    format!("sh:-c,{}", word(text))
}

/// Tells what was read and written, of the lines of [`driver`].
pub(super) fn exercised<'a>(seen: &Seen, said: &'a str, path: &str) -> Result<&'a str, String> {
    let start = format!("bhvirtio: {path}: ");
    let found = said.lines().filter_map(|line| line.trim_end().strip_prefix(&start[..]));
    let found = found.filter_map(|line| line.strip_suffix(", all as written")).next();
    found.ok_or_else(|| seen.wrong(format!("{path} was not as it was written")))
}

/// A file system on it, its whole device, and a part of a file that must not be written.
fn all(bench: &Bench, kernels: [&str; 2], notify: &str, way: &Way) -> Result<String, String> {
    const KIB: u32 = 24 << 10;
    let client = script(
        "bhvirtio disk mkdir /mnt&&mount -t ext4 /dev/vda /mnt&&truncate -s 12M /mnt/file&&bhvirtio exercise /mnt/file 150\
         &&md5sum /mnt/file>/tmp/sum&&umount /mnt&&mount -t ext4 /dev/vda /mnt&&md5sum -c /tmp/sum&&umount /mnt\
         &&bhvirtio exercise /dev/vda 200&&bhvirtio refuses constant\
         &&dd if=/init bs=512 skip=1 count=128 of=/tmp/part&&cmp /dev/vdb /tmp/part&&echo the part is as it is",
    );
    let Way { path, options, .. } = way;
    let server = script(&format!(
        "{};zcat /ext4.gz>{path};bhvirtio block lan {path} --offset 23M --length 2M;bhvirtio block lan {path} --serial flight-7{options}&\
         sleep 1;bhvirtio block constant /init --read-only --serial constant --offset 512 --length 64K",
        (way.made)(KIB)
    ));
    let mut manifest = pair(way, kernels, [&client, &server], notify);
    second(&mut manifest, notify);
    let seen = look(&manifest, bench)?;
    let said = driver(&seen)?;
    let (size, queues) = (format!("size {}", KIB * 2), format!("queues {}", way.queues));
    for fact in ["serial flight-7", &size, "ro 0", "queue/write_cache write back", &queues] {
        seen.ensure(said.contains(&format!("vda: {fact}")), format!("no `{fact}`"))?;
    }
    seen.ensure(said.contains("constant refuses to be written"), "it can be written")?;
    seen.ensure(said.contains("the part is as it is"), "the part of a file is another one")?;
    seen.ensure(said.contains("/mnt/file: OK"), "the file is another one after a mount")?;
    let side = seen.serial(2)?;
    seen.ensure(
        side.contains("the disk would end at 26214400"),
        "a part beyond the end is served",
    )?;
    seen.ensure(sound(side), "the device side's kernel complains")?;
    let file = exercised(&seen, said, "/mnt/file")?;
    Ok(format!("ext4: {file}; raw: {}", exercised(&seen, said, "/dev/vda")?))
}

/// Another disk between the two.
pub(super) fn second(manifest: &mut Manifest, notify: &str) {
    let _ = writeln!(
        manifest.0,
        "[[channel]]\nname = \"constant\"\nfrom = \"one\"\nto = [\"two\"]\nsize = \"256 KiB\"\nkind = \"virtio\"\nnotify = \"{notify}\""
    );
}

/// Debian's stock kernel in the place of its kernel for clouds: the client has our module and a disk by it.
fn stock(bench: &Bench, kernel: &str, notify: &str) -> Result<String, String> {
    let client = script("uname -r;bhvirtio disk bhvirtio exercise /dev/vda 200");
    let Way { path, options, .. } = SEVERAL;
    let server = script(&format!(
        "{};bhvirtio block lan {path} --serial flight-7{options}",
        (SEVERAL.made)(8 << 10)
    ));
    let mut manifest = pair(&SEVERAL, [kernel, NEWER], [&client, &server], notify);
    // The first sandbox is the client.
    manifest.0 = manifest.0.replacen("artifact:virtio.cpio", "artifact:virtio-stock.cpio", 1);
    let seen = look(&manifest, bench)?;
    let said = seen.serial(1)?;
    seen.ensure(said.contains("bulkhead-init: exit code 0"), "the client failed")?;
    seen.ensure(sound(said), "its kernel complains")?;
    // A stock kernel looks for a function that Intel's firmware hides (P2SB), and for others' serial ports.
    let hidden = " to configuration register 0xe0 of 00:1f.1";
    let expected = |d: &bulkhead_explain::Explained| {
        let port = d.record.kind == bulkhead_layout::report::Kind::Port as u16;
        d.sandbox != "one" || port || d.to_string().contains(hidden)
    };
    if let Some(denial) = seen.denials.iter().find(|denial| !expected(denial)) {
        return Err(seen.wrong(format!("the client was denied something: {denial}")));
    }
    let stock = |line: &str| line.trim_end().ends_with("-amd64") && !line.contains("cloud");
    seen.ensure(said.lines().any(stock), "the client's kernel is no stock one")?;
    for fact in ["serial flight-7", "size 16384", "queues 2"] {
        seen.ensure(said.contains(&format!("vda: {fact}")), format!("no `{fact}`"))?;
    }
    seen.ensure(sound(seen.serial(2)?), "the device side's kernel complains")?;
    Ok(exercised(&seen, said, "/dev/vda")?.to_owned())
}

/// The device side is killed again and again, while the client writes and reads.
fn restarts(bench: &Bench, kernel: &str, notify: &str, way: &Way) -> Result<String, String> {
    const TIMES: usize = 50;
    /// A life can end before its session begins.
    const LEAST: usize = TIMES / 2;
    let client = script("bhvirtio disk bhvirtio exercise /dev/vda 3400");
    let Way { path, options, .. } = way;
    let server = script(&format!(
        "{};bhvirtio again {TIMES} 50 bhvirtio block lan {path}{options}",
        (way.made)(8 << 10)
    ));
    let seen = look(&pair(way, [kernel, NEWER], [&client, &server], notify), bench)?;
    let said = driver(&seen)?;
    seen.ensure(said.contains(&format!("vda: queues {}", way.queues)), "other queues than it has")?;
    let exercised = exercised(&seen, said, "/dev/vda")?;
    let side = seen.serial(2)?;
    seen.ensure(side.contains(&format!("killed {TIMES} times")), "it was not killed so often")?;
    let sessions = side.matches("lan: Begun").count();
    seen.ensure(sessions >= LEAST, format!("{sessions} sessions: it was killed too early"))?;
    seen.ensure(sound(side), "the device side's kernel complains")?;
    seen.ensure(!said.contains("I/O error"), "the client saw an error")?;
    seen.ensure(!said.contains("the device is gone"), "the client lost its disk")?;
    // Its log holds back some of them.
    seen.ensure(said.contains("the device is back"), "its driver saw no restart")?;
    Ok(format!("{TIMES} restarts, {sessions} sessions; {exercised}"))
}

/// The client's kernel has a thread that looks for answers in place of interrupts. There are at most so many for 512
/// reads, which are right. With doorbells each read has one.
fn spins(bench: &Bench, kernel: &str, notify: &str, most: u64) -> Result<String, String> {
    /// Nanoseconds of the thread for a read, at least: a thread that does not look has some for all.
    const EACH: u64 = 500;
    const READS: u64 = 512;
    let count = "echo interrupts $(grep bulkhead_virtio /proc/interrupts);echo ran $(cat ${p%comm}schedstat)";
    let client = script(&format!(
        "bhvirtio disk;sleep 2;p=$(grep -l bulkhead-spin /proc/[0-9]*/comm);{count};dd if=/dev/vda of=/tmp/read bs=4k count={READS} iflag=direct;{count};\
         zcat /ext4.gz|dd bs=4k count={READS} iflag=fullblock|cmp - /tmp/read&&echo all was read"
    ));
    let Way { made, path, options, .. } = SINGLE;
    let server =
        script(&format!("{};zcat /ext4.gz>{path};bhvirtio block lan {path}{options}", made(0)));
    let seen = look(&pair(&SINGLE, [kernel, NEWER], [&client, &server], notify), bench)?;
    let said = driver(&seen)?;
    seen.ensure(said.contains("all was read"), "it read something else")?;
    // The second word of both lines: `/proc/interrupts` has a line of the module's only where it is woken.
    let counts = |of: &str, at: usize| -> Vec<u64> {
        let lines = said.lines().filter_map(|line| line.trim_end().strip_prefix(of));
        let word = |line: &str| line.split_whitespace().nth(at).and_then(|word| word.parse().ok());
        lines.map(|line| word(line).unwrap_or(0)).collect()
    };
    let (&[before, after], &[begun, ended]) = (&counts("interrupts", 1)[..], &counts("ran", 0)[..])
    else {
        return Err(seen.wrong("no two counts of interrupts and of the thread's time"));
    };
    let (interrupts, ran) = (after - before, ended - begun);
    let told = format!("{interrupts} interrupts for {READS} reads; the thread ran for {ran} ns");
    seen.ensure(interrupts <= most, &told)?;
    seen.ensure(ran >= EACH * READS, &told)?;
    Ok(told)
}

/// A file system at the device side that is frozen: writes to the disk wait, and reads from it go on.
fn waits(bench: &Bench) -> Result<String, String> {
    let client = script("bhvirtio disk bhvirtio meanwhile /dev/vda");
    let server = script(
        "modprobe brd rd_nr=1 rd_size=24576;zcat /ext4.gz>/dev/ram0;mkdir /mnt;mount -t ext4 /dev/ram0 /mnt;truncate -s 8M /mnt/disk;\
         bhvirtio block lan /mnt/disk --queues 2&sleep 1;echo frozen|dd of=/mnt/disk conv=notrunc;fsfreeze --freeze /mnt;sleep 5;fsfreeze --unfreeze /mnt;wait",
    );
    let seen = look(&pair(&SEVERAL, [NEWER, NEWER], [&client, &server], "doorbell"), bench)?;
    let said = driver(&seen)?;
    let read = said.contains("16 reads while a write waited");
    seen.ensure(read, "a write that waits holds reads up")?;
    Ok("16 reads while a write waited".into())
}

/// A driver sandbox of the kernel with a Linux: `tests/store/virtio.toml`, with a Linux in the place of its first
/// client.
pub(super) fn served(change: impl Fn(String) -> String, client: &str) -> Result<Manifest, String> {
    let path = build::root().join("tests/store/virtio.toml");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (text, _) = text.split_once("[[sandbox]]\nname = \"one\"").ok_or("no client in it")?;
    let text = change(text.to_owned())
        .replace("ends_with = [\"one\", \"two\"]", "ends_with = [\"one\"]")
        .replace("disk=first:0:4096 disk=second:4096:0:ro", "disk=first:0:16384")
        .replace("    { channel = \"second\", notification = \"work\", bits = 4 },\n", "")
        .replace("dma = [\"rings\", \"first\", \"second\"]", "dma = [\"rings\", \"first\"]")
        .replace("size = \"256 KiB\"", "size = \"1 MiB\"");
    let mut manifest = Manifest(text).linux("one", NEWER, client, &[1], "256 MiB", 1);
    manifest.0 = manifest.0.replace("artifact:test.cpio", "artifact:virtio.cpio");
    Ok(manifest)
}

/// Runs it with the disk's file.
pub(super) fn serve(manifest: &Manifest, bench: &Bench, limit: Duration) -> Result<Seen, String> {
    super::store::disk(&bench.dir)?;
    // In real time: virtual time runs ahead of a disk.
    run(manifest, &bench.dir, |o| {
        o.time = bulkhead_qemu::Time::Live;
        o.limit = limit;
    })
}

/// The driver sandbox is restarted so many times by the Linux itself, while that writes and reads.
fn store(bench: &Bench, restarts: u32) -> Result<String, String> {
    let client = script(&format!(
        "bhvirtio disk;bhvirtio exercise /dev/vda 6000&bhvirtio each {restarts} 40 bulkheadctl restart store;wait"
    ));
    let mut manifest = served(|text| text, &client)?;
    manifest.0 += "restart = [\"store\"]\n";
    let seen = serve(&manifest, bench, Duration::from_secs(220))?;
    let said = driver(&seen)?;
    seen.undisturbed("one", &["exited", "stopped"])?;
    let exercised = exercised(&seen, said, "/dev/vda")?;
    seen.ensure(!said.contains("I/O error"), "the client saw an error")?;
    seen.ensure(!said.contains("the device is gone"), "the client lost its disk")?;
    let ran = said.contains(&format!("bhvirtio: ran {restarts} times"));
    seen.ensure(ran, "the store was not restarted so often")?;
    let back = said.contains("the device is back");
    seen.ensure(back == (restarts > 0), "the client's module saw no restart, or one of nobody's")?;
    // QEMU's disk has both requests.
    for range in ["discard", "write_zeroes"] {
        let fact = format!("vda: queue/{range}_max_bytes ");
        let offered = said.split(&fact).nth(1).is_some_and(|most| !most.starts_with('0'));
        seen.ensure(offered, format!("its disk has no {range}"))?;
    }
    let store = seen.sandbox("store")?;
    seen.ensure(store.restarts == u64::from(restarts), format!("{} restarts", store.restarts))?;
    seen.ensure(store.denials == 0, format!("{} denials of the store", store.denials))?;
    Ok(format!("{restarts} restarts; {exercised}"))
}

/// Plants faults of all kinds in the driver, one after the other, while the Linux works. It works on the whole disk, or
/// in a file on ext4, which is mounted again afterwards. It goes on until after the last fault, and sees no error.
fn faults(
    bench: &Bench,
    disk: fn(String) -> String,
    on: &str,
    count: u64,
) -> Result<String, String> {
    /// Milliseconds of work for a fault: a hang takes longer to be seen than others.
    const EACH: u64 = 500;
    let millis = 5_000 + count * EACH;
    let (path, work) = match on {
        "ext4" => (
            "/mnt/file",
            format!(
                "mkdir /mnt;zcat /ext4.gz>/dev/vda;mount -t ext4 /dev/vda /mnt&&truncate -s 12M /mnt/file\
                 &&bhvirtio exercise /mnt/file {millis}&&md5sum /mnt/file>/tmp/sum&&umount /mnt\
                 &&mount -t ext4 /dev/vda /mnt&&md5sum -c /tmp/sum&&umount /mnt\
                 &&e2fsck -f -n /dev/vda&&echo there is nothing to mend"
            ),
        ),
        _ => ("/dev/vda", format!("bhvirtio exercise /dev/vda {millis}")),
    };
    let client = script(&format!("bhvirtio disk;{work}"));
    let faulty = |text: String| {
        let args = format!("faults={count} within=48 disk=first");
        disk(text)
            .replace("artifact:program-store", "artifact:store-rogue")
            .replace("disk=first", &args)
    };
    let mut manifest = served(faulty, &client)?;
    // The file system is 24 MiB long.
    manifest.0 = manifest.0.replace("first:0:16384", "first:0:65536");
    manifest.0 = manifest.0.replace("artifact:virtio.cpio", CHECKS);
    let seen = serve(&manifest, bench, Duration::from_millis(millis) + Duration::from_secs(150))?;
    // Each kind's way to be found is in there.
    let _ = std::fs::write(bench.dir.join("seen.log"), &seen.console);
    let said = driver(&seen)?;
    seen.undisturbed("one", &["exited", "stopped"])?;
    let exercised = exercised(&seen, said, path)?;
    for wrong in ["I/O error", "EXT4-fs error", "EXT4-fs warning", "the device is gone"] {
        seen.ensure(!said.contains(wrong), format!("the client's Linux says `{wrong}`"))?;
    }
    let sound = on != "ext4" || said.contains("/mnt/file: OK");
    seen.ensure(sound, "the file is another one after a mount")?;
    let checked = on != "ext4" || said.contains("there is nothing to mend");
    seen.ensure(checked, "e2fsck finds something to mend")?;
    let all = format!("store: all {count} faults were planted");
    seen.ensure(seen.console.contains(&all), format!("nobody says {all:?}"))?;
    let store = seen.sandbox("store")?;
    // A restart follows a denied access, too.
    seen.ensure(store.state == "running", format!("the store's sandbox is {}", store.state))?;
    // The client finds five of thirteen kinds, and complains. A driver in its first second mends that by itself.
    // In 1,000 faults a silent disk hid two, and one complaint was not made.
    let few = count / 20 + 1;
    let complaints = count * 5 / 13 - few;
    let mended = seen.console.matches("first gets its device anew").count() as u64;
    let believed = seen.console.matches("first has given up on its device").count() as u64;
    let heard = format!("{mended} complaints mended, {believed} believed");
    seen.ensure(mended + believed >= complaints, format!("only {heard}"))?;
    seen.ensure(
        store.restarts >= count - mended - few,
        format!("{} restarts, {heard}", store.restarts),
    )?;
    let turns = seen.console.matches("requests came again in their order").count();
    seen.ensure(turns > 0, "no request came again")?;
    let turned = seen.console.contains("a request did not come again in its turn");
    seen.ensure(!turned, "the client has changed the order of its requests")?;
    // No fault leaves the sandbox but by DMA, which is the IOMMU's. One stray denial was seen in two of ten runs. It
    // was at the monitor's own instruction behind VMRUN, and its cause is not known (docs/store.md).
    let denied = store.denials;
    seen.ensure(denied <= 1, format!("{denied} denials of the store"))?;
    Ok(format!(
        "{count} faults, {} restarts, {heard}, {denied} denied; {exercised}",
        store.restarts
    ))
}

/// A driver that says success, and has lost a write, or taken another sector. The client's Linux believes it, and its
/// program finds other bytes than it wrote. With dm-integrity the kernel finds the lie, and gives no wrong byte to a
/// program.
fn lies(bench: &Bench) -> Result<String, String> {
    /// Milliseconds from the first request on after which the driver lies: dm-integrity fills the disk first.
    const HONEST: u64 = 15_000;
    const EXERCISE: &str = "bhvirtio exercise";
    let told = |seen: &Seen| {
        let lies = ["does not write", "writes to another sector", "reads another sector"];
        lies.map(|lie| seen.console.matches(lie).count())
    };
    let run = |client: &str, honest: u64| {
        let lying = |text: String| {
            text.replace("artifact:program-store", "artifact:store-rogue")
                .replace("disk=first", &format!("lies=40 honest={honest} disk=first"))
        };
        let Manifest(text) = served(lying, &script(client))?;
        let text = text.replace("artifact:virtio.cpio", CHECKS);
        serve(&Manifest(text), bench, Duration::from_secs(120))
    };
    let bare = run(&format!("bhvirtio disk;{EXERCISE} /dev/vda 20000;true"), 0)?;
    let said = driver(&bare)?;
    bare.ensure(said.contains("are not as written"), "no lie came to the program")?;
    bare.ensure(!said.contains("I/O error"), "the kernel found a lie by itself")?;
    let client = format!(
        "bhvirtio disk bhvirtio integrity /dev/vda safe&&{EXERCISE} /dev/mapper/safe 40000;true"
    );
    let safe = run(&client, HONEST)?;
    let said = driver(&safe)?;
    safe.ensure(said.contains("sectors with checksums"), "there was no disk with dm-integrity")?;
    let found = said.matches("Checksum failed at sector").count();
    safe.ensure(found > 0, "dm-integrity found no lie")?;
    safe.ensure(!said.contains("are not as written"), "a lie came to the program")?;
    Ok(format!(
        "lies {:?} without, {:?} with; dm-integrity found {found}",
        told(&bare),
        told(&safe)
    ))
}

/// The system with an NVMe controller and a driver that believes a client's complaint from its beginning on.
fn believing(text: String) -> String {
    super::store::nvme(text).replace("args = \"disk=first", "args = \"complaint=0 disk=first")
}

/// The system with an AHCI controller, and such a driver. A disk that is told garbage is silent, and is given up after
/// five seconds: the kind that comes last is left out.
fn but_garbage(text: String) -> String {
    let kinds = KINDS[..KINDS.len() - 1].join(",");
    super::store::ahci(text)
        .replace("args = \"disk=first", &format!("args = \"complaint=0 kinds={kinds} disk=first"))
}

/// A device side that has another disk than the one before, and one that is silent for longer than the client waits.
fn gone(bench: &Bench) -> Result<String, String> {
    let client = script(
        "bhvirtio disk;bhvirtio exercise second 20&&sleep 2;dd if=/dev/zero of=/dev/vda bs=64k count=4 oflag=direct;bhvirtio exercise third 20",
    ) + " bulkhead_virtio.revive_s=2";
    let server = script(
        "truncate -s 8M /tmp/disk;timeout -s KILL 1 bhvirtio block lan /tmp/disk --serial first;\
         timeout -s KILL 2 bhvirtio block lan /tmp/disk --serial second;sleep 5;bhvirtio block lan /tmp/disk --serial third",
    );
    let seen = look(&two([NEWER, NEWER], [&client, &server], "doorbell"), bench)?;
    let said = driver(&seen)?;
    for part in ["its side has another one", "no answer for 2 s", "I/O error"] {
        seen.ensure(said.contains(part), format!("the driver's Linux did not say `{part}`"))?;
    }
    Ok("another disk is another one, and no answer is an end".into())
}

/// A device side that lies, then an honest one.
fn rogue(bench: &Bench, kernel: &str, notify: &str, way: &Way) -> Result<String, String> {
    /// Each impossible answer ends a life, and the next one is looked for every 20 ms.
    const LEAST: u64 = 60;
    let client = script("bhvirtio disk bhvirtio poke 5500&&bhvirtio exercise honest 50")
        + " bulkhead_virtio.revive_s=1";
    let server = script(
        "truncate -s 8M /tmp/disk;bhvirtio mislead lan 5000 bhvirtio block lan /tmp/disk --serial honest",
    );
    let seen = look(&pair(way, [kernel, NEWER], [&client, &server], notify), bench)?;
    let said = driver(&seen)?;
    for part in ["the device side spoilt", "refused: ", "the device is back", "has another one"] {
        seen.ensure(said.contains(part), format!("the driver's Linux did not say `{part}`"))?;
    }
    let told = seen.serial(2)?.lines().find_map(|line| {
        let (before, _) = line.strip_prefix("bhvirtio: ")?.split_once(" answers that lie")?;
        before.rsplit(' ').next()?.parse::<u64>().ok()
    });
    let told = told.unwrap_or(0);
    seen.ensure(told >= LEAST, format!("{told} lies: the rogue is too tame"))?;
    seen.ensure(said.contains(", 0 reads were stale"), "an answer was taken for more than it was")?;
    seen.ensure(said.contains("all as written"), "the disk does not work after that")?;
    Ok(format!("{told} lies, and no complaint; then an honest disk works"))
}
