//! Rings against a list, with any capacity, size and mixture of calls. Indices begin just
//! below the wrap, so every case of some length crosses it.

use bulkhead_channel::host::Region;
use bulkhead_channel::layout::{DATA, FIRST, HELLO, INDEX, Shape};
use bulkhead_channel::{BLOCK, Stop, mailbox, queue, records};
use proptest::prelude::*;
use std::collections::VecDeque;

type Queue = (queue::Sender<Region>, queue::Receiver<Region>, [Region; 2]);

fn queue(slots: u32, size: u32) -> Queue {
    let shape = Shape::Queue { slots, size };
    let (tx, rx) = (Region::new(shape.tx_bytes().expect("a shape")), Region::new(shape.rx_bytes()));
    let mut sender = queue::Sender::open(&tx, &rx, slots, size).expect("fits");
    let mut receiver = queue::Receiver::open(&rx, &tx, slots, size).expect("fits");
    while sender.attend().is_err() | receiver.attend().is_err() {}
    (sender, receiver, [tx, rx])
}

fn records(bytes: u32) -> (records::Sender<Region>, records::Receiver<Region>) {
    let (tx, rx) = (Region::new(DATA + bytes as usize), Region::new(DATA));
    let mut sender = records::Sender::open(&tx, &rx, bytes).expect("fits");
    let mut receiver = records::Receiver::open(&rx, &tx, bytes).expect("fits");
    while sender.attend().is_err() | receiver.attend().is_err() {}
    (sender, receiver)
}

/// Bytes that tell a message from others.
fn message(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (n * 31 + at * 7 + 1) as u8).collect()
}

/// A message has its whole blocks, wherever it lies, and they do not reach beyond it.
#[test]
fn blocks_of_a_message() {
    let (mut sender, mut receiver, _) = queue(3, 200);
    for message in 1..8 {
        let room = sender.reserve(1).expect("room");
        let slot = room.slot(0).expect("one");
        slot.fill(|n| [message * 10 + n as u64; BLOCK]);
        slot.set_word(192, message);
        room.give(1);
        let there = receiver.peek(1).expect("a message");
        let slot = there.slot(0).expect("one");
        let blocks: Vec<_> = slot.blocks().collect();
        assert_eq!(blocks, [0, 1, 2].map(|n| [message * 10 + n; BLOCK]));
        assert_eq!([slot.word(64), slot.word(192)], [message * 10 + 1, message]);
        there.give(1);
    }
    let (mut sender, ..) = queue(3, 56);
    let room = sender.reserve(1).expect("room");
    let slot = room.slot(0).expect("one");
    slot.fill(|_| panic!("it has none"));
    assert_eq!(slot.blocks().count(), 0);
}

proptest! {
    #[test]
    fn a_queue_is_a_bounded_list(
        slots in 1u32..20,
        size in 1u32..40,
        calls in prop::collection::vec((0u8..4, 0u32..8, 0u32..8), 1..300),
    ) {
        let (mut sender, mut receiver, _) = queue(slots, size);
        let (mut list, mut n) = (VecDeque::new(), 0);
        let size = size as usize;
        for (call, want, give) in calls {
            match call {
                0 => {
                    let sent = sender.send(&message(n, size));
                    let full = list.len() == slots as usize;
                    prop_assert_eq!(sent, if full { Err(Stop::Wait) } else { Ok(()) });
                    if sent.is_ok() {
                        list.push_back(message(n, size));
                        n += 1;
                    }
                }
                1 => {
                    let mut got = vec![0; size];
                    let received = receiver.receive(&mut got);
                    let expected = list.pop_front();
                    prop_assert_eq!(received.ok().map(|()| got), expected);
                }
                2 => if let Ok(room) = sender.reserve(want) {
                    prop_assert!(room.len() <= want && room.len() as usize + list.len() <= slots as usize);
                    for (i, slot) in room.slots().enumerate() {
                        prop_assert!(slot.write(0, &message(n + i, size)));
                    }
                    let given = give.min(room.len()) as usize;
                    room.give(give);
                    list.extend((n..n + given).map(|n| message(n, size)));
                    n += given;
                } else {
                    prop_assert_eq!(list.len(), slots as usize);
                },
                _ => if let Ok(there) = receiver.peek(want) {
                    prop_assert!(there.len() <= want && there.len() as usize <= list.len());
                    for (i, expected) in list.iter().take(there.len() as usize).enumerate() {
                        let mut got = vec![0; size];
                        prop_assert!(there.slot(i as u32).expect("below").read(0, &mut got));
                        prop_assert_eq!(&got, expected);
                    }
                    prop_assert!(there.slot(there.len()).is_none());
                    let given = give.min(there.len()) as usize;
                    there.give(give);
                    list.drain(..given);
                } else {
                    prop_assert!(list.is_empty());
                },
            }
        }
    }

    #[test]
    fn records_are_a_list_bounded_by_bytes(
        words in 4u32..40,
        calls in prop::collection::vec((any::<bool>(), 0usize..200), 1..300),
    ) {
        let (mut sender, mut receiver) = records(8 * words);
        let (mut list, mut n) = (VecDeque::new(), 0);
        let longest = records::longest(8 * words) as usize;
        for (send, len) in calls {
            if send {
                match sender.send(&message(n, len)) {
                    Ok(()) => list.push_back(message(n, len)),
                    Err(Stop::Size) => prop_assert!(len > longest),
                    Err(stop) => prop_assert!(stop == Stop::Wait && !list.is_empty()),
                }
                n += 1;
            } else {
                let mut got = vec![0; len];
                match receiver.receive(&mut got) {
                    Ok(bytes) => {
                        got.truncate(bytes);
                        prop_assert_eq!(Some(got), list.pop_front());
                    }
                    Err(Stop::Size) => prop_assert!(list.front().is_some_and(|m| m.len() > len)),
                    Err(stop) => prop_assert!(stop == Stop::Wait && list.is_empty()),
                }
            }
        }
    }

    #[test]
    fn a_mailbox_has_the_newest_state(size in 1u32..80, writes in prop::collection::vec(any::<bool>(), 1..100)) {
        let (tx, rx) = (Region::new(Shape::Mailbox { size }.tx_bytes().expect("a shape")), Region::new(DATA));
        let mut writer = mailbox::Writer::open(&tx, &rx, size).expect("fits");
        let mut reader = mailbox::Reader::open(&rx, &tx, size).expect("fits");
        let (mut newest, mut seen) = (None, None);
        for (n, write) in writes.into_iter().enumerate() {
            let mut got = vec![0; size as usize];
            if write {
                prop_assert_eq!(writer.write(&message(n, size as usize)), Ok(()));
                newest = Some(n);
                continue;
            }
            let read = reader.read(&mut got);
            prop_assert_eq!(read, newest.map_or(Err(Stop::Wait), |_| Ok(seen != newest)));
            prop_assert!(newest.is_none_or(|n| got == message(n, size as usize)));
            prop_assert_eq!(reader.read_newer(&mut got), Err(Stop::Wait));
            seen = newest;
        }
        prop_assert!(newest.is_none() || seen.is_none() || writer.heard());
    }
}

#[test]
fn indices_cross_the_wrap() {
    let (mut sender, mut receiver, [tx, rx]) = queue(7, 8);
    let index = |region: &Region| region.look(INDEX / 8) as u32;
    assert_eq!((index(&tx), index(&rx)), (FIRST, FIRST));
    for n in 0..1000u64 {
        sender.send(&n.to_le_bytes()).expect("there is room");
        let mut got = [0; 8];
        receiver.receive(&mut got).expect("there is one");
        assert_eq!(u64::from_le_bytes(got), n);
    }
    assert_eq!((index(&tx), index(&rx)), (1000 - 256, 1000 - 256));
}

#[test]
fn a_longest_record_always_finds_room_in_an_empty_ring() {
    for words in 4..30 {
        let (mut sender, mut receiver) = records(8 * words);
        let longest = message(1, records::longest(8 * words) as usize);
        let mut got = vec![0; longest.len()];
        for step in 0..3 * words {
            // From every place of the ring.
            for bytes in [&longest[..], &longest[..step as usize % 8 + 1]] {
                let bytes = &bytes[..bytes.len().min(longest.len())];
                assert_eq!(sender.send(bytes), Ok(()));
                assert_eq!(receiver.receive(&mut got), Ok(bytes.len()));
            }
        }
    }
}

#[test]
fn what_was_sent_before_closing_is_read_and_then_the_news() {
    let (mut sender, mut receiver, regions) = queue(4, 8);
    sender.send(&[1; 8]).expect("there is room");
    sender.close();
    assert_eq!(sender.send(&[2; 8]), Err(Stop::Closed));
    let mut got = [0; 8];
    assert_eq!((receiver.receive(&mut got), got), (Ok(()), [1; 8]));
    assert_eq!(receiver.receive(&mut got), Err(Stop::Left));
    assert_eq!(receiver.receive(&mut got), Err(Stop::Apart));
    sender.reset();
    while sender.attend().is_err() | receiver.attend().is_err() {}
    sender.send(&[3; 8]).expect("there is room");
    assert_eq!((receiver.receive(&mut got), got), (Ok(()), [3; 8]));
    // An end that has died is buried, and told like one that closed.
    bulkhead_channel::page::bury(&regions[1]);
    for _ in 0..4 {
        assert_eq!(sender.send(&[4; 8]), Ok(()));
    }
    assert_eq!(sender.send(&[5; 8]), Err(Stop::Left));
}

#[test]
fn a_channel_of_another_kind_or_size_is_foreign() {
    let (tx, rx) = (Region::new(4096), Region::new(DATA));
    let mut sender = queue::Sender::open(&tx, &rx, 4, 16).expect("fits");
    for (slots, size) in [(4, 24), (8, 16)] {
        let mut receiver = queue::Receiver::open(&rx, &tx, slots, size).expect("fits");
        assert_eq!(receiver.attend(), Err(Stop::Foreign));
        assert_eq!(sender.attend(), Err(Stop::Foreign));
    }
    let mut receiver = records::Receiver::open(&rx, &tx, 64).expect("fits");
    assert_eq!(receiver.attend(), Err(Stop::Foreign));
    let mut reader = mailbox::Reader::open(&rx, &tx, 16).expect("fits");
    assert_eq!(reader.read(&mut [0; 16]), Err(Stop::Foreign));
    assert!(queue::Sender::open(&rx, &tx, 4, 16).is_err());
}

#[test]
fn a_restarted_writer_is_told_and_its_old_state_is_gone() {
    let (tx, rx) = (Region::new(DATA + 256), Region::new(DATA));
    let mut writer = mailbox::Writer::open(&tx, &rx, 8).expect("fits");
    let mut reader = mailbox::Reader::open(&rx, &tx, 8).expect("fits");
    let mut got = [0; 8];
    writer.write(&[1; 8]).expect("fits");
    assert_eq!((reader.read(&mut got), got), (Ok(true), [1; 8]));
    let mut writer = mailbox::Writer::open(&tx, &rx, 8).expect("fits");
    assert!(!writer.heard());
    assert_eq!(reader.read(&mut got), Err(Stop::Lost));
    assert_eq!(reader.read(&mut got), Err(Stop::Wait));
    assert!(writer.heard());
    writer.write(&[2; 8]).expect("fits");
    assert_eq!((reader.read(&mut got), got), (Ok(true), [2; 8]));
    // A reader that begins anew has the newest state at once.
    let mut reader = mailbox::Reader::open(&rx, &tx, 8).expect("fits");
    assert_eq!((reader.read(&mut [0; 8]), got), (Ok(true), [2; 8]));
    assert_eq!(reader.read_newer(&mut got), Err(Stop::Wait));
    writer.close();
    assert_eq!(reader.read_newer(&mut got), Err(Stop::Left));
}

#[test]
fn a_record_that_cannot_be_is_told_once() {
    const RECORD: u64 = 0x4843_454D << 32 | 24;
    // Longer than announced; and longer than the rest of the ring.
    for (sent, announced) in [(0, 16), (2, 32)] {
        let (tx, rx) = (Region::new(DATA + 64), Region::new(DATA));
        let mut sender = records::Sender::open(&tx, &rx, 64).expect("fits");
        let mut receiver = records::Receiver::open(&rx, &tx, 64).expect("fits");
        while sender.attend().is_err() | receiver.attend().is_err() {}
        let mut got = [0; 24];
        for _ in 0..sent {
            assert_eq!(sender.send(&[1; 16]), Ok(()));
            assert_eq!(receiver.receive(&mut got), Ok(16));
        }
        tx.poke(DATA / 8 + 3 * sent, RECORD);
        tx.poke(INDEX / 8, tx.look(INDEX / 8) + announced);
        assert_eq!(receiver.receive(&mut got), Err(Stop::Corrupted));
        assert_eq!(receiver.receive(&mut got), Err(Stop::Closed));
    }
}

/// A monitor's write for a guest that has ended equals that of [`page::bury`], and asks for no interrupt.
#[test]
fn a_monitor_buries_as_the_protocol_says() {
    use bulkhead_channel::page::{Hello, Phase, bury};
    use std::sync::atomic::AtomicU64;
    for phase in [Phase::Absent, Phase::Open, Phase::Closed] {
        let said = Hello { phase, epoch: 7, seen: 9 }.word();
        for armed in [7 << 32 | 4, 7 << 32 | 5] {
            let region = Region::new(512);
            region.poke(HELLO / 8, said);
            assert!(bury(&region));
            let words = [AtomicU64::new(said), AtomicU64::new(armed)];
            bulkhead_monitor_abi::bell::bury(&words[0], &words[1]);
            let [hello, word] = words.map(AtomicU64::into_inner);
            assert_eq!(hello, region.look(HELLO / 8));
            assert!(word & 1 == 0 && (armed..=armed + 1).contains(&word));
        }
    }
}

/// A receiver of single messages compares epoch and position by one subtraction.
#[test]
fn an_index_is_believed_only_of_the_epoch_joined_and_within_the_ring() {
    let cases = [
        (0, 0, Err(Stop::Wait)),
        (0, 1, Ok(())),
        (0, 4, Ok(())),
        (0, 5, Err(Stop::Corrupted)),
        (0, -1, Err(Stop::Corrupted)),
        (1, 0, Err(Stop::Lost)),
        (1, 1, Err(Stop::Lost)),
        (-1, 1, Err(Stop::Lost)),
    ];
    for (epochs, ahead, expected) in cases {
        // The last of them also where the index wraps.
        for sent in [0, 255, 256] {
            let (mut sender, mut receiver, [tx, _]) = queue(4, 8);
            for _ in 0..sent {
                assert_eq!((sender.send(&[1; 8]), receiver.receive(&mut [0; 8])), (Ok(()), Ok(())));
            }
            let index = tx.look(INDEX / 8);
            let epoch = ((index >> 32) as u32).wrapping_add_signed(epochs);
            let position = (index as u32).wrapping_add_signed(ahead);
            tx.poke(INDEX / 8, u64::from(epoch) << 32 | u64::from(position));
            let told = receiver.receive(&mut [0; 8]);
            assert_eq!(told, expected, "{epochs} epochs on, {ahead} ahead, after {sent}");
        }
    }
}

/// And without a session nothing is, whatever stands there.
#[test]
fn before_a_session_no_index_is_believed() {
    for hello in [0, u64::MAX] {
        for position in [0, 1, FIRST.wrapping_sub(1), FIRST, FIRST.wrapping_add(1)] {
            let (tx, rx) = (Region::new(DATA + 32), Region::new(DATA));
            let mut receiver = queue::Receiver::open(&rx, &tx, 4, 8).expect("fits");
            tx.poke(HELLO / 8, hello);
            tx.poke(INDEX / 8, position.into());
            assert_eq!(receiver.receive(&mut [0; 8]), Err(Stop::Apart), "{hello:x} {position:x}");
            receiver.close();
            assert_eq!(receiver.receive(&mut [0; 8]), Err(Stop::Closed));
        }
    }
}

/// A receiver that looks in vain is told when the peer leaves, although its index stays.
#[test]
fn who_looks_in_vain_is_told_that_the_peer_has_left() {
    let (mut sender, mut receiver, _) = queue(4, 8);
    for _ in 0..3 {
        assert_eq!(receiver.receive(&mut [0; 8]), Err(Stop::Wait));
    }
    sender.close();
    assert_eq!(receiver.receive(&mut [0; 8]), Err(Stop::Left));
}
