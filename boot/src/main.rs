//! Boot code: finds the cores, checks the compiled manifest against the
//! machine, starts every core into its monitor and is gone. Nothing of it is
//! mapped afterwards but the page of start-up code ([`trampoline`]).
//!
//! Everything else was done on the host: see `bulkhead_handover::image`.
#![no_std]
#![no_main]

mod clock;
mod console;
mod entry;
mod iommu;
mod lines;
mod machine;
mod pci;
mod processor;
mod stop;
mod trampoline;
mod uart;

use bulkhead_firmware::{acpi, multiboot};
use bulkhead_handover::PAGE;
use bulkhead_handover::image::{self, BOOT_MAGIC, BootReport, ConfigOp, Range, Sandbox};
use bulkhead_handover::info::Info;
use bulkhead_handover::map::{BOOT_REPORT_PA, IMAGE_PA};
use bulkhead_handover::x86::Header;
use bulkhead_launch::{Error, Image, Op, play, start_cores, verify};
use console::say;
use machine::{LowMemory, Pc};
use stop::Stop;
use uart::put;

/// Boots. [`entry`] calls it on the first core, with the loader's words in EAX and EBX.
extern "C" fn boot(magic: u32, info: u32, header_pa: u64, entry_ticks: u64) -> ! {
    // A damaged address must at least be one that can be read.
    let portable = image::Header { sealed: size_of::<Header>() as u64, ..image::Header::default() };
    let nothing = Header { portable, console: 0x3F8, debug_port: 0xE9, ..Header::default() };
    let header = if header_pa % PAGE == 0 && (IMAGE_PA..IMAGE_END).contains(&header_pa) {
        // SAFETY: the host wrote the address of the header into the image, and the
        // loader put the image where it belongs: this code runs there. Any bytes will do.
        unsafe { &*(header_pa as *const Header) }
    } else {
        &nothing
    };
    let report = BootReport { magic: BOOT_MAGIC, entry_ticks, ..Default::default() };
    uart::init(header);
    if let Err(stop) = launch(magic, info, header, report) {
        let error = console::explain(&stop);
        // A fresh report: one that tells of an error has no half-measured clocks in it.
        let left_ticks = bulkhead_cpu_x86::rdtsc();
        write_report(&BootReport { magic: BOOT_MAGIC, error, left_ticks, ..Default::default() });
        machine::give_up()
    }
    machine::give_up()
}

fn launch(magic: u32, info_pa: u32, header: &Header, mut report: BootReport) -> Result<(), Stop> {
    // Before anything can hang: a reader of the memory then knows that this code has run.
    write_report(&report);
    // First, because all later steps use these features.
    processor::check(header.monitors).map_err(Stop::Processor)?;
    let loader =
        multiboot::parse(magic, u64::from(info_pa), &LowMemory).ok_or(Stop::NoMemoryMap)?;
    // Multiboot 2 may hand the RSDP over, as on UEFI. Multiboot 1 does not; a BIOS has it in low memory.
    let rsdp = loader.rsdp.or_else(|| acpi::find_rsdp(&LowMemory));
    let tables = rsdp.and_then(|r| acpi::parse(r, &LowMemory)).ok_or(Stop::NoAcpi)?;
    let mut pc = Pc::new(loader, tables);

    let sandboxes = sandboxes(header)?;
    let config_ops = config_ops(header, sandboxes)?;
    let launch = record(header)?;
    let image = Image { at: IMAGE_PA, header, sandboxes, config_ops, launch };
    // No device and no other core was touched up to here: a wrong image leaves them as they were.
    verify(&image, sealed(header), &pc).map_err(Stop::Manifest)?;
    if tables.pm_timer == 0 {
        return Err(Stop::NoTimer);
    }
    say!("bulkhead: ", dec image.sandboxes.len() as u64, " sandboxes, ", dec tables.cores().len() as u64, " cores\n");

    // In this order: no interrupt of the firmware's is left, then no function masters the bus, then the IOMMU
    // translates. So no DMA of the firmware's passes, and none is blocked in the middle.
    pc.silence();
    pci::set_up(image.config_ops, false)?;
    iommu::confine(&header.iommu)?;
    let measured = pc.reset_other_cores(tables.pm_timer);
    report.waited = measured.waited;
    // Behind the clocks, since the test needs x2APIC mode; before the launch, since it takes interrupts.
    report.lines = lines::settle(&header.iommu, &pc)?;
    report.hz = measured.clock.hz;
    report.timer_hz = measured.clock.timer_hz;
    for sandbox in sandboxes {
        // SAFETY: verified: a page of this sandbox's monitor in the image; no
        // core that could read it runs yet.
        let info = unsafe { &mut *(sandbox.info_pa as *mut Info) };
        info.clock = measured.clock;
    }
    // After the clocks: kernels have their information page from here.
    let begin = bulkhead_cpu_x86::rdtsc();
    // With monitors this only clears channels, before any guest can see them.
    play(&mut LowMemory, image.launch, 0);
    report.played = bulkhead_cpu_x86::rdtsc() - begin;
    // From the first core on guests run, so all that can stop the boot has been done.
    let own = start_cores(sandboxes, &mut pc).map_err(Stop::Core)?;
    // Now that nobody takes an NMI but monitors, and this core in a moment.
    pci::set_up(image.config_ops, true)?;
    report.left_ticks = bulkhead_cpu_x86::rdtsc();
    write_report(&report);
    match own {
        Some(start) => trampoline::leave(start),
        None => trampoline::rest(),
    }
}

/// Returns the sandboxes after the header, if that many fit.
fn sandboxes(header: &Header) -> Result<&[Sandbox], Stop> {
    let count = header.sandboxes as usize;
    let bytes = size_of::<Header>() + count * size_of::<Sandbox>();
    if count > bulkhead_handover::MAX_SANDBOXES
        // The checksum is not verified yet, and covers these bytes: their number has to be bounded without it.
        || bytes as u64 > header.sealed
        || header.sealed > MAX_SEALED
    {
        return Err(Stop::Manifest(Error::Bounds("number of sandboxes")));
    }
    // SAFETY: bounded above; the loader loaded at least the sealed part (the
    // checksum tells), and `Sandbox` holds for any bytes.
    Ok(unsafe { core::slice::from_raw_parts((header as *const Header).add(1).cast(), count) })
}

/// Returns the steps after the sandboxes, if that many fit.
fn config_ops<'a>(header: &'a Header, sandboxes: &[Sandbox]) -> Result<&'a [ConfigOp], Stop> {
    let before = size_of::<Header>() + size_of_val(sandboxes);
    let count = header.config_ops as usize;
    let bytes = before as u64 + count as u64 * size_of::<ConfigOp>() as u64;
    if bytes > header.sealed {
        return Err(Stop::Manifest(Error::Bounds("number of PCI steps")));
    }
    // SAFETY: bounded above, in the sealed part as the sandboxes are; a multiple
    // of 4, and `ConfigOp` holds for any bytes.
    Ok(unsafe {
        core::slice::from_raw_parts((header as *const Header).byte_add(before).cast(), count)
    })
}

/// Returns the boot code's launch record, if it lies in the sealed part.
fn record(header: &Header) -> Result<&[Op], Stop> {
    let (sealed, Range { start, len }) = (header as *const Header as u64, header.launch);
    // Wraps below the sealed part, so one comparison has both ends.
    let offset = start.wrapping_sub(sealed);
    if len > 0 && (start % 8 != 0 || offset > header.sealed || len > header.sealed - offset) {
        return Err(Stop::Manifest(Error::Bounds("launch record")));
    }
    let count = len as usize / size_of::<Op>();
    let at = if len > 0 { start as *const Op } else { core::ptr::NonNull::dangling().as_ptr() };
    // SAFETY: the range is in the sealed part and aligned, and `Op` holds for any bytes.
    Ok(unsafe { core::slice::from_raw_parts(at, count) })
}

/// Bounds for what is read before the checksum has been seen to match.
const MAX_SEALED: u64 = 64 << 20;
const IMAGE_END: u64 = 3 << 30;

fn sealed(header: &Header) -> &[u64] {
    // SAFETY: the length is bounded, the memory identity-mapped, and any bytes will do.
    unsafe {
        core::slice::from_raw_parts((header as *const Header).cast(), header.sealed as usize / 8)
    }
}

/// Leaves the report where the host looks.
pub fn write_report(report: &BootReport) {
    // SAFETY: room in the boot code's own head, set aside for this.
    unsafe { (BOOT_REPORT_PA as *mut BootReport).write_volatile(*report) };
}

const _: () = assert!(size_of::<BootReport>() <= 72);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    say!("bulkhead: boot: internal error\n");
    machine::give_up()
}
