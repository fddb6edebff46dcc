//! SVM's control block: the VMCB. Bits and offsets are those of the APM volume 2, appendix B.

use super::formats::LongMode;
use super::{MSRS, PAGE, PLACES, PORTS, Virtualization, locate};
use crate::arch::{Area, Block, Places, REST, Wrong};
use crate::claim::{Claim, Sandbox};
use crate::memory::Words;
use crate::paging::Format;
use crate::registers::Registers;

const EXCEPTIONS: u64 = 0x008;
const WORD_3: u64 = 0x00C;
const WORD_4: u64 = 0x010;
const IOPM_BASE: u64 = 0x040;
const MSRPM_BASE: u64 = 0x048;
const GUEST_ASID: u64 = 0x058;
const V_INTR: u64 = 0x060;
const NESTED_CTL: u64 = 0x090;
const N_CR3: u64 = 0x0B0;
const LBR_VIRTUALIZATION: u64 = 0x0B8;

/// Intercepts that a guest needs: the word's offset, its bits, and the guarantee that rests on them.
const NEEDED: &[(u64, u64, &str)] = &[
    // #DB, #AC; #MC.
    (EXCEPTIONS, 1 << 1 | 1 << 17, "exceptions"),
    (EXCEPTIONS, 1 << 18, REST),
    // NMI; SMI; RSM, INVLPGA; INVD; IOIO; MSR; shutdown.
    (WORD_3, 1 << 1, "doorbell"),
    (WORD_3, 1 << 2, REST),
    (WORD_3, 1 << 19 | 1 << 26, "instructions"),
    (WORD_3, 1 << 22, "cache-instructions"),
    (WORD_3, 1 << 27, "ports"),
    (WORD_3, 1 << 28, "registers"),
    (WORD_3, 1 << 31, "shutdown"),
    // VMRUN, VMMCALL, VMLOAD, VMSAVE, STGI, CLGI, SKINIT, MONITOR, MWAIT twice; WBINVD.
    (WORD_4, 0x7F | 1 << 10 | 1 << 11 | 1 << 12, "instructions"),
    (WORD_4, 1 << 9, "cache-instructions"),
];
/// MONITOR and MWAIT, in the fourth word: a Linux that ran before knows them from CPUID, and idles by them.
const IDLES: u64 = 1 << 10 | 1 << 11 | 1 << 12;
/// INIT, in the third word: a monitor goes on at one, unless a peer takes its cores.
const INIT: u64 = 1 << 3;
/// AVIC.
const AVIC: u64 = 1 << 31;

/// AMD's SVM.
#[derive(Debug)]
pub struct Svm;

impl Virtualization for Svm {
    const PLACES: &Places = &PLACES;
    const NESTED: &dyn Format = &LongMode;
    const COMES_BACK: &str = "behind a VMRUN of its monitor";
    // Three more, for accesses that go beyond port FFFFh (APM 15.10.1).
    const PORT_BITS: u32 = 0x1_0003;

    fn areas(claim: &Claim, registers: &Registers, words: &Words) -> Vec<Area> {
        locate::areas(claim, registers, words)
    }

    fn block(words: &Words, vmcb: u64) -> Option<Block> {
        let at = |field| words.word(vmcb + field);
        let frames = |first: u64, count, what| (0..count).map(move |n| (first + n * PAGE, what));
        Some(Block {
            root: at(N_CR3)?,
            maps: frames(at(IOPM_BASE)?, 3, PORTS)
                .chain(frames(at(MSRPM_BASE)?, 2, MSRS))
                .collect(),
            tag: at(GUEST_ASID)? & 0xFFFF_FFFF,
            launched: at(WORD_3 & !7)? >> 32 != 0,
        })
    }

    // Nested paging with its sandbox's tables, everything intercepted that must be.
    fn judge(words: &Words, sandbox: &Sandbox, area: &Area, first: &Block) -> Wrong {
        let at = |field: u64| words.word(area.block + field).unwrap_or(0);
        let half = |field: u64| at(field & !7) >> (field % 8 * 8) & 0xFFFF_FFFF;
        let mut wrong = Vec::new();
        for (field, bits, rule) in NEEDED {
            let left = if sandbox.running && *field == WORD_4 { IDLES } else { 0 };
            let bits = bits & !left;
            let lacks = bits & !half(*field);
            if lacks != 0 {
                let right = format!("{bits:#x} set at {field:#x}");
                wrong.push((*rule, format!("intercepts at {field:#x} lack {lacks:#x}"), right));
            }
        }
        if (half(WORD_3) & INIT == 0) != sandbox.taken {
            let right = if sandbox.taken { "not intercepted" } else { "intercepted" };
            let what = format!("intercepts at {WORD_3:#x} are {:#x}", half(WORD_3));
            wrong.push((REST, what, format!("INIT {right}")));
        }
        let maps = [PORTS, MSRS].map(|map| first.map(map));
        for (field, root) in [(IOPM_BASE, maps[0]), (MSRPM_BASE, maps[1]), (N_CR3, first.root)] {
            if at(field) != root {
                let what = format!("the table at {field:#x} is {:#x}", at(field));
                wrong.push((REST, what, format!("{root:#x}, as for its other cores")));
            }
        }
        if at(NESTED_CTL) != 1 || at(V_INTR) & AVIC != 0 || at(LBR_VIRTUALIZATION) != 0 {
            let what = format!("nested control {:#x}, V_INTR {:#x}", at(NESTED_CTL), at(V_INTR));
            wrong.push((REST, what, "nested paging alone".into()));
        }
        wrong
    }

    fn msrs(range: u32) -> Option<[u64; 3]> {
        match range {
            0 => Some([0, 1, 2]),
            0xC000_0000 => Some([0x4000, 0x4001, 2]),
            0xC001_0000 => Some([0x8000, 0x8001, 2]),
            _ => None,
        }
    }
}
