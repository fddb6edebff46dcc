//! Calls into the kernel ([`bulkhead_kernel_abi`] has their words).

use crate::arch::{Architecture, Call, This};
use bulkhead_kernel_abi::{Address, Code, Info, Label, Op, Status};
use core::fmt;

/// Words of a message that travel in registers.
pub type Words = [u64; 4];

/// A call that did nothing, or a wait that ended otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(pub Status);

impl Error {
    /// The error's code.
    #[must_use]
    pub fn code(self) -> Option<Code> {
        self.0.code()
    }

    fn of(status: u64) -> Result<(), Self> {
        match Status(status) {
            Status::OK => Ok(()),
            status => Err(Self(status)),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (argument, detail) = (self.0.argument(), self.0.detail());
        match self.0.code() {
            Some(code) => write!(f, "{code:?} (argument {argument}, {detail:#x})"),
            None => write!(f, "status {:#x}", self.0.0),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A message to send: a label and up to four words. Longer ones go through the thread's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Label, length, and a bit for a capability that comes along.
    pub info: Info,
    /// The first words.
    pub words: Words,
}

impl Message {
    /// A message with these words, four at most; others are cut off.
    #[must_use]
    pub fn new(label: u64, words: &[u64]) -> Self {
        let mut all = [0; 4];
        let count = words.len().min(4);
        all[..count].copy_from_slice(&words[..count]);
        Self { info: Info::new(label, count), words: all }
    }

    /// Its subject, as sender and receiver agree.
    #[must_use]
    pub fn label(&self) -> u64 {
        self.info.label()
    }
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender's mark, from the sender's capability; for a notification its bits.
    pub badge: u64,
    /// The message.
    pub message: Message,
}

impl Received {
    /// Tells if a notification came, and not a message.
    #[must_use]
    pub fn is_notification(&self) -> bool {
        self.message.info == Info::NOTIFIED
    }
}

#[inline(always)]
pub(crate) fn raw(op: Op, reply: Address, named: u64, info: u64, words: Words) -> (u64, Received) {
    let operation = op as u64 | u64::from(reply) << 32;
    let Call { operation: status, names: badge, description, words } =
        This::call(Call { operation, names: named, description: info, words });
    (status, Received { badge, message: Message { info: Info(description), words } })
}

#[inline(always)]
pub(crate) fn call(to: Address, message: Message) -> Result<Message, Error> {
    let (status, received) = raw(Op::Call, 0, to.into(), message.info.0, message.words);
    Error::of(status)?;
    Ok(received.message)
}

#[inline(always)]
pub(crate) fn send(op: Op, reply: Address, to: Address, message: Message) -> Result<(), Error> {
    let (status, _) = raw(op, reply, to.into(), message.info.0, message.words);
    Error::of(status)
}

#[inline(always)]
pub(crate) fn receive(
    op: Op,
    reply: Address,
    from: Address,
    until: u64,
) -> Result<Received, Error> {
    let (status, received) = raw(op, reply, from.into(), until, [0; 4]);
    Error::of(status)?;
    Ok(received)
}

#[inline(always)]
pub(crate) fn reply_receive(
    reply: Address,
    from: Address,
    message: Message,
) -> Result<Received, Error> {
    let (status, received) = raw(Op::ReplyRecv, reply, from.into(), message.info.0, message.words);
    Error::of(status)?;
    Ok(received)
}

/// Sends if a receiver waits, and receives from another object, in one step.
pub(crate) fn send_receive(
    op: Op,
    reply: Address,
    [to, from]: [Address; 2],
    message: Message,
) -> Result<Received, Error> {
    let named = u64::from(from) | u64::from(to) << 32;
    let (status, received) = raw(op, reply, named, message.info.0, message.words);
    Error::of(status)?;
    Ok(received)
}

/// Calls a method of a kernel object ([`bulkhead_kernel_abi::label`]).
///
/// # Errors
/// As the method's description says.
pub fn invoke(on: Address, method: Label, words: Words) -> Result<Words, Error> {
    let message = Message { info: Info::new(method, words.len()), words };
    Ok(call(on, message)?.words)
}
