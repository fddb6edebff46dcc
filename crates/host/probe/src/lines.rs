//! Interrupt lines of PCI functions, as Linux has routed them.
//!
//! ACPI's `_PRT` has the line that a pin is wired to, but it is code and can only be run, not read. Linux runs it when
//! a driver enables a function. With the kernel parameter `pci=routeirq` it does so for all functions at once. From
//! then on the function's `irq` is the number of an interrupt, and `/sys/kernel/irq` has its chip, input and trigger
//! mode. Before, `irq` is the firmware's note for PIC mode in the function's interrupt line register. Linux leaves that
//! as it is: the number alone says nothing.

use crate::config::Config;
use crate::tree::Tree;

/// Knowledge of a function's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// It has no interrupt pin.
    None,
    /// That global system interrupt.
    Gsi(u32),
    /// Linux has not routed it.
    Unknown,
}

/// Returns the line of the function in that folder.
pub fn of(tree: &Tree, folder: &str, config: &Config) -> Line {
    if config.pin == 0 {
        return Line::None;
    }
    routed(tree, folder, config).map_or(Line::Unknown, Line::Gsi)
}

/// `None` also for a function that sends messages by MSI: `irq` is that of the first
/// message then, and of another chip.
fn routed(tree: &Tree, folder: &str, config: &Config) -> Option<u32> {
    let irq: u32 = tree.text(&format!("{folder}/irq"))?.parse().ok()?;
    if irq == u32::from(config.line) {
        return None;
    }
    let of = |what| tree.text(&format!("sys/kernel/irq/{irq}/{what}"));
    let (chip, kind) = (of("chip_name")?, of("type")?);
    // With interrupt remapping it is IR-IO-APIC.
    if !chip.ends_with("IO-APIC") || kind != "level" {
        return None;
    }
    // Inputs are counted from the IOAPIC's first one: a description has that of line 0.
    of("hwirq")?.parse().ok()
}
