//! Messages of many sizes through two channels of small pieces, each answered. They are counted in a window of time,
//! whatever time the two ends get.

use crate::{Guest, MOST};
use bulkhead_channel::Stop;
use bulkhead_channel_memory::typed::{Pair, Receiver, Sender};
use bulkhead_layout::mark;
use bulkhead_layout::marker::{EVENT, id};
use core::fmt::Arguments;

/// Sizes of messages, each in a window of its own: as in `harness/src/bench/channel.rs`.
const SIZES: [u64; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// A piece: how many of the message follow, or [`STOP`].
type Piece = [u64; 8];
/// Bytes of it.
const PIECE: u64 = 64;
/// There is no further message in this window.
const STOP: u64 = u64::MAX;
/// How long the other end may keep silent, ns: many periods.
const PATIENCE: u64 = 10_000_000_000;

/// The two channels, of which each end sends through one and receives through the other.
struct Ends<'a, H> {
    host: &'a H,
    to: Sender<'static, Piece>,
    from: Receiver<'static, Piece>,
}

impl<'a, H: Guest> Ends<'a, H> {
    fn open(host: &'a H, pairs: [Option<&Pair<'static>>; MOST]) -> Option<Self> {
        let [first, second, ..] = pairs;
        let (first, second) = (first?, second?);
        let (to, from) = if first.sends() { (first, second) } else { (second, first) };
        let ends = Self { host, to: Sender::open(to).ok()?, from: Receiver::open(from).ok()? };
        Some(ends)
    }

    /// Tries until it is done, or for [`PATIENCE`].
    #[inline(always)]
    fn patiently<T>(&mut self, mut what: impl FnMut(&mut Self) -> Result<T, Stop>) -> Option<T> {
        let mut since = 0;
        for tries in 0u32.. {
            match what(self) {
                Ok(done) => return Some(done),
                Err(Stop::Wait | Stop::Apart) => core::hint::spin_loop(),
                Err(news) => return self.failed(format_args!("{news:?}")),
            }
            if tries % 4096 == 4095 {
                let now = self.host.now();
                if since == 0 {
                    since = now;
                } else if now - since > PATIENCE {
                    return self.failed(format_args!("the other end keeps silent"));
                }
            }
        }
        None
    }

    fn failed<T>(&self, why: Arguments<'_>) -> Option<T> {
        self.host.say(format_args!("exchange: {why}"));
        None
    }

    #[inline(always)]
    fn put(&mut self, piece: &Piece) -> Option<()> {
        self.patiently(|ends| ends.to.send(piece))
    }

    #[inline(always)]
    fn take(&mut self) -> Option<Piece> {
        let mut piece = [0; 8];
        self.patiently(|ends| ends.from.receive_to(&mut piece)).map(|()| piece)
    }
}

/// When the first window begins, how long each is, and the pause after it, in which budgets come back: as the first
/// piece says.
struct Windows([u64; 3]);

impl Windows {
    /// From when to when.
    const fn nth(&self, n: usize) -> (u64, u64) {
        let Self([first, window, gap]) = *self;
        let begin = first + n as u64 * (window + gap);
        (begin, begin + window)
    }
}

/// Sends messages of each size for `window` nanoseconds, with `gap` after each, and marks how many pieces went in it.
pub fn ask(host: &impl Guest, pairs: [Option<&Pair<'static>>; MOST]) -> Option<()> {
    let mut ends = Ends::open(host, pairs)?;
    let [window, gap] = [host.number("window")?, host.number("gap")?];
    // Not before both are there.
    ends.put(&[0; 8])?;
    ends.take()?;
    let begin = host.now() + gap;
    let windows = Windows([begin, window, gap]);
    ends.put(&[begin, window, gap, 0, 0, 0, 0, 0])?;
    for (n, size) in SIZES.into_iter().enumerate() {
        let (begin, end) = windows.nth(n);
        host.sleep_until(begin);
        let (mut pieces, mut now) = (0, begin);
        while now < end {
            for left in (0..size / PIECE).rev() {
                ends.put(&[left, n as u64, 0, 0, 0, 0, 0, 0])?;
                // Pieces sent after the window's end do not count in it, but have to be sent.
                if left % 64 == 0 {
                    now = host.now();
                }
                pieces += u64::from(now < end);
            }
            ends.take()?;
            now = host.now();
        }
        ends.put(&[STOP; 8])?;
        mark!(EVENT | id::CHANNEL_EXCHANGE, pieces);
    }
    host.say(format_args!("exchanged messages of {} sizes", SIZES.len()));
    Some(())
}

/// Takes them, and answers each.
pub fn answer(host: &impl Guest, pairs: [Option<&Pair<'static>>; MOST]) -> Option<()> {
    let mut ends = Ends::open(host, pairs)?;
    ends.take()?;
    ends.put(&[0; 8])?;
    let [begin, window, gap, ..] = ends.take()?;
    let windows = Windows([begin, window, gap]);
    for n in 0..SIZES.len() {
        host.sleep_until(windows.nth(n).0);
        loop {
            match ends.take()?[0] {
                STOP => break,
                0 => ends.put(&[0; 8])?,
                _ => {}
            }
        }
    }
    Some(())
}
