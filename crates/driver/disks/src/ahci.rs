//! A disk behind an AHCI controller (Serial ATA AHCI 1.3.1; commands of ATA/ATAPI Command Set 4): one port.
//!
//! A request's slot is the controller's command slot. Commands are not queued in the disk: native queues name no failed
//! command without a further one, and mix with no flush. The controller takes the next slot without the driver's help.
//!
//! The driver trusts no word about which command failed, as emulators differ in `PxCI` and `PxCMD.CCS`. After an error
//! it carries out all unanswered requests again, each alone; one that fails alone has failed.

use crate::flights::{Answer, Flights};
use crate::useless;
use bulkhead_device::{Clock, Memory, Registers, Window, Wrong, clear, wait};
use bulkhead_store::disk::{Disk, Failed, Full, Info, Operation, Request};

/// Class, subclass and interface of such a function.
pub const CLASS: u32 = 0x01_06_01;
/// BAR of the registers.
pub const BAR: u8 = 5;
/// Bytes of memory for the command list, the received FIS and the command tables.
pub const MEMORY: usize = TABLES + 32 * TABLE;

/// Most bytes of a request; an entry of a command table has room for four times that (4.2.3.3).
const MOST: u32 = 1 << 20;
/// Nanoseconds that the controller's reset may take (10.4.3), and the link after it.
const RESET: u64 = 1_000_000_000;
const LINK: u64 = 1_000_000_000;
/// Nanoseconds until the disk is ready: it may have to begin to turn.
const READY: u64 = 10_000_000_000;
/// Nanoseconds that its first command may take.
const PATIENCE: u64 = 5_000_000_000;
/// Nanoseconds until a port has stopped after an error. The specification has 500 milliseconds (10.3.2): too many for
/// a look at answers, and a reset helps, too.
const STOP: u64 = 10_000_000;

/// Parts of the memory: the list at a multiple of 1024, received FIS of 256, tables of 128 (4.2).
const LIST: usize = 0;
const RECEIVED: usize = 1024;
const ANSWER: usize = 1536;
const TABLES: usize = 2048;
/// Bytes of a slot's table: a FIS, two entries of data at `DATA`, and a list of ranges at `RANGES`.
const TABLE: usize = 256;
const DATA: usize = 128;
const RANGES: usize = 192;
/// Ranges of a request, and blocks of each at most (ATA/ATAPI Command Set 4, 7.6.3.2). The disk takes a block of 512
/// bytes with them; an empty range in the rest of it means nothing.
const COUNT: usize = 8;
const LONGEST: u64 = 0xFFFF;
const LISTED: u32 = 8 * COUNT as u32;
const _: () = assert!(RANGES + 8 * COUNT <= TABLE && DATA + 32 <= RANGES);

/// Registers of the controller (3.1).
mod host {
    pub const CAP: u64 = 0x00;
    pub const GHC: u64 = 0x04;
    pub const IS: u64 = 0x08;
    pub const PI: u64 = 0x0C;
}

/// Registers of a port (3.3).
mod port {
    pub const FIRST: u64 = 0x100;
    pub const BYTES: u64 = 0x80;
    pub const CLB: u64 = 0x00;
    pub const FB: u64 = 0x08;
    pub const IS: u64 = 0x10;
    pub const IE: u64 = 0x14;
    pub const CMD: u64 = 0x18;
    pub const TFD: u64 = 0x20;
    pub const SIG: u64 = 0x24;
    pub const SSTS: u64 = 0x28;
    pub const SERR: u64 = 0x30;
    pub const CI: u64 = 0x38;
}

/// `GHC`: reset, interrupts, AHCI enabled (3.1.2).
const HR: u32 = 1;
const IE: u32 = 1 << 1;
const AE: u32 = 1 << 31;
/// `PxCMD` (3.3.7): start, with power and spun up, receives FIS, active, list running.
const ST: u32 = 1;
const UP: u32 = 1 << 1 | 1 << 2;
const FRE: u32 = 1 << 4;
const ACTIVE: u32 = 1 << 28;
const CR: u32 = 1 << 15;
/// `PxTFD`: busy, or data requested (3.3.8).
const BUSY: u32 = 1 << 7 | 1 << 3;
/// `PxIS` (3.3.5): the end of a command; its error, or one of the bus or the link.
const END: u32 = 1;
const ERRORS: u32 = 0b1111 << 27;

/// Commands (ATA/ATAPI Command Set 4, 7).
mod command {
    pub const DATA_SET_MANAGEMENT: u8 = 0x06;
    pub const READ_DMA_EXT: u8 = 0x25;
    pub const WRITE_DMA_EXT: u8 = 0x35;
    pub const FLUSH_CACHE_EXT: u8 = 0xEA;
    pub const IDENTIFY_DEVICE: u8 = 0xEC;
}

/// Feature of `DATA_SET_MANAGEMENT`: the ranges' content is not needed any more.
const TRIM: u8 = 1;

/// A command with its data.
#[derive(Default)]
struct Command {
    code: u8,
    feature: u8,
    block: u64,
    blocks: u16,
    writes: bool,
    address: u64,
    len: u32,
    /// Zeros behind the data, from the memory's own.
    zeros: u32,
}

/// A disk behind a port.
#[derive(Debug)]
pub struct Ahci<R, M, C> {
    registers: Window<R>,
    memory: M,
    clock: C,
    number: u8,
    info: Info,
    flights: Flights,
    /// Slots of requests by their way: to be issued, to be issued alone, issued.
    waiting: u32,
    alone: u32,
    issued: u32,
    /// Slots that are done or have failed.
    done: u32,
    failed: u32,
    /// It shall not interrupt.
    quiet: bool,
    fault: Option<Wrong>,
}

impl<R: Registers, M: Memory, C: Clock> Ahci<R, M, C> {
    /// Resets the controller and switches the disk of a port on. `registers` is its BAR [`BAR`], `memory` at least
    /// [`MEMORY`] bytes.
    ///
    /// # Errors
    /// It lacks something, lies, or is silent.
    pub fn new(registers: R, memory: M, clock: C, number: u8) -> Result<Self, Wrong> {
        let bytes = port::FIRST + port::BYTES * (u64::from(number) + 1);
        let registers = (number < 32).then(|| Window::new(registers, 0, bytes)).flatten();
        let registers = registers.ok_or(Wrong::Lacks("registers for the port"))?;
        let info = Info::UNKNOWN;
        let mut disk = Self {
            registers,
            memory,
            clock,
            number,
            info,
            flights: Flights::new(0),
            waiting: 0,
            alone: 0,
            issued: 0,
            done: 0,
            failed: 0,
            quiet: false,
            fault: None,
        };
        disk.info = disk.start()?;
        disk.forget();
        Ok(disk)
    }

    /// Returns why the disk is silent, if it is.
    pub const fn fault(&self) -> Option<Wrong> {
        self.fault
    }

    /// Looks if the controller says that it does not go on. It says so in the port's causes of interrupts, which each
    /// look for answers reads.
    pub const fn check(&self) {}

    fn read(&self, at: u64) -> u32 {
        self.registers.read32(port::FIRST + port::BYTES * u64::from(self.number) + at)
    }

    fn write(&self, at: u64, value: u32) {
        self.registers.write32(port::FIRST + port::BYTES * u64::from(self.number) + at, value);
    }

    /// Bus address of a place in the memory.
    fn bus(&self, at: usize) -> u64 {
        self.memory.address() + at as u64
    }

    /// Forgets all requests.
    fn forget(&mut self) {
        self.flights = Flights::new(self.info.depth);
        (self.waiting, self.alone, self.issued) = (0, 0, 0);
        (self.done, self.failed) = (0, 0);
    }

    /// Resets the controller, and sets the port up. If that fails it is off, as far as it obeys.
    fn start(&mut self) -> Result<Info, Wrong> {
        self.set_up().inspect_err(|_| self.off())
    }

    /// Begins a reset of the controller: no port goes on.
    fn off(&self) {
        self.registers.write32(host::GHC, AE | HR);
    }

    /// Sets the port up from the controller's reset on (10.1.2, 10.4.3).
    fn set_up(&mut self) -> Result<Info, Wrong> {
        const WIDE: u32 = 1 << 31;
        self.registers.write32(host::GHC, AE);
        self.registers.write32(host::GHC, AE | HR);
        let over = || (self.registers.read32(host::GHC) & HR == 0).then_some(());
        wait(&self.clock, RESET, over).ok_or(Wrong::Silent("end of its reset"))?;
        self.registers.write32(host::GHC, AE);
        let capabilities = self.registers.read32(host::CAP);
        if capabilities & WIDE == 0 {
            return Err(Wrong::Lacks("addresses of 64 bits"));
        }
        if self.registers.read32(host::PI) >> self.number & 1 == 0 {
            return Err(Wrong::Lacks("such port"));
        }
        clear(&self.memory, MEMORY)?;
        self.connect()?;
        let depth = (capabilities >> 8 & 0x1F) as u16 + 1;
        let info = self.identify(depth)?;
        self.settle();
        self.interrupt();
        self.registers.write32(host::GHC, AE | IE);
        Ok(info)
    }

    /// Gives the port its memory, and starts it once there is a disk (10.1.2, 10.3.1).
    fn connect(&self) -> Result<(), Wrong> {
        const DISK: u32 = 0x0000_0101;
        for (at, place) in [(port::CLB, LIST), (port::FB, RECEIVED)] {
            self.write(at, self.bus(place) as u32);
            self.write(at + 4, (self.bus(place) >> 32) as u32);
        }
        self.write(port::CMD, UP | FRE | ACTIVE);
        // A device is there, with a link that is active (3.3.10).
        let linked = || (self.read(port::SSTS) & 0xF0F == 0x103).then_some(());
        wait(&self.clock, LINK, linked).ok_or(Wrong::Silent("link to the port"))?;
        self.write(port::SERR, u32::MAX);
        let ready = || (self.read(port::TFD) & BUSY == 0).then_some(());
        wait(&self.clock, READY, ready).ok_or(Wrong::Silent("readiness"))?;
        if self.read(port::SIG) != DISK {
            return Err(Wrong::Lacks("disk at the port"));
        }
        self.write(port::IS, u32::MAX);
        self.write(port::CMD, UP | FRE | ACTIVE | ST);
        Ok(())
    }

    /// Asks for the disk's properties (ATA/ATAPI Command Set 4, 7.13).
    fn identify(&self, depth: u16) -> Result<Info, Wrong> {
        const WHAT: &str = "identify itself";
        let code = command::IDENTIFY_DEVICE;
        let address = self.bus(ANSWER);
        self.put(0, &Command { code, address, len: 512, ..Command::default() });
        self.write(port::CI, 1);
        let over = || {
            let failed = self.read(port::IS) & ERRORS != 0;
            (failed || self.read(port::CI) & 1 == 0).then_some(())
        };
        wait(&self.clock, PATIENCE, over).ok_or(Wrong::Silent(WHAT))?;
        if self.read(port::IS) & ERRORS != 0 {
            return Err(Wrong::Failed(WHAT, self.read(port::TFD) as u16));
        }
        let word = |n: usize| (self.memory.get(ANSWER + n / 4 * 8) >> (n % 4 * 16)) as u16;
        let (commands, layout) = (word(83), word(106));
        if commands >> 14 != 1 || commands & 1 << 10 == 0 {
            return Err(Wrong::Lacks("addresses of 48 bits"));
        }
        let long = layout >> 14 == 1 && layout & 1 << 12 != 0;
        let words = u32::from(word(117)) | u32::from(word(118)) << 16;
        let block = if long { words.saturating_mul(2) } else { 512 };
        if !block.is_power_of_two() || !(512..=1 << 16).contains(&block) {
            return Err(Wrong::Lies("size of a block"));
        }
        let blocks = self.memory.get(ANSWER + 200);
        if blocks == 0 || blocks >> 48 != 0 {
            return Err(Wrong::Lies("number of blocks"));
        }
        let (sectors, flush) = (blocks * u64::from(block / 512), commands & 1 << 13 != 0);
        // TRIM. The disk chooses the content that is read afterwards, so there is no request for zeros.
        let most = COUNT as u32 * LONGEST as u32 * (block / 512);
        let discard = if word(169) & 1 == 0 { 0 } else { most };
        // From here on these are the zeros behind a list of ranges.
        (0..512).step_by(8).for_each(|at| self.memory.set(ANSWER + at, 0));
        Ok(Info { sectors, block, read_only: false, flush, most: MOST, depth, discard, zero: 0 })
    }

    /// Lets the port interrupt, or not.
    fn interrupt(&self) {
        self.write(port::IE, if self.quiet { 0 } else { END | ERRORS });
    }

    /// Writes a command into its slot: the FIS, the entry of its data, and the header (4.2.2, 4.2.3).
    fn put(&self, slot: usize, command: &Command) {
        /// A register FIS to the device, of five words, with a command (Serial ATA 3.1, 10.5.5), and `LBA`.
        const FIS: u64 = 0x27 | 1 << 15 | 0x40 << 56;
        let (code, block) = (u64::from(command.code), command.block);
        let (table, feature) = (TABLES + TABLE * slot, u64::from(command.feature));
        self.memory.set(table, FIS | code << 16 | feature << 24 | (block & 0xFF_FFFF) << 32);
        self.memory.set(table + 8, block >> 24 & 0xFF_FFFF | u64::from(command.blocks) << 32);
        self.memory.set(table + DATA, command.address);
        self.memory.set(table + DATA + 8, u64::from(command.len.saturating_sub(1)) << 32);
        self.memory.set(table + DATA + 16, self.bus(ANSWER));
        self.memory.set(table + DATA + 24, u64::from(command.zeros.saturating_sub(1)) << 32);
        let entries = u64::from(command.len != 0) + u64::from(command.zeros != 0);
        self.memory.set(LIST + 32 * slot, 5 | u64::from(command.writes) << 6 | entries << 16);
        self.memory.set(LIST + 32 * slot + 8, self.bus(table));
    }

    /// Lists a range in a slot's table, in pieces; returns the list's bus address.
    fn list(&self, slot: usize, mut block: u64, mut blocks: u64) -> u64 {
        let list = TABLES + TABLE * slot + RANGES;
        for n in 0..COUNT {
            let piece = blocks.min(LONGEST);
            self.memory.set(list + 8 * n, if piece == 0 { 0 } else { block | piece << 48 });
            block += piece;
            blocks -= piece;
        }
        self.bus(list)
    }

    /// Issues requests, or one of those that go alone.
    fn issue(&mut self) {
        if self.alone != 0 && self.issued != 0 {
            return;
        }
        let slots = match self.alone {
            0 => core::mem::take(&mut self.waiting),
            alone => alone & alone.wrapping_neg(),
        };
        self.alone &= !slots;
        self.issued |= slots;
        if slots != 0 {
            self.write(port::CI, slots);
        }
    }

    /// Sees which commands have ended, and issues others.
    fn look(&mut self) -> Result<(), Wrong> {
        if self.issued == 0 && self.quiet {
            return Ok(());
        }
        // First the port's register, then the controller's, so that a later end interrupts anew (10.7).
        let before = self.read(port::IS);
        if before != 0 {
            self.write(port::IS, before & !ERRORS);
            self.registers.write32(host::IS, 1 << self.number);
        }
        let busy = self.read(port::CI);
        if busy & !self.issued != 0 {
            return Err(Wrong::Lies("command in a slot"));
        }
        let ended = self.issued & !busy;
        // Some emulators end a failed command as others. So the look at errors comes after that at ends.
        let after = if ended == 0 { 0 } else { self.read(port::IS) };
        let failed = (before | after) & ERRORS != 0;
        if !failed {
            self.issued = busy;
            self.done |= ended;
        } else {
            self.recover()?;
        }
        if failed || ended != 0 {
            self.issue();
        }
        Ok(())
    }

    /// Stops the port after an error, which forgets all commands, and starts it again (6.2.2.1).
    fn recover(&mut self) -> Result<(), Wrong> {
        let issued = core::mem::take(&mut self.issued);
        let only = issued.is_power_of_two();
        *if only { &mut self.failed } else { &mut self.alone } |= issued;
        self.write(port::CMD, UP | FRE | ACTIVE);
        let stopped = || (self.read(port::CMD) & CR == 0).then_some(());
        wait(&self.clock, STOP, stopped).ok_or(Wrong::Silent("stop after an error"))?;
        if self.read(port::TFD) & BUSY != 0 {
            return Err(Wrong::Silent("readiness after an error"));
        }
        self.write(port::SERR, u32::MAX);
        self.settle();
        self.write(port::CMD, UP | FRE | ACTIVE | ST);
        Ok(())
    }

    /// Takes all causes of interrupts back.
    fn settle(&self) {
        self.write(port::IS, u32::MAX);
        self.registers.write32(host::IS, 1 << self.number);
    }

    /// Takes the next answer.
    fn take(&mut self) -> Result<Option<Answer>, Wrong> {
        if self.done | self.failed == 0 {
            self.look()?;
        }
        let all = self.done | self.failed;
        if all == 0 {
            return Ok(None);
        }
        let bit = all & all.wrapping_neg();
        let result = if self.failed & bit != 0 { Err(Failed) } else { Ok(()) };
        self.done &= !bit;
        self.failed &= !bit;
        let slot = bit.trailing_zeros() as usize;
        let tag = self.flights.land(slot).ok_or(Wrong::Lies("command in a slot"))?;
        Ok(Some((tag, result)))
    }
}

impl<R: Registers, M: Memory, C: Clock> Disk for Ahci<R, M, C> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn submit(&mut self, request: &Request) -> Result<(), Full> {
        let Some(slot) = self.flights.take(request, &self.info)? else { return Ok(()) };
        let Request { operation, sector, address, len, .. } = *request;
        let block = sector / u64::from(self.info.block / 512);
        let blocks = len / self.info.block;
        let command = match operation {
            Operation::Flush => Command { code: command::FLUSH_CACHE_EXT, ..Command::default() },
            Operation::Discard => Command {
                code: command::DATA_SET_MANAGEMENT,
                feature: TRIM,
                // Blocks of 512 bytes with ranges.
                blocks: 1,
                writes: true,
                address: self.list(slot, block, blocks.into()),
                len: LISTED,
                zeros: 512 - LISTED,
                ..Command::default()
            },
            // No description of this driver's has such a request.
            Operation::Zero { .. } => return Ok(()),
            Operation::Read | Operation::Write => {
                let writes = operation == Operation::Write;
                let code = if writes { command::WRITE_DMA_EXT } else { command::READ_DMA_EXT };
                let blocks = blocks as u16;
                Command { code, block, blocks, writes, address, len, ..Command::default() }
            }
        };
        self.put(slot, &command);
        Ok(())
    }

    fn ring(&mut self) {
        if self.fault.is_none() {
            // The controller has 32 slots, and so many requests are under way at most.
            self.waiting |= self.flights.tell() as u32;
            self.issue();
        }
    }

    fn completed(&mut self) -> Option<Answer> {
        if let Some(settled) = self.flights.settled() {
            return Some(settled);
        }
        if self.fault.is_some() {
            return None;
        }
        self.take().unwrap_or_else(|wrong| {
            self.fault = Some(wrong);
            None
        })
    }

    fn interrupts(&mut self, wanted: bool) {
        self.quiet = !wanted;
        self.interrupt();
    }

    fn reset(&mut self) -> Result<(), Failed> {
        let started = self.start();
        self.forget();
        self.fault = useless(&self.info, started);
        if self.fault.is_some() {
            self.off();
            return Err(Failed);
        }
        Ok(())
    }
}
