//! A driver: lets QEMU's educational device (QEMU, docs/specs/edu.rst) interrupt, and takes each
//! interrupt as a signal.
//!
//! Arguments: `rounds=N` (default 100).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, println, ready};

bulkhead_program::entry!(driver);

const IDENTITY: u64 = 0x00;
const STATUS: u64 = 0x24;
const RAISE: u64 = 0x60;
const ACKNOWLEDGE: u64 = 0x64;

fn driver(program: Program) -> u32 {
    let rounds = program.number("rounds").unwrap_or(100) as u32;
    let edu = program.registers("pci:00:08.0:0");
    let (came, handler) = (program.waits("came"), program.interrupt("came"));
    println!("edu: identity {:#x}", edu.read32(IDENTITY));
    ready();
    for round in 1..=rounds {
        edu.write32(RAISE, round);
        let bits = match came.wait() {
            Ok(bits) => bits,
            Err(error) => {
                println!("edu: round {round}: {error}");
                return 1;
            }
        };
        let status = edu.read32(STATUS);
        edu.write32(ACKNOWLEDGE, status);
        if (bits, status) != (4, round) || handler.acknowledge().is_err() {
            println!("edu: round {round}: bits {bits:#x}, status {status:#x}");
            return 1;
        }
    }
    println!("edu: {rounds} interrupts");
    0
}
