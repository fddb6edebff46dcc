//! A web server (HTTP/1.1) at port 80. Its card has a driver of its own, another program ([`web_programs::nic`]).
//!
//! Arguments: `address=10.0.2.16`, in a network of 24 bits; `mac=N` for the address 02:00:00:00:00:N.
//!
//! With `asks=ADDRESS` it asks that neighbour for its Ethernet address each `every=MS` (default 4), once it has had an
//! answer. If two questions go by without one, nothing comes through its driver, and the guard hears of it at the
//! endpoint `trouble`. So it does if the driver's words to the server cannot be.
//!
//! With `role=NAME` it waits for that role of its sandbox.
//!
//! Its connections' state is in the memory `connections`. It may begin anew at any time, and goes on with them.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::Program;
use web_programs::{STATE, serve::serve};

bulkhead_program::entry!(server);

fn server(program: Program) -> u32 {
    serve(program, || program.memory(STATE).words())
}
