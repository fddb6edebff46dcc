//! The guarantee that denies an access, as an explanation cites it.

use bulkhead_guarantees::{Guarantee, guarantee};
use std::fmt;

/// A guarantee, and the detail that a record tells beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Entry of the register.
    pub guarantee: &'static Guarantee,
    /// Detail, or empty.
    pub detail: &'static str,
}

impl Rule {
    /// The guarantee of this id. A constant with a wrong id does not compile.
    #[must_use]
    pub const fn of(id: &str) -> Self {
        Self { guarantee: guarantee(id), detail: "" }
    }

    /// The guarantee with a detail.
    #[must_use]
    pub const fn with(self, detail: &'static str) -> Self {
        Self { detail, ..self }
    }

    /// Sentence and detail.
    #[must_use]
    pub fn text(self) -> String {
        let separator = if self.detail.is_empty() { "" } else { ": " };
        format!("{}{separator}{}", self.guarantee.sentence, self.detail)
    }
}

/// `id: sentence`, and the rules of the manifest on which it rests.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.guarantee.id, self.text())?;
        match self.guarantee.rests_on {
            [] => Ok(()),
            rules => write!(f, " ({})", rules.join(", ")),
        }
    }
}
