//! HTTP/1.1 (RFC 9112) for a small server, without I/O: what the bytes of a connection ask for, and the answer's bytes.
//!
//! A [`Page`] is made of its path, so a client that knows the path can check each byte of it. A [`Reader`] collects a
//! connection's bytes up to a bound, and an [`Answer`] gives its bytes in pieces of any size. Nothing here allocates,
//! and no bytes of a client make it panic.
#![cfg_attr(not(test), no_std)]

mod answer;
mod page;
mod request;

pub use answer::{Answer, HEAD};
pub use page::{BYTES, Page};
pub use request::{LONGEST, Method, Reader, Refused, Request, Step};
