//! The machine under the portable kernel.

use crate::entry::{end_of_interrupt, tell_nmis};
use crate::report;
use bulkhead_arch_x86::LongMode;
use bulkhead_cpu_x86::{inb, inl, inw, outb, outl, outw, rdtsc, wrmsr};
use bulkhead_guest::{Here, Instructions, packed, scale};
use bulkhead_kernel::{Layout, Machine, Object, Ref, Time, Vectors};
use bulkhead_kernel_x86::{END_OF_INTERRUPT, Port, Step, WINDOW, WINDOW_INDEX, X86};
use bulkhead_layout::hypercall;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU16, Ordering};

/// Local APIC, x2APIC mode (APM volume 2, section 16.11): the timer's initial count.
const TMICT: u32 = 0x838;
/// FS's base (APM volume 2, appendix A).
const FS_BASE: u32 = 0xC000_0100;

/// A core's machine. There is one, so the type has no bytes: its facts lie in a static.
#[derive(Debug)]
pub struct X86Machine(());

/// Facts that the start found out, and the owner of the vector registers.
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
    /// Offset at which the processor's vector registers are to be kept; 0: they belong to no thread.
    pub vectors: u32,
    /// State components that XSAVE keeps; 0: there is none.
    pub xcr0: u32,
    /// The ring of the kernel's events.
    #[cfg(feature = "trace")]
    pub trace: crate::trace::Trace,
}

/// Contents of vector registers that belong to no thread: the initial state.
static UNUSED: Vectors = {
    let mut words = [0; 104];
    let (word, value) = <X86 as Layout>::START_VECTORS;
    words[word] = value;
    Vectors(words)
};

struct Cell(UnsafeCell<Facts>);

// SAFETY: one core runs the kernel, and takes no interrupts in it.
unsafe impl Sync for Cell {}

/// A static, because each entry makes the kernel anew and carries nothing over from the last one.
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
    /// Returns the machine.
    ///
    /// # Safety
    /// No other reference to it exists: each entry asks for it once.
    #[inline(always)]
    pub const unsafe fn get() -> &'static mut Self {
        // SAFETY: the type has no bytes, so any address but 0 holds one; the caller vouches that there is no other.
        unsafe { core::ptr::NonNull::dangling().as_mut() }
    }

    /// Returns its facts.
    #[inline(always)]
    pub fn facts(&self) -> &Facts {
        // SAFETY: there is one machine, and its holder has these facts; a change of them takes `&mut self`.
        unsafe { &*FACTS.0.get() }
    }

    /// Returns its facts, to be changed.
    #[inline(always)]
    pub fn facts_mut(&mut self) -> &mut Facts {
        // SAFETY: there is one machine, and `&mut self` is the only way to its facts.
        unsafe { &mut *FACTS.0.get() }
    }
}

/// Returns the address of an offset: the kernel sees the sandbox's memory through one window.
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
        // SAFETY: as `get_mut`; `count` is the number that follows within this object, by the kernel's word.
        unsafe { (&mut *head, core::slice::from_raw_parts_mut(head.add(1).cast(), count)) }
    }

    /// Memory is zeroed before it becomes an object: nothing of its last owner is left for the next.
    #[inline(never)]
    fn clear(&mut self, at: u32, len: u32) {
        // SAFETY: the kernel names memory in which no object lies.
        unsafe { core::ptr::write_bytes(address(at) as *mut u8, 0, len as usize) }
    }

    /// The sandbox's memory is one piece, so an addition finds the address that page tables want.
    #[inline(always)]
    fn physical(&self, at: u32) -> u64 {
        self.facts().base + u64::from(at)
    }

    /// Each space's root has this entry, so no switch of spaces takes the kernel away.
    fn kernel_entry(&self) -> Option<(u64, usize)> {
        Some((self.facts().window, WINDOW_INDEX))
    }

    #[inline(always)]
    fn enter_space(&mut self, root: u64) {
        // PCIDs are off, so this drops all translations but the global ones, which are the kernel's own. So no
        // translation of the space before is left.
        // SAFETY: a space's root maps the kernel where it is ([`Machine::kernel_entry`]).
        unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) }
    }

    /// A change that grants needs none of this: a processor does not remember that an entry was absent.
    fn forget(&mut self, address: u64) {
        // SAFETY: INVLPG only drops a translation that the processor remembers.
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

    /// The last bit is set, so that the time is never 0, which the kernel takes for "not read yet".
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
                // The lowest bit is set: a count of 0 would switch the timer off. A time that is too far for the
                // counter comes early, and the kernel sets it again.
                scale(left, self.facts().ticks).min(u64::from(u32::MAX)) | 1
            }
        };
        // The write starts the timer anew, whatever it was at; a count of 0 stops it (no time is waited for).
        // SAFETY: the timer is this core's own.
        unsafe { wrmsr(TMICT, count) }
    }

    /// XSAVE and XRSTOR, not their optimised forms: those trust that the area is the one that was loaded last.
    #[inline(never)]
    fn use_vectors(&mut self, area: Option<Ref<Vectors>>) {
        // The mask for XSAVE in EDX:EAX; no component from 32 on is used.
        let (low, high) = (self.facts().xcr0, 0u32);
        if low == 0 {
            // Without XSAVE no thread has any: their use is an exception.
            return;
        }
        // Before XSAVE and XRSTOR, which CR0.TS would make raise #NM, in the kernel.
        // SAFETY: the vector registers are there. They hold no thread's state yet, or the one that is saved below.
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
                // (APM volume 3, CPUID Fn8000_0008). FILD makes both the kernel's, so no thread reads another one's.
                "fnclex", "emms", "fild dword ptr [rip + {unused}]",
                "xrstor64 [{from}]",
                from = in(reg) from, unused = sym UNUSED, in("eax") low, in("edx") high, options(nostack)
            );
        }
        if area.is_none() {
            const TS: u64 = 1 << 3;
            // The registers are cleared before TS is set, not left for the next owner (lazily). Some processors execute
            // the instructions behind #NM speculatively with the registers' contents (docs/decisions/0034-switch.md).
            // SAFETY: a thread that uses vector registers now takes an exception, and none of another's are in them.
            unsafe {
                asm!("mov {r}, cr0", "or {r}, {ts}", "mov cr0, {r}", r = out(reg) _, ts = const TS, options(nostack))
            }
        }
    }

    fn access(&mut self, Port { number, bytes, value }: Port) -> u64 {
        match value {
            None => read_port(number, bytes).into(),
            Some(value) => {
                write_port(number, bytes, value);
                0
            }
        }
    }

    /// A script instead of a driver: the host knows the register that masks a device, and the kernel only writes it.
    fn play(&mut self, script: u32) {
        // An interrupt without a mask, such as an edge.
        if script == 0 {
            return;
        }
        let mut step = address(script) as *const Step;
        loop {
            // SAFETY: a script of the host's, in memory that no program can write; it ends with a zero address.
            let Step { address, value } = unsafe { step.read() };
            match address {
                0 => return,
                // This entry is a call, or has ended its own interrupt: the line's interrupt is the one in service.
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
            // Without a monitor VMMCALL is an exception.
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

/// Reads a port for a program. A narrow read is zero above, so that none of the kernel's bits are left for the program.
fn read_port(port: u16, bytes: u8) -> u32 {
    // SAFETY: a program that was given the port asks for it.
    unsafe {
        match bytes {
            1 => inb(port).into(),
            2 => inw(port).into(),
            _ => inl(port),
        }
    }
}

fn write_port(port: u16, bytes: u8, value: u32) {
    // SAFETY: a program that was given the port asks for it.
    unsafe {
        match bytes {
            1 => outb(port, value as u8),
            2 => outw(port, value as u16),
            _ => outl(port, value),
        }
    }
}

/// Calls the monitor, and returns its answer. Calls about links zero memory that only programs see. No program looks at
/// it while the kernel asks.
fn call(number: u64, first: u64, [a, b, c]: [u64; 3]) -> u64 {
    Here::call(number, [first, a, b, c])
}

/// The console: a serial port, or (0) the monitor's.
static PORT: AtomicU16 = AtomicU16::new(0);

/// Sets the console.
pub fn set_console(port: u16) {
    PORT.store(port, Ordering::Relaxed);
}

/// Writes to the console.
pub fn print(text: &[u8]) {
    report::print(text);
    let port = PORT.load(Ordering::Relaxed);
    if port != 0 {
        for byte in text {
            // The port's state is not polled: a kernel must not wait for a device, and emulated ones take every byte.
            // SAFETY: a serial port's data register.
            unsafe { outb(port, *byte) }
        }
        return;
    }
    if report::is_ours() {
        return;
    }
    // A call carries its text in registers, so the monitor reads none of the kernel's memory.
    for piece in text.chunks(hypercall::CONSOLE_BYTES as usize) {
        call(hypercall::CONSOLE, piece.len() as u64, packed(piece));
    }
}

fn ready() {
    if report::is_ours() {
        report::steady();
    } else if PORT.load(Ordering::Relaxed) == 0 {
        call(hypercall::READY, 0, [0; 3]);
    }
}

/// Ends the sandbox; without a monitor the core stops. It does not come back, since a failed kernel can't be trusted to
/// go on.
pub fn exit(code: u32) -> ! {
    tell_nmis(true);
    if report::is_ours() {
        report::end(code);
    } else if PORT.load(Ordering::Relaxed) == 0 {
        // A serial port as console means that there is no monitor to call: the bare machine of a measurement.
        call(hypercall::EXIT, u64::from(code), [0; 3]);
    }
    loop {
        // A loop, because an NMI ends HLT.
        // SAFETY: the core does nothing more.
        unsafe { asm!("cli", "hlt", options(nostack, nomem)) }
    }
}
