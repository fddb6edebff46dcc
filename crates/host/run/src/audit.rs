//! The audit of a running machine, or of a dump. It translates the plan into the auditor's claim, stops the machine,
//! and reads its registers and memory.

use crate::{Error, arch, live};
use bulkhead_audit::arch::Architecture;
use bulkhead_audit::claim::{self, Claim};
use bulkhead_audit::{Finding, RULES, RamFile, Registers, Report, Rule, dump, segments};
use bulkhead_explain::{Audit, AuditRule};
use bulkhead_layout::monitor::Action;
use bulkhead_layout::need::{self, MONITORS};
use bulkhead_layout::report;
use bulkhead_plan::{
    BarKind, Bdf, Build, Channel, End, Function, Guest, MmioPart, Part, Place, Plan, RTC, Right,
    Sandbox, SharedMmio, Span, Trigger,
};
use bulkhead_qemu::{Debugger, Kind, Qmp, Running};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An audit and how long it took.
#[derive(Clone, Debug)]
pub struct Audited {
    /// Findings.
    pub report: Report,
    /// From stopping the machine to the end of the walk.
    pub took: Duration,
    /// The registers that were read.
    pub registers: Registers,
}

/// The audit as the report of a run has it.
#[must_use]
pub fn summary(audited: &Audited) -> Audit {
    let report = &audited.report;
    let rule = |rule: &Rule| AuditRule {
        name: rule.name,
        sentence: rule.what,
        findings: report.findings.iter().filter(|finding| finding.rule == rule.name).count(),
    };
    let show = |f: &Finding| format!("{}: {}: {}", f.place, f.rule, f.message);
    Audit {
        rules: RULES.iter().map(rule).collect(),
        findings: report.findings.iter().map(show).collect(),
        tables: report.tables,
    }
}

/// Derives the claim from a plan and its programs' files. No address of a table is in it.
///
/// # Errors
/// A program that cannot be read.
pub fn claim(plan: &Plan, artifacts: &Path) -> Result<Claim, Error> {
    let facts = plan.machine.arch.facts();
    let none = || Error::Other(format!("no auditor reads {}", facts.name));
    let auditor = arch::of(plan.machine.arch).auditor().ok_or_else(none)?;
    let file = |name: &str| artifacts.join(format!("{}{name}", facts.files));
    let monitors = MONITORS.iter().map(|(name, _)| program_of(&file(name)));
    translate(plan, auditor, &monitors.collect::<Result<Vec<_>, _>>()?)
}

/// Derives the claim for an architecture, with the segments of its monitors in the order of [`MONITORS`].
///
/// # Errors
/// A program that cannot be read.
pub fn translate(
    plan: &Plan,
    arch: &'static dyn Architecture,
    monitors: &[Vec<claim::Segment>],
) -> Result<Claim, Error> {
    let (machine, facts) = (&plan.machine, plan.machine.arch.facts());
    let mut sandboxes = Vec::new();
    for (index, sandbox) in plan.sandboxes.iter().enumerate() {
        let segments = |guest: &Guest| match guest {
            Guest::Bare { program, enforce_segments: true, .. } => program_of(program).map(Some),
            _ => Ok(None),
        };
        let others = sandbox.alternatives.iter().map(|other| segments(&other.guest));
        let (lines, ends) = (lines(plan, sandbox), plan.ends(index));
        let clock = sandbox.devices.iter().any(|device| device.class == RTC);
        let functions = !sandbox.functions.is_empty() || !ends.is_empty();
        let right = |from: &Sandbox, to: Option<usize>| {
            let all = from.control.iter().flatten();
            all.filter(|right| to.is_none_or(|to| right.sandbox == to)).count() != 0
        };
        let rights =
            right(sandbox, None) || { plan.sandboxes.iter() }.any(|s| right(s, Some(index)));
        let messages = |c: &Channel| c.writes(index) && c.part.has_header();
        let rings = |c: &Channel| c.reads(index) && c.bell.is_some();
        let loaded = |c: &Channel| c.to.contains(&index) && c.part == Part::Program;
        let mut needs = 0;
        let mut need = |when: bool, what: u32| needs |= if when { what } else { 0 };
        need(functions || !lines.is_empty() || clock, need::DEVICES);
        need(sandbox.cores.len() != 1, need::CORES);
        need(plan.links.iter().any(|s| s.owner == index || s.to.contains(&index)), need::LINKS);
        need(plan.channels.iter().any(loaded), need::LOADS);
        need(rights || sandbox.lockable, need::CONTROL);
        need(plan.channels.iter().any(|c| messages(c) || rings(c)), need::CHANNELS);
        need(matches!(sandbox.guest, Guest::Linux { .. } | Guest::Running), need::LINUX);
        need(plan.runs(index), need::RUNNING);
        need(sandbox.watch.is_some(), need::WATCHDOG);
        let failure = sandbox.actions[report::Kind::Failure as usize];
        need(failure != Action::Ignore || !sandbox.ladders.is_empty(), need::LADDER);
        need(sandbox.snapshot > 0, need::SNAPSHOT);
        need(sandbox.debug, need::DEBUG);
        let mediated = |shared: &SharedMmio| shared.of(index).any(|part| part.range.is_some());
        need(plan.mmio.iter().any(mediated), need::MMIO);
        let over = |right: &Right| plan.sandboxes[right.sandbox].lockable;
        let locks = sandbox.lockable || sandbox.control.iter().flatten().any(over);
        need(locks, need::LOCK);
        need(plan.roles.iter().any(|role| role.holders.contains(&index)), need::ROLE);
        let built = |build| monitors[need::chosen(needs, build == Build::Checked)].clone();
        sandboxes.push(claim::Sandbox {
            monitor: built(sandbox.monitor),
            spare: plan.is_taken(index).then(|| built(sandbox.spare)),
            name: sandbox.name.clone(),
            place: place(&sandbox.place),
            cores: sandbox.cores.clone(),
            core_ids: sandbox.core_ids.clone(),
            ram: { sandbox.ram.iter() }
                .map(|r| claim::Ram { gpa: r.gpa, hpa: r.hpa, len: r.len })
                .collect(),
            segments: segments(&sandbox.guest)?,
            others: others.collect::<Result<_, _>>()?,
            ports: ports(sandbox),
            lines,
            observe: sandbox.observe.clone(),
            watched: sandbox.watch.is_some(),
            snapshot: sandbox.snapshot,
            debug: sandbox.debug,
            alive: sandbox.watch.is_some_and(|watch| watch.alive.is_some()),
            running: plan.runs(index),
            again: plan.begins_anew(index),
            // The Linux under which a system starts can have its cores back.
            taken: plan.is_taken(index) || plan.block.is_some() && !plan.runs(index),
            quiets: { sandbox.peers.iter() }
                .filter(|peer| peer.quiets)
                .map(|peer| peer.sandbox)
                .collect(),
            starts: sandbox.autostart,
            pins: ends.iter().any(|end| end.woken.is_some()),
            ends: ends.iter().map(|end| self::end(plan, end)).collect(),
        });
    }
    let low = arch.places().machine[0];
    let low = Span { start: low.start, len: low.len };
    let channels = plan.channels.iter().map(|c| claim::Channel {
        name: c.title(),
        place: place(&c.place),
        from: c.from,
        to: c.to.clone(),
        hpa: c.hpa,
        gpa: c.gpa,
        len: c.len,
        stand: c.stand.as_ref().map(|stand| (stand.role, stand.writes)),
        header: c.part.has_header(),
        program: c.part == Part::Program,
        rung: c.bell.is_some(),
    });
    Ok(Claim {
        system: plan.system.clone(),
        place: claim::Place { file: plan.manifest.display().to_string(), line: 1, column: 1 },
        arch,
        ram: banks(plan),
        free: machine.ram.iter().map(range).collect(),
        reserved: machine.reserved.iter().map(|(name, s)| (name.clone(), range(s))).collect(),
        image: range(&plan.image),
        block: plan.block.as_ref().map(range),
        sandboxes,
        channels: channels.collect(),
        links: { plan.links.iter() }
            .map(|link| claim::Link {
                place: place(&link.place),
                owner: link.owner,
                to: link.to.clone(),
                hpa: link.hpa,
                gpa: link.gpa,
                len: link.len,
            })
            .collect(),
        roles: plan.roles.iter().map(|role| role.holders.clone()).collect(),
        registers: plan.mmio.iter().map(registers).collect(),
        functions: machine.functions.iter().map(|f| function(plan, f)).collect(),
        ecam: machine.pci.as_ref().map(|pci| range(&pci.space(facts))),
        iommu: iommu(plan),
        controller: machine.controller.map(|controller| controller.base()),
        timer: machine.hpet.filter(|_| plan.block.is_some()).map(|timer| timer.base),
        unnamed: plan.unnamed(low).iter().map(range).collect(),
        shown: plan.withheld(low).map(|(_, span)| range(&span)).collect(),
        withheld: plan.block.map_or_else(Vec::new, |_| arch::of(machine.arch).withheld(machine)),
    })
}

fn registers(shared: &SharedMmio) -> claim::Registers {
    let part = |part: &MmioPart| (part.sandbox, part.write, place(&part.place));
    claim::Registers {
        name: shared.name.clone(),
        range: range(&shared.span),
        parts: shared.parts.iter().map(part).collect(),
        mediated: shared.parts.iter().any(|part| part.range.is_some()),
    }
}

fn end(plan: &Plan, end: &End) -> claim::End {
    claim::End {
        place: place(&plan.channels[end.region].place),
        channel: end.region,
        bdf: end.bdf.0,
        registers: end.registers,
        memory: range(&end.memory),
    }
}

/// Lists all RAM of a machine, in the order of its emulator's file.
pub fn banks(plan: &Plan) -> Vec<claim::Range> {
    plan.machine.banks.iter().map(range).collect()
}

fn range(span: &Span) -> claim::Range {
    claim::Range { start: span.start, len: span.len }
}

/// Returns the ports of its devices and of its functions' base address registers.
fn ports(sandbox: &Sandbox) -> Vec<claim::Ports> {
    let devices = sandbox
        .devices
        .iter()
        // Its monitor answers for the clock.
        .filter(|d| d.class != RTC)
        .flat_map(|d| d.ports.iter().map(|p| (p.first, p.last, d.name.clone(), place(&d.place))));
    let own = sandbox.functions.iter().filter(|granted| granted.role.is_none());
    let functions = own.flat_map(|granted| {
        let io = granted.function.bars.iter().filter(|bar| bar.kind == BarKind::Io);
        io.map(|bar| {
            let (first, last) = (bar.span.start as u16, (bar.span.end() - 1) as u16);
            (first, last, granted.function.bdf.to_string(), place(&granted.place))
        })
    });
    let all = devices.chain(functions);
    all.map(|(first, last, device, place)| claim::Ports { first, last, device, place }).collect()
}

/// Returns the lines of its devices and of its functions without messages.
fn lines(plan: &Plan, sandbox: &Sandbox) -> Vec<claim::Line> {
    if sandbox.guest == Guest::Running {
        let all = plan.machine.controller.map_or(0, |controller| controller.lines());
        let others = plan.sandboxes.iter().filter(|other| other.guest != Guest::Running);
        let given: Vec<u32> =
            others.flat_map(|other| lines(plan, other)).map(|line| line.pin).collect();
        let left = (0..all).filter(|pin| !given.contains(pin));
        return left.map(|pin| claim::Line { pin, level: None }).collect();
    }
    let arch = arch::of(plan.machine.arch);
    let devices = sandbox.devices.iter().filter_map(|d| {
        Some(claim::Line { pin: arch.line(d.irq?), level: Some(d.trigger != Trigger::Edge) })
    });
    let functions = sandbox.functions.iter().filter(|f| f.line);
    let functions =
        functions.filter_map(|f| Some(claim::Line { pin: f.function.irq?, level: Some(true) }));
    devices.chain(functions).collect()
}

fn function(plan: &Plan, described: &Function) -> claim::Function {
    let granted = plan.sandboxes.iter().enumerate().find_map(|(i, s)| {
        let granted = s.functions.iter().find(|g| g.function.bdf == described.bdf)?;
        Some((i, granted))
    });
    let memory = described.bars.iter().filter(|bar| bar.kind != BarKind::Io);
    // 16 bytes a vector (PCI 3.0, 6.8.2).
    let table = described
        .msix
        .map(|msix| claim::Range { start: msix.table, len: u64::from(msix.vectors) * 16 });
    claim::Function {
        name: described.bdf.to_string(),
        bdf: described.bdf.0,
        aliases: described.requesters.iter().map(|bdf| bdf.0).collect(),
        bridge: described.bridge.is_some(),
        owner: granted.map(|g| g.0),
        role: granted.and_then(|g| g.1.role),
        place: place(granted.map_or(&described.place, |g| &g.1.place)),
        bars: memory.map(|bar| range(&bar.span)).collect(),
        mediated: table.into_iter().collect(),
        reach: granted.and_then(|(i, _)| reach(plan, i, described.bdf)),
        resets: described
            .reset
            .iter()
            .map(|step| claim::Range { start: step.at, len: step.size.into() })
            .collect(),
    }
}

/// Finds the memory that a function reaches, if a program of a kernel drives it.
fn reach(plan: &Plan, sandbox: usize, bdf: Bdf) -> Option<Vec<(claim::Range, bool)>> {
    let mut functions = plan.sandboxes[sandbox].functions.iter();
    let n = functions.position(|granted| granted.function.bdf == bdf)?;
    let range = |dma: &bulkhead_plan::Dma| claim::Range { start: dma.gpa, len: dma.len };
    let all = plan.dma(sandbox, n)?;
    Some(all.iter().map(|dma| (range(dma), dma.write)).collect())
}

/// Returns the IOMMU.
fn iommu(plan: &Plan) -> Option<claim::Iommu> {
    let iommu = plan.machine.iommu?;
    let arch = arch::of(plan.machine.arch);
    let (kind, len, bdf) = arch.unit(plan, &iommu)?;
    Some(claim::Iommu {
        kind,
        bdf,
        remaps: iommu.remaps_interrupts && !plan.multikernel,
        registers: claim::Range { start: iommu.base, len },
        lines: arch.sender_of_lines(&iommu),
    })
}

fn place(place: &Place) -> claim::Place {
    claim::Place { file: place.file.display().to_string(), line: place.line, column: place.column }
}

/// Reads the segments of a program's file.
///
/// # Errors
/// A file that cannot be read, or is no 64-bit ELF program.
pub fn program_of(path: &Path) -> Result<Vec<claim::Segment>, Error> {
    let other = |why: String| Error::Other(format!("{}: {why}", path.display()));
    let bytes = std::fs::read(path).map_err(|e| other(e.to_string()))?;
    segments(&bytes).ok_or_else(|| other("no 64-bit ELF program".into()))
}

/// For the way of some hundred instructions.
const WAY: Duration = Duration::from_millis(50);
/// As often, at most, a machine is let on its way, and as long.
const TIMES: u32 = 100;
const LONGEST: Duration = Duration::from_secs(20);

/// A machine that can be stopped.
trait Stops {
    /// Stops it and reads its registers.
    fn stop(&mut self) -> Result<Registers, Error>;
    /// Its memory, while it stands.
    fn memory(&self) -> Result<RamFile, Error>;
    /// Lets it go on.
    fn go(&mut self) -> Result<(), Error>;
}

/// In QEMU: its monitor, and the file with the RAM.
struct InQemu<'a> {
    qmp: Qmp,
    ram: PathBuf,
    claim: &'a Claim,
}

impl Stops for InQemu<'_> {
    fn stop(&mut self) -> Result<Registers, Error> {
        self.qmp.execute("stop", json!({})).map_err(Error::Machine)?;
        let mut ask = |line: &str| self.qmp.ask(line).map_err(|e| e.to_string());
        self.claim.arch.in_qemu(&mut ask, self.claim).map_err(Error::Other)
    }

    fn memory(&self) -> Result<RamFile, Error> {
        let error = |e| Error::Other(format!("{}: {e}", self.ram.display()));
        RamFile::flat(&self.ram, &self.claim.ram).map_err(error)
    }

    fn go(&mut self) -> Result<(), Error> {
        self.qmp.execute("cont", json!({})).map(|_| ()).map_err(Error::Machine)
    }
}

/// In Bochs: its debugger.
struct InBochs<'a> {
    running: &'a Running,
    debugger: Option<Debugger>,
    claim: &'a Claim,
}

impl Stops for InBochs<'_> {
    fn stop(&mut self) -> Result<Registers, Error> {
        let debugger = Debugger::stop(self.running).map_err(Error::Machine)?;
        let debugger = self.debugger.insert(debugger);
        let mut ask = |line: &str| debugger.ask(line).map_err(|e| e.to_string());
        self.claim.arch.in_bochs(&mut ask).map_err(Error::Other)
    }

    fn memory(&self) -> Result<RamFile, Error> {
        memory(self.running)
    }

    fn go(&mut self) -> Result<(), Error> {
        self.debugger.take().map_or(Ok(()), |debugger| debugger.go().map_err(Error::Machine))
    }
}

/// Stops a machine, audits it and leaves it stopped. A finding may be about a core with a monitor on its way into the
/// guest: a busy host may hold an emulator's thread there. Then the machine runs a little further and is audited again.
///
/// # Errors
/// An emulator that does not answer, memory that cannot be read.
pub fn live(running: &Running, claim: &Claim) -> Result<Audited, Error> {
    if running.kind() == Kind::Bochs {
        return stopped(&mut InBochs { running, debugger: None, claim }, claim);
    }
    let qmp = running.qmp().map_err(Error::Machine)?;
    stopped(&mut InQemu { qmp, ram: running.ram().path().to_owned(), claim }, claim)
}

/// Stops a machine that another process runs in this folder, audits it as [`live`] does, and lets it go on.
///
/// # Errors
/// No such machine, an emulator that does not answer, memory that cannot be read.
pub fn attached(folder: &Path, claim: &Claim) -> Result<Audited, Error> {
    let (qmp, ram) = live::connect(folder)?;
    let mut machine = InQemu { qmp, ram, claim };
    let audited = stopped(&mut machine, claim);
    // Whatever came of it: the machine is somebody else's.
    machine.go()?;
    audited
}

/// Stops a machine, and audits it until no finding is about a core on its way.
fn stopped(machine: &mut dyn Stops, claim: &Claim) -> Result<Audited, Error> {
    let (mut times, first) = (0, Instant::now());
    loop {
        let begun = Instant::now();
        let registers = machine.stop()?;
        let report = bulkhead_audit::audit(claim, &registers, &machine.memory()?);
        let audited = Audited { report, took: begun.elapsed(), registers };
        times += 1;
        let soon = times < TIMES && first.elapsed() < LONGEST;
        let waits = soon && audited.report.findings.iter().any(|f| f.on_its_way);
        // A machine that has shut down does not go on.
        if !waits || machine.go().is_err() {
            return Ok(audited);
        }
        std::thread::sleep(WAY);
    }
}

/// Writes a stopped machine's registers and memory for a later audit.
///
/// # Errors
/// Files that cannot be written.
pub fn save(running: &Running, registers: &Registers, folder: &Path) -> Result<(), Error> {
    dump::save(folder, registers, &memory(running)?).map_err(Error::Other)
}

/// Audits a dump.
///
/// # Errors
/// Files that cannot be read.
pub fn dumped(folder: &Path, claim: &Claim) -> Result<Audited, Error> {
    let begun = Instant::now();
    let (registers, memory) = dump::load(folder, &claim.ram).map_err(Error::Other)?;
    let report = bulkhead_audit::audit(claim, &registers, &memory);
    Ok(Audited { report, took: begun.elapsed(), registers })
}

/// Lists the RAM that a machine was started with, in the order of its file.
pub fn ram_of(running: &Running) -> Vec<claim::Range> {
    running.ram().banks().map(|(start, len)| claim::Range { start, len }).into()
}

/// Memory of a machine that stands. Bochs has it in no file, so a copy of all RAM is made.
fn memory(running: &Running) -> Result<RamFile, Error> {
    let ram = running.ram();
    let copy = running.dir().join("audited-ram");
    let path = match running.kind() {
        Kind::Qemu => ram.path(),
        Kind::Bochs => {
            ram.save(&copy).map_err(Error::Machine)?;
            &copy
        }
    };
    let memory = RamFile::flat(path, &ram_of(running));
    // The open file stays readable.
    let _ = std::fs::remove_file(&copy);
    memory.map_err(|e| Error::Other(format!("{}: {e}", path.display())))
}
