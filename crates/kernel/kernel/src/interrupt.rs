//! Interrupts as signals. A device's message or edge needs nothing but the end of its service; its driver, a thread,
//! knows its meaning. A level-triggered line is kept back until that thread has acknowledged it ([`Interrupt::rests`]).

use crate::fast::Wake;
use crate::{Event, Interrupt, Kernel, Machine, Ref};
use bulkhead_kernel_abi::Kind;

impl<M: Machine> Kernel<'_, M> {
    /// Tells the thread that waits for an interrupt of it.
    pub fn interrupt(&mut self, at: Ref<Interrupt>) {
        if let Some(wake) = self.interrupted(at) {
            self.wake(wake);
        }
    }

    /// Handles the interrupt without the short way, which must not make a difference.
    #[cfg(any(test, feature = "host"))]
    pub fn interrupt_slowly(&mut self, at: Ref<Interrupt>) {
        if let Some(Wake { at, bits }) = self.interrupted(at) {
            self.signal(at, bits);
            self.decide();
        }
    }

    /// Handles an interrupt but for the last step, and returns that, if there is one.
    #[inline(always)]
    pub fn interrupted(&mut self, at: Ref<Interrupt>) -> Option<Wake> {
        let interrupt = self.machine.get_mut(at);
        let Interrupt { state, mask, rests, .. } = *interrupt;
        let (cap, number) = (interrupt.slot.cap, interrupt.number);
        if state == 0 {
            interrupt.state = Interrupt::CAME;
        } else if state == Interrupt::CAME {
            // Its thread is not done with the last one, or out of budget. So a device can't take more of the core's
            // time than two entries into the kernel for each acknowledgement.
            interrupt.state = Interrupt::MASKED;
            self.machine.play(mask);
        }
        self.trace(|_| Event::Interrupt {
            number,
            notification: if cap.is(Kind::Notification) { cap.object } else { 0 },
            again: u64::from(state != rests),
        });
        let bits = crate::ipc::bits(cap.data);
        cap.is(Kind::Notification).then(|| Wake { at: cap.at(), bits })
    }

    /// Lets the next one come.
    pub(crate) fn acknowledge(&mut self, at: Ref<Interrupt>) {
        let Interrupt { state, unmask, rests, .. } = *self.machine.get(at);
        self.machine.get_mut(at).state = rests;
        if state == Interrupt::MASKED {
            self.machine.play(unmask);
        }
    }
}
