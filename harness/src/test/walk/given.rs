//! What the manifest's plan gives, in addresses and rights, from the plan, the
//! programs' files and the book (docs/memory-layout.md): nothing of the builder's
//! is asked but where in the image its parts lie.

use bulkhead_image::{Baked, Part};
use bulkhead_plan::Guest;
use std::path::Path;

pub const PAGE: u64 = 4096;
const INFO: u64 = 0xD000_0000;
const REPORTS: u64 = 0xD100_0000;
const REPORT_STRIDE: u64 = 0x4_0000;
const TRAMPOLINE: u64 = 0x8000;
const IMAGE: u64 = 0x100_0000;
const GUEST_VA: u64 = 0xFFFF_9000_0000_0000;
const PRISTINE_VA: u64 = 0xFFFF_A000_0000_0000;
const CONFIG_VA: u64 = 0xFFFF_FFFF_8010_0000;
const INFO_VA: u64 = 0xFFFF_FFFF_8018_0000;
const IDT_VA: u64 = 0xFFFF_FFFF_8020_0000;
const REPORT_VA: u64 = 0xFFFF_FFFF_8030_0000;
const MAILBOX_VA: u64 = 0xFFFF_FFFF_8040_0000;
const CORES_VA: u64 = 0xFFFF_FFFF_8050_0000;
const CORE_STRIDE: u64 = 0x1_0000;
const STACK: u64 = 0x2000;
const STACK_SIZE: u64 = 0x2000;
const VMCB: u64 = 0x8000;
const CORE_REPORT: u64 = 0xA000;
const CORE_REPORT_SIZE: u64 = 0x2000;

/// A range that somebody may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub address: u64,
    pub frame: u64,
    pub len: u64,
    pub write: bool,
    pub execute: bool,
}

const R: (bool, bool) = (false, false);
const RW: (bool, bool) = (true, false);
const RX: (bool, bool) = (false, true);
const RWX: (bool, bool) = (true, true);

fn given(address: u64, frame: u64, len: u64, (write, execute): (bool, bool)) -> Given {
    Given { address, frame, len, write, execute }
}

/// Bytes of a report: a page, and two for each core.
pub fn report_len(baked: &Baked, sandbox: usize) -> u64 {
    (1 + 2 * baked.plan.sandboxes[sandbox].cores.len() as u64) * PAGE
}

/// A part of the image, by its owner and the beginning of its name.
pub fn part<'a>(baked: &'a Baked, owner: Option<usize>, what: &str) -> &'a Part {
    let found = baked.map.parts.iter().find(|p| p.owner == owner && p.what.starts_with(what));
    found.unwrap_or_else(|| panic!("the image has no part {what:?} of {owner:?}"))
}

/// Where a core's VMCB lies.
pub fn vmcb(baked: &Baked, sandbox: usize, core: usize) -> u64 {
    let cores = baked.plan.sandboxes[sandbox].cores.len() as u64;
    part(baked, Some(sandbox), "stacks").start + cores * STACK_SIZE + core as u64 * PAGE
}

/// Where a core's host state is saved.
pub fn host_save(baked: &Baked, sandbox: usize, core: usize) -> u64 {
    part(baked, Some(sandbox), "host save").start + core as u64 * PAGE
}

/// Loadable segments of a 64-bit ELF file: address, bytes in memory, rights.
fn segments(file: &Path) -> Vec<(u64, u64, (bool, bool))> {
    let bytes = std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let int = |at: usize, len: usize| {
        bytes[at..at + len].iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b))
    };
    let (table, size, count) = (int(32, 8), int(54, 2), int(56, 2));
    let header = |n: u64| (table + n * size) as usize;
    let loads = (0..count).map(header).filter(|&h| int(h, 4) == 1 && int(h + 40, 8) > 0);
    loads
        .map(|h| (int(h + 16, 8), int(h + 40, 8), (int(h + 4, 4) & 2 != 0, int(h + 4, 4) & 1 != 0)))
        .collect()
}

/// What a sandbox's guest may reach.
pub fn to_guest(baked: &Baked, index: usize) -> Vec<Given> {
    let plan = &baked.plan;
    let sandbox = &plan.sandboxes[index];
    let mut all = Vec::new();
    for ram in &sandbox.ram {
        all.extend(match &sandbox.guest {
            Guest::Bare { program, enforce_segments: true, .. } => {
                by_segments(program, ram.gpa, ram.hpa, ram.len)
            }
            _ => vec![given(ram.gpa, ram.hpa, ram.len, RWX)],
        });
    }
    all.push(given(INFO, part(baked, Some(index), "info page").start, PAGE, R));
    for &seen in &sandbox.observe {
        let at = REPORTS + seen as u64 * REPORT_STRIDE;
        all.push(given(at, baked.map.reports[seen], report_len(baked, seen), R));
    }
    for channel in &plan.channels {
        let rights = if channel.from == index { RW } else { R };
        if channel.from == index || channel.to.contains(&index) {
            all.push(given(channel.gpa, channel.hpa, channel.len, rights));
        }
    }
    merged(all)
}

/// A page has the rights of all segments that it holds a byte of; RAM without a
/// segment can be written.
fn by_segments(program: &Path, gpa: u64, hpa: u64, len: u64) -> Vec<Given> {
    let segments = segments(program);
    let rights = |page: u64| {
        let on_it = segments.iter().filter(|s| s.0 < page + PAGE && page < s.0 + s.1);
        on_it.map(|s| s.2).reduce(|a, b| (a.0 | b.0, a.1 | b.1)).unwrap_or(RW)
    };
    let pages = (0..len).step_by(PAGE as usize);
    pages.map(|at| given(gpa + at, hpa + at, PAGE, rights(gpa + at))).collect()
}

/// What a sandbox's monitor may reach.
pub fn to_monitor(baked: &Baked, index: usize, program: &Path) -> Vec<Given> {
    let own = |what| part(baked, Some(index), what);
    let sandbox = &baked.plan.sandboxes[index];
    let mut all = vec![given(TRAMPOLINE, TRAMPOLINE, PAGE, RX)];
    let mut frame = own("monitor text").start;
    for (address, size, rights) in segments(program) {
        let len = size.next_multiple_of(PAGE);
        all.push(given(address, frame, len, rights));
        frame += len;
    }
    let config = own("configuration");
    all.push(given(CONFIG_VA, config.start, config.len, R));
    all.push(given(INFO_VA, own("info page").start, PAGE, R));
    all.push(given(IDT_VA, own("info page").start + PAGE, PAGE, R));
    let report = baked.map.reports[index];
    all.push(given(REPORT_VA, report, PAGE, RW));
    let mailboxes = part(baked, None, "mailboxes").start;
    for other in 0..baked.plan.sandboxes.len() {
        let at = other as u64 * PAGE;
        let rights = if other == index { RW } else { R };
        all.push(given(MAILBOX_VA + at, mailboxes + at, PAGE, rights));
    }
    for core in 0..sandbox.cores.len() {
        let block = CORES_VA + core as u64 * CORE_STRIDE;
        let stack = own("stacks").start + core as u64 * STACK_SIZE;
        all.push(given(block + STACK, stack, STACK_SIZE, RW));
        all.push(given(block + VMCB, vmcb(baked, index, core), PAGE, RW));
        let part = report + PAGE + core as u64 * CORE_REPORT_SIZE;
        all.push(given(block + CORE_REPORT, part, CORE_REPORT_SIZE, RW));
    }
    for ram in &sandbox.ram {
        all.push(given(GUEST_VA + ram.gpa, ram.hpa, ram.len, RW));
    }
    let pristine = own("pristine");
    all.push(given(PRISTINE_VA + (pristine.start - IMAGE), pristine.start, pristine.len, R));
    merged(all)
}

/// Neighbours with the same rights as one range.
fn merged(mut all: Vec<Given>) -> Vec<Given> {
    all.sort_by_key(|g| g.address);
    let mut out: Vec<Given> = Vec::new();
    for g in all {
        match out.last_mut() {
            Some(l)
                if l.address + l.len == g.address
                    && l.frame + l.len == g.frame
                    && (l.write, l.execute) == (g.write, g.execute) =>
            {
                l.len += g.len
            }
            _ => out.push(g),
        }
    }
    out
}

/// Whose a frame is, in words.
pub fn owner(baked: &Baked, frame: u64) -> String {
    let plan = &baked.plan;
    let name = |i: usize| plan.sandboxes[i].name.as_str();
    for sandbox in &plan.sandboxes {
        if sandbox.ram.iter().any(|r| (r.hpa..r.hpa + r.len).contains(&frame)) {
            return format!("RAM of {}", sandbox.name);
        }
    }
    if let Some(c) = plan.channels.iter().find(|c| (c.hpa..c.hpa + c.len).contains(&frame)) {
        return format!("channel {}", c.name);
    }
    if let Some(p) = baked.map.parts.iter().find(|p| (p.start..p.start + p.len).contains(&frame)) {
        return format!("{} of {}", p.what, p.owner.map_or("the machine", name));
    }
    if frame == TRAMPOLINE {
        return "start-up code".into();
    }
    let reserved = plan.machine.reserved.iter().find(|(_, span)| span.contains(frame));
    reserved.map_or("nobody's".into(), |(what, _)| what.clone())
}
