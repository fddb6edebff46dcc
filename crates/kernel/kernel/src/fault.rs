//! Events that a thread can't settle itself: exceptions, and the end of its budget. A message in the thread's name goes
//! to its handler. Without a handler the thread stops, and the console says so.

use crate::{Context, Event, Kernel, Layout, Line, Machine, Place, Ref, State, Thread};
use bulkhead_kernel_abi::{Info, Kind, label};
use bulkhead_sched::Time;

/// An exception, as a message has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Its number.
    pub number: u8,
    /// Its error code, 0 if it has none.
    pub error: u32,
    /// The address that was touched, 0 if none was.
    pub address: u64,
}

impl<M: Machine> Kernel<'_, M> {
    /// Handles an exception of the current thread.
    pub fn exception(&mut self, exception: Exception) {
        let thread = self.core.current;
        if thread.is_none() {
            return;
        }
        // It is on its way out already: this exception is its next step.
        if self.machine.get(thread).flags & Thread::ENDS != 0 {
            self.ends(thread);
            return self.decide();
        }
        self.trace(|_| Event::Fault {
            thread: thread.at(),
            number: exception.number.into(),
            address: exception.address,
        });
        let Thread { registers, number, .. } = *self.machine.get(thread);
        let what = u64::from(exception.number) | u64::from(exception.error) << 8;
        let words = [what, registers.ip::<M::Layout>(), exception.address, u64::from(number)];
        if !self.tell(thread, Place::Fault, label::FAULT, words) {
            let mut line = Line::default();
            line.decimal("thread ", number.into()).decimal(": exception ", exception.number.into());
            line.hex(" (", exception.error.into()).hex(") at ", registers.ip::<M::Layout>());
            line.hex(", address ", exception.address)
                .text("; it has no fault handler, and is stopped");
            self.machine.print(line.end());
            // Its instruction is kept: `ends` puts another one there until all links are closed.
            self.machine.get_mut(thread).raised_at = registers.ip::<M::Layout>();
            self.ends(thread);
        }
        self.decide();
    }

    /// Ends a thread that goes no further. It closes a link that it has opened, while it still pays for that itself;
    /// when none is left it stops. Until then it goes on at an address where no program has an instruction. So it comes
    /// back by an exception, with all other interrupts and timers in between.
    fn ends(&mut self, thread: Ref<Thread>) {
        let parts = self.part_once(thread);
        let ends = self.machine.get_mut(thread);
        let goes_on = if parts { crate::space::user_end::<M>() } else { ends.raised_at };
        ends.registers.0[<M::Layout as Layout>::IP] = goes_on;
        if parts {
            ends.flags |= Thread::ENDS;
        } else {
            ends.flags &= !Thread::ENDS;
            self.halt(thread);
        }
    }

    /// Handles a context that ran and has no budget any more, or is simply not first. The thread's timeout handler is
    /// told of an end of budget, unless the thread has given its budget up.
    pub(crate) fn exhausted(&mut self, context: Ref<Context>, now: Time, given_up: bool) {
        if self.overrun(context) {
            return;
        }
        let Context { time, thread, .. } = *self.machine.get(context);
        // In the background the end of a budget is not an end.
        let goes_on = time.is_in_background() || time.account().eligible() <= now;
        if thread.is_none() || !time.is_wanted() || goes_on {
            return;
        }
        let Thread { state, slots, number, .. } = *self.machine.get(thread);
        let handled = slots[Place::Timeout as usize - 1].cap.is(Kind::Endpoint);
        // A thread that waits, or has given the rest up, has lost nothing.
        let handled = handled && state == State::Running as u8 && !given_up;
        self.trace(|_| Event::Over {
            thread: thread.at(),
            context: context.at(),
            handled: handled.into(),
        });
        if handled {
            let words = self.timeout_words(context, number);
            self.tell(thread, Place::Timeout, label::TIMEOUT, words);
        }
    }

    /// Tells if a call has taken longer than its endpoint's `longest`. That is a fault of the running server. Its
    /// handler of timeouts is told, or it is stopped, so that no caller waits for it longer than is known.
    pub(crate) fn overrun(&mut self, context: Ref<Context>) -> bool {
        let Context { time, thread, .. } = *self.machine.get(context);
        let runs =
            |thread: &Ref<crate::Thread>| self.machine.get(*thread).state == State::Running as u8;
        let Some(thread) = thread.some().filter(|thread| time.has_overrun() && runs(thread)) else {
            return false;
        };
        self.machine.get_mut(context).time.forget_overrun();
        let number = self.machine.get(thread).number;
        let words = self.timeout_words(context, number);
        let handled = self.tell(thread, Place::Timeout, label::TIMEOUT, words);
        self.trace(|_| Event::Over {
            thread: thread.at(),
            context: context.at(),
            handled: handled.into(),
        });
        if !handled {
            let goes_on = self.machine.get(thread).registers.ip::<M::Layout>();
            self.machine.get_mut(thread).raised_at = goes_on;
            self.ends(thread);
            let mut line = Line::default();
            line.decimal("thread ", number.into());
            line.text(
                ": a call takes longer than its endpoint's longest; it has no timeout handler, ",
            );
            line.text("and is stopped");
            self.machine.print(line.end());
        }
        true
    }

    /// Returns the words that tell a handler of the end of a budget.
    #[inline(always)]
    pub(crate) fn timeout_words(&mut self, context: Ref<Context>, number: u32) -> [u64; 4] {
        let context = self.machine.get_mut(context);
        [context.badge, context.time.take_consumed(), 0, u64::from(number)]
    }

    /// Calls a handler in a thread's name. False: it has none that could take it.
    fn tell(&mut self, thread: Ref<Thread>, place: Place, label: u64, words: [u64; 4]) -> bool {
        let told = self.machine.get_mut(thread);
        let cap = told.slots[place as usize - 1].cap;
        if !cap.is(Kind::Endpoint) {
            return false;
        }
        told.flags |= Thread::FAULTS;
        let [a, b, c, d] = words;
        // Beside its registers, which it needs unchanged to go on.
        told.fault = [Info::new(label, words.len()).0, a, b, c, d];
        let told = self.send(thread, cap, crate::ipc::Send::Call).is_ok();
        if !told {
            self.machine.get_mut(thread).flags &= !Thread::FAULTS;
        }
        told
    }

    /// Lets a thread that was answered go on, or says that it shall not. The answer is carried over, unless the thread
    /// had only raised a fault: then its registers are its own.
    pub(crate) fn goes_on(&mut self, from: Ref<Thread>, caller: Ref<Thread>) -> bool {
        let faulted = self.machine.get(caller).flags & Thread::FAULTS != 0;
        if !faulted {
            self.carry(from, caller, 0, true);
            return true;
        }
        // An answer to a fault carries nothing: only its label counts.
        self.machine.get_mut(caller).flags &= !Thread::FAULTS;
        Info(self.machine.get(from).registers.info::<M::Layout>()).label() == 0
    }
}
