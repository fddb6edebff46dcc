//! A web server and the driver of its card, as two programs of one kernel (docs/web.md). The server has the addresses
//! and the connections, and the driver the card. So a driver that fails loses no connection: the next one finds the
//! frames that came last in the memory between the two ([`bulkhead_net::Relay`]). A server may fail, too: the
//! next one finds their state ([`bulkhead_web`]).
#![cfg_attr(target_os = "none", no_std)]

pub mod nic;
pub mod plan;
pub mod serve;

use bulkhead_net::Relay;
use bulkhead_program::role::Role;
use bulkhead_program::{Notification, Program, now, wait_until};

/// Name of the memory that the server writes and the driver reads.
pub const FROM_SERVER: &str = "from-server";
/// Name of the memory that the driver writes and the server reads.
pub const FROM_NIC: &str = "from-nic";
/// Name of the memory that has the server's connections, and outlives it.
pub const STATE: &str = "connections";
/// Notification that wakes the server.
pub const NEWS: &str = "news";
/// Notification that wakes the driver.
pub const WORK: &str = "work";
/// Endpoint at which the guard hears of faults, and the server's complaints.
pub const TROUBLE: &str = "trouble";

/// Nanoseconds between two looks for a role, or of a driver without interrupts.
pub const LOOK: u64 = 250_000;

/// Waits for the role that the argument `role=` names, and says meanwhile that the thread goes on. Returns at once if
/// there is none.
///
/// # Panics
/// The manifest does not give the program a channel of that role.
pub fn stand_by(program: Program, waits: Notification, mut goes_on: impl FnMut()) {
    let Some(name) = program.arg("role") else { return };
    let Some(role) = Role::find(program, name) else { panic!("it has nothing of role {name}") };
    while role.epoch().is_none() {
        goes_on();
        // It has time of its own.
        let _ = wait_until(waits, now() + LOOK);
    }
}

/// The end of a program that writes one memory and reads the other. Its life is the time.
///
/// # Panics
/// The manifest does not give it these, or they are too small.
#[must_use]
pub fn relay(program: Program, mine: &str, theirs: &str) -> Relay<'static> {
    let [mine, theirs] = [mine, theirs].map(|name| program.memory(name).words());
    let relay = Relay::new(mine, theirs, now());
    relay.unwrap_or_else(|| panic!("the memory between server and driver is too small"))
}
