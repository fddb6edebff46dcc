//! A PCI configuration space (PCI 3.0, chapter 6), as its device shows it: any
//! bytes at all. Nothing here panics or goes on for ever.

use crate::bytes::{u8_at, u16_at, u32_at};
use bulkhead_manifest::raw_machine::{MsiEntry, MsixEntry, PcieEntry, PmEntry};
use bulkhead_plan::{Bridge, Ports, Span};

/// More capabilities than fit between 0x40 and 0xff are a loop.
const MOST: usize = 48;

/// Content of a configuration space.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class, subclass and programming interface.
    pub class: u32,
    /// Interrupt line: what the firmware noted of it for PIC mode.
    pub line: u8,
    /// Interrupt pin: 1 to 4 for A to D, 0 for none.
    pub pin: u8,
    /// Base address registers as they stand.
    pub bars: [u32; 6],
    /// Buses and windows, if it is a PCI-to-PCI bridge.
    pub bridge: Option<Bridge>,
    /// Power management.
    pub pm: Option<PmEntry>,
    /// MSI.
    pub msi: Option<MsiEntry>,
    /// MSI-X.
    pub msix: Option<MsixEntry>,
    /// PCI Express.
    pub pcie: Option<PcieEntry>,
    /// Advanced features.
    pub af: Option<PcieEntry>,
    /// BAR and offset of the common configuration, if it is a virtio function.
    pub virtio: Option<(u8, u32)>,
}

impl Config {
    /// Tells if its IDs are a virtio function's (virtio 1.2, 4.1.2).
    fn is_virtio(&self) -> bool {
        self.vendor == 0x1AF4 && (0x1000..0x1080).contains(&self.device)
    }
}

/// Reads a configuration space of at least 64 bytes; `None` if it is shorter or
/// nobody answered.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<Config> {
    let vendor = u16_at(bytes, 0)?;
    u32_at(bytes, 0x3C)?;
    if matches!(vendor, 0 | 0xFFFF) {
        return None;
    }
    let mut config = Config {
        vendor,
        device: u16_at(bytes, 2)?,
        class: u32_at(bytes, 8)? >> 8,
        line: u8_at(bytes, 0x3C)?,
        pin: u8_at(bytes, 0x3D)?,
        ..Config::default()
    };
    let kind = u8_at(bytes, 0xE)? & 0x7F;
    let bars = [6, 2, 1].get(usize::from(kind)).copied().unwrap_or(0);
    for (number, bar) in config.bars.iter_mut().enumerate().take(bars) {
        *bar = u32_at(bytes, 0x10 + 4 * number)?;
    }
    if kind == 1 {
        config.bridge = Some(Bridge { acs: acs(bytes), ..windows(bytes)? });
    }
    let pointer = if kind == 2 { 0x14 } else { 0x34 };
    if u16_at(bytes, 6)? & 1 << 4 != 0 {
        capabilities(bytes, pointer, &mut config);
    }
    Some(config)
}

/// Reads the windows of a bridge (PCI-to-PCI Bridge 1.2, 3.2); a window with its limit below its base is closed.
fn windows(bytes: &[u8]) -> Option<Bridge> {
    let span =
        |start: u64, last: u64| (start <= last).then(|| Span { start, len: last - start + 1 });
    let (base, limit) = (u16_at(bytes, 0x20)?, u16_at(bytes, 0x22)?);
    let address = |register: u16| u64::from(register & 0xFFF0) << 16;
    let memory = span(address(base), address(limit) | 0xF_FFFF);

    let (base, limit) = (u16_at(bytes, 0x24)?, u16_at(bytes, 0x26)?);
    let wide = base & 0xF == 1;
    let upper = |at| Some(if wide { u64::from(u32_at(bytes, at)?) << 32 } else { 0 });
    let start = upper(0x28)? | address(base);
    let prefetchable = span(start, upper(0x2C)? | address(limit) | 0xF_FFFF);

    let (base, limit) = (u8_at(bytes, 0x1C)?, u8_at(bytes, 0x1D)?);
    let port = |register: u8| u16::from(register & 0xF0) << 8;
    // Bridges for 32-bit ports say in the upper halves that they are beyond 64 Ki.
    let beyond = base & 0xF == 1 && u32_at(bytes, 0x30)? != 0;
    let (first, last) = (port(base), port(limit) | 0xFFF);
    let ports = (first <= last && !beyond).then_some(Ports { first, last });
    Some(Bridge {
        secondary: u8_at(bytes, 0x19)?,
        subordinate: u8_at(bytes, 0x1A)?,
        memory: memory.filter(|window| window.start > 0),
        prefetchable: prefetchable.filter(|window| window.start > 0),
        ports: ports.filter(|ports| ports.first > 0),
        acs: None,
    })
}

/// Finds where the access control services are that have source validation (PCIe 5.0, 7.6.3 and 7.7.8.2), among the
/// extended capabilities; only root is shown these.
fn acs(bytes: &[u8]) -> Option<u16> {
    const ACS: u16 = 0x000D;
    const SOURCE_VALIDATION: u16 = 1;
    let mut at = 0x100;
    // More than fit are a loop.
    for _ in 0..0xF00 / 8 {
        let header = u32_at(bytes, at.into())?;
        if header as u16 == ACS {
            let found = u16_at(bytes, usize::from(at) + 4)? & SOURCE_VALIDATION != 0;
            return found.then_some(at);
        }
        at = (header >> 20) as u16 & !3;
        if at < 0x100 {
            return None;
        }
    }
    None
}

/// The first capability of each kind.
fn capabilities(bytes: &[u8], pointer: usize, config: &mut Config) {
    let mut next = u8_at(bytes, pointer).unwrap_or(0) & !3;
    for _ in 0..MOST {
        if next < 0x40 {
            return;
        }
        let Some(header) = u16_at(bytes, next.into()) else { return };
        capability(bytes, header as u8, next, config);
        next = (header >> 8) as u8 & !3;
    }
}

fn capability(bytes: &[u8], id: u8, at: u8, config: &mut Config) -> Option<()> {
    let register = |offset| u32_at(bytes, usize::from(at) + offset);
    let control = (register(0)? >> 16) as u16;
    match id {
        // No_Soft_Reset, PMCSR bit 3 (PCI PM 1.2, 3.2.4).
        0x01 if config.pm.is_none() => {
            config.pm = Some(PmEntry { at, resets: register(4)? & 1 << 3 == 0 });
        }
        // PCI 3.0, 6.8.1.3.
        0x05 if config.msi.is_none() => {
            let (wide, masks) = (control & 1 << 7 != 0, control & 1 << 8 != 0);
            config.msi = Some(MsiEntry { at, wide, masks });
        }
        // PCI 3.0, 6.8.2.3.
        0x11 if config.msix.is_none() => {
            let place = |register: u32| [register & 7, register & !7];
            config.msix = Some(MsixEntry {
                at,
                vectors: (control & 0x7FF) + 1,
                table: place(register(4)?),
                pba: place(register(8)?),
            });
        }
        // Device capabilities, bit 28 (PCIe 3.0, 7.8.3).
        0x10 if config.pcie.is_none() => {
            config.pcie = Some(PcieEntry { at, flr: register(4)? & 1 << 28 != 0 });
        }
        // AF capabilities, bit 1 (PCI Advanced Capabilities ECN).
        0x13 if config.af.is_none() => {
            config.af = Some(PcieEntry { at, flr: register(0)? & 1 << 25 != 0 });
        }
        // Vendor-specific, of type 1: common configuration (virtio 1.2, 4.1.4).
        0x09 if config.is_virtio() && control >> 8 == 1 && config.virtio.is_none() => {
            config.virtio = Some((register(4)? as u8, register(8)?));
        }
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a header with one capability at 0x40 that points to itself.
    fn looping() -> Vec<u8> {
        let mut bytes = vec![0; 256];
        bytes[..4].copy_from_slice(&[0xF4, 0x1A, 0x42, 0x10]);
        (bytes[6], bytes[0x34]) = (0x10, 0x43);
        bytes[0x40..0x44].copy_from_slice(&[0x11, 0x40, 0x02, 0x80]);
        bytes[0x44..0x4C].copy_from_slice(&[0x01, 0x20, 0, 0, 0x02, 0x30, 0, 0]);
        bytes
    }

    #[test]
    fn a_loop_of_capabilities_ends() {
        let msix = read(&looping()).unwrap().msix.unwrap();
        assert_eq!((msix.at, msix.vectors), (0x40, 3));
        assert_eq!((msix.table, msix.pba), ([1, 0x2000], [2, 0x3000]));
    }

    #[test]
    fn the_common_configuration_of_virtio() {
        let mut bytes = looping();
        bytes[0x40..0x4C].copy_from_slice(&[0x09, 0x4C, 16, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes[0x4C..0x58].copy_from_slice(&[0x09, 0x40, 16, 1, 4, 0, 0, 0, 0, 0x10, 0, 0]);
        assert_eq!(read(&bytes).unwrap().virtio, Some((4, 0x1000)));
        bytes[3] = 0x20;
        assert_eq!(read(&bytes).unwrap().virtio, None);
    }

    #[test]
    fn what_is_cut_off_is_left_out() {
        let mut bytes = looping();
        bytes.truncate(0x46);
        assert!(read(&bytes).unwrap().msix.is_none());
        assert!(read(&bytes[..63]).is_none());
        assert!(read(&[0xFF; 256]).is_none());
    }

    /// Returns a bridge with advanced error reporting, behind which access control services come.
    fn port(capabilities: u16) -> Vec<u8> {
        let mut bytes = looping();
        bytes.resize(4096, 0);
        bytes[0xE] = 1;
        bytes[0x100..0x104].copy_from_slice(&0x1482_0001u32.to_le_bytes());
        bytes[0x148..0x14C].copy_from_slice(&0x0001_000Du32.to_le_bytes());
        bytes[0x14C..0x14E].copy_from_slice(&capabilities.to_le_bytes());
        bytes
    }

    #[test]
    fn source_validation_of_a_port() {
        let acs = |bytes: &[u8]| read(bytes).unwrap().bridge.unwrap().acs;
        assert_eq!(acs(&port(0x5F)), Some(0x148));
        assert_eq!(acs(&port(0x5E)), None);
        // Users other than root see 64 or 256 bytes.
        assert_eq!(acs(&port(0x5F)[..256]), None);
        assert_eq!(acs(&port(0x5F)[..0x14D]), None);
        let mut looping = port(0x5F);
        looping[0x148] = 2;
        looping[0x14B] = 0x10;
        assert_eq!(acs(&looping), None);
    }

    #[test]
    fn closed_windows_are_none() {
        let mut bytes = looping();
        bytes[0xE] = 1;
        bytes[0x19..0x1B].copy_from_slice(&[1, 2]);
        bytes[0x1C..0x1E].copy_from_slice(&[0xF1, 0x01]);
        bytes[0x20..0x28].copy_from_slice(&[0x80, 0xFE, 0x90, 0xFE, 0x01, 0x00, 0xF1, 0x1F]);
        (bytes[0x28], bytes[0x2C]) = (0xC0, 0xC0);
        let bridge = read(&bytes).unwrap().bridge.unwrap();
        assert_eq!((bridge.secondary, bridge.subordinate, bridge.ports), (1, 2, None));
        assert_eq!(bridge.memory, Some(Span { start: 0xFE80_0000, len: 0x20_0000 }));
        assert_eq!(bridge.prefetchable, Some(Span { start: 0xC0_0000_0000, len: 0x2000_0000 }));
    }

    proptest! {
        /// Half of them with a valid header, so that the walk is reached.
        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), valid: bool) {
            if valid && bytes.len() > 0x40 {
                (bytes[0], bytes[6], bytes[0xE]) = (0xF4, bytes[6] | 0x10, bytes[0xE] & 0x81);
            }
            if let Some(config) = read(&bytes) {
                let ats = [
                    config.pm.map(|c| c.at),
                    config.msi.map(|c| c.at),
                    config.msix.map(|c| c.at),
                    config.pcie.map(|c| c.at),
                    config.af.map(|c| c.at),
                ];
                prop_assert!(ats.iter().flatten().all(|at| *at >= 0x40 && at % 4 == 0));
            }
        }
    }
}
