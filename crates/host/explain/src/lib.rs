//! Watches a running machine from outside: reads the reports of its monitors
//! and the IOMMU's event log out of its RAM, without an exit and without a cycle of the machine's, and
//! puts them into words.

pub mod dma;
mod explain;
mod learn;
pub mod owner;
mod ram;
mod report;
mod rule;
mod snapshot;
mod x86;

pub use bulkhead_untrusted::Untrusted;
pub use explain::{Explained, explain, fold};
pub use learn::Lessons;
pub use ram::Read;
pub use report::{
    Boot, Exits, Monitor, Promise, Refused, Report, Rung, Sandbox, VERSION, exits, refused, report,
    state,
};
pub use rule::Rule;
pub use snapshot::{Core, SandboxSnapshot, Snapshot, sandbox, snapshot, telemetry};
