use bulkhead_kernel_abi::{Code, Policy, Status};
use bulkhead_sched::Utilization;
use bulkhead_sched::share::Share;

/// Policy of a Main VCPU.
pub const SCHED_SPORADIC: i32 = 0;
/// Policy of an I/O VCPU.
pub const SCHED_PIBS: i32 = 1;

/// `struct vcpu_param` of the article.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Param {
    /// Identifier, from 1.
    pub vcpuid: i32,
    /// [`SCHED_SPORADIC`] or [`SCHED_PIBS`].
    pub policy: i32,
    /// PCPU affinity bit-mask: bit 0 is the kernel's core.
    pub mask: i32,
    /// Budget capacity, microseconds.
    pub c: i32,
    /// Period, microseconds.
    pub t: i32,
}

/// Why a function did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Error {
    /// The manifest does not give the program the needed right.
    Permission = -1,
    /// There is no such VCPU, or none at all.
    NotFound = -3,
    /// No memory, slot or place is left for another one.
    NoMemory = -12,
    /// Threads are associated with it; or another thread is in one of these functions.
    Busy = -16,
    /// A parameter cannot be.
    Invalid = -22,
    /// Admission refuses: the core's contexts would be above the bound.
    NotAdmitted = -28,
}

impl Error {
    /// All, with their names in C and their meaning.
    pub const ALL: [(Self, &str, &str); 6] = [
        (Self::Permission, "VCPU_EPERM", "the manifest does not give the program what that needs"),
        (Self::NotFound, "VCPU_ESRCH", "there is no such VCPU"),
        (Self::NoMemory, "VCPU_ENOMEM", "no memory, slot or place is left for another one"),
        (
            Self::Busy,
            "VCPU_EBUSY",
            "threads are associated with it; or another thread is in one of these functions",
        ),
        (Self::Invalid, "VCPU_EINVAL", "a parameter cannot be"),
        (
            Self::NotAdmitted,
            "VCPU_ENOSPC",
            "admission refuses: the core's VCPUs would be above the bound",
        ),
    ];

    /// Translates the status of a kernel's call.
    pub(crate) fn of(status: Status) -> Self {
        match status.code() {
            Some(Code::NoMemory | Code::TooManyContexts) => Self::NoMemory,
            Some(Code::OutOfRange) => Self::Invalid,
            Some(Code::Occupied | Code::BadState) => Self::Busy,
            _ => Self::Permission,
        }
    }
}

impl Param {
    /// Parameters of a VCPU that is created without any: the article has a Main VCPU, and no numbers.
    pub const DEFAULT: Self =
        Self { vcpuid: 0, policy: SCHED_SPORADIC, mask: 1, c: 1_000, t: 100_000 };

    /// Checks if its numbers are possible, without admission.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let times = self.c > 0 && self.t > 0;
        let fits = match self.policy {
            SCHED_SPORADIC => self.c <= self.t,
            SCHED_PIBS => self.c < self.t,
            _ => false,
        };
        if times && fits && self.mask & 1 != 0 { Ok(()) } else { Err(Error::Invalid) }
    }

    /// Returns the share of the core that it can take: (2-U)·U, or C/T with the kernel's charges for it in
    /// nanoseconds.
    pub(crate) fn share(&self, overhead: u32) -> Share {
        let [c, t] = [self.c, self.t].map(i32::unsigned_abs);
        match self.policy {
            SCHED_PIBS => Utilization::new(c, t).map_or(Share(u64::MAX), Share::of_pibs),
            _ => Share::of(self.gross(overhead), nanos(t.max(1))),
        }
    }

    /// Returns the budget, ns, that its context needs so that its thread gets C.
    fn gross(&self, overhead: u32) -> u64 {
        nanos(self.c.unsigned_abs()) + u64::from(overhead)
    }

    /// Policy, budget and period for the kernel. A utilization is rounded down to millionths, but is one at least.
    pub(crate) fn times(&self, overhead: u32) -> (Policy, u64, u64) {
        let [c, t] = [self.c, self.t].map(|n| u64::from(n.unsigned_abs()));
        match self.policy {
            SCHED_PIBS => (Policy::Pibs, (c * 1_000_000 / t.max(1)).max(1), nanos(t as u32)),
            _ => (Policy::Sporadic, self.gross(overhead), nanos(t as u32)),
        }
    }
}

fn nanos(micros: u32) -> u64 {
    u64::from(micros) * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_cannot_be() {
        let good = Param { vcpuid: 0, policy: SCHED_PIBS, mask: 3, c: 1, t: 25 };
        assert_eq!(good.check(), Ok(()));
        assert_eq!(Param { policy: SCHED_SPORADIC, c: 25, ..good }.check(), Ok(()));
        for bad in [
            Param { policy: 2, ..good },
            Param { mask: 2, ..good },
            Param { c: 0, ..good },
            Param { c: -1, ..good },
            Param { t: -25, ..good },
            Param { c: 25, ..good },
            Param { policy: SCHED_SPORADIC, c: 26, ..good },
        ] {
            assert_eq!(bad.check(), Err(Error::Invalid), "{bad:?}");
        }
    }

    /// Only the ratio of an I/O VCPU matters.
    #[test]
    fn shares() {
        let pibs = |c, t| Param { policy: SCHED_PIBS, c, t, ..Param::DEFAULT }.share(1_000);
        assert_eq!(pibs(1, 25), pibs(40, 1000));
        let main = Param { c: 9, t: 40, ..Param::DEFAULT };
        assert_eq!(main.share(1_000), Share::of(1, 4), "with what the kernel spends");
        assert_eq!(main.times(1_000), (Policy::Sporadic, 10_000, 40_000));
        assert_eq!(
            Param { policy: SCHED_PIBS, c: 1, t: 25, ..main }.times(1_000),
            (Policy::Pibs, 40_000, 25_000)
        );
    }
}
