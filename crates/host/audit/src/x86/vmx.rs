//! VT-x' control block: the VMCS. Encodings of fields, bits of controls and their demands are those of Intel's manual
//! (SDM) volume 3, chapters 25 and 27, appendices A and B. [`super::vmcs`] has the layout in memory. A dump
//! tells each core's current VMCS, which has the host's state.

use super::formats::{Extended, LongMode};
use super::vmcs::Vmcs;
use super::{MSRS, PAGE, PLACES, PORTS, Virtualization};
use crate::arch::{Area, Block, Places, REST, Wrong};
use crate::claim::{Claim, Sandbox};
use crate::memory::{Words, reads};
use crate::paging::{Format, translate};
use crate::registers::Registers;

const VPID: u16 = 0x0000;
const IO_BITMAPS: [u16; 2] = [0x2000, 0x2002];
const MSR_BITMAP: u16 = 0x2004;
const TSC_OFFSET: u16 = 0x2010;
const EPT_POINTER: u16 = 0x201A;
const LINK_POINTER: u16 = 0x2800;
const HOST_EFER: u16 = 0x2C02;
const PIN: u16 = 0x4000;
const PRIMARY: u16 = 0x4002;
const EXCEPTIONS: u16 = 0x4004;
const PAGE_FAULT_MASK: u16 = 0x4006;
const PAGE_FAULT_MATCH: u16 = 0x4008;
const CR3_TARGETS: u16 = 0x400A;
const EXIT: u16 = 0x400C;
const ENTRY: u16 = 0x4012;
const SECONDARY: u16 = 0x401E;
const CR0_MASK: u16 = 0x6000;
const CR4_MASK: u16 = 0x6002;
const GUEST_CR0: u16 = 0x6800;
const GUEST_CR4: u16 = 0x6804;
const HOST_CR0: u16 = 0x6C00;
const HOST_CR3: u16 = 0x6C02;
const HOST_CR4: u16 = 0x6C04;
const HOST_GDTR: u16 = 0x6C0C;
const HOST_IDTR: u16 = 0x6C0E;
const HOST_RSP: u16 = 0x6C14;
const HOST_RIP: u16 = 0x6C16;

/// Lists of MSRs (25.7.2, 25.8.2): number of entries, address of the list, who uses it.
const LISTS: [(u16, u16, &str); 3] = [
    (0x400E, 0x2006, "an exit stores"),
    (0x4010, 0x2008, "an exit loads"),
    (0x4014, 0x200A, "an entry loads"),
];

/// Controls: field, name, bits that must be set, further bits that may be. Those that a processor may demand (default1,
/// A.2 to A.5) do no harm. All of them are exits, or state that an exit or an entry saves and loads.
const CONTROLS: [(u16, &str, u64, u64); 5] = [
    // NMIs exit. External interrupts do not; there are no virtual NMIs and no posted interrupts. The preemption timer
    // is on for a moment, when a doorbell comes with an event.
    (PIN, "pin-based controls", 1 << 3, 0x16 | 1 << 6),
    // MWAIT, I/O bitmaps, MSR bitmaps, MONITOR, secondary controls.
    (PRIMARY, "primary controls", 1 << 10 | 1 << 25 | 1 << 28 | 1 << 29 | 1 << 31, 0x0400_6172),
    // EPT, VPID, WBINVD, unrestricted guest; RDTSCP and INVPCID.
    (SECONDARY, "secondary controls", 1 << 1 | 1 << 5 | 1 << 6 | 1 << 7, 1 << 3 | 1 << 12),
    // Debug controls, 64-bit host, PAT and EFER saved and loaded.
    (EXIT, "exit controls", 1 << 2 | 1 << 9 | 0b1111 << 18, 0x3_6DFF),
    // Debug controls, PAT and EFER loaded; 64-bit guest, which is the guest's own.
    (ENTRY, "entry controls", 1 << 2 | 0b11 << 14, 0x11FF | 1 << 9),
];
/// #DB, #AC, #MC.
const NEEDED_EXCEPTIONS: u64 = 1 << 1 | 1 << 17 | 1 << 18;
/// Page faults exit by their error codes, too.
const PAGE_FAULT: u64 = 1 << 14;
/// NE, NW, CD.
const OWN_CR0: u64 = 1 << 5 | 1 << 29 | 1 << 30;
/// VMXE, SMXE.
const OWN_CR4: u64 = 1 << 13 | 1 << 14;
/// Write-back tables, walks of four levels; no accessed and dirty flags (25.6.11).
const POINTER: u64 = 6 | 3 << 3;
/// PG, WP, PE.
const HOST_CR0_BITS: u64 = 1 << 31 | 1 << 16 | 1;
/// PAE, VMXE.
const HOST_CR4_BITS: u64 = 1 << 5 | 1 << 13;
/// NXE, LMA, LME.
const HOST_EFER_BITS: u64 = 1 << 11 | 1 << 10 | 1 << 8;

/// True if the code at an address reads the reason of an exit, within its first instructions: MOV EAX, 0x4402 and
/// VMREAD RAX, RAX. Exits have to begin so, whatever the monitor.
fn reads_reason(words: &Words, cr3: u64, rip: u64) -> bool {
    const READ: [u8; 8] = [0xB8, 0x02, 0x44, 0, 0, 0x0F, 0x78, 0xC0];
    const FIRST: u64 = 16;
    let at = |va| translate(words, &LongMode, cr3, va);
    let found = |n| at(rip.wrapping_add(n)).is_some_and(|pa| reads(words.memory(), pa, &READ));
    (0..FIRST).any(found)
}

/// Bits of a field of controls that a watchdog needs: the preemption timer, and that an exit saves it.
fn of_watchdog(field: u16) -> u64 {
    match field {
        PIN => 1 << 6,
        EXIT => 1 << 22,
        _ => 0,
    }
}

/// Intel's VT-x.
#[derive(Debug)]
pub struct Vmx;

impl Virtualization for Vmx {
    const PLACES: &Places = &Places { own_page: Some("VMXON region"), ..PLACES };
    const NESTED: &dyn Format = &Extended;
    const COMES_BACK: &str = "where its monitor reads the reason of an exit";
    // An access that goes beyond port FFFFh exits always (SDM 26.1.3).
    const PORT_BITS: u32 = 0x1_0000;

    // The host's state behind each core that has a VMCS.
    fn areas(_: &Claim, registers: &Registers, words: &Words) -> Vec<Area> {
        let cores = registers.cores.iter();
        let all = cores.filter_map(|core| {
            let at = core.own.vmcs?;
            words.word(at)?;
            let vmcs = Vmcs::new(words, at);
            let (root, pc) = (vmcs.field(HOST_CR3), vmcs.field(HOST_RIP));
            Some(Area {
                page: None,
                core: Some(core.number),
                root,
                pc,
                sp: vmcs.field(HOST_RSP),
                tables: vec![("GDTR", vmcs.field(HOST_GDTR)), ("IDTR", vmcs.field(HOST_IDTR))],
                block: at,
                certain: reads_reason(words, root, pc),
            })
        });
        all.collect()
    }

    fn block(words: &Words, at: u64) -> Option<Block> {
        words.word(at)?;
        let vmcs = Vmcs::new(words, at);
        let [first, second] = IO_BITMAPS.map(|field| (vmcs.field(field), PORTS));
        Some(Block {
            root: vmcs.field(EPT_POINTER) & !(PAGE - 1),
            maps: vec![first, second, (vmcs.field(MSR_BITMAP), MSRS)],
            tag: vmcs.field(VPID),
            // A core that was reset and waits has a VMCS that is written and not launched yet.
            launched: vmcs.field(PIN) != 0,
        })
    }

    // EPT with its sandbox's tables, exits for everything that must, and nothing else.
    fn judge(words: &Words, sandbox: &Sandbox, area: &Area, first: &Block) -> Wrong {
        let vmcs = Vmcs::new(words, area.block);
        let mut wrong = Vec::new();
        for (field, name, needed, also) in CONTROLS {
            let is = vmcs.field(field);
            let needed = needed | if sandbox.watched { of_watchdog(field) } else { 0 };
            let (lacks, beyond) = (needed & !is, is & !(needed | also));
            if lacks | beyond != 0 {
                let what = format!("{name} {is:#x} lack {lacks:#x} and have {beyond:#x} too much");
                wrong.push((REST, what, format!("{needed:#x}, and of {also:#x} what is demanded")));
            }
        }
        let mut exactly = |field: u16, what: &str, right: u64| {
            let is = vmcs.field(field);
            if is != right {
                wrong.push((
                    REST,
                    format!("{what} (field {field:#06x}) is {is:#x}"),
                    format!("{right:#x}"),
                ));
            }
        };
        exactly(EPT_POINTER, "the EPT pointer", first.root | POINTER);
        let maps = IO_BITMAPS.into_iter().chain([MSR_BITMAP]);
        for (field, (page, what)) in maps.zip(&first.maps) {
            exactly(field, &format!("the {what}"), *page);
        }
        exactly(CR0_MASK, "the mask of CR0", OWN_CR0);
        exactly(CR4_MASK, "the mask of CR4", OWN_CR4);
        exactly(CR3_TARGETS, "the number of CR3 targets", 0);
        exactly(PAGE_FAULT_MASK, "the mask of page faults", 0);
        exactly(PAGE_FAULT_MATCH, "the match of page faults", 0);
        exactly(TSC_OFFSET, "the offset of the TSC", 0);
        exactly(LINK_POINTER, "the VMCS link pointer", u64::MAX);
        for (number, address, who) in LISTS {
            let (number, at) = (vmcs.field(number), vmcs.field(address));
            if number != 0 {
                let msr = words.word(at & !0xF).unwrap_or(0) & 0xFFFF_FFFF;
                let what = format!("{who} {number} MSRs from {at:#x} on, the first is {msr:#x}");
                wrong.push((REST, what, "no list of MSRs".into()));
            }
        }
        let exceptions = vmcs.field(EXCEPTIONS);
        if exceptions & NEEDED_EXCEPTIONS != NEEDED_EXCEPTIONS || exceptions & PAGE_FAULT != 0 {
            let what = format!("exceptions {exceptions:#x} exit");
            wrong.push((REST, what, format!("{NEEDED_EXCEPTIONS:#x}, and no page fault")));
        }
        let has = |field, bits: u64| vmcs.field(field) & bits;
        // The bits that an exit leaves in CR0 are the monitor's.
        let guest = (has(GUEST_CR0, OWN_CR0), has(GUEST_CR4, OWN_CR4));
        if guest != (1 << 5, 1 << 13) {
            let what = format!("the guest's CR0 and CR4 have {:#x} and {:#x}", guest.0, guest.1);
            wrong.push((REST, what, "NE and VMXE of the monitor's bits".into()));
        }
        for (field, name, bits) in [
            (HOST_CR0, "CR0", HOST_CR0_BITS),
            (HOST_CR4, "CR4", HOST_CR4_BITS),
            (HOST_EFER, "EFER", HOST_EFER_BITS),
        ] {
            if has(field, bits) != bits {
                let what = format!("the monitor's {name} lacks {:#x}", bits & !has(field, bits));
                wrong.push((REST, what, format!("{bits:#x} set")));
            }
        }
        wrong
    }

    fn msrs(range: u32) -> Option<[u64; 3]> {
        match range {
            0 => Some([0, 0x4000, 1]),
            0xC000_0000 => Some([0x2000, 0x6000, 1]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn a_host_comes_back_where_the_reason_is_read() {
        // One page of code, identity-mapped.
        let code = 0x5000;
        let mut memory = Fake::new(&[
            (0x1000, 0x2000 | 1),
            (0x2000, 0x3000 | 1),
            (0x3000, 0x4000 | 1),
            (0x4000 + 5 * 8, code | 1),
        ]);
        // MOV [RSP+0x48], RAX; MOV EAX, 0x4402; VMREAD RAX, RAX.
        memory.set(code, 0x4402_B848_2444_8948);
        memory.set(code + 8, 0xC0_780F_0000);
        let looks = |rip| reads_reason(&Words::new(&memory), 0x1000, rip);
        assert!(looks(code));
        assert!(!looks(code + 8) && !looks(code + 0x100) && !looks(0x9000));
    }

    #[test]
    fn a_block_is_read_from_its_fields() {
        let (at, mut memory) = (0x8000, Fake::default());
        let mut set = |field, value| {
            let place = Vmcs::new(&Words::new(&memory), at).address(field);
            memory.set(place, value);
        };
        set(VPID, 3);
        set(PIN, 0x1E);
        set(IO_BITMAPS[0], 0x1_0000);
        set(IO_BITMAPS[1], 0x1_1000);
        set(MSR_BITMAP, 0x1_2000);
        set(EPT_POINTER, 0x2_0000 | POINTER);
        let block = Vmx::block(&Words::new(&memory), at).expect("memory");
        assert_eq!((block.tag, block.root, block.launched), (3, 0x2_0000, true));
        let maps: Vec<_> = block.maps.iter().map(|(at, _)| *at).collect();
        assert_eq!(maps, [0x1_0000, 0x1_1000, 0x1_2000]);
    }
}
