//! A driver sandbox's programs: the driver with its clients' devices, and what its guard and it tell each other. A
//! test's program has all of this with a disk of its own around the driver's (`programs/store-rogue`).
#![cfg_attr(target_os = "none", no_std)]

pub mod disk;
pub mod function;
pub mod progress;
pub mod serve;
