//! To which ports an Ethernet frame goes.
//!
//! The switch learns addresses from the senders in frames, like any switch. But its ports don't trust each other. A
//! port has a fixed number of addresses, and forgets its own oldest one for a new one: it cannot drive out another
//! port's. An address stays with the port that showed it first, until that has been silent for [`Switch::AGE`]. A
//! frame with another port's address as sender is refused.

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Bytes of a header: destination, source, type.
const HEADER: usize = 14;
/// The bit of an address that means several stations.
pub(crate) const GROUP: u8 = 1;

/// Why a frame goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It has no whole header, or a source that cannot be: a group's, or zero.
    Malformed,
    /// Its source is another port's.
    Stolen,
    /// The port has sent too many frames to several ports ([`crate::Pinned`]).
    Storm,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    mac: Mac,
    /// Time at which a frame came from it; 0: not yet.
    seen: u64,
}

/// A switch of `PORTS` ports, 1 to 32, with `MACS` addresses at each.
#[derive(Debug)]
pub struct Switch<const PORTS: usize, const MACS: usize> {
    ports: [[Entry; MACS]; PORTS],
}

impl<const PORTS: usize, const MACS: usize> Default for Switch<PORTS, MACS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const PORTS: usize, const MACS: usize> Switch<PORTS, MACS> {
    /// Nanoseconds that an address stays with a port that shows it no more: five minutes, as IEEE 802.1D recommends.
    pub const AGE: u64 = 300_000_000_000;

    /// Makes a switch without addresses.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(PORTS > 0 && PORTS <= 32 && MACS > 0) };
        Self { ports: [[Entry { mac: [0; 6], seen: 0 }; MACS]; PORTS] }
    }

    /// Returns the ports to which a frame goes, a bit each; it came in at port `from` at the time `now`
    /// (nanoseconds).
    ///
    /// # Errors
    /// [`Refused`]: to no port.
    pub fn route(&mut self, from: usize, frame: &[u8], now: u64) -> Result<u32, Refused> {
        let (to, source) = addresses(frame).ok_or(Refused::Malformed)?;
        if from >= PORTS || source[0] & GROUP != 0 || source == [0; 6] {
            return Err(Refused::Malformed);
        }
        match self.port_of(source, now) {
            Some(port) if port != from => return Err(Refused::Stolen),
            _ => self.learn(from, source, now),
        }
        let others = u32::MAX >> (32 - PORTS) & !(1 << from);
        Ok(match self.port_of(to, now) {
            Some(port) => 1 << port & others,
            None => others,
        })
    }

    /// Forgets the addresses of a port: its wire was cut.
    pub fn forget(&mut self, port: usize) {
        if let Some(entries) = self.ports.get_mut(port) {
            *entries = [Entry::default(); MACS];
        }
    }

    fn port_of(&self, mac: Mac, now: u64) -> Option<usize> {
        let fresh =
            |e: &Entry| e.mac == mac && e.seen != 0 && now.saturating_sub(e.seen) < Self::AGE;
        self.ports.iter().position(|entries| entries.iter().any(fresh))
    }

    /// Notes an address in its old entry, or in place of the oldest one.
    fn learn(&mut self, port: usize, mac: Mac, now: u64) {
        let entries = &mut self.ports[port];
        let place = |e: &&mut Entry| if e.mac == mac && e.seen != 0 { 0 } else { e.seen.max(1) };
        if let Some(entry) = entries.iter_mut().min_by_key(place) {
            *entry = Entry { mac, seen: now.max(1) };
        }
    }
}

/// Returns a frame's destination and source.
fn addresses(frame: &[u8]) -> Option<(Mac, Mac)> {
    let header = frame.get(..HEADER)?;
    Some((header[..6].try_into().ok()?, header[6..12].try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Small = Switch<3, 2>;
    const ALL: Mac = [0xFF; 6];

    fn mac(n: u8) -> Mac {
        [2, 0, 0, 0, 0, n]
    }

    fn frame(to: Mac, from: Mac) -> Vec<u8> {
        [&to[..], &from, &[8, 0], b"packet"].concat()
    }

    #[test]
    fn learns_where_stations_are() {
        let mut switch = Small::new();
        assert_eq!(switch.route(0, &frame(mac(2), mac(1)), 1), Ok(0b110));
        assert_eq!(switch.route(2, &frame(mac(1), mac(2)), 2), Ok(0b001));
        assert_eq!(switch.route(0, &frame(mac(2), mac(1)), 3), Ok(0b100));
        assert_eq!(switch.route(0, &frame(ALL, mac(1)), 4), Ok(0b110));
        // To itself: it knows better.
        assert_eq!(switch.route(0, &frame(mac(1), mac(1)), 5), Ok(0));
        switch.forget(2);
        assert_eq!(switch.route(0, &frame(mac(2), mac(1)), 6), Ok(0b110));
    }

    #[test]
    fn an_address_is_the_first_ones_until_it_ages() {
        let mut switch = Small::new();
        assert!(switch.route(0, &frame(ALL, mac(1)), 1).is_ok());
        assert_eq!(switch.route(1, &frame(ALL, mac(1)), 2), Err(Refused::Stolen));
        assert!(switch.route(1, &frame(ALL, mac(1)), 1 + Small::AGE).is_ok());
        assert_eq!(switch.route(0, &frame(ALL, mac(1)), 2 + Small::AGE), Err(Refused::Stolen));
    }

    #[test]
    fn what_is_no_frame_goes_nowhere() {
        let mut switch = Small::new();
        for (port, frame) in [
            (0, vec![0; 13]),
            (0, frame(mac(1), ALL)),
            (0, frame(mac(1), [0; 6])),
            (3, frame(mac(1), mac(2))),
        ] {
            assert_eq!(switch.route(port, &frame, 1), Err(Refused::Malformed));
        }
    }

    proptest! {
        /// Whatever others send, a station that goes on sending stays where it is, and no frame comes back to
        /// the port that sent it.
        #[test]
        fn nobody_drives_a_station_out(others in proptest::collection::vec((1usize..3, any::<u8>(), any::<u8>()), 1..200)) {
            let mut switch = Small::new();
            for (now, (port, to, from)) in (1u64..).zip(others) {
                prop_assert!(switch.route(0, &frame(ALL, mac(7)), now).is_ok());
                let routed = switch.route(port, &frame(mac(to), mac(from)), now);
                prop_assert!(routed.is_err() || routed.is_ok_and(|ports| ports & 1 << port == 0));
                prop_assert!(from != 7 || routed == Err(Refused::Stolen));
                let other = if port == 1 { 2 } else { 1 };
                let home = switch.route(other, &frame(mac(7), mac(100 + other as u8)), now);
                prop_assert!(matches!(home, Ok(1) | Err(Refused::Stolen)));
            }
        }
    }
}
