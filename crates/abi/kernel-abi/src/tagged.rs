//! Tagged records: a byte that tells the kind, and for each kind a payload with fields of its own. One definition gives
//! the types, the bytes and the structures of the C header.

use crate::{Kind, Policy, Rights};

/// Bytes of a tagged record.
pub const TAGGED: usize = 32;

/// A number that a payload holds, little-endian and aligned to its size.
pub trait Field: Copy {
    /// Its type in C.
    const C: &'static str;
    /// Its bytes.
    const LEN: usize = size_of::<Self>();
    /// Encodes it.
    fn number(self) -> u64;
    /// Decodes it; `None` if the number means nothing.
    fn of(number: u64) -> Option<Self>;
}

macro_rules! fields {
    ($($type:ty, $c:literal, |$it:ident| $number:expr, |$word:ident| $of:expr;)*) => {
        $(impl Field for $type {
            const C: &'static str = $c;
            fn number(self) -> u64 {
                let $it = self;
                $number
            }
            fn of($word: u64) -> Option<Self> {
                $of
            }
        })*
    };
}

fields! {
    u8, "uint8_t", |it| it.into(), |word| word.try_into().ok();
    u16, "uint16_t", |it| it.into(), |word| word.try_into().ok();
    u32, "uint32_t", |it| it.into(), |word| word.try_into().ok();
    u64, "uint64_t", |it| it, |word| Some(word);
    bool, "bool", |it| it.into(), |word| (word < 2).then_some(word == 1);
    Kind, "uint8_t", |it| it as u64, |word| Self::new(word as u8);
    Policy, "uint8_t", |it| it as u64, |word| Self::new(word as u8);
    Rights, "uint8_t", |it| it.0.into(), |word| Rights::ALL.has(Self(word as u8)).then_some(Self(word as u8));
}

/// A payload, for the C header.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Its name.
    pub name: &'static str,
    /// Its tag.
    pub tag: u8,
    /// Its meaning, as the source has it.
    pub text: &'static str,
    /// Its fields: name, type in C, bytes, meaning.
    pub fields: &'static [(&'static str, &'static str, usize, &'static str)],
}

impl Payload {
    /// Returns the offset of the field of a number. Behind the last one: the bytes of the payload.
    #[must_use]
    pub const fn offset(&self, field: usize) -> usize {
        let (mut at, mut n) = (1, 0);
        while n < self.fields.len() {
            at = usize::next_multiple_of(at, self.fields[n].2);
            if n == field {
                return at;
            }
            at += self.fields[n].2;
            n += 1;
        }
        at
    }
}

/// The bytes of a record, and the place that is reached in them.
pub(crate) struct Cursor {
    pub bytes: [u8; TAGGED],
    pub at: usize,
}

impl Cursor {
    fn next<F: Field>(&mut self) -> Option<&mut [u8]> {
        let at = self.at.next_multiple_of(F::LEN);
        self.at = at + F::LEN;
        self.bytes.get_mut(at..self.at)
    }

    pub fn put<F: Field>(&mut self, field: F) {
        if let Some(to) = self.next::<F>() {
            to.copy_from_slice(&field.number().to_le_bytes()[..F::LEN]);
        }
    }

    pub fn take<F: Field>(&mut self) -> Option<F> {
        let from = self.next::<F>()?;
        F::of(from.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }
}

macro_rules! tagged {
    (
        $(#[$meta:meta])*
        pub enum $of:ident {
            $($(#[doc = $doc:literal])* $name:ident = $tag:literal {
                $($(#[doc = $about:literal])* $field:ident: $type:ty,)*
            })*
        }
    ) => {
        $($(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $about])* pub $field: $type,)*
        })*

        $(#[$meta])*
        pub enum $of {
            $($(#[doc = $doc])* $name($name),)*
        }

        impl $of {
            /// All payloads.
            pub const PAYLOADS: &[$crate::tagged::Payload] = &[
                $($crate::tagged::Payload {
                    name: stringify!($name),
                    tag: $tag,
                    text: concat!($($doc, "\n"),*),
                    fields: &[$((
                        stringify!($field),
                        <$type as $crate::tagged::Field>::C,
                        <$type as $crate::tagged::Field>::LEN,
                        concat!($($about, "\n"),*),
                    ),)*],
                },)*
            ];

            pub(crate) fn encode(self) -> [u8; $crate::tagged::TAGGED] {
                let mut to = $crate::tagged::Cursor { bytes: [0; $crate::tagged::TAGGED], at: 1 };
                match self {
                    $(Self::$name($name { $($field,)* }) => {
                        to.bytes[0] = $tag;
                        $(to.put($field);)*
                    })*
                }
                to.bytes
            }

            pub(crate) fn decode(bytes: [u8; $crate::tagged::TAGGED]) -> Option<Self> {
                let mut from = $crate::tagged::Cursor { bytes, at: 1 };
                Some(match bytes[0] {
                    $($tag => Self::$name($name { $($field: from.take()?,)* }),)*
                    _ => return None,
                })
            }
        }

        const _: () = {
            let mut n = 0;
            while n < $of::PAYLOADS.len() {
                assert!($of::PAYLOADS[n].offset(usize::MAX) <= $crate::tagged::TAGGED);
                n += 1;
            }
        };
    };
}

pub(crate) use tagged;
