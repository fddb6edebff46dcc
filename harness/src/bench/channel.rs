//! Channels: between sandboxes, and natively against crates that do the same within one process.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{Ran, System};
use crate::rows::Row;
use crate::{Failure, build};
use bulkhead_layout::marker::id;
use bulkhead_qemu::counts::Distribution;
use std::process::Command;

/// Beginnings of their names.
pub const ROWS: [&str; 2] = ["channel.native_rtrb", "channel.mailbox"];

/// What `crates/channel-memory/benches/native` measures: two threads of this machine, so
/// no other part runs meanwhile. The figures are the host's time, and never a test.
pub fn native() -> Found {
    let out = Command::new("cargo")
        .args(["bench", "--locked", "-q", "-p", "bulkhead-channel-memory", "--bench", "native"])
        .current_dir(build::root())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !out.status.success() {
        return Err(format!("cargo bench: {}", String::from_utf8_lossy(&out.stderr)).into());
    }
    let said = String::from_utf8_lossy(&out.stdout);
    said.lines().filter(|line| line.starts_with("channel.")).map(figure).collect()
}

/// A message of 64 bytes between cores that both look for it, and what it costs to say that it is there to one who does not sleep.
pub fn messages() -> Found {
    let ran = System::new("channel", "channel").run()?;
    let (send, receive) = (span(&ran, id::CHANNEL_SEND)?, span(&ran, id::CHANNEL_RECEIVE)?);
    let ring = span(&ran, id::CHANNEL_RING)?;
    let row = Row::new("channel.message_64", "instructions", (send.median + receive.median) as f64);
    let note = format!(
        "{} to send, {} to receive; {} to see that nobody sleeps",
        send.median, receive.median, ring.median
    );
    let exits = Row::new("channel.spin_kick_exits", "exits", ring.vmruns as f64);
    Ok(vec![
        Figure::new(row).must(Must::AtMost(60.0)).note(note),
        Figure::new(exits)
            .must(Must::AtMost(0.0))
            .note(format!("in {} messages to a receiver that looks", ring.n)),
    ])
}

/// A ring for a thread that sleeps, from before the sender's look at the armed word to the thread's message.
pub fn doorbell() -> Found {
    let ran = System::new("channel-bell", "channel-bell").run()?;
    let (ring, wake) = (span(&ran, id::CHANNEL_RING)?, span(&ran, id::CHANNEL_WAKE)?);
    let both = (ring.median + wake.median) as f64;
    let note = format!(
        "{} of the sender, its monitor's included; {} of the receiver, from before it goes to sleep to its message",
        ring.median, wake.median
    );
    let exits = Row::new("exits.channel_doorbell", "exits", ring.vmruns as f64 / ring.n as f64);
    let others = Row::new("exits.channel_woken", "exits", wake.vmruns as f64);
    Ok(vec![
        Figure::new(Row::new("channel.doorbell_to_thread", "instructions", both))
            .must(Must::AtMost(900.0))
            .note(note),
        Figure::new(exits).must(Must::AtMost(1.0)).note(format!("a message, of {}", ring.n)),
        Figure::new(others).must(Must::AtMost(0.0)).note("of the receiver in all of them"),
    ])
}

fn span(ran: &Ran, which: u16) -> Result<Distribution, Failure> {
    let found = ran.counts.span(which).filter(|spans| spans.n >= 100);
    Ok(found.ok_or_else(|| format!("too few spans {which:#x}"))?)
}

/// From `name unit value baseline what`.
fn figure(line: &str) -> Result<Figure, Failure> {
    let mut words = line.splitn(5, ' ');
    let mut word = || words.next().ok_or_else(|| format!("not a figure: {line}"));
    let (name, unit, value, baseline, what) = (word()?, word()?, word()?, word()?, word()?);
    let row = Row::new(name, unit, value.parse()?).against(baseline.parse()?);
    Ok(Figure::new(row).must(bound(name)).note(format!("against {what}")))
}

/// Time of ours by that of the best of the others, so less is better: 1.0 and 1.2 times as
/// fast. Batches against batches are reported, and so is what is two operations at once.
fn bound(name: &str) -> Must {
    match name.rsplit('_').next() {
        Some("copy" | "place" | "trip") => Must::Ratio(0.0, 1.0),
        Some("batch") => Must::Ratio(0.0, 1.0 / 1.2),
        Some("read" | "write") => Must::Above(25.0),
        _ => Must::Reported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_figure() {
        let one = figure("channel.native_rtrb_64_copy_batch ns 5.0 10.0 rtrb copy").expect("one");
        assert_eq!((one.row.ratio, one.reached()), (Some(0.5), true));
        assert_eq!(one.note, "against rtrb copy");
        let slow = figure("channel.native_rtrb_64_copy_batch ns 9.0 10.0 rtrb copy").expect("one");
        assert!(!slow.reached());
        let dear = figure("channel.mailbox_256_read cycles 31.0 5.0 memcpy").expect("one");
        assert!(!dear.reached());
        assert!(figure("channel.x ns five").is_err());
    }
}
