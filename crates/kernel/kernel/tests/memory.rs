//! Memory: the objects made of it, their mappings, and that nothing is left of an object that has ended.

use bulkhead_kernel_fake::kernel::abi::{Address, Code, Info, Kind, Rights, label};
use bulkhead_kernel_fake::kernel::{Cap, Machine as _, Mapping, PageTable, Ref, State, plant};
use bulkhead_kernel_fake::{Thread, World, both};

const R: u64 = 1;
const RW: u64 = 3;
const RX: u64 = 17;
const SPACE: u64 = World::SPACE as u64;

/// Tables for the first 2 MiB of a space.
fn tables(world: &mut World, space: u64) -> [Address; 3] {
    [2, 1, 0].map(|_| {
        let table = world.make(Kind::Table, 0);
        world.does(table, label::MAP_TABLE, [space, 0, 0, 0]);
        table
    })
}

/// A thread in the space, so that this is in use.
fn user(world: &mut World) -> Thread {
    let thread = world.thread(10);
    assert!(world.runs(thread));
    thread
}

#[test]
fn what_is_mapped_is_the_frame_with_no_more_rights_than_it_has() {
    both(|world| {
        user(world);
        tables(world, SPACE);
        for (address, rights, written, executed) in
            [(0x1000, R, false, false), (0x2000, RW, true, false), (0x3000, RX, false, true)]
        {
            let frame = world.make(Kind::Frame, 12);
            world.does(frame, label::MAP, [SPACE, address, rights, 0]);
            world.audit();
            let physical = world.does(frame, label::PHYSICAL, [0; 4])[0];
            let bulkhead_arch::Entry::Page(pa, has, _) = world.mapped()[&address] else { panic!() };
            assert_eq!((pa, has.write, has.execute), (physical, written, executed));
        }
        let frame = world.make(Kind::Frame, 12);
        let weak = world.copy(frame, Rights::READ, 0);
        world.does(weak, label::MAP, [SPACE, 0x4000, 31, 0]);
        let bulkhead_arch::Entry::Page(_, has, _) = world.mapped()[&0x4000] else { panic!() };
        assert!(!has.write && !has.execute);
    });
}

/// Entries of a fresh space's root that are not empty. Entry 0 is.
fn used(world: &mut World) -> Vec<usize> {
    let space = world.make(Kind::Space, 0);
    let root = Ref::<PageTable>::new(world.cap(space).object);
    let table = world.machine.get(root).0;
    (1..table.len()).filter(|n| table[*n] != table[0]).collect()
}

#[test]
fn a_space_reaches_the_kernel_by_one_entry_or_not_at_all() {
    let mut world = World::new();
    assert_eq!(used(&mut world), [300]);
    world.machine = world.machine.clone().with_own_root();
    assert_eq!(used(&mut world), []);
}

#[test]
fn a_frame_that_has_ended_is_in_no_table_and_not_remembered() {
    both(|world| {
        user(world);
        tables(world, SPACE);
        let frame = world.make(Kind::Frame, 12);
        let copies = [0x1000, 0x2000].map(|address| {
            let copy = world.copy(frame, Rights::ALL, 0);
            world.does(copy, label::MAP, [SPACE, address, R, 0]);
            copy
        });
        world.does(frame, label::MAP, [SPACE, 0x3000, RW, 0]);
        assert_eq!(world.mapped().len(), 3);
        world.does(copies[0], label::UNMAP, [0; 4]);
        assert_eq!(world.machine.forgotten, [0x1000]);
        world.delete(frame);
        assert!(world.mapped().is_empty());
        let mut forgotten = world.machine.forgotten.clone();
        forgotten.sort_unstable();
        assert_eq!(forgotten, [0x1000, 0x2000, 0x3000]);
    });
}

#[test]
fn a_mapping_does_not_outlive_its_table_or_its_space() {
    both(|world| {
        user(world);
        let [_, _, last] = tables(world, SPACE);
        let frame = world.make(Kind::Frame, 12);
        world.does(frame, label::MAP, [SPACE, 0x1000, RW, 0]);
        let entered = world.machine.entered;
        world.does(last, label::UNMAP_TABLE, [0; 4]);
        assert!(world.mapped().is_empty() && world.machine.entered > entered);
        // The frame's own note of its place is not true any more: it can be mapped again, elsewhere.
        world.does(last, label::MAP_TABLE, [SPACE, 0x1000, 0, 0]);
        assert!(world.mapped().is_empty(), "a table brings nothing along");
        world.does(frame, label::MAP, [SPACE, 0x2000, RW, 0]);
        world.delete(last);
        assert!(world.mapped().is_empty());
        world.audit();
        let space = world.make(Kind::Space, 0);
        tables(world, space.into());
        world.does(frame, label::MAP, [space.into(), 0x2000, RW, 0]);
        world.delete(space);
        world.audit();
        let frame_of = world.cap(frame);
        assert!(Mapping::unpack(frame_of.data).is_some(), "it still says so");
        world.delete(frame);
        world.audit();
    });
}

#[test]
fn a_stale_mapping_takes_nothing_from_who_came_there_since() {
    both(|world| {
        user(world);
        let [_, _, last] = tables(world, SPACE);
        let frames = [world.make(Kind::Frame, 12), world.make(Kind::Frame, 12)];
        world.does(frames[0], label::MAP, [SPACE, 0x1000, RW, 0]);
        world.does(last, label::UNMAP_TABLE, [0; 4]);
        world.does(last, label::MAP_TABLE, [SPACE, 0, 0, 0]);
        world.does(frames[1], label::MAP, [SPACE, 0x1000, RW, 0]);
        world.delete(frames[0]);
        assert_eq!(world.mapped().len(), 1);
        world.does(frames[1], label::UNMAP, [0; 4]);
        assert!(world.mapped().is_empty());
    });
}

#[test]
fn large_frames_and_devices_are_mapped_as_what_they_are() {
    let mut world = World::of(23);
    user(&mut world);
    let [_, _, last] = tables(&mut world, SPACE);
    world.does(last, label::UNMAP_TABLE, [0; 4]);
    let large = world.make(Kind::Frame, 21);
    world.does(large, label::MAP, [SPACE, 0, RW, 0]);
    world.audit();
    assert_eq!(world.machine.walk(world.cap(World::SPACE).object).len(), 3);
    world.does(large, label::UNMAP, [0; 4]);
    world.does(last, label::MAP_TABLE, [SPACE, 0, 0, 0]);
    // Device memory lies beyond the sandbox's, and never becomes a buffer or zero.
    let slot = world.free();
    let device =
        Cap { flags: Cap::ORIGINAL | Cap::DEVICE, ..Cap::original(Kind::Frame, 0xF_EB00, 12) };
    let at = world.slot(slot);
    plant(&mut world.machine, at, device);
    let copy = world.copy(slot, Rights::ALL, 0);
    world.does(copy, label::MAP, [SPACE, 0x5000, RW, 0]);
    let bulkhead_arch::Entry::Page(pa, ..) = world.mapped()[&0x5000] else { panic!() };
    assert_eq!(pa, 0xFEB0_0000);
    let thread = world.passive(1);
    let words = [World::NODE, World::SPACE, copy, 0].map(u64::from);
    let came = world.invoke(thread.cap, label::CONFIGURE, words).unwrap_err();
    assert_eq!((came.code(), came.argument()), (Some(Code::WrongKind), 3));
    world.delete(slot);
    assert!(world.mapped().is_empty());
    world.audit();
}

#[test]
fn memory_is_zero_when_it_becomes_something_and_used_again_when_all_has_gone() {
    both(|world| {
        let memory = world.make(Kind::Untyped, 16);
        let slots = [(); 4].map(|()| world.free());
        let frames = Kind::Frame as u64 | 12 << 8 | 4 << 16;
        let make = |world: &mut World| {
            let words = [frames, World::NODE.into(), slots[0].into(), 0];
            world.does(memory, label::RETYPE, words)[0] as usize
        };
        let at = make(world);
        world.machine.bytes_mut()[at..at + 4 * 4096].fill(0xAA);
        for slot in &slots[..3] {
            world.delete(*slot);
        }
        // One is left: free memory goes on behind it.
        let left = world.cap(slots[3]).object << 12;
        world.does(World::NODE, label::MOVE, [slots[0].into(), slots[3].into(), 0, 0]);
        world.delete(slots[0]);
        assert_eq!(make(world), at, "all had gone");
        assert!(world.machine.bytes()[at..at + 4 * 4096].iter().all(|byte| *byte == 0));
        assert_eq!(left as usize, at + 3 * 4096);
        world.delete(slots[1]);
        let what = Kind::Endpoint as u64 | 1 << 16;
        let words = [what, World::NODE.into(), slots[1].into(), 0];
        let next = world.does(memory, label::RETYPE, words)[0] as usize;
        assert_eq!(next, at + 4 * 4096);
    });
}

#[test]
fn a_large_object_takes_several_entries_and_others_come_in_between() {
    both(|world| {
        let (thread, other) = (world.thread(10), world.thread(20));
        let wakes = world.make(Kind::Notification, 0);
        world.wait(other, wakes, u64::MAX);
        let at = world.free();
        let words = [Kind::Node as u64 | 12 << 8 | 1 << 16, World::NODE.into(), at.into(), 0];
        world.call(thread, World::UNTYPED, label::RETYPE, words);
        assert!(world.cap(at).is(Kind::Null), "128 KiB are not zeroed in one entry");
        world.does(World::INTERRUPT, label::SET_NOTIFICATION, [wakes.into(), 0, 0, 0]);
        world.interrupt();
        assert!(world.runs(other));
        world.wait(other, wakes, u64::MAX);
        world.method(thread, World::UNTYPED, label::RETYPE, words).unwrap();
        assert!(world.cap(at).is(Kind::Node));
    });
}

/// A node with endpoints in all of its slots, each with copies.
fn forest(world: &mut World) -> Address {
    let node = world.make(Kind::Node, 5);
    let what = Kind::Endpoint as u64 | 15 << 16;
    world.does(World::UNTYPED, label::RETYPE, [what, node.into(), 1, 0]);
    for n in 1..16u64 {
        let from = u64::from(node) << 16 | n;
        world.does(node, label::COPY, [n + 15, from, 31, 0]);
    }
    node
}

#[test]
fn deletion_takes_steps_and_nobody_uses_what_is_going() {
    both(|world| {
        let thread = world.thread(10);
        let node = forest(world);
        let inside = node << 16 | 3;
        let original = world.cap(inside);
        let words = [node.into(), 0, 0, 0];
        world.call(thread, World::NODE, label::DELETE, words);
        assert!(!world.cap(node).is(Kind::Null), "not all of it in one entry");
        world.audit();
        // It can't be reached, filled, copied or used as a root any more.
        assert!(world.root().slot(&world.machine, inside.into(), 0).is_err());
        let copy = world.free();
        let words_of_copy = [copy.into(), node.into(), 31, 0];
        let came = world.invoke(World::NODE, label::COPY, words_of_copy);
        assert_eq!(came.unwrap_err().code(), Some(Code::BadState));
        let came = world.invoke(thread.cap, label::CONFIGURE, [node.into(), SPACE, 0, 0]);
        assert_eq!(came.unwrap_err().code(), Some(Code::BadState));
        let what = Kind::Reply as u64 | 1 << 16;
        let came = world.invoke(World::UNTYPED, label::RETYPE, [what, node.into(), 1, 0]);
        assert_eq!(came.unwrap_err().code(), Some(Code::BadState));
        world.method(thread, World::NODE, label::DELETE, words).unwrap();
        assert!(world.cap(node).is(Kind::Null));
        assert!(!world.machine.begins(original.object, Kind::Endpoint));
    });
}

#[test]
fn revocation_reaches_all_that_came_from_it_and_nothing_else() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let other = world.make(Kind::Endpoint, 0);
        let all: Vec<_> = (0..20).map(|n| world.copy(endpoint, Rights::ALL, n)).collect();
        let deeper: Vec<_> = all.iter().map(|from| world.copy(*from, Rights::READ, 0)).collect();
        let kept = world.copy(other, Rights::ALL, 0);
        let thread = world.passive(10);
        world.does(thread.cap, label::SET_FAULT, [all[3].into(), 0, 0, 0]);
        world.revoke(all[3]);
        assert!(world.cap(deeper[3]).is(Kind::Null) && world.cap(all[3]).is(Kind::Endpoint));
        assert!(
            world.machine.get(thread.at).slots[3].cap.is(Kind::Null),
            "what a thread keeps, too"
        );
        world.revoke(endpoint);
        for address in all.iter().chain(&deeper) {
            assert!(world.cap(*address).is(Kind::Null));
        }
        assert!(world.cap(endpoint).is(Kind::Endpoint) && world.cap(kept).is(Kind::Endpoint));
    });
}

#[test]
fn memory_in_nodes_in_nodes_ends_with_what_it_was_made_of() {
    both(|world| {
        let thread = world.thread(10);
        let mut memory = world.make(Kind::Untyped, 17);
        let top = memory;
        let mut depth = 0;
        // Memory in a node, both made of the memory before it.
        for bits in (10..17).rev() {
            let node = world.free();
            let what = Kind::Node as u64 | 2 << 8 | 1 << 16;
            world.does(memory, label::RETYPE, [what, World::NODE.into(), node.into(), 0]);
            let what = Kind::Untyped as u64 | bits << 8 | 1 << 16;
            world.does(memory, label::RETYPE, [what, node.into(), 1, 0]);
            memory = world.free();
            world.does(World::NODE, label::MOVE, [memory.into(), u64::from(node) << 16 | 1, 0, 0]);
            depth += 1;
        }
        world.audit();
        assert_eq!(depth, 7);
        world.method(thread, World::NODE, label::DELETE, [top.into(), 0, 0, 0]).unwrap();
        assert!(world.cap(memory).is(Kind::Null));
        let left = world.machine.objects().filter(|(_, kind)| *kind == Kind::Node).count();
        assert_eq!(left, 1);
    });
}

#[test]
fn a_thread_may_take_everything_from_itself() {
    type What = fn(&World, Thread) -> Address;
    let cases: [(What, State); 4] = [
        (|_, thread| thread.cap, State::Stopped),
        (|_, thread| thread.context, State::Running),
        (|_, _| World::SPACE, State::Stopped),
        (|_, _| World::UNTYPED, State::Stopped),
    ];
    for (n, (what, state)) in cases.into_iter().enumerate() {
        both(|world| {
            let (thread, idle) = (world.thread(20), world.passive(1));
            let address = what(world, thread);
            for _ in 0..64 {
                if !world.runs(thread) {
                    break;
                }
                world.call(thread, World::NODE, label::DELETE, [address.into(), 0, 0, 0]);
                world.audit();
            }
            assert!(world.core.current.is_none(), "case {n}, {idle:?}");
            if world.machine.begins(thread.at.at(), Kind::Thread) {
                assert_eq!(world.state(thread), state, "case {n}");
            }
        });
    }
}

#[test]
fn the_end_of_a_root_node_leaves_a_thread_that_can_name_nothing() {
    both(|world| {
        let thread = world.thread(20);
        let node = world.make(Kind::Node, 4);
        world.does(node, label::COPY, [1, node.into(), 31, 0]);
        world.does(node, label::COPY, [2, World::NODE.into(), 31, 0]);
        world.does(thread.cap, label::CONFIGURE, [node.into(), SPACE, 0, 0]);
        let words = [node.into(), 0, 0, 0];
        world.call(thread, 2, label::DELETE, words);
        world.audit();
        assert!(world.runs(thread));
        world.call(thread, 2, label::DELETE, words);
        assert_eq!(world.came(thread).status.code(), Some(Code::NoCapability));
    });
}

#[test]
fn capabilities_go_along_with_messages_where_that_is_granted() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let plain = world.copy(endpoint, Rights(0xF & !Rights::GRANT.0), 0);
        let frame = world.make(Kind::Frame, 12);
        let (server, reply) = world.server(50, endpoint);
        let client = world.thread(10);
        let places = [world.free(), world.free()];
        let (from, to) = (world.buffer(client), world.buffer(server));
        world.machine.get_mut(from).cap = frame.into();
        world.machine.get_mut(from).words[5] = 0x1234;
        world.machine.get_mut(to).receive = places[0].into();
        let info = Info::new(3, 10).with_cap().0;
        world.syscall(client, 0, plain.into(), info, [1; 4]);
        assert!(!world.came(server).info.has_cap() && world.cap(places[0]).is(Kind::Null));
        assert_eq!(world.machine.get(to).words[5], 0x1234);
        assert_eq!(world.came(server).info.words(), 10);
        world.reply_recv(server, endpoint, reply, 0, [0; 4]);
        world.syscall(client, 0, endpoint.into(), info, [1; 4]);
        assert!(world.came(server).info.has_cap() && world.cap(places[0]).is(Kind::Frame));
        world.reply_recv(server, endpoint, reply, 0, [0; 4]);
        // The place is taken: the message comes without.
        world.syscall(client, 0, endpoint.into(), info, [1; 4]);
        assert!(!world.came(server).info.has_cap());
        world.delete(frame);
        assert!(world.cap(places[0]).is(Kind::Null));
    });
}

#[test]
fn nobody_but_the_kernel_says_that_a_message_is_a_notification() {
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let (server, _) = world.server(50, endpoint);
        let client = world.thread(10);
        world.syscall(client, 0, endpoint.into(), Info::NOTIFIED.0 | 4, [1; 4]);
        assert!(world.runs(server));
        assert_eq!(world.came(server).info, Info::new(0, 4));
    });
}

/// A message that waits for its receiver was checked when it was sent.
#[test]
fn a_message_that_waits_outlives_the_capability_by_which_it_was_sent() {
    both(|world| {
        let (endpoint, reply) = (world.make(Kind::Endpoint, 0), world.make(Kind::Reply, 0));
        let badged = world.copy(endpoint, Rights::ALL, 0x77);
        let sender = world.thread(10);
        world.call(sender, badged, 7, [1, 2, 3, 4]);
        assert_eq!(world.state(sender), State::Sending);
        world.revoke(endpoint);
        world.audit();
        assert!(world.cap(badged).is(Kind::Null));
        let server = world.thread(20);
        world.recv(server, endpoint, reply, u64::MAX);
        let came = world.came(server);
        assert_eq!((came.badge, came.info.label()), (0x77, 7));
        world.reply(server, reply, 9, [0; 4]);
        assert_eq!(world.came(sender).info.label(), 9);
    });
    both(|world| {
        let endpoint = world.make(Kind::Endpoint, 0);
        let sender = world.thread(10);
        world.call(sender, endpoint, 7, [1, 2, 3, 4]);
        world.delete(endpoint);
        assert_eq!(world.came(sender).status.code(), Some(Code::Cancelled));
    });
}
