//! Speed of the machine during a run, so that processor time can be compared between machines. A processor that shares
//! its caches with other work, or is a slower one, takes longer for all of it.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Numbers of the table: 512 KiB of them. A larger one measures the memory of a whole host, which varies fivefold.
const NUMBERS: usize = 1 << 16;
/// Steps of one piece of work.
const STEPS: usize = 4_000_000;
/// Processor time that a piece took on the machine of the bounds, amid its own run of all tests, seconds.
const THERE: f64 = 0.040;
/// Pause between two pieces.
const PAUSE: Duration = Duration::from_secs(15);

/// Works now and then until all senders are gone. Returns how often the time it takes there it took here,
/// in the middle of all pieces.
pub fn measure(over: &Receiver<()>) -> f64 {
    let mut table: Vec<u64> = (0..NUMBERS as u64).collect();
    let mut took = Vec::new();
    loop {
        let begun = spent();
        black_box(work(&mut table));
        took.push((spent() - begun) / THERE);
        if over.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
            return median(took);
        }
    }
}

/// Walks through the table: each step depends on what the last one found.
fn work(table: &mut [u64]) -> u64 {
    let mut at = 1_u64;
    for _ in 0..STEPS {
        let slot = &mut table[(at >> 32) as usize % NUMBERS];
        at = (at ^ *slot).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        *slot = at;
    }
    at
}

fn median(mut took: Vec<f64>) -> f64 {
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

/// Processor time of this thread, in seconds (proc(5), `/proc/thread-self/schedstat`: its first number is nanoseconds).
fn spent() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_pace_is_of_the_middle_piece() {
        assert_eq!(median(vec![9.0, 1.0, 1.5]), 1.5);
        assert_eq!(median(vec![2.0]), 2.0);
    }

    #[test]
    fn one_piece_is_made_at_least() {
        let (_, over) = mpsc::channel();
        assert!(measure(&over) > 0.0);
    }
}
