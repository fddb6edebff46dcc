//! Ends of each kind, as bytes.

use bulkhead_channel::Stop;
use bulkhead_channel::layout::Kind;
use bulkhead_channel_memory::any::{In, Out};
use bulkhead_channel_memory::typed::Pair;
use std::ptr::NonNull;

const LEN: usize = 4096;
/// Bytes of a queue's and a mailbox's messages.
const SIZE: u32 = 64;

/// Both sides of a channel in memory of the host, given back at the end of the test process.
fn sides(kind: Kind) -> [Pair<'static>; 2] {
    let base: NonNull<u8> = NonNull::from(vec![0u64; LEN / 4].leak()).cast();
    // SAFETY: leaked, so it lasts, and all of it is writable; it is only accessed by these two.
    [true, false]
        .map(|sends| unsafe { Pair::new(base, LEN, (kind as u8, SIZE), sends) }.expect("fits"))
}

/// Until both have a session.
fn meet(out: &mut Out<'_>, end: &mut In<'_>) {
    for _ in 0..3 {
        let _ = (out.attend(), end.attend());
    }
    assert_eq!((out.attend(), end.attend()), (Ok(()), Ok(())));
}

const KINDS: [Kind; 3] = [Kind::Queue, Kind::Records, Kind::Mailbox];

#[test]
fn a_look_leaves_what_is_there() {
    for kind in KINDS {
        let [from, to] = sides(kind);
        let (mut out, mut end) =
            (Out::open(&from).expect("sends"), In::open(&to).expect("receives"));
        let mut buffer = vec![0; to.longest()];
        assert_eq!(from.longest(), to.longest());
        meet(&mut out, &mut end);
        assert_eq!(end.look(), Err(Stop::Wait), "{kind:?}");
        for n in 0..100 {
            out.send(&[n; SIZE as usize]).expect("room");
            assert_eq!((end.look(), end.look()), (Ok(()), Ok(())), "{kind:?}");
            assert_eq!(end.receive(&mut buffer), Ok(SIZE as usize), "{kind:?}");
            assert_eq!(buffer[..SIZE as usize], [n; SIZE as usize]);
            assert_eq!((end.look(), end.receive(&mut buffer)), (Err(Stop::Wait), Err(Stop::Wait)));
        }
        // The look found the newest state, or the oldest message.
        out.send(&[1; SIZE as usize]).expect("room");
        assert_eq!(end.look(), Ok(()));
        out.send(&[2; SIZE as usize]).expect("room");
        assert_eq!(end.receive(&mut buffer), Ok(SIZE as usize));
        assert_eq!(buffer[0], if kind == Kind::Mailbox { 2 } else { 1 });
    }
}

#[test]
fn news_are_told_by_a_look_once() {
    for kind in KINDS {
        let [from, to] = sides(kind);
        let (mut out, mut end) =
            (Out::open(&from).expect("sends"), In::open(&to).expect("receives"));
        meet(&mut out, &mut end);
        out.send(&[1; SIZE as usize]).expect("room");
        assert_eq!(end.receive(&mut vec![0; to.longest()]), Ok(SIZE as usize));
        out.close();
        assert_eq!(end.look(), Err(Stop::Left), "{kind:?}");
        assert!(matches!(end.look(), Err(Stop::Apart | Stop::Wait)), "{kind:?}");
    }
}

#[test]
fn the_other_end_and_what_carries_no_messages_are_refused() {
    for kind in KINDS {
        let [from, to] = sides(kind);
        assert!(Out::open(&to).is_err() && In::open(&from).is_err(), "{kind:?}");
    }
    let len = 2 << 20;
    let base: NonNull<u8> = NonNull::from(vec![0u64; len / 4].leak()).cast();
    for sends in [true, false] {
        // SAFETY: leaked and writable, as for the other kinds; it is not accessed.
        let pair = unsafe { Pair::new(base, len, (Kind::Virtio as u8, 0), sends) }.expect("fits");
        assert!(Out::open(&pair).is_err() && In::open(&pair).is_err());
        assert_eq!(pair.longest(), 0);
    }
}
