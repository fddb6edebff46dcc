//! Starts the image under a Linux that runs. The Linux' module (`linux/enable`) has put the image into memory that this
//! Linux gave away, and calls [`late`] with interrupts off. The first 4 GiB are mapped to themselves beside the Linux'
//! own addresses then, so this code uses the Linux' stack and memory.
//!
//! Nothing of it is mapped once the cores are in their monitors, as of the boot code.
#![no_std]
#![no_main]

mod apic;
mod back;
#[path = "../console.rs"]
mod console;
mod core_state;
mod devices;
#[path = "../iommu.rs"]
mod iommu;
mod machine;
#[path = "../processor.rs"]
mod processor;
mod restart;
// The boot code has further reasons to stop, and leaves by itself.
#[allow(dead_code)]
#[path = "../stop.rs"]
mod stop;
#[allow(dead_code)]
#[path = "../trampoline.rs"]
mod trampoline;

use bulkhead_handover::PAGE;
use bulkhead_handover::image::{ConfigOp, HEADER_WORD, Range, Sandbox};
use bulkhead_handover::info::Info;
use bulkhead_handover::x86::Header;
use bulkhead_handover::x86::late::{CONFINE, ENTER, Late, PREPARE, RESTORE, SAYS};
use bulkhead_launch::{Image, Op, play, start_cores, start_of, verify_moved};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed};
use devices::Devices;
use machine::{Image as Memory, Running};
use stop::Stop;

core::arch::global_asm!(
    ".section .head, \"a\"",
    "late_image:",
    "   .skip {word}",
    // The host writes the address of the compiled manifest here. The module calls what follows.
    "late_header:",
    "   .quad 0",
    "   .quad {late}",
    ".global boot_entry",
    ".set boot_entry, late_image",
    word = const HEADER_WORD,
    late = sym late,
);

unsafe extern "C" {
    static late_image: u8;
    static late_header: u64;
}

/// Text of a refusal.
static SAID: [AtomicU8; SAYS] = [const { AtomicU8::new(0) }; SAYS];
static LEN: AtomicUsize = AtomicUsize::new(0);
/// Cores of the Linux that have come to enter their monitors.
static ENTERED: AtomicUsize = AtomicUsize::new(0);

/// Takes a byte of a message.
fn put(byte: u8) {
    let at = LEN.load(Relaxed);
    if let Some(place) = SAID.get(at) {
        place.store(byte, Relaxed);
        LEN.store(at + 1, Relaxed);
    }
}

/// The module calls this; see [`bulkhead_handover::x86::late`].
extern "sysv64" fn late(what: u64, argument: u64, rsp: u64, rip: u64) -> u64 {
    match what {
        PREPARE | CONFINE => {
            // SAFETY: the module's promise: its own words, which nobody else uses meanwhile.
            let words = unsafe { &mut *(argument as *mut Late) };
            let done = if what == PREPARE { prepare(words) } else { confine(words) };
            let Err(stop) = done else { return 0 };
            LEN.store(0, Relaxed);
            let code = console::explain(&stop);
            words.len = LEN.load(Relaxed) as u32;
            for (to, from) in words.says.iter_mut().zip(&SAID) {
                *to = from.load(Relaxed);
            }
            code
        }
        RESTORE => {
            // SAFETY: likewise.
            let words = unsafe { &*(argument as *const Late) };
            let image = image();
            let root = image.sandboxes.last();
            let devices = root.map(|root| Devices::new(image.header, root, words));
            if let Some(Ok(Some(devices))) = devices {
                // Their owners have ended. No request of theirs comes once nothing translates it.
                devices.silence(image.config_ops);
                devices.restore();
                devices.trust(image.config_ops);
            }
            0
        }
        ENTER => enter(argument, rsp, rip),
        _ => u64::MAX,
    }
}

/// Returns where the image lies.
fn at() -> u64 {
    &raw const late_image as u64
}

/// Returns the header, the sandboxes behind it, and the launch record.
fn image() -> Image<'static, Header> {
    // SAFETY: the module has compared the checksum of the whole file before it moved the image here. So the numbers and
    // addresses in it are those that the host wrote, moved.
    unsafe {
        let header = &*((&raw const late_header).read() as *const Header);
        let sandboxes = core::ptr::from_ref(header).add(1).cast::<Sandbox>();
        let sandboxes = core::slice::from_raw_parts(sandboxes, header.sandboxes as usize);
        let ops = sandboxes.as_ptr().add(sandboxes.len()).cast::<ConfigOp>();
        let config_ops = core::slice::from_raw_parts(ops, header.config_ops as usize);
        let Range { start, len } = header.launch;
        let launch = match len {
            0 => &[][..],
            _ => core::slice::from_raw_parts(start as *const Op, len as usize / size_of::<Op>()),
        };
        Image { at: at(), header, sandboxes, config_ops, launch }
    }
}

fn prepare(late: &Late) -> Result<(), Stop> {
    let image = image();
    let (header, sandboxes) = (image.header, image.sandboxes);
    processor::check(header.monitors).map_err(Stop::Processor)?;
    core_state::check().map_err(Stop::Processor)?;
    let mut machine = Running::new(late, header.block);
    verify_moved(&image, &machine).map_err(Stop::Manifest)?;
    let Some((root, others)) = sandboxes.split_last().filter(|_| header.running.len > 0) else {
        return Err(Stop::Processor(
            "a sandbox for the Linux that runs: bulkhead build --under-linux",
        ));
    };
    if let Some(devices) = Devices::new(header, root, late)? {
        devices.check(image.config_ops)?;
        restart::fill(&devices, late, header.block)?;
        devices.silence(image.config_ops);
        for other in others {
            Devices::new(header, other, late)?.map_or(Ok(()), |devices| devices.stop())?;
        }
    }
    for sandbox in sandboxes {
        // SAFETY: verified: a page of this sandbox's monitor in the image; no core that could read it runs yet.
        let info = unsafe { &mut *(sandbox.info_pa as *mut Info) };
        info.clock.hz = late.hz;
        info.clock.timer_hz = late.timer_hz;
    }
    // Before the first entry: the block is out of this Linux' reach from its first instruction in the sandbox.
    core_state::take(header, root);
    play(&mut Memory, image.launch, 0);
    trampoline::install();
    back::install();
    // Until all cores of the Linux are in their monitors, all can be undone.
    machine::hold(true);
    start_cores(others, &mut machine).map_err(Stop::Core)?;
    Ok(())
}

fn confine(late: &Late) -> Result<(), Stop> {
    let image = image();
    let Some(root) = image.sandboxes.last() else { return Ok(()) };
    let Some(devices) = Devices::new(image.header, root, late)? else { return Ok(()) };
    let done = devices.validate(image.config_ops).and_then(|()| devices.confine());
    if done.is_err() {
        devices.trust(image.config_ops);
    }
    done
}

/// Lets this core into its monitor. It comes back to the Linux in `rip`, with 0 as the result.
fn enter(core: u64, rsp: u64, rip: u64) -> u64 {
    let image = image();
    let Some(root) = image.sandboxes.last() else { return u64::MAX };
    let blocks = image.header.running;
    if core >= blocks.len / PAGE {
        return u64::MAX;
    }
    core_state::save(blocks.start + core * PAGE, rsp, rip);
    if ENTERED.fetch_add(1, AcqRel) + 1 == root.cores as usize {
        // The others' guests run from here on.
        machine::hold(false);
    }
    core_state::leave(start_of(root, core as usize))
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // Linux' watchdogs tell of it.
    loop {
        core::hint::spin_loop();
    }
}
