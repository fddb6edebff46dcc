//! The arguments of a guest's entry.

use bulkhead_guest::text;
use bulkhead_layout::info::Info;
use bulkhead_layout::load::{ARGS, ARGS_MARK};
use core::hint::black_box;

/// The place for arguments of those who create the program in a bay. Its marks let the host's packer find it.
#[repr(C)]
struct Given([u64; 2], [u8; ARGS]);

static GIVEN: Given = Given(ARGS_MARK, [0; ARGS]);

/// The guest's own view of its sandbox; cheap to copy.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Context {
    incarnation: u64,
    info: &'static Info,
}

impl Context {
    /// # Safety
    /// `info` must be the information page's address.
    #[cfg(target_os = "none")]
    pub(crate) unsafe fn new(incarnation: u64, info: u64) -> Self {
        Self {
            incarnation,
            // SAFETY: the caller's; the page is read-only and stays.
            info: unsafe { &*(info as *const Info) },
        }
    }

    /// How often the sandbox has been launched before.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The information page.
    #[must_use]
    pub fn info(&self) -> &'static Info {
        self.info
    }

    /// The sandbox's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        text::of(&self.info.name)
    }

    /// All program arguments: of those who created it, or the manifest's.
    #[must_use]
    pub fn args(&self) -> &'static str {
        // The compiler is not to know what stands there: another one writes it into the file.
        match text::of(&black_box(&GIVEN).1) {
            "" => text::of(&self.info.args),
            given => given,
        }
    }

    /// The value of the argument `key=value`.
    #[must_use]
    pub fn arg(&self, key: &str) -> Option<&'static str> {
        text::value(self.args(), key)
    }

    /// The value of `key=number`, decimal or with 0x.
    #[must_use]
    pub fn arg_u64(&self, key: &str) -> Option<u64> {
        text::number(self.arg(key)?)
    }
}
