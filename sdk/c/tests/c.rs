//! The header says what the library has, by a Linux's names; both ends through C's functions, in memory of the host.

use bulkhead_channel::layout::{INDEX, Kind};
use bulkhead_layout::info::{Info, LINK, Window};
use bulkhead_sdk_c::end::{Receiver, Sender};
use bulkhead_sdk_c::*;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{HERE}/{path}")).expect("a file of this repository")
}

/// Functions that it declares, before what they take.
fn declared(header: &str) -> BTreeSet<&str> {
    let lines = header.lines().filter(|line| line.ends_with(");") && !line.starts_with('_'));
    lines.filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next()).collect()
}

#[test]
fn the_header_has_each_function_and_size() {
    let (header, source) = (read("../include/bulkhead-channel.h"), read("src/lib.rs"));
    let functions: BTreeSet<_> = source
        .split("extern \"C\" fn ")
        .skip(1)
        .filter_map(|rest| rest.split_once('('))
        .map(|(name, _)| name)
        .collect();
    assert_eq!((functions.len(), declared(&header)), (14, functions));
    for (name, size) in [("SENDER", SENDER_BYTES), ("RECEIVER", RECEIVER_BYTES)] {
        assert!(header.contains(&format!("#define BULKHEAD_{name}_BYTES {size}\n")), "{name}");
    }
}

#[test]
fn a_linux_has_the_same_functions() {
    let (bare, linux) = (
        read("../include/bulkhead-channel.h"),
        read("../../linux/support/c/include/bulkhead_channel.h"),
    );
    let of_linux_alone: Vec<_> = declared(&linux).difference(&declared(&bare)).copied().collect();
    assert_eq!(of_linux_alone, ["bulkhead_channel_error", "bulkhead_receiver_fd"]);
}

/// A channel in memory of the host, as the information pages of its two ends say.
struct Channel {
    pages: [Box<Info>; 2],
    memory: *mut u8,
}

const LEN: usize = 4096;

impl Channel {
    fn new(kind: Kind, bell: u32) -> Self {
        // SAFETY: numbers, of which zero is one.
        let page = || unsafe { Box::<Info>::new_zeroed().assume_init() };
        let memory = Box::leak(vec![0u64; LEN / 4].into_boxed_slice()).as_mut_ptr().cast();
        let mut pages = [page(), page()];
        for (page, writable) in pages.iter_mut().zip([1, 0]) {
            let window = &mut page.window[1];
            window.name[..4].copy_from_slice(b"news");
            (window.gpa, window.size) = (memory as u64, LEN as u64);
            (window.writable, window.messages, window.message) = (writable, kind as u32, 64);
            (page.windows, page.bells[1]) = (2, bell);
        }
        Self { pages, memory }
    }

    fn context(&self, sends: bool) -> Context {
        Context { incarnation: 0, info: &raw const *self.pages[usize::from(!sends)] }
    }

    /// The word of the sender's page at an offset.
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: aligned, within the memory, which stays, and only accessed atomically.
        unsafe { AtomicU64::from_ptr(self.memory.add(at).cast()) }
    }

    fn sender(&self, at: &mut MaybeUninit<Handle<Sender>>) -> c_int {
        // SAFETY: a page, a name and memory for an end.
        unsafe { bulkhead_sender_open(self.context(true), c"news".as_ptr(), 0, at.as_mut_ptr()) }
    }

    fn receiver(&self, at: &mut MaybeUninit<Handle<Receiver>>) -> c_int {
        // SAFETY: a page, a name and memory for an end.
        unsafe { bulkhead_receiver_open(self.context(false), c"news".as_ptr(), at.as_mut_ptr()) }
    }
}

fn send(at: &mut MaybeUninit<Handle<Sender>>, message: &[u8]) -> c_int {
    // SAFETY: memory of an end, and a message.
    unsafe { bulkhead_send(at.as_mut_ptr(), message.as_ptr().cast(), message.len(), 0) }
}

fn receive(at: &mut MaybeUninit<Handle<Receiver>>, to: &mut [u8], millis: i64) -> i64 {
    // SAFETY: memory of an end, and a buffer.
    unsafe { bulkhead_receive(at.as_mut_ptr(), to.as_mut_ptr().cast(), to.len(), millis) }
}

const KINDS: [Kind; 3] = [Kind::Queue, Kind::Records, Kind::Mailbox];
/// A doorbell, as the page tells of it.
const BELL: u32 = 0x50;

#[test]
fn messages_of_each_kind_arrive_and_ends_are_told() {
    for kind in KINDS {
        let channel = Channel::new(kind, BELL);
        let (mut from, mut to) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        let mut buffer = [0; 2048];
        assert_eq!((channel.sender(&mut from), channel.receiver(&mut to)), (0, 0), "{kind:?}");
        let empty = if kind == Kind::Mailbox { WAIT } else { APART };
        assert_eq!(receive(&mut to, &mut buffer, 0), empty.into());
        // The sender answers, then the receiver has seen it.
        let _ = send(&mut from, &[0; 64]);
        let _ = receive(&mut to, &mut buffer, 0);
        let _ = send(&mut from, &[0; 64]);
        while receive(&mut to, &mut buffer, 0) >= 0 {}
        let arm = |to: &mut MaybeUninit<_>| {
            // SAFETY: memory of an end.
            unsafe { bulkhead_receiver_arm(to.as_mut_ptr()) }
        };
        for n in 1..100u8 {
            // It may sleep, is rung for once, and what is there stays until it is received.
            assert_eq!(arm(&mut to), 1, "{kind:?} {n}");
            // SAFETY: memory of an end.
            let rung = unsafe { bulkhead_receiver_interrupts(to.as_mut_ptr()) };
            assert_eq!(send(&mut from, &[n; 64]), 0, "{kind:?} {n}");
            // SAFETY: memory of an end.
            assert!(unsafe { bulkhead_receiver_interrupts(to.as_mut_ptr()) } > rung);
            assert_eq!((arm(&mut to), arm(&mut to)), (0, 0), "{kind:?} {n}");
            assert_eq!(receive(&mut to, &mut buffer, 1), 64, "{kind:?} {n}");
            assert_eq!(buffer[..64], [n; 64]);
            // It asks no longer.
            // SAFETY: memory of an end.
            let rung = unsafe { bulkhead_receiver_interrupts(to.as_mut_ptr()) };
            assert_eq!(send(&mut from, &[n; 64]), 0);
            assert_eq!(receive(&mut to, &mut buffer, 0), 64);
            // SAFETY: memory of an end.
            assert_eq!(unsafe { bulkhead_receiver_interrupts(to.as_mut_ptr()) }, rung);
        }
        assert_eq!(receive(&mut to, &mut buffer, 2), WAIT.into(), "{kind:?}");
        // SAFETY: memory of an end, twice.
        unsafe {
            bulkhead_sender_close(from.as_mut_ptr());
            bulkhead_sender_close(from.as_mut_ptr());
        }
        assert_eq!(send(&mut from, &[0; 64]), CLOSED);
        // An arm is told, and hands it on.
        assert_eq!(arm(&mut to), 0);
        assert_eq!(receive(&mut to, &mut buffer, -1), LEFT.into(), "{kind:?}");
    }
}

#[test]
fn a_spoilt_channel_is_told_once_and_goes_on() {
    for kind in [Kind::Queue, Kind::Records] {
        let channel = Channel::new(kind, 0);
        let (mut from, mut to) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        let mut buffer = [0; 2048];
        assert_eq!((channel.sender(&mut from), channel.receiver(&mut to)), (0, 0));
        let meet = |from: &mut _, to: &mut _, buffer: &mut [u8]| {
            for _ in 0..4 {
                let _ = (receive(to, buffer, 0), send(from, &[7; 64]));
            }
            assert_eq!(receive(to, buffer, 0), 64);
            while receive(to, buffer, 0) >= 0 {}
        };
        meet(&mut from, &mut to, &mut buffer);
        let index = channel.word(INDEX);
        index.store(index.load(Ordering::Relaxed) ^ 0x8000_0000, Ordering::Release);
        assert_eq!(receive(&mut to, &mut buffer, -1), CORRUPTED.into());
        assert_eq!(receive(&mut to, &mut buffer, 0), APART.into());
        // SAFETY: memory of an end.
        unsafe { bulkhead_sender_reset(from.as_mut_ptr()) };
        meet(&mut from, &mut to, &mut buffer);
    }
}

#[test]
fn each_receiver_has_an_end_of_its_own() {
    let (mut first, second) = (Channel::new(Kind::Queue, 0), Channel::new(Kind::Queue, 0));
    // The sender's page has both, a report of that name, and a link between them.
    let page = &mut first.pages[0];
    let window = page.window[1];
    page.window[2] = Window { kind: 1, ..window };
    page.window[3] = Window { kind: LINK, ..window };
    page.window[4] = second.pages[0].window[1];
    page.windows = 5;
    let mut from = [MaybeUninit::zeroed(), MaybeUninit::zeroed(), MaybeUninit::zeroed()];
    let opened = [0, 1, 2].map(|nth: u32| {
        let out = from[nth as usize].as_mut_ptr();
        // SAFETY: a page, a name and memory for an end.
        unsafe { bulkhead_sender_open(first.context(true), c"news".as_ptr(), nth, out) }
    });
    assert_eq!(opened, [0, 0, OPEN]);
    let (mut to, mut buffer) = (MaybeUninit::zeroed(), [0; 64]);
    assert_eq!(second.receiver(&mut to), 0);
    for _ in 0..4 {
        let _ = (receive(&mut to, &mut buffer, 0), send(&mut from[1], &[7; 64]));
    }
    assert_eq!((receive(&mut to, &mut buffer, 0), buffer[0]), (64, 7));
    assert_eq!(send(&mut from[0], &[8; 64]), APART);
}

#[test]
fn what_is_no_end_is_refused() {
    let channel = Channel::new(Kind::Queue, 0);
    let (mut from, mut to) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
    let mut buffer = [0; 2048];
    assert_eq!(send(&mut from, &[0; 64]), ARGUMENT);
    assert_eq!(receive(&mut to, &mut buffer, -1), ARGUMENT.into());
    let (here, there) = (channel.context(true), channel.context(false));
    let (name, out, into) = (c"news".as_ptr(), from.as_mut_ptr(), to.as_mut_ptr());
    // SAFETY: null pointers, pages, names and memory of ends are what these functions take.
    unsafe {
        assert_eq!(bulkhead_sender_open(here, null(), 0, out), ARGUMENT);
        assert_eq!(bulkhead_sender_open(here, name, 0, null_mut()), ARGUMENT);
        assert_eq!(bulkhead_sender_open(here, name, 0, out.byte_add(4)), ARGUMENT);
        assert_eq!(bulkhead_sender_open(Context { info: null(), ..here }, name, 0, out), ARGUMENT);
        assert_eq!(bulkhead_sender_open(here, c"new".as_ptr(), 0, out), OPEN);
        assert_eq!(bulkhead_sender_open(here, c"newsy".as_ptr(), 0, out), OPEN);
        assert_eq!(bulkhead_sender_open(here, name, 1, out), OPEN);
        assert_eq!(bulkhead_sender_open(there, name, 0, out), MISFIT);
        assert_eq!(bulkhead_receiver_open(here, name, into), MISFIT);
        assert_eq!(bulkhead_sender_longest(out), 0);
        assert_eq!(bulkhead_sender_open(here, name, 0, out), 0);
        assert_eq!(bulkhead_sender_longest(out), 64);
        assert_eq!(bulkhead_send(out, null(), 64, -1), ARGUMENT);
        assert_eq!(bulkhead_send(null_mut(), buffer.as_ptr().cast(), 64, -1), ARGUMENT);
        // It failed to open, so what was there is no end any more.
        assert_eq!(bulkhead_sender_open(there, name, 0, out), MISFIT);
        assert_eq!(bulkhead_send(out, buffer.as_ptr().cast(), 64, -1), ARGUMENT);
        assert_eq!(bulkhead_sender_open(here, name, 0, out), 0);
        let mut copy = MaybeUninit::<Handle<Sender>>::zeroed();
        copy.as_mut_ptr().copy_from(out, 1);
        assert_eq!(send(&mut copy, &[0; 64]), ARGUMENT);
    }
    assert_eq!((send(&mut from, &[0; 63]), send(&mut from, &[0; 65])), (SIZE, SIZE));
    assert_eq!(channel.receiver(&mut to), 0);
    assert_eq!(receive(&mut to, &mut buffer[..63], -1), SIZE.into());
}
