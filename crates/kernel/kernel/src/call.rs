//! A thread's calls: the named capabilities are looked up first, then something is done.

use crate::fast::{Quick, Wake};
use crate::invoke::AGAIN;
use crate::ipc::Send;
use crate::lookup::Root;
use crate::{Cap, Core, Kernel, Machine, Ref, Reply, Slot, Thread, lookup};
use bulkhead_kernel_abi::{Address, Code, Info, Kind, Op, Rights, Status};
use bulkhead_sched::Time;

/// Contents of a call's registers.
#[derive(Clone, Copy, Debug)]
struct Call {
    op: u8,
    first: Address,
    second: Address,
    reply: Address,
    info: u64,
}

impl Call {
    /// Tells if an answer lets a thread that raised a fault go on.
    const fn goes_on(&self) -> bool {
        Info(self.info).label() == 0
    }
}

impl<M: Machine> Kernel<'_, M> {
    /// Makes the current thread's call; its registers are saved. Afterwards the current thread is the one that runs
    /// from now on.
    pub fn call(&mut self) {
        if let Some(wake) = self.called() {
            self.wake(wake);
        }
    }

    /// Makes the call but for the last step, and returns that, if there is one.
    #[inline(always)]
    pub fn called(&mut self) -> Option<Wake> {
        let thread = self.core.current;
        let op = self.machine.get(thread).registers.op::<M::Layout>() as u8;
        let done = match op {
            // The commonest calls. Each way may decline, with nothing changed that the general one minds.
            _ if op == Op::Call as u8 => self.fast_call(thread),
            _ if op == Op::ReplyRecv as u8 => self.fast_reply_recv(thread),
            _ if op == Op::NbSend as u8 => self.fast_signal(thread),
            _ if op == Op::Wait as u8 => self.fast_wait(thread),
            _ => None,
        };
        match done {
            Some(Quick::Done) => None,
            Some(Quick::Wake(wake)) => Some(wake),
            Some(Quick::Pass(passed)) => {
                // The next thread is known, so no decision is made.
                self.pass(thread, passed);
                None
            }
            Some(Quick::Invoke(slot)) => {
                self.invoke_of(thread, slot);
                self.decide();
                None
            }
            None => {
                self.slow_call(thread);
                None
            }
        }
    }

    /// Makes the call without the short ways, which must not make a difference.
    #[cfg(any(test, feature = "host"))]
    pub fn call_slowly(&mut self) {
        self.slow_call(self.core.current);
    }

    #[inline(never)]
    fn slow_call(&mut self, thread: Ref<Thread>) {
        let registers = &self.machine.get(thread).registers;
        let (op, named) = (registers.op::<M::Layout>(), registers.named::<M::Layout>());
        let call = Call {
            op: op as u8,
            first: named as Address,
            second: (named >> 32) as Address,
            reply: (op >> 32) as Address,
            info: registers.info::<M::Layout>(),
        };
        // An error is an answer, too: the thread goes on with it.
        if let Err(status) = self.slow(thread, call) {
            self.machine.get_mut(thread).registers.answer::<M::Layout>(status.0, 0, 0);
        }
        self.decide();
    }

    fn slow(&mut self, thread: Ref<Thread>, call: Call) -> Result<(), Status> {
        let Some(op) = Op::new(call.op) else { return Err(Status::new(Code::NoCall, 0, 0)) };
        match op {
            Op::Call => self.call_or_invoke(thread, call),
            Op::Send => self.send_to(thread, call.first, Send::Block),
            Op::NbSend => self.send_to(thread, call.first, Send::Try),
            Op::Reply => {
                let reply = self.reply_object(thread, call.reply)?;
                let context = self.machine.get(thread).context;
                if self.is_borrowed(thread) && self.stacked(reply) == context {
                    // It would have no time to go on with.
                    return Err(Status::new(Code::NoContext, 0, 0));
                }
                // The answer stops a thread that has a link open. Closing it is a call of the monitor, one in each
                // entry: so this call is made again.
                if !call.goes_on() && self.part_caller(reply) {
                    self.machine.get_mut(thread).registers.repeat::<M::Layout>();
                    return Ok(());
                }
                self.answer(thread, reply, 0)?;
                self.machine.get_mut(thread).registers.answer::<M::Layout>(Status::OK.0, 0, 0);
                Ok(())
            }
            Op::ReplyRecv | Op::Recv | Op::Wait | Op::NbSendRecv | Op::NbSendWait => {
                self.receive_call(thread, op, call)
            }
            Op::Yield => {
                self.machine.get_mut(thread).registers.answer::<M::Layout>(Status::OK.0, 0, 0);
                let now = self.now();
                self.core.scheduler.yield_now(&mut crate::core::Store(&mut *self.machine), now);
                self.core.undecided = Core::GIVEN_UP;
                Ok(())
            }
        }
    }

    /// Makes a call that ends with receiving, after an answer or something sent.
    fn receive_call(&mut self, thread: Ref<Thread>, op: Op, call: Call) -> Result<(), Status> {
        let answers = op == Op::ReplyRecv;
        let sends = matches!(op, Op::NbSendRecv | Op::NbSendWait);
        let alone = matches!(op, Op::Wait | Op::NbSendWait);
        let until = if matches!(op, Op::Recv | Op::Wait) { call.info } else { Time::MAX };
        // All names are looked up before the answer: an error later would leave the call half done.
        let cap = self.meeting(thread, call.first, Rights::READ)?;
        let reply = match alone || call.reply == 0 && cap.is(Kind::Notification) {
            // A reply object is of no use with a notification, and need not be named there.
            true => Ref::NONE,
            false => self.reply_object(thread, call.reply)?,
        };
        if answers {
            self.answered(reply, 2)?;
        }
        let to = match sends {
            true => self.meeting(thread, call.second, Rights::WRITE)?,
            false => Cap::NULL,
        };
        let closed = !(answers && call.goes_on()) && self.part_caller(reply);
        if closed || !self.refuse_useless(thread, cap, reply) {
            self.machine.get_mut(thread).registers.repeat::<M::Layout>();
            return Ok(());
        }
        if answers {
            self.answer(thread, reply, 2)?;
        } else if sends {
            // Without a receiver nothing happens.
            let _ = self.send(thread, to, Send::Try);
        }
        self.receive(thread, cap, reply, until)
    }

    fn call_or_invoke(&mut self, thread: Ref<Thread>, call: Call) -> Result<(), Status> {
        let root = Root::of(self.machine, thread);
        let slot = root.slot(self.machine, call.first.into(), 0)?;
        let cap = self.machine.get(slot).cap;
        match cap.is(Kind::Endpoint) {
            true => self.send(thread, cap, Send::Call),
            false => {
                self.invoke_of(thread, slot);
                Ok(())
            }
        }
    }

    /// Calls a method of the capability in a slot, for a thread.
    #[inline(never)]
    fn invoke_of(&mut self, thread: Ref<Thread>, slot: Ref<Slot>) {
        let root = Root::of(self.machine, thread);
        let registers = &self.machine.get(thread).registers;
        let (words, label) =
            (registers.words::<M::Layout>(), Info(registers.info::<M::Layout>()).label());
        let named = registers.named::<M::Layout>() as Address;
        let mut answer = [0; 4];
        let outcome = match self.machine.get(slot).cap.is(Kind::Null) {
            true => Err(Status::new(Code::NoCapability, 0, u64::from(named))),
            false => self.method(root, slot, label, &words, &mut answer),
        };
        if self.core.current != thread {
            // It has deleted itself.
            return;
        }
        let registers = &mut self.machine.get_mut(thread).registers;
        match outcome {
            Ok(first) => {
                answer[0] = first;
                registers.set_words::<M::Layout>(&answer, answer.len());
                registers.answer::<M::Layout>(0, 0, Info::new(0, answer.len()).0);
            }
            Err(AGAIN) => registers.repeat::<M::Layout>(),
            Err(status) => registers.answer::<M::Layout>(status.0, 0, 0),
        }
    }

    fn send_to(&mut self, thread: Ref<Thread>, address: Address, how: Send) -> Result<(), Status> {
        let cap = self.meeting(thread, address, Rights::WRITE)?;
        self.send(thread, cap, how)?;
        // One that waits for a receiver has its answer when that comes.
        if self.machine.get(thread).state == crate::State::Running as u8 {
            self.machine.get_mut(thread).registers.answer::<M::Layout>(Status::OK.0, 0, 0);
        }
        Ok(())
    }

    /// Finds an endpoint or notification, for which a thread has rights.
    #[inline(never)]
    fn meeting(
        &self,
        thread: Ref<Thread>,
        address: Address,
        rights: Rights,
    ) -> Result<Cap, Status> {
        let root = Root::of(self.machine, thread);
        let slot = root.slot(self.machine, address.into(), 0)?;
        let cap = self.machine.get(slot).cap;
        match cap.kind() {
            Kind::Endpoint | Kind::Notification => {
                lookup::check(&cap, rights, 0)?;
                Ok(cap)
            }
            Kind::Null => Err(Status::new(Code::NoCapability, 0, u64::from(address))),
            kind => Err(Status::new(Code::WrongKind, 0, kind as u64)),
        }
    }

    fn reply_object(&self, thread: Ref<Thread>, address: Address) -> Result<Ref<Reply>, Status> {
        if let Some(slot) = self.quick(thread, address, Kind::Reply, Rights::NONE) {
            return Ok(slot.cap.at());
        }
        Root::of(self.machine, thread).object(self.machine, address.into(), Kind::Reply, 2)
    }
}
