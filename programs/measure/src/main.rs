//! Measures the kernel's cost for its programs. Several programs of a system are this file, in different roles:
//! `role=ROLE` in their arguments. Markers lie right before and behind the `syscall` instruction. So the plugin counts
//! from that instruction to the one with which the kernel returns.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod below;
mod calls;
mod criticality;
mod irq;
mod marked;
mod time;

use bulkhead_program::Program;

bulkhead_program::entry!(measure);

fn measure(program: Program) -> u32 {
    match program.arg("role") {
        Some("client") => calls::client(program),
        Some("server") => calls::server(program),
        Some("higher") => calls::higher(program),
        Some("watch") => time::watch(program),
        Some("spin") => time::spin(program),
        Some("refilled") => time::refilled(program),
        Some("handler") => time::handler(program),
        Some("requests") => below::requests(program),
        Some("driver") => irq::driver(program),
        Some("interrupted") => irq::interrupted(program),
        Some("criticality") => criticality::switch(program),
        Some("bystander") => time::bystander(),
        role => panic!("no role {role:?}"),
    }
}
