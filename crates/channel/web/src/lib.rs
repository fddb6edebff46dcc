//! A web server (HTTP/1.1) on Ethernet frames, with TCP connections that outlive it.
//!
//! A [`Server`] takes frames from a device and gives it frames; `smoltcp` has the TCP. Nothing here waits. Each
//! connection's state is recorded in memory ([`Records`]) before a frame tells of it. So a next life of the server
//! goes on with all connections. A [`Door`] between it and the device gives `smoltcp` a handshake that it takes for the
//! client's. From then on the door translates sequence numbers.
//!
//! No state of an answer is recorded. An answer follows from its request, so a next life makes it again from its
//! beginning, and TCP drops the bytes that the client has.
#![cfg_attr(not(test), no_std)]

mod connection;
mod door;
mod record;
mod segment;
mod server;

pub use connection::Room;
pub use door::{Door, Peer};
pub use record::{LOG, Load, Record, Records, Words, region};
pub use server::{Begun, Server};

/// Connections at once, at most.
pub const CONNECTIONS: usize = 96;
/// The port.
pub const PORT: u16 = 80;
