//! The error of a call says which argument is wrong, and which value would do. Nothing changes. Here are calls and
//! states; `wrong.rs` has every argument of every method.

use bulkhead_kernel_fake::USER_END;
use bulkhead_kernel_fake::World;
use bulkhead_kernel_fake::kernel::abi::{Address, Code, Kind, Op, Policy, Rights, Status, label};
use bulkhead_kernel_fake::kernel::host::OddAccess;
use bulkhead_kernel_fake::kernel::{Cap, Registers, State, plant};

/// One object of each kind, which the errors are about.
struct Things {
    world: World,
    thread: Address,
    untyped: Address,
    node: Address,
    table: Address,
    frame: Address,
    large: Address,
    endpoint: Address,
    badged: Address,
    weak: Address,
    notification: Address,
    reply: Address,
    context: Address,
    bound: Address,
    /// A slot that is empty.
    empty: Address,
}

impl Things {
    fn new() -> Self {
        let mut world = World::of(23);
        let bound = world.thread(10).context;
        let [thread, untyped, node] = [(Kind::Thread, 0), (Kind::Untyped, 12), (Kind::Node, 4)]
            .map(|(k, b)| world.make(k, b));
        let [table, frame, large] =
            [(Kind::Table, 0), (Kind::Frame, 12), (Kind::Frame, 21)].map(|(k, b)| world.make(k, b));
        let [endpoint, notification, reply] =
            [Kind::Endpoint, Kind::Notification, Kind::Reply].map(|kind| world.make(kind, 0));
        let context = world.make(Kind::Context, 9);
        let badged = world.copy(endpoint, Rights::ALL, 7);
        let weak = world.copy(endpoint, Rights::NONE, 0);
        let empty = world.free();
        Self {
            world,
            thread,
            untyped,
            node,
            table,
            frame,
            large,
            endpoint,
            badged,
            weak,
            notification,
            reply,
            context,
            bound,
            empty,
        }
    }

    /// That a method is refused, and changes nothing.
    fn refused(&mut self, address: Address, method: u64, words: [u64; 4], why: (Code, u8, u64)) {
        let before = self.world.image();
        let came = self.world.invoke(address, method, words);
        let (code, argument, detail) = why;
        let expected = Err(Status::new(code, argument, detail));
        assert_eq!(came, expected, "method {method} of {address} with {words:x?}, not {why:?}");
        assert!(self.world.image() == before, "method {method} with {words:x?} changed something");
    }
}

#[test]
fn retype_says_what_is_wrong() {
    let mut t = Things::new();
    let (node, empty) = (u64::from(t.node), u64::from(t.empty));
    let what = |kind: Kind, bits: u64, count: u64| kind as u64 | bits << 8 | count << 16;
    let endpoint = what(Kind::Endpoint, 0, 1);
    for (words, why) in [
        ([99, node, 1, 0], (Code::OutOfRange, 1, 0)),
        ([what(Kind::Null, 0, 1), node, 1, 0], (Code::OutOfRange, 1, 0)),
        ([what(Kind::Interrupt, 0, 1), node, 1, 0], (Code::OutOfRange, 1, 0)),
        ([what(Kind::Control, 0, 1), node, 1, 0], (Code::OutOfRange, 1, 0)),
        ([what(Kind::Frame, 13, 1), node, 1, 0], (Code::OutOfRange, 1, 21)),
        ([what(Kind::Node, 0, 1), node, 1, 0], (Code::OutOfRange, 1, 16)),
        ([what(Kind::Node, 17, 1), node, 1, 0], (Code::OutOfRange, 1, 16)),
        ([what(Kind::Context, 8, 1), node, 1, 0], (Code::OutOfRange, 1, 12)),
        ([what(Kind::Untyped, 31, 1), node, 1, 0], (Code::OutOfRange, 1, 30)),
        ([what(Kind::Endpoint, 0, 0), node, 1, 0], (Code::OutOfRange, 1, 256)),
        ([what(Kind::Endpoint, 0, 257), node, 1, 0], (Code::OutOfRange, 1, 256)),
        ([endpoint, empty, 1, 0], (Code::NoCapability, 2, empty)),
        ([endpoint, u64::MAX, 1, 0], (Code::NoCapability, 2, u64::MAX)),
        ([endpoint, t.frame.into(), 1, 0], (Code::WrongKind, 2, Kind::Frame as u64)),
        ([endpoint, node, 0, 0], (Code::OutOfRange, 3, 15)),
        ([endpoint, node, 16, 0], (Code::OutOfRange, 3, 15)),
        ([endpoint, node, u64::MAX, 0], (Code::OutOfRange, 3, 15)),
        ([what(Kind::Endpoint, 0, 16), node, 1, 0], (Code::OutOfRange, 3, 15)),
        ([what(Kind::Frame, 12, 2), node, 1, 0], (Code::NoMemory, 1, 4096)),
        ([what(Kind::Untyped, 13, 1), node, 1, 0], (Code::NoMemory, 1, 4096)),
    ] {
        t.refused(t.untyped, label::RETYPE, words, why);
    }
    t.world.does(t.untyped, label::RETYPE, [what(Kind::Endpoint, 0, 2), node, 1, 0]);
    t.refused(t.untyped, label::RETYPE, [endpoint, node, 2, 0], (Code::Occupied, 3, 2));
    let frame = what(Kind::Frame, 12, 1);
    t.refused(t.untyped, label::RETYPE, [frame, node, 3, 0], (Code::NoMemory, 1, 4096 - 64));
    // A node made of it is deeper than it is.
    t.world.does(t.untyped, label::RETYPE, [what(Kind::Node, 2, 1), node, 3, 0]);
    let inner = u64::from(t.node) << 16 | 3;
    let untyped = what(Kind::Untyped, 5, 1);
    t.world.does(t.untyped, label::RETYPE, [untyped, inner, 1, 0]);
    let node = what(Kind::Node, 1, 1);
    t.refused(t.untyped, label::RETYPE, [node, inner, 2, 0], (Code::Upwards, 2, 2));
    t.refused(World::UNTYPED, label::RETYPE, [untyped, inner, 2, 0], (Code::Upwards, 2, 2));
    t.world.does(World::NODE, label::COPY, [empty, inner, 0x1F, 0]);
    let own = u64::from(t.untyped);
    t.refused(t.empty, label::MOVE, [3, own, 0, 0], (Code::Upwards, 2, 2));
    t.refused(t.empty, label::MOVE, [3, inner, 0, 0], (Code::Upwards, 2, 2));
}

#[test]
fn node_methods_say_what_is_wrong() {
    let mut t = Things::new();
    let (empty, endpoint) = (u64::from(t.empty), u64::from(t.endpoint));
    for (method, words, why) in [
        (label::COPY, [0, endpoint, 31, 0], (Code::OutOfRange, 1, 15)),
        (label::COPY, [16, endpoint, 31, 0], (Code::OutOfRange, 1, 15)),
        (label::COPY, [u64::MAX, endpoint, 31, 0], (Code::OutOfRange, 1, 15)),
        (label::COPY, [1, empty, 31, 0], (Code::NoCapability, 2, 0)),
        (label::COPY, [1, 0, 31, 0], (Code::NoCapability, 2, 0)),
        (label::COPY, [1, 1 << 32 | endpoint, 31, 0], (Code::NoCapability, 2, 1 << 32 | endpoint)),
        (label::COPY, [1, t.untyped.into(), 31, 0], (Code::WrongKind, 2, Kind::Untyped as u64)),
        (label::COPY, [1, t.table.into(), 31, 0], (Code::WrongKind, 2, Kind::Table as u64)),
        (label::COPY, [1, endpoint, 256, 0], (Code::OutOfRange, 3, 255)),
        (label::COPY, [1, t.badged.into(), 31, 8], (Code::WrongKind, 4, Kind::Endpoint as u64)),
        (label::COPY, [1, t.frame.into(), 31, 8], (Code::WrongKind, 4, Kind::Frame as u64)),
        (label::MOVE, [1, empty, 0, 0], (Code::NoCapability, 2, empty)),
        (label::DELETE, [0, 0, 0, 0], (Code::OutOfRange, 1, 15)),
        (label::REVOKE, [99, 0, 0, 0], (Code::OutOfRange, 1, 15)),
    ] {
        t.refused(t.node, method, words, why);
    }
    t.world.does(t.node, label::COPY, [1, endpoint, 31, 0]);
    t.refused(t.node, label::COPY, [1, endpoint, 31, 0], (Code::Occupied, 1, 0));
    t.refused(t.node, label::MOVE, [1, endpoint, 31, 0], (Code::Occupied, 1, 0));
}

#[test]
fn derivation_ends_at_a_depth() {
    let mut t = Things::new();
    let (mut last, mut derived) = (t.endpoint, 0);
    let why = loop {
        let next = t.world.free();
        match t.world.invoke(World::NODE, label::COPY, [next.into(), last.into(), 31, 0]) {
            Ok(_) => (last, derived) = (next, derived + 1),
            Err(status) => break status,
        }
    };
    assert_eq!((why, derived), (Status::new(Code::TooDeep, 2, 64), 63));
    t.world.audit();
    t.refused(t.thread, label::SET_FAULT, [last.into(), 0, 0, 0], (Code::TooDeep, 1, 64));
    t.world.revoke(t.endpoint);
    assert!(t.world.cap(last).is(Kind::Null));
}

/// The last one that can be derived from something.
fn deepest(world: &mut World, of: Address) -> Address {
    let mut last = of;
    loop {
        let next = world.free();
        match world.invoke(World::NODE, label::COPY, [next.into(), last.into(), 31, 0]) {
            Ok(_) => last = next,
            Err(_) => break last,
        }
    }
}

#[test]
fn a_thread_keeps_nothing_that_is_too_deep_or_no_memory() {
    let mut t = Things::new();
    let [node, space, frame] =
        [World::NODE, World::SPACE, t.frame].map(|of| deepest(&mut t.world, of).into());
    let [root, home] = [World::NODE, World::SPACE].map(u64::from);
    let device = t.world.free();
    let mapped =
        Cap { flags: Cap::DEVICE | Cap::ORIGINAL, ..Cap::original(Kind::Frame, 0xFEE00, 12) };
    let slot = t.world.slot(device);
    plant(&mut t.world.machine, slot, mapped);
    for (words, why) in [
        ([node, home, 0, 0], (Code::TooDeep, 1, 64)),
        ([root, space, 0, 0], (Code::TooDeep, 2, 64)),
        ([root, home, frame, 0], (Code::TooDeep, 3, 64)),
        ([root, home, device.into(), 0], (Code::WrongKind, 3, Kind::Frame as u64)),
    ] {
        t.refused(t.thread, label::CONFIGURE, words, why);
    }
}

#[test]
fn who_waits_for_an_answer_is_not_resumed() {
    let mut t = Things::new();
    t.world.server(40, t.endpoint);
    let client = t.world.thread(20);
    t.world.call(client, t.endpoint, 0, [0; 4]);
    assert_eq!(t.world.state(client), State::Calling);
    t.refused(client.cap, label::RESUME, [0; 4], (Code::BadState, 0, State::Calling as u64));
}

#[test]
fn nobody_writes_the_registers_that_it_calls_with() {
    let mut t = Things::new();
    let thread = t.world.thread(20);
    t.world.call(thread, thread.cap, label::WRITE_REGISTERS, [0x1000, 0x2000, 0, 0]);
    assert_eq!(t.world.came(thread).status, Status::new(Code::BadState, 0, 0));
}

#[test]
fn thread_methods_say_what_is_wrong() {
    let mut t = Things::new();
    let [node, space] = [World::NODE, World::SPACE].map(u64::from);
    let (frame, endpoint) = (u64::from(t.frame), u64::from(t.endpoint));
    let other = t.world.copy(t.frame, Rights::READ, 0);
    let kind = |kind: Kind| kind as u64;
    let rights = Rights::READ.and(Rights::WRITE).0.into();
    let calls = Rights::CALL.and(Rights::WRITE).0.into();
    for (method, words, why) in [
        (label::CONFIGURE, [0, space, 0, 0], (Code::NoCapability, 1, 0)),
        (label::CONFIGURE, [space, space, 0, 0], (Code::WrongKind, 1, kind(Kind::Space))),
        (label::CONFIGURE, [node, node, 0, 0], (Code::WrongKind, 2, kind(Kind::Node))),
        (label::CONFIGURE, [node, space, node, 0], (Code::WrongKind, 3, kind(Kind::Node))),
        (label::CONFIGURE, [node, space, other.into(), 0], (Code::NoRight, 3, rights)),
        (label::CONFIGURE, [node, space, frame, 8], (Code::OutOfRange, 4, 4096 - 512)),
        (label::CONFIGURE, [node, space, frame, 4096], (Code::OutOfRange, 4, 4096 - 512)),
        (label::CONFIGURE, [node, space, frame, 1 << 21], (Code::OutOfRange, 4, (1 << 21) - 1)),
        (label::SET_PRIORITY, [1, 1, node, 0], (Code::WrongKind, 3, kind(Kind::Node))),
        (label::SET_PRIORITY, [1, 0, t.thread.into(), 0], (Code::NoAuthority, 1, 0)),
        (label::SET_PRIORITY, [0, 1, t.thread.into(), 0], (Code::NoAuthority, 2, 0)),
        (label::SET_FAULT, [node, 0, 0, 0], (Code::WrongKind, 1, kind(Kind::Node))),
        (label::SET_FAULT, [t.weak.into(), 0, 0, 0], (Code::NoRight, 1, calls)),
        (label::SET_TIMEOUT, [t.weak.into(), 0, 0, 0], (Code::NoRight, 1, calls)),
        (label::WRITE_REGISTERS, [USER_END, 0, 0, 0], (Code::OutOfRange, 1, USER_END - 1)),
        (label::WRITE_REGISTERS, [0, USER_END, 0, 0], (Code::OutOfRange, 2, USER_END - 1)),
        (label::RESUME, [0; 4], (Code::BadState, 0, 0)),
        (label::START, [USER_END, 0, 0, 0], (Code::OutOfRange, 1, USER_END - 1)),
        (label::START, [0, USER_END, 0, 0], (Code::OutOfRange, 2, USER_END - 1)),
        (label::START, [0; 4], (Code::BadState, 0, 0)),
        (label::BIND_NOTIFICATION, [endpoint, 0, 0, 0], (Code::WrongKind, 1, 7)),
        (label::SET_FPU, [2, 0, 0, 0], (Code::OutOfRange, 1, 1)),
    ] {
        t.refused(t.thread, method, words, why);
    }
    let notification = u64::from(t.notification);
    t.world.does(t.thread, label::BIND_NOTIFICATION, [notification, 0, 0, 0]);
    t.refused(t.thread, label::BIND_NOTIFICATION, [notification, 0, 0, 0], (Code::Occupied, 1, 0));
}

#[test]
fn mapping_says_what_is_wrong() {
    let mut t = Things::new();
    let space = u64::from(World::SPACE);
    let rw = u64::from(Rights::READ.and(Rights::WRITE).0);
    let rwx = rw | u64::from(Rights::EXECUTE.0);
    for (address, words, why) in [
        (t.frame, [t.node.into(), 0x1000, rw, 0], (Code::WrongKind, 1, Kind::Node as u64)),
        (t.frame, [space, 0x1001, rw, 0], (Code::OutOfRange, 2, USER_END - 4096)),
        (t.frame, [space, USER_END, rw, 0], (Code::OutOfRange, 2, USER_END - 4096)),
        (t.frame, [space, u64::MAX << 12, rw, 0], (Code::OutOfRange, 2, USER_END - 4096)),
        (t.large, [space, 0x1000, rw, 0], (Code::OutOfRange, 2, USER_END - (2 << 20))),
        (t.frame, [space, 0x1000, 2, 0], (Code::NoRight, 3, 1)),
        (t.frame, [space, 0x1000, rwx, 0], (Code::WriteExecute, 3, 0)),
        (t.frame, [space, 0x1000, 256, 0], (Code::OutOfRange, 3, 255)),
        (t.frame, [space, 0x1000, rw, 0], (Code::NoTable, 2, 2)),
        (t.large, [space, 0, rw, 0], (Code::NoTable, 2, 2)),
    ] {
        t.refused(address, label::MAP, words, why);
    }
    t.refused(
        t.table,
        label::MAP_TABLE,
        [space, USER_END, 0, 0],
        (Code::OutOfRange, 2, USER_END - 1),
    );
    t.world.does(t.table, label::MAP_TABLE, [space, 0x1000, 0, 0]);
    t.refused(t.table, label::MAP_TABLE, [space, 1 << 40, 0, 0], (Code::Occupied, 0, 0));
    t.refused(t.frame, label::MAP, [space, 0x1000, rw, 0], (Code::NoTable, 2, 1));
    for _ in 0..2 {
        let table = t.world.make(Kind::Table, 0);
        t.world.does(table, label::MAP_TABLE, [space, 0x1000, 0, 0]);
    }
    t.world.does(t.frame, label::MAP, [space, 0x1000, rw, 0]);
    t.refused(t.frame, label::MAP, [space, 0x2000, rw, 0], (Code::Occupied, 0, 0));
    let frame = t.world.make(Kind::Frame, 12);
    t.refused(frame, label::MAP, [space, 0x1000, rw, 0], (Code::Occupied, 2, 0));
    t.refused(t.large, label::MAP, [space, 0, rw, 0], (Code::Occupied, 2, 0));
    let table = t.world.make(Kind::Table, 0);
    t.refused(table, label::MAP_TABLE, [space, 0x1000, 0, 0], (Code::Occupied, 2, 0));
}

#[test]
fn context_methods_say_what_is_wrong() {
    let mut t = Things::new();
    let (context, thread) = (u64::from(t.context), u64::from(t.thread));
    let hour = 3_600_000_000_000;
    for (words, why) in [
        ([thread, 1, 10_000, 0], (Code::WrongKind, 1, Kind::Thread as u64)),
        ([context | 4 << 32, 1, 10_000, 0], (Code::OutOfRange, 1, 3)),
        ([context, 1, 9_999, 0], (Code::OutOfRange, 3, hour)),
        ([context, 1, hour + 1, 0], (Code::OutOfRange, 3, hour)),
        ([context, 0, 10_000, 0], (Code::OutOfRange, 2, 10_000)),
        ([context, 10_001, 10_000, 0], (Code::OutOfRange, 2, 10_000)),
    ] {
        t.refused(World::CONTROL, label::SET_CONTEXT, words, why);
    }
    t.refused(t.context, label::YIELD_TO, [0; 4], (Code::BadState, 0, 0));
    t.refused(t.context, label::SERVE, [thread, 0, 0, 0], (Code::WrongKind, 1, 3));
    t.refused(t.context, label::BIND, [0; 4], (Code::NoCapability, 1, 0));
    t.refused(t.context, label::BIND, [context, 0, 0, 0], (Code::WrongKind, 1, 10));
    t.refused(t.bound, label::BIND, [thread, 0, 0, 0], (Code::Occupied, 0, 0));
    t.refused(t.context, label::BIND, [thread, 3, 0, 0], (Code::OutOfRange, 2, 2));
    t.world.does(t.context, label::BIND, [thread, 0, 0, 0]);
    let other = t.world.make(Kind::Context, 9);
    t.refused(other, label::BIND, [thread, 0, 0, 0], (Code::Occupied, 1, 0));
    // It does not call by itself.
    t.refused(other, label::BIND, [thread, 2, 0, 0], (Code::Occupied, 1, 0));
    let notification = u64::from(t.notification);
    t.refused(other, label::BIND, [notification, 1, 0, 0], (Code::OutOfRange, 2, 0));
    t.world.does(other, label::BIND, [notification, 0, 0, 0]);
    let third = t.world.make(Kind::Context, 9);
    t.refused(third, label::BIND, [notification, 0, 0, 0], (Code::Occupied, 1, 0));
    t.refused(other, label::BIND, [thread, 0, 0, 0], (Code::Occupied, 0, 0));
}

/// With a cost of each activation, which a budget has to be above.
#[test]
fn budgets_of_each_policy_say_what_is_wrong() {
    let mut t = Things::new();
    t.world.core.cost = 500;
    let context = |policy: Policy| u64::from(t.context) | (policy as u64) << 32;
    let [sporadic, strict] = [Policy::Sporadic, Policy::Strict].map(context);
    let [pibs, full] = [Policy::Pibs, Policy::Full].map(context);
    let period = 20_000;
    let wrong = (Code::OutOfRange, 2, period);
    // First of one that has none yet, then of one that has some.
    for good in [1, 501] {
        for server in [sporadic, strict] {
            for budget in [0, 500, period + 1, u64::MAX] {
                let words = [server, budget, period, 0];
                t.refused(World::CONTROL, label::SET_CONTEXT, words, wrong);
            }
            if good == 501 {
                t.world.does(World::CONTROL, label::SET_CONTEXT, [server, good, period, 0]);
            }
        }
        // 500 of 20,000 are 25,000 millionths.
        for share in [0, 25_000, 1_000_001, 1 << 32, u64::MAX] {
            t.refused(World::CONTROL, label::SET_CONTEXT, [pibs, share, period, 0], wrong);
        }
    }
    // The rest of the period needs no budget.
    t.world.does(World::CONTROL, label::SET_CONTEXT, [full, u64::MAX, period, 0]);
    t.world.does(World::CONTROL, label::SET_CONTEXT, [pibs, 30_000, period, 0]);
    // Half of the period would not be above the cost.
    let [requester, other] =
        [period / 2, period].map(|period| t.world.context(Policy::Sporadic, 1_000, period));
    let why = (Code::OutOfRange, 1, 0);
    t.refused(t.context, label::SERVE, [requester.into(), 0, 0, 0], why);
    t.world.does(t.context, label::SERVE, [other.into(), 0, 0, 0]);
}

#[test]
fn registers_of_devices_and_interrupts_say_what_is_wrong() {
    let mut t = Things::new();
    for (method, words, why) in [
        (label::IN, [0x5F, 1, 0, 0], (Code::OutOfRange, 1, 0x6F)),
        (label::IN, [u64::MAX, 2, 0, 0], (Code::OutOfRange, 1, 0x6F)),
        (label::OUT, [0x70, 1, 0, 0], (Code::OutOfRange, 1, 0x6F)),
        (label::OUT, [0x60, 1, 0x1000, 0], (Code::OutOfRange, 3, 0xFFF)),
        (label::PRINT, [0x60, 1, 0, 0], (Code::NoCall, 0, 0)),
    ] {
        t.refused(World::PORTS, method, words, why);
    }
    assert_eq!(t.world.machine.reached, []);
    t.world.does(World::PORTS, label::OUT, [0x6C, 9, 0xFFF, 0]);
    assert_eq!(t.world.does(World::PORTS, label::IN, [0x6F, 1, 0, 0])[0], 1);
    assert_eq!(t.world.machine.reached, [OddAccess(0x6C, Some(0xFFF)), OddAccess(0x6F, None)]);
    let weak = t.world.copy(t.notification, Rights::READ, 0);
    let set = label::SET_NOTIFICATION;
    t.refused(World::INTERRUPT, set, [weak.into(), 0, 0, 0], (Code::NoRight, 1, 2));
    t.refused(World::INTERRUPT, set, [t.reply.into(), 0, 0, 0], (Code::WrongKind, 1, 9));
}

/// A call with some operation, and its result.
type Wrong = (Op, [Address; 3], (Code, u8, u64));

#[test]
fn calls_say_what_is_wrong() {
    for fast in [true, false] {
        let mut t = Things::new();
        t.world.fast = fast;
        let thread = t.world.thread(20);
        let (e, n, r, weak, empty) = (t.endpoint, t.notification, t.reply, t.weak, t.empty);
        let [read, write, call] =
            [Rights::READ, Rights::WRITE, Rights::CALL].map(|right| u64::from(right.0));
        let wrong: [Wrong; 20] = [
            (Op::Call, [empty, 0, 0], (Code::NoCapability, 0, empty.into())),
            (Op::Call, [0xFFFF_FFFF, 0, 0], (Code::NoCapability, 0, 0xFFFF_FFFF)),
            (Op::Call, [0, 0, 0], (Code::NoCapability, 0, 0)),
            (Op::Call, [weak, 0, 0], (Code::NoRight, 0, call)),
            (Op::Call, [n, 0, 0], (Code::NoCall, 0, 0)),
            (Op::Send, [weak, 0, 0], (Code::NoRight, 0, write)),
            (Op::Send, [r, 0, 0], (Code::WrongKind, 0, Kind::Reply as u64)),
            (Op::NbSend, [empty, 0, 0], (Code::NoCapability, 0, empty.into())),
            (Op::NbSend, [e, 0, 0], (Code::WouldBlock, 0, 0)),
            (Op::Recv, [weak, 0, r], (Code::NoRight, 0, read)),
            (Op::Recv, [r, 0, r], (Code::WrongKind, 0, Kind::Reply as u64)),
            (Op::Recv, [e, 0, 0], (Code::NoCapability, 2, 0)),
            (Op::Recv, [e, 0, e], (Code::WrongKind, 2, Kind::Endpoint as u64)),
            (Op::Recv, [e, 0, r], (Code::TimedOut, 0, 0)),
            (Op::Wait, [n, 0, 0], (Code::TimedOut, 0, 0)),
            (Op::Reply, [0, 0, r], (Code::BadState, 0, 0)),
            (Op::ReplyRecv, [e, 0, r], (Code::BadState, 2, 0)),
            (Op::ReplyRecv, [n, 0, 0], (Code::NoCapability, 2, 0)),
            (Op::NbSendWait, [n, empty, 0], (Code::NoCapability, 0, empty.into())),
            (Op::NbSendRecv, [e, weak, r], (Code::NoRight, 0, write)),
        ];
        for (op, [first, second, reply], (code, argument, detail)) in wrong {
            let before = t.world.image();
            let named = u64::from(first) | u64::from(second) << 32;
            t.world.syscall(thread, op as u64 | u64::from(reply) << 32, named, 0, [9; 4]);
            let came = t.world.came(thread);
            let what = (op, first, second, reply);
            assert_eq!(came.status, Status::new(code, argument, detail), "{what:?}");
            assert_eq!((came.badge, came.info.0, came.words), (0, 0, [9; 4]), "{what:?}");
            // But for the registers, in front of the thread.
            let (at, after) = (thread.at.at() as usize, t.world.image());
            let end = at + size_of::<Registers>();
            assert!(before[..at] == after[..at] && before[end..] == after[end..]);
        }
        t.world.syscall(thread, 200, 0, 0, [0; 4]);
        assert_eq!(t.world.came(thread).status, Status::new(Code::NoCall, 0, 0));
    }
}

#[test]
fn no_more_contexts_than_there_is_room_for() {
    let mut t = Things::new();
    let left = 512 - t.world.core.scheduler.reserved();
    let node = t.world.make(Kind::Node, 10);
    let what = Kind::Context as u64 | 9 << 8 | 256 << 16;
    for first in [1, 257, 513] {
        t.world.does(World::UNTYPED, label::RETYPE, [what, node.into(), first, 0]);
    }
    let context = |n: u64| u64::from(node) << 16 | n;
    for n in 1..=left {
        t.world.does(World::CONTROL, label::SET_CONTEXT, [context(n), 1_000, 10_000, 0]);
    }
    let words = [context(left + 1), 1_000, 10_000, 0];
    t.refused(World::CONTROL, label::SET_CONTEXT, words, (Code::TooManyContexts, 1, 512));
    t.world.does(node, label::DELETE, [7, 0, 0, 0]);
    t.world.does(World::CONTROL, label::SET_CONTEXT, words);
}
