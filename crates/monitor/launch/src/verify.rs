//! Checks a compiled manifest before anything of it is used. It was right when it was built. The check catches a
//! damaged or a foreign file, and a machine other than the one that it was built for.

use bulkhead_arch::BootMachine;
use bulkhead_handover::image::{ConfigOp, Header, MAGIC, Range, Sandbox, VERSION, checksum};
use bulkhead_handover::{MAX_CORES, MAX_SANDBOXES, PAGE};
use bulkhead_monitor_abi::record::Op;
use core::ops::Deref;

/// Findings. The numbers are the boot report's `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// 1: the magic is not ours.
    Magic,
    /// 2: another version.
    Version(u32),
    /// 3: the checksum over the sealed part does not match.
    Checksum,
    /// 4: a count or a size is out of its bounds.
    Bounds(&'static str),
    /// 5: sandbox, start: a range overlaps another one.
    Overlap(u32, u64),
    /// 6: sandbox (or `u32::MAX` for the image), start, length: not free RAM on this machine.
    NoRam(u32, u64, u64),
    /// 7: sandbox, core: the machine has no such core.
    NoCore(u32, u32),
    /// 8: sandbox, core: given twice.
    CoreTwice(u32, u32),
    /// 9: sandbox, core: it boots the machine, so no peer can take it. An INIT sends it to the firmware.
    BootCore(u32, u32),
}

impl Error {
    /// Returns its number in the boot report.
    #[must_use]
    pub const fn code(self) -> u64 {
        match self {
            Self::Magic => 1,
            Self::Version(_) => 2,
            Self::Checksum => 3,
            Self::Bounds(_) => 4,
            Self::Overlap(..) => 5,
            Self::NoRam(..) => 6,
            Self::NoCore(..) => 7,
            Self::CoreTwice(..) => 8,
            Self::BootCore(..) => 9,
        }
    }
}

/// A compiled manifest in memory.
pub struct Image<'a, H> {
    /// Where it lies: each address in it is final.
    pub at: u64,
    /// Its header.
    pub header: &'a H,
    /// As many as the header says, cut to the number that was there.
    pub sandboxes: &'a [Sandbox],
    /// Likewise.
    pub config_ops: &'a [ConfigOp],
    /// Likewise.
    pub launch: &'a [Op],
}

/// An architecture's header: the portable part, and its own. Nothing but this knows the own one.
pub trait Own: Deref<Target = Header> {
    /// Memory outside of the image that other cores start in. Nothing else may be there.
    const START_CODE: Option<Range>;
    /// Further such memory, of cores that a peer takes.
    const TAKEN: &[Range] = &[];
    /// Checks the own part.
    ///
    /// # Errors
    /// Name of the thing that is out of its bounds.
    fn check(&self) -> Result<(), &'static str>;
    /// Lists tables in the image that the machine's units read. No monitor has them.
    fn tables(&self) -> impl Iterator<Item = Range>;
}

fn end(range: Range) -> Option<u64> {
    range.start.checked_add(range.len)
}

pub(crate) fn overlap(a: Range, b: Range) -> bool {
    // A range that claims to end beyond the last address meets all that lies behind its start.
    let (a_end, b_end) = (a.start.saturating_add(a.len), b.start.saturating_add(b.len));
    a.len > 0 && b.len > 0 && a.start < b_end && b.start < a_end
}

pub(crate) fn inside(part: Range, whole: Range) -> bool {
    match (end(part), end(whole)) {
        (Some(p), Some(w)) => part.start >= whole.start && p <= w,
        _ => false,
    }
}

pub(crate) fn aligned(range: Range) -> bool {
    (range.start | range.len) % PAGE == 0 && end(range).is_some()
}

/// Returns the 64-bit words of the sealed part after magic and checksum.
pub fn words(sealed: &[u64]) -> impl Iterator<Item = u64> {
    // The sum cannot count itself, and the magic is compared before.
    sealed.iter().skip(2).copied()
}

/// Checks header, sandboxes and machine against each other. `sealed` is the
/// sealed part as words, as long as the header says it is.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify<H: Own>(
    image: &Image<H>,
    sealed: &[u64],
    machine: &impl BootMachine,
) -> Result<(), Error> {
    // The header first: the length of the sealed part is one of its claims.
    header(image)?;
    if sealed.len() as u64 * 8 != image.header.sealed
        || checksum(words(sealed)) != image.header.checksum
    {
        return Err(Error::Checksum);
    }
    // The sum has shown that nobody changed the claims. Now the machine is asked whether it is the one they are about.
    fits(image, machine)
}

/// As [`verify`], of an image that was moved after its checksum was seen to match.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify_moved<H: Own>(image: &Image<H>, machine: &impl BootMachine) -> Result<(), Error> {
    header(image)?;
    fits(image, machine)
}

fn fits<H: Own>(image: &Image<H>, machine: &impl BootMachine) -> Result<(), Error> {
    memory(image, machine)?;
    cores(image.sandboxes, machine)
}

fn header<H: Own>(image: &Image<H>) -> Result<(), Error> {
    let Image { header, sandboxes, config_ops, launch, at } = *image;
    if header.magic != MAGIC {
        return Err(Error::Magic);
    }
    if header.version != VERSION {
        return Err(Error::Version(header.version));
    }
    let checks = [
        // Each address in the image is final. Anywhere else its tables would lead to memory of others.
        (header.image.start == at && aligned(header.image), "image"),
        (inside(header.boot, header.image), "boot"),
        (header.sealed % 8 == 0 && header.sealed <= header.image.len, "sealed part"),
        ((1..=MAX_SANDBOXES).contains(&(header.sandboxes as usize)), "number of sandboxes"),
        // The list was cut to the bytes that are there: fewer sandboxes are a file that ends early.
        (header.sandboxes as usize == sandboxes.len(), "number of sandboxes"),
        // The steps are carried out on live functions, without a further look.
        (config_ops.iter().all(plausible) && placed(config_ops), "PCI steps"),
        (launch.iter().all(|op| fills(op, sandboxes, header.image)), "launch record"),
        (running(image), "control blocks"),
    ];
    for (ok, what) in checks {
        if !ok {
            return Err(Error::Bounds(what));
        }
    }
    // The portable part is known now, so the own part may be compared with it.
    header.check().map_err(Error::Bounds)?;
    sandboxes.iter().try_for_each(|s| sandbox(s, header.image))?;
    // A Linux that runs has its memory where it is.
    let without = sandboxes.iter().rev().skip(usize::from(header.running.len > 0));
    match without.into_iter().all(|s| s.memory[0].len > 0) {
        true => Ok(()),
        false => Err(Error::Bounds("memory")),
    }
}

/// Checks what the last sandbox has if it is a Linux that runs: a control block for each core, in its monitor.
fn running<H: Own>(image: &Image<H>) -> bool {
    let Image { header, sandboxes, .. } = *image;
    let blocks = header.running;
    let of = |s: &Sandbox| {
        blocks.len == u64::from(s.cores) * PAGE
            && inside(blocks, s.monitor)
            && s.memory.iter().all(|memory| memory.len == 0)
    };
    blocks.len == 0
        || aligned(blocks)
            && aligned(header.block)
            && inside(header.image, header.block)
            && sandboxes.last().is_some_and(of)
}

fn plausible(op: &ConfigOp) -> bool {
    // An address is read as it is; the others' values are registers. An extended capability has two words.
    let (aligned, below) = match op.kind {
        ConfigOp::WRITE | ConfigOp::EXPECT | ConfigOp::TAKE => (true, 256),
        ConfigOp::EXPECT_AT => (op.value % 4 == 0, 256),
        ConfigOp::VALIDATE => (op.value % 4096 == 0, 4096 - 4),
        ConfigOp::AT => (op.value % 4096 == 0 && op.value != 0, 4),
        ConfigOp::SET..=ConfigOp::LAST => (true, 4096),
        ConfigOp::FLUSH | ConfigOp::TAKE_PORTS => (true, 4),
        _ => (false, 0),
    };
    aligned && op.offset % 4 == 0 && op.offset < below
}

/// Registers are named after the page that they are in.
fn placed(ops: &[ConfigOp]) -> bool {
    // Before the first page is chosen there is none that an offset could be in.
    let named = |op: &ConfigOp| (ConfigOp::SET..=ConfigOp::LAST).contains(&op.kind);
    !ops.iter().take_while(|op| op.kind != ConfigOp::AT).any(named)
}

/// Checks a step of the boot code's own, in the first 4 GiB, which the boot code sees. It goes from the image into one
/// sandbox's memory, or clears a channel, outside of all sandboxes' memory.
fn fills(op: &Op, sandboxes: &[Sandbox], image: Range) -> bool {
    let to = Range { start: op.dst, len: op.len };
    let from = Range { start: op.src, len: op.len };
    let kind = match op.kind {
        Op::ZERO => true,
        Op::COPY => inside(from, image),
        _ => false,
    };
    // A record is played in words of 8 bytes.
    kind && (op.dst | op.src | op.len) % 8 == 0
        && end(to).is_some_and(|end| end <= 1 << 32)
        && (sandboxes.iter().any(|s| inside(to, s.memory[0]))
            || op.kind == Op::ZERO
                && !overlap(to, image)
                && !sandboxes.iter().flat_map(|s| s.memory).any(|memory| overlap(to, memory)))
}

fn sandbox(s: &Sandbox, image: Range) -> Result<(), Error> {
    let page = |start| Range { start, len: PAGE };
    let checks = [
        (s.memory.iter().all(|&m| aligned(m)), "memory"),
        (aligned(s.monitor) && inside(s.monitor, image), "monitor"),
        (
            // Tables elsewhere could be memory that a guest writes.
            s.monitor_root % PAGE == 0 && inside(page(s.monitor_root), s.monitor),
            "monitor's page tables",
        ),
        // The start-up code takes the root in a mode of 32 bits.
        (s.monitor_root < 1 << 32, "monitor's page tables above 4 GiB"),
        (
            s.spare_root == 0
                || s.spare_root % PAGE == 0
                    && s.spare_root < 1 << 32
                    && inside(page(s.spare_root), s.monitor),
            "spare monitor's page tables",
        ),
        // The boot code writes clocks there before any core runs, so it has to be this monitor's page.
        (inside(page(s.info_pa), s.monitor), "info page"),
        // A larger number would be cut to the list, and the cores beyond it never compared.
        ((1..=MAX_CORES).contains(&(s.cores as usize)), "number of cores"),
    ];
    for (ok, what) in checks {
        if !ok {
            return Err(Error::Bounds(what));
        }
    }
    Ok(())
}

fn memory<H: Own>(image: &Image<H>, machine: &impl BootMachine) -> Result<(), Error> {
    let Image { header, sandboxes, launch, .. } = *image;
    let need = |owner: u32, r: Range| {
        if r.len == 0 || machine.is_ram(r.start, r.len) {
            Ok(())
        } else {
            Err(Error::NoRam(owner, r.start, r.len))
        }
    };
    // A range without a byte overlaps none.
    let start_code = H::START_CODE.unwrap_or_default();
    need(u32::MAX, header.image)?;
    need(u32::MAX, start_code)?;
    let is_taken = sandboxes.iter().any(|sandbox| sandbox.spare_root != 0);
    let at_reset = if is_taken { H::TAKEN } else { &[] };
    at_reset.iter().try_for_each(|&range| need(u32::MAX, range))?;
    for op in launch {
        let to = Range { start: op.dst, len: op.len };
        need(u32::MAX, to)?;
        if overlap(to, start_code) {
            return Err(Error::Overlap(u32::MAX, op.dst));
        }
    }
    for (i, s) in sandboxes.iter().enumerate() {
        for (piece, &r) in s.memory.iter().enumerate() {
            let before = sandboxes[..i].iter().flat_map(|o| o.memory);
            let before = before.chain(s.memory[..piece].iter().copied());
            // A guest in the image would own the tables that confine it.
            let mut taken =
                before.chain([header.image, start_code]).chain(at_reset.iter().copied());
            if taken.any(|other| overlap(r, other)) {
                return Err(Error::Overlap(i as u32, r.start));
            }
            need(i as u32, r)?;
        }
        if sandboxes[..i].iter().any(|o| overlap(s.monitor, o.monitor))
            // The boot code still runs when the first cores are in their monitors.
            || overlap(s.monitor, header.boot)
            // A unit's table in a monitor would let that grant itself any memory, by DMA.
            || header.tables().any(|table| overlap(s.monitor, table))
        {
            return Err(Error::Overlap(i as u32, s.monitor.start));
        }
    }
    Ok(())
}

fn cores(sandboxes: &[Sandbox], machine: &impl BootMachine) -> Result<(), Error> {
    let ids = |s: usize| sandboxes[s].core_ids.iter().take(sandboxes[s].cores as usize);
    for (s, sandbox) in sandboxes.iter().enumerate() {
        for (i, &id) in ids(s).enumerate() {
            // The machine may have fewer cores than it was described with. Its list tells that without a wait for each.
            if !machine.has_core(id) {
                return Err(Error::NoCore(s as u32, id));
            }
            if sandbox.spare_root != 0 && id == machine.this_core() {
                return Err(Error::BootCore(s as u32, id));
            }
            // The second start would take the core out of the monitor that it was sent to first.
            if (0..s).flat_map(ids).chain(ids(s).take(i)).any(|&other| other == id) {
                return Err(Error::CoreTwice(s as u32, id));
            }
        }
    }
    Ok(())
}
