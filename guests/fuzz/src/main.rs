//! Makes random exits, on some or all cores of its sandbox ([`fuzz_guest`]). It catches the exceptions of an operation.
//! A restart mends the damage, and the next life goes on where the book says.
//!
//! Arguments: `seed=N`; `functions=A,B,…`, bus, device and function of the functions to configure, in hexadecimal. With
//! `keep=A,B` it starts and restarts those sandboxes, by index, until the driver ends it; with `foreign=ID` it tries
//! [`high`], once.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod high;
mod keep;

use bulkhead_sdk::layout::load::{HEAD, Head, MAGIC, PROGRAM_GPA, sum};
use bulkhead_sdk::layout::map::ECAM_GPA;
use bulkhead_sdk::{Context, apic, cores, cpu, fault, interrupt, paging, pci, time, window};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use fuzz_guest::code::{BACK, RETURN, TABLE};
use fuzz_guest::make::{Aims, IOAPIC, Maker, OUTSIDE};
use fuzz_guest::random::Random;
use fuzz_guest::{
    BOOK, CODE, CORES, CORPUS, INPUT, NEWS, OPEN, Op, READY, SNIPPET, SNIPPETS, TOLD, USER, book,
};

bulkhead_sdk::entry!(guest);

/// Operations after which a core looks after itself; and the first one after the others.
const ROUND: u64 = 256;
/// Rounds of the first core in a life, at least and at most.
const ROUNDS: core::ops::Range<usize> = 24..300;
/// Nanoseconds to wait for the audit, and without an operation of another core until it is started anew.
const AUDIT: u64 = 30_000_000;
const SILENCE: u64 = 5_000_000;
/// A guest-physical address where nothing is.
const NOWHERE: u64 = 0x70_0000_0000;
/// Selectors of the SDK's segments at CPL 3.
const USER_DATA: u64 = 0x18 | 3;
const USER_CODE: u64 = 0x20 | 3;
/// RFLAGS at CPL 3: IOPL 3, so that the monitor decides on ports and not the processor.
const USER_FLAGS: u64 = 0x3002;

/// Address of the book.
static PLACE: AtomicU64 = AtomicU64::new(0);
/// Cores that take part in this life.
static TAKE_PART: AtomicU64 = AtomicU64::new(1);

/// A word of memory that another party reads or writes, too.
fn word(at: u64) -> &'static AtomicU64 {
    // SAFETY: own RAM beyond the program, or the book: both are mapped, aligned, and only accessed by atomics.
    unsafe { &*(at as *const AtomicU64) }
}

/// A word of the book.
fn noted(offset: u64) -> &'static AtomicU64 {
    word(PLACE.load(Ordering::Relaxed) + offset)
}

/// Offset of a core's count of operations.
const fn count(core: usize) -> u64 {
    book::DONE + 8 * (core % CORES) as u64
}

fn ignore(_: &mut interrupt::Frame, _: u64) {}

fn guest(context: Context) -> u32 {
    if let Some(others) = context.arg("keep") {
        return keep::keep(context, others);
    }
    if let Some(foreign) = context.arg_u64("foreign") {
        return high::attack(context, foreign);
    }
    paging::map_everything();
    for vector in interrupt::FIRST..=u8::MAX {
        // The SDK's own, and the way back from CPL 3.
        if !matches!(vector, 0xEF | interrupt::SPURIOUS | 0x81) {
            interrupt::set(vector, ignore);
        }
    }
    // An NMI, and interrupts with vectors that look like exceptions without an error code.
    [2, 18, 20, 22, 23, 24, 25, 26, 27, 28, 31].iter().for_each(|v| interrupt::set(*v, ignore));
    landing_places();
    stage();
    wait_for_audit(context.incarnation() + 1);
    open_book(context);
    let mut random = Random::new(seed(context, 0) ^ u64::MAX);
    let all = (context.info().cores as usize).min(CORES);
    TAKE_PART.store(1 + random.below(all) as u64, Ordering::Relaxed);
    let rounds = ROUNDS.start + random.below(ROUNDS.len());
    go(context, 0, rounds as u64)
}

/// The seed of a core in this life: not the one with which it began before, if it was started again.
fn seed(context: Context, core: usize) -> u64 {
    let given = context.arg_u64("seed").unwrap_or(0);
    let done = noted(count(core)).load(Ordering::Relaxed);
    given ^ context.incarnation() << 32 ^ (core as u64) << 56 ^ done.rotate_left(16)
}

fn open_book(context: Context) {
    let own = |w: &window::Window| w.writable && w.name.starts_with(BOOK);
    if let Some(window) = window::all(context).find(own) {
        PLACE.store(window.gpa, Ordering::Relaxed);
    }
    noted(book::BEAT).store((context.incarnation() + 1) << 32, Ordering::SeqCst);
}

/// The driver audits the machine at the beginning of each life; if it is late, others need not wait for that.
fn wait_for_audit(life: u64) {
    word(READY).store(life, Ordering::SeqCst);
    // Before the first one the driver learns the victim's normal behaviour.
    let limit = time::counter() + time::ticks(if life == 1 { 100 * AUDIT } else { AUDIT });
    while word(TOLD).load(Ordering::Acquire) != life && time::counter() < limit {
        core::hint::spin_loop();
    }
}

/// Finds its targets. Finding it takes some exits, too.
fn aims(context: Context) -> Aims {
    let info = context.info();
    let mut aims = Aims { sandboxes: info.sandboxes, ..Aims::default() };
    let cores = info.core_ids.iter().take(info.cores as usize);
    cores.for_each(|id| aims.own.push(u64::from(*id)));
    (0..3).for_each(|_| aims.pages.push(IOAPIC));
    let functions = context.arg("functions").unwrap_or("").split(',');
    for bdf in functions.filter_map(|text| u16::from_str_radix(text, 16).ok()) {
        let function = pci::Function(bdf);
        (0..2).for_each(|_| aims.functions.push(function.page()));
        if let Some(at) = function.capability(pci::MSI) {
            aims.capabilities.push(function.page() + u64::from(at));
        }
        match (messages(function), function.bar(0)) {
            (Some(table), _) => {
                (0..4).for_each(|_| aims.pages.push(table));
                aims.tables.push(table);
            }
            // Its own registers: written, they raise its interrupt.
            (None, Some(registers)) => {
                aims.pages.push(registers);
                aims.computes.push(registers);
            }
            (None, None) => {}
        }
    }
    // The host bridge, a bridge, the victim's disk, and a function without an owner.
    [0, 0x10, 0x18, 0x100].iter().for_each(|bdf| aims.functions.push(ECAM_GPA + (bdf << 12)));
    for window in window::all(context).filter(|w| !w.name.starts_with(BOOK)) {
        (if window.writable { &mut aims.pages } else { &mut aims.read_only }).push(window.gpa);
    }
    aims
}

/// Page of a function's MSI-X table.
fn messages(function: pci::Function) -> Option<u64> {
    let at = function.capability(pci::MSIX)?;
    let place = function.read(at + 4);
    Some(function.bar(place as u16 & 7)? + u64::from(place & !0xFFF))
}

/// A core that a start-up interrupt sends to a page of low memory halts there.
fn landing_places() {
    const HALT: u32 = u32::from_le_bytes([0xFA, 0xF4, 0xEB, 0xFD]);
    for page in (0x1000..0x8000).chain(0x9000..0x9_F000).step_by(0x1000) {
        // SAFETY: own RAM that holds nothing.
        unsafe { (page as *mut u32).write_volatile(HALT) };
    }
}

/// Writes the snippets to where they are executed.
fn stage() {
    for (n, code) in (0..).zip(TABLE) {
        for (end, from) in [(RETURN, n), (BACK, n + SNIPPETS)] {
            let at = (CODE + from * SNIPPET) as *mut u8;
            for (i, byte) in code.iter().chain(end).enumerate() {
                // SAFETY: own RAM beyond the program; it is not executed yet.
                unsafe { at.add(i).write_volatile(*byte) };
            }
        }
    }
    word(OUTSIDE).store(NOWHERE, Ordering::Relaxed);
}

/// Leaves a program for the other sandbox, whole, torn, too long, or none.
fn lesson(context: Context, random: &mut Random) {
    // MOV EAX, EXIT; VMMCALL.
    const PROGRAM: u64 = u64::from_le_bytes([0xB8, 0x02, 0x00, 0x48, 0x42, 0x0F, 0x01, 0xD9]);
    let Some(window) = window::channel(context, "lessons").filter(|w| w.writable) else { return };
    let words = window.words();
    let head = Head { magic: MAGIC, len: 8, entry: PROGRAM_GPA, sum: sum(&[PROGRAM]) };
    let head = match random.below(6) {
        0 => head,
        1 => Head { sum: random.next(), ..head },
        2 => Head { len: random.next(), ..head },
        3 => Head { entry: random.next(), ..head },
        _ => Head::default(),
    };
    let all = [head.magic, head.len, head.entry, head.sum, PROGRAM];
    words.iter().zip(all).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    const { assert!(HEAD == 32) };
}

/// The work of the other cores.
fn work(context: Context, core: usize) {
    go(context, core, u64::MAX);
}

/// Makes exits on this core; the first one ends the life after so many rounds, or with one of those that follow.
fn go(context: Context, core: usize, rounds: u64) -> ! {
    let mut maker = Maker::new(aims(context), seed(context, core));
    let mut input = Input::default();
    let mut heard = [Heard::default(); CORES];
    for round in 0.. {
        mend();
        if core == 0 {
            noted(book::BEAT).fetch_add(1, Ordering::Relaxed);
            wake(context, &mut heard);
            lesson(context, &mut maker.random);
        }
        if round >= rounds {
            // Lives that end otherwise take no turn away: each way comes.
            let turn = noted(book::ENDED).fetch_add(1, Ordering::Relaxed);
            let op = maker.last(turn);
            make(core, op);
        }
        for _ in 0..ROUND {
            let op = input.next(&mut maker);
            make(core, op);
        }
    }
    unreachable!("rounds have no end")
}

/// Makes this core's APIC one that takes the timer's interrupts again: without them no other core is started.
fn mend() {
    const ON: u64 = 1 << 8 | interrupt::SPURIOUS as u64;
    // SAFETY: the own core's registers, with interrupts off; nothing is in service here.
    unsafe {
        cpu::wrmsr(apic::SVR, ON);
        cpu::wrmsr(apic::TPR, 0);
        (0..4).for_each(|_| cpu::wrmsr(apic::EOI, 0));
    }
}

/// The first core's knowledge of another core: its operations, and when they last were more.
#[derive(Clone, Copy, Default)]
struct Heard {
    done: u64,
    at: u64,
}

/// Starts cores that take part and do nothing: operations send them away.
fn wake(context: Context, heard: &mut [Heard; CORES]) {
    let cores = TAKE_PART.load(Ordering::Relaxed) as usize;
    for (core, heard) in heard.iter_mut().enumerate().take(cores).skip(1) {
        let (done, now) = (noted(count(core)).load(Ordering::Relaxed), time::counter());
        if heard.at == 0 || done == heard.done && now - heard.at > time::ticks(SILENCE) {
            let _ = cores::start(context, core, work);
            heard.at = time::counter();
        }
        if done != heard.done {
            *heard = Heard { done, at: now };
        }
    }
}

/// An input that is under way.
#[derive(Default)]
struct Input {
    number: usize,
    step: usize,
    steps: usize,
}

impl Input {
    /// The next operation: of a kept input, changed, or a fresh one.
    fn next(&mut self, maker: &mut Maker) -> Op {
        let kept = noted(book::KEPT).load(Ordering::Relaxed) as usize;
        if self.step == self.steps {
            if kept == 0 || maker.random.one_in(2) {
                return maker.fresh();
            }
            self.number = maker.random.below(kept.min(CORPUS));
            (self.step, self.steps) = (maker.random.below(INPUT), INPUT);
        }
        let at = book::input(self.number, self.step);
        self.step += 1;
        maker.mutated(Op::from_words(core::array::from_fn(|n| {
            noted(at + 8 * n as u64).load(Ordering::Relaxed)
        })))
    }
}

/// Makes an operation, and keeps the ones that led to it if the monitor did something new.
fn make(core: usize, op: Op) {
    let done = noted(count(core));
    let n = done.load(Ordering::Relaxed);
    let at = noted(book::trail(core, n));
    // SAFETY: the book's own place of this core; an operation has the size of its place.
    unsafe { core::ptr::from_ref(at).cast_mut().cast::<Op>().write_volatile(op) };
    done.store(n + 1, Ordering::Relaxed);
    let before = word(NEWS).load(Ordering::Relaxed);
    run(&op);
    if word(NEWS).load(Ordering::Relaxed) != before {
        note(core, n);
    }
}

/// Keeps an operation and those before it.
fn note(core: usize, n: u64) {
    let kept = noted(book::KEPT).fetch_add(1, Ordering::Relaxed) as usize;
    for step in 0..INPUT {
        let from = book::trail(core, n.wrapping_sub((INPUT - 1 - step) as u64));
        let to = book::input(kept, step);
        for word in (0..size_of::<Op>() as u64).step_by(8) {
            let value = noted(from + word).load(Ordering::Relaxed);
            noted(to + word).store(value, Ordering::Relaxed);
        }
    }
}

/// Runs one.
fn run(op: &Op) {
    // SAFETY: snippets leave RSP and R15 alone and end with `RETURN` or `BACK`. Their other effects are their purpose,
    // and a restart undoes them.
    let _ =
        unsafe { fault::catch(|| if op.how & USER != 0 { as_user(op) } else { as_kernel(op) }) };
    interrupt::disable();
    if op.how & OPEN != 0 {
        // SAFETY: vectors that look like exceptions are caught, and a restart undoes all other effects. The interrupts
        // that they leave in service are ended.
        unsafe {
            let _ = fault::catch(|| asm!("sti", "nop", "nop", "cli"));
            interrupt::disable();
            cpu::wrmsr(apic::EOI, 0);
        }
    }
}

macro_rules! load_registers {
    ($($last:tt)*) => {
        concat!(
            ".set at, 8\n",
            ".irp register, rax, rcx, rdx, rbx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14\n",
            "mov \\register, [r15 + at]\n",
            ".set at, at + 8\n",
            ".endr\n",
            $($last)*
        )
    };
}

/// # Safety
/// See [`run`].
unsafe fn as_kernel(op: &Op) {
    // SAFETY: the caller's; RBX and RBP are restored.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            load_registers!("call qword ptr [r15 + 120]\n"),
            "pop rbp",
            "pop rbx",
            "cld",
            inout("r15") core::ptr::from_ref(op) => _,
            out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _, out("r12") _, out("r13") _, out("r14") _,
        );
    }
}

/// # Safety
/// See [`run`]; comes back by an exception or by [`BACK`], which [`fault::catch`] takes for one.
unsafe fn as_user(op: &Op) {
    // SAFETY: the caller's; the stack is not touched at CPL 3.
    unsafe {
        asm!(
            "push {data}",
            "push 0x3ffff8",
            "push {flags}",
            "push {code}",
            "push [r15 + 120]",
            load_registers!("iretq\n"),
            data = const USER_DATA,
            flags = const USER_FLAGS,
            code = const USER_CODE,
            in("r15") core::ptr::from_ref(op),
            options(noreturn),
        );
    }
}
