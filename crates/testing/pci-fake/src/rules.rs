//! Rules that hold for the function, whatever its owner does.

use crate::{CORES, Fake, TUNED, at};
use bulkhead_layout::pci::Remapping;
use bulkhead_plan as plan;

/// Command: ports, memory, bus master, interrupt line off.
const COMMAND: u32 = 0x0407;
const INTX_OFF: u32 = 1 << 10;
/// Command: parity error response, SERR#.
const COMMAND_REPORTS: u32 = 1 << 6 | 1 << 8;
/// Device control: reports of correctable, non-fatal and fatal errors, and of unsupported requests.
pub(crate) const REPORTS: u32 = 0b1111;
/// Device control: relaxed ordering, no snoop, read request size.
pub(crate) const TUNING: u32 = 0x7810;

impl Fake {
    /// Bits of a register that a monitor may change.
    fn allowed(&self, offset: u16) -> u32 {
        let f = &self.described;
        let is = |capability: Option<u8>, after: u16| {
            capability.is_some_and(|at| offset == u16::from(at) + after)
        };
        if !self.is_own() {
            return 0;
        }
        if self.bars().any(|bar| bar.0 == offset) {
            return u32::MAX;
        }
        match offset {
            at::COMMAND => COMMAND,
            at::INTERRUPT => 0xFF,
            // The power state; a wake-up that the firmware wanted may go.
            _ if is(f.pm.map(|c| c.at), 4) => 0x0103,
            _ if is(f.pcie.map(|c| c.at), 8) => TUNING,
            _ if is(f.msix.map(|c| c.at), 0) => 3 << 30,
            _ => f.msi.map_or(0, |msi| {
                let at = u16::from(msi.at);
                let last = at + if msi.wide { 12 } else { 8 } + if msi.masks { 4 } else { 0 };
                match offset {
                    _ if offset == at => 1 << 16,
                    _ if offset > at && offset <= last => u32::MAX,
                    _ => 0,
                }
            }),
        }
    }

    /// Judges each write alone.
    pub(crate) fn before_write(&self, offset: u16, old: u32, new: u32, cleared: u32) {
        if cleared != 0 {
            self.complain(format!("{cleared:#x} at {offset:#x} is cleared"));
        }
        let changed = (old ^ new) & !self.allowed(offset);
        if changed != 0 || !self.is_own() {
            self.complain(format!("{changed:#x} at {offset:#x} changes"));
        }
        if offset == at::COMMAND && !self.line && new & INTX_OFF == 0 {
            self.complain("it uses the interrupt line".to_owned());
        }
        let stops = old & !new & self.needed();
        if offset == at::COMMAND && stops != 0 {
            self.complain(format!("it stops to decode: {stops:#b}"));
        }
    }

    /// Judges it at the end of a life: nothing of that is left. A function in a reset is in its own hands.
    pub(crate) fn at_rest(&self) {
        if self.state.borrow().gone {
            return;
        }
        if self.hardware(at::COMMAND) & 0b100 != 0 {
            self.complain("it reaches memory between two lives".to_owned());
        }
        if self.owes() {
            self.complain("it owes transfers of its last life".to_owned());
        }
        let control =
            self.described.pcie.filter(|c| c.flr).map(|c| self.hardware(u16::from(c.at) + 8));
        if control.is_some_and(|control| control & TUNING != TUNED) {
            self.complain("it is tuned as in its last life".to_owned());
        }
    }

    /// Judges the whole function.
    pub(crate) fn after_write(&self) {
        let checks = [self.placed(), self.messages(), self.silent()];
        if let Some(what) = checks.into_iter().find_map(Result::err) {
            self.complain(what);
        }
    }

    /// It reports no error to the platform.
    fn silent(&self) -> Result<(), String> {
        let command = self.hardware(at::COMMAND) & COMMAND_REPORTS;
        let control =
            self.described.pcie.map_or(0, |c| self.hardware(u16::from(c.at) + 8) & REPORTS);
        match command | control {
            0 => Ok(()),
            _ => Err(format!("it reports errors: {command:#x} {control:#x}")),
        }
    }

    /// Bits of the command register with which its BARs, which its owner has mapped, are decoded.
    fn needed(&self) -> u32 {
        let io = |bar: &plan::Bar| matches!(bar.kind, plan::BarKind::Io);
        let bit = |bar| if io(bar) { 0b01 } else { 0b10 };
        self.described.bars.iter().map(bit).fold(0, |all, bit| all | bit)
    }

    /// BARs are where they belong when they decode anything.
    fn placed(&self) -> Result<(), String> {
        if self.hardware(at::COMMAND) & 0b11 == 0 {
            return Ok(());
        }
        for (offset, bits, _, start) in self.bars() {
            let found = self.hardware(offset) & bits;
            if found != start & bits {
                return Err(format!("the BAR at {offset:#x} is at {found:#x}"));
            }
        }
        Ok(())
    }

    /// Checks that its messages go to its owner's cores.
    fn messages(&self) -> Result<(), String> {
        if let Some(msi) = self.described.msi {
            let at = u16::from(msi.at);
            if self.hardware(at) & 1 << 16 != 0 {
                if self.hardware(at) >> 20 & 7 != 0 {
                    return Err("several MSIs".to_owned());
                }
                let (upper, data) = match msi.wide {
                    true => (self.hardware(at + 8), at + 12),
                    false => (0, at + 8),
                };
                self.goes([self.hardware(at + 4), upper, self.hardware(data) & 0xFFFF])?;
            }
        }
        for vector in 0..self.function().vectors {
            let [address, upper, data, control] = self.entry(vector);
            if control & 1 == 0 {
                self.goes([address, upper, data])
                    .map_err(|why| format!("entry {vector}: {why}"))?;
            }
        }
        Ok(())
    }

    /// Where a message goes (AMD IOMMU specification, 2.2.5; APM 16.12).
    fn goes(&self, [address, upper, data]: [u32; 3]) -> Result<(), String> {
        let wrong = |what| Err(format!("a message {upper:x}:{address:08x} = {data:x} {what}"));
        if upper != 0 || address & 0xFFF0_0000 != 0xFEE0_0000 {
            return wrong("that is a write to memory");
        }
        if let Remapping::Entries(first) = self.function().remapping() {
            // An index without a part of it in the data (VT-d specification, 5.1.2.2).
            if address & 0x18 != 0x10 || data != 0 {
                return wrong("without an index");
            }
            let own = (address >> 5 & 0x7FFF | (address >> 2 & 1) << 15).wrapping_sub(first);
            let to_own = CORES.get(own as usize / 256).is_some_and(|core| *core != 0xFF);
            return if to_own && own % 256 >= 16 { Ok(()) } else { wrong("by a foreign entry") };
        }
        if address & 0xFFF != 0 {
            return wrong("that is a write to memory");
        }
        let (core, vector) = if self.remapped() {
            let entry = self.slot((data & 0x7FF) as usize);
            // Valid; fixed; a physical destination; nothing that is reserved.
            if data > 0x1FF || entry & 0xFF00_00FF != 1 {
                return wrong("without an entry");
            }
            (entry >> 8 & 0xFF, entry >> 16 & 0xFF)
        } else {
            // Fixed, edge.
            if data & !0xFF != 0 {
                return wrong("of another kind");
            }
            (address >> 12 & 0xFF, data)
        };
        if core == 0xFF || !CORES.contains(&core) {
            return wrong("to a foreign core");
        }
        if vector < 16 { wrong("with a vector that is none") } else { Ok(()) }
    }

    fn remapped(&self) -> bool {
        self.state.borrow().remap.is_some()
    }

    /// Tells if its memory answers.
    pub(crate) fn decodes(&self) -> bool {
        let asleep =
            self.described.pm.is_some_and(|pm| self.hardware(u16::from(pm.at) + 4) & 3 != 0);
        self.hardware(at::COMMAND) & 2 != 0 && !asleep
    }

    /// Where in the trapped pages; aligned and inside.
    pub(crate) fn place(&self, address: u64, size: u8) -> Option<usize> {
        let f = self.function();
        let inside = address >= f.trap && address + u64::from(size) <= f.trap + f.trap_len;
        if !inside || !matches!(size, 1 | 2 | 4 | 8) || address % u64::from(size) != 0 {
            self.complain(format!("{size} bytes at {address:#x}"));
            return None;
        }
        Some((address - f.trap) as usize)
    }
}
