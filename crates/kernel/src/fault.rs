//! What a thread can't settle itself: exceptions, and the end of its budget. A message in the
//! thread's name to whoever handles it; without a handler the thread stops, and the console says so.

use crate::{Context, Event, Kernel, Machine, Place, Ref, State, Thread};
use bulkhead_kernel_abi::{Info, Kind, label};
use bulkhead_sched::Time;
use core::fmt::Write;

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
    /// The current thread raised an exception.
    pub fn exception(&mut self, exception: Exception) {
        let thread = self.core.current;
        if thread.is_none() {
            return;
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
            self.stop(thread, State::Stopped, Time::MAX);
            let mut text = Text { machine: &mut *self.machine };
            let Exception { number: vector, error, address } = exception;
            let ip = registers.ip::<M::Layout>();
            // Into a console that takes everything.
            let _ = writeln!(
                text,
                "thread {number}: exception {vector} ({error:#x}) at {ip:#x}, address {address:#x}; it has no fault handler, and is stopped"
            );
        }
        self.decide();
    }

    /// A context that ran has no budget any more, or is simply not first: whoever handles the end of a
    /// thread's budget is told.
    pub(crate) fn exhausted(&mut self, context: Ref<Context>, now: Time) {
        let Context { time, thread, badge, .. } = *self.machine.get(context);
        // In the background the end of a budget is not an end.
        let goes_on = time.is_in_background() || time.account().eligible() <= now;
        if thread.is_none() || !time.is_wanted() || goes_on {
            return;
        }
        let Thread { state, slots, number, .. } = *self.machine.get(thread);
        let handled = slots[Place::Timeout as usize - 1].cap.is(Kind::Endpoint);
        let handled = handled && state == State::Running as u8;
        self.trace(|_| Event::Over {
            thread: thread.at(),
            context: context.at(),
            handled: handled.into(),
        });
        if handled {
            let ran = self.machine.get_mut(context).time.take_consumed();
            let words = [badge, ran, 0, u64::from(number)];
            self.tell(thread, Place::Timeout, label::TIMEOUT, words);
        }
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
        told.fault = [Info::new(label, words.len()).0, a, b, c, d];
        let told = self.send(thread, cap, crate::ipc::Send::Call).is_ok();
        if !told {
            self.machine.get_mut(thread).flags &= !Thread::FAULTS;
        }
        told
    }

    /// Lets a thread that was answered go on, or says that it shall not. What it was answered is carried over,
    /// unless it had only raised a fault: then its registers are its own.
    pub(crate) fn goes_on(&mut self, from: Ref<Thread>, caller: Ref<Thread>) -> bool {
        let faulted = self.machine.get(caller).flags & Thread::FAULTS != 0;
        if !faulted {
            self.carry(from, caller, 0, true);
            return true;
        }
        self.machine.get_mut(caller).flags &= !Thread::FAULTS;
        Info(self.machine.get(from).registers.info::<M::Layout>()).label() == 0
    }
}

/// The console, as text is written to it.
struct Text<'a, M> {
    machine: &'a mut M,
}

impl<M: Machine> Write for Text<'_, M> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.machine.print(text.as_bytes());
        Ok(())
    }
}
