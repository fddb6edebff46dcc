//! The arguments of a guest's entry.

use bulkhead_layout::info::Info;
use core::str;

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
        text(&self.info.name)
    }

    /// All program arguments.
    #[must_use]
    pub fn args(&self) -> &'static str {
        text(&self.info.args)
    }

    /// The value of the argument `key=value`; empty for a bare `key`. The last
    /// one counts, so that a scenario can change what the manifest says.
    #[must_use]
    pub fn arg(&self, key: &str) -> Option<&'static str> {
        self.args().split_ascii_whitespace().rev().find_map(|word| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            (name == key).then_some(value)
        })
    }

    /// The value of `key=number`, decimal or with 0x.
    #[must_use]
    pub fn arg_u64(&self, key: &str) -> Option<u64> {
        number(self.arg(key)?)
    }
}

/// A zero-padded name as text; bytes that are no UTF-8 are cut off.
#[must_use]
pub fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let bytes = &bytes[..end];
    match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""),
    }
}

/// A number, decimal or with 0x.
#[must_use]
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
