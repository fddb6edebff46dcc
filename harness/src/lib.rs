//! The measuring harness. Figures come from machines in deterministic virtual
//! time (`bulkhead_qemu`), counted by the plugin at markers
//! ([`bulkhead_layout::marker`]), and go as rows into one file. [`selftest`]
//! shows the clock's own error, and fails when that is outside its bounds: it
//! comes before every other figure.

pub mod bare;
pub mod bench;
pub mod build;
mod configuration;
pub mod numbers;
pub mod plot;
pub mod program;
pub mod rows;
pub mod selftest;
pub mod test;
mod web;

/// Anything that ends a measurement.
pub type Failure = Box<dyn std::error::Error>;
