//! x86-64's two back ends. SVM and VT-x differ in control blocks and permission maps ([`Virtualization`]).
//!
//! Manuals of AMD are AMD64 Architecture Programmer's Manual volume 2 ("APM") and I/O Virtualization Technology
//! specification 48882 ("IOMMU specification"). Those of Intel are Software Developer's Manual ("SDM"), 82093AA
//! (IOAPIC) and VT-d specification D51397.

mod amd;
mod bochs;
pub mod formats;
mod hmp;
mod lines;
mod locate;
mod maps;
pub mod registers;
mod svm;
pub mod vmcs;
mod vmx;
mod vtd;

pub use svm::Svm;
pub use vmx::Vmx;

use crate::arch::{Architecture, Area, Ask, Block, Places, Wrong};
use crate::check::Context;
use crate::claim::{Claim, Range, Sandbox};
use crate::dma::Unit;
use crate::memory::Words;
use crate::paging::Format;
use crate::registers::{Core, Registers};
use formats::LongMode;
use std::fmt::Debug;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// The first vector that an APIC takes (APM volume 2, 16.6.1). Those of exceptions from there on harm their owner only.
const FIRST_VECTOR: u8 = 16;
/// Names of permission maps.
const PORTS: &str = "I/O map";
const MSRS: &str = "MSR map";

const PLACES: Places = Places {
    page: PAGE,
    larger: &[2 << 20, 1 << 30],
    start_code: Some(0x8000),
    vectors: true,
    own_page: None,
    lock: true,
    info: 0xD000_0000,
    progress: 0xD000_1000,
    roles: 0xD000_2000,
    snapshots: 0xD010_0000,
    reports: [0xD100_0000, 0x4_0000],
    function: 4096,
    configuration: Range { start: 0xC000_0000, len: 256 << 20 },
    // Below 4 GiB; the local APICs (APM 16.3.1, with room for all of the range that messages of interrupts have).
    machine: [Range { start: 0, len: 4 << 30 }, Range { start: 0xFEE0_0000, len: 1 << 20 }],
};

/// Kinds of IOMMUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// AMD-Vi.
    #[default]
    AmdVi,
    /// Intel VT-d.
    VtD,
}

impl Default for &dyn Architecture {
    fn default() -> Self {
        &Svm
    }
}

/// The part in which SVM and VT-x differ.
trait Virtualization: Debug + Sync {
    /// Sizes and places.
    const PLACES: &Places;
    /// Format of guests' tables.
    const NESTED: &dyn Format;
    /// Place at which a guest's exit comes back, in words.
    const COMES_BACK: &str;
    /// Ports that have a bit in the map.
    const PORT_BITS: u32;

    /// Finds the hosts' states behind guests.
    fn areas(claim: &Claim, registers: &Registers, words: &Words) -> Vec<Area>;
    /// Reads a control block.
    fn block(words: &Words, at: u64) -> Option<Block>;
    /// Compares a core's control block with the processor's rules.
    fn judge(words: &Words, sandbox: &Sandbox, area: &Area, first: &Block) -> Wrong;
    /// First bits for reads and for writes of a range of MSRs, and the distance of two MSRs' bits; `None`: each of
    /// them exits always.
    fn msrs(range: u32) -> Option<[u64; 3]>;
}

impl<V: Virtualization> Architecture for V {
    fn places(&self) -> &'static Places {
        V::PLACES
    }

    fn own(&self) -> &'static dyn Format {
        &LongMode
    }

    fn nested(&self) -> &'static dyn Format {
        V::NESTED
    }

    fn areas(&self, claim: &Claim, registers: &Registers, words: &Words) -> Vec<Area> {
        V::areas(claim, registers, words)
    }

    fn comes_back(&self) -> &'static str {
        V::COMES_BACK
    }

    fn block(&self, words: &Words, at: u64) -> Option<Block> {
        V::block(words, at)
    }

    fn judge(&self, words: &Words, sandbox: &Sandbox, area: &Area, first: &Block) -> Wrong {
        V::judge(words, sandbox, area, first)
    }

    fn registers(&self, context: &mut Context, sandbox: usize, block: &Block) {
        context.ports::<V>(sandbox, block);
        context.msrs::<V>(sandbox, block);
    }

    fn runs(
        &self,
        words: &Words,
        core: &Core,
        through: &dyn Fn(u64) -> Option<u64>,
        executes: &dyn Fn(u64) -> bool,
    ) -> bool {
        runs(words, core, through, executes)
    }

    fn unit(&self, claim: &Claim, registers: &Registers, words: &Words) -> Option<Box<dyn Unit>> {
        match claim.iommu.as_ref()?.kind {
            Kind::AmdVi => Some(Box::new(amd::Unit::read(registers, words)?)),
            Kind::VtD => Some(Box::new(vtd::Unit::read(registers, words)?)),
        }
    }

    // All of the IOAPIC, which monitors use one at a time.
    fn line_registers(&self, claim: &Claim, sandbox: usize) -> Vec<Range> {
        let ioapic = claim.controller.filter(|_| !claim.sandboxes[sandbox].lines.is_empty());
        ioapic.map(|start| Range { start, len: PAGE }).into_iter().collect()
    }

    fn commands(&self, claim: &Claim, sandbox: usize) -> Option<Range> {
        let iommu = claim.iommu.as_ref().filter(|unit| unit.kind == Kind::AmdVi && unit.remaps);
        let own = iommu.filter(|_| claim.sandboxes[sandbox].running && claim.controller.is_some());
        own.map(|unit| Range { start: unit.registers.start + amd::RINGS, len: PAGE })
    }

    fn lines(&self, context: &mut Context, unit: Option<&dyn Unit>) {
        context.lines(unit);
    }

    fn in_qemu(&self, ask: &mut Ask, claim: &Claim) -> Result<Registers, String> {
        let unit = claim.iommu.as_ref().and_then(|iommu| match iommu.kind {
            Kind::AmdVi => Some(hmp::Unit::Amd(claim.ecam?.start, iommu.bdf)),
            Kind::VtD => Some(hmp::Unit::Vtd(iommu.registers.start)),
        });
        hmp::registers(ask, unit)
    }

    fn in_bochs(&self, ask: &mut Ask) -> Result<Registers, String> {
        bochs::registers(ask)
    }
}

/// Tells if a core runs a guest's code: by its segment, or by the guest's own tables.
fn runs(
    words: &Words,
    core: &Core,
    through: &dyn Fn(u64) -> Option<u64>,
    executes: &dyn Fn(u64) -> bool,
) -> bool {
    /// CR0.PG.
    const PAGING: u64 = 1 << 31;
    /// CR4.LA57.
    const LA57: u64 = 1 << 12;
    let fetched = if core.own.cr0 & PAGING == 0 {
        Some(core.own.cs_base.wrapping_add(core.pc) & 0xFFFF_FFFF)
    } else if core.own.cr4 & LA57 != 0 || core.own.efer & 1 << 10 == 0 {
        // Five levels, or a 32-bit guest's tables: nothing is concluded from them.
        return true;
    } else {
        walk(words, core.root, core.pc, through)
    };
    fetched.is_some_and(executes)
}

/// A guest's own translation of an address, its tables read through another.
fn walk(
    words: &Words,
    root: u64,
    address: u64,
    through: &dyn Fn(u64) -> Option<u64>,
) -> Option<u64> {
    const FRAME: u64 = 0x000F_FFFF_FFFF_F000;
    let mut table = root & FRAME;
    for level in (0..4).rev() {
        let shift = 12 + 9 * level;
        let entry = words.word(through(table + (address >> shift & 511) * 8)?)?;
        if entry & 1 == 0 {
            return None;
        }
        if level == 0 || entry & 1 << 7 != 0 {
            let inside = (1 << shift) - 1;
            return Some(entry & FRAME & !inside | address & inside);
        }
        table = entry & FRAME;
    }
    None
}
