//! A guest's control block, whatever its processor: what it refers to, and the rules that hold for each.

use crate::PAGE;
use crate::check::Context;
use crate::claim::{Processor, Range};
use crate::locate::Area;
use crate::memory::Words;
use crate::paging::Format;
use crate::{svm, vmx};

/// Tables and maps that a control block names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Processor that reads it.
    pub processor: Processor,
    /// Root of the nested tables.
    pub root: u64,
    /// Their format.
    pub format: Format,
    /// Pages of the permission map of ports.
    pub ports: Vec<u64>,
    /// Permission map of MSRs.
    pub msrs: u64,
    /// Its frames.
    pub msr_frames: u64,
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
    /// Reads a control block.
    pub fn read(processor: Processor, words: &Words, at: u64) -> Option<Self> {
        match processor {
            Processor::Svm => svm::block(words, at),
            Processor::Vmx => vmx::block(words, at),
        }
    }

    /// Frames of its maps, with a name each.
    pub fn maps(&self) -> impl Iterator<Item = (u64, &'static str)> + '_ {
        let msrs = Range { start: self.msrs, len: self.msr_frames * PAGE };
        let msrs = (msrs.start..msrs.end()).step_by(PAGE as usize);
        let ports = self.ports.iter().map(|&page| (page, "I/O map"));
        ports.chain(msrs.map(|page| (page, "MSR map")))
    }
}

impl Context<'_> {
    /// A core's control block: the processor's own rules, a tag of its own, in the place that its monitor has for it.
    pub fn block(&mut self, i: usize, core: usize, area: &Area, first: &Block, others: &[u64]) {
        let processor = self.claim.processor;
        let mut wrong = match processor {
            Processor::Svm => self.vmcb(area, first),
            Processor::Vmx => self.vmcs(area, first),
        };
        let tag = Block::read(processor, self.words, area.vmcb).map_or(0, |block| block.tag);
        if tag == 0 || others.contains(&tag) {
            let what = format!("address space ID {tag} is not its own");
            wrong.push((REST, what, "an ID that no other sandbox has".into()));
        }
        let own = self.parts[i].vmcbs.get(core).copied().flatten();
        if own != Some(area.vmcb) {
            let what = format!("it runs on the control block at {:#x}", area.vmcb);
            wrong.push((
                REST,
                what,
                format!("the one that its monitor has, at {:#x}", own.unwrap_or(0)),
            ));
        }
        let place = self.claim.sandboxes[i].place.clone();
        for (rule, what, right) in wrong {
            let message = format!("{} core {core}: {what}", self.name(i));
            self.find(rule, &place, Some(area.vmcb), message, right);
        }
    }
}
