//! Images that were damaged after they were built: the boot code notices before
//! it uses anything of them.

use super::driver::Job;
use super::spoil::Spoil;
use super::system::{Manifest, run};
use super::wrong::stopped;
use bulkhead_image::Baked;
use std::time::Duration;

type Change = fn(&mut Vec<u8>, &Baked);

/// Name, damage, number of the error, part of the message. Where a check comes
/// after the checksum's, the checksum is made right again.
const DAMAGE: [(&str, Change, u64, &str); 10] = [
    // Where the compiled manifest is, as the boot code is told.
    ("address", |b, _| b[256..264].fill(0xA5), 1, "no compiled manifest"),
    ("magic", |b, k| Spoil::new(b, k).header(|h| h.magic ^= 1), 1, "no compiled manifest"),
    ("version", |b, k| Spoil::new(b, k).header(|h| h.version = 99), 2, "version 99"),
    ("flipped-bit", |b, k| Spoil::new(b, k).flip(), 3, "checksum"),
    ("truncated", |b, _| b.truncate(b.len() - 8192), 3, "checksum"),
    (
        "sandboxes-too-many",
        |b, k| Spoil::new(b, k).header(|h| h.sandboxes = 1000),
        4,
        "number of sandboxes",
    ),
    (
        "monitor-outside",
        |b, k| {
            let mut spoil = Spoil::new(b, k);
            spoil.sandbox(1, |s| s.monitor.start = 0x6000_0000);
            spoil.seal();
        },
        4,
        "monitor",
    ),
    (
        "overlap",
        |b, k| {
            let mut spoil = Spoil::new(b, k);
            let mut other = 0;
            spoil.sandbox(0, |s| other = s.memory[0].start);
            spoil.sandbox(1, |s| s.memory[0].start = other);
            spoil.seal();
        },
        5,
        "overlaps",
    ),
    (
        "core-twice",
        |b, k| {
            let mut spoil = Spoil::new(b, k);
            spoil.sandbox(1, |s| s.core_ids[0] = 0);
            spoil.seal();
        },
        8,
        "given twice",
    ),
    (
        "core-nobody-has",
        |b, k| {
            let mut spoil = Spoil::new(b, k);
            spoil.sandbox(1, |s| s.core_ids[0] = 77);
            spoil.seal();
        },
        7,
        "APIC ID 77",
    ),
];

pub fn jobs() -> Vec<Job> {
    let tests = DAMAGE.iter().map(|d| format!("damaged/{}", d.0));
    vec![Job::new("damaged", tests, 200, |bench| {
        let manifest = Manifest::new().bare("one", "hello", "", &[0], "4 MiB", "").bare(
            "two",
            "hello",
            "",
            &[1],
            "4 MiB",
            "",
        );
        for (name, change, code, part) in DAMAGE {
            let seen = run(&manifest, &bench.dir.join(name), |o| {
                o.limit = Duration::from_secs(20);
                o.spoil = Some(Box::new(change));
            });
            let result = seen.and_then(|seen| match &seen.outcome {
                Ok(_) => Err(seen.wrong("it booted")),
                Err(error) => stopped(error, code, part),
            });
            bench.result(&format!("damaged/{name}"), result);
        }
    })]
}
