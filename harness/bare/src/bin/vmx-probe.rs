//! Tries an emulator's VT-x, with x2APIC on: first its capability registers' word for it, then each feature. One line a
//! fact on the debug console, `name = value` (docs/decisions/0039-vtx.md).
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod bare {
    use bulkhead_monitor_abi_x86::vmcs::{
        self, entry_control, exit_control, field, msr, pin, primary, secondary,
    };
    use core::arch::{asm, naked_asm};
    use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use harness_bare::{cpu, println, start};

    /// A page-aligned page of words.
    #[repr(C, align(4096))]
    struct Page([AtomicU64; 512]);

    impl Page {
        const fn new() -> Self {
            Self([const { AtomicU64::new(0) }; 512])
        }

        fn pa(&self) -> u64 {
            &raw const *self as u64
        }

        fn set(&self, byte: usize, value: u64) {
            self.0[byte / 8].store(value, SeqCst);
        }
    }

    static VMXON: Page = Page::new();
    static VMCS: Page = Page::new();
    static LAYOUT: Page = Page::new();
    static BITMAP: Page = Page::new();
    static PORTS: [Page; 2] = [const { Page::new() }; 2];
    static LIST: Page = Page::new();
    static EPT: [Page; 5] = [const { Page::new() }; 5];
    static FRAMES: [Page; 2] = [const { Page::new() }; 2];
    static RESULT: AtomicU64 = AtomicU64::new(0);
    static GO: AtomicU64 = AtomicU64::new(0);
    static STACK: [Page; 8] = [const { Page::new() }; 8];

    /// Guest-physical window that EPT redirects.
    const WINDOW: u64 = 0x4000_0000;
    /// A guest-physical address that it doesn't map.
    const HOLE: u64 = 0x8000_0000;

    pub fn main(_: start::Boot) -> ! {
        if !facts() {
            println!("verdict = no VMX");
            cpu::power_off()
        }
        on();
        fields();
        tables();
        reset();
        calls();
        violation();
        stale();
        timer();
        doorbell();
        injection();
        lists();
        performance();
        init();
        println!("verdict = done");
        cpu::power_off()
    }

    fn facts() -> bool {
        let (one, seven) = (cpu::cpuid(1, 0), cpu::cpuid(7, 0));
        let ext = cpu::cpuid(0x8000_0001, 0);
        println!("vmx = {}", one[2] >> 5 & 1);
        println!("x2apic = {}, tsc_deadline = {}", one[2] >> 21 & 1, one[2] >> 24 & 1);
        println!("gib_pages = {}, rdtscp = {}", ext[3] >> 26 & 1, ext[3] >> 27 & 1);
        println!("invpcid = {}, spec_ctrl = {}", seven[1] >> 10 & 1, seven[3] >> 26 & 1);
        println!(
            "xsaves = {}, xcr0 = {:#x}",
            cpu::cpuid(0xD, 1)[0] >> 3 & 1,
            cpu::cpuid(0xD, 0)[0]
        );
        if one[2] >> 5 & 1 == 0 {
            return false;
        }
        println!("feature_control = {:#x}", cpu::rdmsr(msr::FEATURE_CONTROL));
        println!("basic = {:#x}, misc = {:#x}", cpu::rdmsr(msr::BASIC), cpu::rdmsr(msr::MISC));
        for (name, register) in [
            ("pin", msr::TRUE_PIN),
            ("primary", msr::TRUE_PRIMARY),
            ("secondary", msr::SECONDARY),
            ("exit", msr::TRUE_EXIT),
            ("entry", msr::TRUE_ENTRY),
            ("ept_vpid", msr::EPT_VPID),
            ("cr0_fixed0", msr::CR0_FIXED0),
            ("cr4_fixed0", msr::CR4_FIXED0),
            ("cr4_fixed1", msr::CR4_FIXED1),
        ] {
            println!("{name} = {:#018x}", cpu::rdmsr(register));
        }
        let lacks = |wanted, register| vmcs::lacks(wanted, cpu::rdmsr(register));
        println!(
            "lacking = pin {:#x}, primary {:#x}, secondary {:#x}, exit {:#x}, entry {:#x}, ept {:#x}",
            lacks(pin::WANTED | pin::TIMER, msr::TRUE_PIN),
            lacks(primary::WANTED, msr::TRUE_PRIMARY),
            lacks(secondary::WANTED, msr::SECONDARY),
            lacks(exit_control::WANTED, msr::TRUE_EXIT),
            lacks(entry_control::WANTED, msr::TRUE_ENTRY),
            vmcs::ept_vpid::WANTED & !cpu::rdmsr(msr::EPT_VPID)
        );
        true
    }

    fn on() {
        if cpu::rdmsr(msr::FEATURE_CONTROL) & msr::LOCKED == 0 {
            cpu::wrmsr(msr::FEATURE_CONTROL, msr::LOCKED | msr::VMX_OUTSIDE_SMX);
        }
        let revision = cpu::rdmsr(msr::BASIC) & 0x7FFF_FFFF;
        VMXON.set(0, revision);
        VMCS.set(0, revision);
        // SAFETY: VMX is there; the regions are this program's.
        unsafe {
            asm!("mov {t}, cr4", "or {t}, 0x2000", "mov cr4, {t}", t = out(reg) _);
            asm!("vmxon [{}]", in(reg) &VMXON.pa());
            asm!("vmclear [{0}]", "vmptrld [{0}]", in(reg) &VMCS.pa());
        }
    }

    /// The first and the fourth GiB as they are; in the second, one page; the third is a hole.
    fn tables() {
        EPT[0].set(0, EPT[1].pa() | 7);
        EPT[1].set(0, 7 | 6 << 3 | 1 << 7);
        EPT[1].set(8, EPT[2].pa() | 7);
        EPT[1].set(24, 3 << 30 | 7 | 1 << 7);
        EPT[2].set(0, EPT[3].pa() | 7);
        EPT[3].set(0, FRAMES[0].pa() | 7 | 6 << 3);
        FRAMES[0].set(0, 0xAAAA);
        FRAMES[1].set(0, 0xBBBB);
    }

    /// Prints every field that VMREAD knows, and the region's words as they lie in memory. A field has a value of its
    /// own where VMWRITE takes one.
    fn fields() {
        // SAFETY: VMX is on; the regions are this program's, and the other one is current again at the end.
        let current = |page: &Page| unsafe { asm!("vmptrld [{0}]", in(reg) &page.pa()) };
        LAYOUT.set(0, cpu::rdmsr(msr::BASIC) & 0x7FFF_FFFF);
        // SAFETY: VMX is on, and the region is this program's.
        unsafe { asm!("vmclear [{0}]", in(reg) &LAYOUT.pa()) };
        current(&LAYOUT);
        let all = || {
            let groups = (0..16u16).map(|n| (n >> 2) << 13 | (n & 0b11) << 10);
            groups.flat_map(|group| (0..0x40).step_by(2).map(move |field| group | field))
        };
        for field in all() {
            set(field, u64::from(field).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        }
        for field in all() {
            let (value, failed): (u64, u8);
            // SAFETY: the VMCS is current.
            unsafe {
                asm!("vmread {}, {}", "setbe {}", out(reg) value, in(reg) u64::from(field), out(reg_byte) failed)
            };
            if failed == 0 {
                println!("field {field:#x} = {value:#x}");
            }
        }
        for (n, word) in LAYOUT.0.iter().enumerate() {
            println!("word {:#x} = {:#x}", n * 8, word.load(SeqCst));
        }
        current(&VMCS);
    }

    /// Writes a field; false if there is none to be written.
    fn set(field: u16, value: u64) -> bool {
        let failed: u8;
        // SAFETY: the VMCS is current.
        unsafe {
            asm!("vmwrite {}, {}", "setbe {}", in(reg) u64::from(field), in(reg) value, out(reg_byte) failed)
        };
        failed == 0
    }

    fn write(field: u16, value: u64) {
        if !set(field, value) {
            println!("vmwrite {field:#x} = fails");
        }
    }

    fn read(field: u16) -> u64 {
        let value;
        // SAFETY: the VMCS is current.
        unsafe { asm!("vmread {}, {}", out(reg) value, in(reg) u64::from(field)) };
        value
    }

    fn control(field: u16, wanted: u32, register: u32) {
        write(field, vmcs::control(wanted, cpu::rdmsr(register)).into());
    }

    fn reset() {
        let (cr0, cr3, cr4): (u64, u64, u64);
        // SAFETY: reads control registers.
        unsafe {
            asm!("mov {}, cr0", "mov {}, cr3", "mov {}, cr4", out(reg) cr0, out(reg) cr3, out(reg) cr4)
        }
        let (mut gdtr, mut idtr) = ([0u16; 5], [0u16; 5]);
        // SAFETY: stores the table registers into ten bytes each.
        unsafe { asm!("sgdt [{}]", "sidt [{}]", in(reg) &raw mut gdtr, in(reg) &raw mut idtr) }
        let base = |table: [u16; 5]| {
            table[1..].iter().rev().fold(0u64, |acc, word| acc << 16 | u64::from(*word))
        };
        controls(0, 0);
        for (name, value) in [
            (field::VPID, 1),
            (field::EPT_POINTER, EPT[0].pa() | vmcs::EPTP),
            (field::IO_BITMAP_A, PORTS[0].pa()),
            (field::IO_BITMAP_B, PORTS[1].pa()),
            (field::MSR_BITMAP, BITMAP.pa()),
            (field::LINK_POINTER, u64::MAX),
            (field::HOST_CR0, cr0),
            (field::HOST_CR3, cr3),
            (field::HOST_CR4, cr4),
            (field::HOST_CS, 0x10),
            (field::HOST_SS, 0x18),
            (field::HOST_DS, 0x18),
            (field::HOST_ES, 0x18),
            (field::HOST_TR, 0x18),
            (field::HOST_GDTR_BASE, base(gdtr)),
            (field::HOST_IDTR_BASE, base(idtr)),
            (field::HOST_EFER, cpu::rdmsr(0xC000_0080)),
            (field::HOST_PAT, cpu::rdmsr(0x277)),
            (field::HOST_RIP, exited as *const () as u64),
            (field::GUEST_CR0, cr0),
            (field::GUEST_CR3, cr3),
            (field::GUEST_CR4, cr4),
            (field::GUEST_CS, 0x10),
            (field::GUEST_EFER, cpu::rdmsr(0xC000_0080)),
            (field::GUEST_PAT, cpu::rdmsr(0x277)),
            (field::GUEST_GDTR_BASE, base(gdtr)),
            (field::GUEST_GDTR_LIMIT, 0x1F),
            (field::GUEST_IDTR_BASE, base(idtr)),
            (field::GUEST_IDTR_LIMIT, 0xFFF),
            (field::GUEST_DR7, 0x400),
        ] {
            write(name, value);
        }
        for n in 0..8 {
            let (rights, limit) = match n {
                1 => (0xA09B, u64::from(u32::MAX)),
                6 => (0x82, 0xFFFF),
                7 => (0x8B, 0xFFFF),
                _ => (0xC093, u64::from(u32::MAX)),
            };
            write(field::GUEST_ES_RIGHTS + 2 * n, rights);
            write(field::GUEST_ES_LIMIT + 2 * n, limit);
        }
    }

    fn controls(pins: u32, entry: u32) {
        control(field::PIN_CONTROLS, pin::WANTED | pins, msr::TRUE_PIN);
        control(field::PRIMARY_CONTROLS, primary::WANTED, msr::TRUE_PRIMARY);
        control(
            field::SECONDARY_CONTROLS,
            secondary::WANTED | secondary::WHERE_THERE,
            msr::SECONDARY,
        );
        control(field::EXIT_CONTROLS, exit_control::WANTED, msr::TRUE_EXIT);
        control(
            field::ENTRY_CONTROLS,
            entry_control::WANTED | entry_control::IA32E | entry,
            msr::TRUE_ENTRY,
        );
    }

    /// Enters the guest function from its start; the exit's reason.
    fn enter(guest: extern "C" fn() -> !) -> u64 {
        write(field::GUEST_RIP, guest as *const () as u64);
        write(field::GUEST_RFLAGS, 2);
        write(field::GUEST_INTERRUPTIBILITY, 0);
        write(field::GUEST_ACTIVITY, 0);
        write(field::GUEST_PENDING_DEBUG, 0);
        write(field::GUEST_RSP, (&raw const STACK as u64).next_multiple_of(16384) + 16384 - 8);
        resume()
    }

    fn resume() -> u64 {
        // SAFETY: the VMCS describes a guest in this program's own address space.
        match unsafe { run() } {
            0 => read(field::EXIT_REASON),
            _ => 0x1_0000_0000 | read(field::INSTRUCTION_ERROR),
        }
    }

    fn skip() {
        write(field::GUEST_RIP, read(field::GUEST_RIP) + read(field::EXIT_LENGTH));
    }

    #[unsafe(naked)]
    unsafe extern "C" fn run() -> u64 {
        naked_asm!(
            "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
            "mov eax, {rsp}",
            "vmwrite rax, rsp",
            "vmresume",
            "vmlaunch",
            "mov eax, 1",
            "jmp 2f",
            ".global probe_exited",
            "probe_exited:",
            "xor eax, eax",
            "2: pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx", "ret",
            rsp = const field::HOST_RSP,
        )
    }

    unsafe extern "C" {
        #[link_name = "probe_exited"]
        fn exited();
    }

    fn vmcall() {
        // SAFETY: an exit; the host changes no register but RSP and RIP.
        unsafe { asm!("vmcall", clobber_abi("C")) }
    }

    extern "C" fn guest_calls() -> ! {
        loop {
            vmcall();
            RESULT.fetch_add(1, SeqCst);
        }
    }

    fn calls() {
        let reason = enter(guest_calls);
        println!("vmcall.exit = {reason:#x}, length {}", read(field::EXIT_LENGTH));
        for _ in 0..1000 {
            skip();
            resume();
        }
        println!("vmcall.rounds = {}", RESULT.load(SeqCst));
    }

    extern "C" fn guest_hole() -> ! {
        // SAFETY: faults in EPT, which is the point.
        unsafe { asm!("mov [{}], rax", in(reg) HOLE) }
        loop {
            vmcall();
        }
    }

    fn violation() {
        let reason = enter(guest_hole);
        println!(
            "violation = exit {reason:#x}, qualification {:#x}, address {:#x}, linear {:#x}",
            read(field::QUALIFICATION),
            read(field::GUEST_PHYSICAL_ADDRESS),
            read(field::GUEST_LINEAR_ADDRESS)
        );
    }

    extern "C" fn guest_reads() -> ! {
        loop {
            // SAFETY: mapped by EPT, never written by Rust code.
            let value = unsafe { (WINDOW as *const u64).read_volatile() };
            RESULT.store(value, SeqCst);
            vmcall();
        }
    }

    fn stale() {
        enter(guest_reads);
        let before = RESULT.load(SeqCst);
        EPT[3].set(0, FRAMES[1].pa() | 7 | 6 << 3);
        enter(guest_reads);
        let without = RESULT.load(SeqCst);
        let descriptor = [EPT[0].pa() | vmcs::EPTP, 0];
        // SAFETY: translations are only forgotten.
        unsafe { asm!("invept {}, [{}]", in(reg) 1u64, in(reg) &raw const descriptor) };
        enter(guest_reads);
        println!(
            "tlb = {before:#x}, remapped without INVEPT {without:#x}, with {:#x}",
            RESULT.load(SeqCst)
        );
    }

    extern "C" fn guest_timer() -> ! {
        start::arm(100_000, false);
        let mut ticks = 0;
        for _ in 0..3 {
            cpu::wait_interrupt();
            ticks += u64::from(start::take_tick().is_some());
            cpu::wrmsr(0x838, 100_000);
        }
        cpu::wrmsr(0x838, 0);
        RESULT.store(ticks, SeqCst);
        loop {
            vmcall();
        }
    }

    fn timer() {
        RESULT.store(0, SeqCst);
        let reason = enter(guest_timer);
        println!("direct_timer = exit {reason:#x}, {} of 3 ticks", RESULT.load(SeqCst));
    }

    extern "C" fn guest_spins() -> ! {
        loop {
            RESULT.fetch_add(1, SeqCst);
        }
    }

    /// Rings the first core each time that it asks, after a while; bit 63 asks for INIT.
    fn ringer() -> ! {
        let mut seen = 0;
        loop {
            let go = GO.load(SeqCst);
            if go != seen {
                seen = go;
                start::delay(20_000);
                cpu::wrmsr(0x830, if go >> 63 == 0 { 0x400 } else { 0x4500 });
            }
        }
    }

    fn unblock() {
        // SAFETY: returns to the next instruction.
        unsafe {
            asm!("mov {t}, rsp", "push 0x18", "push {t}", "pushfq", "push 0x10", "lea {t}, [rip + 2f]", "push {t}",
                "iretq", "2:", t = out(reg) _);
        }
    }

    /// Asks for an NMI and enters; the exit's reason, or 52 if the timer was faster.
    fn ring(enter: impl FnOnce() -> u64) -> u64 {
        write(field::TIMER, 4_000_000);
        GO.fetch_add(1, SeqCst);
        enter()
    }

    /// NMIs from another core.
    fn doorbell() {
        start::start_cores(1, ringer);
        controls(pin::TIMER, 0);
        let reason = ring(|| enter(guest_spins));
        let saved = read(field::GUEST_INTERRUPTIBILITY);
        println!(
            "nmi.exit = {reason:#x}, interruptibility {saved:#x}, event {:#x}",
            read(field::EXIT_EVENT)
        );
        let reason = ring(resume);
        println!(
            "nmi.as_saved = {reason:#x}, interruptibility {:#x}",
            read(field::GUEST_INTERRUPTIBILITY)
        );
        write(field::GUEST_INTERRUPTIBILITY, 0);
        let reason = ring(resume);
        println!(
            "nmi.bit_cleared = {reason:#x}, interruptibility {:#x}",
            read(field::GUEST_INTERRUPTIBILITY)
        );
        write(field::GUEST_INTERRUPTIBILITY, 0);
        unblock();
        let reason = ring(resume);
        println!(
            "nmi.bit_cleared_iret = {reason:#x}, interruptibility {:#x}",
            read(field::GUEST_INTERRUPTIBILITY)
        );
        write(field::GUEST_INTERRUPTIBILITY, 0);
        unblock();
        let reason = ring(|| enter(guest_sleeps));
        println!("nmi.in_hlt = {reason:#x}, activity {:#x}", read(field::GUEST_ACTIVITY));
        write(field::GUEST_INTERRUPTIBILITY, 0);
        unblock();
    }

    extern "C" fn guest_sleeps() -> ! {
        loop {
            // SAFETY: interrupts are off: it sleeps until an NMI.
            unsafe { asm!("hlt") };
        }
    }

    /// Events of an entry: vector 2 as an exception, with interrupts off, in HLT; then a timer of 0.
    fn injection() {
        controls(0, 0);
        write(field::ENTRY_EVENT, vmcs::event::of(2, true));
        let reason = enter(guest_calls);
        println!(
            "inject.2_as_exception = exit {reason:#x}, interruptibility {:#x}",
            read(field::GUEST_INTERRUPTIBILITY)
        );
        write(field::ENTRY_EVENT, vmcs::event::of(2, true));
        write(field::GUEST_ACTIVITY, 1);
        let reason = resume();
        println!("inject.2_in_hlt = exit {reason:#x}");
        write(field::GUEST_ACTIVITY, 0);
        controls(pin::TIMER, 0);
        write(field::TIMER, 0);
        let rsp = read(field::GUEST_RSP);
        write(field::ENTRY_EVENT, vmcs::event::of(2, true));
        let reason = enter(guest_calls);
        println!(
            "inject.timer_0 = exit {reason:#x}, pushed {} bytes, rip in handler {}",
            rsp.wrapping_sub(read(field::GUEST_RSP)) as i64,
            read(field::GUEST_RIP) != guest_calls as *const () as u64
        );
        controls(0, 0);
    }

    /// An entry loads an MSR by its list.
    fn lists() {
        LIST.set(0, 0xC000_0102);
        LIST.set(8, 0x1234_5678);
        write(field::ENTRY_MSR_LOAD, LIST.pa());
        write(field::ENTRY_MSR_LOADS, 1);
        let reason = enter(guest_calls);
        println!("msr_list = exit {reason:#x}, loaded {:#x}", cpu::rdmsr(0xC000_0102));
        write(field::ENTRY_MSR_LOADS, 0);
        cpu::wrmsr(0xC000_0102, 0);
    }

    /// IA32_PERF_GLOBAL_CTRL: allowed by the control, and then?
    fn performance() {
        const LOAD: u32 = 1 << 13;
        if vmcs::lacks(LOAD, cpu::rdmsr(msr::TRUE_ENTRY)) != 0 {
            println!("perf_global_ctrl = not allowed");
            return;
        }
        controls(0, LOAD);
        write(field::GUEST_PERF_GLOBAL_CTRL, 1);
        let reason = enter(guest_calls);
        println!("perf_global_ctrl = exit {reason:#x}");
        controls(0, 0);
    }

    /// INIT from another core: its exit, the state that it leaves, and entries after it.
    fn init() {
        controls(pin::TIMER, 0);
        write(field::TIMER, 4_000_000);
        GO.fetch_or(1 << 63, SeqCst);
        let reason = enter(guest_spins);
        println!(
            "init.exit = {reason:#x}, interruptibility {:#x}",
            read(field::GUEST_INTERRUPTIBILITY)
        );
        write(field::TIMER, 4_000_000);
        let reason = resume();
        println!("init.as_saved = {reason:#x}, qualification {:#x}", read(field::QUALIFICATION));
        write(field::GUEST_INTERRUPTIBILITY, 0);
        write(field::TIMER, 4_000_000);
        let reason = resume();
        println!("init.cleared = {reason:#x}");
    }
}

#[cfg(target_os = "none")]
use bare::main;
harness_bare::entry!(main);
