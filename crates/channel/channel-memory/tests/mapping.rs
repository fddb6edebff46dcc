//! The mapping against memory of the host, and the ends on it with two threads.

use bulkhead_channel::layout::Shape;
use bulkhead_channel::{BLOCK, Bytes, Memory, Stop, Word, mailbox, queue, records};
use bulkhead_channel_memory::Mapping;
use std::ptr::NonNull;
use std::thread::yield_now;

/// Memory for a region, given back at the end of the test process.
fn region(bytes: usize) -> Mapping<'static> {
    let words: &'static mut [u64] = vec![0u64; bytes.div_ceil(8)].leak();
    let base = NonNull::from(words).cast();
    // SAFETY: leaked, so it lasts; no other pointer to it exists; all of it is writable.
    unsafe { Mapping::new(base, bytes) }.expect("aligned")
}

#[test]
fn copies_of_every_length_and_place() {
    let lengths =
        if cfg!(miri) { vec![0, 1, 7, 8, 65] } else { (0..140).chain(1020..1030).collect() };
    for len in lengths {
        for at in 0..9 {
            let run = region(1200).bytes(8, 1100).expect("inside");
            let from: Vec<u8> = (0..len).map(|n| (n * 7 + at) as u8 | 1).collect();
            assert!(run.write(at, &from));
            let (mut all, mut back) = (vec![0; 1100], vec![0; len]);
            assert!(run.read(at, &mut back) && run.read(0, &mut all));
            assert_eq!(back, from);
            let around = all[..at].iter().chain(&all[at + len..]);
            assert!(around.copied().all(|byte| byte == 0), "{len} at {at}");
        }
    }
}

#[test]
fn nothing_outside_is_touched() {
    let mapping = region(64);
    assert!(mapping.word(64).is_none() && mapping.word(4).is_none());
    assert!(mapping.bytes(8, 57).is_none() && mapping.bytes(8, usize::MAX).is_none());
    let run = mapping.bytes(8, 16).expect("inside");
    assert!(!run.write(9, &[1; 8]) && !run.read(usize::MAX, &mut [0; 8]));
    run.set_word(16, 5);
    run.set_word(4, 5);
    assert_eq!((run.word(16), run.word(4), run.word(usize::MAX)), (0, 0, 0));
    for at in (0..64).step_by(8) {
        assert_eq!(mapping.word(at).expect("inside").relaxed(), 0);
    }
    run.set_word(8, 7);
    assert_eq!((run.word(8), mapping.word(16).expect("inside").acquire()), (7, 7));
    mapping.word(16).expect("inside").fenced(9);
    mapping.fence();
    assert_eq!(run.word(8), 9);
}

const MESSAGES: u64 = if cfg!(miri) { 50 } else { 20_000 };

/// A message is its number, over and over.
fn check(words: &[u8], n: u64) {
    assert!(words.chunks(8).all(|w| w == n.to_le_bytes()), "message {n}");
}

#[test]
fn blocks_are_whole_and_inside() {
    const BLOCK_BYTES: usize = 8 * BLOCK;
    let run = region(4096).bytes(64, 4 * BLOCK_BYTES + 8).expect("inside");
    run.fill(8, 3, |n| core::array::from_fn(|word| (100 * n + word) as u64));
    let words = |at: usize| (0..24).map(move |n| (at + 8 * n, (100 * (n / 8) + n % 8) as u64));
    for (at, word) in words(8) {
        assert_eq!(run.word(at), word, "{at}");
    }
    assert_eq!([run.word(0), run.word(8 + 3 * BLOCK_BYTES)], [0, 0], "nothing beside them");
    let read: Vec<[u64; BLOCK]> = run.blocks(8, 3).collect();
    assert_eq!(read.concat(), words(8).map(|(_, word)| word).collect::<Vec<_>>());
    let outside = [(16, 4), (8 + BLOCK_BYTES, 4), (usize::MAX, 1), (8, usize::MAX), (0, 5)];
    for (at, count) in outside {
        assert_eq!(run.blocks(at, count).count(), 0, "{at} {count}");
        run.fill(at, count, |_| panic!("{at} {count}"));
    }
    assert_eq!((run.blocks(8, 4).count(), run.blocks(usize::MAX, 0).count()), (4, 0));
}

#[test]
fn two_threads_and_a_queue() {
    let (tx, rx) =
        (region(Shape::Queue { slots: 5, size: 72 }.tx_bytes().expect("a shape")), region(512));
    let mut sender = queue::Sender::open(&tx, &rx, 5, 72).expect("fits");
    let mut receiver = queue::Receiver::open(&rx, &tx, 5, 72).expect("fits");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..MESSAGES {
                while sender.send(&n.to_le_bytes().repeat(9)).is_err() {
                    yield_now();
                }
            }
        });
        let mut got = [0; 72];
        for n in 0..MESSAGES {
            while receiver.receive(&mut got).is_err() {
                yield_now();
            }
            check(&got, n);
        }
    });
}

#[test]
fn two_threads_and_records() {
    let (tx, rx) = (region(512 + 328), region(512));
    let mut sender = records::Sender::open(&tx, &rx, 328).expect("fits");
    let mut receiver = records::Receiver::open(&rx, &tx, 328).expect("fits");
    let len = |n: u64| (n % 19) as usize;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..MESSAGES {
                while sender.send(&n.to_le_bytes().repeat(len(n))).is_err() {
                    yield_now();
                }
            }
        });
        let mut got = [0; 160];
        for n in 0..MESSAGES {
            let bytes = loop {
                match receiver.receive(&mut got) {
                    Ok(bytes) => break bytes,
                    Err(_) => yield_now(),
                }
            };
            assert_eq!(bytes, 8 * len(n));
            check(&got[..bytes], n);
        }
    });
}

#[test]
fn two_threads_and_a_mailbox() {
    let (tx, rx) = (region(512 + 4 * 256), region(512));
    let mut writer = mailbox::Writer::open(&tx, &rx, 256).expect("fits");
    let mut reader = mailbox::Reader::open(&rx, &tx, 256).expect("fits");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 1..=MESSAGES {
                writer.write(&n.to_le_bytes().repeat(32)).expect("fits");
            }
        });
        let (mut got, mut last) = ([0; 256], 0);
        while last < MESSAGES {
            match reader.read(&mut got) {
                Ok(_) => {
                    let n = u64::from_le_bytes(*got.first_chunk().expect("eight"));
                    check(&got, n);
                    assert!(n >= last, "{n} after {last}");
                    last = n;
                }
                Err(stop) => assert!(matches!(stop, Stop::Wait | Stop::Apart), "{stop:?}"),
            }
            if cfg!(miri) {
                yield_now();
            }
        }
    });
}
