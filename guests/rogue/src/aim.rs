//! Where the attacks aim.

use bulkhead_sdk::layout::info::Info;
use bulkhead_sdk::layout::map;
use bulkhead_sdk::layout::x86::MONITORS_VMX;
use bulkhead_sdk::{Context, window};

/// A guest-physical address.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// This one.
    At(u64),
    /// The first byte after the own RAM.
    AfterRam,
    /// An address that may be another sandbox's memory.
    Victim,
    /// So many bytes further on.
    IntoVictim(u64),
    /// Where the image (boot code, monitors, tables) lies in the machine.
    Image,
    /// This many bytes into the read-only information page.
    Info(u64),
    /// A channel that this sandbox only reads; after the RAM, if there is none.
    ReadOnlyChannel,
    /// After all channels that this sandbox sees.
    AfterWindows,
    /// Own text.
    Text,
    /// Own data.
    Data,
}

/// Targets for attacks.
#[derive(Clone, Copy)]
pub struct Aim {
    /// The guest's view of itself.
    pub context: Context,
    /// See the crate.
    pub victim: u64,
    /// See the crate.
    pub foreign: u32,
    /// See the crate.
    pub sandbox: u32,
    /// See the crate.
    pub port: u16,
    /// See the crate.
    pub uart: Option<u16>,
}

/// RET, for attacks that execute. Not `static mut`: no code writes it.
#[used]
#[unsafe(link_section = ".data.rogue")]
static CODE: [u8; 16] = [0xC3; 16];

impl Aim {
    /// The monitor is one for Intel's VT-x.
    #[must_use]
    pub fn is_vtx(&self) -> bool {
        self.context.info().monitors == MONITORS_VMX
    }

    /// From the arguments, or guessed.
    #[must_use]
    pub fn new(context: Context) -> Self {
        let info = context.info();
        let guess_victim = info.memory.max(0x2000_0000);
        Self {
            context,
            victim: context.arg_u64("victim").unwrap_or(guess_victim),
            foreign: context.arg_u64("foreign").map_or_else(|| foreign(info), |id| id as u32),
            sandbox: context
                .arg_u64("sandbox")
                .map_or(u32::from(info.sandbox == 0), |index| index as u32),
            port: context.arg_u64("port").map_or(0x3F8, |port| port as u16),
            uart: context.arg_u64("uart").map(|port| port as u16),
        }
    }

    /// Tells if the sandbox has an IOAPIC.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        self.context.info().lines != 0
    }

    /// An own edge-triggered line; without one any.
    #[must_use]
    pub fn line(&self) -> u32 {
        let info = self.context.info();
        (info.lines & !info.level_lines).trailing_zeros() % 32
    }

    /// An own level-triggered line; without one the real-time clock's.
    #[must_use]
    pub fn level_line(&self) -> u32 {
        match self.context.info().level_lines {
            0 => 8,
            lines => lines.trailing_zeros(),
        }
    }

    /// The address of a place.
    #[must_use]
    pub fn at(&self, place: Place) -> u64 {
        let info = self.context.info();
        let after_ram = if info.memory > map::GUEST_LOW_END {
            map::GUEST_HIGH + info.memory - map::GUEST_LOW_END
        } else {
            info.memory
        };
        match place {
            Place::At(address) => address,
            Place::AfterRam => after_ram,
            Place::Victim => self.victim,
            Place::IntoVictim(offset) => self.victim + offset,
            Place::Image => map::IMAGE_PA.max(after_ram),
            Place::Info(offset) => map::INFO_GPA + offset,
            Place::ReadOnlyChannel => window::all(self.context)
                .find(|w| !w.report && !w.writable)
                .map_or(after_ram, |w| w.gpa),
            Place::AfterWindows => window::all(self.context)
                .map(|w| w.gpa + w.size)
                .fold(map::CHANNELS_GPA, u64::max)
                .next_multiple_of(map::REPORT_STRIDE),
            Place::Text => crate::act::text as fn() -> u64 as usize as u64 & !7,
            Place::Data => CODE.as_ptr() as u64,
        }
    }
}

/// The lowest x2APIC ID that is not among the own ones.
fn foreign(info: &Info) -> u32 {
    let own = &info.core_ids[..(info.cores as usize).min(info.core_ids.len())];
    (0..).find(|id| !own.contains(id)).unwrap_or(0)
}
