//! I/O ports, as a capability grants them: a range. The lower half of the capability's object has the first port, and
//! the upper half the last one.

use bulkhead_kernel::Cap;
use bulkhead_kernel::abi::{Code, Kind, Label, Status, label};

/// An access to a port that a program was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Number of the first port.
    pub number: u16,
    /// Bytes: 1, 2 or 4.
    pub bytes: u8,
    /// Value of a write.
    pub value: Option<u32>,
}

/// Makes the capability to a range of ports.
#[must_use]
pub const fn ports(first: u16, last: u16) -> Cap {
    Cap::original(Kind::Ports, first as u32 | (last as u32) << 16, 0)
}

/// Checks a method of such a capability.
///
/// # Errors
/// [`Code::NoCall`]; [`Code::OutOfRange`] of the port, of the number of bytes, of the value.
#[inline(never)]
pub(crate) fn access(cap: &Cap, method: Label, words: &[u64; 4]) -> Result<Port, Status> {
    if !matches!(method, label::IN | label::OUT) {
        return Err(Status::new(Code::NoCall, 0, 0));
    }
    let (first, last) = (u64::from(cap.object & 0xFFFF), u64::from(cap.object >> 16));
    let &[port, bytes, value, _] = words;
    if !matches!(bytes, 1 | 2 | 4) {
        return Err(Status::new(Code::OutOfRange, 2, 4));
    }
    if port < first || port.checked_add(bytes - 1).is_none_or(|end| end > last) {
        return Err(Status::new(Code::OutOfRange, 1, last));
    }
    let access = Port { number: port as u16, bytes: bytes as u8, value: None };
    if method == label::IN {
        return Ok(access);
    }
    let most = (1 << (8 * bytes)) - 1;
    if value > most {
        return Err(Status::new(Code::OutOfRange, 3, most));
    }
    Ok(Port { value: Some(value as u32), ..access })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 0x60;
    const LAST: u64 = 0x6F;

    fn read(port: u64, bytes: u64) -> Result<Port, Status> {
        access(&ports(FIRST as u16, LAST as u16), label::IN, &[port, bytes, 7, 0])
    }

    fn write(port: u64, bytes: u64, value: u64) -> Result<Port, Status> {
        access(&ports(FIRST as u16, LAST as u16), label::OUT, &[port, bytes, value, 0])
    }

    #[test]
    fn all_bytes_of_an_access_are_in_the_range() {
        let near = [0, FIRST - 1, LAST + 1, 0x1_0060, u64::MAX, u64::MAX - 2];
        for port in (FIRST - 4..LAST + 5).chain(near) {
            for bytes in [1, 2, 4] {
                let inside = port >= FIRST && port <= LAST + 1 - bytes;
                let number = port as u16;
                let wanted = match inside {
                    true => Ok(Port { number, bytes: bytes as u8, value: None }),
                    false => Err(Status::new(Code::OutOfRange, 1, LAST)),
                };
                assert_eq!(read(port, bytes), wanted, "{port:#x} {bytes}");
            }
        }
    }

    #[test]
    fn an_access_has_a_size_that_there_is() {
        for bytes in [0, 3, 5, 8, 0x101, u64::MAX] {
            let wanted = Err(Status::new(Code::OutOfRange, 2, 4));
            assert_eq!(read(FIRST, bytes), wanted);
            assert_eq!(write(FIRST, bytes, 0), wanted);
        }
    }

    #[test]
    fn a_value_fits_into_its_bytes() {
        for (bytes, most) in [(1, 0xFF), (2, 0xFFFF), (4, 0xFFFF_FFFF)] {
            let value = Some(most as u32);
            let wanted = Port { number: FIRST as u16, bytes: bytes as u8, value };
            assert_eq!(write(FIRST, bytes, most), Ok(wanted));
            let refused = Err(Status::new(Code::OutOfRange, 3, most));
            assert_eq!(write(FIRST, bytes, most + 1), refused);
            assert_eq!(write(FIRST, bytes, u64::MAX), refused);
        }
    }

    #[test]
    fn no_other_method_reaches_a_port() {
        let cap = ports(0, u16::MAX);
        for method in (0..200).filter(|method| !matches!(*method, label::IN | label::OUT)) {
            let refused = Err(Status::new(Code::NoCall, 0, 0));
            assert_eq!(access(&cap, method, &[0, 1, 0, 0]), refused);
        }
    }
}
