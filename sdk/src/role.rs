//! Roles: places that one of several sandboxes has at a time ([`bulkhead_layout::role`]).
//!
//! A guest that can hold a role sees the ends of the role's channels among its own. Their memory is there while it has
//! the role. It touches them behind a look at [`Role::epoch`]; else its monitor ends its life. With each new epoch it
//! opens its ends anew.

use crate::{Context, hypercall};
use bulkhead_guest::{text, windows};
use bulkhead_layout::hypercall::GIVE;
use bulkhead_layout::info::ROLE;
use core::sync::atomic::{AtomicU64, Ordering};

/// A role that this sandbox can hold.
#[derive(Clone, Copy, Debug)]
pub struct Role(&'static AtomicU64);

impl Role {
    /// Finds it by its name in the manifest.
    #[must_use]
    pub fn find(context: Context, name: &str) -> Option<Self> {
        let mut all = windows(context.info()).filter(|(window, _)| window.kind == ROLE);
        let (window, _) = all.find(|(window, _)| text::of(&window.name) == name)?;
        // SAFETY: by the monitor's word in the information page the word is there as long as the sandbox runs.
        Some(Self(unsafe { &*(window.gpa as *const AtomicU64) }))
    }

    /// The epoch in which this sandbox has the role; `None`: it has not. No exit. A sandbox loses a role with its life
    /// alone, so a role that is there stays.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|epoch| *epoch != 0)
    }
}

/// Gives all roles away, and begins anew without them. Returns the monitor's word if no other sandbox can take one: one
/// of [`hypercall`]'s.
pub fn give() -> u64 {
    hypercall::raw(GIVE, 0, 0, 0, 0)
}
