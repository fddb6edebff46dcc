//! Roles of this sandbox ([`bulkhead_guest::role`]), and a guest's own way to give them away.

use crate::{Context, hypercall};
pub use bulkhead_guest::role::{Holder, Role};
use bulkhead_guest::{text, windows};
use bulkhead_layout::hypercall::GIVE;
use bulkhead_layout::info::ROLE;

impl Holder for Context {
    fn role(&self, name: &str) -> Option<Role> {
        let mut all = windows(self.info()).filter(|(window, _)| window.kind == ROLE);
        let (window, _) = all.find(|(window, _)| text::of(&window.name) == name)?;
        // SAFETY: by the monitor's word in the information page the word is there as long as the sandbox runs.
        Some(unsafe { Role::at(window.gpa) })
    }
}

/// Gives all roles away, and begins anew without them. Returns the monitor's word if no other sandbox can take one: one
/// of [`hypercall`]'s.
pub fn give() -> u64 {
    hypercall::raw(GIVE, 0, 0, 0, 0)
}
