//! The interface of a server and the handler of its timeouts.
#![cfg_attr(target_os = "none", no_std)]

pub mod chain;
