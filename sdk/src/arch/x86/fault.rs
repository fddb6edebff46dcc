//! Catching exceptions, so that a test can try an access that should fail and say how.

use super::idt::{Frame, RETURN};
use super::{cpu, percpu};
use core::arch::{asm, global_asm};
use core::ffi::c_void;
use core::fmt;

/// An exception that was caught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Exception vector.
    pub vector: u8,
    /// Its error code, 0 if it has none.
    pub error: u64,
    /// Address of the instruction.
    pub rip: u64,
    /// CR2; an address for #PF only.
    pub address: u64,
}

/// #DB.
pub const DB: u8 = 1;
/// #UD.
pub const UD: u8 = 6;
/// #GP.
pub const GP: u8 = 13;
/// #PF.
pub const PF: u8 = 14;
/// #AC.
pub const AC: u8 = 17;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 20] = [
            "#DE", "#DB", "NMI", "#BP", "#OF", "#BR", "#UD", "#NM", "#DF", "9", "#TS", "#NP",
            "#SS", "#GP", "#PF", "15", "#MF", "#AC", "#MC", "#XF",
        ];
        let name = NAMES.get(usize::from(self.vector)).unwrap_or(&"exception");
        write!(f, "{name}({:#x}) at {:#x}", self.error, self.rip)?;
        if self.vector == PF {
            write!(f, " address {:#x}", self.address)?;
        }
        Ok(())
    }
}

/// A core's state of capture; `rsp` is 0 while none is armed.
#[repr(C)]
pub(crate) struct Capture {
    rsp: u64,
    fault: Fault,
}

impl Capture {
    pub(crate) const NONE: Self =
        Self { rsp: 0, fault: Fault { vector: 0, error: 0, rip: 0, address: 0 } };
}

unsafe extern "C" {
    fn bulkhead_catch(f: extern "C" fn(*mut c_void), data: *mut c_void, armed: *mut u64) -> u64;
    static bulkhead_recover: u8;
}

// A setjmp that only an exception returns to. The callee-saved registers and the address of the armed word stay on the
// stack, and RSP goes into that word.
global_asm!(
    ".global bulkhead_catch",
    "bulkhead_catch:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rdx",
    "mov [rdx], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "xor eax, eax",
    "jmp 2f",
    ".global bulkhead_recover",
    "bulkhead_recover:",
    "mov eax, 1",
    "2:",
    "pop rdx",
    "mov qword ptr [rdx], 0",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
);

/// Runs `f` and catches the first exception in it. Does not nest.
///
/// # Safety
/// The exception ends `f` where it strikes. At that place `f` must hold nothing that a skipped destructor would have to
/// give back. It must leave no data half written that is used afterwards.
///
/// # Errors
/// The exception that ended `f`.
pub unsafe fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Fault> {
    struct Call<F, R> {
        f: Option<F>,
        result: Option<R>,
    }
    extern "C" fn run<F: FnOnce() -> R, R>(data: *mut c_void) {
        // SAFETY: `data` is the `Call` below, which no other code uses meanwhile.
        let call = unsafe { &mut *data.cast::<Call<F, R>>() };
        if let Some(f) = call.f.take() {
            call.result = Some(f());
        }
    }
    fn shim<F: FnOnce() -> R, R>(_: &Call<F, R>) -> extern "C" fn(*mut c_void) {
        run::<F, R>
    }
    let mut call = Call { f: Some(f), result: None };
    let run = shim(&call);
    // SAFETY: the own block; its armed word is 0 unless captures nest, which
    // would make the outer one return twice.
    let capture = unsafe { &raw mut (*percpu::this()).capture };
    // SAFETY: only this core uses its capture.
    assert!(unsafe { (*capture).rsp } == 0, "captures do not nest");
    // SAFETY: to this code the call returns once; the frames that an exception
    // skips hold nothing (the caller's promise).
    let caught =
        unsafe { bulkhead_catch(run, (&raw mut call).cast(), &raw mut (*capture).rsp) != 0 };
    match call.result {
        Some(result) if !caught => Ok(result),
        // SAFETY: the own block.
        _ => Err(unsafe { (*capture).fault }),
    }
}

/// Called for an exception that has no handler.
pub(crate) fn raised(frame: &mut Frame) {
    let address;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) }
    let fault = Fault { vector: frame.vector as u8, error: frame.error, rip: frame.rip, address };
    // SAFETY: the own block; interrupts are off.
    let capture = unsafe { &mut (*percpu::this()).capture };
    if capture.rsp == 0 {
        panic!("exception {fault} on core {}", percpu::index());
    }
    capture.fault = fault;
    /// TF, DF, NT and AC would disturb the code behind.
    const KEEP: u64 = !(1 << 8 | 1 << 10 | 1 << 14 | 1 << 18);
    frame.rip = &raw const bulkhead_recover as u64;
    frame.rsp = capture.rsp;
    frame.cs = u64::from(percpu::CODE);
    frame.ss = u64::from(percpu::DATA);
    frame.rflags &= KEEP;
}

/// Tells if a fault is the ordinary return from CPL 3.
pub(crate) fn is_return(fault: &Fault) -> bool {
    fault.vector == RETURN
}

/// RDMSR, or the exception it raises.
///
/// # Errors
/// The exception.
pub fn try_rdmsr(msr: u32) -> Result<u64, Fault> {
    // SAFETY: reading a register changes no memory, a #GP is caught.
    unsafe { catch(|| cpu::rdmsr(msr)) }
}

/// WRMSR, or the exception it raises.
///
/// # Errors
/// The exception.
///
/// # Safety
/// Should it succeed, the value must leave this program's world intact.
pub unsafe fn try_wrmsr(msr: u32, value: u64) -> Result<(), Fault> {
    // SAFETY: the caller's; a #GP is caught.
    unsafe { catch(|| cpu::wrmsr(msr, value)) }
}

/// Reads 8 bytes at any address, or the exception it raises.
///
/// # Safety
/// Reading a device can have effects: the address must not have any on this program.
///
/// # Errors
/// The exception.
pub unsafe fn try_read(address: u64) -> Result<u64, Fault> {
    // SAFETY: the caller's; a #PF or #GP is caught. Assembly, because the
    // address may be 0 or lie outside of every Rust object.
    unsafe {
        catch(|| {
            let value: u64;
            asm!("mov {}, [{}]", out(reg) value, in(reg) address,
                options(nostack, preserves_flags, readonly));
            value
        })
    }
}

/// Writes 8 bytes to any address, or the exception it raises.
///
/// # Safety
/// The content of that address must not matter to this program.
///
/// # Errors
/// The exception.
pub unsafe fn try_write(address: u64, value: u64) -> Result<(), Fault> {
    // SAFETY: the caller's; a #PF or #GP is caught.
    unsafe {
        catch(
            || asm!("mov [{}], {}", in(reg) address, in(reg) value, options(nostack, preserves_flags)),
        )
    }
}

/// Calls any address, or the exception it raises.
///
/// # Safety
/// A function of the C convention must lie there, or the call must raise an exception before it does harm.
///
/// # Errors
/// The exception.
pub unsafe fn try_call(address: u64) -> Result<(), Fault> {
    // SAFETY: the caller's.
    unsafe { catch(|| asm!("call {}", in(reg) address, clobber_abi("C"))) }
}
