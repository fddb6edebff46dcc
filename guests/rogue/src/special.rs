//! Attacks that need a few lines of their own.

use crate::aim::Aim;
use crate::expect::Got;
use bulkhead_sdk::fault::{self, Fault, catch, try_rdmsr, try_wrmsr};
use bulkhead_sdk::{apic, cpu, hypercall, interrupt, layout, paging, time, user};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// An instruction with its operands' registers cleared, so that nothing of this
/// program is at stake if it should be carried out.
macro_rules! instruction {
    ($name:ident, $doc:literal, $text:literal) => {
        #[doc = $doc]
        pub fn $name(_: &Aim) -> Got {
            // SAFETY: an attack; it would change hidden state of the core.
            unsafe {
                catch(|| {
                    asm!($text,
                        inout("rax") 0x8_0000u64 => _,
                        inout("rcx") 0u64 => _,
                        inout("rdx") 0u64 => _);
                })
            }
            .map(|()| 0)
        }
    };
}

instruction!(vmrun, "VMRUN, of a page of the own RAM.", "vmrun");
instruction!(vmload, "VMLOAD.", "vmload");
instruction!(vmsave, "VMSAVE.", "vmsave");
instruction!(stgi, "STGI.", "stgi");
instruction!(clgi, "CLGI.", "clgi");
instruction!(skinit, "SKINIT.", ".byte 0x0f, 0x01, 0xde");
instruction!(invlpga, "INVLPGA.", ".byte 0x0f, 0x01, 0xdf");
instruction!(invlpgb, "INVLPGB.", ".byte 0x0f, 0x01, 0xfe");
instruction!(rsm, "RSM.", ".byte 0x0f, 0xaa");
instruction!(monitor, "MONITOR.", ".byte 0x0f, 0x01, 0xc8");
instruction!(mwait, "MWAIT.", ".byte 0x0f, 0x01, 0xc9");
instruction!(invd, "INVD.", "invd");
instruction!(wbinvd, "WBINVD.", "wbinvd");
instruction!(intels_call, "VMCALL, Intel's.", ".byte 0x0f, 0x01, 0xc1");
instruction!(amds_call, "VMMCALL, AMD's.", ".byte 0x0f, 0x01, 0xd9");
instruction!(getsec, "GETSEC, Intel's.", ".byte 0x0f, 0x37");

instruction!(rdpmc, "RDPMC, of the first counter.", "rdpmc");
instruction!(rdpru, "RDPRU, of the first register.", ".byte 0x0f, 0x01, 0xfd");

/// The hypercall of the vendor that the processor is not of.
pub fn vmcall(aim: &Aim) -> Got {
    if aim.is_vtx() { amds_call(aim) } else { intels_call(aim) }
}

/// RDPMC and RDPRU. They are not intercepted: the processor carries them out, or has no such instruction.
pub fn counters(aim: &Aim) -> Got {
    for result in [rdpmc(aim), rdpru(aim)] {
        match result {
            Err(fault) if fault.vector == fault::UD => {}
            other => _ = other?,
        }
    }
    Ok(0)
}

/// Locked accesses that cross a cache line, many of them: the processor carries them out, and no monitor stops them.
pub fn split_lock(_: &Aim) -> Got {
    const MANY: u32 = 1000;
    let mut words = [0u64; 24];
    let first = words.as_mut_ptr() as u64;
    let across = first.next_multiple_of(64) + 62;
    // SAFETY: four bytes of the 192, of which at most 63 lie before the first whole line.
    unsafe {
        catch(|| {
            for _ in 0..MANY {
                asm!("lock inc dword ptr [{}]", in(reg) across);
            }
        })?;
    }
    // SAFETY: four bytes of the 192, of which at most 63 lie before the first whole line.
    let count = unsafe { (across as *const u32).read_unaligned() };
    Ok(u64::from(count != MANY))
}

/// A string instruction to a port.
pub fn outs(_: &Aim) -> Got {
    let bytes = [0xFEu8; 4];
    // SAFETY: reads the four bytes.
    unsafe {
        catch(|| {
            asm!("rep outsb", in("dx") 0x64u16,
                inout("rsi") bytes.as_ptr() => _, inout("rcx") 4u64 => _);
        })
    }
    .map(|()| 0)
}

/// A string instruction from a port; returns the bytes that arrived.
pub fn ins(_: &Aim) -> Got {
    let mut bytes = [0u8; 8];
    let first = bytes.as_mut_ptr();
    // SAFETY: writes at most the eight bytes.
    unsafe {
        catch(|| {
            asm!("rep insb", in("dx") 0x60u16,
                inout("rdi") first => _, inout("rcx") 8u64 => _);
        })
    }
    .map(|()| u64::from_le_bytes(bytes))
}

/// Page tables in memory that is not the sandbox's: the CPU's own walk is confined too.
pub fn tables_outside(aim: &Aim) -> Got {
    let root = aim.at(crate::Place::AfterRam);
    // SAFETY: if the walk is not confined, this program ends here.
    unsafe {
        catch(|| asm!("mov cr3, {}", "mov al, [rip]", in(reg) root, out("al") _, options(nostack)))
    }
    .map(|()| 0)
}

/// An IDT that begins in memory and ends beyond it, where the entry of #UD is. The processor delivers that exception
/// from memory that is not the sandbox's.
pub fn event_outside(aim: &Aim) -> Got {
    /// Bytes before the entry of vector 6.
    const BEFORE: u64 = 6 * 16;
    let base = aim.at(crate::Place::AfterRam) - BEFORE;
    let word = |n: u32| (base >> (16 * n)) as u16;
    let pointer = [0xFFF, word(0), word(1), word(2), word(3)];
    // SAFETY: if the delivery is not confined, this program ends there.
    unsafe { catch(|| asm!("lidt [{}]", "ud2", in(reg) &pointer, options(nostack))) }.map(|()| 0)
}

/// An IDT of no entries, then an interrupt.
pub fn triple_fault(_: &Aim) -> Got {
    let pointer = [0u16; 5];
    // SAFETY: ends this life.
    unsafe {
        asm!("cli", "lidt [{}]", "int3", in(reg) &pointer, options(noreturn));
    }
}

/// A hypercall from CPL 3 that would be granted to the kernel.
pub fn call_from_user(_: &Aim) -> Got {
    paging::map_everything();
    user::hypercall(layout::hypercall::CONSOLE, 0)
}

/// EXIT from CPL 3: only a kernel may end its sandbox.
pub fn exit_from_user(_: &Aim) -> Got {
    paging::map_everything();
    user::hypercall(layout::hypercall::EXIT, 66)
}

/// A request of another sandbox's monitor, 5,000 times without a pause. How many were followed.
pub fn flood<const REQUEST: u64>(aim: &Aim) -> Got {
    use layout::hypercall::{CONTROL, OK};
    let ask = || hypercall::raw(CONTROL, u64::from(aim.sandbox), REQUEST, 0, 0);
    Ok((0..5_000).filter(|_| ask() == OK).count() as u64)
}

/// The local vector table with a delivery mode that would reach SMM or the
/// monitor's NMI handler: unmasked it must not be. Returns 1 if it is.
fn lvt(register: u32, mode: u64) -> Got {
    // SAFETY: at worst an interrupt comes, and its vector has an entry.
    unsafe { try_wrmsr(register, mode << 8 | 0x40)? };
    let stored = try_rdmsr(register)?;
    let armed = stored & apic::MASKED == 0 && stored >> 8 & 7 == mode;
    Ok(u64::from(armed))
}

/// LINT0 as SMI.
pub fn lvt_smi(_: &Aim) -> Got {
    lvt(apic::LVT_LINT0, 0b010)
}

/// The timer as NMI: it would ring the monitor's doorbell.
pub fn lvt_nmi(_: &Aim) -> Got {
    let result = lvt(apic::LVT_TIMER, 0b100);
    time::arm(time::counter() + 10_000);
    spin(100_000);
    time::disarm();
    result
}

/// LINT1 as INIT.
pub fn lvt_init(_: &Aim) -> Got {
    lvt(0x836, 0b101)
}

/// LINT0 as ExtINT: the machine's PIC.
pub fn lvt_extint(_: &Aim) -> Got {
    lvt(apic::LVT_LINT0, 0b111)
}

fn spin(ticks: u64) {
    let end = time::counter() + ticks;
    while time::counter() < end {
        core::hint::spin_loop();
    }
}

static ARRIVED: AtomicU64 = AtomicU64::new(0);

fn arrive(_: &mut interrupt::Frame, _: u64) {
    ARRIVED.fetch_add(1, Ordering::Relaxed);
}

/// An ICR value with which an interrupt should come to the sandbox's own cores
/// only: returns how many came to this one.
fn ipi_to_own(icr: u64) -> Got {
    const VECTOR: u8 = 0x50;
    interrupt::set(VECTOR, arrive);
    interrupt::enable();
    // SAFETY: the vector has a handler.
    let sent = unsafe { try_wrmsr(apic::ICR, icr | u64::from(VECTOR)) };
    spin(100_000);
    interrupt::disable();
    sent.map(|()| ARRIVED.load(Ordering::Relaxed))
}

/// Shorthand "all including self": every core of the machine, for the hardware.
pub fn ipi_all(_: &Aim) -> Got {
    ipi_to_own(2 << 18)
}

/// Shorthand "all but self".
pub fn ipi_others(_: &Aim) -> Got {
    ipi_to_own(3 << 18)
}

/// Physical broadcast.
pub fn ipi_broadcast(_: &Aim) -> Got {
    ipi_to_own(0xFFFF_FFFF << 32)
}

/// XCR0 with nothing, and with everything.
pub fn xcr0(_: &Aim) -> Got {
    const OSXSAVE: u32 = 1 << 26;
    if cpu::cpuid(1, 0)[2] & OSXSAVE == 0 {
        return Err(Fault { vector: fault::GP, ..Fault::default() });
    }
    // SAFETY: this program uses no extended state.
    unsafe {
        catch(|| {
            asm!("mov {t}, cr4", "bts {t}, 18", "mov cr4, {t}", t = out(reg) _, options(nostack));
            asm!("xsetbv", in("ecx") 0, in("eax") 0, in("edx") 0, options(nostack));
        })
    }
    .map(|()| 0)
}

/// A register that does not exist: XCR 7.
pub fn xcr7(_: &Aim) -> Got {
    // SAFETY: this program uses no extended state.
    unsafe {
        catch(|| {
            asm!("mov {t}, cr4", "bts {t}, 18", "mov cr4, {t}", t = out(reg) _, options(nostack));
            asm!("xsetbv", in("ecx") 7, in("eax") 1, in("edx") 0, options(nostack));
        })
    }
    .map(|()| 0)
}

/// Machine check and performance counter bits of CR4, and caching off in CR0.
pub fn control_bits(_: &Aim) -> Got {
    let (cr0, cr4) = (cpu::cr0(), cpu::cr4());
    // SAFETY: none of the bits matters to this program; both are restored.
    unsafe {
        catch(|| {
            asm!("mov cr4, {}", in(reg) cr4 | 1 << 6 | 1 << 8, options(nostack));
            asm!("mov cr0, {}", in(reg) cr0 | 1 << 30, options(nostack));
            asm!("mov cr0, {}", "mov cr4, {}", in(reg) cr0, in(reg) cr4, options(nostack));
        })
    }
    .map(|()| 0)
}

/// General detect and breakpoints everywhere: they are this core's own.
pub fn debug_registers(_: &Aim) -> Got {
    // SAFETY: the #DB of the general detect bit is caught.
    let result = unsafe {
        catch(|| {
            asm!("mov dr7, {}", "mov {}, dr6", in(reg) 0x2400u64, out(reg) _, options(nostack));
        })
    };
    // SAFETY: switches breakpoints off; #DB has cleared the detect bit.
    unsafe { asm!("mov dr7, {}", in(reg) 0x400u64, options(nostack)) };
    result.map(|()| 0)
}

static DEBUGGED: AtomicU64 = AtomicU64::new(0);

fn debug_again(frame: &mut interrupt::Frame, _: u64) {
    /// Trap flag: raise #DB again after the next instruction.
    const TF: u64 = 1 << 8;
    if DEBUGGED.fetch_add(1, Ordering::Relaxed) < 1_000 {
        frame.rflags |= TF;
    } else {
        frame.rflags &= !TF;
    }
}

/// A thousand #DB in a row, each intercepted by the monitor: the doorbell must
/// stay reachable. Returns 0 if all were delivered.
pub fn debug_storm(_: &Aim) -> Got {
    interrupt::set(fault::DB, debug_again);
    // SAFETY: the handler ends the single steps.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop") };
    for n in 0..2_000u64 {
        core::hint::black_box(n);
    }
    Ok(u64::from(DEBUGGED.load(Ordering::Relaxed) < 1_000))
}

static ALIGNED: AtomicU64 = AtomicU64::new(0);

/// #AC from CPL 0 cannot be; `int 17` is the nearest thing: a thousand of them.
pub fn alignment_storm(_: &Aim) -> Got {
    fn count(_: &mut interrupt::Frame, _: u64) {
        ALIGNED.fetch_add(1, Ordering::Relaxed);
    }
    // A software interrupt pushes no error code, and the entry of vector 17 expects one. So it is pushed by hand under
    // a frame that IRETQ takes.
    interrupt::set(fault::AC, count);
    for _ in 0..1_000 {
        // SAFETY: builds the frame of an exception and calls its entry; IRETQ
        // comes back to label 2 with the stack as it was.
        unsafe {
            asm!(
                "mov {t}, rsp",
                "push {ss}",
                "push {t}",
                "pushfq",
                "push {cs}",
                "lea {t}, [rip + 2f]",
                "push {t}",
                "push 0",
                "lea {t}, [rip + bulkhead_vectors]",
                "add {t}, 17 * 16",
                "jmp {t}",
                "2:",
                t = out(reg) _,
                ss = in(reg) 0x10u64,
                cs = in(reg) 0x08u64,
            );
        }
    }
    Ok(u64::from(ALIGNED.load(Ordering::Relaxed) != 1_000))
}

/// A flood of interrupts to oneself: no exit, and no other sandbox's time.
pub fn self_flood(_: &Aim) -> Got {
    const VECTOR: u8 = 0x51;
    interrupt::set(VECTOR, arrive);
    interrupt::enable();
    for _ in 0..1_000 {
        apic::ipi_self(VECTOR);
    }
    interrupt::disable();
    Ok(0)
}

/// Spins with interrupts off.
pub fn spin_for_ever(_: &Aim) -> Got {
    interrupt::disable();
    loop {
        core::hint::spin_loop();
    }
}

/// Sleeps with interrupts off.
pub fn halt_for_ever(_: &Aim) -> Got {
    loop {
        // SAFETY: nothing comes after it.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}

/// Hypercalls without end.
pub fn call_for_ever(_: &Aim) -> Got {
    loop {
        bulkhead_sdk::hypercall::null();
    }
}

/// An exception with a handler that does nothing about it: it is raised again, for ever.
pub fn fault_for_ever(_: &Aim) -> Got {
    fn again(_: &mut interrupt::Frame, _: u64) {}
    interrupt::set(fault::UD, again);
    // SAFETY: the handler returns to this instruction each time.
    unsafe { asm!("ud2", options(noreturn)) }
}
