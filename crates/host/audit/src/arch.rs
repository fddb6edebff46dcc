//! The back end of an audit: formats of tables, control blocks, registers, units and lines of one architecture. The
//! rules ask it by [`Architecture`], and know none. A test brings an odd one of its own.

use crate::check::Context;
use crate::claim::{Claim, Range, Sandbox};
use crate::dma::Unit;
use crate::memory::Words;
use crate::paging::Format;
use crate::registers::{Core, Registers};
use std::fmt::Debug;

/// Command to an emulator's monitor or debugger, and its answer.
pub type Ask<'a> = dyn FnMut(&str) -> Result<String, String> + 'a;

/// Sizes and places of an architecture, by the book (docs/memory-layout.md).
#[derive(Debug)]
pub struct Places {
    /// Bytes of a page.
    pub page: u64,
    /// Bytes of larger pages of a guest's memory, ascending.
    pub larger: &'static [u64],
    /// Page of the cores' start-up code, which every monitor maps to itself.
    pub start_code: Option<u64>,
    /// A monitor maps a page of vectors.
    pub vectors: bool,
    /// The page that a processor keeps for itself, if a monitor maps it.
    pub own_page: Option<&'static str>,
    /// Monitors with lines share a lock, and keep what guests wrote to their controllers.
    pub lock: bool,
    /// Information page of a guest.
    pub info: u64,
    /// Progress words of a guest.
    pub progress: u64,
    /// Snapshots of a guest.
    pub snapshots: u64,
    /// Words that show a guest its roles.
    pub roles: u64,
    /// Reports that a guest may read, and the distance of two.
    pub reports: [u64; 2],
    /// Bytes from one function's configuration space to the next one's.
    pub function: u64,
    /// PCI configuration space as a guest sees it.
    pub configuration: Range,
    /// Addresses at which a Linux that ran before its monitor reaches devices and memory, and those of them that only
    /// monitors use. RAM above is its own, too.
    pub machine: [Range; 2],
}

/// See the module.
pub trait Architecture: Debug + Sync {
    /// Its sizes and places.
    fn places(&self) -> &'static Places;
    /// Format of monitors' tables.
    fn own(&self) -> &'static dyn Format;
    /// Format of guests' tables.
    fn nested(&self) -> &'static dyn Format;
    /// Finds the hosts' states behind guests.
    fn areas(&self, claim: &Claim, registers: &Registers, words: &Words) -> Vec<Area>;
    /// Place at which a guest's exit comes back, in words.
    fn comes_back(&self) -> &'static str;
    /// Reads a control block.
    fn block(&self, words: &Words, at: u64) -> Option<Block>;
    /// Compares a core's control block with the processor's rules.
    fn judge(&self, words: &Words, sandbox: &Sandbox, area: &Area, first: &Block) -> Wrong;
    /// Checks what a guest reaches beside memory, such as ports.
    fn registers(&self, context: &mut Context, sandbox: usize, block: &Block);
    /// Tells if a core runs code of a guest, by the guest's registers. `through` translates an address of the guest,
    /// and `executes` tells if there is code.
    fn runs(
        &self,
        words: &Words,
        core: &Core,
        through: &dyn Fn(u64) -> Option<u64>,
        executes: &dyn Fn(u64) -> bool,
    ) -> bool;
    /// Reads the IOMMU, if the machine has one and its registers are known.
    fn unit(&self, claim: &Claim, registers: &Registers, words: &Words) -> Option<Box<dyn Unit>>;
    /// Lists the registers of the interrupt controller that a sandbox's monitor has.
    fn line_registers(&self, claim: &Claim, sandbox: usize) -> Vec<Range>;
    /// Finds the registers by which a sandbox' monitor has the IOMMU forget messages; it has the command buffer then.
    fn commands(&self, _: &Claim, _: usize) -> Option<Range> {
        None
    }
    /// Checks every line that is not masked.
    fn lines(&self, context: &mut Context, unit: Option<&dyn Unit>);
    /// Reads the registers of a machine that stands in QEMU.
    ///
    /// # Errors
    /// An answer that cannot be read; QEMU has no such machine.
    fn in_qemu(&self, _: &mut Ask, _: &Claim) -> Result<Registers, String> {
        Err("QEMU has no such machine".into())
    }
    /// Reads the registers of a machine that stands in Bochs.
    ///
    /// # Errors
    /// An answer that cannot be read; Bochs has no such machine.
    fn in_bochs(&self, _: &mut Ask) -> Result<Registers, String> {
        Err("Bochs has no such machine".into())
    }
}

/// The host's state behind a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Where it is saved; `None`: a dump told it.
    pub page: Option<u64>,
    /// The core, if a register told it.
    pub core: Option<usize>,
    /// Root of the host's tables.
    pub root: u64,
    /// Host's instruction pointer.
    pub pc: u64,
    /// Host's stack pointer.
    pub sp: u64,
    /// Further addresses that its monitor maps: names and values, where they are known.
    pub tables: Vec<(&'static str, u64)>,
    /// Control block.
    pub block: u64,
    /// The instruction pointer stands where exits of guests come back.
    pub certain: bool,
}

/// Tables and maps that a control block names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Root of the nested tables.
    pub root: u64,
    /// Frames of permission maps, with the name of each map.
    pub maps: Vec<(u64, &'static str)>,
    /// Tag of the guest's translations.
    pub tag: u64,
    /// The processor would run a guest by it.
    pub launched: bool,
}

/// Differences of a control block: the guarantee, what is, what would be right.
pub type Wrong = Vec<(&'static str, String, String)>;

/// Guarantee that rests on all in a control block that has no guarantee of its own.
pub const REST: &str = "control-block";

impl Block {
    /// First frame of a map.
    #[must_use]
    pub fn map(&self, name: &str) -> u64 {
        self.maps.iter().find(|map| map.1 == name).map_or(0, |map| map.0)
    }
}

impl Context<'_> {
    /// A core's control block: the processor's own rules, a tag of its own, in the place that its monitor has for it.
    pub(crate) fn block(
        &mut self,
        i: usize,
        core: usize,
        area: &Area,
        first: &Block,
        others: &[u64],
    ) {
        let (arch, sandbox) = (self.claim.arch, &self.claim.sandboxes[i]);
        let mut wrong = arch.judge(self.words, sandbox, area, first);
        let tag = arch.block(self.words, area.block).map_or(0, |block| block.tag);
        if tag == 0 || others.contains(&tag) {
            let what = format!("address space ID {tag} is not its own");
            wrong.push((REST, what, "an ID that no other sandbox has".into()));
        }
        let own = self.parts[i].blocks.get(core).copied().flatten();
        if own != Some(area.block) {
            let what = format!("it runs on the control block at {:#x}", area.block);
            wrong.push((
                REST,
                what,
                format!("the one that its monitor has, at {:#x}", own.unwrap_or(0)),
            ));
        }
        let place = self.claim.sandboxes[i].place.clone();
        for (rule, what, right) in wrong {
            let message = format!("{} core {core}: {what}", self.name(i));
            self.find(rule, &place, Some(area.block), message, right);
        }
    }
}
