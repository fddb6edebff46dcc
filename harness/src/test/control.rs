//! `bulkheadctl`: what a Linux that the manifest trusts sees of other sandboxes and does with them, and what the
//! monitors refuse.

use super::driver::{Bench, Job};
use super::evidence::screen::Terminal;
use super::system::{Manifest, NEWER, OLDER, Seen, artifacts, run_audited};
use super::under::bays;
use bulkhead_initramfs::{Archive, Entry};
use bulkhead_layout::map::GUEST_LOW_END;
use bulkhead_layout::report::Kind;
use std::fmt::Write as _;

pub fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for (name, kernel) in [("6.12", NEWER), ("6.1", OLDER)] {
        let name = format!("control/ctl-{name}");
        jobs.push(Job::one(name, 240, move |bench| shown(bench, kernel)));
    }
    jobs.push(Job::one("control/console", 240, consoles));
    jobs.push(Job::one("control/load", 240, loaded));
    jobs.push(Job::one("control/create", 240, created));
    jobs.push(Job::one("control/hotplug", 240, plugged));
    jobs
}

/// The initramfs with `bulkheadctl`, a script, and the manifest with its machine where they are looked for: the
/// kernel unpacks archives one behind the other.
pub fn initramfs(
    manifest: Option<&Manifest>,
    bench: &Bench,
    script: &str,
    files: &[(&str, Vec<u8>)],
) -> Result<(), String> {
    let mut more = Archive::default();
    let mut add =
        |path: &str, text: &str| more.add(path, Entry::File(0o644, text.as_bytes().to_vec()));
    add("/test.sh", script);
    if let Some(manifest) = manifest {
        add("/etc/bulkhead/system.toml", &manifest.0);
    }
    let other = Manifest::new().bare("one", "hello", "", &[0], "4 MiB", "");
    add("/other.toml", &other.0);
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../machines/qemu-q35.toml");
    let machine = std::fs::read_to_string(machine).map_err(|e| format!("{machine}: {e}"))?;
    add("/etc/bulkhead/machines/qemu-q35.toml", &machine);
    add("/machines/qemu-q35.toml", &machine);
    for (path, bytes) in files {
        more.add(path, Entry::File(0o644, bytes.clone()));
    }
    let modules = script.contains("/dev/bulkhead");
    let base = artifacts().join(if modules { "virtio.cpio" } else { "ctl.cpio" });
    let base = std::fs::read(&base).map_err(|e| format!("{}: {e}", base.display()))?;
    std::fs::create_dir_all(&bench.dir).map_err(|e| e.to_string())?;
    let path = bench.dir.join("ctl.cpio");
    std::fs::write(&path, [base, more.to_bytes()].concat()).map_err(|e| e.to_string())
}

/// A script of commands, each with its name before it and its status behind.
pub fn script(commands: &[(&str, &str)]) -> String {
    let one = |(name, command): &(&str, &str)| {
        format!("echo \"== {name}\"; {command} 2>&1; echo \"-- {name} $?\"\n")
    };
    commands.iter().map(one).collect()
}

/// Finds the lines that a command of the script printed, and its status.
pub fn said<'a>(seen: &'a Seen, name: &str) -> Result<(&'a str, &'a str), String> {
    let serial = seen.serial(1)?;
    let (begin, end) = (format!("== {name}"), format!("-- {name} "));
    let text = serial.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    let (text, rest) = text.ok_or_else(|| seen.wrong(format!("nothing of `{name}`")))?;
    Ok((text, rest.lines().next().unwrap_or_default().trim_end()))
}

/// A command said all of this, and ended so.
fn expect(seen: &Seen, name: &str, status: &str, all: &[&str]) -> Result<(), String> {
    let (text, was) = said(seen, name)?;
    let all = all.iter().filter(|one| !text.contains(**one));
    let missing: Vec<_> = all.collect();
    let right = missing.is_empty() && was == status;
    let what = || format!("`{name}` ended with {was}, did not say {missing:?}:\n{text}");
    if right { Ok(()) } else { Err(seen.wrong(what())) }
}

fn ground(kernel: &str) -> Manifest {
    let mut manifest = Manifest::new().ends_with(&["ground"]).linux(
        "ground",
        kernel,
        "sh:/test.sh",
        &[0],
        "256 MiB",
        1,
    );
    manifest.0 = manifest.0.replace("artifact:test.cpio", "ctl.cpio");
    manifest
}

fn look(
    manifest: &Manifest,
    bench: &Bench,
    commands: &[(&str, &str)],
    files: &[(&str, Vec<u8>)],
) -> Result<Seen, String> {
    initramfs(Some(manifest), bench, &script(commands), files)?;
    run_audited(manifest, &bench.dir, 220)
}

const COMMANDS: &[(&str, &str)] = &[
    ("list", "bulkheadctl list"),
    ("status", "bulkheadctl status"),
    ("stop", "bulkheadctl stop victim"),
    ("stopped", "bulkheadctl status victim"),
    ("again", "bulkheadctl stop victim"),
    ("start", "bulkheadctl start victim"),
    ("restart", "bulkheadctl restart victim"),
    ("json", "bulkheadctl status victim --format json"),
    ("exits", "bulkheadctl exits victim"),
    ("top", "bulkheadctl top --interval 20 --count 2"),
    ("denials", "bulkheadctl denials rogue"),
    ("refused", "bulkheadctl stop other"),
    ("foreign", "BULKHEAD_MANIFEST=/other.toml bulkheadctl denials rogue"),
    ("unexplained", "rm /etc/bulkhead/system.toml; bulkheadctl denials rogue"),
    ("meant", "bulkheadctl stop other"),
    ("unseen", "bulkheadctl denials other"),
    ("unknown", "bulkheadctl stop nobody"),
    ("kept", "bulkheadctl stop lasting"),
    ("anew", "bulkheadctl restart lasting"),
    (
        "locks",
        "bulkheadctl status lasting; bulkheadctl list; bulkheadctl status lasting --format json",
    ),
    ("lock", "bulkheadctl lock"),
    ("unlock", "bulkheadctl unlock"),
    ("late", "bulkheadctl --wait 0 restart victim"),
];

fn shown(bench: &Bench, kernel: &str) -> Result<String, String> {
    let mut manifest = ground(kernel);
    let _ = writeln!(
        manifest.0,
        "lockable = true\nstop = [\"victim\", \"lasting\"]\nstart = [\"victim\"]\nrestart = [\"victim\", \"lasting\"]\nobserve = [\"victim\", \"rogue\"]"
    );
    let manifest = manifest
        .bare("victim", "victim", "", &[1], "8 MiB", "")
        .bare("rogue", "rogue", "attack=write-after-ram", &[2], "4 MiB", "")
        .bare("other", "victim", "", &[3], "8 MiB", "")
        .bare("lasting", "victim", "lock", &[4], "8 MiB", "lockable = true");
    let seen = look(&manifest, bench, COMMANDS, &[])?;
    expect(
        &seen,
        "list",
        "0",
        &["ground", "itself", "victim", "stop, start, restart, observe", "none"],
    )?;
    expect(&seen, "status", "0", &["victim          running           0      1", "rogue"])?;
    expect(&seen, "stop", "0", &["victim is stopped, 0 restarts"])?;
    expect(&seen, "stopped", "0", &["stopped"])?;
    expect(&seen, "again", "0", &["victim is stopped already"])?;
    expect(&seen, "start", "0", &["victim is running, 1 restarts"])?;
    expect(&seen, "restart", "0", &["victim is running, 2 restarts"])?;
    expect(&seen, "json", "0", &["\"restarts\": 2", "\"state\": \"running\"", "\"steady\": {"])?;
    let reason = ["`lasting` is locked: nobody but itself ends it"];
    expect(&seen, "kept", "1", &reason)?;
    expect(&seen, "anew", "1", &reason)?;
    let shown = ["lasting         locked", "restart; it is locked", "\"locked\": true"];
    expect(&seen, "locks", "0", &shown)?;
    expect(&seen, "lock", "0", &["ground is locked"])?;
    expect(&seen, "unlock", "0", &["ground is not locked"])?;
    expect(&seen, "exits", "0", &["hypercall", "doorbell", "steady for"])?;
    expect(&seen, "top", "0", &["exits/s", "victim  ", "rogue  "])?;
    let tables = said(&seen, "top")?.0.matches("most exits by").count();
    seen.ensure(tables == 2, format!("{tables} tables of two looks"))?;
    let why = ["write to guest-physical 0x400000 (memory-violation)", "system.toml:", "`memory`"];
    expect(&seen, "denials", "0", &why)?;
    expect(&seen, "foreign", "1", &["/other.toml is another system's: it names one"])?;
    expect(
        &seen,
        "unexplained",
        "0",
        &["memory-violation (memory-write): 0x400000", "--manifest this says"],
    )?;
    let refused = "the monitors refused: not granted on `other`; ";
    let line = "stop = [\"other\"]";
    expect(&seen, "refused", "1", &[refused, "system.toml:7: stop = [\"other\"] would grant it"])?;
    expect(&seen, "meant", "1", &[refused, line, "[[sandbox]] `ground` would grant it"])?;
    expect(&seen, "unseen", "1", &["observe = [\"other\"]"])?;
    expect(&seen, "unknown", "1", &["there is ground, victim, rogue, other"])?;
    expect(&seen, "late", "1", &["waited 0 s for `victim`, that it runs"])?;
    let of_ground = |d: &&bulkhead_explain::Explained| {
        d.sandbox == "ground" && d.record.kind == Kind::Hypercall as u16
    };
    let refused = seen.denials.iter().filter(of_ground).count();
    seen.ensure(refused == 2, format!("{refused} refused calls of ground, not 2"))?;
    seen.undisturbed("other", &["running"])?;
    Ok("stopped, started and restarted; a refusal, with its line".into())
}

/// A program's console on a Linux, with lines that are typed there: by the command, and on a terminal of its own.
const TYPED: &[(&str, &str)] = &[
    ("asked", "echo 'echo sum' | bulkheadctl console shell --until 'sum'"),
    ("names", "echo names | bulkheadctl console shell shell-keys --until shell-keys"),
    ("late", "echo uptime | bulkheadctl console shell --until never --wait 1"),
    ("deaf", "echo hello | bulkheadctl console other --until never"),
    ("unseen", "bulkheadctl console hidden </dev/null"),
    ("forged", "bulkheadctl console forger --until 'the end' </dev/null"),
    (
        "terminal",
        "bulkheadctl consoles /run/consoles & daemon=$!; sleep 1; cat /run/consoles/shell & reader=$!; sleep 1; \
         printf 'echo typx\\177ed\\r' >/run/consoles/shell; sleep 1; kill $reader $daemon; wait",
    ),
];

fn consoles(bench: &Bench) -> Result<String, String> {
    let mut manifest = ground(NEWER);
    let _ = writeln!(manifest.0, "observe = [\"shell\", \"other\", \"forger\"]");
    let mut manifest = manifest.bare("other", "hello", "", &[1], "4 MiB", "").bare(
        "hidden",
        "hello",
        "",
        &[2],
        "4 MiB",
        "",
    );
    manifest = manifest.bare("forger", "forger", "", &[4], "4 MiB", "");
    manifest.0 += SHELL;
    let seen = look(&manifest, bench, TYPED, &[])?;
    let rows = forged(&seen)?;
    expect(&seen, "asked", "0", &["shell: help tells what it knows", "sum"])?;
    expect(&seen, "names", "0", &["shell-keys"])?;
    expect(&seen, "late", "1", &["ms since", "waited 1 s for `never` on the console of `shell`"])?;
    expect(&seen, "deaf", "1", &["this sandbox has no channel `other-keys`"])?;
    expect(
        &seen,
        "unseen",
        "1",
        &["the console of `hidden` is not shown", "observe = [\"hidden\"]"],
    )?;
    let (terminal, _) = said(&seen, "terminal")?;
    // The keys, the one that was rubbed out, and the answer, as this Linux's serial log shows them.
    for part in
        ["/run/consoles/shell", "/run/consoles/other", "echo typx\\u{8} \\u{8}ed", "\ntyped"]
    {
        seen.ensure(terminal.contains(part), format!("no {part:?} on the terminal: {terminal:?}"))?;
    }
    seen.undisturbed("shell", &["running"])?;
    Ok(format!(
        "lines there and back, by command and on a terminal; {rows} rows of a forger's, all letters"
    ))
}

/// Looks for control characters of a guest's console on the terminal of a Linux' shell. Only letters and ends of lines
/// left the serial port. Returns the number of rows.
fn forged(seen: &Seen) -> Result<usize, String> {
    expect(seen, "forged", "0", &["forged", "the end"])?;
    let bytes = seen.outcome()?.serials.get(1).ok_or("no serial port 1")?.bytes();
    let find = |mark: &str, from: usize| {
        let at = bytes[from..].windows(mark.len()).position(|part| part == mark.as_bytes());
        at.map(|at| from + at).ok_or_else(|| seen.wrong(format!("no {mark:?}")))
    };
    let begin = find("== forged", 0)?;
    let shown = &bytes[begin..find("-- forged", begin)?];
    let terminal = Terminal::show(usize::MAX, shown);
    let other = &terminal.other;
    seen.ensure(other.is_empty(), format!("a terminal would do {other:?}"))?;
    // No line of the guest's begins as somebody else's.
    let begins = |row: &&String| row.starts_with("[denied]");
    match terminal.rows.iter().find(begins) {
        Some(row) => Err(seen.wrong(format!("a row begins with {row:?}"))),
        None => Ok(terminal.rows.len()),
    }
}

const SHELL: &str = r#"
[[sandbox]]
name = "shell"
guest = { kind = "kernel" }
cores = [3]
memory = "16 MiB"
[[program]]
name = "shell"
sandbox = "shell"
file = "artifact:program-shell"
args = "keys=shell-keys"
channels = ["shell-keys"]
waits = ["news"]
signals = ["news"]
[[notification]]
name = "news"
sandbox = "shell"
[[context]]
name = "main"
sandbox = "shell"
budget = "900 us"
period = "1 ms"
[[thread]]
name = "main"
program = "shell"
priority = 100
context = "main"
stack = "16 KiB"
[[channel]]
name = "shell-keys"
from = "ground"
to = ["shell"]
size = "4 KiB"
kind = "records"
"#;
/// The first word of the program in `lessons`, the only channel: behind the states' page and the head.
const SPOIL: &str = "devmem 0xD2001020 32 0xBAD";

const LOADS: &[(&str, &str)] = &[
    ("list", "bulkheadctl list"),
    ("load", "bulkheadctl load pupil /victim"),
    ("spoil", SPOIL),
    ("unharmed", "bulkheadctl status pupil --format json"),
    ("spoilt", "bulkheadctl restart pupil"),
    ("packed", "bulkheadctl load pupil /victim.packed"),
    ("again", "bulkheadctl restart pupil"),
    ("unload", "bulkheadctl unload pupil"),
    ("garbage", "bulkheadctl load pupil /garbage"),
    ("claims", "bulkheadctl load pupil /claims"),
    ("large", "bulkheadctl load pupil /large"),
    ("foreign", "bulkheadctl load other /victim"),
    ("late", "bulkheadctl load sleeper /victim"),
    ("text", "bulkheadctl load pupil /test.sh"),
    ("vast", "bulkheadctl load pupil /vast"),
];

/// A program with zeros behind it (`.bss`) that take more memory than the sandbox has.
fn vast(elf: &[u8]) -> Vec<u8> {
    // ELF64: e_phoff, e_phentsize, e_phnum; p_memsz.
    let number = |at: usize, len: usize| {
        elf[at..at + len].iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte))
    };
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let mut elf = elf.to_vec();
    for at in (0..count).map(|n| table + n * size + 40) {
        elf[at..at + 8].copy_from_slice(&(16u64 << 20).to_le_bytes());
    }
    elf
}

/// Another program for a sandbox: it runs; spoilt and false ones do not; and what happens while it runs does nothing.
fn loaded(bench: &Bench) -> Result<String, String> {
    let mut manifest = ground(NEWER);
    let all = ["pupil", "other", "sleeper"];
    let _ = writeln!(manifest.0, "stop = {all:?}\nstart = {all:?}\nrestart = {all:?}");
    let mut manifest = manifest
        .bare("pupil", "hello", "", &[1], "8 MiB", "")
        .bare("sleeper", "hello", "", &[2], "8 MiB", "autostart = false")
        .bare("other", "victim", "", &[3], "8 MiB", "");
    manifest.0 = manifest.0.replace("artifact:hello\"", "artifact:hello\", access = \"rwx\"");
    for (name, to) in [("lessons", "pupil"), ("dreams", "sleeper")] {
        let _ = writeln!(
            manifest.0,
            "[[channel]]\nname = \"{name}\"\nfrom = \"ground\"\nto = [\"{to}\"]\nsize = \"256 KiB\"\nkind = \"program\""
        );
    }
    let victim = artifacts().join("victim");
    let victim = std::fs::read(&victim).map_err(|e| format!("{}: {e}", victim.display()))?;
    let packed =
        bulkhead_image::pack("victim", &victim, GUEST_LOW_END).map_err(|e| e.to_string())?;
    // One bit of the program; a head that claims more than there is room for.
    let (mut garbage, mut claims) = (packed.clone(), packed.clone());
    garbage[4000] ^= 1;
    claims[8..16].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let vast = vast(&victim);
    let large = [&packed[..], &vec![1; 256 << 10]].concat();
    let files = [
        ("/victim", victim),
        ("/victim.packed", packed),
        ("/garbage", garbage),
        ("/claims", claims),
        ("/large", large),
        ("/vast", vast),
    ];
    let seen = look(&manifest, bench, LOADS, &files)?;
    // The image's own ends at once: the tool may see it run or see that it has.
    let (runs, own) = ("pupil is running", "pupil is");
    expect(
        &seen,
        "list",
        "0",
        &["pupil           stop, start, restart, load", "other           stop, start, restart\n"],
    )?;
    expect(&seen, "load", "0", &[runs, "1 restarts, with a loaded program"])?;
    expect(&seen, "spoil", "0", &[])?;
    expect(&seen, "unharmed", "0", &["\"loaded\": true", "\"restarts\": 1", "running"])?;
    expect(&seen, "spoilt", "0", &[own, "2 restarts\n"])?;
    expect(&seen, "packed", "0", &[runs, "3 restarts, with a loaded program"])?;
    expect(&seen, "again", "0", &[runs, "4 restarts, with a loaded program"])?;
    expect(&seen, "unload", "0", &[own, "5 restarts\n"])?;
    // The page shows the first load and the unload; the image's program may be seen to run or to have ended.
    let page = super::typed::block("docs/loading.md", "# bulkheadctl load")?;
    let shown: String =
        page.lines().filter(|line| !line.starts_with('#')).map(|l| format!("{l}\n")).collect();
    let ended = |text: &str| text.replace("is running, ", "is exited, ");
    let told = format!("{}\n{}", said(&seen, "load")?.0, said(&seen, "unload")?.0);
    super::typed::sample(&ended(&shown), &ended(&told)).map_err(|why| seen.wrong(why))?;
    expect(&seen, "garbage", "1", &[own, "6 restarts; its monitor did not take /garbage"])?;
    expect(&seen, "claims", "1", &[own, "7 restarts; its monitor did not take /claims"])?;
    expect(&seen, "large", "1", &["the channel for `pupil` has 262080"])?;
    expect(&seen, "foreign", "1", &["kind = \"program\", from = \"ground\", to = [\"other\"]"])?;
    expect(&seen, "late", "0", &["sleeper is running, 1 restarts, with a loaded program"])?;
    expect(&seen, "text", "1", &["/test.sh: no 64-bit ELF"])?;
    expect(&seen, "vast", "1", &["/vast: it needs memory up to", "there is RAM up to 0x800000"])?;
    for name in ["pupil", "sleeper", "other"] {
        let denials = seen.sandbox(name)?.denials;
        seen.ensure(denials == 0, format!("{name} was denied something"))?;
    }
    Ok("loaded twice; spoilt, garbage and false claims: the image's own program".into())
}

const CREATES: &[(&str, &str)] = &[
    ("vacant", "bulkheadctl list"),
    ("missing", "bulkheadctl create /missing.toml"),
    ("unknown", "bulkheadctl create /unknown.toml"),
    ("linux", "bulkheadctl create /linux.toml"),
    ("camera", "bulkheadctl create /camera.toml"),
    ("again", "bulkheadctl create /camera.toml"),
    ("lidar", "bulkheadctl create /lidar.toml"),
    ("both", "bulkheadctl list"),
    ("full", "bulkheadctl create /third.toml"),
    ("large", "bulkheadctl create /large.toml"),
    ("foreign", "bulkheadctl create /foreign.toml"),
    ("status", "bulkheadctl status --format json"),
    ("stop", "bulkheadctl stop camera"),
    ("start", "bulkheadctl start camera"),
    ("nothing", "bulkheadctl destroy radar"),
    ("destroy", "bulkheadctl destroy camera"),
    ("gone", "bulkheadctl list"),
    ("next", "bulkheadctl create /third.toml"),
    (
        "lidar-ends",
        "while bulkheadctl status large --format json | grep -q '\"running\"'; do sleep 1; done; bulkheadctl status large",
    ),
    ("end", "bulkheadctl destroy third; bulkheadctl destroy lidar; bulkheadctl list"),
    ("race", "for n in 1 2 3 4; do bulkheadctl create /camera.toml & done; wait"),
];

/// Channels to a bay come and go as PCI functions with each part.
fn plugged(bench: &Bench) -> Result<String, String> {
    let mut manifest = ground(NEWER);
    manifest.0 += "stop = [\"bay\"]\nstart = [\"bay\"]\nrestart = [\"bay\"]\nobserve = [\"bay\"]\n";
    manifest.0 += &bays::bay(1);
    manifest.0 += bays::CHANNELS;
    initramfs(Some(&manifest), bench, bays::SCRIPT, &bays::parts()?)?;
    let seen = run_audited(&manifest, &bench.dir, 220)?;
    let said = seen.serial(1)?;
    bays::came_and_went(said).map_err(|why| seen.wrong(why))
}

/// A part's file.
fn part(name: &str, program: &str, args: &str, memory: &str, more: &str) -> Vec<u8> {
    let text = format!(
        "[part]\nname = \"{name}\"\nguest = {{ kind = \"bare\", program = \"{program}\", args = \"{args}\" }}\nmemory = \"{memory}\"\n{more}"
    );
    text.into_bytes()
}

/// Parts come and go in two bays: each gets the smallest that has all that it asks for, and is refused with the reason.
fn created(bench: &Bench) -> Result<String, String> {
    let mut manifest = ground(NEWER);
    let all = ["small", "large"];
    let _ = writeln!(
        manifest.0,
        "stop = {all:?}\nstart = {all:?}\nrestart = {all:?}\nobserve = {all:?}"
    );
    for (name, core, memory) in [("small", 1, "4 MiB"), ("large", 2, "16 MiB")] {
        let _ = writeln!(
            manifest.0,
            "[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"vacant\" }}\ncores = [{core}]\nmemory = \"{memory}\"\n[[channel]]\nname = \"{name}-part\"\nfrom = \"ground\"\nto = [\"{name}\"]\nsize = \"256 KiB\"\nkind = \"program\""
        );
    }
    let manifest = manifest.bare("other", "victim", "", &[3], "8 MiB", "");
    let read =
        |name: &str| std::fs::read(artifacts().join(name)).map_err(|e| format!("{name}: {e}"));
    let files = [
        ("/camera", read("duty")?),
        ("/victim", read("victim")?),
        ("/camera.toml", part("camera", "camera", "", "4 MiB", "")),
        ("/lidar.toml", part("lidar", "camera", "rounds=20", "8 MiB", "")),
        ("/third.toml", part("third", "victim", "", "3 MiB", "channels = [\"small-part\"]")),
        ("/large.toml", part("huge", "victim", "", "64 MiB", "")),
        ("/foreign.toml", part("foreign", "victim", "", "4 MiB", "devices = [\"uart2\"]")),
        ("/missing.toml", part("missing", "victor", "", "4 MiB", "")),
        ("/unknown.toml", part("unknown", "victim", "", "4 MiB", "cpus = 2")),
        (
            "/linux.toml",
            b"[part]\nname = \"x\"\nguest = { kind = \"vacant\" }\nmemory = \"4 MiB\"\n".to_vec(),
        ),
    ];
    let seen = look(&manifest, bench, CREATES, &files)?;
    expect(&seen, "vacant", "0", &["; vacant"])?;
    let missing = ["error[file-missing]: cannot read /victor", "/missing.toml:3", "`victim`?"];
    expect(&seen, "missing", "1", &missing)?;
    expect(&seen, "unknown", "1", &["error[unknown-key]", "cpus", "/unknown.toml:5"])?;
    expect(&seen, "linux", "1", &["error[part-guest]", "/linux.toml:3"])?;
    expect(&seen, "camera", "0", &["camera is created in bay small"])?;
    expect(&seen, "again", "1", &["`camera` is in bay `small` already"])?;
    expect(&seen, "lidar", "0", &["lidar is created in bay large"])?;
    expect(&seen, "both", "0", &["; camera", "; lidar"])?;
    let full = ["error[part-room]: no bay takes `third`", "/third.toml:2", "`small` has `camera`"];
    expect(&seen, "full", "1", &full)?;
    expect(&seen, "full", "1", &["`large` is at no end of `small-part`"])?;
    expect(&seen, "large", "1", &["`small` has 4 MiB and `large` has 16 MiB"])?;
    expect(&seen, "foreign", "1", &["`small` has no device `uart2`"])?;
    expect(&seen, "status", "0", &["\"loaded\": true", "running"])?;
    expect(&seen, "stop", "0", &["small is stopped"])?;
    expect(&seen, "start", "0", &["small is running", "with a loaded program"])?;
    expect(&seen, "nothing", "1", &["no bay has `radar`; there is camera, lidar"])?;
    expect(&seen, "destroy", "0", &["camera is gone; bay small is vacant"])?;
    expect(&seen, "gone", "0", &["; vacant", "; lidar"])?;
    let ended =
        ["third is created in bay small", "it is stopped already", "bulkheadctl denials small"];
    // The victim wants more memory than its part says.
    expect(&seen, "next", "0", &ended)?;
    // It was told how many rounds it has, and ends by itself.
    expect(&seen, "lidar-ends", "0", &["exited 0"])?;
    expect(&seen, "end", "0", &["third is gone", "lidar is gone", "; vacant"])?;
    // Four at a time: one creates it, and the others find it there.
    expect(&seen, "race", "0", &["is in bay `small` already"])?;
    let times = said(&seen, "race")?.0.matches("camera is created in bay").count();
    seen.ensure(times == 1, format!("created {times} times by four at a time"))?;
    for (name, denied) in [("small", 1), ("large", 0), ("other", 0)] {
        let denials = seen.sandbox(name)?.denials;
        seen.ensure(denials == denied, format!("{name} was denied {denials}, not {denied}"))?;
    }
    seen.undisturbed("other", &["running"])?;
    // The page shows these commands, and what they say.
    let page = super::typed::block("docs/bays.md", "# bulkheadctl create")?;
    let shown: String =
        page.lines().filter(|line| !line.starts_with('#')).map(|l| format!("{l}\n")).collect();
    let told = ["camera", "both", "stop", "start", "destroy"].map(|name| said(&seen, name));
    let told = told.into_iter().map(|said| said.map(|(text, _)| text.trim().to_owned() + "\n"));
    let told = told.collect::<Result<String, String>>()?;
    super::typed::sample(&shown, &told).map_err(|why| seen.wrong(why))?;
    Ok("3 created, 3 destroyed; 6 refused, with the reason".into())
}
