//! A machine to be started, and QEMU's arguments for it.

use crate::{Error, Kind, Ram, Running};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The CPU of every machine, unless told otherwise.
const CPU: &str = "EPYC,+svm,+npt,+x2apic";

/// How the machine's time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// With the host's, cores in parallel. Promises nothing about time.
    Live,
    /// With the host's, and one core runs at a time. In parallel, QEMU can lose a write to a register while another
    /// core moves a device's addresses (docs/limits.md).
    Turns,
    /// An instruction is a nanosecond, and all runs are alike.
    Virtual {
        /// Longest slice of time in µs for which a core runs while others wait:
        /// docs/decisions/0002-metronome.md. `None`: until the next timer.
        metronome: Option<u32>,
    },
}

/// The emulator.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// Least version of the emulator: from then on it emulates the x2APIC. `tools/lib.sh` reads this line, too.
pub const LEAST: u32 = 9;

/// Year and month; the machine's clock starts at their beginning in virtual time.
pub const EPOCH: (u64, u64) = (2026, 1);

impl Time {
    /// Virtual time for scenarios: timers late by up to some 8 µs.
    #[must_use]
    pub fn virtual_time() -> Self {
        Self::Virtual { metronome: Some(10) }
    }

    /// Virtual time for what keeps periods of milliseconds or none: timers late by up to some 100 µs, at half the wall
    /// time.
    #[must_use]
    pub fn coarse() -> Self {
        Self::Virtual { metronome: Some(100) }
    }

    /// Virtual time for one core. It waits for no other core's slice, so its timers are exact without a metronome, and
    /// the run takes half the wall time.
    #[must_use]
    pub fn one_core() -> Self {
        Self::Virtual { metronome: None }
    }

    /// Virtual time for figures about time: timers late by up to some 2 µs, at about
    /// twice the wall time.
    #[must_use]
    pub fn precise() -> Self {
        Self::Virtual { metronome: Some(2) }
    }
}

/// Where a serial port leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serial {
    /// To `serialN.log` in the machine's folder.
    File,
    /// To this terminal.
    Terminal,
    /// To a Unix socket, `serialN.sock` in the machine's folder; its output goes
    /// to `serialN.log` too.
    Socket,
    /// Nowhere.
    None,
}

/// A text; the plugin notes its coverage. plugin/src/lib.rs has the file's format.
#[derive(Clone, Debug)]
pub struct Cover {
    /// Physical addresses of its first byte and behind its last one.
    pub text: (u64, u64),
    /// Physical address of a word of RAM that grows by 1 with each new instruction.
    pub news: u64,
    /// The file.
    pub file: PathBuf,
}

/// The counting plugin; needs virtual time, unless it only covers.
#[derive(Clone, Debug, Default)]
pub struct Plugin {
    /// `libbulkhead_plugin.so`.
    pub library: PathBuf,
    /// Physical ranges counted apart: name, start, end.
    pub ranges: Vec<(String, u64, u64)>,
    /// Events at instructions: id, physical address.
    pub watch: Vec<(u16, u64)>,
    /// 64-bit words that every event carries: physical address of the first, how many.
    pub words: Vec<(u64, usize)>,
    /// Texts to be covered; then nothing is counted.
    pub cover: Vec<Cover>,
    /// Socket of a process that stops the machine at instructions; then nothing is counted or covered.
    pub control: Option<PathBuf>,
    /// Answers of QEMU's VMware port about clocks: TSC in kHz, local timer in Hz. For baselines; the CPU needs
    /// `tsc-frequency` too.
    pub clocks: Option<(u64, u64)>,
}

/// A machine to start. Everything it leaves is in `dir`.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Folder for logs and sockets; made if missing.
    pub dir: PathBuf,
    /// QEMU's program.
    pub program: String,
    /// `-machine`, without the memory backend.
    pub machine: String,
    /// `-cpu`.
    pub cpu: String,
    /// Cores.
    pub cores: usize,
    /// Bytes of RAM.
    pub memory: u64,
    /// `-kernel`.
    pub kernel: Option<PathBuf>,
    /// `-initrd`, as QEMU takes it (multiboot: `file args,file args`).
    pub initrd: Option<String>,
    /// `-append`.
    pub append: String,
    /// CD-ROM to boot from.
    pub iso: Option<PathBuf>,
    /// `-bios`, for UEFI.
    pub firmware: Option<PathBuf>,
    /// Serial ports, COM1 first.
    pub serials: Vec<Serial>,
    /// Time.
    pub time: Time,
    /// Counting.
    pub plugin: Option<Plugin>,
    /// Waits with `-S` for [`Running::qmp`]'s `cont`.
    pub stopped: bool,
    /// Anything else.
    pub args: Vec<String>,
}

impl Machine {
    /// Returns a q35 with 4 cores and 2 GiB that boots nothing yet.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            program: PROGRAM.into(),
            machine: "q35".into(),
            cpu: CPU.into(),
            cores: 4,
            memory: 2 << 30,
            kernel: None,
            initrd: None,
            append: String::new(),
            iso: None,
            firmware: None,
            serials: vec![Serial::File],
            time: Time::Live,
            plugin: None,
            stopped: false,
            args: Vec::new(),
        }
    }

    /// Starts it.
    pub fn start(&self) -> Result<Running, Error> {
        std::fs::create_dir_all(&self.dir).map_err(Error::io(&self.dir))?;
        self.forget_last_run()?;
        let ram = Ram::new(self.memory)?;
        let args = self.arguments(ram.path());
        let log = self.dir.join("qemu.log");
        let errors = std::fs::File::create(&log).map_err(Error::io(&log))?;
        let terminal = self.serials.contains(&Serial::Terminal);
        let child = Command::new(&self.program)
            .args(&args)
            .stdin(if terminal { Stdio::inherit() } else { Stdio::null() })
            .stdout(if terminal { Stdio::inherit() } else { Stdio::null() })
            .stderr(errors)
            .spawn()
            .map_err(|error| Error::Start(self.program.clone(), error))?;
        Ok(Running::new(Kind::Qemu, child, self.dir.clone(), ram))
    }

    /// Files of an earlier run would be taken for this one's.
    fn forget_last_run(&self) -> Result<(), Error> {
        for name in ["console.log", "counts.json", "qmp.sock"] {
            let path = self.dir.join(name);
            if path.exists() {
                std::fs::remove_file(&path).map_err(Error::io(&path))?;
            }
        }
        for path in dumps(&self.dir) {
            std::fs::remove_file(&path).map_err(Error::io(&path))?;
        }
        for n in 0..self.serials.len() {
            let _ = std::fs::remove_file(self.dir.join(format!("serial{n}.log")));
        }
        Ok(())
    }

    /// Returns all arguments; `ram` is the file that backs the RAM.
    #[must_use]
    pub fn arguments(&self, ram: &Path) -> Vec<String> {
        let mut args = Arguments::default();
        args.add("-machine", format!("{},memory-backend=ram", self.machine));
        args.add("-cpu", &self.cpu);
        args.add("-smp", self.cores.to_string());
        args.add("-m", format!("{}M", self.memory >> 20));
        let (size, path) = (self.memory, ram.display());
        args.add(
            "-object",
            format!("memory-backend-file,id=ram,size={size},mem-path={path},share=on"),
        );
        for flag in ["-no-reboot", "-nodefaults", "-no-user-config"] {
            args.0.push(flag.into());
        }
        args.add("-display", "none");
        self.time(&mut args);
        self.boot(&mut args);
        self.ports(&mut args);
        if let Some(plugin) = &self.plugin {
            args.add("-plugin", self.plugin(plugin, ram));
        }
        if self.stopped {
            args.0.push("-S".into());
        }
        args.0.extend(self.args.iter().cloned());
        args.0
    }

    fn time(&self, args: &mut Arguments) {
        let metronome = match self.time {
            Time::Live => return args.add("-accel", "tcg,thread=multi"),
            Time::Turns => return args.add("-accel", "tcg,thread=single"),
            Time::Virtual { metronome } => metronome,
        };
        args.add("-accel", "tcg");
        args.add("-icount", "shift=0,sleep=off");
        let (year, month) = EPOCH;
        args.add("-rtc", format!("base={year}-{month:02}-01T00:00:00,clock=vm"));
        args.add("-seed", "42");
        if let Some(interval) = metronome {
            // A packet filter without packets, on a network port without a peer. It only lets a virtual timer run,
            // unseen by the machine.
            args.add("-netdev", "hubport,id=metronome,hubid=99");
            args.add(
                "-object",
                format!("filter-buffer,id=tick,netdev=metronome,queue=rx,interval={interval}"),
            );
        }
    }

    fn boot(&self, args: &mut Arguments) {
        if let Some(kernel) = &self.kernel {
            args.add("-kernel", kernel.display().to_string());
        }
        if let Some(initrd) = &self.initrd {
            args.add("-initrd", initrd);
        }
        if !self.append.is_empty() {
            args.add("-append", &self.append);
        }
        if let Some(iso) = &self.iso {
            args.add("-cdrom", iso.display().to_string());
        }
        if let Some(firmware) = &self.firmware {
            args.add("-bios", firmware.display().to_string());
        }
    }

    fn ports(&self, args: &mut Arguments) {
        let file = |name: &str| self.dir.join(name).display().to_string();
        args.add("-debugcon", format!("file:{}", file("console.log")));
        args.add("-qmp", format!("unix:{},server=on,wait=off", file("qmp.sock")));
        args.add("-device", "isa-debug-exit,iobase=0xf4,iosize=1");
        for (n, serial) in self.serials.iter().enumerate() {
            let log = file(&format!("serial{n}.log"));
            match serial {
                Serial::File => args.add("-serial", format!("file:{log}")),
                Serial::Terminal => args.add("-serial", "stdio"),
                Serial::None => args.add("-serial", "none"),
                Serial::Socket => {
                    let path = file(&format!("serial{n}.sock"));
                    args.add(
                        "-chardev",
                        format!("socket,id=serial{n},path={path},server=on,wait=off,logfile={log}"),
                    );
                    args.add("-serial", format!("chardev:serial{n}"));
                }
            }
        }
    }

    fn plugin(&self, plugin: &Plugin, ram: &Path) -> String {
        let mut text = format!(
            "{},out={},ram={},split={}",
            plugin.library.display(),
            self.dir.join("counts.json").display(),
            ram.display(),
            crate::ram::below_4g(self.memory)
        );
        for (name, start, end) in &plugin.ranges {
            let _ = write!(text, ",range={name}:{start:#x}-{end:#x}");
        }
        for (id, address) in &plugin.watch {
            let _ = write!(text, ",watch={id}@{address:#x}");
        }
        for (address, count) in &plugin.words {
            let _ = write!(text, ",words={address:#x}:{count}");
        }
        for Cover { text: (start, end), news, file } in &plugin.cover {
            let _ = write!(text, ",cover={start:#x}-{end:#x}@{news:#x}:{}", file.display());
        }
        if let Some(control) = &plugin.control {
            let _ = write!(text, ",control={}", control.display());
        }
        if let Some((tsc_khz, timer_hz)) = plugin.clocks {
            let _ = write!(text, ",clocks={tsc_khz}:{timer_hz}");
        }
        text
    }
}

/// Files of the plugin's `DUMP` markers that are there.
pub(crate) fn dumps(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let all = (0..).map(|n| dir.join(format!("counts.json.{n}")));
    all.take_while(|path| path.exists()).collect::<Vec<_>>().into_iter()
}

/// A command line in the making.
#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    fn add(&mut self, flag: &str, value: impl Into<String>) {
        self.0.extend([flag.to_owned(), value.into()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_brings_the_metronome_and_live_time_does_not() {
        let mut machine = Machine::new("d");
        let text = machine.arguments(Path::new("/r")).join(" ");
        assert!(!text.contains("icount") && !text.contains("filter-buffer"), "{text}");
        machine.time = Time::precise();
        let text = machine.arguments(Path::new("/r")).join(" ");
        assert!(text.contains("-icount shift=0,sleep=off"), "{text}");
        assert!(text.contains("interval=2"), "{text}");
    }

    #[test]
    fn the_plugin_learns_ranges_and_the_split() {
        let mut machine = Machine::new("d");
        machine.memory = 6 << 30;
        machine.plugin = Some(Plugin {
            library: "p.so".into(),
            ranges: vec![("monitor".into(), 0x1000, 0x2000)],
            watch: vec![(3, 0x20)],
            words: vec![(0x40, 2)],
            ..Plugin::default()
        });
        let text = machine.arguments(Path::new("/r")).join(" ");
        let expected = "p.so,out=d/counts.json,ram=/r,split=2147483648,range=monitor:0x1000-0x2000,watch=3@0x20,words=0x40:2";
        assert!(text.contains(expected), "{text}");
    }
}
