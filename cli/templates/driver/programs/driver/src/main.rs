//! A driver: each word of the channel `questions` goes through the device and back into the channel `answers`.
//!
//! The device is QEMU's educational one (QEMU, docs/specs/edu.rst). It copies between memory and a buffer of its own.
//!
//! Arguments: `words=N`, how many.
#![no_std]
#![no_main]

use bulkhead_program::channel::Stop;
use bulkhead_program::typed::{Receiver, Sender};
use bulkhead_program::{
    Error, Guest, Handler, Memory, Notification, Program, Registers, println, ready,
    yield_now,
};
use core::sync::atomic::Ordering;

bulkhead_program::entry!(driver);

/// Registers, as offsets.
const IDENTITY: u64 = 0x00;
const STATUS: u64 = 0x24;
const ACKNOWLEDGE: u64 = 0x64;
const SOURCE: u64 = 0x80;
const DESTINATION: u64 = 0x88;
const COUNT: u64 = 0x90;
const COMMAND: u64 = 0x98;
/// Bits of the command: go, from the device to memory, with an interrupt at the end.
const START: u64 = 1;
const TO_RAM: u64 = 2;
const TELL: u64 = 4;
/// Cause of an interrupt: bytes have been copied.
const COPIED: u32 = 0x100;
/// The device's own address of its buffer.
const OWN: u64 = 0x4_0000;

struct Device {
    registers: Registers,
    came: Notification,
    handler: Handler,
    /// Memory that it reaches, and its address there.
    buffer: (Memory, u64),
}

impl Device {
    /// Has the device copy 8 bytes, and sleeps until its interrupt.
    fn copy(&self, from: u64, to: u64, direction: u64) -> Result<bool, Error> {
        self.registers.write64(SOURCE, from);
        self.registers.write64(DESTINATION, to);
        self.registers.write64(COUNT, 8);
        self.registers.write64(COMMAND, START | TELL | direction);
        self.came.wait()?;
        let cause = self.registers.read32(STATUS);
        // The device first, then the kernel, which lets no other interrupt through before.
        self.registers.write32(ACKNOWLEDGE, cause);
        self.handler.acknowledge()?;
        Ok(cause == COPIED)
    }

    /// A word into the device and out of it again; nothing, if the device did not do as it was told.
    fn through(&self, word: u64) -> Result<Option<u64>, Error> {
        let (memory, address) = self.buffer;
        let place = &memory.words()[0];
        // `Release` before the command, `Acquire` after the interrupt: the device sees the word, and we see its own.
        place.store(word, Ordering::Release);
        let there = self.copy(address, OWN, 0)?;
        place.store(0, Ordering::Release);
        let back = self.copy(OWN, address, TO_RAM)?;
        Ok((there && back).then(|| place.load(Ordering::Acquire)))
    }
}

/// Returns the sandbox's exit code.
fn driver(program: Program) -> u32 {
    let device = Device {
        registers: program.registers("pci:00:08.0:0"),
        came: program.waits("came"),
        handler: program.interrupt("came"),
        buffer: program.memory_for_device("buffer"),
    };
    println!("driver: the device is {:#x}", device.registers.read32(IDENTITY));
    let (questions, answers) = (program.pair("questions"), program.pair("answers"));
    let (Ok(mut from), Ok(mut to)) = (Receiver::<u64>::open(&questions), Sender::open(&answers))
    else {
        return 1;
    };
    let (Some(mut sleeper), Some(mut bell)) =
        (program.sleeper(&questions), program.caller(&answers))
    else {
        return 1;
    };
    ready();
    let words = program.number("words").unwrap_or(5);
    let mut served = 0;
    while served < words {
        let word = match from.recv(&mut sleeper) {
            Ok(word) => word,
            // The client's begin, or its end.
            Err(Stop::Lost | Stop::Left) => continue,
            Err(stop) => {
                println!("driver: {stop:?} in place of question {served}");
                return 1;
            }
        };
        let Ok(Some(answer)) = device.through(word) else {
            println!("driver: the device did not copy {word:#x}");
            return 1;
        };
        // The client may not listen yet.
        while let Err(stop) = bell.after(to.send(&answer)) {
            if !matches!(stop, Stop::Wait | Stop::Apart) {
                println!("driver: {stop:?} at answer {served}");
                return 1;
            }
            yield_now();
        }
        served += 1;
    }
    println!("driver: {served} words through the device");
    0
}
