//! A kernel's history, event by event: a ring of [`Record`]s in its sandbox's memory. The kernel writes it without an
//! exit, and others read it meanwhile.
//!
//! One core writes, never waits, and overwrites the oldest record when the ring is full. Each record carries its
//! number. So a reader knows how many it has missed, and never takes a half-written one for a whole one ([`ring`]).
//! [`Event`] is the one definition of the events and their meaning; the kernel, the readers and the book's page have it
//! from here.
#![no_std]

#[cfg(any(test, feature = "host"))]
extern crate std;

#[cfg(any(test, feature = "host"))]
mod check;
mod event;
#[cfg(any(test, feature = "host"))]
mod names;
#[cfg(any(test, feature = "host"))]
mod perfetto;
#[cfg(any(test, feature = "host"))]
mod proto;
#[cfg(any(test, feature = "host"))]
mod reader;
pub mod ring;

#[cfg(any(test, feature = "host"))]
pub use self::{
    check::{Budget, Figures, check},
    names::Names,
    perfetto::{Kernel, perfetto},
    reader::{Item, Reader, Timeline},
};
pub use event::{EVENTS, Event, Field};
pub use ring::{Head, Record, Ring, Slot, Writer};
