//! The server: `smoltcp` and all connections.

use crate::connection::{Connection, Room};
use crate::door::{Door, Made, Peer};
use crate::record::{LOG, Load, Records, Words};
use crate::{CONNECTIONS, PORT};
use core::net::Ipv4Addr;
use smoltcp::iface::{
    Config, Interface, PollIngressSingleResult, SocketHandle, SocketSet, SocketStorage,
};
use smoltcp::phy::Device;
use smoltcp::socket::tcp::Socket;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};

/// Frames taken before answers go.
const TURN: usize = crate::door::NEWS;

/// Connections that a server found when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// It goes on with so many.
    pub resumed: u32,
    /// Records that cannot be, or that another one contradicts.
    pub broken: u32,
}

/// A server. Times are nanoseconds.
pub struct Server<'a, D: Device, W> {
    door: Door<D>,
    interface: Interface,
    sockets: SocketSet<'a>,
    connections: [Option<Connection<'a>>; CONNECTIONS],
    records: Records<W>,
}

impl<D: Device, W> core::fmt::Debug for Server<'_, D, W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl<'a, D: Device, W: Words> Server<'a, D, W> {
    /// Makes a server with an address in a network of 24 bits. It has a connection for each of `rooms`, [`CONNECTIONS`]
    /// at most, and goes on with those of `records`.
    pub fn new(
        device: D,
        (mac, address): (EthernetAddress, Ipv4Addr),
        rooms: &'a mut [Room],
        sockets: &'a mut [SocketStorage<'a>],
        records: Records<W>,
        now: u64,
    ) -> (Self, Begun) {
        let mut door = Door::new(device, (mac, Peer { address, port: PORT }), now);
        let mut config = Config::new(HardwareAddress::Ethernet(mac));
        config.random_seed = now;
        let mut interface = Interface::new(config, &mut door, instant(now));
        interface.update_ip_addrs(|all| {
            // There is room for one.
            let _ = all.push(IpCidr::new(address.into(), 24));
        });
        let mut sockets = SocketSet::new(sockets);
        let mut connections = [const { None }; CONNECTIONS];
        for ((at, room), to) in rooms.iter_mut().enumerate().zip(&mut connections) {
            *to = Some(Connection::new(at, room, &mut sockets));
        }
        let mut server = Self { door, interface, sockets, connections, records };
        let begun = server.begin(now);
        server.door.open();
        (server, begun)
    }

    /// Returns the device.
    pub const fn device(&mut self) -> &mut D {
        self.door.device()
    }

    /// Goes on with all connections that are recorded.
    fn begin(&mut self, now: u64) -> Begun {
        let (mut begun, mut bytes) = (Begun::default(), [0; LOG]);
        for slot in 0..self.records.slots() {
            match self.records.read(slot, &mut bytes) {
                Load::Empty => continue,
                Load::Whole(stamp, record) if !self.is_older(slot, stamp, record.peer) => {
                    let Some(Some(connection)) = self.connections.get_mut(slot) else { continue };
                    let handle = connection.socket;
                    connection.resume(self.sockets.get_mut(handle), &record, now);
                    self.door.resume(slot, &record);
                    if self.hand(slot, handle, Connection::frames(&record), now) {
                        begun.resumed += 1;
                        continue;
                    }
                }
                _ => {}
            }
            self.records.clear(slot);
            begun.broken += 1;
        }
        begun
    }

    /// Tells if another record of a client is newer: its writer stopped before it could empty this slot.
    fn is_older(&self, slot: usize, stamp: u64, peer: Peer) -> bool {
        let mut others = (0..self.records.slots()).filter(|other| *other != slot);
        others.any(|other| {
            let (newer, named) = self.records.names(other);
            newer > stamp && named == peer
        })
    }

    /// Gives `smoltcp` the frames of a handshake. Returns true if it has the connection then.
    fn hand(&mut self, at: usize, socket: SocketHandle, frames: &[Made], now: u64) -> bool {
        for made in frames {
            self.door.make(at, *made);
            let Self { interface, door, sockets, .. } = self;
            let _ = interface.poll_ingress_single(instant(now), door, sockets);
            if *made == Made::First {
                interface.poll_egress(instant(now), door, sockets);
            }
        }
        let socket = self.sockets.get_mut::<Socket<'_>>(socket);
        let active = socket.is_active();
        if !active {
            socket.abort();
            self.door.drop(at);
        }
        active
    }

    /// Takes frames, does what is to be done, and gives frames. Returns when the next turn is due; `None`: when a frame
    /// comes.
    pub fn turn(&mut self, now: u64) -> Option<u64> {
        let Self { interface, door, sockets, records, .. } = self;
        let mut took = 0;
        while took < TURN
            && interface.poll_ingress_single(instant(now), door, sockets)
                != PollIngressSingleResult::None
        {
            took += 1;
        }
        for connection in self.connections.iter_mut().flatten() {
            connection.work(sockets.get_mut(connection.socket), door, records, now);
        }
        door.forget();
        interface.poll_egress(instant(now), door, sockets);
        if took == TURN {
            return Some(now);
        }
        let at = interface.poll_at(instant(now), sockets)?;
        Some(u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1_000))
    }
}

fn instant(now: u64) -> Instant {
    Instant::from_micros((now / 1_000) as i64)
}
