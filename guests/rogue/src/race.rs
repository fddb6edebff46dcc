//! Attacks on the monitor's decoder from two cores. While one core traps, the other one changes the instruction, or an
//! entry of the page tables that both use, all the time. The result must be that of one of the two. For a sandbox with
//! two cores, `edu`, and the right to execute all of its memory.

use crate::aim::{Aim, Place};
use crate::config::{FOREIGN, MSI, ecam};
use crate::decoder::second;
use crate::edu::EDU;
use crate::expect::{Expect, Got};
use crate::{Act::Run, Attack};
use bulkhead_sdk::fault::{Fault, PF, catch};
use bulkhead_sdk::{Context, Moved, cores};
use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

/// How often the instruction is executed: with the harness's slices of time a few
/// hundred times another one is there when the monitor looks.
const ROUNDS: u64 = 20_000;
/// The first register of `edu`.
const IDENTITY: u64 = ecam(EDU, 0);
const EDU_IS: u64 = 0x11E8_1234;
/// A register that holds each written value, while no message is enabled.
const KEPT: u64 = ecam(EDU, MSI + 12);
const A: u64 = 0x1111_1111;
const C: u64 = 0x2222_2222;
const BEFORE: u64 = 0xFFFF_FFFF;
/// MOV EAX, [RDI]; MOV ECX, [RDI]; MOV [RDI], EAX; MOV [RDI], ECX; MOV [RDI], AL, each
/// followed by RET.
const READ_A: u64 = 0xC3_07_8B;
const READ_C: u64 = 0xC3_0F_8B;
const WRITE_A: u64 = 0xC3_07_89;
const WRITE_C: u64 = 0xC3_0F_89;
const WRITE_AL: u64 = 0xC3_07_88;

#[repr(C, align(4096))]
struct Code(UnsafeCell<[[u64; 512]; 2]>);

// SAFETY: written by volatile accesses of aligned words.
unsafe impl Sync for Code {}

static CODE: Code = Code(UnsafeCell::new([[0; 512]; 2]));

/// The first word of a page.
fn page(n: usize) -> *mut u64 {
    // SAFETY: within the two.
    unsafe { CODE.0.get().cast::<u64>().add(n * 512) }
}

// Orders for the other core: an address, a value, and another value. No place: it waits.
static AT: AtomicU64 = AtomicU64::new(0);
static ONE: AtomicU64 = AtomicU64::new(0);
static OTHER: AtomicU64 = AtomicU64::new(0);

/// The second core: writes one value and the other one, as fast as it can.
fn flip(_: Context, _: usize) {
    let at = AT.load(Ordering::Acquire) as *mut u64;
    let (one, other) = (ONE.load(Ordering::Relaxed), OTHER.load(Ordering::Relaxed));
    loop {
        // SAFETY: a word of [`CODE`] or of the tables behind [`second`], which hold
        // nothing else.
        unsafe {
            at.write_volatile(other);
            at.write_volatile(one);
        }
    }
}

/// Lets the second core change a word from now on.
fn changing(aim: &Aim, at: *mut u64, one: u64, other: u64) -> bool {
    // SAFETY: as in `flip`.
    unsafe { at.write_volatile(one) };
    ONE.store(one, Ordering::Relaxed);
    OTHER.store(other, Ordering::Relaxed);
    AT.store(at as u64, Ordering::Release);
    cores::start(aim.context, 1, flip)
}

/// Executes the code at `code`, with an address in RDI and [`A`] and [`C`] in the other two registers, which it
/// returns.
fn execute(code: u64, target: u64) -> Result<(u64, u64), Fault> {
    // SAFETY: an attack: a MOV and a RET are there.
    unsafe {
        catch(|| {
            let (a, c): (u64, u64);
            asm!("call {}", in(reg) code, in("rdi") target,
                inout("rax") A => a, inout("rcx") C => c, clobber_abi("C"));
            (a, c)
        })
    }
}

/// Tells if one register has the value that was read, and the other one has its old one.
fn read_one((a, c): (u64, u64), values: &[u64]) -> bool {
    values.iter().any(|v| (a, c) == (*v, C) || (a, c) == (A, *v))
}

/// How many rounds gave something else than they may.
fn count(mut round: impl FnMut() -> Result<bool, Fault>) -> Got {
    (0..ROUNDS).try_fold(0, |wrong, _| Ok(wrong + u64::from(!round()?)))
}

/// The second core did not start.
const ALONE: u64 = 1 << 32;

/// Two reads to different registers.
fn reads(aim: &Aim) -> Got {
    if !changing(aim, page(0), READ_A, READ_C) {
        return Ok(ALONE);
    }
    count(|| Ok(read_one(execute(page(0) as u64, IDENTITY)?, &[EDU_IS])))
}

fn writes(aim: &Aim, other: u64, results: [u64; 2]) -> Got {
    if !changing(aim, page(0), WRITE_A, other) {
        return Ok(ALONE);
    }
    count(|| {
        // SAFETY: a register of `edu`'s.
        unsafe { (BEFORE as u32).store(KEPT) };
        let unchanged = execute(page(0) as u64, KEPT)? == (A, C);
        // SAFETY: a register of `edu`'s.
        Ok(unchanged && results.contains(&u64::from(unsafe { u32::load(KEPT) })))
    })
}

/// Two writes of different registers.
fn registers(aim: &Aim) -> Got {
    writes(aim, WRITE_C, [A, C])
}

/// Two writes of different sizes.
fn sizes(aim: &Aim) -> Got {
    writes(aim, WRITE_AL, [A, BEFORE & !0xFF | A & 0xFF])
}

/// A read and a write.
fn directions(aim: &Aim) -> Got {
    if !changing(aim, page(0), READ_A, WRITE_A) {
        return Ok(ALONE);
    }
    let right = |(a, c)| c == C && (a == A || a == 0);
    count(|| execute(page(0) as u64, KEPT).map(right))
}

/// The page with the instruction, and a frame or nothing instead; faults of the guest's
/// own are as they should be.
fn pages(aim: &Aim, instead: u64) -> Got {
    // SAFETY: the second page is not executed yet.
    unsafe { (page(0).write_volatile(READ_A), page(1).write_volatile(READ_C)) };
    let (entry, at) = second(page(0) as u64, 0);
    // SAFETY: an entry that `second` made.
    let own = unsafe { entry.read_volatile() };
    if !changing(aim, entry, own, instead) {
        return Ok(ALONE);
    }
    count(|| match execute(at, IDENTITY) {
        Ok(got) => Ok(read_one(got, &[EDU_IS])),
        Err(fault) if fault.vector == PF && instead == 0 => Ok(true),
        Err(fault) => Err(fault),
    })
}

/// Another page of one's own.
fn pages_own(aim: &Aim) -> Got {
    pages(aim, page(1) as u64 | 3)
}

/// Another's memory.
fn pages_outside(aim: &Aim) -> Got {
    pages(aim, aim.victim & !0xFFF | 3)
}

/// No page.
fn pages_absent(aim: &Aim) -> Got {
    pages(aim, 0)
}

/// The page with the register becomes another's.
fn target(aim: &Aim, code: u64, offset: u64) -> Option<(u64, u64)> {
    // SAFETY: it is not executed yet.
    unsafe { page(0).write_volatile(code) };
    let (entry, at) = second(ecam(EDU, 0), 1);
    let started = changing(aim, entry, ecam(EDU, 0) | 3, ecam(FOREIGN, 0) | 3);
    started.then_some((page(0) as u64, at + offset))
}

/// By a read: of another's function all ones.
fn target_read(aim: &Aim) -> Got {
    let Some((code, at)) = target(aim, READ_A, 0) else { return Ok(ALONE) };
    count(|| Ok(read_one(execute(code, at)?, &[EDU_IS, 0xFFFF_FFFF])))
}

/// By a write, which another's function must not get.
fn target_write(aim: &Aim) -> Got {
    let Some((code, at)) = target(aim, WRITE_A, MSI + 12) else { return Ok(ALONE) };
    count(|| Ok(execute(code, at)? == (A, C)))
}

const DONE: Expect = Expect::Harmless(0);
const KEPT_AT: Expect = Expect::Memory(Place::At(KEPT));
const IDENTITY_AT: Expect = Expect::Memory(Place::At(IDENTITY));
/// The processor itself looks for the MOV there, or for the RET behind it.
const MOV_AT: Expect = Expect::Memory(Place::IntoVictim(0));
const RET_AT: Expect = Expect::Memory(Place::IntoVictim(2));
const FOREIGN_AT: Expect = Expect::Device(ecam(FOREIGN, MSI + 12));

const fn race(
    name: &'static str,
    guarantee: &'static str,
    act: fn(&Aim) -> Got,
    expect: Expect,
) -> Attack {
    Attack::new(name, guarantee, Run(act), expect)
}

/// The attacks. Where the two differ in the denied access, sooner or later it is.
pub static RACES: &[Attack] = &[
    race("race-reads", "decoder-moves", reads, DONE),
    race("race-registers", "decoder-moves", registers, DONE),
    race("race-sizes", "decoder-moves", sizes, DONE),
    race("race-directions", "decoder-direction", directions, KEPT_AT),
    race("race-pages", "decoder-ram", pages_own, DONE),
    race(
        "race-pages-outside",
        "decoder-ram",
        pages_outside,
        Expect::OneOf(&[IDENTITY_AT, MOV_AT, RET_AT]),
    ),
    race("race-pages-absent", "decoder-ram", pages_absent, IDENTITY_AT),
    race("race-target-read", "pci-visible", target_read, DONE),
    race("race-target-write", "pci-visible", target_write, FOREIGN_AT),
];
