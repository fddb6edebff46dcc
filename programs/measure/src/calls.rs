//! Messages and signals: `client` calls the servers one after the other, then signals.

use crate::marked::{Answer, Behind, Span, call};
use bulkhead_program::abi::{Info, Op, Status, label, slot};
use bulkhead_program::marker::id;
use bulkhead_program::{FOREVER, Program, invoke, now, println, ready};

/// Words of a message that goes through the buffer.
const LONG: usize = 8;
/// The woken thread's, ns.
const PERIOD: u64 = 200_000;

type Plain = Span<{ id::KERNEL_CALL }, { id::KERNEL_REPLY }>;
type PlainAnswer = Span<{ id::KERNEL_REPLY }, { id::KERNEL_CALL }>;
type Slow = Span<{ id::KERNEL_CALL_SLOW }, { id::KERNEL_REPLY_SLOW }>;
type SlowAnswer = Span<{ id::KERNEL_REPLY_SLOW }, { id::KERNEL_CALL_SLOW }>;
type Cap = Span<{ id::KERNEL_CALL_CAP }, { id::KERNEL_REPLY_CAP }>;
type CapAnswer = Span<{ id::KERNEL_REPLY_CAP }, { id::KERNEL_CALL_CAP }>;
type Fpu = Span<{ id::KERNEL_CALL_FPU }, { id::KERNEL_REPLY_FPU }>;
type FpuAnswer = Span<{ id::KERNEL_REPLY_FPU }, { id::KERNEL_CALL_FPU }>;
type Signal = Span<{ id::KERNEL_SIGNAL }, { id::KERNEL_SIGNAL }>;
type Wait = Span<{ id::KERNEL_WAIT }, { id::KERNEL_WAIT }>;
type Schedule = Span<{ id::KERNEL_SCHEDULE }, { id::KERNEL_SCHEDULE }>;

fn expect(what: &str, answer: Answer) -> Info {
    assert!(answer.0 == Status::OK.0, "{what}: status {:#x}", answer.0);
    answer.2
}

/// Measures by calling. `rounds=N`; `fpu` calls the server `fpu` only.
pub fn client(program: Program) -> u32 {
    ready();
    let rounds = program.number("rounds").unwrap_or(100);
    if program.arg("only") == Some("fpu") {
        make_passive(program, "fpu");
        let fpu = program.endpoint("fpu").0;
        for _ in 0..rounds {
            expect("fpu", call::<Fpu>(Op::Call, 0, fpu, 0));
        }
    } else {
        messages(program, rounds);
        signals(program, rounds);
    }
    println!("measure: done");
    0
}

/// A server of a higher priority waits by now, and works for its callers only from here on.
fn make_passive(program: Program, name: &str) {
    let unbound = program.context(name).unbind();
    assert!(unbound.is_ok(), "{unbound:?}");
}

fn messages(program: Program, rounds: u64) {
    let [plain, slow, cap] = ["plain", "slow", "cap"].map(|name| {
        make_passive(program, name);
        program.endpoint(name).0
    });
    for _ in 0..rounds {
        let info = expect("plain", call::<Plain>(Op::Call, 0, plain, 0));
        assert!(info.words() == 0, "{info:?}");
    }
    for _ in 0..rounds {
        let info = expect("slow", call::<Slow>(Op::Call, 0, slow, Info::new(0, LONG).0));
        assert!(info.words() == LONG, "{info:?}");
    }
    let empty = program.page().free[0];
    offer(program, slot::NODE, empty);
    for _ in 0..rounds {
        let info = expect("cap", call::<Cap>(Op::Call, 0, cap, Info::new(0, 0).with_cap().0));
        assert!(info.has_cap(), "{info:?}");
        empty_again(empty);
    }
}

/// Names the capability to send, and the slot for one that comes.
fn offer(program: Program, cap: u32, receive: u32) {
    let buffer = program.buffer();
    // SAFETY: the thread's own buffer, which only the kernel uses beside it, during calls.
    unsafe {
        (&raw mut (*buffer).cap).write_volatile(cap.into());
        (&raw mut (*buffer).receive).write_volatile(receive.into());
    }
}

fn empty_again(address: u32) {
    let deleted = invoke(slot::NODE, label::DELETE, [address.into(), 0, 0, 0]);
    assert!(deleted.is_ok(), "{deleted:?}");
}

fn signals(program: Program, rounds: u64) {
    let (bits, own) = (program.signals("bits").0, program.waits("bits").0);
    let higher = program.signals("higher").0;
    for _ in 0..rounds {
        expect("signal", call::<Signal>(Op::NbSend, 0, bits, 0));
        let (_, badge, _) = call::<Wait>(Op::Wait, 0, own, FOREVER);
        assert!(badge != 0, "nothing signalled");
    }
    for _ in 0..rounds {
        // The time that the woken thread used comes back.
        let next = now() + PERIOD;
        while now() < next {}
        expect("schedule", call::<Schedule>(Op::NbSend, 0, higher, 0));
    }
}

/// Answers with the words that it got: `what=plain`, `slow`, `cap` or `fpu`.
pub fn server(program: Program) -> u32 {
    let what = program.arg("what").unwrap_or("plain");
    let (from, reply) = (program.serves(what).0, program.reply(what).0);
    let empty = program.page().free[0];
    offer(program, slot::NODE, empty);
    let mut got = call::<PlainAnswer>(Op::Recv, reply, from, FOREVER);
    loop {
        let info = expect(what, got).0;
        got = match what {
            "slow" => call::<SlowAnswer>(Op::ReplyRecv, reply, from, info),
            "cap" => {
                empty_again(empty);
                call::<CapAnswer>(Op::ReplyRecv, reply, from, info)
            }
            "fpu" => call::<FpuAnswer>(Op::ReplyRecv, reply, from, info),
            _ => call::<PlainAnswer>(Op::ReplyRecv, reply, from, info),
        };
    }
}

/// Waits for the signal of a lower priority.
pub fn higher(program: Program) -> u32 {
    let bits = program.waits("higher").0;
    loop {
        expect("higher", call::<Behind<{ id::KERNEL_SCHEDULE }>>(Op::Wait, 0, bits, FOREVER));
    }
}
