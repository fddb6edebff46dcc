//! Numbers with names and meanings, each said once: for the compiler, and as text for the book and
//! the C header.

/// A number's name and meaning.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub number: u64,
    /// Its meaning; lines as they stand in the source.
    pub text: &'static str,
}

/// An enumeration of numbers of 8 bits, with `new`, and `DESCRIBED` for all of them.
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        pub enum $type:ident {
            $($(#[doc = $doc:literal])* $name:ident = $number:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[repr(u8)]
        pub enum $type {
            $($(#[doc = $doc])* $name = $number,)*
        }

        impl $type {
            /// Name and meaning of each.
            pub const DESCRIBED: &[$crate::Described] = &[
                $($crate::Described {
                    name: stringify!($name),
                    number: $number,
                    text: concat!($($doc, "\n"),*),
                },)*
            ];

            /// Returns the one of a number.
            #[must_use]
            pub const fn new(number: u8) -> Option<Self> {
                Some(match number {
                    $($number => Self::$name,)*
                    _ => return None,
                })
            }
        }
    };
}

/// Methods of the kernel's objects: constants in a module `label`, and `METHODS` for all of them.
macro_rules! methods {
    ($($kind:ident { $($(#[doc = $doc:literal])* $name:ident = $number:literal;)* })*) => {
        /// The methods. Words are numbered from 1; all fit into registers. Addresses of
        /// capabilities are those of the caller.
        pub mod label {
            $($($(#[doc = $doc])* pub const $name: super::Label = $number;)*)*
        }

        /// Name and meaning of each method, by the kind of object.
        pub const METHODS: &[(&str, &[$crate::Described])] = &[
            $((stringify!($kind), &[
                $($crate::Described {
                    name: stringify!($name),
                    number: $number,
                    text: concat!($($doc, "\n"),*),
                },)*
            ]),)*
        ];
    };
}

pub(crate) use {methods, numbered};
