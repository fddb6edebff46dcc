//! A monitor's page tables against the book (docs/memory-layout.md, "A monitor's
//! virtual addresses"). Where in the image its parts lie is nobody's promise: they
//! are in the image, each in one run, and no other party reaches them.

use crate::arch::Places;
use crate::check::Context;
use crate::claim::{Claim, Function, Range, Sandbox, Segment};
use crate::given::{self, overlaps, pages};
use crate::memory::reads;
use crate::paging::{Leaf, Regime};
use crate::report::letters;
use std::collections::BTreeMap;

const GUEST: u64 = 0xFFFF_9000_0000_0000;
const PRISTINE: u64 = 0xFFFF_A000_0000_0000;
const CONFIG: u64 = 0xFFFF_FFFF_8010_0000;
const INFO: u64 = 0xFFFF_FFFF_8018_0000;
/// Only with a watchdog that reads them.
const PROGRESS: u64 = 0xFFFF_FFFF_8038_0000;
/// Snapshots of the guest's: a page with what the monitor notes, then two buffers.
const SNAPSHOTS: u64 = 0xFFFF_FFFF_8080_0000;
/// Page of a debugger.
const DEBUG: u64 = 0xFFFF_FFFF_803A_0000;
/// The page that shows the guest its roles.
const ROLES: u64 = 0xFFFF_FFFF_8039_0000;
/// The own guest's table entries for memory of roles, a page for each.
/// Most roles of a machine.
const ROLES_OF_MACHINE: u64 = 8;
const ROLE_TABLES: u64 = 0xFFFF_FFFF_80B0_0000;
const VECTORS: u64 = 0xFFFF_FFFF_8020_0000;
const REPORT: u64 = 0xFFFF_FFFF_8030_0000;
const MAILBOX: u64 = 0xFFFF_FFFF_8040_0000;
/// The lock of the lines, then what the guest wrote to its own.
const LINES: u64 = 0xFFFF_FFFF_8070_0000;
/// The own guest's table entries for memory of channels made at run time, a page for each.
const LINK_TABLES: u64 = 0xFFFF_FFFF_80A0_0000;
const CORES: u64 = 0xFFFF_FFFF_8050_0000;
/// Parts of a core, in pages.
const CORE_STRIDE: u64 = 16;
const STACK: u64 = 2;
const STACK_LEN: u64 = 2;
const CONTROL: u64 = 8;
const OWN_PAGE: u64 = 9;
const CORE_REPORT: u64 = 10;
const CORE_REPORT_LEN: u64 = 2;

/// Registers and pages of devices: + physical address.
const DEVICES: u64 = 0xFFFF_B000_0000_0000;
const DEVICES_END: u64 = 0xFFFF_C000_0000_0000;
/// Values that a guest wrote to registers that it does not reach.
const SHADOW: u64 = 0xFFFF_FFFF_8060_0000;
const SHADOW_MOST: u64 = 0x10_0000;

/// A channel's end as a function of PCI: its configuration, its registers, the peers' states.
const FUNCTIONS: u64 = 0xFFFF_FFFF_8090_0000;
const FUNCTION_STRIDE: u64 = 0x4000;

/// A stretch of a monitor's addresses.
struct Window {
    at: u64,
    /// At most, and at least: both whole pages.
    len: u64,
    least: u64,
    rights: (bool, bool),
    what: String,
    /// Where it leads; `None`: to one run somewhere in the image.
    frame: Option<u64>,
}

/// Memory that a monitor's tables lead to, part by part.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Frames of the image and what they are.
    pub frames: BTreeMap<u64, String>,
    /// The information page.
    pub info: Option<u64>,
    /// The progress words.
    pub progress: Option<u64>,
    /// The words of roles.
    pub roles: Option<u64>,
    /// The snapshots.
    pub snapshots: Vec<u64>,
    /// The report: head, then cores.
    pub report: Vec<u64>,
    /// Control blocks by core.
    pub blocks: Vec<Option<u64>>,
    /// Mailboxes by sandbox.
    pub mailboxes: Vec<u64>,
    /// The lock of the lines.
    pub lock: Option<u64>,
    /// Frames of the ends of channels: registers, states of the peers.
    pub ends: Vec<[u64; 2]>,
}

const R: (bool, bool) = (false, false);
const RW: (bool, bool) = (true, false);
const RX: (bool, bool) = (false, true);

/// Returns the pages of a guest's snapshots.
const fn snapshots(sandbox: &Sandbox) -> u64 {
    1 + 2 * sandbox.snapshot
}

/// Finds the program of a monitor by the addresses that its tables map: the first one, or the spare one.
fn program<'a>(claim: &'a Claim, i: usize, regime: &Regime) -> &'a [Segment] {
    let Sandbox { monitor, spare, .. } = &claim.sandboxes[i];
    let leads = |program: &&Vec<Segment>| {
        program.iter().all(|s| regime.leaf(s.address).is_some_and(|l| l.execute == s.execute))
    };
    let spare = spare.as_ref().filter(leads);
    if leads(&monitor) { monitor } else { spare.unwrap_or(monitor) }
}

fn windows(claim: &Claim, i: usize, program: &[Segment]) -> Vec<Window> {
    let window = |at, len, rights, what: &str| Window {
        at,
        len,
        least: len,
        rights,
        what: what.into(),
        frame: None,
    };
    let sandbox = &claim.sandboxes[i];
    let places = claim.arch.places();
    let page = places.page;
    let mut all = Vec::new();
    if let Some(at) = places.start_code {
        all.push(Window { frame: Some(at), ..window(at, page, RX, "start-up code") });
    }
    for s in program {
        let what = if s.execute { "text" } else { "constants" };
        all.push(window(s.address, s.len.next_multiple_of(page), (s.write, s.execute), what));
    }
    all.push(Window { least: page, ..window(CONFIG, INFO - CONFIG, R, "configuration") });
    all.push(window(INFO, page, R, "information page"));
    if sandbox.alive {
        all.push(window(PROGRESS, page, R, "progress words"));
    }
    if claim.holds(i) {
        all.push(window(ROLES, page, RW, "roles"));
    }
    for (n, _) in claim.roles.iter().enumerate().filter(|(n, _)| claim.has_memory(i, *n)) {
        let what = format!("table entries of role {n}");
        all.push(window(ROLE_TABLES + n as u64 * page, page, RW, &what));
    }
    for n in 0..crate::role::windows(claim, i).len() as u64 {
        let at = ROLE_TABLES + (ROLES_OF_MACHINE + n) * page;
        all.push(window(at, page, RW, "table entries of a role's functions"));
    }
    if sandbox.snapshot > 0 {
        all.push(window(SNAPSHOTS, snapshots(sandbox) * page, RW, "snapshots"));
    }
    if sandbox.debug {
        all.push(window(DEBUG, page, RW, "debugger's page"));
    }
    if places.vectors {
        all.push(window(VECTORS, page, R, "interrupt descriptor table"));
    }
    all.push(window(REPORT, page, RW, "report"));
    for other in 0..claim.sandboxes.len() {
        let rights = if other == i { RW } else { R };
        let what = format!("mailbox of {}", claim.sandboxes[other].name);
        all.push(window(MAILBOX + other as u64 * page, page, rights, &what));
    }
    if places.lock && !sandbox.lines.is_empty() {
        all.push(window(LINES, page, RW, "lock of the lines"));
    }
    if places.lock && (!sandbox.lines.is_empty() || sandbox.pins) {
        all.push(window(LINES + page, page, RW, "interrupt lines as written"));
    }
    if claim.arch.commands(claim, i).is_some() {
        all.push(window(LINES + 2 * page, 2 * page, RW, "commands to the IOMMU"));
    }
    for n in 0..sandbox.ends.len() as u64 {
        let at = FUNCTIONS + n * FUNCTION_STRIDE;
        all.push(window(at, page, RW, "configuration of a channel's end"));
        all.push(window(at + page, page, RW, "registers of a channel's end"));
        all.push(window(at + 2 * page, page, RW, "states of a channel's peers"));
    }
    for core in 0..sandbox.cores.len() {
        let at = |pages: u64| CORES + (core as u64 * CORE_STRIDE + pages) * page;
        all.push(window(at(STACK), STACK_LEN * page, RW, "stack"));
        all.push(window(at(CONTROL), page, RW, "control block"));
        if let Some(what) = places.own_page {
            all.push(window(at(OWN_PAGE), page, RW, what));
        }
        all.push(window(at(CORE_REPORT), CORE_REPORT_LEN * page, RW, "report"));
    }
    for ram in &sandbox.ram {
        all.push(Window { frame: Some(ram.hpa), ..window(GUEST + ram.gpa, ram.len, RW, "RAM") });
    }
    if sandbox.running {
        let rights = if sandbox.again { RW } else { R };
        let reached = |ram: Range| Window {
            frame: Some(ram.start),
            ..window(GUEST + ram.start, ram.len, rights, "memory of the Linux")
        };
        all.extend(given::memory(claim).into_iter().map(reached));
    }
    for c in &claim.channels {
        let header = |rights| {
            let what = format!("header of {}", c.name);
            Window { frame: Some(c.hpa), ..window(GUEST + c.gpa, page, rights, &what) }
        };
        if c.program && claim.reads(c, i) {
            let what = format!("program in {}", c.name);
            let at = window(GUEST + c.gpa, c.len, R, &what);
            all.push(Window { frame: Some(c.hpa), ..at });
        } else if c.header && claim.writes(c, i) {
            all.push(header(RW));
        } else if c.rung && claim.reads(c, i) {
            all.push(header(R));
        }
    }
    for (n, link) in claim.links.iter().enumerate().filter(|(_, link)| link.concerns(i)) {
        let what = format!("table entries of link {n}");
        all.push(window(LINK_TABLES + n as u64 * page, page, RW, &what));
        if link.owner == i {
            let what = format!("link {n}");
            let at = window(GUEST + link.gpa, link.len, RW, &what);
            all.push(Window { frame: Some(link.hpa), ..at });
        }
    }
    all.push(Window { least: 0, ..window(SHADOW, SHADOW_MOST, RW, "registers' shadows") });
    let pristine = window(PRISTINE, claim.image.len, R, "pristine guest");
    all.push(Window { least: 0, frame: Some(claim.image.start), ..pristine });
    all.sort_by_key(|w| w.at);
    all
}

/// The window in which a page lies, if it leads to where that window should.
fn window_of(windows: &[Window], regime: &Regime, leaf: &Leaf) -> Option<usize> {
    let n = windows.partition_point(|w| w.at <= leaf.address).checked_sub(1)?;
    let w = &windows[n];
    let offset = leaf.address - w.at;
    let first = w.frame.or_else(|| regime.leaf(w.at).map(|l| l.frame))?;
    let fits = offset.checked_add(leaf.size).is_some_and(|end| end <= w.len);
    (fits && first + offset == leaf.frame).then_some(n)
}

/// Tells if a page is where the book puts devices' pages.
fn is_device(leaf: &Leaf) -> bool {
    (DEVICES..DEVICES_END).contains(&leaf.address) && leaf.address - DEVICES == leaf.frame
}

/// A page of the image that stands for the configuration of a function 0 which the
/// sandbox has not: read only.
fn is_placeholder(claim: &Claim, leaf: &Leaf) -> bool {
    is_device(leaf)
        && leaf.size == claim.arch.places().page
        && !leaf.write
        && claim.image.contains(leaf.frame)
}

/// Finds a monitor's sandbox: its tables show that sandbox's RAM to it. That of a running Linux sees no sandbox' RAM,
/// and writes that Linux' mailbox.
pub fn serves(claim: &Claim, regime: &Regime) -> Option<usize> {
    let from = regime.leaves.partition_point(|l| l.address < GUEST);
    let leaf = regime.leaves.get(from).filter(|l| l.address < PRISTINE);
    let page = claim.arch.places().page;
    let writes = |i: &usize| regime.leaf(MAILBOX + *i as u64 * page).is_some_and(|leaf| leaf.write);
    leaf.and_then(|leaf| claim.in_ram_of(leaf.frame)).or_else(|| claim.running().filter(writes))
}

/// Returns the number of the core with this stack.
pub fn core_of(page: u64, sp: u64) -> Option<usize> {
    // An empty stack ends where its pages end.
    let offset = sp.checked_sub(8)?.checked_sub(CORES)?;
    let inside = offset / page % CORE_STRIDE;
    let core = usize::try_from(offset / page / CORE_STRIDE).ok()?;
    (STACK..STACK + STACK_LEN).contains(&inside).then_some(core)
}

/// Takes a monitor's tables apart.
pub fn parts(claim: &Claim, i: usize, regime: &Regime) -> Parts {
    let windows = windows(claim, i, program(claim, i, regime));
    let &Places { page, lock, .. } = claim.arch.places();
    let mut parts = Parts::default();
    for leaf in &regime.leaves {
        let Some(n) = window_of(&windows, regime, leaf) else {
            if is_placeholder(claim, leaf) {
                parts.frames.insert(leaf.frame, "placeholder function".into());
            }
            continue;
        };
        for frame in (leaf.frame..leaf.frame + leaf.size).step_by(page as usize) {
            if claim.image.contains(frame) {
                parts.frames.insert(frame, windows[n].what.clone());
            }
        }
    }
    let frame = |at: u64| regime.leaf(at).map(|l| l.frame + (at - l.address));
    parts.info = frame(INFO);
    parts.progress = frame(PROGRESS).filter(|_| claim.sandboxes[i].alive);
    parts.roles = frame(ROLES).filter(|_| claim.holds(i));
    if claim.sandboxes[i].snapshot > 0 {
        let pages = 0..snapshots(&claim.sandboxes[i]);
        parts.snapshots = pages.filter_map(|n| frame(SNAPSHOTS + n * page)).collect();
    }
    parts.report.extend(frame(REPORT));
    for core in 0..claim.sandboxes[i].cores.len() {
        let of = |pages: u64| frame(CORES + (core as u64 * CORE_STRIDE + pages) * page);
        parts.blocks.push(of(CONTROL));
        parts.report.extend((0..CORE_REPORT_LEN).filter_map(|n| of(CORE_REPORT + n)));
    }
    let has_lines = lock && !claim.sandboxes[i].lines.is_empty();
    parts.ends = (0..claim.sandboxes[i].ends.len() as u64)
        .map(|n| FUNCTIONS + n * FUNCTION_STRIDE)
        .filter_map(|at| Some([frame(at + page)?, frame(at + 2 * page)?]))
        .collect();
    parts.lock = frame(LINES).filter(|_| has_lines);
    parts.mailboxes =
        (0..claim.sandboxes.len() as u64).filter_map(|n| frame(MAILBOX + n * page)).collect();
    parts
}

impl Context<'_> {
    /// Checks the reach of a monitor.
    pub(crate) fn monitor(&mut self, i: usize, regime: &Regime) {
        let who = format!("{}'s monitor", self.name(i));
        let place = self.claim.sandboxes[i].place.clone();
        let windows = windows(self.claim, i, program(self.claim, i, regime));
        let mut covered = vec![0; windows.len()];
        for leaf in &regime.leaves {
            let (at, frame) = (leaf.address, leaf.frame);
            let n = window_of(&windows, regime, leaf).filter(|&n| {
                let w = &windows[n];
                // One run, and in the image where the book says no other place.
                let in_image = self.claim.image.contains(frame);
                let anywhere = w.frame.is_none().then_some(in_image && at == w.at + covered[n]);
                let pristine = w.frame == Some(self.claim.image.start);
                anywhere.unwrap_or(!pristine || in_image)
            });
            let device = if n.is_none() { self.device(i, leaf) } else { None };
            if !(device.is_some() || leaf.user) && leaf.odd_caching() {
                let message = format!("{who}'s entry {:#x} for {at:#x}", leaf.entry);
                self.find("encoding", &place, Some(frame), message, "write-back");
            }
            let may = match (n, device) {
                (Some(n), _) => {
                    covered[n] += leaf.size;
                    windows[n].rights
                }
                (None, Some(rights)) => rights,
                (None, None) => {
                    let whose = self.owner(frame);
                    let message = format!("{who} reaches {frame:#x} ({whose}) at {at:#x}");
                    self.find(
                        "monitor-map",
                        &place,
                        Some(frame),
                        message,
                        format!("nothing at {at:#x}"),
                    );
                    continue;
                }
            };
            if (leaf.write, leaf.execute) != may {
                let (has, may) = (letters(leaf.write, leaf.execute), letters(may.0, may.1));
                let what = n.map_or("device", |n| &windows[n].what);
                let message = format!("{who} has {has} at {at:#x} ({what}), not {may}");
                self.find("monitor-rights", &place, Some(frame), message, may);
            }
        }
        for (w, covered) in windows.iter().zip(covered).filter(|(w, c)| *c < w.least) {
            let message = format!(
                "{who} has {covered:#x} of {:#x} bytes at {:#x} ({})",
                w.least, w.at, w.what
            );
            self.find("monitor-map", &place, None, message, "all of it");
        }
        self.text(i, regime);
        self.write_xor_execute(i, regime);
    }

    /// The rights to a page of a device that it mediates or resets: configuration, MSI-X table, remapping table and
    /// registers of its sandbox's functions. The interrupt controller is one, if its sandbox has lines. Bridges'
    /// configuration and placeholders are to be read.
    fn device(&self, i: usize, leaf: &Leaf) -> Option<(bool, bool)> {
        if self.is_moved(i, leaf) {
            return Some(RW);
        }
        if !is_device(leaf) {
            return None;
        }
        let own = |f: &&Function| self.claim.has(i, f);
        let functions = self.claim.functions.iter();
        let mine = functions.clone().filter(own);
        let page = self.page();
        let mut written: Vec<Range> = mine
            .flat_map(|f| {
                f.mediated.iter().chain(&f.resets).copied().chain(self.claim.configuration(f))
            })
            .chain(self.claim.arch.line_registers(self.claim, i))
            .chain(self.claim.arch.commands(self.claim, i))
            .chain(self.quieted(i))
            .chain(self.claim.registers.iter().filter(|r| r.has(i, true)).map(|r| r.range))
            .flat_map(|range| pages(range, page))
            .collect();
        written.extend(self.remapping_frames(i));
        if self.claim.sandboxes[i].running {
            // A core can have its own registers for interrupts there, and this monitor writes them for its guest.
            let [_, monitors] = self.claim.arch.places().machine;
            written.push(Range { start: monitors.start, len: page.min(monitors.len) });
            written.extend(self.claim.timer.map(|start| Range { start, len: page }));
        }
        let inside = |r: &Range| r.start <= leaf.frame && leaf.frame + leaf.size <= r.end();
        if written.iter().any(inside) {
            return Some(RW);
        }
        // A Linux that ran first has seen all of them.
        let bridges = functions.filter(|f| f.bridge || self.claim.sandboxes[i].running);
        let mut read = bridges.filter_map(|f| self.claim.configuration(f));
        let placeholder = self.image.get(&leaf.frame).is_some_and(|w| w.starts_with("placeholder"));
        (placeholder || read.any(|r| inside(&r))).then_some(R)
    }

    /// A function's remapping table in an image that was moved: its distance from the image's start is its place among
    /// devices' pages.
    fn is_moved(&self, i: usize, leaf: &Leaf) -> bool {
        let Some(block) = self.claim.block else { return false };
        leaf.frame >= block.start
            && leaf.address.wrapping_sub(DEVICES) == leaf.frame - block.start
            && leaf.size == self.page()
            && self.remapping_frames(i).any(|frame| frame.start == leaf.frame)
    }

    /// Configuration pages of functions that a monitor keeps from memory when their own monitor has stopped.
    fn quieted(&self, i: usize) -> impl Iterator<Item = Range> {
        let quiets = &self.claim.sandboxes[i].quiets;
        let of = |f: &&Function| {
            f.role.is_none() && f.owner.is_some_and(|owner| quiets.contains(&owner))
        };
        self.claim.functions.iter().filter(of).filter_map(|f| self.claim.configuration(f))
    }

    /// Its program, byte for byte.
    fn text(&mut self, i: usize, regime: &Regime) {
        let mut wrong = Vec::new();
        for segment in program(self.claim, i, regime) {
            let mut all = segment.bytes.clone();
            let page = self.page();
            all.resize(segment.len.next_multiple_of(page) as usize, 0);
            for (n, bytes) in all.chunks(page as usize).enumerate() {
                let at = segment.address + n as u64 * page;
                let frame = regime.leaf(at).map(|l| l.frame + (at - l.address));
                if !frame.is_some_and(|f| reads(self.words.memory(), f, bytes)) {
                    wrong.push((at, frame));
                }
            }
        }
        let place = self.claim.sandboxes[i].place.clone();
        for (at, frame) in wrong {
            let message = format!("{}'s monitor at {at:#x} is not the program's", self.name(i));
            self.find(
                "monitor-text",
                &place,
                frame,
                message,
                "the bytes of the build that the manifest names",
            );
        }
    }

    /// No frame can be both written and executed, whatever the address.
    fn write_xor_execute(&mut self, i: usize, monitor: &Regime) {
        let range = |l: &Leaf| Range { start: l.frame, len: l.size };
        let code: Vec<_> = monitor.leaves.iter().filter(|l| l.execute).map(range).collect();
        let place = self.claim.sandboxes[i].place.clone();
        for leaf in monitor.leaves.iter().filter(|l| l.write) {
            if code.iter().any(|c| overlaps(*c, range(leaf))) {
                let who = self.name(i);
                let message = format!("{who}'s monitor writes and executes {:#x}", leaf.frame);
                self.find("write-xor-execute", &place, Some(leaf.frame), message, "one of them");
            }
        }
    }
}
