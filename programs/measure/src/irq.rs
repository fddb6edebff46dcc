//! A device's interrupt. QEMU's educational device (QEMU, docs/specs/edu.rst) interrupts at the end of a transfer that
//! takes 100 ms of virtual time and ends at a whole millisecond. All sleep until the last part of it. Then another
//! program executes nothing but `BEGIN` markers, and the driver's thread, of a higher priority, an `END` where it comes
//! back from its wait. So the counted span has a switch of address spaces in it.

use crate::marked::{Behind, call};
use crate::time::markers_until;
use bulkhead_program::abi::{Op, Status};
use bulkhead_program::marker::{BEGIN, id};
use bulkhead_program::{FOREVER, Program, now, println, ready, sleep_until};

const STATUS: u64 = 0x24;
const ACKNOWLEDGE: u64 = 0x64;
const SOURCE: u64 = 0x80;
const DESTINATION: u64 = 0x88;
const COUNT: u64 = 0x90;
const COMMAND: u64 = 0x98;
/// The device's own memory, as its engine counts.
const BUFFER: u64 = 0x4_0000;
/// Start, from memory to the device, with an interrupt at the end.
const FETCH: u64 = 1 | 1 << 2;

/// A transfer's time, and the unit that its end is rounded down to, ns.
const TRANSFER: u64 = 100_000_000;
const TICK: u64 = 1_000_000;
/// How long before and after the interrupt there are markers, ns.
const AROUND: u64 = 20_000;

/// Starts `rounds=N` transfers and takes their interrupts.
pub fn driver(program: Program) -> u32 {
    let edu = program.registers("pci:00:08.0:0");
    let (came, handler) = (program.waits("came").0, program.interrupt("came"));
    let begun = program.signals("begun");
    let (_, page) = program.memory_for_device("page");
    ready();
    for round in 0..program.number("rounds").unwrap_or(50) {
        edu.write64(SOURCE, page);
        edu.write64(DESTINATION, BUFFER);
        edu.write64(COUNT, 8);
        edu.write64(COMMAND, FETCH);
        begun.signal();
        let (status, _, _) = call::<Behind<{ id::KERNEL_IRQ }>>(Op::Wait, 0, came, FOREVER);
        assert!(status == Status::OK.0, "round {round}: status {status:#x}");
        edu.write32(ACKNOWLEDGE, edu.read32(STATUS));
        assert!(handler.acknowledge().is_ok());
    }
    println!("measure: done");
    0
}

/// The program that the interrupt finds running.
pub fn interrupted(program: Program) -> u32 {
    let (begun, never) = (program.waits("begun"), program.waits("never"));
    while begun.wait().is_ok() {
        let end = now() / TICK * TICK + TRANSFER;
        assert!(sleep_until(never, end - AROUND).is_ok());
        markers_until::<{ BEGIN | id::KERNEL_IRQ }>(end + AROUND);
    }
    1
}
