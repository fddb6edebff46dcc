//! The exits that a sandbox may take once it has booted: which, and how many of each at most. Whatever is not listed
//! here it takes never.

use std::collections::BTreeMap;

/// Figures from which the bounds follow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// The guest is a Linux.
    pub linux: bool,
    /// CPUID leaves a guest for ever, as on VT-x.
    pub cpuid: bool,
    /// The guest is Bulkhead's kernel.
    pub kernel: bool,
    /// It has powered itself off.
    pub stopped: bool,
    /// Its cores.
    pub cores: u64,
    /// Its PCI functions.
    pub functions: u64,
    /// It has ranges of shared registers.
    pub registers: bool,
    /// It rings the receiver of a channel.
    pub rings: bool,
    /// It may control others, or make channels at run time.
    pub asks: bool,
    /// It is an end of channels made at run time.
    pub links: bool,
    /// Bytes that it ever wrote to its console.
    pub console: u64,
    /// Ticks of its watchdog in a second, on each core; 0 without one.
    pub ticks: u64,
    /// Whole seconds for which it has run since, rounded up.
    pub seconds: u64,
}

/// Hypercalls besides the console's: ready, its end, and some to spare.
const CALLS: u64 = 8;
/// Requests a second of a sandbox that may control others or make channels; also of doorbells for its own.
const REQUESTS: u64 = 1_000;
/// Rings a second: as often as a receiver can well fall asleep and be woken.
const RINGS: u64 = 100_000;
/// Accesses to shared registers a second: more than a core can make.
const ACCESSES: u64 = 10_000_000;
/// IPIs a second from one core of a sandbox to its others. Measured: some 22,000 of either of two cores under load.
const IPIS: u64 = 500_000;
/// CPUIDs a second where they exit: user space asks, and each core of a kernel once a second.
const CPUIDS: u64 = 10_000;
/// LVT, MSR and port accesses of a power-off, each. Measured: 22 LVT writes, 20 port accesses.
const POWER_OFF: u64 = 32;
/// Configuration of a serial port that is opened and closed, 4 accesses each time.
const LINES: u64 = 64;
/// At power-off each of 24 lines is read, masked and read again, by two registers through index and window.
const MASKING: u64 = 24 * 3 * 4;
/// Configuration by the driver of one function that is loaded from user space. Measured: some 140 accesses.
const DRIVER: u64 = 256;
/// Times a second that a kernel masks a function's message, which came again before its handler had acknowledged it,
/// and unmasks it. That is a write to the table of messages each. Measured: one in a run of the demo, on a busy host.
const MASKED: u64 = 100;
/// An interrupt that came while its line was being set up is sent again by an IPI.
const RESENT: u64 = 4;

/// Causes and the most exits of each; of all other causes there may be none.
#[must_use]
pub fn allowed(facts: &Facts) -> BTreeMap<&'static str, u64> {
    let mut all = BTreeMap::new();
    let mut allow = |cause, count: u64| *all.entry(cause).or_insert(0) += count;
    // A call of the console writes at least one byte.
    allow("hypercall", CALLS + facts.console);
    if facts.asks {
        allow("hypercall", REQUESTS * facts.seconds);
    }
    if facts.rings {
        allow("ring", RINGS * facts.seconds);
    }
    if facts.registers {
        allow("mmio", ACCESSES * facts.seconds);
    }
    if facts.links {
        allow("doorbell", REQUESTS * facts.seconds);
    }
    // One more at each end of the time. A doorbell shortly before a tick counts as that tick, and QEMU's timer sends a
    // second message of each tick.
    for cause in ["watchdog", "doorbell"].into_iter().filter(|_| facts.ticks > 0) {
        allow(cause, facts.cores * (facts.ticks * facts.seconds + 1));
    }
    if facts.cpuid {
        allow("cpuid", CPUIDS * facts.seconds);
    }
    if facts.cores > 1 {
        allow("ipi", IPIS * facts.cores * facts.seconds);
    }
    if facts.linux {
        allow("config", LINES + DRIVER * facts.functions);
    }
    if facts.kernel && facts.functions > 0 {
        allow("config", 2 * MASKED * facts.functions * facts.seconds);
    }
    if facts.linux && facts.cores == 1 {
        allow("ipi", RESENT);
    }
    if facts.linux && facts.stopped {
        allow("config", MASKING);
        for cause in ["port", "lvt", "msr", "doorbell"] {
            allow(cause, POWER_OFF * facts.cores);
        }
    }
    all
}

/// Checks that only allowed exits were taken; returns each count beside its bound.
#[must_use]
pub fn judge(
    taken: &BTreeMap<&'static str, u64>,
    allowed: &BTreeMap<&'static str, u64>,
) -> (bool, String) {
    let bound = |cause: &str| allowed.get(cause).copied().unwrap_or(0);
    let held = taken.iter().all(|(cause, count)| *count <= bound(cause));
    let show = |(cause, count): (&&str, &u64)| format!("{cause} {count} of {}", bound(cause));
    let mut counts: Vec<String> = taken.iter().map(show).collect();
    let unused = allowed.iter().filter(|(cause, _)| !taken.contains_key(*cause));
    counts.extend(unused.map(|(cause, _)| show((cause, &0))));
    counts.push("all others 0 of 0".into());
    (held, counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: Facts = Facts {
        linux: false,
        kernel: false,
        cpuid: false,
        stopped: false,
        cores: 1,
        functions: 0,
        registers: false,
        rings: false,
        asks: false,
        links: false,
        console: 0,
        ticks: 0,
        seconds: 6,
    };

    #[test]
    fn a_watched_guest_takes_the_exits_of_its_ticks() {
        let watched = Facts { ticks: 200, ..BARE };
        for cause in ["watchdog", "doorbell"] {
            assert!(judge(&taken(&[(cause, 1_201)]), &allowed(&watched)).0, "{cause}");
            assert!(!judge(&taken(&[(cause, 1_202)]), &allowed(&watched)).0, "{cause}");
            assert!(!judge(&taken(&[(cause, 1)]), &allowed(&BARE)).0, "{cause}");
        }
    }

    fn taken(all: &[(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
        all.iter().copied().collect()
    }

    #[test]
    fn nobody_takes_what_is_not_listed() {
        let linux = Facts { linux: true, stopped: true, functions: 2, ..BARE };
        let smp = Facts { cores: 2, links: true, asks: true, rings: true, ..linux };
        for facts in [BARE, linux, smp] {
            for cause in ["cpuid", "denied", "other", "exception", "cache"] {
                assert!(!judge(&taken(&[(cause, 1)]), &allowed(&facts)).0, "{cause} {facts:?}");
            }
        }
    }

    /// One with a function may mask its messages, and a program on the bare machine has no kernel that does.
    #[test]
    fn a_kernel_masks_messages() {
        let kernel = Facts { kernel: true, functions: 1, ..BARE };
        let held = |facts| judge(&taken(&[("config", 2)]), &allowed(&facts)).0;
        assert!(held(kernel));
        assert!(!held(Facts { functions: 0, ..kernel }));
        assert!(!held(Facts { kernel: false, ..kernel }));
    }

    /// Flight of issue 16: 595 hypercalls of a guest that has written next to nothing.
    #[test]
    fn calls_need_a_reason() {
        let quiet = Facts { console: 60, ..BARE };
        assert!(!judge(&taken(&[("hypercall", 595)]), &allowed(&quiet)).0);
        assert!(judge(&taken(&[("hypercall", 595)]), &allowed(&Facts { console: 600, ..BARE })).0);
        assert!(judge(&taken(&[("hypercall", 595)]), &allowed(&Facts { asks: true, ..BARE })).0);
    }

    /// Each bound is one: it holds at its value and breaks above.
    #[test]
    fn each_bound_bounds() {
        let facts = Facts {
            linux: true,
            stopped: true,
            functions: 2,
            rings: true,
            asks: true,
            links: true,
            ..BARE
        };
        let bounds = allowed(&facts);
        assert_eq!(bounds.len(), 8);
        for (cause, most) in &bounds {
            assert!(judge(&taken(&[(cause, *most)]), &bounds).0, "{cause}");
            assert!(!judge(&taken(&[(cause, most + 1)]), &bounds).0, "{cause}");
        }
    }

    #[test]
    fn rings_and_doorbells_are_for_those_with_channels() {
        for cause in ["ring", "doorbell", "ipi", "config", "port", "lvt", "msr"] {
            assert!(!judge(&taken(&[(cause, 1)]), &allowed(&BARE)).0, "{cause}");
        }
        let running = Facts { linux: true, ..BARE };
        for cause in ["port", "lvt", "msr", "doorbell"] {
            assert!(!judge(&taken(&[(cause, 1)]), &allowed(&running)).0, "{cause}");
        }
    }

    #[test]
    fn bounds_stand_beside_what_was_seen() {
        let (held, text) = judge(&taken(&[("hypercall", 4)]), &allowed(&BARE));
        assert!(held);
        assert_eq!(text, "hypercall 4 of 8, all others 0 of 0");
        let (held, text) = judge(&taken(&[("cpuid", 1)]), &allowed(&BARE));
        assert!(!held);
        assert_eq!(text, "cpuid 1 of 0, hypercall 0 of 8, all others 0 of 0");
    }
}
