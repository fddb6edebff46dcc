//! Ctrl-C, a kill and a closed terminal. A run ends in good order after each: with its emulator gone, its RAM's file
//! removed, its terminal and its report whole.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// The requests to end this process.
#[derive(Clone, Default)]
pub struct Interrupt(Rc<State>);

#[derive(Default)]
struct State {
    signals: OnceCell<SignalFd>,
    came: Cell<bool>,
}

impl Interrupt {
    /// Takes the signals over from here on. Called once the emulator runs: it would
    /// inherit the mask, and then not heed a kill of its own.
    pub fn arm(&self) {
        let wanted = wanted();
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        // Without them a signal ends this process at once, as by default.
        if let Ok(signals) = SignalFd::with_flags(&wanted, flags)
            && wanted.thread_block().is_ok()
        {
            let _ = self.0.signals.set(signals);
        }
    }

    /// Tells if one came.
    #[must_use]
    pub fn came(&self) -> bool {
        let signals = self.0.signals.get();
        if signals.is_some_and(|signals| matches!(signals.read_signal(), Ok(Some(_)))) {
            self.0.came.set(true);
        }
        self.0.came.get()
    }
}

/// Lets a signal end this process at once, as by default. One that `bulkhead watch` has started inherits its mask.
pub fn heed() {
    let _ = wanted().thread_unblock();
}

/// Signals that ask this process to end.
fn wanted() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}
