//! Roles of a sandbox, as its guest sees them: places that one of several sandboxes has at a time.
//!
//! A guest that can hold a role sees the ends of the role's channels among its own. Their memory is there while it has
//! the role. It touches them behind a look at [`Role::epoch`]; else its monitor ends its life. With each new epoch it
//! opens its ends anew.

use core::sync::atomic::{AtomicU64, Ordering};

/// A guest that is told of its sandbox' roles.
pub trait Holder {
    /// Finds a role by its name in the manifest.
    fn role(&self, name: &str) -> Option<Role>;
}

/// A role that this sandbox can hold.
#[derive(Clone, Copy, Debug)]
pub struct Role(&'static AtomicU64);

impl Role {
    /// Finds it by its name in the manifest.
    #[must_use]
    pub fn find(holder: impl Holder, name: &str) -> Option<Self> {
        holder.role(name)
    }

    /// Reads the role at the address of its word.
    ///
    /// # Safety
    /// The word is there, aligned, as long as the guest runs.
    #[must_use]
    pub const unsafe fn at(word: u64) -> Self {
        // SAFETY: the caller's.
        Self(unsafe { &*(word as *const AtomicU64) })
    }

    /// The epoch in which this sandbox has the role; `None`: it has not. No exit. A sandbox loses a role with its life
    /// alone, so a role that is there stays.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|epoch| *epoch != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_has_a_role_while_its_word_is_an_epoch() {
        static WORD: AtomicU64 = AtomicU64::new(0);
        // SAFETY: a static.
        let role = unsafe { Role::at(&raw const WORD as u64) };
        assert_eq!(role.epoch(), None);
        WORD.store(3, Ordering::Release);
        assert_eq!(role.epoch(), Some(3));
    }
}
