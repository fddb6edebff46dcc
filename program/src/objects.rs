//! Objects that a program has capabilities of.

use crate::call::{
    Error, Message, Received, call, invoke, receive, reply_receive, send, send_receive,
};
use crate::time::FOREVER;
use bulkhead_kernel_abi::{Address, Label, Op, Policy, label, slot};

/// Where threads meet to exchange messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint(pub Address);

/// Bits to set and wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification(pub Address);

/// Through which a thread answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply(pub Address);

/// A thread that this program manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(pub Address);

/// A scheduling context that this program manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context(pub Address);

/// An interrupt that this program handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler(pub Address);

impl Endpoint {
    /// Sends a message and waits for the answer; a server without a context works on this thread's.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Cancelled`]: the thread that took it will not answer.
    #[inline(always)]
    pub fn call(self, message: Message) -> Result<Message, Error> {
        call(self.0, message)
    }

    /// Sends a message and waits until it is received.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::NoContext`]: the receiver works for callers only.
    pub fn send(self, message: Message) -> Result<(), Error> {
        send(Op::Send, 0, self.0, message)
    }

    /// Sends a message if a receiver waits for it.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::WouldBlock`], and as [`Endpoint::send`].
    pub fn try_send(self, message: Message) -> Result<(), Error> {
        send(Op::NbSend, 0, self.0, message)
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Cancelled`].
    pub fn receive(self, reply: Reply) -> Result<Received, Error> {
        receive(Op::Recv, reply.0, self.0, FOREVER)
    }

    /// Waits for a message until a time, in nanoseconds of [`crate::now`].
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::TimedOut`], [`bulkhead_kernel_abi::Code::Cancelled`].
    pub fn receive_until(self, reply: Reply, until: u64) -> Result<Received, Error> {
        receive(Op::Recv, reply.0, self.0, until)
    }

    /// Answers the last caller and waits for the next message.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::BadState`]: no caller waits for an answer.
    #[inline(always)]
    pub fn reply_receive(self, reply: Reply, message: Message) -> Result<Received, Error> {
        reply_receive(reply.0, self.0, message)
    }

    /// Sends a message to another endpoint if a receiver waits there, and waits for the next one here, in one step.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Cancelled`].
    pub fn try_send_receive(
        self,
        reply: Reply,
        to: Endpoint,
        message: Message,
    ) -> Result<Received, Error> {
        send_receive(Op::NbSendRecv, reply.0, [to.0, self.0], message)
    }
}

impl Reply {
    /// Answers the last caller.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::BadState`]: no caller waits for an answer.
    pub fn answer(self, message: Message) -> Result<(), Error> {
        send(Op::Reply, self.0, 0, message)
    }
}

impl Notification {
    /// Sets its bits.
    #[inline(always)]
    pub fn signal(self) {
        // The manifest has settled all that can be wrong with it.
        let _ = send(Op::NbSend, 0, self.0, Message::default());
    }

    /// Waits until bits are set, and takes them.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Cancelled`].
    #[inline(always)]
    pub fn wait(self) -> Result<u64, Error> {
        self.wait_until(FOREVER)
    }

    /// Waits until a time at most, in nanoseconds of [`crate::now`].
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::TimedOut`], [`bulkhead_kernel_abi::Code::Cancelled`].
    #[inline(always)]
    pub fn wait_until(self, until: u64) -> Result<u64, Error> {
        Ok(receive(Op::Wait, 0, self.0, until)?.badge)
    }

    /// Sets another one's bits, and waits until bits of this one are set, in one step.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Cancelled`].
    pub fn signal_wait(self, other: Notification) -> Result<u64, Error> {
        Ok(send_receive(Op::NbSendWait, 0, [other.0, self.0], Message::default())?.badge)
    }
}

impl Thread {
    fn method(self, method: Label, words: [u64; 4]) -> Result<(), Error> {
        invoke(self.0, method, words).map(drop)
    }

    /// Gives it a priority, and the greatest that it may give others, by the authority of another thread.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::NoAuthority`]: more than that one's greatest.
    pub fn set_priority(self, priority: u8, most: u8, authority: Thread) -> Result<(), Error> {
        let words = [priority.into(), most.into(), authority.0.into(), 0];
        self.method(label::SET_PRIORITY, words)
    }

    /// Returns its instruction, stack, the word of a call's operation and status, and flags.
    ///
    /// # Errors
    /// The manifest rules all of them out.
    pub fn registers(self) -> Result<[u64; 4], Error> {
        invoke(self.0, label::READ_REGISTERS, [0; 4])
    }

    /// Where it runs when it goes on: instruction, stack, and its function's first two arguments.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::OutOfRange`].
    pub fn set_registers(self, words: [u64; 4]) -> Result<(), Error> {
        self.method(label::WRITE_REGISTERS, words)
    }

    /// Writes the registers and lets the thread run from there on, if it has a context.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::OutOfRange`]; [`bulkhead_kernel_abi::Code::BadState`]: it has no address space.
    pub fn start(self, words: [u64; 4]) -> Result<(), Error> {
        self.method(label::START, words)
    }

    /// Where its exceptions go.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::NoRight`]: it cannot be called.
    pub fn set_fault(self, handler: Endpoint) -> Result<(), Error> {
        self.method(label::SET_FAULT, [handler.0.into(), 0, 0, 0])
    }

    /// Also receives a notification where it receives messages; `None`: no more.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Occupied`]: it is some thread's already.
    pub fn bind_notification(self, notification: Option<Notification>) -> Result<(), Error> {
        let address = notification.map_or(0, |notification| notification.0);
        self.method(label::BIND_NOTIFICATION, [address.into(), 0, 0, 0])
    }

    /// Tells if it uses vector registers (`SET_FPU`).
    ///
    /// # Errors
    /// The manifest rules all of them out.
    pub fn set_vectors(self, uses: bool) -> Result<(), Error> {
        self.method(label::SET_FPU, [uses.into(), 0, 0, 0])
    }

    /// Where [`crate::local!`] variables, and those of C, are looked for: a word that points to itself, with the
    /// thread's copy of them below. Threads of the manifest have theirs from the start.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::OutOfRange`]: beyond the program's half.
    pub fn set_pointer(self, pointer: u64) -> Result<(), Error> {
        self.method(label::SET_POINTER, [pointer, 0, 0, 0])
    }

    /// Where the ends of its budgets go.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::NoRight`]: it cannot be called.
    pub fn set_timeout(self, handler: Endpoint) -> Result<(), Error> {
        self.method(label::SET_TIMEOUT, [handler.0.into(), 0, 0, 0])
    }

    /// It runs, or goes on.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::BadState`].
    pub fn resume(self) -> Result<(), Error> {
        self.method(label::RESUME, [0; 4])
    }

    /// It stops.
    ///
    /// # Errors
    /// The manifest rules all of them out.
    pub fn suspend(self) -> Result<(), Error> {
        self.method(label::SUSPEND, [0; 4])
    }
}

impl Context {
    /// Gives it time, by the authority of the core's control: budget and period in nanoseconds. For a PIBS context the
    /// first is its utilization in millionths.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::OutOfRange`], [`bulkhead_kernel_abi::Code::NoCapability`].
    pub fn configure(
        self,
        policy: Policy,
        budget: u64,
        period: u64,
        badge: u64,
    ) -> Result<(), Error> {
        let first = u64::from(self.0) | (policy as u64) << 32;
        invoke(slot::CONTROL, label::SET_CONTEXT, [first, budget, period, badge]).map(drop)
    }

    /// Gives it to a thread.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::Occupied`].
    pub fn bind(self, thread: Thread) -> Result<(), Error> {
        invoke(self.0, label::BIND, [thread.0.into(), 0, 0, 0]).map(drop)
    }

    /// Lends it to a thread until that waits for messages: so it begins, and is a passive server then.
    ///
    /// # Errors
    /// As [`Context::bind`].
    pub fn lend(self, thread: Thread) -> Result<(), Error> {
        invoke(self.0, label::BIND, [thread.0.into(), 1, 0, 0]).map(drop)
    }

    /// Takes it from the thread or notification that it is bound to.
    ///
    /// # Errors
    /// The manifest rules all of them out.
    pub fn unbind(self) -> Result<(), Error> {
        invoke(self.0, label::UNBIND, [0; 4]).map(drop)
    }

    /// How long it ran since this was asked last, in nanoseconds.
    ///
    /// # Errors
    /// The manifest rules all of them out.
    pub fn consumed(self) -> Result<u64, Error> {
        Ok(invoke(self.0, label::CONSUMED, [0; 4])?[0])
    }

    /// Its thread is the first of its priority now.
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::BadState`]: it does not want to run.
    pub fn yield_to(self) -> Result<(), Error> {
        invoke(self.0, label::YIELD_TO, [0; 4]).map(drop)
    }

    /// Its work is now for another context (PIBS).
    ///
    /// # Errors
    /// [`bulkhead_kernel_abi::Code::OutOfRange`]: that one's period is too short.
    pub fn serve(self, other: Context) -> Result<(), Error> {
        invoke(self.0, label::SERVE, [other.0.into(), 0, 0, 0]).map(drop)
    }
}

impl Handler {
    /// The next interrupt may come.
    ///
    /// # Errors
    /// The manifest rules all of them out.
    pub fn acknowledge(self) -> Result<(), Error> {
        invoke(self.0, label::ACKNOWLEDGE, [0; 4]).map(drop)
    }
}
