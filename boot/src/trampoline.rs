//! Start-up code for cores, in one page below 1 MiB. It stays after the launch: a core that a peer has taken from a
//! monitor that has stopped enters the spare one through it. Any other core that comes again rests here. Monitors map
//! the page read-only; its table says where each core goes.
//!
//! A core that is taken has ticks and doorbells, which are NMIs, at any instruction of this code. So there are vectors
//! for each mode of the processor on the way. No handler returns: it begins its part of the way anew. NMIs are blocked
//! then, until the IRET into the monitor.

use bulkhead_arch::CoreStart;
use bulkhead_handover::map::VECTORS_VA;
use bulkhead_handover::x86::TRAMPOLINE_PA;

/// A core's entry in the page's table.
#[repr(C)]
struct Slot {
    id: u32,
    /// Physical address below 4 GiB.
    /// 32-bit code loads CR3 with it.
    root: u32,
    entry: u64,
    stack: u64,
    /// Set to 1 by the core on its way.
    arrived: u32,
    /// 1: a core that comes again goes where the next slot says, which no ID leads to.
    spare: u32,
}

const _: () = assert!(size_of::<Slot>() == 32);
const TABLE: u64 = 0x200;
/// Where the descriptor table lies; two pointers to it follow, for 32 and 64 bits.
pub const GDT: u64 = 0x180;
/// Word that keeps cores from their monitors while it is not 0.
pub const HELD: u64 = TRAMPOLINE_PA + GDT + 40;
/// Where the vectors lie: those of an NMI for 16, 32 and 64 bits have places beside each other. A pointer to them
/// follows, and one to the monitors' own.
const VECTORS: u64 = 0x1C0;
/// The processor pushes below this offset at an NMI, until there is a monitor's stack.
const PUSHED: u64 = 4096;
/// Slots that fit into the page below that; the one after the last used one has ID `u32::MAX`.
const SLOTS: usize = (PUSHED as usize - 64 - TABLE as usize) / size_of::<Slot>() - 1;
/// Vector of an NMI in the table of real mode that a core has after an INIT.
const REAL_NMI: *mut u32 = 8 as *mut u32;

core::arch::global_asm!(
    ".section .rodata",
    ".balign 16",
    "trampoline:",
    ".code16",
    "   cli",
    "   cld",
    // A SIPI enters in real mode, with CS = 0x0800 and IP = 0. With DS = 0 the offsets below are physical addresses.
    "   xor ax, ax",
    "   mov ds, ax",
    "   mov ss, ax",
    "   mov sp, {base} + {pushed}",
    "   lidtd [{base} + {vectors} + 48]",
    "   lgdtd [{base} + {gdt} + 32]",
    // Protection alone: paging waits for the tables of this core's monitor.
    "   mov eax, 1",
    "   mov cr0, eax",
    // As bytes: the code runs at its place in the page, and is linked elsewhere.
    "   .byte 0x66, 0xEA", // far jump, 32-bit offset
    "   .long {base} + trampoline32 - trampoline",
    "   .word 0x08",
    ".code32",
    "trampoline32:",
    "   mov eax, 0x10",
    "   mov ds, eax",
    "   mov es, eax",
    "   mov ss, eax",
    "   mov esp, {base} + {pushed}",
    // This core's x2APIC ID: leaf 0xB where there is one, else leaf 1.
    "   xor eax, eax",
    "   cpuid",
    "   cmp eax, 0xB",
    "   jb 2f",
    // Leaf 1 has 8 bits of it, and an x2APIC ID may have 32.
    "   mov eax, 0xB",
    "   xor ecx, ecx",
    "   cpuid",
    "   test ebx, ebx",
    "   jnz 3f",
    "2: mov eax, 1",
    "   cpuid",
    "   shr ebx, 24",
    "   mov edx, ebx",
    "3: mov ebx, {base} + {table}",
    // No stack is used on this way, and a core writes its own slot alone: any number of cores may come at once.
    "4: mov eax, [ebx]",
    "   cmp eax, edx",
    "   je 5f",
    "   add ebx, 32",
    "   cmp eax, -1",
    "   jne 4b",
    "   jmp trampoline_rest32",
    "5: cmp dword ptr [ebx + 24], 0",
    "   je 6f",
    // It was here before.
    "   cmp dword ptr [ebx + 28], 1",
    "   jne trampoline_rest32",
    "   add ebx, 32",
    // Written before paging comes on: a monitor's tables map the page read-only.
    "6: mov dword ptr [ebx + 24], 1",
    "8: pause",
    "   cmp dword ptr [{held}], 0",
    "   jne 8b",
    "   mov eax, 0x20", // PAE
    "   mov cr4, eax",
    // The core goes straight into its monitor's tables, so the boot code's are never on here.
    "   mov eax, [ebx + 4]",
    "   mov cr3, eax",
    "   mov ecx, 0xC0000080",
    "   rdmsr",
    "   or eax, 0x900", // LME, NXE
    // No-execute bits are reserved without NXE; the monitor's tables have them.
    "   wrmsr",
    // Without WP: an NMI may still push into this page, which these tables map read-only.
    "   mov eax, 0x80000033",
    "   mov cr0, eax",
    "   .byte 0xEA",
    "   .long {base} + trampoline64 - trampoline",
    "   .word 0x18",
    // A core that no slot names rests here, with interrupts off.
    "trampoline_rest32:",
    "   cli",
    // An SMI may end HLT, so there is a way back into it.
    "   hlt",
    "   jmp trampoline_rest32",
    ".code64",
    "trampoline64:",
    "   xor eax, eax",
    "   mov fs, eax",
    "   mov gs, eax",
    // RSP at last: stacks are mapped by the monitor's tables only.
    "   mov rsp, [rbx + 16]",
    "   lidt [{base} + {vectors} + 54]",
    // WP: pages without the right to write have none in ring 0 either.
    "   mov eax, 0x80010033",
    "   mov cr0, rax",
    // By IRET: it lets NMIs in again, if one came on the way.
    "   mov rax, rsp",
    "   push 0x10",
    "   push rax",
    "   push 2",
    "   push 0x18",
    "   push qword ptr [rbx + 8]",
    "   iretq",
    // An NMI in each of the three modes.
    ".code16",
    "trampoline_nmi16:",
    // Some machines deliver NMIs to a core that waits for its start-up: the code segment is that of a reset then. It
    // goes on waiting, and takes no further NMI.
    "   mov bp, sp",
    "   cmp word ptr [bp + 2], {base} >> 4",
    "   je trampoline",
    "7: cli",
    "   hlt",
    "   jmp 7b",
    ".code32",
    "trampoline_nmi32:",
    "   jmp trampoline32",
    ".code64",
    "trampoline_nmi64:",
    "   jmp trampoline64",
    // RDI = root, RSI = entry, RDX = stack: the first core leaves the boot code.
    "trampoline_leave:",
    // The boot code's own GDT lies where the monitor's tables map nothing. This one is in the page, which they map.
    "   lgdt [{base} + {gdt} + 48]",
    "   mov cr3, rdi",
    "   mov rsp, rdx",
    "   jmp rsi",
    "trampoline_rest:",
    "   cli",
    "   hlt",
    "   jmp trampoline_rest",
    "   .skip {gdt} - (. - trampoline)",
    // Accessed bits are set: the page is read-only later.
    "   .quad 0, 0x00CF9B000000FFFF, 0x00CF93000000FFFF, 0x00AF9B000000FFFF",
    "   .word 31",
    "   .long {base} + {gdt}",
    "   .skip 2",
    "   .long 0",
    "   .skip 4",
    "   .word 31",
    "   .quad {base} + {gdt}",
    "   .skip {vectors} - (. - trampoline)",
    "   .quad 0",
    "   .word trampoline_nmi16 - trampoline, {base} >> 4, 0, 0",
    // Interrupt gates.
    "   .word {base} + trampoline_nmi32 - trampoline, 0x08, 0x8E00, 0",
    "   .quad 0",
    "   .word {base} + trampoline_nmi64 - trampoline, 0x18, 0x8E00, 0, 0, 0, 0, 0",
    "   .word 47",
    "   .long {base} + {vectors}",
    "   .word 0xFFF",
    "   .quad {own}",
    "trampoline_end:",
    ".section .text",
    base = const TRAMPOLINE_PA,
    table = const TABLE,
    gdt = const GDT,
    held = const HELD,
    vectors = const VECTORS,
    pushed = const PUSHED,
    own = const VECTORS_VA,
);

unsafe extern "C" {
    static trampoline: u8;
    static trampoline_end: u8;
    static trampoline_leave: u8;
    static trampoline_rest: u8;
    static trampoline_nmi16: u8;
}

fn slots() -> *mut Slot {
    (TRAMPOLINE_PA + TABLE) as *mut Slot
}

/// Finds where a label of the code lies in the page.
fn at(label: *const u8) -> u64 {
    TRAMPOLINE_PA + (label as u64 - &raw const trampoline as u64)
}

/// Offset of the handler of NMIs in real mode.
fn nmi16() -> u32 {
    (at(&raw const trampoline_nmi16) - TRAMPOLINE_PA) as u32
}

/// Puts the code into its page, with an empty table.
pub fn install() {
    // SAFETY: the page was found to be free RAM; the code is shorter than
    // `TABLE` (a test of the image builder looks at the symbols).
    unsafe {
        let len = &raw const trampoline_end as usize - &raw const trampoline as usize;
        core::ptr::copy_nonoverlapping(
            &raw const trampoline,
            TRAMPOLINE_PA as *mut u8,
            len.min(TABLE as usize),
        );
        for i in 0..=SLOTS {
            // No ID yet: a core that comes uncalled finds no slot and rests.
            (&raw mut (*slots().add(i)).id).write_volatile(u32::MAX);
        }
    }
}

/// An ID that no core has: start-up code finds the end of the table by `u32::MAX`.
const NO_CORE: u32 = u32::MAX - 1;

/// Says where a core goes, and where if it comes again. Returns the number of slots. More cores than fit get the last
/// slot, and do not arrive.
pub fn direct(slot: usize, id: u32, start: CoreStart, spare: Option<CoreStart>) -> usize {
    let fill = |slot: usize, id, start: CoreStart, spare| {
        // SAFETY: inside the page; the core that reads it is not started yet.
        unsafe {
            let place = slots().add(slot.min(SLOTS - 1));
            place.write_volatile(Slot {
                id,
                root: start.root as u32,
                entry: start.entry,
                stack: start.stack,
                arrived: 0,
                spare,
            });
        }
    };
    let spare = spare.filter(|_| slot + 1 < SLOTS);
    // Behind the first one, and before a core looks.
    if let Some(again) = spare {
        fill(slot + 1, NO_CORE, again, 0);
        // An NMI before the first instruction finds the firmware's table, and begins the way anew.
        // SAFETY: the launch was verified: this page is RAM, the firmware is gone, and nobody else has it.
        unsafe { REAL_NMI.write_volatile((TRAMPOLINE_PA as u32) << 12 | nmi16()) };
    }
    fill(slot, id, start, spare.is_some().into());
    1 + usize::from(spare.is_some())
}

/// Tells if the core of a slot has come here.
pub fn has_arrived(slot: usize) -> bool {
    // SAFETY: inside the page. The read is volatile, since another core writes there.
    unsafe { (&raw const (*slots().add(slot.min(SLOTS - 1))).arrived).read_volatile() == 1 }
}

/// Finds the code by which a core leaves for its monitor: RDI = root, RSI = entry, RDX = stack.
pub fn leave_at() -> u64 {
    at(&raw const trampoline_leave)
}

/// Takes the boot core into its monitor. The page is mapped there too, so it can change the tables under itself.
pub fn leave(start: CoreStart) -> ! {
    // SAFETY: `start` was verified to be this core's monitor; no boot code runs after this.
    unsafe {
        core::arch::asm!("jmp rax", in("rax") leave_at(), in("rdi") start.root,
            in("rsi") start.entry, in("rdx") start.stack, options(noreturn))
    }
}

/// Lets a boot core without a sandbox sleep in the page for good.
pub fn rest() -> ! {
    // SAFETY: that code halts with interrupts off.
    unsafe {
        core::arch::asm!("jmp rax", in("rax") at(&raw const trampoline_rest), options(noreturn))
    }
}
