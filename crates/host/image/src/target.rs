//! The contract of an architecture's image: everything that is baked for one kind of monitor, beside what its
//! [`Facts`](bulkhead_plan::Facts) say. The machine description chooses it; a test brings an odd one of its own.

use crate::Error;
use crate::elf::Program;
use crate::guest::{Entry, Guest};
use crate::pages::Pages;
use bulkhead_arch::{Stage1, Stage2};
use bulkhead_layout::monitor::{Config, Leaf, Quiet};
use bulkhead_layout::record::Op;
use bulkhead_plan::{Plan, Sandbox};

/// A kind of monitor, how it starts, and how it confines a guest.
pub trait Target {
    /// Tables of a monitor.
    type Own: Stage1;
    /// Tables that confine a guest.
    type Nested: Stage2;
    /// True if a monitor maps the processor's own page of each core.
    const MAPS_HOST: bool;

    /// Makes the headers by which a boot loader knows the image: its first bytes.
    fn headers(entry: u64) -> Vec<u8>;
    /// Makes the page by which a monitor's cores find its handlers of interrupts and faults; `None`: its text has it.
    ///
    /// # Errors
    /// The monitor lacks a handler.
    fn vectors(program: &Program) -> Result<Option<Vec<u8>>, Error>;
    /// Makes a sandbox' guest as it is at its first instruction, firmware tables included.
    ///
    /// # Errors
    /// Files that cannot be read or are not what they should be.
    fn guest(plan: &Plan, index: usize) -> Result<Guest, Error>;
    /// Bakes the tables of registers that a guest reaches beside memory. On x86: of ports, then of MSRs.
    fn traps(pages: &mut Pages, sandbox: &Sandbox) -> [u64; 2];
    /// Control block of a first core.
    fn first(confine: &Confine, entry: &Entry) -> Vec<Op>;
    /// Control block of a core that another one starts. On x86: after a SIPI with vector 0.
    fn further(confine: &Confine) -> Vec<Op>;
    /// Why the processor would refuse a start state, by the manual's checks.
    fn refused(_: &[Op]) -> Option<String> {
        None
    }
    /// Decides about registers that no sandbox has.
    fn policy(plan: &Plan, sandbox: &Sandbox) -> Policy;
    /// Makes a set of cores, as monitors keep it.
    fn cores(ids: &[u32]) -> [u64; 4];
    /// Makes the word by which a monitor sends an interrupt to a core.
    fn signal(core: u32, interrupt: u32) -> u64;
    /// Fills in words of a monitor's configuration that this architecture alone has.
    fn configure(_: &mut Config) {}
}

/// Answers of a monitor for registers that no sandbox has.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Ports that are quietly absent.
    pub ports: Vec<Quiet>,
    /// System registers that are quietly absent; on x86, MSRs.
    pub registers: Vec<Quiet>,
    /// Words that name the processor, as a guest sees them changed; on x86, leaves of CPUID.
    pub identity: Vec<Leaf>,
    /// PCI can be configured by ports, too.
    pub config_ports: bool,
}

/// Where the things lie that confine a guest.
pub struct Confine {
    /// Results of [`Target::traps`].
    pub traps: [u64; 2],
    /// Root of the nested tables.
    pub root: u64,
    /// Number of the guest, from 1 on.
    pub tag: u32,
}
