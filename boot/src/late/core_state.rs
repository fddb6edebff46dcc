//! State of a core that runs Linux, on its way into its monitor. The control block gets it, beside the part that
//! confines the guest, which the host has written. The processor goes to the state in which a monitor expects it.

use crate::apic;
use bulkhead_arch::CoreStart;
use bulkhead_cpu_x86::{cpuid, rdmsr};
use bulkhead_handover::image::Sandbox;
use bulkhead_handover::x86::{Header, TRAMPOLINE_PA};
use bulkhead_monitor_abi::map::{GUEST_VA, MMIO_VA};
use bulkhead_monitor_abi_x86::{msr, vmcb, xapic};
use core::arch::asm;

const CR4_LA57: u64 = 1 << 12;
const CR4_CET: u64 = 1 << 23;
/// Root of the nested tables, in a control block.
const N_CR3: u64 = 0x0B0;
/// 2 MiB: the largest page in the nested tables of this sandbox.
const LARGE: u64 = 2 << 20;
const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;
/// Fields of a control block.
const ES: u16 = 0x400;
const SS: u16 = 0x420;
const DS: u16 = 0x430;
const GDTR: u16 = 0x460;
const IDTR: u16 = 0x480;
const DR7: u16 = 0x560;
const DR6: u16 = 0x568;
const RFLAGS: u16 = 0x570;
const CR2: u16 = 0x640;
const G_PAT: u16 = 0x668;
/// Attributes of a flat data segment.
const DATA: u64 = 0xC93;

/// Looks for what a monitor would not carry over.
pub fn check() -> Result<(), &'static str> {
    // SAFETY: registers that each processor with SVM has.
    let (apic, efer) = unsafe { (rdmsr(msr::APIC_BASE), rdmsr(msr::EFER)) };
    match apic >> 10 & 3 {
        0b11 => {}
        0b10 if apic & ADDRESS != xapic::PAGE => {
            return Err("the local APIC's page at 0xFEE00000, or x2APIC mode");
        }
        0b10 if apic::load(xapic::DFR) != xapic::FLAT => {
            return Err("flat logical destinations, or x2APIC mode: the Linux uses clusters");
        }
        0b10 => {}
        _ => return Err("a local APIC, which is off"),
    }
    if efer & vmcb::EFER_SVME != 0 {
        return Err("SVM, because somebody else uses it: rmmod kvm_amd");
    }
    let cr4: u64;
    // SAFETY: CR4 is readable at CPL 0.
    unsafe { asm!("mov {}, cr4", out(reg) cr4, options(nostack, nomem)) };
    if cr4 & CR4_LA57 != 0 {
        return Err("page tables of four levels: boot the Linux with no5lvl");
    }
    if cr4 & CR4_CET != 0 {
        return Err("a kernel without shadow stacks: boot the Linux with nousershstk and ibt=off");
    }
    Ok(())
}

/// Takes the block out of the nested tables of the Linux' sandbox, and out of the memory that its monitor reads. In
/// x2APIC mode no core has its registers in the local APIC's page, so that goes, too.
pub fn take(header: &Header, root: &Sandbox) {
    let block = header.block;
    // All its cores have one root.
    let nested = (header.running.start + N_CR3) as *const u64;
    // SAFETY: verified: a control block in the image; the host wrote the root of tables that lie in the image, too.
    let nested = unsafe { nested.read() } & ADDRESS;
    for at in (block.start..block.start + block.len).step_by(LARGE as usize) {
        cut(nested, at, 1);
        cut(root.monitor_root & ADDRESS, GUEST_VA + at, 1);
    }
    for root in io_roots(header) {
        (block.start..block.start + block.len)
            .step_by(LARGE as usize)
            .for_each(|at| cut(root, at, 1));
    }
    if !apic::in_page() {
        cut(nested, xapic::PAGE, 0);
        cut(root.monitor_root & ADDRESS, MMIO_VA + xapic::PAGE, 0);
    }
}

/// Roots of the tables by which functions reach memory of this Linux.
fn io_roots(header: &Header) -> impl Iterator<Item = u64> {
    /// Bytes of an entry of the device table.
    const ENTRY: usize = 32;
    let table = header.iommu.device_table;
    // The Linux is the last sandbox, and domains are numbered from 1.
    let domain = u64::from(header.sandboxes);
    let entries = (table.start..table.start + table.len).step_by(ENTRY);
    entries.filter_map(move |at| {
        // SAFETY: verified: the device table is in the image.
        let [first, second] = [0, 1].map(|n| unsafe { (at as *const u64).add(n).read() });
        (second & 0xFFFF == domain).then_some(first & ADDRESS).filter(|root| *root != 0)
    })
}

/// Returns the physical address of a byte that a monitor's tables map.
pub fn physical(root: u64, at: u64) -> Option<u64> {
    const PRESENT: u64 = 1;
    const LEAF: u64 = 1 << 7;
    let mut table = root & ADDRESS;
    for level in (0..4).rev() {
        let shift = 12 + 9 * level;
        // SAFETY: a table of the image, as for `cut`.
        let entry = unsafe { ((table + (at >> shift & 511) * 8) as *const u64).read() };
        if entry & PRESENT == 0 {
            return None;
        }
        if level == 0 || entry & LEAF != 0 {
            let inside = (1 << shift) - 1;
            return Some(entry & ADDRESS & !inside | at & inside);
        }
        table = entry & ADDRESS;
    }
    None
}

/// Clears the entry of a page, by tables that lie in the image. Level 0 has pages of 4 KiB, level 1 those of 2 MiB, and
/// the host maps with nothing larger here.
fn cut(root: u64, at: u64, level: u32) {
    const PRESENT: u64 = 1;
    let index = |level: u32| (at >> (12 + 9 * level) & 511) * 8;
    let mut table = root;
    for above in (level + 1..4).rev() {
        // SAFETY: a table of the image: the root is, and so is each table that an entry leads to.
        let entry = unsafe { ((table + index(above)) as *const u64).read() };
        if entry & PRESENT == 0 {
            return;
        }
        table = entry & ADDRESS;
    }
    // SAFETY: likewise; no core runs on these tables yet.
    unsafe { ((table + index(level)) as *mut u64).write(0) };
}

/// Pseudo-descriptor, as SGDT and SIDT store it.
#[repr(C, packed)]
#[derive(Default)]
struct Table {
    limit: u16,
    base: u64,
}

/// Returns a segment's attributes as a control block has them; none of a null selector.
fn attributes(selector: u16) -> u64 {
    let (mut rights, found): (u64, u8);
    // SAFETY: reads a descriptor of the core's own table.
    unsafe {
        asm!("lar {r:r}, {s:r}", "setz {f}", s = in(reg) u64::from(selector), r = inout(reg) 0u64 => rights,
             f = out(reg_byte) found, options(nostack));
    }
    if found == 0 {
        rights = 0;
    }
    rights >> 8 & 0xFF | rights >> 12 & 0xF00
}

/// Writes this core's state into its control block. The Linux goes on at `rip` with `rsp`, and 0 in RAX.
pub fn save(block: u64, rsp: u64, rip: u64) {
    let put = |offset: u16, value: u64| {
        // SAFETY: the core's control block, a page of the image.
        unsafe { ((block + u64::from(offset)) as *mut u64).write_volatile(value) }
    };
    let (mut gdt, mut idt) = (Table::default(), Table::default());
    let [cs, ss, ds, es]: [u16; 4];
    let [cr0, cr2, cr3, cr4, dr6, dr7, flags]: [u64; 7];
    // SAFETY: reads registers at CPL 0, and pushes and pops one word.
    unsafe {
        asm!("sgdt [{}]", in(reg) &raw mut gdt, options(nostack));
        asm!("sidt [{}]", in(reg) &raw mut idt, options(nostack));
        asm!("mov {0:x}, cs", "mov {1:x}, ss", "mov {2:x}, ds", "mov {3:x}, es",
             out(reg) cs, out(reg) ss, out(reg) ds, out(reg) es, options(nostack, nomem));
        asm!("mov {}, cr0", "mov {}, cr2", "mov {}, cr3", "mov {}, cr4",
             out(reg) cr0, out(reg) cr2, out(reg) cr3, out(reg) cr4, options(nostack, nomem));
        asm!("mov {}, dr6", "mov {}, dr7", out(reg) dr6, out(reg) dr7, options(nostack, nomem));
        asm!("pushfq", "pop {}", out(reg) flags);
    }
    let segment = |at: u16, selector: u16, rights: u64| {
        put(at, u64::from(selector) | rights << 16 | 0xFFFF_FFFF << 32);
        put(at + 8, 0);
    };
    segment(vmcb::CS, cs, attributes(cs));
    // A null selector is a right one of 64-bit code; the processor wants a segment that is there.
    segment(SS, ss, if ss & !3 == 0 { DATA } else { attributes(ss) });
    segment(DS, ds, attributes(ds));
    segment(ES, es, attributes(es));
    for (at, table) in [(GDTR, gdt), (IDTR, idt)] {
        put(at, u64::from(table.limit) << 32);
        put(at + 8, table.base);
    }
    // SAFETY: registers that each processor with SVM has.
    let (efer, pat) = unsafe { (rdmsr(msr::EFER), rdmsr(0x277)) };
    let words = [
        (vmcb::EFER, efer | vmcb::EFER_SVME),
        (vmcb::CR0, cr0),
        (CR2, cr2),
        (vmcb::CR3, cr3),
        (vmcb::CR4, cr4),
        (DR6, dr6),
        (DR7, dr7),
        (RFLAGS, flags & !(1 << 9)),
        (G_PAT, pat),
        (vmcb::RIP, rip),
        (vmcb::RSP, rsp),
        (vmcb::RAX, 0),
        // Clean bits: the processor has nothing of this block yet.
        (vmcb::CLEAN, 0),
    ];
    words.into_iter().for_each(|(offset, value)| put(offset, value));
    // FS to TR, and the registers of system calls, stay in the processor: no exit switches them.
}

/// Takes the core into its monitor.
pub fn leave(start: CoreStart) -> ! {
    // PAE, and SSE as the boot code leaves it to monitors; OSXSAVE where it is, so that XCR0 stays valid.
    const CR4: u64 = 0x620;
    let gdt = Table { limit: 31, base: TRAMPOLINE_PA + crate::trampoline::GDT };
    let osxsave = u64::from(cpuid(1, 0).ecx >> 26 & 1) << 18;
    // SAFETY: the start-up page has this descriptor table, and its code at 0x18 and data at 0x10. A monitor's pages are
    // user pages: SMEP and SMAP go with CR4. `start` was verified to be this core's monitor.
    unsafe {
        asm!(
            "lgdt [{gdt}]",
            "mov ss, {data:e}",
            "mov ds, {data:e}",
            "mov es, {data:e}",
            "push 0x18",
            "lea {t}, [rip + 2f]",
            "push {t}",
            "retfq",
            "2:",
            "mov cr4, {cr4}",
            "jmp {away}",
            gdt = in(reg) &raw const gdt,
            data = in(reg) 0x10u64,
            t = in(reg) 0u64,
            cr4 = in(reg) CR4 | osxsave,
            away = in(reg) crate::trampoline::leave_at(),
            in("rdi") start.root,
            in("rsi") start.entry,
            in("rdx") start.stack,
            options(noreturn)
        )
    }
}
