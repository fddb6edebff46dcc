//! Layouts that only x86-64 has.

pub mod bareload;
pub mod marker;

pub use bulkhead_handover::x86::{
    Header, Iommu, LineTest, MONITORS_SVM, MONITORS_VMX, TRAMPOLINE_PA, late,
};
pub use bulkhead_monitor_abi_x86::{debug, port};
