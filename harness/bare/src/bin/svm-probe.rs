//! Probes an emulator's SVM with x2APIC on: prints CPUID's word for each feature, then tries the feature. Each fact is
//! one line on the debug console, `name = value`. QEMU and Bochs differ; the tests' machine descriptions rest on this.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod bare {
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

        fn get(&self, byte: usize) -> u64 {
            self.0[byte / 8].load(SeqCst)
        }
    }

    static VMCB: Page = Page::new();
    static HSAVE: Page = Page::new();
    static MSRPM: [Page; 2] = [const { Page::new() }; 2];
    static NPT: [Page; 6] = [const { Page::new() }; 6];
    static FRAMES: [Page; 2] = [const { Page::new() }; 2];
    static RESULT: AtomicU64 = AtomicU64::new(0);

    /// Room for a stack block of the guest. The timer's handler stores to its base. Aligned by hand: an alignment above
    /// a page would move the multiboot header out of the file's first 8 KiB.
    static STACK: [Page; 8] = [const { Page::new() }; 8];

    /// Guest-physical window that the nested tables redirect.
    const WINDOW: u64 = 0x4000_0000;
    /// A guest-physical address that they don't map.
    const HOLE: u64 = 0x8000_0000;

    // VMCB offsets (AMD64 APM volume 2, appendix B).
    const INTERCEPT_1: usize = 0x008;
    const INTERCEPT_2: usize = 0x010;
    const MSRPM_BASE: usize = 0x048;
    const ASID_TLB: usize = 0x058;
    const EXIT_CODE: usize = 0x070;
    const EXIT_INFO_1: usize = 0x078;
    const EXIT_INFO_2: usize = 0x080;
    const NP_ENABLE: usize = 0x090;
    const N_CR3: usize = 0x0B0;
    const N_RIP: usize = 0x0C8;
    const FETCHED: usize = 0x0D0;
    const SAVE: usize = 0x400;
    const RIP: usize = SAVE + 0x178;

    pub fn main(_: start::Boot) -> ! {
        facts();
        if cpu::cpuid(0x8000_0001, 0)[2] & 4 == 0 {
            println!("verdict = CPUID has no SVM; tried all the same");
        }
        println!("vm_cr = {:#x}", cpu::rdmsr(0xC001_0114));
        cpu::wrmsr(0xC000_0080, cpu::rdmsr(0xC000_0080) | 1 << 12);
        cpu::wrmsr(0xC001_0117, HSAVE.pa());
        nested_tables();
        vmcb();
        hypercalls();
        nested_fault();
        stale_entry();
        if start::has_x2apic() {
            direct_timer();
            trapped_msr();
            doorbell();
            takeover();
        }
        println!("verdict = done");
        cpu::power_off()
    }

    fn facts() {
        let id = cpu::cpuid(0, 0);
        let bytes = [id[1].to_le_bytes(), id[3].to_le_bytes(), id[2].to_le_bytes()];
        println!("vendor = {}", core::str::from_utf8(bytes.as_flattened()).unwrap_or("?"));
        let one = cpu::cpuid(1, 0);
        let ext = cpu::cpuid(0x8000_0001, 0);
        println!("x2apic = {}", one[2] >> 21 & 1);
        println!("tsc_deadline = {}", one[2] >> 24 & 1);
        println!("max_leaf = {:#x}", cpu::cpuid(0x8000_0000, 0)[0]);
        println!("svm = {}", ext[2] >> 2 & 1);
        println!("nx = {}", ext[3] >> 20 & 1);
        println!("gib_pages = {}", ext[3] >> 26 & 1);
        println!("invariant_tsc = {}", cpu::cpuid(0x8000_0007, 0)[3] >> 8 & 1);
        if cpu::cpuid(0x8000_0000, 0)[0] >= 0x8000_000A {
            let svm = cpu::cpuid(0x8000_000A, 0);
            println!("8000_000a = eax {:#x} ebx {:#x} edx {:#x}", svm[0], svm[1], svm[3]);
            for (bit, name) in [
                (0, "nested_paging"),
                (1, "lbr"),
                (2, "svm_lock"),
                (3, "next_rip"),
                (4, "tsc_rate"),
                (5, "clean_bits"),
                (6, "flush_by_asid"),
                (7, "decode_assists"),
                (10, "pause_filter"),
                (13, "avic"),
                (16, "vgif"),
            ] {
                println!("{name} = {}", svm[3] >> bit & 1);
            }
        }
        if !start::has_x2apic() {
            return;
        }
        println!(
            "apic_base = {:#x} id = {:#x} version = {:#x}",
            cpu::rdmsr(0x1B),
            cpu::rdmsr(0x802),
            cpu::rdmsr(0x803)
        );
    }

    /// Identity for the first GiB, by 2 MiB; `WINDOW` on the first of `FRAMES`.
    fn nested_tables() {
        let [root, third, low, window, leaf, _] = &NPT;
        root.set(0, third.pa() | 7);
        third.set(0, low.pa() | 7);
        third.set(8, window.pa() | 7);
        window.set(0, leaf.pa() | 7);
        for n in 0..512 {
            low.set(n * 8, (n as u64) << 21 | 0x87);
        }
        leaf.set(0, FRAMES[0].pa() | 7);
        FRAMES[0].set(0, 0xAAAA);
        FRAMES[1].set(0, 0xBBBB);
    }

    fn vmcb() {
        let (cr0, cr3, cr4): (u64, u64, u64);
        // SAFETY: reads control registers.
        unsafe {
            asm!("mov {}, cr0", "mov {}, cr3", "mov {}, cr4", out(reg) cr0, out(reg) cr3, out(reg) cr4);
        }
        VMCB.set(INTERCEPT_1, 1 << 60 | 1 << 63 | 1 << 33); // MSR, SHUTDOWN, NMI
        VMCB.set(INTERCEPT_2, 3); // VMRUN, VMMCALL
        VMCB.set(MSRPM_BASE, MSRPM[0].pa());
        VMCB.set(NP_ENABLE, 1);
        VMCB.set(N_CR3, NPT[0].pa());
        let data = 0x18 | 0x0C93 << 16 | 0xFFFF_FFFF << 32;
        for segment in [0x00, 0x20, 0x30, 0x40, 0x50] {
            VMCB.set(SAVE + segment, data);
        }
        VMCB.set(SAVE + 0x10, 0x10 | 0x0A9B << 16 | 0xFFFF_FFFF << 32);
        let mut idtr = [0u16; 5];
        // SAFETY: stores the table register into ten bytes.
        unsafe { asm!("sidt [{}]", in(reg) &raw mut idtr) }
        let base = idtr[1..].iter().rev().fold(0u64, |acc, word| acc << 16 | u64::from(*word));
        VMCB.set(SAVE + 0x80, 0xFFF << 32);
        VMCB.set(SAVE + 0x88, base);
        // SAFETY: SGDT, too, writes ten bytes, for which there is room.
        unsafe { asm!("sgdt [{}]", in(reg) &raw mut idtr) }
        let gdt = idtr[1..].iter().rev().fold(0u64, |acc, word| acc << 16 | u64::from(*word));
        VMCB.set(SAVE + 0x60, 0x1F << 32);
        VMCB.set(SAVE + 0x68, gdt);
        VMCB.set(SAVE + 0xD0, cpu::rdmsr(0xC000_0080));
        VMCB.set(SAVE + 0x148, cr4);
        VMCB.set(SAVE + 0x150, cr3);
        VMCB.set(SAVE + 0x158, cr0);
        VMCB.set(SAVE + 0x268, 0x0007_0406_0007_0406); // G_PAT
        VMCB.set(SAVE + 0x160, 0x400); // DR7
        VMCB.set(SAVE + 0x168, 0xFFFF_0FF0); // DR6
    }

    /// Enters the guest function from its start; `tlb` is TLB_CONTROL.
    fn enter(guest: extern "C" fn() -> !, tlb: u64) -> u64 {
        VMCB.set(RIP, guest as *const () as u64);
        VMCB.set(SAVE + 0x170, 2);
        VMCB.set(SAVE + 0x1D8, (&raw const STACK as u64).next_multiple_of(16384) + 16384 - 8);
        resume(tlb)
    }

    fn resume(tlb: u64) -> u64 {
        VMCB.set(ASID_TLB, 1 | tlb << 32);
        // SAFETY: the VMCB describes a guest in this program's own address space.
        unsafe { run(VMCB.pa()) };
        VMCB.get(EXIT_CODE) & 0xFFFF_FFFF
    }

    #[unsafe(naked)]
    unsafe extern "C" fn run(vmcb: u64) {
        naked_asm!(
            "push rbx",
            "push rbp",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "mov rax, rdi",
            "clgi",
            "sti",
            "vmrun rax",
            "cli",
            "stgi",
            "nop",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbp",
            "pop rbx",
            "ret"
        )
    }

    fn vmmcall() {
        // SAFETY: an exit; the host changes no register but RAX, RSP, RIP.
        unsafe { asm!("vmmcall", clobber_abi("C")) }
    }

    extern "C" fn guest_calls() -> ! {
        loop {
            vmmcall();
            RESULT.fetch_add(1, SeqCst);
        }
    }

    fn hypercalls() {
        let code = enter(guest_calls, 0);
        println!("vmmcall.exit = {code:#x}");
        let (rip, next) = (VMCB.get(RIP), VMCB.get(N_RIP));
        println!("vmmcall.next_rip = rip + {:#x}", next.wrapping_sub(rip));
        for _ in 0..1000 {
            VMCB.set(RIP, VMCB.get(RIP) + 3);
            resume(0);
        }
        println!("vmmcall.rounds = {}", RESULT.load(SeqCst));
    }

    extern "C" fn guest_hole() -> ! {
        // SAFETY: faults in the nested tables, which is the point.
        unsafe { asm!("mov [{}], rax", in(reg) HOLE) }
        loop {
            vmmcall();
        }
    }

    fn nested_fault() {
        let code = enter(guest_hole, 0);
        println!(
            "npf.exit = {code:#x} info1 = {:#x} info2 = {:#x}",
            VMCB.get(EXIT_INFO_1),
            VMCB.get(EXIT_INFO_2)
        );
        println!("npf.fetched = {:x?}", VMCB.get(FETCHED).to_le_bytes());
    }

    extern "C" fn guest_reads() -> ! {
        loop {
            // SAFETY: mapped by the nested tables, never written by Rust code.
            let value = unsafe { (WINDOW as *const u64).read_volatile() };
            RESULT.store(value, SeqCst);
            vmmcall();
        }
    }

    fn stale_entry() {
        enter(guest_reads, 0);
        let before = RESULT.load(SeqCst);
        NPT[4].set(0, FRAMES[1].pa() | 7);
        enter(guest_reads, 0);
        let without = RESULT.load(SeqCst);
        enter(guest_reads, 3);
        println!(
            "tlb = {before:#x}, remapped without flush {without:#x}, with flush-by-ASID {:#x}",
            RESULT.load(SeqCst)
        );
        NPT[4].set(0, FRAMES[0].pa() | 7);
        enter(guest_reads, 1);
        println!("tlb.flush_all = {:#x}", RESULT.load(SeqCst));
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
            vmmcall();
        }
    }

    /// INTR not intercepted, V_INTR_MASKING off: the interrupt goes to the guest.
    fn direct_timer() {
        RESULT.store(0, SeqCst);
        let code = enter(guest_timer, 0);
        println!("direct_timer = exit {code:#x}, {} of 3 ticks", RESULT.load(SeqCst));
    }

    extern "C" fn guest_icr() -> ! {
        cpu::wrmsr(0x830, 0x0000_0001_0000_0040);
        loop {
            vmmcall();
        }
    }

    fn trapped_msr() {
        // Two bits an MSR, from 0: the ICR's write bit.
        let bit = 0x830 * 2 + 1;
        let word = &MSRPM[0].0[bit / 64];
        word.store(1 << (bit % 64), SeqCst);
        let code = enter(guest_icr, 0);
        println!("icr_write = exit {code:#x} info1 = {:#x}", VMCB.get(EXIT_INFO_1));
    }

    extern "C" fn guest_spins() -> ! {
        loop {
            RESULT.fetch_add(1, SeqCst);
        }
    }

    fn ring() -> ! {
        while RESULT.load(SeqCst) < 1000 {
            core::hint::spin_loop();
        }
        cpu::wrmsr(0x830, 0x400); // NMI to APIC ID 0
        loop {
            cpu::wait_interrupt();
        }
    }

    /// An NMI from another core takes a spinning guest out.
    fn doorbell() {
        RESULT.store(0, SeqCst);
        start::start_cores(1, ring);
        let code = enter(guest_spins, 0);
        println!("nmi.exit = {code:#x}");
    }

    fn guest_on_core() -> ! {
        if start::core_number() == 1 {
            cpu::wrmsr(0xC000_0080, cpu::rdmsr(0xC000_0080) | 1 << 12);
            cpu::wrmsr(0xC001_0117, HSAVE.pa());
            enter(guest_spins, 0);
        }
        loop {
            cpu::wait_interrupt();
        }
    }

    fn taken_back() -> ! {
        RESULT.store(1, SeqCst);
        loop {
            cpu::wait_interrupt();
        }
    }

    /// INIT and SIPI take a core back from the middle of its guest.
    fn takeover() {
        RESULT.store(0, SeqCst);
        start::start_cores(3, guest_on_core);
        while RESULT.load(SeqCst) < 1000 {
            core::hint::spin_loop();
        }
        start::start_cores(3, taken_back);
        start::delay(1_000_000);
        println!("takeover = {}", RESULT.load(SeqCst) == 1);
    }
}

#[cfg(target_os = "none")]
use bare::main;
harness_bare::entry!(main);
