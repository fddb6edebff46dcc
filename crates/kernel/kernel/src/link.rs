//! Links (`docs/links.md`), in the hands of programs. The monitor knows each sandbox's links. The kernel asks it in a
//! program's name, and shows the program the open ones. So a program that touches a closed link raises an exception of
//! its own, where a denied access would end the sandbox.
//!
//! It keeps this true: a link that a program sees, the sandbox has. A link is shown after the monitor's `OK`, and taken
//! out of the program's memory before the monitor is asked to close it. A link that the other end takes away meanwhile
//! stays: pages in place of it lie there until this end closes. A link is closed with the thread that opened it, and
//! with the capability.

use crate::invoke::{Outcome, below, no_call};
use crate::lookup::check;
use crate::{Cap, Kernel, Link, Machine, Place, Ref, Reply, Slot, Thread, space, tree};
use bulkhead_kernel_abi::{Code, Kind, Label, Rights, Status, label};
use bulkhead_layout::hypercall::{ACCEPT, BUSY, CLOSE, LOOK, OFFER, OK};

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
                Ok(self.machine.ask(LOOK, number, which))
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

    /// Makes a call after which the sandbox has the link, if the monitor says so.
    fn open(&mut self, slot: Ref<Slot>, [call, first, second]: [u64; 3]) -> u64 {
        // First the monitor, then the program: what is shown is always the sandbox's.
        let answer = self.machine.ask(call, first, second);
        if answer != OK {
            return answer;
        }
        let (at, thread) = (self.machine.get(slot).cap.at::<Link>(), self.core.current);
        let link = self.machine.get_mut(at);
        // The thread is noted, since the link is closed with it.
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
        // In this order a program's late access is its own exception, not the sandbox's end.
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

    /// Ends the use of a link that began by a capability, which goes.
    pub(crate) fn end_use(&mut self, cap: &Cap) {
        let Link { open, uses, .. } = *self.machine.get(cap.at());
        // Another capability of the link may have begun the present use.
        if open != 0 && cap.data == uses {
            self.close(cap.at());
        }
    }

    /// Closes one of the links that a thread has opened, if it raised a fault and may not go on. Returns true if there
    /// was one.
    pub(crate) fn part_faulted(&mut self, thread: Ref<Thread>) -> bool {
        self.machine.get(thread).flags & Thread::FAULTS != 0 && self.part_once(thread)
    }

    /// Does so for a thread that waits for an answer, if that is not given or does not let it go on.
    pub(crate) fn part_caller(&mut self, reply: Ref<Reply>) -> bool {
        let caller = reply.some().map_or(Ref::NONE, |reply| self.machine.get(reply).caller);
        caller.some().is_some_and(|caller| self.part_faulted(caller))
    }

    /// Closes one of a thread's links, and returns true if there was one. The thread ends or begins anew: no thread
    /// goes on with its links. Each is a call of the monitor, so an entry of the kernel has one at most. The ending
    /// thread, or its deleter, comes again.
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
        // It took time, which is not to be charged to the next thread.
        self.core.now = 0;
        true
    }

    /// Makes a link's object behind the present ones, which no call can. `to` is the set of sandboxes that the link may
    /// be offered to. `table` maps its memory, and `space` is the slot with the space in which it is seen.
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
