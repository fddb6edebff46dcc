//! Events in words.

use crate::Event;
use std::collections::BTreeMap;
use std::format;
use std::string::String;

/// Names of a kernel's objects, by their offsets.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Threads.
    pub threads: BTreeMap<u32, String>,
    /// Contexts.
    pub contexts: BTreeMap<u32, String>,
    /// Notifications.
    pub notifications: BTreeMap<u32, String>,
}

fn find(names: &BTreeMap<u32, String>, at: u64) -> String {
    let name = u32::try_from(at).ok().and_then(|at| names.get(&at));
    // Made at run time, by a program.
    name.cloned().unwrap_or_else(|| if at == 0 { "nobody".into() } else { format!("{at:#x}") })
}

impl Names {
    /// Returns a thread's.
    #[must_use]
    pub fn thread(&self, at: u32) -> String {
        find(&self.threads, at.into())
    }

    /// Returns a context's.
    #[must_use]
    pub fn context(&self, at: u64) -> String {
        find(&self.contexts, at)
    }

    /// Returns a notification's.
    #[must_use]
    pub fn notification(&self, at: u32) -> String {
        find(&self.notifications, at.into())
    }

    /// Tells the event, without figures that depend on the machine's speed.
    #[must_use]
    pub fn tell(&self, event: &Event) -> String {
        let context = |at: u32| self.context(at.into());
        match *event {
            Event::Run { thread: 0, .. } => "nobody runs".into(),
            Event::Run { thread, context: on, .. } => {
                format!("{} runs on {}", self.thread(thread), context(on))
            }
            Event::Leave { context: of, .. } => format!("{} leaves the processor", context(of)),
            Event::Refill { context: of, .. } => format!("{} is refilled", context(of)),
            Event::Over { thread, context: of, handled } => {
                let then =
                    if handled == 0 { "waits for its refill" } else { "its handler is called" };
                format!("{}: the budget of {} has ended, {then}", self.thread(thread), context(of))
            }
            Event::Deadline { thread, .. } => {
                format!("{}: its deadline has come", self.thread(thread))
            }
            Event::Donate { from, to, context } => {
                format!(
                    "{} calls {} with {}",
                    self.thread(from),
                    self.thread(to),
                    self.context(context)
                )
            }
            Event::Return { from, to, context } => format!(
                "{} goes back from {} to {}",
                self.context(context),
                self.thread(from),
                self.thread(to)
            ),
            Event::Lend { notification, to, context } => format!(
                "{} lends {} to {}",
                self.notification(notification),
                self.context(context),
                self.thread(to)
            ),
            Event::Call { from, to } => format!("{} calls {}", self.thread(from), self.thread(to)),
            Event::Timer { .. } => "timer".into(),
            Event::Interrupt { number, notification, again } => {
                let again = if again == 0 { "" } else { ", again" };
                format!("interrupt {number} for {}{again}", self.notification(notification))
            }
            Event::Fault { thread, number, .. } => {
                format!("{}: exception {number}", self.thread(thread))
            }
        }
    }
}
