//! A driver sandbox's network card: the driver with its clients' ports (docs/networks.md). A test's program has all of
//! this with a card of its own around the driver's.
#![cfg_attr(target_os = "none", no_std)]

pub mod card;
pub mod serve;
