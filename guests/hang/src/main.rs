//! Moves its progress words for a while, and stops in a way of its choice. Arguments:
//!
//! * `way=` names it; without one it ends after `kicks=` moves;
//! * `core=1`: its second core stops, and the first one goes on;
//! * `master=1`: its first function masters the bus, and it tells when that does not any more;
//! * `lives=2`: its second life is as the first one; without it that ends with exit code 0.
//!
//! Each way tries to keep its monitor from getting control. Interrupts are off, or never come. An NMI is not ended. The
//! interrupt controller is dead. Exits come without a pause.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, cores, cpu, hypercall, interrupt, pci, println, time, watchdog};
use core::arch::asm;

bulkhead_sdk::entry!(guest);

/// x2APIC: spurious vector register, self NMI by the interrupt command register.
const SVR: u32 = 0x80F;
const ICR: u32 = 0x830;
const LVT_TIMER: u32 = 0x832;
const NMI: u64 = 4 << 8 | 1 << 14;
/// Kicks before the end.
const KICKS: u32 = 40;
/// Vector of interrupts to itself.
const VECTOR: u8 = 0x50;

fn nothing(_: &mut interrupt::Frame, _: u64) {}

/// Never returns, so that its core takes no further NMI: the processor waits for an IRET.
fn stay(_: &mut interrupt::Frame, _: u64) {
    loop {
        core::hint::spin_loop();
    }
}

fn write(register: u32, value: u64) {
    // SAFETY: a register of this core's own interrupt controller, of which this program needs nothing any more.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack));
    }
}

fn own_nmi() {
    write(ICR, u64::from(cpu::cpuid(0xB, 0)[3]) << 32 | NMI);
}

/// Does a thing for ever.
fn again(mut act: impl FnMut()) -> ! {
    loop {
        act();
    }
}

fn stop(way: &str) -> ! {
    println!("hang: {way} at {}", time::counter());
    time::disarm();
    match way {
        "off" => again(interrupt::disable),
        "on" => again(interrupt::enable),
        "sleep" => again(|| {
            interrupt::enable();
            interrupt::wait();
        }),
        "sleep-off" => {
            interrupt::disable();
            // SAFETY: nothing wakes this core but an NMI, which its monitor gets.
            again(|| unsafe { asm!("hlt", options(nomem, nostack)) })
        }
        "shadow" => {
            interrupt::disable();
            // SAFETY: SS is the one that it is; each load holds interrupts off for an instruction.
            again(|| unsafe {
                asm!("mov {t:e}, ss", "2: mov ss, {t:e}", "jmp 2b", t = out(reg) _, options(nostack));
            })
        }
        "masked" => {
            interrupt::set(2, stay);
            again(own_nmi)
        }
        "nmi" => {
            interrupt::set(2, nothing);
            again(own_nmi)
        }
        "itself" => {
            interrupt::set(VECTOR, nothing);
            interrupt::enable();
            again(|| bulkhead_sdk::apic::ipi_self(VECTOR))
        }
        "deaf" => {
            interrupt::disable();
            write(LVT_TIMER, 1 << 16);
            // Disabled by software. It still takes NMIs (SDM volume 3, 11.4.7.2).
            write(SVR, 0xFF);
            // SAFETY: this core's own priority.
            again(|| unsafe { asm!("mov cr8, {}", in(reg) 15u64, options(nomem, nostack)) })
        }
        "calls" => again(|| {
            hypercall::null();
        }),
        "cpuid" => again(|| {
            let _ = cpu::cpuid(0, 0);
        }),
        "registers" => again(|| write(LVT_TIMER, 1 << 16)),
        _ => panic!("no way to stop"),
    }
}

fn go_on(context: Context, kicks: u32) {
    let pause = watchdog::alive(context).unwrap_or(1_000_000) / 2;
    for _ in 0..kicks {
        watchdog::kick(context);
        let due = time::counter() + time::ticks(pause);
        while time::counter() < due {}
    }
}

/// Lets a function master the bus, and goes on until somebody has taken that from it.
fn master(context: Context) {
    let Some(function) = pci::all(1).next() else { return };
    let before = function.read(pci::register::COMMAND) & 0xFFFF;
    function.write(pci::register::COMMAND, before | pci::BUS_MASTER);
    println!("hang: command {:#x}", function.read(pci::register::COMMAND) & 0xFFFF);
    while function.read(pci::register::COMMAND) & pci::BUS_MASTER != 0 {
        go_on(context, 1);
    }
    println!("hang: command {:#x}", function.read(pci::register::COMMAND) & 0xFFFF);
}

/// The second core.
fn second(context: Context, _: usize) {
    go_on(context, KICKS);
    stop(context.arg("way").unwrap_or("off"));
}

fn guest(context: Context) -> u32 {
    if context.incarnation() > 0 && context.arg_u64("lives") != Some(2) {
        println!("hang: life {}", context.incarnation());
        return 0;
    }
    hypercall::ready();
    let second_stops = context.arg_u64("core") == Some(1);
    if context.info().cores > 1 && !cores::start(context, 1, second) {
        println!("hang: the second core does not start");
        return 1;
    }
    if context.arg_u64("master") == Some(1) {
        master(context);
    }
    if second_stops {
        go_on(context, u32::MAX);
    }
    match context.arg("way") {
        Some(way) => {
            go_on(context, KICKS);
            stop(way)
        }
        None => {
            go_on(context, context.arg_u64("kicks").map_or(3 * KICKS, |kicks| kicks as u32));
            watchdog::rest(context);
            println!("hang: it has gone on");
            0
        }
    }
}
