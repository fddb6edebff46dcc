//! Cost of reading and writing a mailbox of 256 bytes beyond copying them. It takes one thread, in cycles of the
//! time-stamp counter, so that the other end's cache misses are not in it.

use crate::quantile;
use bulkhead_channel::mailbox::{Reader, Writer};
use bulkhead_channel_memory::Mapping;
use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::hint::black_box;
use std::ptr::NonNull;

/// Operations in a turn.
const TURN: u32 = 200;

fn now() -> u64 {
    // SAFETY: every x86-64 processor has both.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// Cycles of one, in a turn.
fn turn(mut operation: impl FnMut(u32)) -> f64 {
    let begun = now();
    (0..TURN).for_each(&mut operation);
    (now() - begun) as f64 / f64::from(TURN)
}

fn region(bytes: usize) -> Mapping<'static> {
    let words = vec![0u64; bytes.div_ceil(8) + 512].leak();
    let skip = words.as_ptr().align_offset(4096);
    let base = NonNull::from(&mut words[skip..]).cast();
    // SAFETY: leaked, so it lasts; no other pointer to it exists; all of it is writable.
    unsafe { Mapping::new(base, bytes) }.expect("aligned")
}

/// Prints the figures.
pub fn measure(rounds: u32) {
    let (tx, rx) = (region(512 + 1024), region(512));
    let mut writer = Writer::open(&tx, &rx, 256).expect("fits");
    let mut reader = Reader::open(&rx, &tx, 256).expect("fits");
    // As it is in each: a byte written before it is copied by vector registers would be waited for.
    let (state, mut got) = ([1u8; 256], [0u8; 256]);
    // As many slots to copy to as the mailbox has.
    let mut slots = [[0u8; 256]; 4];
    writer.write(&state).expect("fits");
    let mut all = [const { Vec::new() }; 5];
    for _ in 0..rounds {
        let cycles = [
            turn(|n| slots[n as usize & 3] = *black_box(&state)),
            turn(|_| writer.write(black_box(&state)).expect("fits")),
            turn(|_| {
                black_box(reader.read(black_box(&mut got))).expect("there is one");
            }),
            turn(|n| {
                slots[n as usize & 3] = *black_box(&state);
                got = *black_box(&slots[n as usize & 3]);
                black_box(&mut got);
            }),
            // Each read finds a state that it has not seen, in the other pair.
            turn(|_| {
                writer.write(black_box(&state)).expect("fits");
                black_box(reader.read(black_box(&mut got))).expect("there is one");
            }),
        ];
        for (all, cycles) in all.iter_mut().zip(cycles) {
            all.push(cycles);
        }
    }
    let [copy, write, same, copies, both] = &all;
    let print = |what: &str, ours: &[f64], than: &[f64], name: &str| {
        let more: Vec<_> = ours.iter().zip(than).map(|(a, b)| a - b).collect();
        println!(
            "channel.mailbox_256_{what} cycles {:.1} {:.1} {:.1} {name}",
            quantile(ours, 0.5),
            quantile(than, 0.5),
            quantile(&more, 0.25)
        );
    };
    print("write", write, copy, "memcpy");
    print("read", same, copy, "memcpy");
    print("both", both, copies, "memcpy, twice");
}
