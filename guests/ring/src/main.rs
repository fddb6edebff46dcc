//! Doorbells that come while the monitor handles an exit, and the price of exits.
//!
//! Without arguments, two cores: the second one sends NMIs to the first one, which makes exits meanwhile. The delay
//! grows by an instruction a round, so that an NMI comes at each instruction of an exit's path. Then the first core
//! makes no exit, and waits: an NMI that the monitor has slept over would come with the next exit only. The exit code
//! is the number of NMIs that were lost or came twice. It also compares CPUID of the kernel and of user mode.
//!
//! `state`: checks of control registers that the monitor has a part in.
//!
//! `cost`: TSC ticks of exits, less those of an empty loop. A Bochs with one core counts an instruction as a tick.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod state;

use bulkhead_sdk::{Context, apic, cores, cpu, hypercall, interrupt, println, time};
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

bulkhead_sdk::entry!(guest);

/// Round that the first core has begun.
static GO: AtomicU64 = AtomicU64::new(0);
/// NMIs that the first core has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// x2APIC ID of the first core.
static FIRST: AtomicU64 = AtomicU64::new(0);

const ICR: u32 = 0x830;
const NMI: u8 = 2;
/// Instructions that delays cover, beyond the longest of the paths.
const SPAN: u64 = 640;
/// Times that each delay is tried.
const SWEEPS: u64 = 3;
/// Rings of each path.
const ROUNDS: u64 = SWEEPS * SPAN;
/// Instructions that the first core waits, because the second one's monitor needs as many to send an NMI. An emulator
/// switches between cores each 16 instructions, so that the phase changes, too.
const START: u64 = 300;
/// Ticks until an NMI counts as lost: many times an exit.
const PATIENCE: u64 = 100_000;

type Exit = fn();

/// Paths through the monitor: the hot ones, a rare one, one with an exception injected, one with all registers.
const EXITS: [(&str, Exit); 6] = [
    ("hypercall", || {
        hypercall::null();
    }),
    ("cpuid", || {
        let _ = cpu::cpuid(1, 0);
    }),
    ("port", || {
        // SAFETY: a port that nobody has; it reads as all ones.
        let _ = unsafe { cpu::inb(0x80) };
    }),
    ("denied", || {
        let _ = bulkhead_sdk::fault::try_rdmsr(0x1234);
    }),
    // The monitor owns CD: it sees the write, and the instruction comes again.
    ("cr0", state::toggle),
    ("icr", || {
        // SAFETY: an interrupt to this core, which is off and has no consequence.
        unsafe { cpu::wrmsr(ICR, FIRST.load(SeqCst) << 32 | 0x41) };
    }),
];

fn guest(context: Context) -> u32 {
    FIRST.store(apic::id().into(), SeqCst);
    if context.arg("cost").is_some() {
        cost();
        return 0;
    }
    if context.arg("state").is_some() {
        return state::check();
    }
    interrupt::set(NMI, |_, _| {
        TAKEN.fetch_add(1, SeqCst);
    });
    if !cores::start(context, 1, ringer) {
        println!("ring: the second core does not start");
        return 1;
    }
    let mut wrong = identify();
    for (name, exit) in EXITS {
        let [lost, twice] = rounds(exit);
        println!("ring: {name}: {ROUNDS} rings, {lost} lost, {twice} twice");
        wrong += lost + twice;
    }
    println!("ring: {wrong} wrong, {} rings", ROUNDS * EXITS.len() as u64);
    wrong
}

/// Rings with each delay while the first core makes an exit; how many NMIs were lost, and how many came twice.
fn rounds(exit: Exit) -> [u32; 2] {
    let [mut lost, mut twice] = [0; 2];
    for _ in 0..ROUNDS {
        let before = TAKEN.load(SeqCst);
        let round = GO.fetch_add(1, SeqCst);
        delay(START + (round + round / SPAN * 5) % 16);
        exit();
        let begin = time::counter();
        while TAKEN.load(SeqCst) == before && time::counter() - begin < PATIENCE {
            spin_loop();
        }
        if TAKEN.load(SeqCst) == before {
            lost += 1;
            // It comes with the next exit.
            while TAKEN.load(SeqCst) == before {
                hypercall::null();
            }
        }
        hypercall::null();
        twice += u32::from(TAKEN.load(SeqCst) != before + 1);
    }
    [lost, twice]
}

/// The second core: an NMI to the first one in each round, later by an instruction each time.
fn ringer(_: Context, _: usize) {
    const MODE: u64 = 4 << 8 | 1 << 14;
    let mut seen = 0;
    loop {
        let round = GO.load(SeqCst);
        if round == seen {
            spin_loop();
            continue;
        }
        seen = round;
        delay(round % SPAN);
        // SAFETY: an NMI to the sandbox's own first core, which has a handler for it.
        unsafe { cpu::wrmsr(ICR, FIRST.load(SeqCst) << 32 | MODE) };
    }
}

/// Takes this many instructions, and a constant number of others.
#[cfg(target_arch = "x86_64")]
fn delay(instructions: u64) {
    // SAFETY: counts down; an odd number takes one instruction more.
    unsafe {
        core::arch::asm!(
            "test {n:e}, 1", "jz 2f", "nop", "2: shr {n}", "inc {n}", "3: dec {n}", "jnz 3b",
            n = inout(reg) instructions => _, options(nomem, nostack)
        );
    }
}

/// Compares CPUID of the kernel with CPUID of user mode, which goes another way through a VT-x monitor; how many
/// answers differ.
fn identify() -> u32 {
    bulkhead_sdk::paging::map_everything();
    let leaves = (0..0x24).chain(0x4000_0000..0x4000_0002).chain(0x8000_0000..0x8000_0022);
    let all = leaves.chain([u32::MAX]).flat_map(|leaf| (0..3).map(move |sub| (leaf, sub)));
    let [mut wrong, mut count] = [0; 2];
    for (leaf, sub) in all {
        let kernel = cpu::cpuid(leaf, sub);
        let user = bulkhead_sdk::user::cpuid(leaf, sub);
        count += 1;
        if user.as_ref().ok() != Some(&kernel) {
            println!("ring: leaf {leaf:#x}.{sub} is {kernel:x?}, in user mode {user:x?}");
            wrong += 1;
        }
    }
    println!("ring: {count} answers of CPUID, {wrong} differ");
    wrong
}

/// Ticks of 1,000 of each exit, less an empty loop's.
fn cost() {
    let of = |exit: Exit| {
        let begin = time::counter();
        (0..1000).for_each(|_| exit());
        time::counter() - begin
    };
    let empty = of(spin_loop);
    for (name, exit) in EXITS {
        println!("ring: {name} takes {} ticks", (of(exit) - empty) / 1000);
    }
    println!("ring: done");
}
