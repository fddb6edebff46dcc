//! The host, which has no kernel of ours.

use super::{Architecture, Call, Moved};

pub(crate) struct Host;

impl Architecture for Host {
    fn call(_: Call) -> Call {
        unreachable!("a program runs on the kernel, not here")
    }

    fn counter() -> u64 {
        unreachable!("a program runs on the kernel, not here")
    }

    fn stop() -> ! {
        unreachable!("a program runs on the kernel, not here")
    }
}

macro_rules! moved {
    ($($type:ty)*) => {
        $(impl Moved for $type {
            unsafe fn load(_: u64) -> Self {
                unreachable!("a program runs on the kernel, not here")
            }

            unsafe fn store(self, _: u64) {
                unreachable!("a program runs on the kernel, not here")
            }
        })*
    };
}

moved!(u8 u16 u32 u64);

#[doc(hidden)]
#[macro_export]
macro_rules! local_symbol {
    ($name:ident: $type:ty) => {};
}

#[doc(hidden)]
#[macro_export]
macro_rules! local_address {
    ($name:ident) => {
        core::ptr::null()
    };
}
