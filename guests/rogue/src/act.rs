//! The act of an attack. Every act returns a value or the exception that it met.

use crate::aim::{Aim, Place};
use crate::expect::Got;
use bulkhead_sdk::fault::{catch, try_call, try_rdmsr, try_read, try_write, try_wrmsr};
use bulkhead_sdk::{Here, Instructions, apic, cpu, hypercall};

/// See the module.
#[derive(Clone, Copy)]
pub enum Act {
    /// Read 8 bytes.
    Read(Place),
    /// Write 8 bytes.
    Write(Place, u64),
    /// Call.
    Execute(Place),
    /// Write a port: number, bytes (1 or 4), value.
    Out(u16, u8, u32),
    /// Read a port: number, bytes.
    In(u16, u8),
    /// Write the other sandbox's port.
    OutForeign(u8),
    /// Read a register.
    Rdmsr(u32),
    /// Write a register.
    Wrmsr(u32, u64),
    /// Set bits of a register.
    SetMsr(u32, u64),
    /// Clear bits of a register; one that should seem to succeed, so it returns 0.
    ClearMsr(u32, u64),
    /// Write the lower half of the ICR, aimed at the foreign core.
    IcrForeign(u32),
    /// Write the lower half of the ICR, aimed at the foreign core's place in logical (cluster) addressing.
    IcrForeignLogical(u32),
    /// Write the ICR.
    Icr(u64),
    /// Write the ICR, aimed at the own core.
    IcrSelf(u32),
    /// Make a hypercall: number, first and second argument.
    Call(u64, u64, u64),
    /// One about another sandbox: number, second argument.
    CallForeign(u64, u64),
    /// Make a hypercall about another sandbox by the port.
    PortForeign(u64, u64),
    /// Something else.
    Run(fn(&Aim) -> Got),
}

/// Something in the own text to aim at.
#[inline(never)]
pub fn text() -> u64 {
    core::hint::black_box(0)
}

impl Act {
    /// Does it.
    pub fn run(&self, aim: &Aim) -> Got {
        let own = u64::from(apic::id()) << 32;
        let foreign = u64::from(aim.foreign);
        match *self {
            // SAFETY: for the whole match: these are attacks. An access that is not denied lies outside of the memory
            // that Rust uses in this program, or is restored by the restart that follows. Otherwise it shows as a
            // failed test.
            Self::Read(place) => unsafe { try_read(aim.at(place)) },
            // SAFETY: an attack, see the first arm.
            Self::Write(place, value) => unsafe { try_write(aim.at(place), value) }.map(|()| 0),
            // SAFETY: an attack, see the first arm.
            Self::Execute(place) => unsafe { try_call(aim.at(place)) }.map(|()| 0),
            Self::Out(port, bytes, value) => output(port, bytes, value),
            Self::In(port, bytes) => input(port, bytes),
            Self::OutForeign(value) => output(aim.port, 1, u32::from(value)),
            Self::Rdmsr(msr) => try_rdmsr(msr),
            Self::Wrmsr(msr, value) => write_msr(msr, value),
            Self::SetMsr(msr, bits) => write_msr(msr, try_rdmsr(msr)? | bits),
            Self::ClearMsr(msr, bits) => write_msr(msr, try_rdmsr(msr)? & !bits),
            Self::IcrForeign(low) => write_msr(apic::ICR, foreign << 32 | u64::from(low)),
            Self::IcrForeignLogical(low) => write_msr(apic::ICR, logical(aim) | u64::from(low)),
            Self::Icr(value) => write_msr(apic::ICR, value),
            Self::IcrSelf(low) => write_msr(apic::ICR, own | u64::from(low)),
            Self::Call(number, a, b) => Ok(hypercall::raw(number, a, b, 0, 0)),
            Self::CallForeign(number, b) => {
                Ok(hypercall::raw(number, u64::from(aim.sandbox), b, 0, 0))
            }
            Self::PortForeign(number, b) => {
                Ok(Here::call_as_user(number, u64::from(aim.sandbox), b))
            }
            Self::Run(act) => act(aim),
        }
    }
}

/// ICR destination of the foreign core in cluster addressing (APM volume 2, 16.14).
#[must_use]
pub fn logical(aim: &Aim) -> u64 {
    let id = u64::from(aim.foreign);
    (id >> 4 << 16 | 1 << (id & 15)) << 32
}

fn write_msr(msr: u32, value: u64) -> Got {
    // SAFETY: see `Act::run`.
    unsafe { try_wrmsr(msr, value) }.map(|()| 0)
}

fn output(port: u16, bytes: u8, value: u32) -> Got {
    // SAFETY: see `Act::run`.
    unsafe {
        catch(|| match bytes {
            1 => cpu::outb(port, value as u8),
            _ => cpu::outl(port, value),
        })
    }
    .map(|()| 0)
}

fn input(port: u16, bytes: u8) -> Got {
    // SAFETY: see `Act::run`.
    unsafe {
        catch(|| match bytes {
            1 => u64::from(cpu::inb(port)),
            _ => u64::from(cpu::inl(port)),
        })
    }
}
