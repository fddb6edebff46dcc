//! Checks the promises to a bare guest. Prints a line for each check; the exit code is the number of those that failed.
//!
//! Arguments:
//!
//! * `restarts=N` restarts itself until incarnation N, so that it checks all that a restart must undo;
//! * `late=N` is the lateness in ns that timers may have (default 100,000);
//! * `only=NAME,NAME` chooses checks;
//! * `zeros`: no sandbox has written to its channels.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod clock;
mod cores;
mod cpu;
mod memory;

use bulkhead_sdk::{Context, hypercall, println};
use core::fmt;

bulkhead_sdk::entry!(guest);

/// The value found instead of the promised one.
pub struct Wrong {
    what: &'static str,
    found: u64,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#x})", self.what, self.found)
    }
}

/// Fails with the found value unless it is right.
pub fn ensure(right: bool, what: &'static str, found: u64) -> Result<(), Wrong> {
    if right { Ok(()) } else { Err(Wrong { what, found }) }
}

type Check = fn(Context) -> Result<(), Wrong>;

const CHECKS: &[(&str, Check)] = &[
    ("entry", cpu::entry),
    ("info", memory::info),
    ("data", memory::data_is_pristine),
    ("ram", memory::ram_is_zeroed),
    ("zeros", memory::channels_are_zeroed),
    ("windows", memory::windows),
    ("exceptions", cpu::exceptions),
    ("cpuid", cpu::identification),
    ("msr", cpu::registers),
    ("hypercalls", hypercalls),
    ("timer", clock::one_shot),
    ("periodic", clock::periodic),
    ("self-ipi", cores::self_ipi),
    ("start", cores::start),
    ("ipi", cores::ping),
];

fn hypercalls(_: Context) -> Result<(), Wrong> {
    let other = hypercall::raw(0x4248_7777, 1, 2, 3, 4);
    ensure(hypercall::null() == hypercall::OK, "null call", 0)?;
    ensure(other == hypercall::NO_CALL, "unknown call", other)?;
    let long = hypercall::raw(bulkhead_sdk::layout::hypercall::CONSOLE, 25, 0, 0, 0);
    ensure(long == hypercall::BAD_ARGUMENT, "too long a text", long)?;
    Ok(())
}

fn guest(context: Context) -> u32 {
    let mut failed = 0;
    let only = context.arg("only");
    let chosen = |name: &str| only.is_none_or(|list| list.split(',').any(|n| n == name));
    for (name, check) in CHECKS.iter().filter(|(name, _)| chosen(name)) {
        match check(context) {
            Ok(()) => println!("selftest: {name} ok"),
            Err(wrong) => {
                println!("selftest: {name} FAILED: {wrong}");
                failed += 1;
            }
        }
    }
    println!("selftest: incarnation {}, {failed} failed", context.incarnation());
    if failed == 0 && context.incarnation() < context.arg_u64("restarts").unwrap_or(0) {
        memory::spoil(context);
        hypercall::restart();
    }
    hypercall::ready();
    failed
}
