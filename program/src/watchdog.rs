//! Signs of life for the watchdog of the sandbox's monitor.

use crate::names::Program;
use bulkhead_layout::watch::Progress;
use core::sync::atomic::Ordering;

impl Program {
    /// Moves the progress word: the program goes on. Nothing happens if the manifest has no `watchdog = true` for it.
    ///
    /// It has to be called within each [`Program::alive`]. Call it where the work is done that others depend on, such
    /// as at the end of each release.
    pub fn kick(self) {
        // 0 would say that the core does not report; it comes around after 2^64 kicks.
        self.move_word(|word| word.wrapping_add(1).max(1));
    }

    /// Says that the program does not report any more, until it does again.
    pub fn rest(self) {
        self.move_word(|_| 0);
    }

    /// Longest time from a kick to the next, nanoseconds; `None`: nobody looks at this program.
    #[must_use]
    pub fn alive(self) -> Option<u64> {
        let page = self.page();
        (page.progress != 0).then_some(page.alive)
    }

    fn move_word(self, next: impl FnOnce(u64) -> u64) {
        let at = self.page().progress;
        if at == 0 {
            return;
        }
        // SAFETY: by the kernel's word in the program's page, the words are mapped there, writable, as long as it
        // runs. Their fields are atomics.
        let words = unsafe { &*(at as *const Progress) };
        // A kernel has one core.
        if let Some(word) = words.cores.first() {
            word.0.store(next(word.0.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }
}
