//! A passive server works on its clients' budgets, and these do not suffice. Its timeout handler settles it for each
//! client in another way (the scheduling-context paper, sections 3.4.2 and 5.2). The beginning of a client's name says
//! which:
//!
//! * `rollback`: it is answered how far the server came, and the server is taken back to its last complete step;
//! * `emergency`: the server ends the request on a budget for that alone;
//! * `extend`: its budget becomes larger, up to half of its period;
//! * `kill`: it is stopped, and the server taken back.
//!
//! `role=server`, `client`, `handler`, `end` says which part a program is. Markers give the handler's cost: from its
//! first instruction until the server goes on, or waits for its next request.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod client;
mod handler;
mod server;

use bulkhead_program::Program;

bulkhead_program::entry!(overrun);

fn overrun(program: Program) -> u32 {
    match program.arg("role") {
        Some("server") => server::serve(program),
        Some("client") => client::ask(program),
        Some("end") => client::wait(program),
        Some("handler") => handler::handle(program),
        role => panic!("no role {role:?}"),
    }
}
