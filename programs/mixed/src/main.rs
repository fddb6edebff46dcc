//! Three workloads of different criticality and their manager (the scheduling-context paper, section 5.4 and table 5,
//! at a hundredth of its times). They have more to do in each stage. The manager raises the system's criticality, stage
//! by stage: it puts the priorities of workloads that are at least as critical above all others. So those keep their
//! deadlines, and only the others miss theirs.
//!
//! With `switch=timeout` not the manager's clock does that, but a guard when the budget of the most critical one has
//! ended.
//!
//! `role=manager`; `role=image`, the most critical one, `codec`, `sound`: `period=N` us.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod guard;
mod kernels;
mod manager;
mod work;

use bulkhead_program::Program;

bulkhead_program::entry!(mixed);

fn mixed(program: Program) -> u32 {
    match program.arg("role") {
        Some("manager") => manager::manage(program),
        Some("image") => work::run(program, 0, kernels::image),
        Some("codec") => work::run(program, 1, kernels::codec),
        Some("sound") => work::run(program, 2, kernels::sound),
        role => panic!("no role {role:?}"),
    }
}
