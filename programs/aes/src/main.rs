//! A passive server encrypts for two clients, on their budgets, which do not suffice (the scheduling-context paper,
//! section 5.2 and figure 11). At the end of a budget its timeout handler, that of `programs/overrun`, acts. It answers
//! the client with the number of finished pieces and takes the server back to its last complete piece. The client asks
//! for the rest. So each client's throughput is its share of the server's speed, however the requests of the other one
//! lie.
//!
//! `role=server`; `role=client`: `from=NAME to=NAME`; `role=watch`, which measures: `budgets=N,N period=N` ns,
//! `periods=N` of them are judged.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod client;
mod server;
mod watch;

use bulkhead_program::Program;
use core::sync::atomic::AtomicU64;
use program_aes::Cipher;

bulkhead_program::entry!(aes);

/// Clients.
const CLIENTS: usize = 2;

fn aes(program: Program) -> u32 {
    match program.arg("role") {
        Some("server") => server::serve(program),
        Some("client") => client::ask(program),
        Some("watch") => watch::watch(program),
        role => panic!("no role {role:?}"),
    }
}

/// The key is no secret: clients check the answers.
fn cipher() -> Cipher {
    Cipher::new(&core::array::from_fn(|n| n as u8), 0)
}

/// A table that all see: pieces that were encrypted for each client, and pieces with ends that each found right.
#[derive(Clone, Copy)]
struct Table(&'static [AtomicU64]);

impl Table {
    fn of(program: Program) -> Self {
        Self(program.memory("table").words())
    }

    fn done(self, client: usize) -> &'static AtomicU64 {
        &self.0[client]
    }

    fn checked(self, client: usize) -> &'static AtomicU64 {
        &self.0[CLIENTS + client]
    }
}
