//! A monitor without devices: what takes the place of [`crate::mmio`], [`crate::pci`], [`crate::ioapic`] and
//! [`crate::rtc`] where a sandbox has no function, no channel that is one, no interrupt line and no clock. There they
//! answer for no address and hold nothing. The image builder refuses this monitor for a sandbox with any of them.

/// Nobody answers.
pub mod mmio {
    use crate::core::Core;
    use crate::outcome::Outcome;

    pub fn answer(_: Core, _: u64, _: u64) -> Option<Outcome> {
        None
    }
}

/// There is no function.
pub mod pci {
    pub fn answers_port(_: u32, _: u8) -> bool {
        false
    }

    pub fn port(_: u32, _: u8, _: Option<u32>) -> Option<Result<u32, u64>> {
        Some(Ok(u32::MAX))
    }

    pub fn quiet() -> Result<(), u64> {
        Ok(())
    }
}

/// There is no line.
pub mod ioapic {
    pub fn silence() {}

    pub fn leave(_: u32) {}
}

/// There is no clock.
pub mod rtc {
    pub fn answers(_: u32, _: u8) -> bool {
        false
    }

    pub fn port(_: u32, _: Option<u8>) -> Option<Result<u8, u64>> {
        Some(Ok(u8::MAX))
    }
}
