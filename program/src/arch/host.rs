//! The host, which has no kernel of ours.

use super::{Architecture, Call};

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
