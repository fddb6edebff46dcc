//! Roles of the program's sandbox ([`bulkhead_guest::role`]). A program sees a role if it has a channel of it.

use crate::Program;
pub use bulkhead_guest::role::{Holder, Role};
use bulkhead_kernel_abi::Grant;

impl Holder for Program {
    fn role(&self, name: &str) -> Option<Role> {
        self.find(name, |grant| match grant {
            // SAFETY: by the kernel's word in the program's page, the word is mapped as long as the program runs.
            Grant::Role(it) => Some(unsafe { Role::at(it.word) }),
            _ => None,
        })
    }
}
