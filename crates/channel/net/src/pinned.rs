//! To which ports an Ethernet frame goes, where each port's address is known beforehand.
//!
//! Port 0 leads outside, where any addresses are. Each other port has one address, which is pinned to it. A frame with
//! another one as its source is refused, and so is one from outside with a port's address. So nothing is learned, no
//! table overflows, and no port speaks in another's name. A frame to several ports counts: a port may send so many of
//! these in a time, then they are refused.

use crate::switch::{GROUP, Mac, Refused};

/// Bytes of a header: destination, source, type.
pub const ETHERNET: usize = 14;
/// The port that leads outside.
pub const OUTSIDE: usize = 0;

/// How many frames to several ports a port may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In a second, over time.
    pub rate: u32,
    /// At once.
    pub burst: u32,
}

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A port's frames to several ports.
#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    left: u32,
    since: u64,
}

impl Allowance {
    /// Takes one, if there is one left at that time.
    fn take(&mut self, limit: Limit, now: u64) -> bool {
        let each = SECOND / u64::from(limit.rate.max(1));
        let more = now.saturating_sub(self.since) / each;
        self.left = u64::from(self.left).saturating_add(more).min(limit.burst.into()) as u32;
        // The rest of the time counts on, unless the allowance is whole.
        self.since = if self.left == limit.burst { now } else { self.since + more * each };
        let some = self.left > 0;
        self.left -= u32::from(some);
        some
    }
}

/// A switch of `PORTS` ports, 2 to 32, with pinned addresses.
#[derive(Debug)]
pub struct Pinned<const PORTS: usize> {
    addresses: [Option<Mac>; PORTS],
    allowances: [Allowance; PORTS],
    limit: Limit,
}

impl<const PORTS: usize> Pinned<PORTS> {
    /// Makes a switch without ports but the one that leads outside.
    #[must_use]
    pub const fn new(limit: Limit) -> Self {
        const { assert!(PORTS > 1 && PORTS <= 32) };
        let whole = Allowance { left: limit.burst, since: 0 };
        Self { addresses: [None; PORTS], allowances: [whole; PORTS], limit }
    }

    /// Pins an address to a port. `false`: there is no such port, it or the address is taken, or several stations have
    /// that address.
    #[must_use]
    pub fn pin(&mut self, port: usize, mac: Mac) -> bool {
        let good = mac[0] & GROUP == 0 && mac != [0; 6] && !self.addresses.contains(&Some(mac));
        match self.addresses.get_mut(port) {
            Some(free @ None) if good && port != OUTSIDE => *free = Some(mac),
            _ => return false,
        }
        true
    }

    /// Returns the ports to which a frame with this header goes, a bit each; it came in at port `from` at the time
    /// `now` (nanoseconds).
    ///
    /// # Errors
    /// [`Refused`]: to no port.
    pub fn route(&mut self, from: usize, header: [u8; ETHERNET], now: u64) -> Result<u32, Refused> {
        let [to @ .., _, _, _, _, _, _, _, _] = header;
        let [_, _, _, _, _, _, source @ .., _, _] = header;
        if source[0] & GROUP != 0 || source == [0; 6] {
            return Err(Refused::Malformed);
        }
        let own = self.addresses.get(from).ok_or(Refused::Malformed)?;
        let right = match own {
            Some(own) => *own == source,
            None => from == OUTSIDE && !self.addresses.contains(&Some(source)),
        };
        if !right {
            return Err(Refused::Stolen);
        }
        if to[0] & GROUP != 0 {
            let limit = self.limit;
            let allowed = self.allowances.get_mut(from).is_some_and(|one| one.take(limit, now));
            return if allowed { Ok(self.all() & !(1 << from)) } else { Err(Refused::Storm) };
        }
        let port = self.addresses.iter().position(|one| *one == Some(to)).unwrap_or(OUTSIDE);
        // To itself, or from outside to nobody here: it goes nowhere.
        Ok(if port == from { 0 } else { 1 << port })
    }

    /// All ports.
    fn all(&self) -> u32 {
        let one = |(n, mac): (usize, &Option<Mac>)| u32::from(n == OUTSIDE || mac.is_some()) << n;
        self.addresses.iter().enumerate().map(one).fold(0, |all, one| all | one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { rate: 1000, burst: 3 };
    const ALL: Mac = [0xFF; 6];
    const HOST: Mac = [0x52, 0x55, 10, 0, 2, 2];

    fn mac(n: u8) -> Mac {
        [2, 0, 0, 0, 0, n]
    }

    fn header(to: Mac, from: Mac) -> [u8; ETHERNET] {
        let mut header = [0; ETHERNET];
        header[..6].copy_from_slice(&to);
        header[6..12].copy_from_slice(&from);
        header
    }

    fn switch() -> Pinned<4> {
        let mut switch = Pinned::new(LIMIT);
        assert!(switch.pin(1, mac(1)) && switch.pin(2, mac(2)));
        switch
    }

    #[test]
    fn a_frame_goes_to_its_address() {
        let mut switch = switch();
        assert_eq!(switch.route(1, header(mac(2), mac(1)), 1), Ok(0b100));
        assert_eq!(switch.route(1, header(HOST, mac(1)), 1), Ok(0b001));
        assert_eq!(switch.route(1, header(mac(1), mac(1)), 1), Ok(0));
        assert_eq!(switch.route(0, header(mac(2), HOST), 1), Ok(0b100));
        // It came with the others' frames, because the card takes all.
        assert_eq!(switch.route(0, header(mac(9), HOST), 1), Ok(0));
        assert_eq!(switch.route(1, header(ALL, mac(1)), 1), Ok(0b101));
        assert_eq!(switch.route(0, header(ALL, HOST), 1), Ok(0b110));
    }

    #[test]
    fn nobody_speaks_in_another_name() {
        let mut switch = switch();
        for (port, source) in [(1, mac(2)), (1, HOST), (0, mac(1)), (0, mac(2)), (3, mac(3))] {
            assert_eq!(switch.route(port, header(ALL, source), 1), Err(Refused::Stolen), "{port}");
        }
        for (port, source) in [(1, ALL), (1, [0; 6]), (4, mac(1))] {
            let refused = Err(Refused::Malformed);
            assert_eq!(switch.route(port, header(HOST, source), 1), refused, "{port}");
        }
    }

    #[test]
    fn an_address_has_one_port_and_a_port_one_address() {
        let mut switch = switch();
        for (port, mac) in [(3, mac(1)), (1, mac(3)), (0, mac(3)), (4, mac(3)), (3, ALL)] {
            assert!(!switch.pin(port, mac), "{port}");
        }
        assert!(switch.pin(3, mac(3)));
    }

    #[test]
    fn a_storm_is_the_own_ports_alone() {
        let mut switch = switch();
        let mut storm = |port, source, now, count| {
            (0..count).filter(|_| switch.route(port, header(ALL, source), now).is_ok()).count()
        };
        // A burst, then one each millisecond, and never more than a burst.
        assert_eq!(storm(1, mac(1), 1, 100), 3);
        assert_eq!(storm(1, mac(1), 1_000_001, 100), 1);
        assert_eq!(storm(1, mac(1), 1_500_001, 100), 0);
        assert_eq!(storm(1, mac(1), 2_000_001, 100), 1);
        assert_eq!(storm(2, mac(2), 2_000_001, 100), 3);
        assert_eq!(storm(1, mac(1), 9_000_000_000, 100), 3);
        // Frames to one address are as many as ever.
        assert_eq!(switch.route(1, header(HOST, mac(1)), 9_000_000_000), Ok(1));
        assert_eq!(switch.route(1, header(ALL, mac(1)), 9_000_000_000), Err(Refused::Storm));
    }
}
