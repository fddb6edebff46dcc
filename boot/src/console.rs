//! The boot code's messages: on a 16550 and on a debug console port, as the
//! image says.

use crate::{Stop, write_report};
use bulkhead_cpu_x86::{inb, outb, rdtsc};
use bulkhead_handover::image::{BOOT_MAGIC, BootReport};
use bulkhead_handover::x86::Header;
use bulkhead_launch::Error;
use core::sync::atomic::{AtomicU16, Ordering};

/// Port of the 16550, and the debug port; 0: none. Atomics need no `unsafe`; the boot core alone writes them.
static UART: AtomicU16 = AtomicU16::new(0);
static DEBUG: AtomicU16 = AtomicU16::new(0);

/// Takes the ports from the image. It is not verified yet, so ports at which every PC has something else are not used.
/// These are all below 0x100 but the debug console, and PCI's, with the reset port among them.
pub fn init(header: &Header) {
    const DEBUG_CONSOLE: u16 = 0xE9;
    let usable = |port: u16| port >= 0x100 && port & !7 != 0xCF8;
    // A 16550 has eight registers, from a multiple of 8 on.
    let uart = Some(header.console).filter(|&p| usable(p) && p % 8 == 0);
    let debug = Some(header.debug_port).filter(|&p| usable(p) || p == DEBUG_CONSOLE);
    let uart = uart.unwrap_or(0);
    UART.store(uart, Ordering::Relaxed);
    DEBUG.store(debug.unwrap_or(0), Ordering::Relaxed);
    if uart != 0 {
        // SAFETY: the machine description says that a 16550 is there:
        // 115200 baud, 8 bits, no parity, FIFO, no interrupts.
        unsafe {
            // Interrupt enable; line control with DLAB; divisor 1; line control; FIFO control.
            for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7)] {
                outb(uart.wrapping_add(register), value);
            }
        }
    }
}

fn put(byte: u8) {
    let (uart, debug) = (UART.load(Ordering::Relaxed), DEBUG.load(Ordering::Relaxed));
    // SAFETY: as in `init`; a transmitter that never gets ready is given up on.
    unsafe {
        // First: the debug port takes a byte at once, so a hanging UART does not keep a message from it.
        if debug != 0 {
            outb(debug, byte);
        }
        if uart != 0 {
            let patience = 100_000;
            // Line status, bit 5: the transmitter's register is empty.
            let _ = (0..patience).find(|_| inb(uart.wrapping_add(5)) & 0x20 != 0);
            outb(uart, byte);
        }
    }
}

pub fn text(text: &str) {
    for byte in text.bytes() {
        if byte == b'\n' {
            // LF alone moves a terminal down, and not to the line's start.
            put(b'\r');
        }
        put(byte);
    }
}

pub fn number(value: u64, base: u64) {
    // The longest number, 2^64 - 1, has 20 decimal digits.
    let mut digits = [0u8; 20];
    let mut left = value;
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        // The mask keeps a wrong base inside of the table: this code may not panic.
        *digit = b"0123456789abcdef"[(left % base) as usize & 15];
        left /= base;
        used += 1;
        if left == 0 {
            break;
        }
    }
    if base == 16 {
        text("0x");
    }
    digits.iter().skip(20 - used).for_each(|&d| put(d));
}

/// Prints text, `dec` numbers and `hex` numbers in turn.
macro_rules! say {
    () => {};
    (dec $value:expr $(, $($rest:tt)*)?) => {{ $crate::console::number($value, 10); $($crate::console::say!($($rest)*);)? }};
    (hex $value:expr $(, $($rest:tt)*)?) => {{ $crate::console::number($value, 16); $($crate::console::say!($($rest)*);)? }};
    ($text:expr $(, $($rest:tt)*)?) => {{ $crate::console::text($text); $($crate::console::say!($($rest)*);)? }};
}
pub(crate) use say;

/// Names an owner. `u32::MAX` is the image: the check has no sandbox to blame.
fn owner(sandbox: u32) {
    if sandbox == u32::MAX {
        say!("the image");
    } else {
        say!("sandbox ", dec u64::from(sandbox));
    }
}

fn address(bdf: u16) {
    let bdf = u64::from(bdf);
    say!("PCI function ", hex bdf >> 8, ":", hex bdf >> 3 & 31, ".", dec bdf & 7);
}

/// Says why the boot stops and what would help, and leaves the number in the report.
pub fn explain(stop: &Stop) {
    say!("bulkhead: boot stopped: ");
    let code = match *stop {
        Stop::NoMemoryMap => {
            say!("no memory map: use a multiboot 1 or 2 loader (QEMU -kernel, GRUB)");
            16
        }
        Stop::NoAcpi => {
            say!("no ACPI tables with processors (MADT) were found");
            17
        }
        Stop::Processor(what) => {
            say!("the processor lacks ", what);
            18
        }
        Stop::Core(id) => {
            say!("the core with APIC ID ", dec u64::from(id), " did not start");
            19
        }
        Stop::NoTimer => {
            say!("the firmware's FADT names no PM timer to measure the clocks with");
            20
        }
        Stop::Function(bdf, expected, found) => {
            address(bdf);
            say!(" should have the IDs ", hex u64::from(expected), " and has ", hex u64::from(found));
            say!(": another machine than the one described (bulkhead probe describes it)");
            21
        }
        Stop::Iommu(what) => {
            say!(
                "the IOMMU cannot be used: ",
                what,
                "; without one, say dma = \"unconfined\" for each device"
            );
            22
        }
        Stop::Unit(at, what) => {
            say!("the unit with registers at ", hex at, " cannot be used: ", what, "; without it, say dma = \"unconfined\" for each device if it is an IOMMU, and no watchdog if it is an HPET");
            25
        }
        Stop::Lines(what) => {
            say!("interrupt lines: ", what);
            23
        }
        Stop::Source(bdf) => {
            address(bdf);
            say!(
                " has no source validation (ACS) where the machine description says so: what is behind it could"
            );
            say!(" pass for other functions (bulkhead probe describes the machine)");
            24
        }
        Stop::Manifest(error) => {
            manifest(error);
            error.code()
        }
    };
    // The number, too: a machine without a console is read by its report, which has no text.
    say!(" (error ", dec code, ")\n");
    let report =
        // A fresh report: one that tells of an error has no half-measured clocks in it.
        BootReport { magic: BOOT_MAGIC, error: code, left_ticks: rdtsc(), ..Default::default() };
    write_report(&report);
}

fn manifest(error: Error) {
    match error {
        Error::Magic => say!("the image has no compiled manifest: build it again"),
        Error::Version(v) => {
            say!("the compiled manifest has version ", dec u64::from(v), ": build it with this release")
        }
        Error::Checksum => {
            say!("the image is damaged: its checksum does not match; copy or build it again")
        }
        Error::Bounds(what) => {
            say!("the image is damaged: ", what, " out of bounds; copy or build it again")
        }
        Error::Overlap(s, at) => {
            owner(s);
            say!(": memory at ", hex at, " overlaps with another owner's");
        }
        Error::NoRam(s, at, len) => {
            owner(s);
            say!(" needs ", hex len, " bytes of RAM at ", hex at, ", which this machine does not have free: more memory, or another machine description");
        }
        Error::NoCore(s, id) => {
            owner(s);
            say!(" needs the core with APIC ID ", dec u64::from(id), ", which this machine does not have: more cores, or another machine description");
        }
        Error::CoreTwice(s, id) => {
            owner(s);
            say!(": the core with APIC ID ", dec u64::from(id), " is given twice");
        }
        Error::BootCore(s, id) => {
            owner(s);
            say!(": the core with APIC ID ", dec u64::from(id), " boots the machine, so no peer can take it: give it another core, or its peer no `init`");
        }
    }
}
