//! Interrupts as signals.

use crate::{Interrupt, Kernel, Machine, Ref};
use bulkhead_kernel_abi::Kind;

impl<M: Machine> Kernel<'_, M> {
    /// An interrupt came: whoever waits for it is told.
    pub fn interrupt(&mut self, at: Ref<Interrupt>) {
        let interrupt = self.machine.get_mut(at);
        interrupt.pending = 1;
        let cap = interrupt.slot.cap;
        if cap.is(Kind::Notification) {
            self.signal(cap.at(), crate::ipc::bits(cap.data));
        }
        self.decide();
    }
}
