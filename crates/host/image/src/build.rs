//! Puts the image together.

use crate::devices::Devices;
use crate::elf::Program;
use crate::guest::{self, Guest, Trace};
use crate::monitor::{self, Input, Pristine, Standby};
use crate::pages::Pages;
use crate::parts::{Part, Shared};
use crate::space::Spaces;
use crate::target::Target;
use crate::x86::{KERNEL_WINDOW, bake as bake_known};
use crate::{Error, config, info, kernel, multikernel, pci};
use bulkhead_arch::PageFormat;
use bulkhead_layout::image::{self, ConfigOp, MAGIC, Range, Sandbox, VERSION, checksum};
use bulkhead_layout::monitor::Mailbox;
use bulkhead_layout::need::{self, MONITORS};
use bulkhead_layout::record::Op;
use bulkhead_layout::report::{self, Report};
use bulkhead_plan::{self as plan, Arch, Plan, System};
use zerocopy::{FromZeros, IntoBytes};

/// The privileged programs, as ELF files.
pub struct Programs<'a> {
    /// Boot code.
    pub boot: &'a [u8],
    /// Monitors, in the order of [`MONITORS`].
    pub monitors: [&'a [u8]; MONITORS.len()],
}

/// Where things lie in an image.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// [`image::Header`], the architecture's own part, and all that follows them.
    pub header: u64,
    /// [`Report`] of each sandbox.
    pub reports: Vec<u64>,
    /// Mailbox of each sandbox's monitor; an empty list without monitors.
    pub mailboxes: Vec<u64>,
    /// Monitor text of each sandbox: address and bytes of code in use.
    pub texts: Vec<(u64, u64)>,
    /// The IOMMU's event log: address and bytes; nothing without an IOMMU.
    pub events: (u64, u64),
    /// Where each sandbox's kernel tells what it does: the address of its ring, and what it holds.
    pub traces: Vec<Option<(u64, Trace)>>,
    /// Everything, ascending.
    pub parts: Vec<Part>,
    /// Address spaces of each sandbox; an empty list without monitors.
    pub spaces: Vec<Spaces>,
    /// Bytes of a monitor's text, of the largest there is.
    pub text_bytes: u64,
    /// Bytes of boot text and data.
    pub boot_bytes: u64,
    /// Fields of the boot code that hold an address in it: their addresses, if it was moved.
    pub fields: Vec<u64>,
}

/// A baked image.
pub struct Baked {
    /// The file's contents, to be loaded at the start of [`Plan::image`].
    pub bytes: Vec<u8>,
    /// The plan that it follows.
    pub plan: Plan,
    /// Where things lie.
    pub map: Map,
}

/// Plans and bakes a system for its machine.
///
/// # Errors
/// Files that cannot be read or are not what they should be; memory that does
/// not suffice.
pub fn bake(system: &System, programs: &Programs) -> Result<Baked, Error> {
    match system.machine.arch {
        Arch::Other(facts) => {
            Err(Error::Program(format!("no target of the builder is {}", facts.name)))
        }
        arch => bake_known(arch, system, programs),
    }
}

/// Returns the address at which kernels of an architecture see their memory; `None`: the builder has no target for it.
#[must_use]
pub const fn kernel_window(arch: Arch) -> Option<u64> {
    match arch {
        Arch::Other(_) => None,
        _ => Some(KERNEL_WINDOW),
    }
}

/// Plans and bakes a system for a target, which is the one of its machine.
///
/// # Errors
/// See [`bake`]; the target has pages of another size than its architecture.
pub fn bake_for<T: Target>(system: &System, programs: &Programs) -> Result<Baked, Error> {
    let page = system.facts().page;
    if [T::Own::PAGE, T::Nested::PAGE] != [page; 2] {
        return Err(Error::Program(format!("the target's tables have no pages of {page} bytes")));
    }
    let boot = Program::parse("boot code", programs.boot)?;
    let parse = |((name, _), bytes): (&(&str, u32), &&[u8])| Program::parse(name, bytes);
    let monitors = MONITORS.iter().zip(&programs.monitors).map(parse);
    let monitors = monitors.collect::<Result<Vec<_>, _>>()?;
    // The image's size depends on the plan only through its tables: a second
    // try with the size of the first one fits.
    let mut len = page;
    for _ in 0..4 {
        let plan = system.plan(len).map_err(Error::Misfit)?;
        let guests = 0..plan.sandboxes.len();
        let guests = guests.map(|n| guest::<T>(&plan, n)).collect::<Result<Vec<_>, _>>()?;
        let standbys = (0..plan.sandboxes.len()).map(|n| standbys::<T>(&plan, n));
        let standbys = standbys.collect::<Result<Vec<_>, _>>()?;
        let (bytes, map) = image::<T>(&plan, &guests, &standbys, &boot, &monitors, len)?;
        if bytes.len() as u64 <= len {
            return Ok(Baked { bytes, plan, map });
        }
        len = (bytes.len() as u64).next_multiple_of(16 * page);
    }
    Err(Error::Program("the image's size does not settle".into()))
}

/// Makes a sandbox' guest as it is at its first instruction.
fn guest<T: Target>(plan: &Plan, index: usize) -> Result<Guest, Error> {
    let plan::Guest::Kernel(kernel) = &plan.sandboxes[index].guest else {
        return T::guest(plan, index);
    };
    let mut guest = kernel::load::<T::Kernels>(plan, index, kernel)?;
    if plan.multikernel {
        guest.pieces.push(multikernel::head::<T::Kernels>(plan, index));
    }
    Ok(guest)
}

/// Makes the guests that can take the place of a sandbox' own.
fn standbys<T: Target>(plan: &Plan, index: usize) -> Result<Vec<Guest>, Error> {
    let other = |other: &plan::Alternative| {
        let mut plan = plan.clone();
        plan.sandboxes[index].guest = other.guest.clone();
        guest::<T>(&plan, index)
    };
    plan.sandboxes[index].alternatives.iter().map(other).collect()
}

/// An image while it grows: its bytes, and where things lie.
struct Growing<'a> {
    plan: &'a Plan,
    pages: Pages,
    map: Map,
}

/// Things that the header leads to.
struct Led<'a, H> {
    sandboxes: &'a [Sandbox],
    ops: &'a [ConfigOp],
    launch: &'a [Op],
    boot: Range,
    running: Range,
    own: H,
}

fn image<T: Target>(
    plan: &Plan,
    guests: &[Guest],
    standbys: &[Vec<Guest>],
    boot: &Program,
    monitors: &[Program],
    len: u64,
) -> Result<(Vec<u8>, Map), Error> {
    let mut image = Growing { plan, pages: Pages::new(plan), map: Map::default() };
    let boot = image.boot::<T>(boot)?;
    image.map.traces = traces(plan, guests);
    let pristine = guests.iter().enumerate().map(|(owner, guest)| image.pristine(owner, guest));
    let pristine: Vec<_> = pristine.collect();
    let standbys: Vec<Vec<Standby>> = { standbys.iter().enumerate() }
        .map(|(owner, all)| {
            let put = |guest| Standby { guest, pristine: image.pristine(owner, guest) };
            all.iter().map(put).collect()
        })
        .collect();

    let late = plan.block.is_some();
    let mut ops = if late { pci::running(plan) } else { pci::boot(&plan.machine) };
    ops.extend(T::Devices::timers(plan));
    let steps = ops.len() + T::Devices::steps(&plan.machine);
    let header_len = ops_at::<T>(plan) + steps * size_of::<ConfigOp>();
    image.map.header = image.pages.take(header_len as u64);
    image.part(image.map.header, None, "compiled manifest");

    let (mut sandboxes, mut grants, mut lines) = (Vec::new(), Vec::new(), None);
    let mut running = Range::default();
    let mut launch = cleared(plan)?;
    let baked = guests.iter().zip(&pristine).enumerate();
    if plan.multikernel {
        let reports = 0..guests.len();
        let report = |index| multikernel::report::<T::Kernels>(plan, index);
        image.map.reports = reports.map(report).collect();
        for (index, (guest, pristine)) in baked {
            image.map.texts.push((image.pages.end(), 0));
            let (made, steps) =
                multikernel::bake::<T>(&mut image.pages, plan, index, guest, pristine)?;
            sandboxes.push(made.sandbox);
            image.map.parts.extend(made.parts);
            launch.extend(steps);
        }
    } else {
        let shared;
        (shared, lines) = image.shared::<T>();
        for (index, (guest, pristine)) in baked {
            let (needs, sandbox) = (config::needs(plan, index), &plan.sandboxes[index]);
            let built = |build| &monitors[need::chosen(needs, build == plan::Build::Checked)];
            let program = built(sandbox.monitor);
            let spare = plan.is_taken(index).then(|| built(sandbox.spare));
            image.text(program);
            let standbys = &standbys[index][..];
            let shared = &shared;
            let input = Input { plan, index, guest, pristine, standbys, program, spare, shared };
            let made = monitor::bake::<T>(&mut image.pages, &input, lines)?;
            sandboxes.push(made.sandbox);
            image.map.parts.extend(made.parts);
            image.map.spaces.push(made.spaces);
            grants.extend(made.grants);
            if plan.runs(index) {
                running = made.running;
            }
        }
    }
    let tables = image.pages.end();
    let made = T::Devices::iommu(&mut image.pages, plan, &grants, lines)?;
    ops.extend(made.steps);
    debug_assert_eq!(ops.len(), steps);
    image.map.events = (made.events.start, made.events.len);
    image.part(tables, None, "IOMMU: device table, commands, events");
    let (sandboxes, ops, launch) = (&sandboxes[..], &ops[..], &launch[..]);
    let led = Led { sandboxes, ops, launch, boot, running, own: made.header };
    Ok(image.finish::<T>(led, len))
}

/// Finds the steps of the boot code behind the header and the sandboxes.
fn ops_at<T: Target>(plan: &Plan) -> usize {
    size_of::<T::Header>() + plan.sandboxes.len() * size_of::<Sandbox>()
}

/// Finds the rings of kernels that trace.
fn traces(plan: &Plan, guests: &[Guest]) -> Vec<Option<(u64, Trace)>> {
    let start = |index: usize| plan.sandboxes[index].ram.first().map_or(0, |ram| ram.hpa);
    let trace = |(index, guest): (usize, &Guest)| {
        let trace = guest.trace.clone()?;
        Some((start(index) + u64::from(trace.at), trace))
    };
    guests.iter().enumerate().map(trace).collect()
}

impl Growing<'_> {
    /// Notes a part that ends here.
    fn part(&mut self, start: u64, owner: Option<usize>, what: &'static str) {
        self.map.parts.push(Part::new(start, self.pages.end(), owner, what));
    }

    /// As [`Self::part`], if anything was added since.
    fn part_if_any(&mut self, start: u64, what: &'static str) {
        if self.pages.end() > start {
            self.part(start, None, what);
        }
    }

    /// Puts the boot code first, with the loaders' headers.
    fn boot<T: Target>(&mut self, boot: &Program) -> Result<Range, Error> {
        let (base, linked) = (self.plan.image.start, self.plan.machine.arch.facts().image);
        let (start, mut bytes) = boot.flat();
        if start != linked {
            return Err(Error::Program(format!(
                "the boot code is linked at {start:#x}, not at {linked:#x}"
            )));
        }
        if base != linked {
            (bytes, self.map.fields) = boot.moved("boot code", base, &T::relocated)?;
        }
        let headers = T::headers(boot.entry);
        bytes[..headers.len()].copy_from_slice(&headers);
        self.pages.put(&bytes);
        self.map.boot_bytes = bytes.len() as u64;
        self.part(base, None, "boot code (unused after the launch)");
        Ok(Range { start: base, len: self.pages.end() - base })
    }

    /// Puts a guest as it is at its first instruction.
    fn pristine(&mut self, owner: usize, guest: &Guest) -> Vec<Pristine> {
        let start = self.pages.end();
        let put = |p: &guest::Piece| Pristine {
            pa: self.pages.put(&p.bytes),
            gpa: p.gpa,
            len: (p.bytes.len() as u64).next_multiple_of(8),
        };
        let pristine = guest.pieces.iter().map(put).collect();
        self.part(start, Some(owner), "pristine guest");
        pristine
    }

    /// Sets aside what several monitors see.
    fn shared<T: Target>(&mut self) -> (Shared, Option<<T::Devices as Devices>::Shared>) {
        let mailbox = self.plan.machine.arch.facts().paged(size_of::<Mailbox>() as u64);
        let (mut shared, reports) = self::shared(&mut self.pages, self.plan, mailbox);
        self.map.reports = reports;
        let mailboxes = 0..self.plan.sandboxes.len() as u64;
        self.map.mailboxes = mailboxes.map(|index| shared.mailboxes + index * mailbox).collect();
        self.part(shared.mailboxes, None, "mailboxes, reports");
        let start = self.pages.end();
        let lines = T::Devices::share(&mut self.pages, self.plan);
        self.part_if_any(start, "interrupt lines: lock, remapping table");
        let states = self.pages.end();
        let ends = (0..self.plan.sandboxes.len()).flat_map(|index| self.plan.ends(index));
        for end in ends {
            let region = &self.plan.channels[end.region];
            let page = || crate::end::states(&mut self.pages, self.plan, region);
            shared.states.entry(end.region).or_insert_with(page);
        }
        self.part_if_any(states, "states of channels' peers");
        (shared, lines)
    }

    /// Notes the place and the length of a monitor's text, which comes next.
    fn text(&mut self, program: &Program) {
        let text = program.segments.iter().filter(|s| s.rights.execute);
        let len = text.map(|s| s.size).sum();
        self.map.texts.push((self.pages.end(), len));
        self.map.text_bytes = self.map.text_bytes.max(len);
    }

    /// Puts the launch record, and fills in the header with all that it leads to.
    fn finish<T: Target>(
        mut self,
        led: Led<'_, <T::Devices as Devices>::Header>,
        len: u64,
    ) -> (Vec<u8>, Map) {
        let facts = self.plan.machine.arch.facts();
        let record = self.pages.put(led.launch.as_bytes());
        self.part_if_any(record, "launch record");
        self.map.parts.iter_mut().for_each(|part| part.look(&self.map.spaces, facts.page));
        let (base, at, end) = (self.plan.image.start, self.map.header, self.pages.end());
        let mut header = T::Header::new_zeroed();
        header.magic = MAGIC;
        header.version = VERSION;
        header.sandboxes = led.sandboxes.len() as u32;
        header.image = Range { start: base, len: len.max(end - base) };
        header.sealed = end - at;
        header.boot = led.boot;
        header.config_ops = led.ops.len() as u32;
        header.own = (size_of::<T::Header>() - size_of::<image::Header>()) as u32;
        header.launch = Range { start: record, len: size_of_val(led.launch) as u64 };
        header.monitors = info::monitors(self.plan);
        header.running = led.running;
        let block = self.plan.block.unwrap_or_default();
        header.block = Range { start: block.start, len: block.len };
        T::describe(&mut header, self.plan, led.own);
        let mut pages = self.pages;
        pages.store(at, &header);
        pages.write(at + header.sandboxes_at() as u64, led.sandboxes.as_bytes());
        pages.write(at + ops_at::<T>(self.plan) as u64, led.ops.as_bytes());
        // The boot code finds the header by this word.
        pages.write(base + image::HEADER_WORD, &at.to_le_bytes());
        // Last: the sum is over all that was written behind it.
        let sealed = pages.read(at, header.sealed).chunks_exact(8);
        let word = |w: &[u8]| u64::from_le_bytes(w.try_into().expect("8 bytes"));
        let sum = checksum(sealed.skip(2).map(word));
        pages.write(at + 8, &sum.to_le_bytes());
        (pages.into_bytes(), self.map)
    }
}

/// Channels hold zeros at the launch, not what the firmware or another system left there.
fn cleared(plan: &Plan) -> Result<Vec<Op>, Error> {
    let sees = plan.machine.arch.facts().boot_sees;
    let step = |channel: &plan::Channel| match channel.hpa + channel.len {
        end if end <= sees => Ok(Op { kind: Op::ZERO, dst: channel.hpa, src: 0, len: channel.len }),
        end => Err(Error::Program(format!(
            "channel {} ends at {end:#x}, above {sees:#x}, where the boot code cannot clear it; give large sandboxes \
             `memory.at` above that to make room",
            channel.name
        ))),
    };
    plan.channels.iter().map(step).collect()
}

/// A sandbox's report before it was launched.
pub fn report_head(index: usize, sandbox: &plan::Sandbox) -> Report {
    let mut head = Report::new_zeroed();
    head.magic = report::MAGIC;
    head.version = report::VERSION;
    head.sandbox = index as u32;
    head.cores = sandbox.cores.len() as u32;
    head
}

/// Sets aside what several monitors see.
fn shared(pages: &mut Pages, plan: &Plan, mailbox: u64) -> (Shared, Vec<u64>) {
    let facts = plan.machine.arch.facts();
    let mailboxes = pages.take(plan.sandboxes.len() as u64 * mailbox);
    let mut reports = Vec::new();
    for (index, sandbox) in plan.sandboxes.iter().enumerate() {
        let at = pages.take(facts.paged(report::size(sandbox.cores.len())));
        pages.store(at, &report_head(index, sandbox));
        reports.push(at);
    }
    let shared = Shared { mailboxes, reports: reports.clone(), ..Shared::default() };
    (shared, reports)
}
