//! Laws of each decision that a monitor makes about a value of a guest's, as functions of the value. They
//! are written from the manuals and not from the code that decides.
//!
//! Three kinds of users share them:
//!
//! * tests that try *all* values of the fields that matter (`tests/`);
//! * fuzz targets (`bulkhead_fuzz`);
//! * the harnesses in [`proofs`], for a reader with the Kani model checker: `cargo kani -p bulkhead-laws`.
#![no_std]

pub mod hypercall;
pub mod icr;
pub mod ioapic;
pub mod mmio;
pub mod msi;
#[cfg(any(kani, test))]
pub mod proofs;

#[cfg(all(test, not(kani)))]
mod drawn;

/// True if something was let through; or the broken statement.
pub type Lawful = Result<bool, &'static str>;
