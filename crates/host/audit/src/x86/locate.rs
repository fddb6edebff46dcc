//! Finds what the processors run on: the host save area of each core, and from it
//! the monitor's root and the VMCB.
//!
//! VM_HSAVE_PA says where the area is. QEMU shows that register to nobody, so memory is searched for the state that
//! VMRUN leaves there. It is that of a host in long mode with SVM on. Its RIP, by the tables of its own CR3, stands
//! right behind a VMRUN instruction. Its RAX is that instruction's operand. The bytes are the processor's, not the
//! image's: no map says where to look, and none is asked. RAM of sandboxes is left out: a guest could write such a
//! page; an area that really were there would be missed by its core.

use super::PAGE;
use super::formats::LongMode;
use crate::arch::Area;
use crate::claim::Claim;
use crate::memory::{Words, little, reads};
use crate::paging::translate;
use crate::registers::Registers;

/// QEMU's area has the layout of a VMCB's state save area (APM, appendix B).
const GDTR_BASE: u64 = 0x468;
const IDTR_BASE: u64 = 0x488;
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

/// Finds all areas: those that registers name, otherwise all that are found.
pub fn areas(claim: &Claim, registers: &Registers, words: &Words) -> Vec<Area> {
    let told: Vec<_> = registers
        .cores
        .iter()
        .filter_map(|core| {
            let host = core.host.zip(core.block).map(|([root, pc, sp], block)| Area {
                page: core.own.vm_hsave_pa,
                core: None,
                root,
                pc,
                sp,
                tables: Vec::new(),
                block,
                certain: true,
            });
            let saved = || core.own.vm_hsave_pa.and_then(|page| area(words, page));
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
    let (root, pc) = (at(CR3)?, at(RIP)?);
    let behind = pc.checked_sub(3).and_then(|va| translate(words, &LongMode, root, va));
    let certain = behind.is_some_and(|pa| reads(words.memory(), pa, &VMRUN));
    Some(Area {
        page: Some(page),
        core: None,
        root,
        pc,
        sp: at(RSP)?,
        tables: vec![("GDTR", at(GDTR_BASE)?), ("IDTR", at(IDTR_BASE)?)],
        block: at(RAX)?,
        certain,
    })
}
