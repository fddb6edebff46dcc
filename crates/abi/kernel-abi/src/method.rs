use crate::numbered::{methods, numbered};

/// Number of a method: the [`crate::Info`]'s label of a call on a capability of a kernel object.
pub type Label = u64;

methods! {
    Untyped {
        /// Make objects. 1: kind, size shifted by 8, and count (1 to 256) shifted by 16, or'ed; 2: node for the
        /// capabilities; 3: first slot. The size of a node is 1 to 16, a power of two of slots. Others are of bytes: 9
        /// to 12 for a context, 12 or 21 for a frame, 5 to 30 for untyped memory. All other kinds have 0. All slots
        /// have to be empty. May be interrupted and begins again by itself. Answers where the first
    /// one lies, as an offset in the sandbox's memory.
        RETYPE = 1;
    }
    Node {
        /// Derive a capability. 1: slot; 2: the capability to derive from; 3: rights that it
        /// keeps; 4: badge (endpoint and notification without one), or 0. Memory and tables have one
    /// capability only.
        COPY = 10;
        /// Move a capability into a slot. 1: slot; 2: the capability.
        MOVE = 11;
        /// Delete the capability in a slot, and those derived from it. 1: slot. May be
        /// interrupted and begins again by itself.
        DELETE = 12;
        /// Delete those derived from the capability in a slot. 1: slot. As `DELETE`.
        REVOKE = 13;
    }
    Thread {
        /// Set the things that it can name. 1: node; 2: space; 3: frame of its buffer, or 0; 4: address of the buffer
        /// within the frame. The thread keeps capabilities of its own, derived from these.
        CONFIGURE = 20;
        /// 1: priority; 2: greatest priority that it may give others; 3: thread that has the authority: no greater one
        /// than its own is given.
        SET_PRIORITY = 21;
        /// Where its faults go. 1: endpoint, with `WRITE` and `CALL`; 0: nowhere.
        SET_FAULT = 22;
        /// Where the ends of its budgets go. 1: as `SET_FAULT`.
        SET_TIMEOUT = 23;
        /// 1: instruction; 2: stack; 3 and 4: first two arguments of the function there. It is stopped; what it waits
        /// for is cancelled.
        WRITE_REGISTERS = 24;
        /// Answers instruction, stack, the word that has a call's operation and status, flags.
        READ_REGISTERS = 25;
        /// It runs, or goes on, if it has a context.
        RESUME = 26;
        /// It stops where it is; what it waits for is cancelled.
        SUSPEND = 27;
        /// Also receive this notification where it receives messages. 1: notification, with
        /// `READ`; 0: no more.
        BIND_NOTIFICATION = 28;
        /// 1: 1 if it uses vector registers, else 0. Where the kernel cannot keep them, programs have none: their use
        /// is an exception then, too.
        SET_FPU = 29;
        /// `WRITE_REGISTERS` and `RESUME` in one. 1 to 4: as of the first.
        START = 30;
        /// 1: its thread pointer, in the program's half. Compilers look for `_Thread_local` variables there. It is 0
        /// before, and stays through calls and through `START`.
        SET_POINTER = 31;
    }
    Table {
        /// Put it where it is missing. 1: space; 2: address.
        MAP_TABLE = 40;
        /// Take it out.
        UNMAP_TABLE = 41;
    }
    Frame {
        /// 1: space; 2: address; 3: rights.
        MAP = 42;
        /// Take it out.
        UNMAP = 43;
        /// Answers its address for devices.
        PHYSICAL = 44;
    }
    Context {
        /// Give it to a thread or notification that has none. 1: that; 2: 0, 1 or 2. With 1 a thread has it until it
        /// waits for messages, and so comes to be a passive server. With 2 the calling thread goes on with it, instead
        /// of its own one.
        BIND = 50;
        /// Take it from the thread or notification that it is bound to.
        UNBIND = 51;
        /// Answers how long it ran since this was asked last, ns.
        CONSUMED = 52;
        /// Its thread is first of its priority now. Answers as `CONSUMED`.
        YIELD_TO = 53;
        /// PIBS: its work is now for another context. 1: that. It takes over that context's period, and the priority of
        /// the thread that uses that, not of a server that the thread has called.
        SERVE = 54;
    }
    Control {
        /// 1: context, or'ed with a [`super::Policy`] shifted by 32; 2: budget, ns (PIBS: utilization in millionths);
        /// 3: period, ns; 4: badge in timeout messages. Bit 40 of the first word makes it a background context.
        SET_CONTEXT = 60;
    }
    Interrupt {
        /// With `WRITE`: 1: notification, with `WRITE`; its badge is signalled. 0: nobody.
        SET_NOTIFICATION = 70;
        /// The next one may come.
        ACKNOWLEDGE = 71;
    }
    Ports {
        /// 1: port; 2: bytes (1, 2, 4). Answers what was read.
        IN = 80;
        /// 1: port; 2: bytes; 3: value.
        OUT = 81;
    }
    Handler {
        /// Message to a thread's fault endpoint: an exception. 1: its number, or'ed with its error code shifted by 8;
        /// 2: instruction; 3: address that was touched; 4: number of the thread. An answer with label 0 lets it go on,
        /// any other stops it.
        FAULT = 100;
        /// Message to a thread's timeout endpoint: the budget has ended. 1: the context's badge;
        /// 2: how long it ran, as `CONSUMED`; 3: 0; 4: number of the thread. Answered as `FAULT`.
        TIMEOUT = 101;
    }
    Sandbox {
        /// With `WRITE`: 1 to 4: bytes for its console, the first one lowest, up to the first 0.
        PRINT = 90;
        /// With `EXECUTE`: it has started.
        READY = 91;
        /// With `EXECUTE`: it ends. 1: exit code.
        EXIT = 92;
        /// With `EXECUTE`: it begins anew as at its launch, in fresh memory, once its devices are reset. Without a
        /// monitor this is refused (`BadState`).
        RESTART = 93;
    }
    Link {
        /// With `READ`: 1: 0 for the own sandbox's word, 1 for the other party's. Answers it, as the hypercall `LOOK`;
        /// the other methods answer as the hypercalls of their names.
        LOOK = 110;
        /// With `WRITE`: 1: index of a sandbox that it may be offered to; 2: tag. With the answer `OK` it lies in the
        /// program's memory from then on. It is closed when the thread that called ends, begins anew, or is stopped. An
        /// exception or its handler can stop the thread. It is also closed when this capability goes.
        OFFER = 111;
        /// With `WRITE`: 1: epoch of the offer. As `OFFER`.
        ACCEPT = 112;
        /// With `WRITE`. The program does not reach it any more, whatever the answer is.
        CLOSE = 113;
    }
}

numbered! {
/// How a context's budget comes back (`bulkhead-sched` states what each keeps).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}
