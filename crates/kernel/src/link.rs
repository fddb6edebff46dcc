//! Slots of channels that are made at run time (`docs/connecting.md`), in the hands of programs. The monitor says who
//! has what; the kernel asks it in a program's name, and shows the program what the sandbox has: so one that touches
//! what is closed raises an exception of its own, where a denied access would end the sandbox.
//!
//! It keeps true: what a program sees, the sandbox has. A slot is shown after the monitor's `OK`, and taken out of the
//! program's memory before the monitor is asked to close it. What the other end takes away meanwhile stays: pages in
//! place of it lie there until this end closes. A slot is closed with the thread that opened it, and with the
//! capability.

use crate::invoke::{Outcome, below, no_call};
use crate::lookup::check;
use crate::{Cap, Kernel, Link, Machine, Place, Ref, Reply, Slot, Thread, space, tree};
use bulkhead_kernel_abi::{Code, Kind, Label, Rights, Status, label};
use bulkhead_layout::hypercall::{ACCEPT, BUSY, CLOSE, OFFER, OK, SLOT};

impl<M: Machine> Kernel<'_, M> {
    #[inline(never)]
    pub(crate) fn link(&mut self, slot: Ref<Slot>, method: Label, words: &[u64; 4]) -> Outcome {
        let cap = self.machine.get(slot).cap;
        let at: Ref<Link> = cap.at();
        let Link { number, to, .. } = *self.machine.get(at);
        let number = u64::from(number);
        match method {
            label::LOOK => {
                check(&cap, Rights::READ, 0)?;
                let which = below(words[0], 2, 1)?;
                Ok(self.machine.ask(SLOT, number, which))
            }
            label::OFFER => {
                check(&cap, Rights::WRITE, 0)?;
                // The monitor would leave a record, or end the sandbox.
                if words[0] >= u32::BITS.into() || to >> words[0] & 1 == 0 {
                    return Err(Status::new(Code::NoAuthority, 1, to.into()));
                }
                let tag = below(words[1], 1 << 16, 2)?;
                Ok(self.open(slot, [OFFER, words[0], number | tag << 16]))
            }
            label::ACCEPT => {
                check(&cap, Rights::WRITE, 0)?;
                let epoch = below(words[0], 1 << 32, 1)?;
                Ok(self.open(slot, [ACCEPT, number, epoch]))
            }
            label::CLOSE => {
                check(&cap, Rights::WRITE, 0)?;
                Ok(self.close(at))
            }
            _ => no_call(),
        }
    }

    /// A call after which the sandbox has the slot, if the monitor says so.
    fn open(&mut self, slot: Ref<Slot>, [call, first, second]: [u64; 3]) -> u64 {
        let answer = self.machine.ask(call, first, second);
        if answer != OK {
            return answer;
        }
        let (at, thread) = (self.machine.get(slot).cap.at::<Link>(), self.core.current);
        let link = self.machine.get_mut(at);
        (link.open, link.thread) = (1, thread);
        link.uses += 1;
        let uses = link.uses;
        self.machine.get_mut(slot).cap.data = uses;
        if let Some(thread) = thread.some() {
            self.machine.get_mut(thread).flags |= Thread::LINKS;
        }
        space::set_link(self, at, true);
        answer
    }

    fn close(&mut self, at: Ref<Link>) -> u64 {
        space::set_link(self, at, false);
        let number = self.machine.get(at).number;
        let answer = self.machine.ask(CLOSE, number.into(), 0);
        // Another core of the sandbox would have to be at it, and there is none.
        if answer != BUSY {
            let link = self.machine.get_mut(at);
            (link.open, link.thread) = (0, Ref::NONE);
        }
        answer
    }

    /// A capability goes: the use that began by it is over.
    pub(crate) fn end_use(&mut self, cap: &Cap) {
        let Link { open, uses, .. } = *self.machine.get(cap.at());
        if open != 0 && cap.data == uses {
            self.close(cap.at());
        }
    }

    /// A thread that raised a fault, and may not go on: closes one of those that it has opened; whether there was one.
    pub(crate) fn part_faulted(&mut self, thread: Ref<Thread>) -> bool {
        self.machine.get(thread).flags & Thread::FAULTS != 0 && self.part_once(thread)
    }

    /// The same of who waits for an answer, which is not given or lets it not go on.
    pub(crate) fn part_caller(&mut self, reply: Ref<Reply>) -> bool {
        let caller = reply.some().map_or(Ref::NONE, |reply| self.machine.get(reply).caller);
        caller.some().is_some_and(|caller| self.part_faulted(caller))
    }

    /// A thread ends or begins anew: nobody goes on with what it has opened. Closes one of those; whether there was
    /// one. Each is a call of the monitor, so an entry of the kernel has one at most, and whoever is at it comes again.
    #[inline(always)]
    pub(crate) fn part_once(&mut self, thread: Ref<Thread>) -> bool {
        let opened = self.machine.get(thread).flags & Thread::LINKS != 0;
        opened && self.close_first(thread)
    }

    #[inline(never)]
    fn close_first(&mut self, thread: Ref<Thread>) -> bool {
        let all = (0..self.core.link_count).map(|n| self.core.links.nth(n));
        let own = |at: &Ref<Link>| {
            let Link { thread: by, open, .. } = *self.machine.get(*at);
            open != 0 && by == thread
        };
        let Some(at) = { all }.find(own) else {
            self.machine.get_mut(thread).flags &= !Thread::LINKS;
            return false;
        };
        self.close(at);
        self.machine.get_mut(at).thread = Ref::NONE;
        // It took time, which is not to be that of whoever runs next.
        self.core.now = 0;
        true
    }

    /// Makes a link's object behind those that there are, which no call can: `to` is the set of sandboxes to whom the
    /// slot may be offered, `table` the one that maps its memory, `space` the slot with the space in which it is to be
    /// seen.
    pub fn make_link(
        &mut self,
        at: u32,
        [number, to]: [u32; 2],
        table: u32,
        space: Ref<Slot>,
    ) -> Cap {
        self.machine.clear(at, size_of::<Link>() as u32);
        self.machine.note(at, size_of::<Link>() as u32, Some(Kind::Link));
        let link = self.machine.get_mut(Ref::<Link>::new(at));
        (link.number, link.to, link.table) = (number, to, Ref::new(table));
        link.slot.place = Place::Link as u16;
        let cap = self.machine.get(space).cap;
        tree::insert(self.machine, space, Ref::new(at), Cap { flags: 0, ..cap });
        if self.core.link_count == 0 {
            self.core.links = Ref::new(at);
        }
        self.core.link_count += 1;
        Cap::original(Kind::Link, at, 6)
    }
}
