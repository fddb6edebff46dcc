//! Puts the image together.

use crate::devices::Devices;
use crate::elf::Program;
use crate::guest::{self, Guest, Trace};
use crate::monitor::{self, Input, Pristine};
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
}

/// A baked image.
pub struct Baked {
    /// The file's contents, to be loaded at [`Facts::image`](plan::Facts::image).
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
        let (bytes, map) = image::<T>(&plan, &guests, &boot, &monitors, len)?;
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

fn image<T: Target>(
    plan: &Plan,
    guests: &[Guest],
    boot: &Program,
    monitors: &[Program],
    len: u64,
) -> Result<(Vec<u8>, Map), Error> {
    let facts = plan.machine.arch.facts();
    let mut pages = Pages::new(facts);
    let mut map = Map::default();
    let part = |map: &mut Map, pages: &Pages, start, owner, what| {
        map.parts.push(Part::new(start, pages.end(), owner, what));
    };

    let (boot_start, mut boot_bytes) = boot.flat();
    let base = facts.image;
    if boot_start != base {
        return Err(Error::Program(format!(
            "the boot code is linked at {boot_start:#x}, not at {base:#x}"
        )));
    }
    let headers = T::headers(boot.entry);
    boot_bytes[..headers.len()].copy_from_slice(&headers);
    pages.put(&boot_bytes);
    map.boot_bytes = boot_bytes.len() as u64;
    part(&mut map, &pages, base, None, "boot code (unused after the launch)");
    let boot_len = pages.end() - base;

    let start = |index: usize| plan.sandboxes[index].ram.first().map_or(0, |ram| ram.hpa);
    map.traces = { guests.iter().enumerate() }
        .map(|(n, guest)| {
            Some((start(n) + u64::from(guest.trace.as_ref()?.at), guest.trace.clone()?))
        })
        .collect();
    let mut pristine = Vec::new();
    for (owner, guest) in guests.iter().enumerate() {
        let start = pages.end();
        let put = |p: &guest::Piece| Pristine {
            pa: pages.put(&p.bytes),
            gpa: p.gpa,
            len: (p.bytes.len() as u64).next_multiple_of(8),
        };
        pristine.push(guest.pieces.iter().map(put).collect::<Vec<_>>());
        part(&mut map, &pages, start, Some(owner), "pristine guest");
    }

    let mut ops = pci::boot(&plan.machine);
    let (steps_of_pci, steps) = (ops.len(), T::Devices::steps(&plan.machine));
    let ops_at = size_of::<T::Header>() + plan.sandboxes.len() * size_of::<Sandbox>();
    let header_len = ops_at + (steps_of_pci + steps) * size_of::<ConfigOp>();
    map.header = pages.take(header_len as u64);
    let header = map.header;
    part(&mut map, &pages, header, None, "compiled manifest");
    let (mut shared, mut lines) = (Shared::default(), None);
    if plan.multikernel {
        map.reports =
            (0..guests.len()).map(|index| multikernel::report::<T::Kernels>(plan, index)).collect();
    } else {
        (shared, map.reports) = self::shared(&mut pages, plan);
        part(&mut map, &pages, shared.mailboxes, None, "mailboxes, reports");
        let start = pages.end();
        lines = T::Devices::share(&mut pages, plan);
        if pages.end() > start {
            part(&mut map, &pages, start, None, "interrupt lines: lock, remapping table");
        }
        let states = pages.end();
        let ends = (0..plan.sandboxes.len()).flat_map(|index| plan.ends(index));
        for end in ends {
            let region = &plan.channels[end.region];
            let page = || crate::end::states(&mut pages, plan, region);
            shared.states.entry(end.region).or_insert_with(page);
        }
        if pages.end() > states {
            part(&mut map, &pages, states, None, "states of channels' peers");
        }
    }

    let mut sandboxes = Vec::new();
    let mut grants = Vec::new();
    let mut launch = cleared(plan)?;
    for (index, guest) in guests.iter().enumerate() {
        if plan.multikernel {
            map.texts.push((pages.end(), 0));
            let (made, steps) =
                multikernel::bake::<T>(&mut pages, plan, index, guest, &pristine[index])?;
            sandboxes.push(made.sandbox);
            map.parts.extend(made.parts);
            launch.extend(steps);
            continue;
        }
        let program = &monitors[need::smallest(config::needs(plan, index))];
        let text = program.segments.iter().filter(|s| s.rights.execute);
        let text_len = text.map(|s| s.size).sum();
        map.texts.push((pages.end(), text_len));
        map.text_bytes = map.text_bytes.max(text_len);
        let input =
            Input { plan, index, guest, pristine: &pristine[index], program, shared: &shared };
        let made = monitor::bake::<T>(&mut pages, &input, lines)?;
        sandboxes.push(made.sandbox);
        map.parts.extend(made.parts);
        map.spaces.push(made.spaces);
        grants.extend(made.grants);
    }
    let tables = pages.end();
    let made = T::Devices::iommu(&mut pages, plan, &grants, lines)?;
    ops.extend(made.steps);
    debug_assert_eq!(ops.len(), steps_of_pci + steps);
    map.events = (made.events.start, made.events.len);
    part(&mut map, &pages, tables, None, "IOMMU: device table, commands, events");

    let record = pages.put(launch.as_bytes());
    if !launch.is_empty() {
        part(&mut map, &pages, record, None, "launch record");
    }
    map.parts.iter_mut().for_each(|part| part.look(&map.spaces, facts.page));
    let end = pages.end();
    let mut header = T::Header::new_zeroed();
    header.magic = MAGIC;
    header.version = VERSION;
    header.sandboxes = sandboxes.len() as u32;
    header.image = Range { start: base, len: len.max(end - base) };
    header.sealed = end - map.header;
    header.boot = Range { start: base, len: boot_len };
    header.config_ops = ops.len() as u32;
    header.own = (size_of::<T::Header>() - size_of::<image::Header>()) as u32;
    header.launch = Range { start: record, len: size_of_val(&launch[..]) as u64 };
    header.monitors = info::monitors(plan);
    T::describe(&mut header, plan, made.header);
    pages.store(map.header, &header);
    pages.write(map.header + header.sandboxes_at() as u64, sandboxes.as_bytes());
    pages.write(map.header + ops_at as u64, ops.as_bytes());
    pages.write(base + 256, &map.header.to_le_bytes());
    let sealed = pages.read(map.header, header.sealed).chunks_exact(8);
    let sum = checksum(sealed.skip(2).map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes"))));
    pages.write(map.header + 8, &sum.to_le_bytes());
    Ok((pages.into_bytes(), map))
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
fn shared(pages: &mut Pages, plan: &Plan) -> (Shared, Vec<u64>) {
    let facts = plan.machine.arch.facts();
    let mailbox = facts.paged(size_of::<Mailbox>() as u64);
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
