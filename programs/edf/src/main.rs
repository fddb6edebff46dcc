//! Earliest deadline first by a program, on the kernel's fixed priorities (the scheduling-context paper, section 5.5).
//! The scheduler is a thread above its clients, which all have one priority. It releases a client's job by answering
//! the client, and puts the client with the earliest deadline first in the queue of their priority. Then it waits until
//! a job is done or the next one is released. A job is done
//!
//! * `mode=preempt`: when its budget ends: the kernel enforces the budget of each job, and calls the scheduler;
//! * `mode=coop`: when it says so by a call.
//!
//! Arguments:
//!
//! * `threads=N`;
//! * `load=N` percent of the processor for all of them;
//! * `shortest=N`: their periods lie between this and ten times this, us;
//! * `decisions=N`: switches from one to the next until it is over.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod client;
mod scheduler;
mod watch;

bulkhead_program::entry!(scheduler::schedule);

/// Most clients.
const MOST: usize = 64;
