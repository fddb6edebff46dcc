//! Finds what the processors run on: the host save area of each core, and from it
//! the monitor's root and the VMCB.
//!
//! VM_HSAVE_PA says where the area is. QEMU shows that register to nobody, so memory is searched for the state that
//! VMRUN leaves there. It is that of a host in long mode with SVM on. Its RIP, by the tables of its own CR3, stands
//! right behind a VMRUN instruction. Its RAX is that instruction's operand. The bytes are the processor's, not the
//! image's: no map says where to look, and none is asked. RAM of sandboxes is left out: a guest could write such a
//! page; an area that really were there would be missed by its core.
//!
//! With VT-x the host's state is in the VMCS, and a dump tells each core's current one.

use crate::claim::{Claim, Processor};
use crate::memory::{Words, little};
use crate::paging::{Format, translate};
use crate::registers::Registers;
use crate::{Memory, PAGE, vmx};

/// QEMU's area has the layout of a VMCB's state save area (APM, appendix B).
pub const GDTR_BASE: u64 = 0x468;
pub const IDTR_BASE: u64 = 0x488;
const EFER: u64 = 0x4D0;
const CR3: u64 = 0x550;
const CR0: u64 = 0x558;
const RIP: u64 = 0x578;
const RSP: u64 = 0x5D8;
const RAX: u64 = 0x5F8;
/// SVME, LMA, LME.
const HOST_EFER: u64 = 1 << 12 | 1 << 10 | 1 << 8;
/// PG, PE.
const HOST_CR0: u64 = 1 << 31 | 1;
const VMRUN: [u8; 3] = [0x0F, 0x01, 0xD8];

/// The host's state behind a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Where it is saved; `None`: a dump told it.
    pub page: Option<u64>,
    /// The core, if a register told it.
    pub core: Option<usize>,
    /// Host CR3.
    pub cr3: u64,
    /// Host RIP.
    pub rip: u64,
    /// Host RSP.
    pub rsp: u64,
    /// Descriptor tables, where they are known.
    pub tables: Option<[u64; 2]>,
    /// Control block: VMCB or VMCS.
    pub vmcb: u64,
    /// RIP stands behind a VMRUN; with VT-x, where the reason of an exit is read.
    pub certain: bool,
}

/// All areas: those that registers name, otherwise all that are found.
pub fn areas(claim: &Claim, registers: &Registers, words: &Words) -> Vec<Area> {
    if claim.processor == Processor::Vmx {
        return vmx::areas(registers, words);
    }
    let told: Vec<_> = registers
        .cores
        .iter()
        .filter_map(|core| {
            let host = core.host.zip(core.vmcb).map(|([cr3, rip, rsp], vmcb)| Area {
                page: core.vm_hsave_pa,
                core: None,
                cr3,
                rip,
                rsp,
                tables: None,
                vmcb,
                certain: true,
            });
            let saved = || core.vm_hsave_pa.and_then(|page| area(words, page));
            let found = host.or_else(saved)?;
            Some(Area { core: Some(core.number), ..found })
        })
        .collect();
    if !told.is_empty() {
        return told;
    }
    let mut out = Vec::new();
    let mut bytes = [0; (RAX + 8) as usize];
    for range in words.memory().data() {
        for page in (range.start..range.end()).step_by(PAGE as usize) {
            let guests = claim.in_ram_of(page).is_some() || claim.in_channel(page).is_some();
            let guests = guests || claim.in_link(page).is_some();
            if guests || !words.memory().read(page, &mut bytes) {
                continue;
            }
            let field = |at: u64| little(&bytes[at as usize..at as usize + 8]);
            let aligned = |at: u64| field(at) != 0 && field(at) % PAGE == 0;
            if field(EFER) & HOST_EFER == HOST_EFER
                && field(CR0) & HOST_CR0 == HOST_CR0
                && aligned(CR3)
                && aligned(RAX)
            {
                out.extend(area(words, page));
            }
        }
    }
    out
}

fn area(words: &Words, page: u64) -> Option<Area> {
    let at = |field: u64| words.word(page + field);
    let (cr3, rip) = (at(CR3)?, at(RIP)?);
    let behind = rip.checked_sub(3).and_then(|va| translate(words, Format::LongMode, cr3, va));
    let certain = behind.is_some_and(|pa| reads(words.memory(), pa, &VMRUN));
    Some(Area {
        page: Some(page),
        core: None,
        cr3,
        rip,
        rsp: at(RSP)?,
        tables: Some([at(GDTR_BASE)?, at(IDTR_BASE)?]),
        vmcb: at(RAX)?,
        certain,
    })
}

/// Tells if memory holds these bytes.
pub fn reads(memory: &dyn Memory, address: u64, bytes: &[u8]) -> bool {
    let mut there = vec![0; bytes.len()];
    memory.read(address, &mut there) && there == bytes
}
