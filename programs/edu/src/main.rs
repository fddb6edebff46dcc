//! A driver of QEMU's educational device (QEMU, docs/specs/edu.rst): registers, interrupts as signals, and memory that
//! the device reads and writes.
//!
//! Arguments:
//!
//! * `rounds=N` (default 100) interrupts;
//! * `copies=N` (default 0) pages through the device and back, which needs memory `buffer` that the device reaches;
//! * `trespass=N`: the device is told to read and write N MiB of the sandbox's memory, of which it must reach only
//!   `buffer`.
//!
//! Then it may go wrong. With `stuck=N` it tells the kernel of the next interrupts, N times and on, but not the device.
//! So the device's line stays as it is. With `held=1` it does not tell the kernel either.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Error, Handler, Memory, Notification, Program, Registers, println, ready};
use bulkhead_scenarios::edu::{
    ACKNOWLEDGE, BUFFER, CARRIED, COMMAND, COUNT, DESTINATION, IDENTITY, RAISE, SOURCE, START,
    STATUS, TELL, TO_RAM,
};
use core::sync::atomic::Ordering;

bulkhead_program::entry!(driver);

/// Content of the driver's pages.
const PATTERN: u64 = 0x5452_4553_5041_5353;

/// Bits that an interrupt sets.
const BITS: u64 = 4;

/// The device, and where its interrupts come.
struct Edu {
    registers: Registers,
    came: Notification,
    handler: Handler,
}

impl Edu {
    /// Waits for an interrupt, and returns its cause, if it came with the manifest's bits.
    fn interrupt(&self) -> Result<u32, Error> {
        let bits = self.came.wait()?;
        let status = self.registers.read32(STATUS);
        self.registers.write32(ACKNOWLEDGE, status);
        self.handler.acknowledge()?;
        Ok(if bits == BITS { status } else { 0 })
    }

    /// Lets the device read and write memory that it must not reach: the kernel's pages, and one in each MiB.
    fn trespass(&self, (own, physical): (Memory, u64), memory: u64) -> Result<bool, Error> {
        const KERNEL: u64 = 2 << 20;
        const PAGE: u64 = 4096;
        let (len, mut good, mut tried) = (own.len as u64, true, 0);
        let fill = || {
            own.words().iter().for_each(|word| word.store(PATTERN, Ordering::Release));
            self.copy([physical, BUFFER, len], 0)
        };
        let kernel = (0..8).map(|n| KERNEL + n * PAGE);
        for at in kernel.chain((0..memory).step_by(1 << 20)).filter(|at| *at != physical) {
            // The result of a refused read is the device's: its old content, or zeros.
            good &= fill()? && self.copy([at, BUFFER, len], 0)?;
            good &= self.copy([BUFFER, physical, len], TO_RAM)?;
            let read = |word: u64| word != PATTERN && word != 0;
            good &= !own.words().iter().any(|word| read(word.load(Ordering::Acquire)));
            good &= fill()? && self.copy([BUFFER, at, len], TO_RAM)?;
            tried += 1;
        }
        let how = if good { "none" } else { "not none" };
        println!("edu: tried {tried} pages that are not the device's, reached {how}");
        Ok(good)
    }

    /// An interrupt that the device is not told of, for ever; the kernel is, if that is to be seen a number of times.
    fn neglect(&self, seen: u64) -> Result<(), Error> {
        self.registers.write32(RAISE, 1);
        for n in 1.. {
            self.came.wait()?;
            if seen < u64::MAX {
                self.handler.acknowledge()?;
            }
            if n == seen {
                println!("edu: {n} interrupts of one that nobody serves");
            }
        }
        Ok(())
    }

    fn raise(&self, round: u32) -> Result<bool, Error> {
        self.registers.write32(RAISE, round);
        Ok(self.interrupt()? == round)
    }

    /// Lets the device copy `len` bytes; its address of one side, memory's of the other.
    fn copy(&self, [from, to, len]: [u64; 3], direction: u64) -> Result<bool, Error> {
        self.registers.write64(SOURCE, from);
        self.registers.write64(DESTINATION, to);
        self.registers.write64(COUNT, len);
        self.registers.write64(COMMAND, START | TELL | direction);
        Ok(self.interrupt()? == CARRIED)
    }

    /// A page through the device and back.
    fn through(&self, page: Memory, physical: u64, round: u64) -> Result<bool, Error> {
        let (word, len) = (&page.words()[0], page.len as u64);
        word.store(round, Ordering::Release);
        let in_time = self.copy([physical, BUFFER, len], 0)?;
        word.store(0, Ordering::Release);
        let back = self.copy([BUFFER, physical, len], TO_RAM)?;
        Ok(in_time && back && word.load(Ordering::Acquire) == round)
    }
}

fn driver(program: Program) -> u32 {
    match drive(program) {
        Ok(true) => 0,
        Ok(false) => {
            println!("edu: not what was expected");
            1
        }
        Err(error) => {
            println!("edu: {error}");
            1
        }
    }
}

fn drive(program: Program) -> Result<bool, Error> {
    let edu = Edu {
        registers: program.registers("pci:00:08.0:0"),
        came: program.waits("came"),
        handler: program.interrupt("came"),
    };
    println!("edu: identity {:#x}", edu.registers.read32(IDENTITY));
    ready();
    let mut good = true;
    let rounds = program.number("rounds").unwrap_or(100) as u32;
    for round in 1..=rounds {
        good &= edu.raise(round)?;
    }
    println!("edu: {rounds} interrupts");
    if let Some(copies) = program.number("copies") {
        let (page, physical) = program.memory_for_device("buffer");
        for round in 1..=copies {
            good &= edu.through(page, physical, round)?;
        }
        println!("edu: {copies} pages there and back");
    }
    if let Some(mib) = program.number("trespass") {
        good &= edu.trespass(program.memory_for_device("buffer"), mib << 20)?;
    }
    let stuck = program.number("stuck");
    if stuck.is_some() || program.number("held").is_some() {
        edu.neglect(stuck.unwrap_or(u64::MAX))?;
    }
    Ok(good)
}
