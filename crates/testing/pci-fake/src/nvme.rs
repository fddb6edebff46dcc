//! Registers of an NVMe controller as its specification has them (NVM Express 1.4, 3.1 and 7.3.2). A driver has left it
//! in any state.

use crate::Fake;

/// Class, subclass and interface.
const CLASS: u32 = 0x01_08_02;
/// Offsets in BAR 0.
const CC: u64 = 0x14;
const CSTS: u64 = 0x1C;
const CMBMSC: u64 = 0x50;
const PMRMSCL: u64 = 0xE14;
/// `CC`.
const EN: u32 = 1;
const SHN: u32 = 0b11 << 14;
/// `CC` of a driver: entries of 64 and of 16 bytes.
const WANTED: u32 = 6 << 16 | 4 << 20 | EN;
/// `CSTS`.
const RDY: u32 = 1;
const CFS: u32 = 2;
/// Reads of `CSTS` until a reset is over.
const BUSY: u8 = 3;

/// A state in which a driver leaves a controller, always with commands that it has queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It works.
    Works,
    /// It works, and its address windows are open.
    Windows,
    /// It works, and its end of work is never seen.
    Stuck,
    /// It was switched on, and is not ready.
    Begins,
    /// It was switched on and off before it was ready: undefined results.
    Toggled,
    /// It says that it does not go on.
    Fatal,
    /// It says so after the end of its work.
    EndsFatal,
    /// It was told to shut down.
    ShutsDown,
    /// It processes no commands for a while, by its own wish.
    Pauses,
}

impl Left {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Works,
        Self::Windows,
        Self::Stuck,
        Self::Begins,
        Self::Toggled,
        Self::Fatal,
        Self::EndsFatal,
        Self::ShutsDown,
        Self::Pauses,
    ];

    /// Tells if only a function-level reset ends its work for sure.
    #[must_use]
    pub const fn needs_flr(self) -> bool {
        !matches!(self, Self::Works | Self::Windows)
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    left: Left,
    cc: u32,
    csts: u32,
    windows: [u32; 2],
    /// Reads of `CSTS` until its reset is over.
    busy: u8,
    /// It holds transfers that it makes once it can.
    owes: bool,
}

impl Controller {
    pub(crate) fn new(left: Left) -> Self {
        let csts = match left {
            Left::Begins | Left::Toggled => 0,
            Left::Fatal => RDY | CFS,
            Left::ShutsDown => RDY | 0b01 << 2,
            Left::Pauses => RDY | 1 << 5,
            _ => RDY,
        };
        let cc = match left {
            Left::Toggled => WANTED & !EN,
            Left::ShutsDown => WANTED | 1 << 14,
            _ => WANTED,
        };
        let windows = if left == Left::Windows { [0b11, 0b10] } else { [0; 2] };
        Self { left, cc, csts, windows, busy: 0, owes: true }
    }

    /// Ends all its work, as a function-level reset does.
    pub(crate) fn reset(&mut self) {
        *self = Self { left: Left::Works, cc: 0, csts: 0, windows: [0; 2], busy: 0, owes: false };
    }

    fn read(&mut self, offset: u64) -> u32 {
        match offset {
            CC => self.cc,
            CSTS => {
                let over = self.busy == 1;
                self.busy = self.busy.saturating_sub(1);
                if over {
                    // Undefined results are the worst ones: it says that it has ended.
                    self.owes &= self.left.needs_flr();
                    self.csts = if self.left == Left::EndsFatal { CFS } else { 0 };
                }
                self.csts
            }
            CMBMSC => self.windows[0],
            PMRMSCL => self.windows[1],
            _ => 0,
        }
    }

    fn write(&mut self, offset: u64, value: u32) -> Result<(), String> {
        match offset {
            CC => {
                let changed = (self.cc ^ value) & !(EN | SHN);
                if self.cc & EN != 0 && changed != 0 {
                    return Err(format!("CC changes by {changed:#x} while it is on"));
                }
                if self.cc & EN != 0 && value & EN == 0 && self.left != Left::Stuck {
                    self.busy = BUSY;
                }
                self.cc = value;
            }
            CMBMSC | PMRMSCL if self.cc & EN != 0 => {
                return Err(format!("the window at {offset:#x} changes under it"));
            }
            CMBMSC => self.windows[0] = value,
            PMRMSCL => self.windows[1] = value,
            _ => return Err(format!("a write of {value:#x} at {offset:#x}")),
        }
        Ok(())
    }
}

impl Fake {
    /// Leaves the controller as a driver does, with commands under way.
    pub fn leave(&self, left: Left) {
        self.state.borrow_mut().controller = Some(Controller::new(left));
    }

    /// Tells if it holds transfers of the life before, or windows.
    #[must_use]
    pub fn owes(&self) -> bool {
        let state = self.state.borrow();
        state.controller.as_ref().is_some_and(|c| c.owes || c.windows != [0; 2])
    }

    /// Tells if the function is such a controller.
    pub(crate) fn is_nvme(&self) -> bool {
        self.described.class == CLASS
    }

    /// Offset of an access to its registers.
    fn offset(&self, address: u64) -> u64 {
        address - self.described.bars[0].span.start
    }

    pub(crate) fn read_controller(&self, address: u64) -> u32 {
        let offset = self.offset(address);
        self.state.borrow_mut().controller.as_mut().map_or(0, |c| c.read(offset))
    }

    pub(crate) fn write_controller(&self, address: u64, value: u32) {
        let offset = self.offset(address);
        let mut state = self.state.borrow_mut();
        let done = state.controller.as_mut().map_or(Ok(()), |c| c.write(offset, value));
        drop(state);
        if let Err(why) = done {
            self.complain(why);
        }
    }
}
