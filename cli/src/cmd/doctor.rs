//! `bulkhead doctor`: what this machine has for systems, and what it lacks.

use crate::{output, text};
use bulkhead_layout::need::MONITORS;
use bulkhead_qemu::{LEAST as QEMU_LEAST, PROGRAM};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Say what this machine has and lacks, each with its mend. It may build and run systems, and guests of one's own.
/// It may boot an image as a board, or its Linux may go on beside sandboxes. Exit status 1: a system cannot be built
/// and run here.
#[derive(clap::Args)]
pub struct Arguments {
    /// Form of the result.
    #[arg(long, default_value = "human", value_parser = ["human", "json"])]
    format: String,
    /// Folder of artifacts [default: as `bulkhead build` finds it from here].
    #[arg(long, value_name = "FOLDER")]
    artifacts: Option<PathBuf>,
}

/// How long a program may take to tell its version, which is less than a pipe holds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let nearest = || bulkhead_manifest::artifacts(Path::new("system.toml"));
    let artifacts = arguments.artifacts.clone().unwrap_or_else(nearest);
    let all = look(&Machine, &artifacts);
    output::result(&match arguments.format.as_str() {
        "json" => as_json(&all),
        _ => as_text(&all),
    });
    match all.iter().any(|one| one.part == Part::Run && one.mend.is_some()) {
        true => output::fail("a system cannot be built and run here"),
        false => ExitCode::SUCCESS,
    }
}

/// A part of the work that this machine may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Run,
    Rust,
    C,
    Media,
    Board,
    Linux,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Run => "to build and run systems",
            Self::Rust => "guests in Rust",
            Self::C => "guests in C",
            Self::Media => "bootable media, and Intel's VT-x",
            Self::Board => "this machine as a board",
            Self::Linux => "this Linux beside sandboxes",
        }
    }
}

/// Something that was looked at.
struct Found {
    part: Part,
    /// Its name.
    name: &'static str,
    /// The words of a program about itself, or a path.
    seen: String,
    /// The mend, if it is missing or in the way.
    mend: Option<String>,
    /// It is here, and should not be.
    in_the_way: bool,
}

impl Found {
    fn state(&self) -> &'static str {
        match (&self.mend, self.in_the_way) {
            (None, _) => "ok",
            (Some(_), true) => "in the way",
            (Some(_), false) => "missing",
        }
    }
}

/// The machine that is looked at.
trait Looks {
    /// First line of a program's output, or none if it does not run.
    fn says(&self, program: &str, arguments: &[&str]) -> Option<String>;
    /// Text of a file.
    fn reads(&self, file: &Path) -> Option<String>;
    /// Tells if a path is there, and if a folder has an entry.
    fn there(&self, path: &Path) -> bool;
}

struct Machine;

impl Looks for Machine {
    fn says(&self, program: &str, arguments: &[&str]) -> Option<String> {
        let mut child = Command::new(program)
            .args(arguments)
            // A project's toolchain that is not here is not to be fetched by this.
            .env("RUSTUP_AUTO_INSTALL", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let begin = Instant::now();
        while child.try_wait().ok()?.is_none() {
            if begin.elapsed() > PATIENCE {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let out = child.wait_with_output().ok()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        out.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
    }

    fn reads(&self, file: &Path) -> Option<String> {
        std::fs::read(file).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn there(&self, path: &Path) -> bool {
        match std::fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_some(),
            Err(_) => path.exists(),
        }
    }
}

/// Looks at all of it.
fn look(machine: &impl Looks, artifacts: &Path) -> Vec<Found> {
    let mut all = vec![qemu(machine), built(machine, artifacts)];
    all.extend(rust(machine));
    all.extend(programs(machine));
    all.extend(board(machine));
    all.extend(linux(machine));
    all
}

/// Makes an entry; without `seen` it is missing.
fn found(part: Part, name: &'static str, seen: Option<String>, mend: &str) -> Found {
    let missing = seen.is_none();
    let seen = seen.unwrap_or_else(|| "not found".into());
    Found { part, name, seen, mend: missing.then(|| mend.to_owned()), in_the_way: false }
}

fn qemu(machine: &impl Looks) -> Found {
    const MEND: &str = "apt install qemu-system-x86, on Debian 12 with -t bookworm-backports";
    let said = machine.says(PROGRAM, &["--version"]);
    let version = said.as_deref().and_then(|line| line.split("version ").nth(1)).unwrap_or("");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    let mut one = found(Part::Run, "QEMU", said.clone(), MEND);
    if said.is_some() && major.is_none_or(|major| major < QEMU_LEAST) {
        one.mend = Some(format!("QEMU {QEMU_LEAST} or later has the x2APIC: {MEND}"));
    }
    one
}

/// Monitors, boot code and the kernel.
fn built(machine: &impl Looks, folder: &Path) -> Found {
    let needed =
        ["boot", "late", "kernel"].into_iter().chain(MONITORS.iter().map(|(name, _)| *name));
    let (mut there, mut missing) = (0, Vec::new());
    for name in needed {
        match machine.there(&folder.join(name)) {
            true => there += 1,
            false => missing.push(name),
        }
    }
    let seen = match missing.first() {
        None => format!("{there} files in {}", folder.display()),
        Some(first) => {
            format!("{} lacks {} files, such as {first}", folder.display(), missing.len())
        }
    };
    let mend = "`make build` in the source tree, or `make install` once more; BULKHEAD_ARTIFACTS names another folder";
    let mend = (!missing.is_empty()).then(|| mend.to_owned());
    Found { part: Part::Run, name: "boot code, monitors, kernel", seen, mend, in_the_way: false }
}

fn rust(machine: &impl Looks) -> Vec<Found> {
    const TARGET: &str = "x86_64-unknown-none";
    let rustc = machine.says("rustc", &["--version"]);
    let library = |root: String| {
        let library = Path::new(&root).join("lib/rustlib").join(TARGET);
        machine.there(&library).then(|| TARGET.to_owned())
    };
    let target = machine.says("rustc", &["--print", "sysroot"]).and_then(library);
    vec![
        found(
            Part::Rust,
            "rustc",
            rustc,
            "install rustup; the project's rust-toolchain.toml does the rest",
        ),
        found(
            Part::Rust,
            "its target for bare guests",
            target,
            "rustup target add x86_64-unknown-none",
        ),
    ]
}

fn programs(machine: &impl Looks) -> Vec<Found> {
    let version = |program: &str| machine.says(program, &["--version"]);
    let one = |part, name: &'static str, package: &str| {
        found(part, name, version(name), &format!("apt install {package}"))
    };
    // Bochs shows its version, and does not end well.
    let bochs = machine.there(Path::new("/usr/bin/bochs")).then(|| "/usr/bin/bochs".to_owned());
    vec![
        one(Part::C, "gcc", "gcc libc6-dev"),
        one(Part::C, "ld", "binutils"),
        one(Part::C, "make", "make"),
        one(Part::Media, "grub-mkrescue", "grub-common grub-pc-bin grub-efi-amd64-bin"),
        one(Part::Media, "xorriso", "xorriso"),
        one(Part::Media, "mformat", "mtools"),
        found(Part::Media, "bochs", bochs, "apt install bochs bochsbios bochs-term vgabios"),
    ]
}

/// Tells if an image could boot on this machine by itself.
fn board(machine: &impl Looks) -> Vec<Found> {
    let cpu = machine.reads(Path::new("/proc/cpuinfo")).unwrap_or_default();
    let flags = cpu.lines().find(|line| line.starts_with("flags")).unwrap_or("");
    let has = |flag: &str| flags.split_whitespace().any(|one| one == flag);
    let virtualization = match (has("svm"), has("vmx")) {
        (true, _) => Some("AMD SVM".to_owned()),
        (_, true) => Some("Intel VT-x".to_owned()),
        _ => None,
    };
    let table = |name: &str| machine.there(&Path::new("/sys/firmware/acpi/tables").join(name));
    let iommu = match (table("IVRS"), table("DMAR")) {
        (true, _) => Some("AMD's (IVRS)".to_owned()),
        (_, true) => Some("Intel's (DMAR)".to_owned()),
        _ => None,
    };
    let x2apic = has("x2apic").then(|| "x2apic".to_owned());
    let ecam = table("MCFG").then(|| "MCFG".to_owned());
    vec![
        found(
            Part::Board,
            "virtualization",
            virtualization,
            "switch SVM or VT-x on in the firmware; below another hypervisor it is that one's to give",
        ),
        found(
            Part::Board,
            "x2APIC",
            x2apic,
            "switch it on in the firmware; monitors use no other mode",
        ),
        found(
            Part::Board,
            "IOMMU",
            iommu,
            "switch it on in the firmware; without one, devices have `dma = \"unconfined\"`",
        ),
        found(Part::Board, "PCI Express configuration space", ecam, "a machine with PCI Express"),
    ]
}

/// One that should not be here: `here` says what is.
fn absent(name: &'static str, here: Option<String>, usual: &str, mend: &str) -> Found {
    let in_the_way = here.is_some();
    let seen = here.unwrap_or_else(|| usual.to_owned());
    Found { part: Part::Linux, name, seen, mend: in_the_way.then(|| mend.to_owned()), in_the_way }
}

/// Tells if this Linux could go on as a sandbox (docs/under-linux.md).
fn linux(machine: &impl Looks) -> Vec<Found> {
    let iommu =
        machine.there(Path::new("/sys/class/iommu")).then(|| "this Linux uses it".to_owned());
    let lockdown = machine.reads(Path::new("/sys/kernel/security/lockdown"));
    let chosen =
        lockdown.as_ref().map(|text| text.split(['[', ']']).nth(1).unwrap_or("?").to_owned());
    let known = if chosen.is_some() { "none" } else { "unknown: securityfs is not mounted" };
    let locked = chosen.filter(|chosen| chosen != "none");
    let kvm = machine.there(Path::new("/sys/module/kvm_amd")).then(|| "loaded".to_owned());
    let module = machine.there(Path::new("/dev/bulkhead")).then(|| "/dev/bulkhead".to_owned());
    let off = "boot with amd_iommu=off, or use dma = \"unconfined\"";
    vec![
        absent("IOMMU", iommu, "left alone by this Linux", off),
        absent("lockdown", locked, known, "Secure Boot off, or no lockdown= on the command line"),
        absent("kvm_amd", kvm, "not loaded", "rmmod kvm_amd"),
        found(
            Part::Linux,
            "the module",
            module,
            "build linux/enable by DKMS, and modprobe bulkhead",
        ),
    ]
}

fn as_text(all: &[Found]) -> String {
    let mut out = String::new();
    for part in [Part::Run, Part::Rust, Part::C, Part::Media, Part::Board, Part::Linux] {
        let row = |one: &Found| vec![one.state().to_owned(), one.name.to_owned(), one.seen.clone()];
        let of = || all.iter().filter(|one| one.part == part);
        let rows: Vec<_> = of().map(row).collect();
        text::table(&mut out, part.name(), &["state", "name", "seen"], &rows);
        for (one, mend) in of().filter_map(|one| Some((one, one.mend.as_ref()?))) {
            out += &format!("  {}: {mend}\n", one.name);
        }
    }
    out.trim_start_matches('\n').to_owned()
}

fn as_json(all: &[Found]) -> String {
    let one = |one: &Found| {
        json!({
            "part": one.part.name(), "name": one.name, "seen": one.seen,
            "state": one.state(), "mend": one.mend,
        })
    };
    format!("{:#}\n", json!({ "version": 1, "found": all.iter().map(one).collect::<Vec<_>>() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with some programs, files and paths.
    #[derive(Default)]
    struct Fake {
        programs: Vec<(&'static str, &'static str)>,
        files: Vec<(&'static str, &'static str)>,
        paths: Vec<&'static str>,
    }

    impl Looks for Fake {
        fn says(&self, program: &str, _: &[&str]) -> Option<String> {
            self.programs.iter().find(|one| one.0 == program).map(|one| one.1.to_owned())
        }

        fn reads(&self, file: &Path) -> Option<String> {
            let known = self.files.iter().find(|one| Path::new(one.0) == file);
            known.map(|one| one.1.to_owned())
        }

        fn there(&self, path: &Path) -> bool {
            self.paths.iter().any(|one| path.starts_with(one))
        }
    }

    fn mends(machine: &Fake, part: Part) -> Vec<&'static str> {
        let all = look(machine, Path::new("/artifacts"));
        all.iter()
            .filter(|one| one.part == part && one.mend.is_some())
            .map(|one| one.name)
            .collect()
    }

    #[test]
    fn a_machine_with_nothing_lacks_all_but_what_is_in_the_way() {
        let bare = Fake::default();
        assert_eq!(mends(&bare, Part::Run), ["QEMU", "boot code, monitors, kernel"]);
        assert_eq!(mends(&bare, Part::Board).len(), 4);
        assert_eq!(mends(&bare, Part::Linux), ["the module"]);
    }

    #[test]
    fn an_old_qemu_is_named_and_a_new_one_is_enough() {
        let with = |version| Fake {
            programs: vec![("qemu-system-x86_64", version)],
            paths: vec!["/artifacts"],
            ..Fake::default()
        };
        assert_eq!(mends(&with("QEMU emulator version 7.2.19 (Debian)"), Part::Run), ["QEMU"]);
        assert_eq!(mends(&with("something else"), Part::Run), ["QEMU"]);
        assert!(mends(&with("QEMU emulator version 10.0.2 (Debian)"), Part::Run).is_empty());
    }

    #[test]
    fn a_board_is_judged_by_its_processor_and_its_firmware() {
        let board = Fake {
            files: vec![
                ("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu svm x2apic\n"),
                ("/sys/kernel/security/lockdown", "none [integrity] confidentiality"),
            ],
            paths: vec![
                "/sys/firmware/acpi/tables/IVRS",
                "/sys/module/kvm_amd",
                "/sys/class/iommu",
            ],
            ..Fake::default()
        };
        assert_eq!(mends(&board, Part::Board), ["PCI Express configuration space"]);
        assert_eq!(mends(&board, Part::Linux), ["IOMMU", "lockdown", "kvm_amd", "the module"]);
        let shown = as_text(&look(&board, Path::new("/artifacts")));
        for line in ["AMD SVM", "AMD's (IVRS)", "  kvm_amd: rmmod kvm_amd", "in the way  lockdown"]
        {
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }
}
