//! Tries to forge, wipe and flood the evidence against it. It writes VM_CR, reads 200 ports that are not there, and
//! prints bytes that would control a terminal: [`forger::PIECES`], then every byte. `serial=PORT`: prints it there,
//! too. Ends with code 0; with `flood`, only after 40,000 lines.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::fault::{catch, try_wrmsr};
use bulkhead_sdk::{Context, console, cpu, hypercall, print};

bulkhead_sdk::entry!(guest);

/// AMD's virtualization control.
const VM_CR: u32 = 0xC001_0114;
/// A port that no machine description has.
const NOBODYS: u16 = 0x3333;
/// Bytes of a console call.
const CHUNK: usize = 24;

fn guest(context: Context) -> u32 {
    // SAFETY: refused by the monitor, with an exception that is caught.
    let _ = unsafe { try_wrmsr(VM_CR, 1 << 4) };
    for _ in 0..200 {
        // SAFETY: a read of a port that is absent.
        let _ = unsafe { catch(|| cpu::inb(NOBODYS)) };
    }
    say_all(|bytes| bytes.chunks(CHUNK).for_each(|chunk| _ = hypercall::console(chunk)));
    if let Some(port) = context.arg("serial") {
        console::select(Some(port));
        say_all(|bytes| bytes.iter().for_each(|byte| console::byte(*byte)));
        console::select(None);
    }
    if context.arg("flood").is_some() {
        (0..40_000).for_each(|n| print!("line {n} of many that nobody has asked for\n"));
    }
    0
}

fn say_all(say: impl Fn(&[u8])) {
    forger::PIECES.iter().for_each(|piece| say(piece));
    let every: [u8; 256] = core::array::from_fn(|n| n as u8);
    say(&every);
    say(b"\nthe end\n");
}
