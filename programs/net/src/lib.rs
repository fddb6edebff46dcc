//! Common parts of a program's ends of a network: wires by the names of their channels, and the sleep until one of
//! several has something.
#![cfg_attr(target_os = "none", no_std)]

use bulkhead_net::Wire;
use bulkhead_program::typed::Mapping;
use bulkhead_program::{FOREVER, Guest, Notification, Program, bell, now, wait_until};
use smoltcp::time::Instant;

/// A wire of a program.
pub type Line = Wire<Mapping<'static>, bell::Port>;

/// Nanoseconds between looks where a receiver is not woken (`notify = "poll"`).
const LOOK: u64 = 1_000_000;

/// The time for `smoltcp`.
#[must_use]
pub fn instant() -> Instant {
    Instant::from_micros((now() / 1000) as i64)
}

/// The wire of two channels.
///
/// # Panics
/// The manifest does not give the program these, or they are no records.
#[must_use]
pub fn line(program: Program, to: &str, from: &str) -> Line {
    let (tx, rx) = (program.pair(to), program.pair(from));
    let sender = tx.send_records();
    let sender = sender.unwrap_or_else(|_| panic!("{to} is no channel of records to send"));
    let receiver = rx.receive_records();
    let receiver =
        receiver.unwrap_or_else(|_| panic!("{from} is no channel of records to receive"));
    let arm = rx.doorbell().and_then(|_| rx.arm().ok());
    Wire::new((sender, program.caller(&tx)), (receiver, arm))
}

/// Works until there is nothing to do, then sleeps until a frame comes or a time that the work says (nanoseconds of
/// [`now`]), for ever. `work` says [`now`] or less for more at once.
///
/// It asks to be woken only once there is nothing to do, and then looks once more: while it works no peer has to ring.
pub fn serve<T>(
    net: &mut T,
    news: Notification,
    lines: impl Fn(&mut T, &mut dyn FnMut(&mut Line)),
    mut work: impl FnMut(&mut T) -> u64,
) -> ! {
    loop {
        if work(net) <= now() {
            continue;
        }
        let mut woken = true;
        lines(net, &mut |line| woken &= line.arm());
        let until = work(net);
        let until = if woken { until } else { until.min(now() + LOOK) };
        if until == FOREVER {
            // A thread without time of its own looks again at once.
            let _ = news.wait();
        } else if until > now() {
            let _ = wait_until(news, until);
        }
        lines(net, &mut |line| line.disarm());
    }
}
