//! Events for a machine that wants them ([`Machine::is_traced`]). Nothing of this is there for others.

use crate::{Context, Event, Kernel, Machine, Ref, Thread};

impl<M: Machine> Kernel<'_, M> {
    /// Tells of an event.
    #[inline(always)]
    pub(crate) fn trace(&mut self, event: impl FnOnce(&Self) -> Event) {
        if self.machine.is_traced() {
            let event = event(self);
            self.machine.trace(event);
        }
    }

    /// The current thread runs, or none does. It is told again and again: the machine knows if it is new.
    #[inline(always)]
    pub(crate) fn trace_run(&mut self) {
        self.trace(|kernel| {
            let Some(thread) = kernel.core.current.some() else {
                return Event::Run { thread: 0, context: 0, rest: 0 };
            };
            let context = kernel.machine.get(thread).context;
            let held = context.some().map(|context| kernel.machine.get(context));
            let rest = held.map_or(0, |held| held.time.account().left());
            Event::Run { thread: thread.at(), context: context.at(), rest }
        });
    }

    /// A context is not on the processor any more, if it was.
    #[inline(always)]
    pub(crate) fn trace_leave(&mut self, context: Ref<Context>) {
        self.trace(|kernel| {
            let (thread, context, rest) = state(kernel.machine, context);
            Event::Leave { thread, context, rest }
        });
    }

    /// A call, with a context or without one.
    #[inline(always)]
    pub(crate) fn trace_call(&mut self, from: Ref<Thread>, to: Ref<Thread>, context: Ref<Context>) {
        self.trace(|_| match context.some() {
            Some(context) => {
                Event::Donate { from: from.at(), to: to.at(), context: context.at().into() }
            }
            None => Event::Call { from: from.at(), to: to.at() },
        });
    }

    /// A context goes back.
    #[inline(always)]
    pub(crate) fn trace_return(
        &mut self,
        from: Ref<Thread>,
        to: Ref<Thread>,
        context: Ref<Context>,
    ) {
        self.trace(|_| Event::Return {
            from: from.at(),
            to: to.at(),
            context: context.at().into(),
        });
    }
}

/// Returns the thread that a context is with, the context's offset, and the rest of its refill.
#[inline(always)]
fn state<M: Machine>(machine: &M, at: Ref<Context>) -> (u32, u32, u64) {
    let Context { time, thread, .. } = machine.get(at);
    (thread.at(), at.at(), time.account().left())
}

/// A context has budget again.
#[inline(always)]
pub(crate) fn refill<M: Machine>(machine: &M, context: Ref<Context>) -> Event {
    let (thread, context, rest) = state(machine, context);
    Event::Refill { thread, context, rest }
}
