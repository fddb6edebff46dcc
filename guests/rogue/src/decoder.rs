//! Attacks on the monitor's decoder of MOVs. They show it other instructions at a trapped address, and instructions and
//! page tables that have changed since the processor executed them.
//!
//! For the latter the processor uses an old translation after the tables in memory have changed. Another core would
//! have to change them in the instant between the trap and the decoder's look; here it is certain.

use crate::aim::Aim;
use crate::config::ecam;
use crate::edu::EDU;
use crate::expect::Got;
use bulkhead_sdk::cpu;
use bulkhead_sdk::fault::catch;
use core::arch::{asm, global_asm};

/// A trapped address: a register of the own function.
pub const TRAPPED: u64 = ecam(EDU, 0x800);

/// An instruction with the trapped address in RDI and nothing else at stake.
macro_rules! instruction {
    ($name:ident, $doc:literal, $($text:literal),+) => {
        #[doc = $doc]
        pub fn $name(_: &Aim) -> Got {
            // SAFETY: an attack; registers that it uses are declared, its memory
            // operand is the trapped one.
            unsafe {
                catch(|| {
                    asm!($($text),+,
                        inout("rdi") TRAPPED => _,
                        inout("rsi") TRAPPED => _,
                        inout("rax") 0u64 => _,
                        inout("rcx") 1u64 => _,
                        inout("rdx") 0u64 => _);
                })
            }
            .map(|()| 0)
        }
    };
}

instruction!(rep_stos, "REP STOSD.", "rep stosd");
instruction!(stos, "STOSB.", "stosb");
instruction!(lods, "LODSD.", "lodsd");
instruction!(scas, "REPNE SCASB.", "repne scasb");
instruction!(cmps, "CMPSD.", "cmpsd");
instruction!(or, "OR to memory.", "or dword ptr [rdi], 7");
instruction!(locked, "LOCK ADD.", "lock add dword ptr [rdi], eax");
instruction!(exchange, "XCHG, which locks by itself.", "xchg dword ptr [rdi], eax");
instruction!(compare_exchange, "CMPXCHG.", "cmpxchg dword ptr [rdi], edx");
instruction!(increment, "INC.", "inc byte ptr [rdi]");
instruction!(test, "TEST, a read.", "test dword ptr [rdi], eax");
instruction!(push, "PUSH from memory.", "push qword ptr [rdi]");
instruction!(pop, "POP to memory.", "push rax", "pop qword ptr [rdi]");
instruction!(non_temporal, "MOVNTI.", "movnti dword ptr [rdi], eax");
instruction!(swapped, "MOVBE.", ".byte 0x0f, 0x38, 0xf0, 0x07");
instruction!(segment, "MOV of a segment register.", "mov word ptr [rdi], ds");
instruction!(call, "CALL through memory.", "call qword ptr [rdi]");
instruction!(jump, "JMP through memory.", "jmp qword ptr [rdi]");
instruction!(x87, "FSTP.", "fldz", "fstp dword ptr [rdi]");
instruction!(state, "FXSAVE.", "fxsave [rdi]");
instruction!(descriptor, "SGDT.", "sgdt [rdi]");
instruction!(
    sse_store,
    "MOVUPS to memory.",
    "mov rdx, cr4",
    "or edx, 0x200",
    "mov cr4, rdx",
    "movups xmmword ptr [rdi], xmm0"
);
instruction!(
    sse_load,
    "MOVDQU from memory.",
    "mov rdx, cr4",
    "or edx, 0x200",
    "mov cr4, rdx",
    "movdqu xmm0, xmmword ptr [rdi]"
);

/// A call with the stack in a trapped page.
pub fn stack(_: &Aim) -> Got {
    // SAFETY: an attack that ends this life.
    unsafe { asm!("mov rsp, {}", "call 2f", "2:", in(reg) TRAPPED, options(noreturn)) }
}

/// An exception with the stack in a trapped page: nothing at RIP is the reason.
pub fn exception_stack(_: &Aim) -> Got {
    // SAFETY: an attack that ends this life.
    unsafe { asm!("mov rsp, {}", "int3", in(reg) TRAPPED, options(noreturn)) }
}

/// The own page tables in a trapped page.
pub fn tables(_: &Aim) -> Got {
    // SAFETY: an attack that ends this life.
    unsafe {
        asm!("mov cr3, {}", "mov al, [rip]", in(reg) ecam(EDU, 0), out("al") _, options(nostack));
    }
    Ok(0)
}

// Two instructions at equal places in two pages: a read and a write. The instruction in the upper half of the text is
// executed; the decoder finds the other one.
global_asm!(
    ".section .text.twins, \"ax\"",
    ".balign 4096",
    ".global rogue_twin_read",
    "rogue_twin_read:",
    // The entry of the page tables (RDX) is changed (RCX), and the old translation used.
    "mov [rdx], rcx",
    "mov eax, [rdi]",
    "mov [rdx], rsi",
    "ret",
    ".balign 4096",
    ".global rogue_twin_write",
    "rogue_twin_write:",
    "mov [rdx], rcx",
    "mov [rdi], eax",
    "mov [rdx], rsi",
    "ret",
    ".balign 4096",
    ".previous",
);

unsafe extern "C" {
    static rogue_twin_read: u8;
    static rogue_twin_write: u8;
}

const PRESENT_WRITE: u64 = 3;
const GIB: u64 = 1 << 30;
/// Where pages are seen a second time.
const SECOND: u64 = 255 * GIB;

#[repr(C, align(4096))]
struct Tables(core::cell::UnsafeCell<[[u64; 512]; 2]>);

// SAFETY: written by one core, before it is used.
unsafe impl Sync for Tables {}

static TABLES: Tables = Tables(core::cell::UnsafeCell::new([[0; 512]; 2]));

/// Makes a page visible a second time, as number `slot` (0 to 511). Returns the place of its entry in the page tables,
/// and the second address of `at`.
pub fn second(at: u64, slot: usize) -> (*mut u64, u64) {
    let tables = TABLES.0.get();
    let (directory, leaves) = (tables as u64, tables as u64 + 4096);
    // SAFETY: the tables are those that `map_everything` made: the GiB-wide view is new, and only attacks use it.
    unsafe {
        let top = (cpu::cr3() & !0xFFF) as *const u64;
        let upper = (top.read() & !0xFFF) as *mut u64;
        (*tables)[0][0] = leaves | PRESENT_WRITE;
        (*tables)[1][slot % 512] = at & !0xFFF | PRESENT_WRITE;
        upper.add((SECOND / GIB) as usize).write(directory | PRESENT_WRITE);
        asm!("mov {t}, cr3", "mov cr3, {t}", t = out(reg) _, options(nostack));
        let entry = (&raw mut (*tables)[1]).cast::<u64>().add(slot % 512);
        (entry, SECOND + slot as u64 * 4096 + (at & 0xFFF))
    }
}

/// Executes `code` at its second address; meanwhile that address leads to `instead`.
fn behind_its_back(code: u64, instead: u64) -> Got {
    with_entry(code, instead | PRESENT_WRITE)
}

/// Executes `code` at its second address; meanwhile the address has this entry.
fn with_entry(code: u64, meanwhile: u64) -> Got {
    let (entry, at) = second(code, 0);
    // SAFETY: an attack; no other code uses this view.
    unsafe {
        catch(|| {
            asm!("call {}", in(reg) at,
                inout("rax") 0u64 => _,
                in("rdi") TRAPPED,
                in("rdx") entry,
                in("rcx") meanwhile,
                in("rsi") code & !0xFFF | PRESENT_WRITE,
                clobber_abi("C"));
        })
    }
    .map(|()| 0)
}

/// A read is executed, a write is found.
pub fn write_for_read(_: &Aim) -> Got {
    behind_its_back(&raw const rogue_twin_read as u64, &raw const rogue_twin_write as u64)
}

/// A write is executed, a read is found.
pub fn read_for_write(_: &Aim) -> Got {
    behind_its_back(&raw const rogue_twin_write as u64, &raw const rogue_twin_read as u64)
}

/// The page tables lead out of the own RAM when the decoder walks them.
pub fn code_outside(aim: &Aim) -> Got {
    behind_its_back(&raw const rogue_twin_read as u64, aim.victim & !0xFFF)
}

/// They lead to a trapped page.
pub fn code_in_trapped_page(_: &Aim) -> Got {
    behind_its_back(&raw const rogue_twin_read as u64, ecam(EDU, 0))
}

/// They lead to the place just after the own RAM.
pub fn code_after_ram(aim: &Aim) -> Got {
    behind_its_back(&raw const rogue_twin_read as u64, aim.at(crate::Place::AfterRam))
}

/// Nothing is present any more.
pub fn code_absent(_: &Aim) -> Got {
    with_entry(&raw const rogue_twin_read as u64, 0)
}
