//! Prints the denied accesses of the sandboxes that it may observe, as they come, out of their reports:
//! `observer: NAME life N core N KIND ADDRESS`. When the sandbox that `until=NAME` names has ended, it prints how all
//! are and exits.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::layout::MAX_CORES;
use bulkhead_sdk::layout::report::{CoreReport, DENIALS, Denial, KIND_NAMES, Report, State};
use bulkhead_sdk::window::{self, Window};
use bulkhead_sdk::{Context, println, time};
use core::mem::offset_of;
use core::sync::atomic::Ordering;

bulkhead_sdk::entry!(guest);

/// Reports that it can follow at once.
const MOST: usize = 4;

/// A word of a report, or nothing beyond its end.
fn word(window: &Window, offset: usize) -> u64 {
    let words = window.words();
    words.get(offset / 8).map_or(0, |w| w.load(Ordering::Acquire))
}

/// A 32-bit half of one.
fn half(window: &Window, offset: usize) -> u32 {
    (word(window, offset) >> (offset % 8 * 8)) as u32
}

/// Where a core's part begins.
fn part(core: usize) -> usize {
    size_of::<Report>() + core * size_of::<CoreReport>()
}

fn cores(window: &Window) -> usize {
    (half(window, offset_of!(Report, cores)) as usize).min(MAX_CORES)
}

/// Prints the records after number `seen`; the last one's number. The ring may
/// have gone round, then the oldest are lost.
fn news(window: &Window, core: usize, seen: u64) -> u64 {
    let newest = word(window, part(core) + offset_of!(CoreReport, denials));
    for number in seen + 1..=newest {
        let slot = (number - 1) as usize % DENIALS;
        let at = part(core) + offset_of!(CoreReport, ring) + slot * size_of::<Denial>();
        let kind = half(window, at + offset_of!(Denial, kind)) as u16;
        let life = half(window, at + offset_of!(Denial, incarnation));
        let address = word(window, at + offset_of!(Denial, address));
        // The number is written last, and is 0 meanwhile.
        if word(window, at + offset_of!(Denial, seq)) != number {
            println!("observer: {} lost record {number}", window.name);
            continue;
        }
        let kind = KIND_NAMES.get(usize::from(kind)).unwrap_or(&"?");
        println!("observer: {} life {life} core {core} {kind} {address:#x}", window.name);
    }
    newest
}

fn guest(context: Context) -> u32 {
    let until = context.arg("until").unwrap_or_default();
    let reports = || window::all(context).filter(|w| w.report).take(MOST);
    let mut seen = [[0; MAX_CORES]; MOST];
    loop {
        let mut over = false;
        for (window, seen) in reports().zip(&mut seen) {
            // The state first: a sandbox's records come before its end.
            let state = half(&window, offset_of!(Report, state));
            over |= window.name == until
                && [State::Exited, State::Stopped, State::Failed]
                    .iter()
                    .any(|s| *s as u32 == state);
            for (core, seen) in seen.iter_mut().enumerate().take(cores(&window)) {
                *seen = news(&window, core, *seen);
            }
        }
        if over {
            break;
        }
        time::sleep(100_000);
    }
    for (window, seen) in reports().zip(&seen) {
        println!(
            "observer: {} state {} restarts {} denials {}",
            window.name,
            half(&window, offset_of!(Report, state)),
            word(&window, offset_of!(Report, restarts)),
            seen.iter().sum::<u64>()
        );
    }
    println!("observer: done");
    0
}
