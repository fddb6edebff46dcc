//! What a server and the handler of its timeouts agree on.
#![cfg_attr(target_os = "none", no_std)]

pub mod chain;
