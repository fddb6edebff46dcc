//! Bochs: its SVM saves the next RIP, and it has VT-x. Each of Debian's versions has one model with SVM and x2APIC at
//! once ([`Model`], docs/decisions/0003-bochs.md).

use crate::Error;
use crate::debugger::pipe;
use crate::ram::Ram;
use crate::running::{Kind, Running, tail};
use bulkhead_untrusted::Untrusted;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Virtualization of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Virtualization {
    /// AMD's SVM.
    Svm,
    /// Intel's VT-x.
    Vmx,
}

/// A processor with nested paging, x2APIC and 1 GiB pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Bochs 2.7: made to measure by `cpuid:`. Its CPUID 8000_0001 says nothing of SVM, although 8000_000A and the
    /// instructions are there.
    Generic,
    /// Bochs 3.0, which has no `cpuid:` for it any more: a Ryzen with x2APIC added. In 2.7 nothing can be added.
    Ryzen,
    /// VT-x with EPT, unrestricted guest, VPID and TSC deadline, in both versions.
    SkylakeX,
}

impl Model {
    /// The one that the installed Bochs knows, by its own list of models.
    pub fn installed(virtualization: Virtualization) -> Result<Self, Error> {
        let (said, status) = help(&["--help", "cpu"])?;
        let lines: Vec<_> = said.lines().collect();
        let models = lines.iter().map(String::as_str);
        Self::among(virtualization, models).ok_or_else(|| Error::Ended {
            what: match virtualization {
                Virtualization::Svm => {
                    "a list of Bochs' models with bx_generic or ryzen, which have SVM".into()
                }
                Virtualization::Vmx => {
                    "a list of Bochs' models with corei7_skylake_x, which has VT-x".into()
                }
            },
            status,
            tail: tail("bochs-bin --help cpu", &said),
        })
    }

    fn among<'a>(
        virtualization: Virtualization,
        models: impl Iterator<Item = &'a str> + Clone,
    ) -> Option<Self> {
        let has = |name: &str| models.clone().any(|line| line.trim() == name);
        match virtualization {
            Virtualization::Vmx => has("corei7_skylake_x").then_some(Self::SkylakeX),
            Virtualization::Svm if has("bx_generic") => Some(Self::Generic),
            Virtualization::Svm => has("ryzen").then_some(Self::Ryzen),
        }
    }

    fn directives(self, cores: usize, hz: u32) -> String {
        let cpu =
            |model: &str| format!("cpu: model={model}, count={cores}, reset_on_triple_fault=0");
        match self {
            Self::Generic => {
                cpu("bx_generic")
                    + "\ncpuid: vmx=0, svm=1, apic=x2apic, 1g_pages=1, simd=sse4_2, xsave=1"
            }
            Self::Ryzen => cpu("ryzen") + ", add_features=x2apic",
            Self::SkylakeX => cpu("corei7_skylake_x") + &format!(", ips={hz}"),
        }
    }
}

/// Asks the installed Bochs: its answer, and how it ended.
fn help(arguments: &[&str]) -> Result<(Untrusted, String), Error> {
    let asked = Command::new("bochs-bin").args(arguments).stdin(Stdio::null()).output();
    let asked = asked.map_err(|error| Error::Start("bochs-bin".into(), error))?;
    Ok((Untrusted::new([asked.stdout, asked.stderr].concat()), asked.status.to_string()))
}

/// Returns the flag that Bochs 3.0 wants for its debugger. That of 2.7 is always there, and knows no flag.
fn debugger() -> Result<Option<&'static str>, Error> {
    const FLAG: &str = "-debugger";
    let (said, _) = help(&["--help"])?;
    Ok(said.lines().any(|line| line.split_whitespace().next() == Some(FLAG)).then_some(FLAG))
}

/// Instructions in a second of VT-x' machine: one is a nanosecond, as in QEMU's virtual time. Bochs' own 4,000,000
/// leave a Linux little but timer ticks.
pub const HZ: u32 = 1_000_000_000;

/// File with what Bochs says to its user, a configuration that it refuses above all.
pub(crate) const ERRORS: &str = "bochs.err";
/// File with the debug console, among Bochs' own lines.
pub(crate) const CONSOLE: &str = "console.raw";

/// A machine for Bochs. Everything it leaves is in `dir`.
#[derive(Clone, Debug)]
pub struct Bochs {
    /// Folder for configuration and logs; made if missing.
    pub dir: PathBuf,
    /// CD-ROM to boot from.
    pub iso: PathBuf,
    /// Cores.
    pub cores: usize,
    /// RAM in MiB.
    pub memory: usize,
    /// Virtualization of the processor.
    pub virtualization: Virtualization,
    /// Instructions in a second of the machine's time, with VT-x. SVM's machine keeps Bochs' own number.
    pub hz: u32,
}

impl Bochs {
    /// Returns an SVM machine with 4 cores that boots from `iso`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, iso: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            iso: iso.into(),
            cores: 4,
            memory: 512,
            virtualization: Virtualization::Svm,
            hz: HZ,
        }
    }

    fn configuration(&self) -> Result<String, Error> {
        let iso = self.iso.canonicalize().map_err(Error::io(&self.iso))?;
        let (memory, cpu, iso) = (
            self.memory,
            Model::installed(self.virtualization)?.directives(self.cores, self.hz),
            iso.display(),
        );
        Ok(format!(
            "plugin_ctrl: unmapped=true\n\
             config_interface: textconfig\n\
             display_library: term\n\
             romimage: file=/usr/share/bochs/BIOS-bochs-latest, options=fastboot\n\
             vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest\n\
             memory: guest={memory}, host={memory}\n\
             {cpu}\n\
             boot: cdrom\n\
             ata0-master: type=cdrom, path={iso}, status=inserted\n\
             com1: enabled=1, mode=file, dev=serial0.log\n\
             com2: enabled=1, mode=file, dev=serial1.log\n\
             port_e9_hack: enabled=1\n\
             clock: sync=none, time0=946684800\n\
             log: bochs.log\n\
             panic: action=fatal\n"
        ))
    }

    /// Starts it.
    pub fn start(&self) -> Result<Running, Error> {
        std::fs::create_dir_all(&self.dir).map_err(Error::io(&self.dir))?;
        let write = |name: &str, text: &str| {
            let path = self.dir.join(name);
            std::fs::write(&path, text).map_err(Error::io(&path))
        };
        write("bochsrc", &self.configuration()?)?;
        let commands = pipe(&self.dir.join("go"))?;
        // Files of an earlier run would be taken for this one's.
        for n in 0..2 {
            let _ = std::fs::remove_file(self.dir.join(format!("serial{n}.log")));
        }
        let file = |name: &str| {
            let path = self.dir.join(name);
            std::fs::File::create(&path).map_err(Error::io(&path))
        };
        let (out, errors) = (file(CONSOLE)?, file(ERRORS)?);
        let child = Command::new("bochs-bin")
            .args(["-q", "-f", "bochsrc", "-rc", "go"])
            .args(debugger()?)
            .current_dir(&self.dir)
            // The debug console shares stdout with a text screen: keep that plain.
            .env("TERM", "dumb")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(errors)
            .spawn()
            .map_err(|error| Error::Start("bochs-bin".into(), error))?;
        let ram = Ram::of_bochs(child.id(), (self.memory as u64) << 20)?;
        Ok(Running::new(Kind::Bochs, child, self.dir.clone(), ram).with(commands))
    }

    /// Runs the machine until it shuts down (`Shutdown` to port 0x8900) and returns
    /// what it wrote to the debug console.
    pub fn run(&self, limit: Duration) -> Result<Untrusted, Error> {
        let mut running = self.start()?;
        running.wait_end("Bochs' machine to shut down", limit)?;
        Ok(running.console())
    }
}

/// Packs a multiboot 2 program into an ISO with GRUB.
pub fn pack(program: &Path, dir: &Path) -> Result<PathBuf, Error> {
    let root = dir.join("iso");
    let grub = root.join("boot/grub");
    std::fs::create_dir_all(&grub).map_err(Error::io(&grub))?;
    let kernel = root.join("boot/program");
    std::fs::copy(program, &kernel).map_err(Error::io(program))?;
    let menu = grub.join("grub.cfg");
    let text = "set timeout=0\nmenuentry program {\n multiboot2 /boot/program\n boot\n}\n";
    std::fs::write(&menu, text).map_err(Error::io(&menu))?;
    let iso = dir.join("program.iso");
    let made = Command::new("grub-mkrescue")
        .arg("-o")
        .args([&iso, &root])
        .output()
        .map_err(|error| Error::Start("grub-mkrescue".into(), error))?;
    if made.status.success() {
        return Ok(iso);
    }
    let (status, tail) = (made.status.to_string(), String::from_utf8_lossy(&made.stderr).into());
    Err(Error::Ended { what: "an ISO was made".into(), status, tail })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists as Bochs 2.7 and 3.0 print them, shortened.
    #[test]
    fn a_model_with_svm_and_x2apic_is_chosen_from_bochs_own_list() {
        let of = |list: &str| Model::among(Virtualization::Svm, list.lines());
        assert_eq!(
            of("Supported CPU models:\n\nbx_generic\npentium\nryzen\n"),
            Some(Model::Generic)
        );
        assert_eq!(
            of("Supported CPU models:\n\ni386\nryzen\ncorei7_haswell_4770\n"),
            Some(Model::Ryzen)
        );
        assert_eq!(of("bx_generic_2\nno ryzen here\n"), None);
        let vmx = |list: &str| Model::among(Virtualization::Vmx, list.lines());
        assert_eq!(vmx("bx_generic\ncorei7_skylake_x\n"), Some(Model::SkylakeX));
        assert_eq!(vmx("bx_generic\nryzen\n"), None);
        let ryzen = Model::Ryzen.directives(2, HZ);
        assert_eq!(
            ryzen,
            "cpu: model=ryzen, count=2, reset_on_triple_fault=0, add_features=x2apic"
        );
        assert!(
            Model::Generic
                .directives(4, HZ)
                .contains("count=4, reset_on_triple_fault=0\ncpuid: vmx=0, svm=1")
        );
    }
}
