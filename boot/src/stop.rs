//! Reasons to stop.

use bulkhead_launch::Error;

/// Why the boot stops; the numbers continue [`Error::code`]. Under a Linux that runs there are more reasons, which the
/// code for power-on never makes.
#[allow(dead_code)]
pub enum Stop {
    /// 16: no multiboot loader, or no memory map from it.
    NoMemoryMap,
    /// 17: no ACPI tables with cores in them.
    NoAcpi,
    /// 18: the processor lacks something.
    Processor(&'static str),
    /// 19: a core did not arrive.
    Core(u32),
    /// 20: the firmware has no PM timer to measure clocks with.
    NoTimer,
    /// 21: a PCI function, its IDs by the machine description and those found.
    Function(u16, u32, u32),
    /// 22: the IOMMU cannot be used.
    Iommu(&'static str),
    /// 23: interrupt lines cannot be kept apart on this machine.
    Lines(&'static str),
    /// 25: a unit with registers at this address cannot be used.
    Unit(u64, &'static str),
    /// 26: a PCI function that the machine description has not.
    Foreign(u16),
    /// 27: a register of a PCI function, by its offset, that is not as it is described.
    Register(u16, u16),
    /// 28: a PCI function sends an interrupt to a core that is not its owner's.
    Message(u16),
    /// 29: an interrupt line leads to such a core.
    Line(u32),
    /// 30: a Linux that runs could not begin anew, for lack of this.
    Restart(&'static str),
    /// 24: a PCI port does not validate who sends the requests that it forwards.
    Source(u16),
    /// The compiled manifest is wrong or for another machine.
    Manifest(Error),
}
