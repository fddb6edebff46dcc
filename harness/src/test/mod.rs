//! All tests that need more than one crate: `make test`.
//!
//! A *job* is a process of its own (this program again, with `--job`) that gives the verdicts of one test or of many. A
//! run of the rogue guest, for instance, judges each of its attacks. A job that dies, hangs or forgets a verdict
//! fails the tests that it owes.

mod attack;
mod bell;
mod block;
mod block_attach;
mod bochs;
mod book;
mod channel;
mod control;
mod damaged;
mod device;
mod disk;
mod drive;
mod driver;
mod ending;
mod evidence;
mod explained;
mod failing;
mod figures;
mod files;
mod fuzz;
mod fuzzed;
mod gate;
mod guarantees;
mod guest;
mod host;
mod inject;
mod integrity;
mod kernel;
mod ladder;
mod learn;
mod line;
mod link;
mod linux_channel;
mod linux_io;
mod linux_link;
mod load;
mod mutate;
mod need;
mod net;
mod oracle;
mod outside;
mod peer;
mod played;
mod probe;
mod program_link;
mod rights;
mod ring;
mod sarif;
mod soak;
mod spoil;
mod store;
mod sweep;
mod system;
mod trace;
mod typed;
mod verify;
mod virtio;
mod vmx;
pub(crate) mod voter;
mod vtd;
mod walk;
mod watchdog;
mod wrong;

pub use driver::{Arguments, run};
pub use fuzz::long as fuzz;
pub use kernel::{ALONE, PLAIN};
pub use oracle::all as oracle;

use driver::Job;

/// Every job: the long ones first, so that none is left over at the end.
fn jobs() -> Vec<Job> {
    let mut jobs = host::jobs();
    jobs.extend(inject::jobs());
    jobs.extend(need::jobs());
    jobs.extend(verify::jobs());
    jobs.extend(book::jobs());
    jobs.extend(typed::jobs());
    jobs.extend(fuzz::jobs());
    jobs.extend(oracle::jobs());
    jobs.extend(played::jobs());
    jobs.extend(fuzzed::jobs());
    jobs.extend(files::jobs());
    jobs.extend(sarif::jobs());
    jobs.extend(guest::jobs());
    jobs.extend(kernel::jobs());
    jobs.extend(store::jobs());
    jobs.extend(failing::jobs());
    jobs.extend(ending::jobs());
    jobs.extend(evidence::jobs());
    jobs.extend(channel::jobs());
    jobs.extend(linux_channel::jobs());
    jobs.extend(link::jobs());
    jobs.extend(linux_link::jobs());
    jobs.extend(program_link::jobs());
    jobs.extend(control::jobs());
    jobs.extend(rights::jobs());
    jobs.extend(net::jobs());
    jobs.extend(virtio::jobs());
    jobs.extend(outside::jobs());
    jobs.extend(gate::jobs());
    jobs.extend(block::jobs());
    jobs.extend(block_attach::jobs());
    jobs.extend(integrity::jobs());
    jobs.extend(trace::jobs());
    jobs.extend(line::jobs());
    jobs.extend(attack::jobs());
    jobs.extend(device::jobs());
    jobs.extend(load::jobs());
    jobs.extend(guarantees::jobs());
    jobs.extend(watchdog::jobs());
    jobs.extend(ladder::jobs());
    jobs.extend(peer::jobs());
    jobs.extend(sweep::jobs());
    jobs.extend(voter::jobs());
    jobs.extend(mutate::jobs());
    jobs.extend(walk::jobs());
    jobs.extend(vtd::jobs());
    jobs.extend(figures::jobs());
    jobs.extend(bochs::jobs());
    jobs.extend(vmx::jobs());
    jobs.extend(ring::jobs());
    jobs.extend(disk::jobs());
    jobs.extend(linux_io::jobs());
    jobs.extend(drive::jobs());
    jobs.extend(damaged::jobs());
    jobs.extend(wrong::jobs());
    jobs.extend(probe::jobs());
    jobs.extend(learn::jobs());
    jobs
}
