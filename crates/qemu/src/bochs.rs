//! Bochs, whose SVM saves the next RIP. Each of Debian's versions has one model with SVM and x2APIC at once
//! ([`Model`], docs/decisions/0003-bochs.md).

use crate::Error;
use crate::running::{tail, text};
use bulkhead_untrusted::Untrusted;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A processor with SVM, nested paging, next RIP, x2APIC and 1 GiB pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Bochs 2.7: made to measure by `cpuid:`. Its CPUID 8000_0001 says nothing of SVM, although 8000_000A and the
    /// instructions are there.
    Generic,
    /// Bochs 3.0, which has no `cpuid:` for it any more: a Ryzen with x2APIC added. In 2.7 nothing can be added.
    Ryzen,
}

impl Model {
    /// The one that the installed Bochs knows, by its own list of models.
    pub fn installed() -> Result<Self, Error> {
        let asked = Command::new("bochs-bin").args(["--help", "cpu"]).stdin(Stdio::null()).output();
        let asked = asked.map_err(|error| Error::Start("bochs-bin".into(), error))?;
        let said = Untrusted::new([asked.stdout, asked.stderr].concat());
        let lines: Vec<_> = said.lines().collect();
        Self::among(lines.iter().map(String::as_str)).ok_or_else(|| Error::Ended {
            what: "a list of Bochs' models with bx_generic or ryzen".into(),
            status: asked.status.to_string(),
            tail: tail("bochs-bin --help cpu", &said),
        })
    }

    fn among<'a>(models: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let has = |name: &str| models.clone().any(|line| line.trim() == name);
        if has("bx_generic") { Some(Self::Generic) } else { has("ryzen").then_some(Self::Ryzen) }
    }

    fn directives(self, cores: usize) -> String {
        let cpu =
            |model: &str| format!("cpu: model={model}, count={cores}, reset_on_triple_fault=0");
        match self {
            Self::Generic => {
                cpu("bx_generic")
                    + "\ncpuid: vmx=0, svm=1, apic=x2apic, 1g_pages=1, simd=sse4_2, xsave=1"
            }
            Self::Ryzen => cpu("ryzen") + ", add_features=x2apic",
        }
    }
}

/// File with what Bochs says to its user, a configuration that it refuses above all.
const ERRORS: &str = "bochs.err";
/// How often a wait looks.
const POLL: Duration = Duration::from_millis(20);

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
}

/// Bochs while it runs, and what it left.
#[derive(Debug)]
pub struct Running {
    child: Child,
    dir: PathBuf,
}

impl Bochs {
    /// An SVM machine with 4 cores that boots from `iso`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, iso: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), iso: iso.into(), cores: 4, memory: 512 }
    }

    fn configuration(&self) -> Result<String, Error> {
        let iso = self.iso.canonicalize().map_err(Error::io(&self.iso))?;
        let (memory, cpu, iso) =
            (self.memory, Model::installed()?.directives(self.cores), iso.display());
        Ok(format!(
            "plugin_ctrl: unmapped=true\n\
             config_interface: textconfig\n\
             display_library: term\n\
             romimage: file=/usr/share/bochs/BIOS-bochs-latest\n\
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
        write("go", "c\n")?;
        // Files of an earlier run would be taken for this one's.
        for n in 0..2 {
            let _ = std::fs::remove_file(self.dir.join(format!("serial{n}.log")));
        }
        let file = |name: &str| {
            let path = self.dir.join(name);
            std::fs::File::create(&path).map_err(Error::io(&path))
        };
        let (out, errors) = (file("console.raw")?, file(ERRORS)?);
        let child = Command::new("bochs-bin")
            .args(["-q", "-f", "bochsrc", "-rc", "go"])
            .current_dir(&self.dir)
            // The debug console shares stdout with a text screen: keep that plain.
            .env("TERM", "dumb")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(errors)
            .spawn()
            .map_err(|error| Error::Start("bochs-bin".into(), error))?;
        Ok(Running { child, dir: self.dir.clone() })
    }

    /// Runs the machine until it shuts down (`Shutdown` to port 0x8900) and returns
    /// what it wrote to the debug console.
    pub fn run(&self, limit: Duration) -> Result<Untrusted, Error> {
        let mut running = self.start()?;
        let deadline = Instant::now() + limit;
        while running.child.try_wait().map_err(Error::io(&self.dir))?.is_none() {
            if Instant::now() > deadline {
                let (what, tail) = ("Bochs' machine to shut down".to_owned(), running.tail());
                return Err(Error::TimedOut { what, limit, tail });
            }
            std::thread::sleep(POLL);
        }
        Ok(running.console())
    }
}

impl Running {
    /// What the debug console showed so far, among Bochs' own lines.
    #[must_use]
    pub fn console(&self) -> Untrusted {
        text(&self.dir.join("console.raw"))
    }

    /// What a serial port sent so far.
    #[must_use]
    pub fn serial(&self, n: usize) -> Untrusted {
        text(&self.dir.join(format!("serial{n}.log")))
    }

    /// Waits for a text on the debug console.
    pub fn wait_for(&mut self, needle: &str, limit: Duration) -> Result<Untrusted, Error> {
        let what = format!("{needle:?} on Bochs' debug console");
        self.wait(what, needle, limit, Self::console)
    }

    /// Waits for a text on a serial port.
    pub fn wait_serial(
        &mut self,
        n: usize,
        needle: &str,
        limit: Duration,
    ) -> Result<Untrusted, Error> {
        let what = format!("{needle:?} on Bochs' serial port {n}");
        self.wait(what, needle, limit, |running| running.serial(n))
    }

    fn wait(
        &mut self,
        what: String,
        needle: &str,
        limit: Duration,
        look: impl Fn(&Self) -> Untrusted,
    ) -> Result<Untrusted, Error> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.child.try_wait().map_err(Error::io(&self.dir))?;
            let seen = look(self);
            if seen.contains(needle) {
                return Ok(seen);
            }
            if let Some(status) = status {
                let (status, tail) = (status.to_string(), self.tail());
                return Err(Error::Ended { what, status, tail });
            }
            if Instant::now() > deadline {
                let tail = self.tail();
                return Err(Error::TimedOut { what, limit, tail });
            }
            std::thread::sleep(POLL);
        }
    }

    /// The last lines of its logs.
    #[must_use]
    pub fn tail(&self) -> String {
        let serials = (0..2).map(|n| tail(&format!("serial{n}.log"), &self.serial(n)));
        serials.collect::<String>()
            + &tail("console", &self.console())
            + &tail("bochs.log", &text(&self.dir.join("bochs.log")))
            + &tail(ERRORS, &text(&self.dir.join(ERRORS)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already ended: nothing to do, nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        let of = |list: &str| Model::among(list.lines());
        assert_eq!(
            of("Supported CPU models:\n\nbx_generic\npentium\nryzen\n"),
            Some(Model::Generic)
        );
        assert_eq!(
            of("Supported CPU models:\n\ni386\nryzen\ncorei7_haswell_4770\n"),
            Some(Model::Ryzen)
        );
        assert_eq!(of("bx_generic_2\nno ryzen here\n"), None);
        let ryzen = Model::Ryzen.directives(2);
        assert_eq!(
            ryzen,
            "cpu: model=ryzen, count=2, reset_on_triple_fault=0, add_features=x2apic"
        );
        assert!(
            Model::Generic
                .directives(4)
                .contains("count=4, reset_on_triple_fault=0\ncpuid: vmx=0, svm=1")
        );
    }
}
