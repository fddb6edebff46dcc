//! The expected and the real results of attacks.

use crate::act::logical;
use crate::aim::{Aim, Place};
use crate::lines;
use bulkhead_sdk::apic;
use bulkhead_sdk::fault::Fault;
use bulkhead_sdk::layout::report::{KIND_NAMES, Kind};
use core::fmt;

/// Expected result of an attack.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// A denial of memory at this place.
    Memory(Place),
    /// A denial of this port.
    Port(u16),
    /// A denial of the other sandbox's port ([`Aim::port`]).
    ForeignPort,
    /// A denial of this model-specific register.
    Msr(u32),
    /// A denial of an interrupt to another's core, with this lower half of the ICR.
    ForeignIpi(u32),
    /// A denial of an interrupt to another's core in logical (cluster) addressing, with this lower half of the ICR.
    ForeignLogicalIpi(u32),
    /// A denial of this ICR value.
    Ipi(u64),
    /// A denial of an interrupt to the own core, with this lower half of the ICR.
    OwnIpi(u32),
    /// A denial with this exit code; `#UD` where the CPU lacks the instruction.
    Instruction(u64),
    /// A denial of this call.
    Hypercall(u64),
    /// A denial of the IOAPIC's register with this index.
    Line(u32),
    /// A denial of the low (0) or high (1) register of an own line.
    OwnLine(u32),
    /// A denial of the low register of a level-triggered line.
    LevelLine,
    /// A denial of an access to the IOAPIC at this address.
    Register(u64),
    /// The guest lives on without a record, where there is an IOAPIC.
    QuietLines,
    /// A denial of a device's register at this address.
    Device(u64),
    /// One of these denials, as a race decides.
    OneOf(&'static [Expect]),
    /// The guest starts afresh, by its own will.
    Restart,
    /// A triple fault.
    Shutdown,
    /// The guest lives on without a record; the attack returns this.
    Harmless(u64),
    /// An exception with this vector inside the guest, no denial.
    Exception(u8),
    /// Nothing, for ever: the sandbox can still be stopped.
    Endless,
}

impl Expect {
    /// Kind and address of the denial that should be recorded.
    #[must_use]
    pub fn denial(&self, aim: &Aim) -> Option<(Kind, u64)> {
        let foreign = u64::from(aim.foreign) << 32;
        Some(match *self {
            Self::Memory(place) => (Kind::Memory, aim.at(place)),
            Self::Port(port) => (Kind::Port, u64::from(port)),
            Self::ForeignPort => (Kind::Port, u64::from(aim.port)),
            Self::Msr(msr) => (Kind::Msr, u64::from(msr)),
            Self::ForeignIpi(low) => (Kind::Ipi, foreign | u64::from(low)),
            Self::ForeignLogicalIpi(low) => (Kind::Ipi, logical(aim) | u64::from(low)),
            Self::OwnIpi(low) => (Kind::Ipi, u64::from(apic::id()) << 32 | u64::from(low)),
            Self::Ipi(icr) => (Kind::Ipi, icr),
            Self::Instruction(code) if aim.is_vtx() => (Kind::Instruction, reason(code)),
            Self::Instruction(code) => (Kind::Instruction, code),
            Self::Hypercall(call) => (Kind::Hypercall, call),
            // Without a line there is no IOAPIC, and the first access is to its index.
            Self::Register(at) if !aim.has_lines() => (Kind::Memory, at),
            Self::Line(_) | Self::OwnLine(_) | Self::LevelLine | Self::QuietLines
                if !aim.has_lines() =>
            {
                (Kind::Memory, lines::SELECT)
            }
            Self::Register(at) | Self::Device(at) => (Kind::Device, at),
            Self::Line(index) => register(index),
            Self::OwnLine(half) => register(lines::low(aim.line()) + half),
            Self::LevelLine => register(lines::low(aim.level_line())),
            Self::Shutdown if aim.is_vtx() => (Kind::Shutdown, 2),
            Self::Shutdown => (Kind::Shutdown, 0x7F),
            Self::QuietLines
            | Self::Harmless(_)
            | Self::Exception(_)
            | Self::Restart
            | Self::OneOf(_)
            | Self::Endless => return None,
        })
    }

    /// As it is printed: `memory-violation 0xfee00300`, `harmless 0x0`, `exception 13`, `endless`.
    #[must_use]
    pub fn text<'a>(&'a self, aim: &'a Aim) -> impl fmt::Display + 'a {
        Text(self, aim)
    }
}

/// VT-x' reason of an exit (SDM volume 3, appendix C) for an exit code of SVM. Instructions without one fault there.
fn reason(code: u64) -> u64 {
    match code {
        0x8A => 39,
        0x8B => 36,
        code => code,
    }
}

fn register(index: u32) -> (Kind, u64) {
    (Kind::Device, lines::REGISTERS + u64::from(index))
}

struct Text<'a>(&'a Expect, &'a Aim);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.denial(self.1), self.0) {
            (Some((kind, address)), _) => {
                write!(f, "{} {address:#x}", KIND_NAMES[kind as usize])
            }
            (None, Expect::Harmless(value)) => write!(f, "harmless {value:#x}"),
            (None, Expect::Exception(vector)) => write!(f, "exception {vector}"),
            (None, Expect::OneOf(all)) => {
                for (n, one) in all.iter().enumerate() {
                    let separator = if n == 0 { "" } else { " or " };
                    write!(f, "{separator}{}", Text(one, self.1))?;
                }
                Ok(())
            }
            (None, Expect::Restart) => f.write_str("restart"),
            (None, Expect::QuietLines) => f.write_str("harmless 0x0"),
            (None, _) => f.write_str("endless"),
        }
    }
}

/// Result of an attack that the guest survived: a value or an exception.
pub type Got = Result<u64, Fault>;

/// As it is printed.
pub struct Outcome(pub Got);

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(value) => write!(f, "harmless {value:#x}"),
            Err(fault) => write!(f, "exception {} ({fault})", fault.vector),
        }
    }
}
