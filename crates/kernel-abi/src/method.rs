/// What a method is called: the [`crate::Info`]'s label of a call on a capability of a kernel object.
pub type Label = u64;

/// The methods. Words are numbered from 1; all fit into registers. Addresses of capabilities are
/// those of the caller.
pub mod label {
    use super::Label;

    /// Untyped: make objects. 1: kind, or'ed with size in bits (of a node: slots; of a context:
    /// refills; of a frame: 12 or 21; of untyped memory: bytes; else 0) shifted by 8, and count
    /// (1 to 256) shifted by 16; 2: node in whose slots the capabilities go; 3: first slot. All
    /// slots have to be empty. May be interrupted and begins again by itself.
    pub const RETYPE: Label = 1;

    /// Node: derive a capability. 1: slot; 2: the capability to derive from; 3: rights that it
    /// keeps; 4: badge (endpoint and notification without one), or 0.
    pub const COPY: Label = 10;
    /// Node: move a capability into a slot. 1: slot; 2: the capability.
    pub const MOVE: Label = 11;
    /// Node: delete the capability in a slot, and those derived from it. 1: slot. May be
    /// interrupted and begins again by itself.
    pub const DELETE: Label = 12;
    /// Node: delete those derived from the capability in a slot. 1: slot. As `DELETE`.
    pub const REVOKE: Label = 13;

    /// Thread: what it can name. 1: node; 2: space; 3: frame of its buffer, or 0; 4: address of
    /// the buffer within the frame. The thread keeps capabilities of its own, derived from these.
    pub const CONFIGURE: Label = 20;
    /// Thread: 1: priority; 2: greatest priority that it may give others; 3: thread whose
    /// greatest priority is the authority.
    pub const SET_PRIORITY: Label = 21;
    /// Thread: where its faults go. 1: endpoint, with `WRITE` and `CALL`; 0: nowhere.
    pub const SET_FAULT: Label = 22;
    /// Thread: where the ends of its budgets go. 1: as `SET_FAULT`.
    pub const SET_TIMEOUT: Label = 23;
    /// Thread: 1: instruction; 2: stack; 3: RDI; 4: RSI. It keeps its state otherwise.
    pub const WRITE_REGISTERS: Label = 24;
    /// Thread: answers instruction, stack, RAX, flags.
    pub const READ_REGISTERS: Label = 25;
    /// Thread: it runs, or goes on, if it has a context.
    pub const RESUME: Label = 26;
    /// Thread: it stops where it is; what it waits for is cancelled.
    pub const SUSPEND: Label = 27;
    /// Thread: also receive this notification where it receives messages. 1: notification, with
    /// `READ`; 0: no more.
    pub const BIND_NOTIFICATION: Label = 28;
    /// Thread: 1: 1 if it uses vector registers, else 0.
    pub const SET_FPU: Label = 29;

    /// Table: put it where it is missing. 1: space; 2: address.
    pub const MAP_TABLE: Label = 40;
    /// Table: take it out.
    pub const UNMAP_TABLE: Label = 41;
    /// Frame: 1: space; 2: address; 3: rights.
    pub const MAP: Label = 42;
    /// Frame: take it out.
    pub const UNMAP: Label = 43;
    /// Frame: answers its address for devices.
    pub const PHYSICAL: Label = 44;

    /// Context: give it to a thread or notification that has none. 1: that.
    pub const BIND: Label = 50;
    /// Context: take it from whom it is bound to.
    pub const UNBIND: Label = 51;
    /// Context: answers how long it ran since this was asked last, ns.
    pub const CONSUMED: Label = 52;
    /// Context: its thread is first of its priority now. Answers as `CONSUMED`.
    pub const YIELD_TO: Label = 53;
    /// Context, PIBS: its work is now for another context. 1: that.
    pub const SERVE: Label = 54;

    /// Control: 1: context, or'ed with a [`super::Policy`] shifted by 32 and 1 << 40 for a background
    /// one; 2: budget, ns (PIBS: utilization in millionths); 3: period, ns; 4: badge in timeout
    /// messages.
    pub const SET_CONTEXT: Label = 60;

    /// Interrupt, with `WRITE`: 1: notification, with `WRITE`; its badge is signalled. 0: nobody.
    pub const SET_NOTIFICATION: Label = 70;
    /// Interrupt: the next one may come.
    pub const ACKNOWLEDGE: Label = 71;

    /// Ports: 1: port; 2: bytes (1, 2, 4). Answers what was read.
    pub const IN: Label = 80;
    /// Ports: 1: port; 2: bytes; 3: value.
    pub const OUT: Label = 81;

    /// What a thread's fault endpoint is called with: an exception. 1: its number, or'ed with its
    /// error code shifted by 8; 2: instruction; 3: address that was touched; 4: number of the
    /// thread. An answer with label 0 lets it go on, any other stops it.
    pub const FAULT: Label = 100;
    /// What a thread's timeout endpoint is called with: the budget has ended. 1: the context's badge;
    /// 2: how long it ran, as `CONSUMED`; 3: 0; 4: number of the thread. Answered as `FAULT`.
    pub const TIMEOUT: Label = 101;

    /// Sandbox, with `WRITE`: 1 to 4: bytes for its console, the first one lowest, up to the first 0.
    pub const PRINT: Label = 90;
    /// Sandbox, with `EXECUTE`: it has started.
    pub const READY: Label = 91;
    /// Sandbox, with `EXECUTE`: it ends. 1: exit code.
    pub const EXIT: Label = 92;
}

/// How a context's budget comes back (`bulkhead-sched` states what each keeps).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// Sporadic server.
    Sporadic = 0,
    /// At most the budget in every window of a period.
    Strict = 1,
    /// For interrupt work.
    Pibs = 2,
    /// All that is left.
    Full = 3,
}

impl Policy {
    /// The policy of a number.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Sporadic,
            1 => Self::Strict,
            2 => Self::Pibs,
            3 => Self::Full,
            _ => return None,
        })
    }
}
