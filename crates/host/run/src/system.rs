//! One run of a system in its emulator.

use crate::arch;
use crate::audit::{self, Audited};
use crate::console::{Console, Log};
use crate::intact::{self, Program};
use crate::x86::Clock;
use crate::{Error, Load, Readers, Traced, build, iso, load};
use bulkhead_explain::dma::{Blocked, blocked};
use bulkhead_explain::{
    Explained, Lessons, Report, Snapshot, Telemetry, Untrusted, explain, report, snapshot,
    telemetry,
};
use bulkhead_image::Baked;
use bulkhead_layout::report::{CAUSES, CoreReport, State, size};
use bulkhead_layout::telemetry::Record;
use bulkhead_manifest::Checked;
use bulkhead_plan::{Appended, Emulator, Guest};
use bulkhead_qemu::bochs::Bochs;
use bulkhead_qemu::{Counts, Cover, Kind, Plugin, Running, Time};
use std::mem::offset_of;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Changes an image's bytes.
pub type Spoil = Box<dyn Fn(&mut Vec<u8>, &Baked)>;

/// How to run a system.
pub struct Options {
    /// Folder with boot code, monitor and guests.
    pub artifacts: PathBuf,
    /// Folder for the image and the logs.
    pub dir: PathBuf,
    /// How time passes.
    pub time: Time,
    /// Cores of the machine; `None`: as many as the manifest uses.
    pub cores: Option<usize>,
    /// Bytes of RAM; `None`: as the machine description says.
    pub memory: Option<u64>,
    /// CPU model; `None`: as the machine description says.
    pub cpu: Option<String>,
    /// Instructions in a second of Bochs' machine with VT-x. The firmware and GRUB wait for some 300 ms, which are
    /// fewer instructions at a lower number; deadlines of milliseconds want a higher one.
    pub bochs_hz: u32,
    /// A person looks on: the first Linux's serial port is the terminal.
    pub terminal: bool,
    /// Append the manifest's `[run.scenario]` to the guests' arguments.
    pub scenario: bool,
    /// Boot from an ISO; the firmware's file, if it is not the BIOS.
    pub iso: Option<Option<PathBuf>>,
    /// Limit of the run in wall time; reaching it is an error.
    pub limit: Duration,
    /// End so long after the launch, without an error: in virtual time by the machine's clock.
    pub duration: Option<Duration>,
    /// Counting plugin; ranges of monitors are added.
    pub plugin: Option<PathBuf>,
    /// Sandboxes for the plugin: it covers their monitors' text instead of counting anything. Each comes with the
    /// guest-physical address of the word that counts newly covered instructions. The file is `coverN` in the folder,
    /// by sandbox.
    pub cover: Vec<(usize, u64)>,
    /// Asked again and again; once it says so, the run ends without an error.
    pub stop: Option<Box<dyn Fn() -> bool>>,
    /// More arguments for QEMU.
    pub qemu: Vec<String>,
    /// Changes the image after it was baked: damaged images, planted errors.
    pub spoil: Option<Spoil>,
    /// Audit the machine at the end of the run, stopped, before it is ended.
    pub audit: bool,
    /// Leave a dump for a later audit in this folder; with `audit`.
    pub dump: Option<PathBuf>,
    /// File for a copy of the RAM at the end, of an emulator that has it in no file.
    pub ram: Option<PathBuf>,
    /// End as soon as all sandboxes that start with the machine are in steady state:
    /// a Linux in user space, a bare guest running.
    pub until_steady: bool,
    /// Read what traced kernels tell.
    pub trace: bool,
    /// End as soon as each traced kernel has told of so many nanoseconds; with `trace`.
    pub until_traced: Option<u64>,
}

impl Options {
    /// Returns a run in virtual time, ended by its guests.
    pub fn new(artifacts: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self {
            artifacts: artifacts.into(),
            dir: dir.into(),
            time: Time::virtual_time(),
            cores: None,
            memory: None,
            cpu: None,
            bochs_hz: bulkhead_qemu::bochs::HZ,
            terminal: false,
            scenario: true,
            iso: None,
            limit: Duration::from_secs(240),
            duration: None,
            plugin: None,
            cover: Vec::new(),
            stop: None,
            qemu: Vec::new(),
            spoil: None,
            audit: false,
            dump: None,
            ram: None,
            until_steady: false,
            trace: false,
            until_traced: None,
        }
    }
}

/// A channel's telemetry, as the report has it.
fn told((channel, record): &(String, Record)) -> Telemetry {
    let Record { period_ns, releases, missed, jitter_max: latest_ns, .. } = *record;
    Telemetry { channel: channel.clone(), period_ns, releases, missed, latest_ns }
}

/// Something that happened while the system ran.
pub enum Event<'a> {
    /// The machine runs; its RAM is in this file.
    Started(&'a Running),
    /// Text on a sandbox's console, in whole lines where possible.
    Console(&'a str, &'a Untrusted),
    /// Bytes of a sandbox's console, so many, that later ones overwrote before they were read.
    Lost(&'a str, u64),
    /// A denied access.
    Denied(Explained),
    /// Records of a sandbox's core, so many, that later ones overwrote before they were read: they
    /// come before those that [`Event::Denied`] tells of next.
    Overwritten(&'a str, usize, u64),
    /// DMA or a message of a device that the IOMMU blocked and logged.
    Blocked(Blocked),
    /// A sandbox changed its state.
    State(&'a str, State),
}

/// Results of a run.
pub struct Outcome {
    /// The report, without promises.
    pub report: Report,
    /// The image.
    pub baked: Baked,
    /// The last look.
    pub snapshot: Snapshot,
    /// By sandbox, how often it was to begin anew.
    pub restarts: Vec<u64>,
    /// Last telemetry of channels that hold some: name, record.
    pub telemetry: Vec<(String, Record)>,
    /// Consoles by sandbox: the last of what came through the console hypercall.
    pub consoles: Vec<Untrusted>,
    /// Where all of it is, of consoles and serial ports that have said anything.
    pub logs: Vec<Log>,
    /// By sandbox, what those with `learn = true` touched.
    pub lessons: Vec<Lessons>,
    /// The last of serial ports' output, in their order.
    pub serials: Vec<Untrusted>,
    /// The boot code's messages.
    pub boot_messages: Untrusted,
    /// The plugin's counts.
    pub counts: Option<Counts>,
    /// By sandbox, the comparison at the end of the parts of its program that nobody may write.
    pub programs: Vec<Option<Program>>,
    /// By sandbox, the exits under a load that its Linux announced.
    pub loads: Vec<Option<Load>>,
    /// Kernels' traces, if they were asked for.
    pub traces: Vec<Traced>,
    /// The audit, if it was asked for and the machine had not ended itself.
    pub audited: Option<Audited>,
}

/// Builds and runs a checked system; `see` hears of everything.
///
/// # Errors
/// A build that fails, a boot that stops, an emulator that ends, the time limit.
pub fn run(
    mut checked: Checked,
    options: &Options,
    mut see: impl FnMut(Event),
) -> Result<Outcome, Error> {
    for (index, wanted) in checked.system.sandboxes.iter_mut().enumerate() {
        let own = |more: &&Appended| options.scenario && more.sandbox == index;
        for more in checked.system.scenario.iter().filter(own) {
            if let Some(text) = wanted.sandbox.guest.arguments(more.program) {
                *text = format!("{text} {}", more.text).trim().to_string();
            }
        }
    }
    let planned = checked.system.restarts.iter().filter(|_| options.scenario);
    let mut restarts = vec![0; checked.system.sandboxes.len()];
    planned.for_each(|(index, count)| restarts[*index] = *count);
    let mut baked = build(&checked, &options.artifacts)?;
    if let Some(spoil) = &options.spoil {
        let mut bytes = std::mem::take(&mut baked.bytes);
        spoil(&mut bytes, &baked);
        baked.bytes = bytes;
    }
    let mut running = start(&baked, options)?;
    see(Event::Started(&running));
    let mut watch = Watch::new(&baked, options);
    let end = watch.until_end(&mut running, options, &mut see);
    if let (Ok(()), Some(last)) = (&end, &mut watch.last)
        && let Some(event) = crate::fault::first(&running, &baked.plan)
    {
        last.events.push(event);
        see(Event::Blocked(blocked(&baked.plan, event)));
    }
    watch.rest(&mut see);
    let telemetry = watch.telemetry(&running);
    let read = |pa: u64, bytes: &mut [u8]| running.ram().read(pa, bytes).is_ok();
    watch.traces.read(&read);
    let arch = baked.plan.machine.arch;
    let programs = baked.plan.sandboxes.iter().map(|s| intact::program(read, arch, s)).collect();
    // Before the audit: Bochs' debugger answers there, too.
    let boot_messages = running.console();
    // After the last look: the stopped machine's clock and figures stay as they are.
    let audited = match &end {
        Ok(()) => watch.audit(&mut running, options),
        Err(_) => Ok(None),
    };
    let copy = options.ram.as_ref().filter(|_| running.kind() == Kind::Bochs);
    if let (Some(file), None) = (copy, running.ended().map_err(Error::Machine)?) {
        running.ram().save(file).map_err(Error::Machine)?;
    }
    if options.stop.as_ref().is_some_and(|stop| stop()) {
        // Ctrl-C reached the emulator too, which then answers to nobody any more.
        let _ = running.wait_end("the emulator to end", Duration::from_secs(2));
    }
    let stopped = running.quit();
    end?;
    let audited = audited?;
    stopped.map_err(Error::Machine)?;
    let last = watch
        .last
        .take()
        .ok_or_else(|| Error::Other("the run ended before the machine had booted".into()))?;
    let now = watch.now(&last);
    let mut report = report(&baked, &last, &watch.first_launches, now);
    report.telemetry = telemetry.iter().map(told).collect();
    report.audit = audited.as_ref().map(audit::summary);
    let counted = options.plugin.is_some() && options.cover.is_empty();
    let counts = counted.then(|| running.counts()).transpose();
    let consoles = std::mem::take(&mut watch.consoles).into_iter().map(Console::finish);
    let (consoles, mut logs): (Vec<_>, Vec<_>) = consoles.unzip();
    logs.extend((0..4).map(|n| serial_log(&running, n)));
    logs.retain(|log: &Log| log.bytes > 0);
    let lessons = std::mem::take(&mut watch.lessons);
    let loads = std::mem::take(&mut watch.loads);
    let traces = watch.traces.finish(&baked);
    Ok(Outcome {
        report,
        snapshot: last,
        restarts,
        telemetry,
        consoles,
        logs,
        lessons,
        serials: (0..4).map(|n| running.serial(n)).collect(),
        boot_messages,
        programs,
        loads,
        traces,
        counts: counts.map_err(Error::Machine)?,
        audited,
        baked,
    })
}

/// Finds where a serial port's output is.
fn serial_log(running: &Running, n: usize) -> Log {
    let path = running.serial_path(n);
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    Log { name: format!("serial port {}", n + 1), path, bytes, cut: 0, lost: 0 }
}

fn start(baked: &Baked, options: &Options) -> Result<Running, Error> {
    let other = |e: std::io::Error| Error::Other(format!("{}: {e}", options.dir.display()));
    std::fs::create_dir_all(&options.dir).map_err(other)?;
    let image = options.dir.join("image");
    std::fs::write(&image, &baked.bytes).map_err(other)?;
    let plan = &baked.plan;
    let used = plan.sandboxes.iter().flat_map(|s| &s.cores).max().map_or(1, |c| c + 1);
    match plan.machine.emulator {
        Emulator::Qemu => {}
        Emulator::Bochs => {
            return bochs(baked, options, &image, options.cores.unwrap_or(used));
        }
        Emulator::None => {
            let why =
                "a real machine's description: `bulkhead build` makes the image to boot there";
            return Err(Error::Other(format!("{}: {why}", plan.machine.name)));
        }
    }

    let mut machine = crate::emulated(plan, options.time, options.terminal, &options.dir);
    if let Some(cpu) = &options.cpu {
        machine.cpu.clone_from(cpu);
    }
    machine.args.extend(options.qemu.iter().cloned());
    machine.cores = options.cores.unwrap_or(used);
    machine.memory = options.memory.unwrap_or(machine.memory);
    match &options.iso {
        None => machine.kernel = Some(image),
        Some(firmware) => {
            let path = options.dir.join("image.iso");
            iso(&image, &path)?;
            machine.iso = Some(path);
            machine.firmware.clone_from(firmware);
        }
    }
    machine.plugin = options.plugin.as_ref().map(|library| match &options.cover[..] {
        [] => counting(baked, library),
        cover => Plugin {
            library: library.clone(),
            cover: covered(baked, options, cover),
            ..Plugin::default()
        },
    });
    machine.start().map_err(Error::Machine)
}

/// Boots the image in Bochs, from an ISO. Its serial ports go to files.
fn bochs(baked: &Baked, options: &Options, image: &Path, cores: usize) -> Result<Running, Error> {
    let machine = &baked.plan.machine;
    let arch = arch::of(machine.arch);
    let unaudited = arch.unaudited_in_bochs();
    let has = [
        (options.plugin.is_some(), "counts no instructions"),
        (!options.qemu.is_empty(), "takes no options of QEMU and has no debugger for gdb"),
        (options.audit && unaudited.is_some(), unaudited.unwrap_or_default()),
        (options.cpu.is_some(), "has one CPU model"),
    ];
    if let Some((_, what)) = has.into_iter().find(|(wanted, _)| *wanted) {
        return Err(Error::Other(format!("Bochs {what}")));
    }
    let path = options.dir.join("image.iso");
    iso(image, &path)?;
    let mut bochs = Bochs::new(&options.dir, path);
    bochs.virtualization = arch.bochs().ok_or_else(|| {
        Error::Other(format!("Bochs has no processor of {}", machine.arch.facts().name))
    })?;
    bochs.cores = cores;
    bochs.hz = options.bochs_hz;
    bochs.memory = (options.memory.unwrap_or(machine.ram_size()) >> 20) as usize;
    bochs.start().map_err(Error::Machine)
}

/// Returns the monitors' texts that are to be covered.
fn covered(baked: &Baked, options: &Options, cover: &[(usize, u64)]) -> Vec<Cover> {
    let of = |&(index, news): &(usize, u64)| {
        let (pa, len) = *baked.map.texts.get(index)?;
        let ram = baked.plan.sandboxes[index]
            .ram
            .iter()
            .find(|ram| news.wrapping_sub(ram.gpa) < ram.len)?;
        let file = options.dir.join(format!("cover{index}"));
        Some(Cover { text: (pa, pa + len), news: news - ram.gpa + ram.hpa, file })
    };
    cover.iter().filter_map(of).collect()
}

/// Instructions of each monitor, and with each event its exits.
fn counting(baked: &Baked, library: &Path) -> Plugin {
    Plugin {
        library: library.to_owned(),
        ranges: baked
            .map
            .texts
            .iter()
            .enumerate()
            .map(|(i, &(pa, len))| (format!("monitor{i}"), pa, pa + len))
            .collect(),
        words: exit_counters(baked),
        ..Plugin::default()
    }
}

/// Finds where monitors count exits, for events: sandbox by sandbox, core by core, each
/// [`CAUSES`] words.
fn exit_counters(baked: &Baked) -> Vec<(u64, usize)> {
    let sandboxes = baked.map.reports.iter().zip(&baked.plan.sandboxes);
    let cores = sandboxes.flat_map(|(&pa, s)| (0..s.cores.len()).map(move |i| pa + size(i)));
    let exits = offset_of!(CoreReport, exits) as u64;
    cores.map(|pa| (pa + exits, CAUSES)).collect()
}

/// Record of the run so far.
struct Watch<'a> {
    baked: &'a Baked,
    begun: Instant,
    last: Option<Snapshot>,
    /// By sandbox that was launched: ticks of playing, counter at the first launch.
    first_launches: Vec<(u64, u64)>,
    launched: Vec<bool>,
    states: Vec<State>,
    denials: Vec<Vec<u64>>,
    written: Vec<Vec<u64>>,
    consoles: Vec<Console>,
    lessons: Vec<Lessons>,
    loads: Vec<Option<Load>>,
    traces: Readers,
}

impl<'a> Watch<'a> {
    fn new(baked: &'a Baked, options: &Options) -> Self {
        let sandboxes = &baked.plan.sandboxes;
        let zeros = || sandboxes.iter().map(|s| vec![0; s.cores.len()]).collect();
        Self {
            baked,
            begun: Instant::now(),
            last: None,
            first_launches: Vec::new(),
            launched: vec![false; sandboxes.len()],
            states: vec![State::Absent; sandboxes.len()],
            denials: zeros(),
            written: zeros(),
            consoles: sandboxes.iter().map(|s| Console::new(&options.dir, &s.name)).collect(),
            lessons: vec![Lessons::default(); sandboxes.len()],
            loads: vec![None; sandboxes.len()],
            traces: if options.trace { Readers::new(baked) } else { Readers::default() },
        }
    }

    fn until_end(
        &mut self,
        running: &mut Running,
        options: &Options,
        see: &mut impl FnMut(Event),
    ) -> Result<(), Error> {
        const LOOK: Duration = Duration::from_millis(20);
        let mut clock = Clock::new(&self.baked.plan, &options.time);
        loop {
            let stop = options.stop.as_ref().is_some_and(|stop| stop());
            let ended = running.ended().map_err(Error::Machine)?;
            self.look(running, see)?;
            let elapsed = self.begun.elapsed();
            if let (Some(signal), false) = (ended.and_then(|status| status.signal()), stop) {
                let tail = running.tail();
                return Err(Error::Other(format!("{} {signal}\n{tail}", crate::CRASHED)));
            }
            if stop
                || self.is_over()
                || options.until_steady && self.is_steady()
                || options.until_traced.is_some_and(|length| self.traces.have(length))
                || ended.is_some() && (options.terminal || self.last.is_some())
            {
                return Ok(());
            }
            if ended.is_some() {
                return Err(Error::Other(format!(
                    "the emulator ended before the system booted\n{}",
                    running.tail()
                )));
            }
            let boot = self.last.as_ref().and_then(|seen| seen.boot.as_ref());
            if let Some(duration) = options.duration
                && clock.since_launch(boot, running).is_some_and(|since| since >= duration)
            {
                return Ok(());
            }
            if elapsed >= options.limit && !options.terminal {
                let waited: Vec<_> =
                    self.baked.plan.ends_with.iter().map(|&i| self.doing(i)).collect();
                let consoles = self.consoles.iter().flat_map(|console| console.last(20));
                let consoles: String = consoles.map(|line| line + "\n").collect();
                let cause =
                    running.cause().map_or_else(String::new, |cause| format!(": {cause}\n "));
                return Err(Error::Other(format!(
                    "after {} s the run was given up{cause}; it waited for {} to end\n{consoles}{}",
                    elapsed.as_secs(),
                    if waited.is_empty() { "all sandboxes".into() } else { waited.join(", ") },
                    running.tail()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Linux guests that are under a load which they have announced on their serial port.
    fn loaded(&self, running: &Running) -> Vec<usize> {
        let arch = arch::of(self.baked.plan.machine.arch);
        let all = self.baked.plan.sandboxes.iter().enumerate();
        let linux = all.filter(|(_, sandbox)| matches!(sandbox.guest, Guest::Linux { .. }));
        let ports = linux.filter_map(|(index, sandbox)| Some((index, arch.serial(sandbox)?)));
        ports.filter(|(_, n)| load::is_on(&running.serial(*n))).map(|(index, _)| index).collect()
    }

    /// Tells a sandbox's state, for a run that waits for it.
    fn doing(&self, index: usize) -> String {
        let name = &self.baked.plan.sandboxes[index].name;
        let state = format!("{:?}", self.states[index]).to_lowercase();
        let restarts = self.last.as_ref().and_then(|seen| seen.sandboxes.get(index));
        let restarts = restarts.map_or(0, |s| s.report.restarts);
        format!("{name} ({state}, {restarts} restarts)")
    }

    /// Reads everything once and tells what is new.
    fn look(&mut self, running: &Running, see: &mut impl FnMut(Event)) -> Result<(), Error> {
        let read = |pa: u64, bytes: &mut [u8]| running.ram().read(pa, bytes).is_ok();
        let loaded = self.loaded(running);
        let Some(seen) = snapshot(&read, self.baked) else {
            return Ok(());
        };
        // A load that went on before and after: all that was read is of its time.
        if !loaded.is_empty() {
            let still = self.loaded(running);
            for index in loaded.into_iter().filter(|index| still.contains(index)) {
                let sandbox = seen.sandboxes.get(index);
                sandbox.into_iter().for_each(|s| Load::enter(&mut self.loads[index], s));
            }
        }
        if let Some(boot) = seen.boot.filter(|b| b.error != 0) {
            let said = running.console();
            let said = said.last(1).concat();
            return Err(Error::Other(format!(
                "the boot stopped with error {}: {said}",
                boot.error
            )));
        }
        if seen.sandboxes.is_empty() {
            return Ok(());
        }
        self.traces.read(&read);
        for (i, s) in seen.sandboxes.iter().enumerate() {
            let name = &self.baked.plan.sandboxes[i].name;
            if !self.launched[i] && s.report.launch_ticks != 0 {
                self.launched[i] = true;
                self.first_launches
                    .push((s.report.played_ticks - s.report.begin_ticks, s.report.launch_ticks));
            }
            for (c, core) in s.cores.iter().enumerate() {
                let (text, lost) = core.console_since(self.written[i][c]);
                self.written[i][c] = core.console_written;
                if lost > 0 {
                    see(Event::Lost(name, lost));
                }
                self.consoles[i].take(&text, lost);
            }
            let new = self.consoles[i].news();
            if !new.is_empty() {
                see(Event::Console(name, &new));
            }
            // After the text: a guest says what it is about to do.
            for (c, core) in s.cores.iter().enumerate() {
                let known = self.denials[i][c];
                let new: Vec<_> = core.kept.iter().filter(|d| d.seq > known).collect();
                let last = new.last().map_or(known, |d| d.seq);
                let unseen = (last - known).saturating_sub(new.len() as u64);
                if self.baked.plan.sandboxes[i].learn {
                    self.lessons[i].lose(unseen);
                    new.iter().for_each(|d| self.lessons[i].take(&self.baked.plan, i, d));
                }
                if unseen > 0 {
                    see(Event::Overwritten(name, c, unseen));
                }
                let new = new.into_iter().map(|d| explain(&self.baked.plan, i, c, d));
                new.for_each(|denial| see(Event::Denied(denial)));
                self.denials[i][c] = last;
            }
            if s.state != self.states[i] {
                self.states[i] = s.state;
                see(Event::State(name, s.state));
            }
        }
        let known = self.last.as_ref().map_or(0, |last| last.events.len());
        for event in seen.events.iter().skip(known) {
            see(Event::Blocked(blocked(&self.baked.plan, *event)));
        }
        self.last = Some(seen);
        Ok(())
    }

    /// Tells what no line ended.
    fn rest(&mut self, see: &mut impl FnMut(Event)) {
        for (console, planned) in self.consoles.iter_mut().zip(&self.baked.plan.sandboxes) {
            let rest = console.rest();
            if !rest.is_empty() {
                see(Event::Console(&planned.name, &rest));
            }
        }
    }

    /// Tells if all sandboxes that the run waits for have ended.
    fn is_over(&self) -> bool {
        let wanted = &self.baked.plan.ends_with;
        let over =
            |i: &usize| matches!(self.states[*i], State::Stopped | State::Exited | State::Failed);
        let all: Vec<_> = (0..self.states.len()).collect();
        (if wanted.is_empty() { &all } else { wanted }).iter().all(over)
    }

    /// Tells if all that start with the machine run, and have booted.
    fn is_steady(&self) -> bool {
        let Some(seen) = &self.last else {
            return false;
        };
        let mut starting = seen.sandboxes.iter().zip(&self.baked.plan.sandboxes);
        starting.all(|(now, planned)| {
            let linux = matches!(planned.guest, Guest::Linux { .. });
            let booted = now.cores.first().is_some_and(|c| c.steady_ticks != 0);
            let ended = matches!(now.state, State::Stopped | State::Exited | State::Failed);
            !planned.autostart || ended || now.state == State::Running && (booted || !linux)
        })
    }

    fn audit(&self, running: &mut Running, options: &Options) -> Result<Option<Audited>, Error> {
        let stopped = options.stop.as_ref().is_some_and(|stop| stop());
        // It compares monitors' tables.
        let without = self.baked.plan.multikernel;
        if !options.audit
            || without
            || stopped
            || running.ended().map_err(Error::Machine)?.is_some()
        {
            return Ok(None);
        }
        let claim = audit::claim(&self.baked.plan, &options.artifacts)?;
        let audited = audit::live(running, &claim)?;
        if let Some(folder) = &options.dump {
            audit::save(running, &audited.registers, folder)?;
        }
        Ok(Some(audited))
    }

    fn now(&self, last: &Snapshot) -> u64 {
        last.latest()
    }

    fn telemetry(&self, running: &Running) -> Vec<(String, Record)> {
        let read = |pa: u64, bytes: &mut [u8]| running.ram().read(pa, bytes).is_ok();
        let channels = self.baked.plan.channels.iter();
        channels.filter_map(|c| Some((c.name.clone(), telemetry(&read, c.hpa)?))).collect()
    }
}
