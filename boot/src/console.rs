//! Messages as text, for whatever takes its bytes.

use crate::put;
use crate::stop::Stop;
use bulkhead_launch::Error;

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

/// Says why the boot stops and what would help. Returns the number of the error.
pub fn explain(stop: &Stop) -> u64 {
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
        Stop::Foreign(bdf) => {
            address(bdf);
            say!(" is not in the machine description (bulkhead probe describes the machine)");
            26
        }
        Stop::Register(bdf, offset) => {
            address(bdf);
            say!(" has another value at ", hex u64::from(offset), " than the machine description");
            say!(" (bulkhead probe describes the machine)");
            27
        }
        Stop::Message(bdf) => {
            address(bdf);
            say!(
                " sends an interrupt that is not one to a core of this Linux: unload its driver, and load it again"
            );
            28
        }
        Stop::Line(line) => {
            say!("interrupt line ", dec u64::from(line), " leads to no core of this Linux");
            29
        }
        Stop::Restart(what) => {
            say!("this Linux could not begin anew: it lacks ", what);
            say!("; leave `restart` out of [under_linux]");
            30
        }
        Stop::Manifest(error) => {
            manifest(error);
            error.code()
        }
    };
    // The number, too: a machine without a console is read by its report, which has no text.
    say!(" (error ", dec code, ")\n");
    code
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
