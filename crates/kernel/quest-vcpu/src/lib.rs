//! Quest's interface to VCPUs (Quest-V, TOCS 2016, section 3.3, "VCPU API") over the kernel's calls. A VCPU is a
//! scheduling context; the functions' names, arguments and structure are the article's. Programs in C have them in
//! `quest-vcpu.h`.
//!
//! It is portable, without allocation: its user passes [`Calls`] and the calling thread. A program's manifest has all
//! that this needs: `sched_control`, `memory` for new contexts, and `max_priority` for the threads that bind themselves
//! (`manages`). Contexts of the manifest that it manages are in the list from the start.
//!
//! The article leaves some questions open; the answers here:
//! * C and T are microseconds. For an I/O VCPU only their ratio matters, as in the article. T is its period as long as
//!   no requester has asked for its work.
//! * Priorities are inversely proportional to periods: the program's threads have the levels from its `max_priority`
//!   downwards, by their VCPUs' periods.
//! * Admission is the article's sum over *all* contexts of the core, with the kernel's charges: the manifest's are in
//!   [`bulkhead_kernel_abi::Load`]. The bound takes the rest of the core for rate-monotonic, too, as
//!   `admission = "utilization"` checks.
//! * A kernel has one core, so `mask` has to have its bit 0. A VCPU has one thread at a time.
//! * An error is one of [`Error`]'s numbers, all negative.
#![no_std]

mod given;
mod param;
mod vcpus;

pub use given::{Given, THREADS};
pub use param::{Error, Param, SCHED_PIBS, SCHED_SPORADIC};
pub use vcpus::{Calls, Last, MOST, Vcpus};
