//! The names of a program's manifest, and the grants behind them.

use crate::tagged::{TAGGED, tagged};
use crate::{Address, Kind, NAME, Policy, Rights};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

tagged! {
/// The grant behind a name of the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// A capability of a kernel object.
    Capability = 1 {
        /// Kind of the object.
        kind: Kind,
        /// Rights of the capability.
        rights: Rights,
        /// Priority of a thread in the manifest; 0 for other kinds.
        priority: u8,
        /// Address of the capability.
        address: Address,
    }
    /// Memory of the program: shared memory, a channel of raw pages, a device's registers.
    Memory = 2 {
        /// The program may write it.
        write: bool,
        /// Address by which a device of the program reaches it, or 0.
        device: u32,
        /// Address of the first byte.
        start: u64,
        /// Bytes.
        len: u64,
    }
    /// An end of a channel of messages: the sender's region, and behind it the receiver's page.
    Messages = 3 {
        /// The program sends, and writes the sender's region; otherwise it writes the receiver's page.
        sends: bool,
        /// Kind of the messages: 1 = queue, 2 = records, 3 = mailbox, 4 = virtio.
        kind: u8,
        /// The end that is woken looks while that pays, before it sleeps.
        adaptive: bool,
        /// Doorbell that the sender rings, or number of the receiver's interrupt; 0: the receiver is not woken.
        bell: u16,
        /// Doorbell that the receiver rings, or number of the sender's interrupt; 0: the sender is not woken. Only a
        /// virtio device has it.
        back: u16,
        /// Bytes of a message, if all have one size.
        message: u32,
        /// Address of the right to the doorbell that the program rings, or 0.
        right: Address,
        /// Address of the sender's region.
        start: u64,
        /// Bytes of the sender's region.
        len: u32,
        /// Address by which a device of the program finds the sender's region, or 0: it reaches the data of both
        /// regions.
        device: u32,
    }
    /// A context that the program manages.
    Context = 4 {
        /// Policy of the context.
        policy: Policy,
        /// Thread of the program that has the context, counted from 1; 0: none.
        thread: u8,
        /// Address of the capability.
        address: Address,
        /// Budget in microseconds, rounded down, without the kernel's overhead; of PIBS, U in millionths.
        budget: u32,
        /// Period in microseconds, rounded up.
        period: u32,
    }
    /// A link: memory for channels made at run time. It has the name of the sandbox that offers it.
    Link = 5 {
        /// The program's own sandbox offers it.
        mine: bool,
        /// Number of the link.
        number: u16,
        /// Index of the sandbox that offers it.
        owner: u16,
        /// Address of the capability.
        right: Address,
        /// Bytes that the owner writes; the other end's page lies behind them.
        sent: u32,
        /// Address at which the program finds the open link.
        start: u64,
    }
    /// A sandbox to which the program may offer a link.
    Sandbox = 6 {
        /// Index of the sandbox.
        index: u32,
    }
    /// A role of the program's sandbox. The program has a channel of it.
    Role = 7 {
        /// Address of the word that says what the sandbox has: the epoch, or 0. It can only be read.
        word: u64,
    }
}
}

/// A name of the manifest, with its grant.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Name {
    /// The manifest's name, padded with zeros.
    pub name: [u8; NAME],
    grant: [u8; TAGGED],
}

const _: () = assert!(size_of::<Name>() == 64);

impl Name {
    /// Makes a record; of the name it keeps as much as fits with a zero behind it.
    #[must_use]
    pub fn new(name: &str, grant: Grant) -> Self {
        let mut bytes = [0; NAME];
        let len = name.len().min(NAME - 1);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        Self { name: bytes, grant: grant.encode() }
    }

    /// Returns the grant; `None` for an unknown tag, or a payload that means nothing.
    #[must_use]
    pub fn grant(&self) -> Option<Grant> {
        Grant::decode(self.grant)
    }

    /// Tells if it has that name.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        let rest = self.name.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grant with a different number in each field, and its bytes as programs in C read them.
    const GRANTS: [(Grant, &[u8]); 7] = [
        (
            Grant::Capability(Capability {
                kind: Kind::Endpoint,
                rights: Rights(5),
                priority: 7,
                address: 0x0403_0201,
            }),
            &[1, 7, 5, 7, 1, 2, 3, 4],
        ),
        (
            Grant::Memory(Memory {
                write: true,
                device: 0x0403_0201,
                start: 0x1817_1615_1413_1211,
                len: 0x2827_2625_2423_2221,
            }),
            &[
                2, 1, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22,
                0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
            ],
        ),
        (
            Grant::Messages(Messages {
                sends: true,
                kind: 3,
                adaptive: false,
                bell: 0x0201,
                back: 0x0403,
                message: 0x1413_1211,
                right: 0x2423_2221,
                start: 0x3837_3635_3433_3231,
                len: 0x4443_4241,
                device: 0x4847_4645,
            }),
            &[
                3, 1, 3, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32,
                0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
            ],
        ),
        (
            Grant::Context(Context {
                policy: Policy::Pibs,
                thread: 9,
                address: 0x0403_0201,
                budget: 0x1413_1211,
                period: 0x2423_2221,
            }),
            &[4, 2, 9, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24],
        ),
        (
            Grant::Link(Link {
                mine: true,
                number: 0x0201,
                owner: 0x1211,
                right: 0x2423_2221,
                sent: 0x3433_3231,
                start: 0x4847_4645_4443_4241,
            }),
            &[
                5, 1, 1, 2, 0x11, 0x12, 0, 0, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x41,
                0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
            ],
        ),
        (Grant::Sandbox(Sandbox { index: 0x0403_0201 }), &[6, 0, 0, 0, 1, 2, 3, 4]),
        (
            Grant::Role(Role { word: 0x0807_0605_0403_0201 }),
            &[7, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        ),
    ];

    #[test]
    fn each_grant_has_its_bytes() {
        assert_eq!(GRANTS.len(), Grant::PAYLOADS.len());
        for ((grant, bytes), payload) in GRANTS.iter().zip(Grant::PAYLOADS) {
            let mut expected = [0; TAGGED];
            expected[..bytes.len()].copy_from_slice(bytes);
            assert_eq!(grant.encode(), expected, "{grant:?}");
            assert_eq!(payload.offset(usize::MAX), bytes.len(), "{grant:?}");
            assert_eq!(Name::new("one", *grant).grant(), Some(*grant));
        }
    }

    #[test]
    fn bytes_that_mean_nothing_are_no_grant() {
        for tag in (0..=u8::MAX).filter(|tag| !Grant::PAYLOADS.iter().any(|p| p.tag == *tag)) {
            assert_eq!(Grant::decode([tag; TAGGED]), None, "{tag}");
        }
        // The first byte behind each tag, and a value that it cannot have: kind, bool, policy.
        for (tag, byte) in [(1, 16), (2, 2), (3, 2), (4, 4), (5, 0xFF)] {
            let mut bytes = [0; TAGGED];
            (bytes[0], bytes[1]) = (tag, byte);
            assert_eq!(Grant::decode(bytes), None, "{tag}");
            bytes[1] = 0;
            assert!(Grant::decode(bytes).is_some(), "{tag}");
        }
        // A right that is none.
        let mut bytes = Grant::encode(GRANTS[0].0);
        bytes[2] |= 0x20;
        assert_eq!(Grant::decode(bytes), None);
    }

    #[test]
    fn a_name_is_cut_and_compared_as_a_whole() {
        let grant = Grant::Sandbox(Sandbox { index: 0 });
        let name = Name::new("pilot", grant);
        assert!(name.is("pilot") && !name.is("pilo") && !name.is("pilots"));
        let long = Name::new(&"x".repeat(NAME), grant);
        assert!(long.is(&"x".repeat(NAME - 1)) && !long.is(&"x".repeat(NAME)));
    }
}
