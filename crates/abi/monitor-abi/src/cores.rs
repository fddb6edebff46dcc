//! Cores of a sandbox, by the identities that interrupts go to.

/// Set of identities below 256.
pub type Ids = [u64; 4];

/// Own cores that an interrupt or a signal goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The core with this identity.
    One(u32),
    /// All but the sender.
    Others,
    /// All.
    All,
}

impl To {
    /// Tells if the core with this identity is one of them.
    #[must_use]
    pub fn includes(self, id: u32, is_sender: bool) -> bool {
        match self {
            Self::One(only) => id == only,
            Self::Others => !is_sender,
            Self::All => true,
        }
    }
}
