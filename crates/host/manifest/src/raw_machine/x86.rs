//! Words of x86-64 in machine descriptions.

use schemars::JsonSchema;
use serde::Deserialize;

/// Architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Arch {
    /// x86-64 with AMD's SVM.
    #[serde(rename = "x86-64-svm")]
    X8664Svm,
    /// x86-64 with Intel's VT-x.
    #[serde(rename = "x86-64-vmx")]
    X8664Vmx,
}

/// A unit that confines DMA.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IommuEntry {
    /// Its kind.
    pub kind: IommuKind,
    /// Address of its registers.
    pub base: u64,
    /// True if it remaps interrupts.
    #[serde(default)]
    pub remaps_interrupts: bool,
    /// True if the IOAPIC's messages are among them. Without it, the boot code finds out.
    pub remaps_lines: Option<bool>,
    /// Requester ID of the IOAPIC's interrupt messages, such as `"00:14.0"`.
    pub ioapic_requester: Option<String>,
}

/// Kinds of IOMMUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IommuKind {
    /// AMD-Vi.
    AmdVi,
    /// Intel VT-d.
    VtD,
}

/// A High Precision Event Timer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HpetEntry {
    /// Address of its registers.
    pub base: u64,
    /// Its comparators, the first ones, that repeat by themselves (`Tn_PER_INT_CAP`) and send messages
    /// (`Tn_FSB_INT_DEL_CAP`).
    pub comparators: u32,
    /// Femtoseconds of a tick of its counter (`COUNTER_CLK_PERIOD`).
    pub period: u32,
}

/// An IOAPIC.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IoapicEntry {
    /// Address of its registers.
    pub base: u64,
    /// Its lines; the first one is GSI 0.
    pub lines: u32,
}
