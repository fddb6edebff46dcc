use crate::numbered::numbered;

numbered! {
/// Operation of a call: the low byte of its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Send to the capability and wait for the answer. On a capability of the kernel's own objects: a
    /// method ([`crate::label`]), answered at once.
    Call = 0,
    /// Answer through the reply object, then receive from the capability, again with this reply object.
    ReplyRecv = 1,
    /// Receive from the endpoint or notification until the deadline; the reply object is for a caller. Deadlines are
    /// nanoseconds since the processor's start, by its counter.
    /// One that is past, such as 0, polls; [`u64::MAX`] never comes.
    Recv = 2,
    /// As `Recv`, without a reply object: callers' messages are refused to them, and no context is taken over from one.
    Wait = 3,
    /// Send to the capability, and wait until it is received. To a notification: signal it, with the badge's
    /// bits; without a badge bit 0.
    Send = 4,
    /// Send to the capability if somebody waits there; otherwise nothing happens.
    NbSend = 5,
    /// [`Op::NbSend`] to the second capability, then [`Op::Recv`] from the first one, in one step, without a deadline.
    NbSendRecv = 6,
    /// [`Op::NbSend`] to the second capability, then [`Op::Wait`] on the first one, in one step, without a deadline.
    NbSendWait = 7,
    /// Answer through the reply object, nothing else. Refused to a thread that runs on the time of the caller that it
    /// would answer.
    Reply = 8,
    /// Give up what is left of the budget until it is refilled, which is no timeout; last of its
    /// priority then.
    Yield = 9,
}
}
