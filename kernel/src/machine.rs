//! The machine under the portable kernel.

use crate::entry::{end_of_interrupt, tell_nmis};
use crate::report;
use bulkhead_arch_x86::LongMode;
use bulkhead_cpu_x86::{rdtsc, wrmsr};
use bulkhead_kernel::{Layout, Machine, Object, Ref, Time, Vectors};
use bulkhead_kernel_x86::{END_OF_INTERRUPT, Step, WINDOW, WINDOW_INDEX, X86};
use bulkhead_layout::hypercall;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU16, Ordering};

/// Local APIC, x2APIC mode (APM volume 2, section 16.11): the timer's initial count.
const TMICT: u32 = 0x838;
/// Where FS begins (APM volume 2, appendix A).
const FS_BASE: u32 = 0xC000_0100;

/// A core's machine. There is one, so it is nothing: what it knows lies in a static, and nobody hands its
/// address on.
#[derive(Debug)]
pub struct X86Machine(());

/// What the start found out, and whose the vector registers are.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Nanoseconds of a TSC tick, 32 fraction bits.
    pub nanos: u64,
    /// Timer ticks of a nanosecond, 32 fraction bits, rounded up: a timer never fires early.
    pub ticks: u64,
    /// Physical address of offset 0.
    pub base: u64,
    /// See [`bulkhead_kernel_x86::Baked::window`].
    pub window: u64,
    /// Where the vector registers in the processor are to be kept; 0: nowhere.
    pub vectors: u32,
    /// State components that XSAVE keeps; 0: there is none.
    pub xcr0: u32,
    /// Where it is told what the kernel does.
    #[cfg(feature = "trace")]
    pub trace: crate::trace::Trace,
}

/// Contents of vector registers that are nobody's: the initial state.
static UNUSED: Vectors = {
    let mut words = [0; 104];
    let (word, value) = <X86 as Layout>::START_VECTORS;
    words[word] = value;
    Vectors(words)
};

struct Cell(UnsafeCell<Facts>);

// SAFETY: one core runs the kernel, and takes no interrupts in it.
unsafe impl Sync for Cell {}

static FACTS: Cell = Cell(UnsafeCell::new(Facts {
    nanos: 0,
    ticks: 0,
    base: 0,
    window: 0,
    vectors: 0,
    xcr0: 0,
    #[cfg(feature = "trace")]
    trace: crate::trace::Trace::NONE,
}));

impl X86Machine {
    /// The machine.
    ///
    /// # Safety
    /// Nobody else has it: it is asked for once in each entry.
    #[inline(always)]
    pub const unsafe fn get() -> &'static mut Self {
        // SAFETY: of no bytes, so any address that is not 0 is one of it; the caller vouches for the rest.
        unsafe { core::ptr::NonNull::dangling().as_mut() }
    }

    /// What it knows.
    #[inline(always)]
    pub fn facts(&self) -> &Facts {
        // SAFETY: there is one machine, and who has it has these; nobody changes them: that takes `&mut self`.
        unsafe { &*FACTS.0.get() }
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn facts_mut(&mut self) -> &mut Facts {
        // SAFETY: as `facts`, and `&mut self` is the only way to them.
        unsafe { &mut *FACTS.0.get() }
    }
}

/// `value * factor`, the factor with 32 fraction bits.
#[inline(always)]
fn scale(value: u64, factor: u64) -> u64 {
    ((u128::from(value) * u128::from(factor)) >> 32) as u64
}

#[inline(always)]
fn address(at: u32) -> u64 {
    WINDOW + u64::from(at)
}

impl Machine for X86Machine {
    type Layout = X86;
    type Pages = LongMode;

    #[cfg(feature = "trace")]
    #[inline(always)]
    fn is_traced(&self) -> bool {
        self.facts().trace.is_on()
    }

    #[cfg(feature = "trace")]
    #[inline(always)]
    fn trace(&mut self, event: bulkhead_kernel::Event) {
        self.facts_mut().trace.write(event);
    }

    #[inline(always)]
    fn get<T: Object>(&self, at: Ref<T>) -> &T {
        // SAFETY: the kernel makes references to its own objects only, which lie in the window, aligned; any
        // bits are a value of `T`. No exclusive reference is alive: they come from `&mut self`.
        unsafe { &*(address(at.at()) as *const T) }
    }

    #[inline(always)]
    fn get_mut<T: Object>(&mut self, at: Ref<T>) -> &mut T {
        // SAFETY: as `get`, and `&mut self` is the only way to an object.
        unsafe { &mut *(address(at.at()) as *mut T) }
    }

    #[inline(always)]
    fn with_tail<T: Object, U: Object>(&mut self, at: Ref<T>, count: usize) -> (&mut T, &mut [U]) {
        let head = address(at.at()) as *mut T;
        // SAFETY: as `get_mut`; the kernel says how many follow within the same object.
        unsafe { (&mut *head, core::slice::from_raw_parts_mut(head.add(1).cast(), count)) }
    }

    #[inline(never)]
    fn clear(&mut self, at: u32, len: u32) {
        // SAFETY: the kernel names memory in which no object lies.
        unsafe { core::ptr::write_bytes(address(at) as *mut u8, 0, len as usize) }
    }

    #[inline(always)]
    fn physical(&self, at: u32) -> u64 {
        self.facts().base + u64::from(at)
    }

    fn kernel_entry(&self) -> (u64, usize) {
        (self.facts().window, WINDOW_INDEX)
    }

    #[inline(always)]
    fn enter_space(&mut self, root: u64) {
        // SAFETY: a space's root maps the kernel where it is ([`Machine::kernel_entry`]).
        unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) }
    }

    fn forget(&mut self, address: u64) {
        // SAFETY: only drops what the processor remembers.
        unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) }
    }

    /// Selectors first: loading null clears a base on Intel's processors, and on AMD's it may not (APM volume 2,
    /// section 4.5.3). The base of GS needs no write: it is 0 from the start on, no descriptor has another one, and
    /// CR4.FSGSBASE is off.
    #[inline(always)]
    fn enter_thread(&mut self, pointer: u64) {
        // SAFETY: 64-bit code uses none of these segments but by FS and GS, and the kernel uses neither. The base is
        // canonical, being in the lower half.
        unsafe {
            asm!("xor {r:e}, {r:e}", "mov ds, {r:e}", "mov es, {r:e}", "mov fs, {r:e}", "mov gs, {r:e}",
                r = out(reg) _, options(nostack, nomem));
            wrmsr(FS_BASE, pointer);
        }
    }

    #[inline(always)]
    fn now(&mut self) -> Time {
        scale(rdtsc(), self.facts().nanos) | 1
    }

    #[inline(always)]
    fn set_timer(&mut self, at: Time) {
        let count = match at {
            Time::MAX => 0,
            _ => {
                let left = at.saturating_sub(scale(rdtsc(), self.facts().nanos));
                // Not 0, which would switch it off.
                scale(left, self.facts().ticks).min(u64::from(u32::MAX)) | 1
            }
        };
        // SAFETY: the timer is this core's own.
        unsafe { wrmsr(TMICT, count) }
    }

    #[inline(never)]
    fn use_vectors(&mut self, area: Option<Ref<Vectors>>) {
        let (low, high) = (self.facts().xcr0, 0u32);
        if low == 0 {
            // Without XSAVE nobody has any: using them is an exception.
            return;
        }
        // SAFETY: CR0.TS off, the vector registers are there; nobody's yet, or their keeper's.
        unsafe { asm!("clts", options(nostack, nomem, preserves_flags)) }
        if self.facts().vectors != 0 {
            let to = address(self.facts().vectors);
            // SAFETY: the area is part of a thread, aligned to 64 and large enough for what XCR0 has.
            unsafe {
                asm!("xsave64 [{}]", in(reg) to, in("eax") low, in("edx") high, options(nostack))
            }
        }
        self.facts_mut().vectors = area.map_or(0, Ref::at);
        let from = area.map_or(&raw const UNUSED as u64, |area| address(area.at()));
        // SAFETY: the area was saved before, or is as the kernel made it, or the constant one: zeros, the initial state
        // of XSAVE. The instructions before it take none of the x87 exceptions that may be pending.
        unsafe {
            asm!(
                // XRSTOR leaves x87's last instruction and operand as they are on processors without XSaveErPtr
                // (APM volume 3, CPUID Fn8000_0008): from now on they are the kernel's.
                "fnclex", "emms", "fild dword ptr [rip + {unused}]",
                "xrstor64 [{from}]",
                from = in(reg) from, unused = sym UNUSED, in("eax") low, in("edx") high, options(nostack)
            );
        }
        if area.is_none() {
            const TS: u64 = 1 << 3;
            // SAFETY: whoever uses vector registers now takes an exception. Nothing of the one before is in them: there
            // are processors on which what follows the exception is executed speculatively before it is taken.
            unsafe {
                asm!("mov {r}, cr0", "or {r}, {ts}", "mov cr0, {r}", r = out(reg) _, ts = const TS, options(nostack))
            }
        }
    }

    fn port_in(&mut self, port: u16, bytes: u8) -> u32 {
        let value: u32;
        // SAFETY: a program that was given the port asks for it.
        unsafe {
            match bytes {
                1 => asm!("in al, dx", in("dx") port, inout("eax") 0u32 => value, options(nostack)),
                2 => asm!("in ax, dx", in("dx") port, inout("eax") 0u32 => value, options(nostack)),
                _ => asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack)),
            }
        }
        value
    }

    fn port_out(&mut self, port: u16, bytes: u8, value: u32) {
        // SAFETY: as above.
        unsafe {
            match bytes {
                1 => asm!("out dx, al", in("dx") port, in("eax") value, options(nostack)),
                2 => asm!("out dx, ax", in("dx") port, in("eax") value, options(nostack)),
                _ => asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack)),
            }
        }
    }

    fn play(&mut self, script: u32) {
        if script == 0 {
            return;
        }
        let mut step = address(script) as *const Step;
        loop {
            // SAFETY: a script of the host's in memory that nobody writes; it ends with a zero address.
            let Step { address, value } = unsafe { step.read() };
            match address {
                0 => return,
                // Whoever is here came by a call or has ended its own interrupt: what is in service is the line's.
                END_OF_INTERRUPT => end_of_interrupt(),
                // SAFETY: a device's register that the host mapped for this.
                _ => unsafe { (address as *mut u32).write_volatile(value as u32) },
            }
            // SAFETY: this was not the last one.
            unsafe { step = step.add(1) }
        }
    }

    fn print(&mut self, text: &[u8]) {
        print(text);
    }

    fn ask(&mut self, number: u64, first: u64, second: u64) -> u64 {
        match report::is_ours() {
            true => hypercall::NO_CALL,
            false => call(number, first, [second, 0, 0]),
        }
    }

    fn ready(&mut self) {
        ready();
    }

    fn exit(&mut self, code: u32) {
        exit(code)
    }
}

/// A call of the monitor; what it answers.
fn call(number: u64, first: u64, rest: [u64; 3]) -> u64 {
    let answer: u64;
    // SAFETY: no call touches the kernel's memory or a register other than RAX. Those of slots take away and zero
    // memory that only programs see, and they do not while the kernel asks.
    unsafe {
        asm!("vmmcall", inlateout("rax") number => answer, in("rdi") first,
            in("rsi") rest[0], in("rdx") rest[1], in("r8") rest[2], options(nostack));
    }
    answer
}

/// Where text goes: a serial port, or (0) the monitor's console.
static PORT: AtomicU16 = AtomicU16::new(0);

/// Says where text goes.
pub fn set_console(port: u16) {
    PORT.store(port, Ordering::Relaxed);
}

/// Writes to the console.
pub fn print(text: &[u8]) {
    report::print(text);
    let port = PORT.load(Ordering::Relaxed);
    if port != 0 {
        for byte in text {
            // SAFETY: a serial port's data register; emulated ones take what comes.
            unsafe { asm!("out dx, al", in("dx") port, in("al") *byte, options(nostack)) }
        }
        return;
    }
    if report::is_ours() {
        return;
    }
    for piece in text.chunks(hypercall::CONSOLE_BYTES as usize) {
        let mut words = [0; 3];
        for (n, byte) in piece.iter().enumerate() {
            words[n / 8 % 3] |= u64::from(*byte) << (n % 8 * 8);
        }
        call(hypercall::CONSOLE, piece.len() as u64, words);
    }
}

fn ready() {
    if report::is_ours() {
        report::steady();
    } else if PORT.load(Ordering::Relaxed) == 0 {
        call(hypercall::READY, 0, [0; 3]);
    }
}

/// Ends the sandbox; without a monitor the core stops.
pub fn exit(code: u32) -> ! {
    tell_nmis(true);
    if report::is_ours() {
        report::end(code);
    } else if PORT.load(Ordering::Relaxed) == 0 {
        call(hypercall::EXIT, u64::from(code), [0; 3]);
    }
    loop {
        // SAFETY: nothing more happens here.
        unsafe { asm!("cli", "hlt", options(nostack, nomem)) }
    }
}
