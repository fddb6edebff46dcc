//! Progress words of this Linux: a thread on each core moves the word of that core. So the watchdog finds a core that
//! schedules nothing any more.

use crate::Wrong;
use bulkhead_layout::PAGE;
use bulkhead_layout::map::PROGRESS_GPA;
use bulkhead_layout::watch::ProgressWord;
use bulkhead_linux::devmem::{Info, Registers};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Moves in the time that the manifest gives for one.
const MOVES: u32 = 4;

/// Moves the words until it is told to end; then no core reports any more.
pub fn kick() -> Result<String, Wrong> {
    let info = Info::read().map_err(|why| format!("the information page: {why}"))?;
    if info.alive == 0 {
        return Err(format!(
            "nobody looks whether {} goes on: its manifest has no `watchdog` and `alive` for it",
            info.name
        ));
    }
    // Before the threads, which then leave them to this one.
    let mut ends = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|one| ends.add(one));
    ends.thread_block().map_err(|why| format!("signals: {why}"))?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let pause = Duration::from_micros(info.alive) / MOVES;
    let (over, (said, heard)) = (Arc::new(AtomicBool::new(false)), channel());
    let moves = |core| {
        let (over, said) = (Arc::clone(&over), said.clone());
        thread::spawn(move || on(core, pause, &over, &said))
    };
    let threads: Vec<_> = (0..cores).map(moves).collect();
    for _ in 0..cores {
        heard.recv().map_err(|_| "a thread has ended")??;
    }
    println!("bulkheadctl: {cores} cores move their words each {} us", pause.as_micros());
    let end = ends.wait().map_err(|why| format!("signals: {why}"))?;
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.thread().unpark();
        thread.join().map_err(|_| "a thread has failed")?;
    }
    Ok(format!("bulkheadctl: {end}; no core reports any more\n"))
}

/// Moves the word of a core, on that core, until all is over; then the core does not report.
fn on(core: usize, pause: Duration, over: &AtomicBool, said: &Sender<Result<(), Wrong>>) {
    let mut own = CpuSet::new();
    let pinned = own.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &own));
    let words = Registers::memory(PROGRESS_GPA, PAGE);
    let ready = pinned.map_err(|why| format!("core {core}: {why}"));
    let (ready, words) = match (ready, words) {
        (Ok(()), Ok(words)) => (Ok(()), Some(words)),
        (Ok(()), Err(why)) => (Err(format!("the progress words: {why}")), None),
        (wrong, _) => (wrong, None),
    };
    let _ = said.send(ready);
    let Some(words) = words else { return };
    let at = core * size_of::<ProgressWord>();
    for number in 1.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        words.set64(at, number);
        thread::park_timeout(pause);
    }
    words.set64(at, 0);
}
