//! The parts of an image, and those that several monitors see.

use std::collections::BTreeMap;

/// A part of the image, for plans, reports and measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Physical address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Sandbox whose it is.
    pub owner: Option<usize>,
    /// What it is.
    pub what: &'static str,
    /// Whether its owner's monitor maps it.
    pub mapped: bool,
}

/// Pages that more than one monitor maps.
#[derive(Default)]
pub struct Shared {
    pub mailboxes: u64,
    pub reports: Vec<u64>,
    pub lines: Option<Lines>,
    /// Pages with the states of the peers of channels that a Linux has an end of, by the channel's first region.
    pub states: BTreeMap<usize, u64>,
}

/// What monitors of sandboxes with interrupt lines share.
#[derive(Clone, Copy)]
pub struct Lines {
    /// The IOAPIC's lock.
    pub lock: u64,
    /// The IOAPIC's remapping table that monitors fill; `None`: its entries never hold slots.
    pub table: Option<u64>,
    /// The table that the boot code's test uses, that one or another page; `None`: there is no test.
    pub tested: Option<u64>,
}
