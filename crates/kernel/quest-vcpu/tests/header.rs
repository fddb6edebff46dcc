//! The header for C has this crate's numbers: `BLESS=1 cargo test -p bulkhead-quest-vcpu` writes it.

use bulkhead_quest_vcpu::{Error, Param, SCHED_PIBS, SCHED_SPORADIC};
use std::fmt::Write as _;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../program/include/quest-vcpu.h");

fn header() -> String {
    let Param { c, t, .. } = Param::DEFAULT;
    let mut out = format!(
        "/* Quest's interface to VCPUs (Quest-V, TOCS 2016, section 3.3): see crates/kernel/quest-vcpu, from which a
 * test derives this file (BLESS=1 cargo test -p bulkhead-quest-vcpu writes it anew).
 *
 * The manifest has to give the program sched_control, memory for new VCPUs, and the threads that bind
 * themselves (manages), with a max_priority.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef QUEST_VCPU_H
#define QUEST_VCPU_H

enum {{
    SCHED_SPORADIC = {SCHED_SPORADIC}, /* a Main VCPU */
    SCHED_PIBS = {SCHED_PIBS},     /* an I/O VCPU */
}};

struct vcpu_param {{
    int vcpuid; /* identifier, from 1 */
    int policy; /* SCHED_SPORADIC or SCHED_PIBS */
    int mask;   /* PCPU affinity bit-mask: bit 0 is the kernel's core */
    int C;      /* budget capacity, microseconds */
    int T;      /* period, microseconds; of an I/O VCPU only C/T matters */
}};

/* What the functions return if they did nothing. */
enum {{
"
    );
    for (error, name, meaning) in Error::ALL {
        let _ = writeln!(out, "    {name} = {}, /* {meaning} */", error as i32);
    }
    let _ = write!(
        out,
        "}};

/* Creates a Main or I/O VCPU; its identifier. NULL: a Main VCPU of {c} us in {t} us. Admission must not
 * refuse it. */
int vcpu_create(struct vcpu_param *param);
/* Destroys a VCPU. With force its thread is terminated, and if that is the caller, this does not return; without, it
 * must have none. 0 or an error. */
int vcpu_destroy(int vcpuid, int force);
/* Gives the VCPU param->vcpuid new parameters. 0 or an error. */
int vcpu_setparam(struct vcpu_param *param);
/* The parameters of the next VCPU in the program's list, from its head on, and there again behind its end;
 * each thread has its own place in it. 0 or an error. */
int vcpu_getparam(struct vcpu_param *param);
/* Binds the calling thread to a VCPU, which has one thread at most: VCPU_EBUSY if another one is bound to it. 0 or
 * an error. */
int vcpu_bind_task(int vcpuid);

#endif
"
    );
    out
}

#[test]
fn the_header_has_these_numbers() {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PATH, header()).expect("the header is writable");
    }
    let found = std::fs::read_to_string(PATH).expect("the header exists");
    assert_eq!(found, header(), "BLESS=1 writes it");
}
