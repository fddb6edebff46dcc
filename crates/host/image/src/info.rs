//! Information pages: what a guest is told of its sandbox, of its windows on others' memory, and of its rights over
//! others (`docs/shared-pages.md`). The rights themselves stand in the monitor's configuration.

use bulkhead_channel::layout::Shape;
use bulkhead_layout::image::NO_MONITORS;
use bulkhead_layout::info::{self, Info, Window};
use bulkhead_layout::report;
use bulkhead_plan::{self as plan, Plan};
use zerocopy::FromZeros;

/// Kind of a system's monitors.
pub fn monitors(plan: &Plan) -> u64 {
    if plan.multikernel { NO_MONITORS } else { plan.machine.arch.facts().monitors }
}

/// Makes the page of a sandbox, by index, without its lines.
pub fn page(plan: &Plan, index: usize, args: &str) -> Info {
    let (sandbox, facts) = (&plan.sandboxes[index], plan.machine.arch.facts());
    let mut info = Info::new_zeroed();
    info.magic = info::MAGIC;
    info.version = info::VERSION;
    info.sandbox = index as u32;
    info.name = name(&sandbox.name);
    info.memory = sandbox.ram.iter().map(|r| r.len).sum();
    info.cores = sandbox.cores.len() as u32;
    info.core_ids.iter_mut().zip(&sandbox.core_ids).for_each(|(to, from)| *to = *from);
    let args = &args.as_bytes()[..args.len().min(info.args.len() - 1)];
    info.args[..args.len()].copy_from_slice(args);
    info.sandboxes = plan.sandboxes.len() as u32;
    let set = |rights: &[plan::Right]| rights.iter().fold(0, |set, right| set | 1 << right.sandbox);
    info.rights.iter_mut().zip(&sandbox.control).for_each(|(to, rights)| *to = set(rights));
    info.control = info.rights.iter().fold(0, |all, set| all | set);
    if plan.runs(index) {
        let released = plan.sandboxes.iter().enumerate().filter(|(_, other)| other.releases);
        info.rights[info::RELEASED] = released.fold(0, |set, (n, _)| set | 1 << n);
    }
    info.image = plan.image.len;
    info.monitors = monitors(plan);
    let alive = sandbox.watch.and_then(|watch| watch.alive);
    info.alive = alive.map_or(0, |alive| alive.every / 1_000);
    info.snapshot = sandbox.snapshot * bulkhead_layout::PAGE;
    info.names.iter_mut().zip(&plan.sandboxes).for_each(|(to, s)| *to = name(&s.name));
    let seen = |c: &&plan::Channel| c.part != plan::Part::Rx && (c.writes(index) || c.reads(index));
    let bell = |(n, channel): (usize, &plan::Channel)| {
        plan.bell(n).map_or(0, |bell| bell.told(channel.writes(index)))
    };
    let bells = plan.channels.iter().enumerate().filter(|(_, c)| seen(c)).map(bell);
    info.bells.iter_mut().zip(bells).for_each(|(to, from)| *to = from);
    let channels = plan.channels.iter().filter(seen).map(|c| Window {
        name: name(&c.name),
        gpa: c.gpa,
        size: c.len,
        writable: u32::from(c.writes(index)),
        kind: 0,
        messages: match c.part {
            plan::Part::Program => info::PROGRAM,
            part => part.shape().map_or(0, |shape| shape.kind() as u32),
        },
        message: match (c.part, &c.to[..]) {
            (plan::Part::Program, [to, ..]) => *to as u32,
            (part, _) => part.shape().map_or(0, Shape::message),
        },
    });
    let reports = sandbox.observe.iter().map(|&o| Window {
        name: name(&plan.sandboxes[o].name),
        gpa: facts.guest.reports + o as u64 * facts.guest.report_stride,
        size: facts.paged(report::size(plan.sandboxes[o].cores.len())),
        writable: 0,
        kind: 1,
        messages: 0,
        message: 0,
    });
    let links = plan.links.iter().enumerate().filter(|(_, link)| link.concerns(index));
    let links = links.map(|(number, link)| Window {
        name: name(&plan.sandboxes[link.owner].name),
        gpa: link.gpa,
        size: link.sent,
        writable: u32::from(link.owner == index),
        kind: info::LINK,
        messages: link.owner as u32,
        message: number as u32,
    });
    let roles = plan.roles_of(index).map(|(number, role)| Window {
        name: name(&role.name),
        gpa: facts.guest.roles + number as u64 * 8,
        size: 8,
        writable: 0,
        kind: info::ROLE,
        messages: 0,
        message: number as u32,
    });
    let windows: Vec<_> =
        channels.chain(reports).chain(links).chain(roles).take(info::MAX_CHANNELS).collect();
    info.windows = windows.len() as u32;
    info.window[..windows.len()].copy_from_slice(&windows);
    info
}

fn name(name: &str) -> [u8; info::NAME] {
    let mut bytes = [0; info::NAME];
    let len = name.len().min(info::NAME - 1);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    bytes
}
