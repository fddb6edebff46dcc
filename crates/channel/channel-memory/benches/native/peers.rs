//! The candidates. A message is `W` words; word `n` of message `m` is a function of both, and the receiver adds them
//! all up. By copy the sender has them in a buffer of its own and the receiver reads them from its own; in place
//! neither has one.

use bulkhead_channel::BLOCK;
use bulkhead_channel::layout::Shape;
use bulkhead_channel::queue::Slot;
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::typed::{Pair, Receiver, Sender};
use ringbuf::traits::{Consumer, Producer, Split};
use std::hint::black_box;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Messages done before and still to do; how many it did, and their sum.
pub type Step = Box<Apart<dyn FnMut(u64, u64) -> (u64, u64) + Send>>;

/// Data of one thread, in pairs of cache lines that it does not share with the other thread.
#[repr(align(256))]
pub struct Apart<T: ?Sized>(pub T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Apart<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

fn step(does: impl FnMut(u64, u64) -> (u64, u64) + Send + 'static) -> Step {
    Box::new(Apart(does))
}

/// Sender and receiver.
pub type Duplex = (Step, Step);

/// Messages by one store, at most: a quarter of the ring.
fn batch(capacity: usize) -> u64 {
    capacity as u64 / 4
}

fn block(message: u64, at: usize) -> [u64; BLOCK] {
    std::array::from_fn(|n| message.wrapping_mul(3) ^ (at + n) as u64)
}

fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: any integer is eight bytes.
    unsafe { words.align_to().1 }
}

fn bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: any integer is eight bytes, and any eight bytes are one.
    unsafe { words.align_to_mut().1 }
}

/// Returns a message in a buffer of the sender's own. Only its first word changes: making a message is not measured.
fn own<const W: usize>() -> Apart<[u64; W]> {
    Apart(std::array::from_fn(|n| n as u64))
}

/// The sender's and the receiver's first and last word.
fn ends<const W: usize>(message: &[u64; W]) -> u64 {
    let message = black_box(message);
    message[0].wrapping_add(message[W - 1])
}

/// Returns the memory that the process keeps: some kilobytes, aligned as pages are.
fn memory(bytes: usize) -> NonNull<u8> {
    let words = vec![0u64; bytes.div_ceil(8) + 512].leak();
    let skip = words.as_ptr().align_offset(4096);
    NonNull::from(&mut words[skip..]).cast()
}

type Ends<T> = (Sender<'static, T>, Receiver<'static, T>);

fn channel<const W: usize>(capacity: usize) -> Ends<[u64; W]> {
    let shape = Shape::Queue { slots: capacity as u32, size: 8 * W as u32 };
    let len = shape.tx_bytes().expect("a shape");
    let base = memory(len + shape.rx_bytes());
    // SAFETY: that many bytes are there, leaked, and no other pointer to them exists; all of them are writable.
    let pair = |sends| unsafe {
        Pair::new(base, len, (shape.kind() as u8, shape.message()), sends).expect("fits")
    };
    let mut sender = Sender::open(&pair(true)).expect("fits");
    let mut receiver = Receiver::open(&pair(false)).expect("fits");
    while sender.attend().is_err() | receiver.attend().is_err() {}
    (sender, receiver)
}

pub fn channel_copy<const W: usize>(capacity: usize) -> Duplex {
    let (mut sender, mut receiver) = channel::<W>(capacity);
    let (mut message, mut got) = (own::<W>(), Apart([0; W]));
    (
        step(move |done, _| {
            message[0] = done;
            match sender.send(black_box(&*message)) {
                Ok(()) => (1, ends(&message)),
                Err(_) => (0, 0),
            }
        }),
        step(move |_, _| match receiver.receive_to(&mut *got) {
            Ok(()) => (1, ends(&got)),
            Err(_) => (0, 0),
        }),
    )
}

pub fn channel_copy_batch<const W: usize>(capacity: usize) -> Duplex {
    let (mut sender, mut receiver) = channel::<W>(capacity);
    let (mut message, mut got) = (own::<W>(), Apart([0; W]));
    let most = batch(capacity);
    (
        step(move |done, left| {
            let Ok(room) = sender.reserve(most.min(left) as u32) else { return (0, 0) };
            let (n, mut sum) = (room.len(), 0u64);
            for (i, slot) in room.slots().enumerate() {
                message[0] = done + i as u64;
                let _ = slot.write(0, bytes(black_box(&*message)));
                sum = sum.wrapping_add(ends(&message));
            }
            room.give(n);
            (n.into(), sum)
        }),
        step(move |_, left| {
            let Ok(there) = receiver.peek(most.min(left) as u32) else { return (0, 0) };
            let (n, mut sum) = (there.len(), 0u64);
            for slot in there.slots() {
                let _ = slot.read(0, bytes_mut(&mut *got));
                sum = sum.wrapping_add(ends(&got));
            }
            there.give(n);
            (n.into(), sum)
        }),
    )
}

/// Writes a message in place; its sum.
fn fill(slot: &Slot<'_, Mapping<'_>>, message: u64) -> u64 {
    let mut total = 0u64;
    slot.fill(|n| {
        let words = block(message, BLOCK * n);
        total = total.wrapping_add(sum(&words));
        words
    });
    total
}

/// Adds a message up where it lies.
fn total(slot: &Slot<'_, Mapping<'_>>) -> u64 {
    // Eight sums side by side, as the compiler makes them of a slice.
    let mut sums = [0u64; BLOCK];
    for words in slot.blocks() {
        sums = std::array::from_fn(|n| sums[n].wrapping_add(words[n]));
    }
    sum(&sums)
}

pub fn channel_place<const W: usize>(capacity: usize) -> Duplex {
    let (mut sender, mut receiver) = channel::<W>(capacity);
    (
        step(move |done, _| {
            let Ok(held) = sender.hold() else { return (0, 0) };
            let total = fill(&held.slot(), done);
            held.give();
            (1, total)
        }),
        step(move |_, _| {
            let Ok(held) = receiver.hold() else { return (0, 0) };
            let total = total(&held.slot());
            held.give();
            (1, total)
        }),
    )
}

pub fn channel_place_batch<const W: usize>(capacity: usize) -> Duplex {
    let (mut sender, mut receiver) = channel::<W>(capacity);
    let most = batch(capacity);
    (
        step(move |done, left| {
            let Ok(room) = sender.reserve(most.min(left) as u32) else { return (0, 0) };
            let (n, mut sum) = (room.len(), 0u64);
            for (message, slot) in (done..).zip(room.slots()) {
                sum = sum.wrapping_add(fill(&slot, message));
            }
            room.give(n);
            (n.into(), sum)
        }),
        step(move |_, left| {
            let Ok(there) = receiver.peek(most.min(left) as u32) else { return (0, 0) };
            let n = there.len();
            let sum = there.slots().fold(0u64, |sum, slot| sum.wrapping_add(total(&slot)));
            there.give(n);
            (n.into(), sum)
        }),
    )
}

pub fn rtrb_copy<const W: usize>(capacity: usize) -> Duplex {
    let (mut sender, mut receiver) = rtrb::RingBuffer::<[u64; W]>::new(capacity);
    let mut message = own::<W>();
    (
        step(move |done, _| {
            message[0] = done;
            match sender.push(*black_box(&*message)) {
                Ok(()) => (1, ends(&message)),
                Err(_) => (0, 0),
            }
        }),
        step(move |_, _| match receiver.pop() {
            Ok(message) => {
                let got = message;
                (1, ends(&got))
            }
            Err(_) => (0, 0),
        }),
    )
}

pub fn rtrb_copy_batch<const W: usize>(capacity: usize) -> Duplex {
    let (mut sender, mut receiver) = rtrb::RingBuffer::<[u64; W]>::new(capacity);
    let mut message = own::<W>();
    let most = batch(capacity) as usize;
    (
        step(move |done, left| {
            let n = sender.slots().min(most).min(left as usize);
            let Ok(room) = sender.write_chunk_uninit(n) else { return (0, 0) };
            let (mut next, mut sum) = (done, 0u64);
            let n = room.fill_from_iter(std::iter::from_fn(|| {
                message[0] = next;
                next += 1;
                sum = sum.wrapping_add(ends(&message));
                Some(*black_box(&*message))
            }));
            // The iterator is asked no more often than there is room.
            (n as u64, sum)
        }),
        step(move |_, left| {
            let n = receiver.slots().min(most).min(left as usize);
            let Ok(there) = receiver.read_chunk(n) else { return (0, 0) };
            let mut sum = 0u64;
            let (first, second) = there.as_slices();
            for message in first.iter().chain(second) {
                let got = *message;
                sum = sum.wrapping_add(ends(&got));
            }
            there.commit_all();
            (n as u64, sum)
        }),
    )
}

pub fn rtrb_place<const W: usize>(capacity: usize) -> Duplex {
    rtrb_places::<W>(capacity, 1)
}

pub fn rtrb_place_batch<const W: usize>(capacity: usize) -> Duplex {
    rtrb_places::<W>(capacity, batch(capacity))
}

fn rtrb_places<const W: usize>(capacity: usize, most: u64) -> Duplex {
    let (mut sender, mut receiver) = rtrb::RingBuffer::<[u64; W]>::new(capacity);
    (
        step(move |done, left| {
            let n = sender.slots().min(most.min(left) as usize);
            let Ok(mut room) = sender.write_chunk_uninit(n) else { return (0, 0) };
            let mut total = 0u64;
            let (first, second) = room.as_mut_slices();
            for (i, slot) in first.iter_mut().chain(second).enumerate() {
                let to: *mut u64 = slot.as_mut_ptr().cast();
                for at in (0..W).step_by(BLOCK) {
                    let words = block(done + i as u64, at);
                    // SAFETY: the slot has `W` words, a multiple of the block's.
                    unsafe { to.add(at).cast::<[u64; BLOCK]>().write(words) };
                    total = total.wrapping_add(sum(&words));
                }
            }
            // SAFETY: all words of all slots were written.
            unsafe { room.commit_all() };
            (n as u64, total)
        }),
        step(move |_, left| {
            let n = receiver.slots().min(most.min(left) as usize);
            let Ok(there) = receiver.read_chunk(n) else { return (0, 0) };
            let (first, second) = there.as_slices();
            let total = first.iter().chain(second).fold(0u64, |all, m| all.wrapping_add(sum(m)));
            there.commit_all();
            (n as u64, total)
        }),
    )
}

pub fn ringbuf_copy<const W: usize>(capacity: usize) -> Duplex {
    let (mut sender, mut receiver) = ringbuf::HeapRb::<[u64; W]>::new(capacity).split();
    let mut message = own::<W>();
    (
        step(move |done, _| {
            message[0] = done;
            match sender.try_push(*black_box(&*message)) {
                Ok(()) => (1, ends(&message)),
                Err(_) => (0, 0),
            }
        }),
        step(move |_, _| match receiver.try_pop() {
            Some(message) => {
                let got = message;
                (1, ends(&got))
            }
            None => (0, 0),
        }),
    )
}

pub fn ringbuf_copy_batch<const W: usize>(capacity: usize) -> Duplex {
    let (mut sender, mut receiver) = ringbuf::HeapRb::<[u64; W]>::new(capacity).split();
    let mut message = own::<W>();
    let most = batch(capacity) as usize;
    (
        step(move |done, left| {
            let (mut next, mut sum) = (done, 0u64);
            let messages = std::iter::from_fn(|| {
                message[0] = next;
                next += 1;
                sum = sum.wrapping_add(ends(&message));
                Some(*black_box(&*message))
            });
            // It asks for a message only where there is room for it.
            let n = sender.push_iter(messages.take(most.min(left as usize)));
            (n as u64, sum)
        }),
        step(move |_, left| {
            let mut sum = 0u64;
            let mut n = 0;
            for message in receiver.pop_iter().take(most.min(left as usize)) {
                let got = message;
                sum = sum.wrapping_add(ends(&got));
                n += 1;
            }
            (n, sum)
        }),
    )
}

pub fn crossbeam_copy<const W: usize>(capacity: usize) -> Duplex {
    let sender = std::sync::Arc::new(crossbeam_queue::ArrayQueue::<[u64; W]>::new(capacity));
    let receiver = sender.clone();
    let mut message = own::<W>();
    (
        step(move |done, _| {
            message[0] = done;
            match sender.push(*black_box(&*message)) {
                Ok(()) => (1, ends(&message)),
                Err(_) => (0, 0),
            }
        }),
        step(move |_, _| match receiver.pop() {
            Some(message) => {
                let got = message;
                (1, ends(&got))
            }
            None => (0, 0),
        }),
    )
}
