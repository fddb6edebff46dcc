//! Watches a running machine from outside. It reads the reports of its monitors and the IOMMU's event log out of its
//! RAM, and puts them into words. This takes no exit and no cycle of the machine's.

mod arch;
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
    Audit, AuditRule, Boot, Deed, Exits, FAILOVER, Monitor, Promise, Refused, Report, Rung,
    Sandbox, TOOK, Telemetry, VERSION, exits, refused, report, state,
};
pub use rule::Rule;
pub use snapshot::{Core, SandboxSnapshot, Snapshot, sandbox, snapshot, telemetry};
pub use x86::dma;
