//! Starts a guest on the bare machine, as its sandbox's monitor would, but with
//! no SVM: the baseline of every comparison. The input
//! ([`bulkhead_layout::x86::bareload`]) is the first multiboot module. Secondary cores
//! are left waiting for their SIPI.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod bare {
    use bulkhead_layout::marker::{EVENT, id};
    use bulkhead_layout::x86::bareload::{Header, LOADER_PA, MAGIC, Piece};
    use core::arch::asm;
    use harness_bare::{cpu, mark, println, start};

    pub fn main(boot: start::Boot) -> ! {
        let Some(module) = boot.module() else { fail("no module: start it with -initrd FILE") };
        let base = u64::from(module.start);
        if base < LOADER_PA {
            fail("the module lies where a guest may be loaded")
        }
        // SAFETY: the module is RAM that the loader filled and nobody writes.
        let header = unsafe { (base as *const Header).read_unaligned() };
        if header.magic != MAGIC {
            fail("the module is no input of this loader")
        }
        open_firmware_memory();
        for zone in header.zero {
            check(zone.start, zone.len);
            // SAFETY: RAM below the loader, as checked; nothing else lives there.
            unsafe { core::ptr::write_bytes(zone.start as *mut u8, 0, zone.len as usize) }
        }
        let size = u64::from(module.end) - base;
        for n in 0..header.pieces {
            let at = base + (size_of::<Header>() + n as usize * size_of::<Piece>()) as u64;
            // SAFETY: in the module; a wrong count reads RAM beyond it at worst.
            load(base, size, unsafe { (at as *const Piece).read_unaligned() });
        }
        println!("bareload: {} pieces, entry {:#x}", header.pieces, header.rip);
        mark!(EVENT | id::ENTRY, cpu::rdtsc());
        // SAFETY: the input says so; this program ends here.
        unsafe { enter(&header) }
    }

    fn load(base: u64, size: u64, piece: Piece) {
        check(piece.gpa, piece.len);
        if piece.offset.checked_add(piece.len).is_none_or(|end| end > size) {
            fail("a piece lies outside the module")
        }
        let from = (base + piece.offset) as *const u8;
        // SAFETY: source inside the module, destination below the loader.
        unsafe { core::ptr::copy(from, piece.gpa as *mut u8, piece.len as usize) }
    }

    fn check(start: u64, len: u64) {
        if start.checked_add(len).is_none_or(|end| end > LOADER_PA) {
            fail("guest memory reaches the loader")
        }
    }

    fn fail(why: &str) -> ! {
        println!("bareload: {why}");
        cpu::power_off()
    }

    /// Makes 0xC0000 to 0xFFFFF plain RAM, where a sandbox's guest has its ACPI
    /// tables: the PAM registers of q35's host bridge, 0x90 to 0x96.
    fn open_firmware_memory() {
        for (register, value) in [(0x90u32, 0x3333_3330u32), (0x94, 0x0033_3333)] {
            // SAFETY: configuration mechanism #1 on a machine without other users.
            unsafe {
                asm!("out dx, eax", in("dx") 0xCF8u16, in("eax") 0x8000_0000 | register);
                let old: u32;
                asm!("in eax, dx", in("dx") 0xCFCu16, out("eax") old);
                let kept = if register == 0x94 { old & 0xFF00_0000 } else { old & 0xF };
                asm!("out dx, eax", in("dx") 0xCFCu16, in("eax") value | kept);
            }
        }
    }

    /// Becomes the guest.
    unsafe fn enter(header: &Header) -> ! {
        let mut gdtr = [0u8; 10];
        gdtr[..2].copy_from_slice(&(header.gdt_limit as u16).to_le_bytes());
        gdtr[2..].copy_from_slice(&header.gdt.to_le_bytes());
        let no_idt = [0u8; 10];
        // SAFETY: the caller's. The loader is identity-mapped below 4 GiB in the
        // guest's tables too, so the next instructions are still there. IRET takes
        // all from the loader's stack and leaves the guest's as it is.
        unsafe {
            asm!(
                "mov cr0, {cr0}",
                "mov cr4, {cr4}",
                "mov cr3, {cr3}",
                "lgdt [{gdtr}]",
                "lidt [{idtr}]",
                "push 0x18",
                "push {rsp}",
                "push 2",
                "push 0x10",
                "push {rip}",
                "mov eax, 0x18",
                "mov ds, eax", "mov es, eax", "mov ss, eax", "mov fs, eax", "mov gs, eax",
                "xor eax, eax", "xor ebx, ebx", "xor ecx, ecx", "xor edx, edx", "xor ebp, ebp",
                "iretq",
                cr0 = in(reg) 0x8001_0033u64, cr4 = in(reg) 0x620u64,
                cr3 = in(reg) header.cr3, gdtr = in(reg) &gdtr, idtr = in(reg) &no_idt,
                rsp = in(reg) header.rsp, rip = in(reg) header.rip,
                in("rdi") header.rdi, in("rsi") header.rsi,
                options(noreturn)
            )
        }
    }
}

#[cfg(target_os = "none")]
use bare::main;
harness_bare::entry!(main);
