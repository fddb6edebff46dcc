//! A kernel's contexts, as they follow from the manifest: their threads, the servers that these can call, and their
//! share of the core.

use super::Share;
use crate::kernel::{Kernel, Policy, Program, User};

impl Kernel {
    /// The threads that may run on a context without a call.
    pub fn users(&self, context: usize) -> impl Iterator<Item = usize> {
        let user = self.contexts[context].user;
        let waits = move |thread: &usize| {
            let thread = &self.threads[*thread];
            match user {
                User::Thread(_) => false,
                User::Notification(notification) => {
                    let waits = &self.programs[thread.program].waits;
                    thread.context.is_none() && waits.contains(&notification)
                }
            }
        };
        let chosen = move |thread: &usize| user == User::Thread(*thread) || waits(thread);
        (0..self.threads.len()).filter(chosen)
    }

    /// Returns the share of the core that a context can take, with the kernel's own time.
    #[must_use]
    pub fn share(&self, context: usize) -> Share {
        let context = &self.contexts[context];
        match context.policy {
            Policy::Pibs { utilization, .. } => Share::of_pibs(utilization),
            _ => Share::of(context.gross(self.overhead), context.period()),
        }
    }

    /// Sums all contexts' shares except the full ones, which take the time that is left.
    #[must_use]
    pub fn sum(&self) -> Share {
        let counts = |n: &usize| !matches!(self.contexts[*n].policy, Policy::Full { .. });
        let all = (0..self.contexts.len()).filter(counts);
        all.map(|context| self.share(context)).fold(Share(0), Share::plus)
    }

    /// Contexts that admission sees to.
    pub fn guaranteed(&self) -> impl Iterator<Item = usize> {
        let guaranteed = |n: &usize| self.contexts[*n].guaranteed && self.is_server(*n);
        (0..self.contexts.len()).filter(guaranteed)
    }

    /// True if a context has a budget and a period.
    #[must_use]
    pub fn is_server(&self, context: usize) -> bool {
        matches!(self.contexts[context].policy, Policy::Sporadic(_) | Policy::Strict(_))
    }

    pub(super) fn is_pibs(&self, context: usize) -> bool {
        matches!(self.contexts[context].policy, Policy::Pibs { .. })
    }

    /// True if the thread that runs on a context acknowledges a device's interrupts.
    #[must_use]
    pub fn is_driver(&self, context: usize) -> bool {
        let mut programs = self.users(context).map(|n| &self.programs[self.threads[n].program]);
        programs.any(|program| program.devices.iter().any(|used| !used.interrupts.is_empty()))
    }

    /// Counts the sources of interrupts for the thread that runs on a context. They are interrupts of devices, and
    /// channels with a doorbell, which the program asks for each time before it waits.
    #[must_use]
    pub fn sources(&self, context: usize) -> u64 {
        let mut programs: Vec<usize> =
            self.users(context).map(|n| self.threads[n].program).collect();
        programs.sort_unstable();
        programs.dedup();
        let of = |program: usize| {
            let Program { devices, channels, .. } = &self.programs[program];
            let interrupts = devices.iter().map(|used| used.interrupts.len()).sum::<usize>();
            interrupts + channels.iter().filter(|used| used.signal.is_some()).count()
        };
        programs.into_iter().map(of).sum::<usize>() as u64
    }

    /// True if a program may have channels made at run time. Their doorbells come as often as programs make and arm
    /// them, which no manifest says.
    #[must_use]
    pub fn has_links(&self) -> bool {
        self.programs.iter().any(|program| !program.links.is_empty())
    }
}
