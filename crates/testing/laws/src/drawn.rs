//! Stands for the prover in unit tests: `any` draws a value, `assume` gives up a draw that does not fit. So the
//! harnesses of [`crate::proofs`] compile and run without it. They prove nothing here.

extern crate std;

use std::boxed::Box;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

std::thread_local!(static STATE: Cell<u64> = const { Cell::new(2026) });

/// Payload of the unwinding for a draw that was given up.
struct GivenUp;

/// Types that the prover has arbitrary values of, as far as harnesses ask for them.
pub trait Arbitrary {
    /// Draws one.
    fn draw() -> Self;
}

/// The next number of a linear congruential generator; its upper half is the better one.
fn next() -> u64 {
    let halves = [(); 2].map(|()| {
        STATE.set(STATE.get().wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1));
        STATE.get() >> 32
    });
    halves[0] << 32 | halves[1]
}

macro_rules! words {
    ($($word:ty),*) => {$(
        impl Arbitrary for $word {
            /// Anything, or what is near something: small numbers, single bits, registers of the x2APIC.
            #[expect(clippy::allow_attributes, reason = "one of these types loses nothing")]
            #[allow(clippy::cast_lossless, reason = "as above")]
            fn draw() -> Self {
                let any = next();
                (match any >> 62 {
                    0 => any & 0xFF,
                    1 => 1 << (any & 63),
                    2 => 0x800 + (any & 0xFF),
                    _ => next(),
                }) as Self
            }
        }
    )*};
}
words!(u8, u16, u32, u64);

impl Arbitrary for bool {
    fn draw() -> Self {
        next() >> 63 != 0
    }
}

impl<T: Arbitrary, const N: usize> Arbitrary for [T; N] {
    fn draw() -> Self {
        [(); N].map(|()| T::draw())
    }
}

impl<T: Arbitrary> Arbitrary for Option<T> {
    fn draw() -> Self {
        bool::draw().then(T::draw)
    }
}

/// A value.
pub fn any<T: Arbitrary>() -> T {
    T::draw()
}

/// Gives this draw up unless that is true.
pub fn assume(is: bool) {
    if !is {
        resume_unwind(Box::new(GivenUp));
    }
}

/// Runs a harness with so many draws; how many of them fitted.
pub fn run(harness: fn(), draws: u32) -> u32 {
    let fitted = |_: &u32| match catch_unwind(AssertUnwindSafe(harness)) {
        Ok(()) => true,
        Err(why) if why.is::<GivenUp>() => false,
        Err(why) => resume_unwind(why),
    };
    (0..draws).filter(fitted).count() as u32
}
