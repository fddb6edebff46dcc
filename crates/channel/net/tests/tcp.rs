//! Two stations on a wire: a stream, also while their drivers write garbage and begin anew.

use bulkhead_channel::host::Region;
use bulkhead_channel::records;
use bulkhead_net::{Silent, Station, Wire};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::Medium;
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};

const BYTES: u32 = 16 << 10;

/// The regions of one channel.
#[derive(Clone)]
struct Channel(Region, Region);

impl Channel {
    fn new() -> Self {
        Self(Region::new(BYTES as usize + 4096), Region::new(4096))
    }
}

struct Host {
    medium: Medium,
    to: Channel,
    from: Channel,
    device: Station<Region, Silent>,
    interface: Interface,
    sockets: SocketSet<'static>,
    tcp: SocketHandle,
    /// How often it was told of the other, before its driver began anew.
    told: u32,
}

impl Host {
    fn new(number: u8, medium: Medium, to: &Channel, from: &Channel) -> Self {
        let mut device = Self::device(medium, to, from);
        let hardware = match medium {
            Medium::Ethernet => HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, number])),
            _ => HardwareAddress::Ip,
        };
        let mut interface = Interface::new(Config::new(hardware), &mut device, Instant::ZERO);
        interface.update_ip_addrs(|all| {
            all.push(IpCidr::new(IpAddress::v4(10, 9, 0, number), 24)).unwrap();
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; 4096]);
        let mut sockets = SocketSet::new(vec![]);
        let tcp = sockets.add(tcp::Socket::new(buffer(), buffer()));
        let (to, from) = (to.clone(), from.clone());
        Self { medium, to, from, device, interface, sockets, tcp, told: 0 }
    }

    fn device(medium: Medium, to: &Channel, from: &Channel) -> Station<Region, Silent> {
        let sender = records::Sender::open(&to.0, &to.1, BYTES).unwrap();
        let receiver = records::Receiver::open(&from.1, &from.0, BYTES).unwrap();
        Station::new(Wire::new((sender, None), (receiver, None)), medium)
    }

    /// Its driver writes garbage over its own words, of both channels.
    fn spoil(&self, seed: u64) {
        for region in [&self.to.0, &self.from.1] {
            // Words that mean something are 128 bytes apart.
            (0..64).for_each(|n| region.poke(n * 16, seed.rotate_left(n as u32)));
        }
    }

    /// Its driver begins anew; connections stay.
    fn renew(&mut self) {
        self.told += self.device.counts().cut;
        self.device = Self::device(self.medium, &self.to, &self.from);
    }

    fn tcp(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.tcp)
    }

    fn poll(&mut self, millis: i64) {
        let woken = self.device.wire().arm();
        assert!(!woken, "there is no doorbell");
        self.interface.poll(Instant::from_millis(millis), &mut self.device, &mut self.sockets);
    }
}

/// Sends a stream of a million bytes from one to the other; `trouble` is done each millisecond. How often each was told
/// that the other had gone.
fn stream(medium: Medium, mut trouble: impl FnMut(i64, [&mut Host; 2])) -> [u32; 2] {
    const ALL: usize = 1_000_000;
    let wires = [Channel::new(), Channel::new()];
    let mut one = Host::new(1, medium, &wires[0], &wires[1]);
    let mut two = Host::new(2, medium, &wires[1], &wires[0]);
    two.tcp().listen(7).unwrap();
    let socket: &mut tcp::Socket<'_> = one.sockets.get_mut(one.tcp);
    socket.connect(one.interface.context(), (IpAddress::v4(10, 9, 0, 2), 7), 50_000).unwrap();
    let (mut sent, mut received) = (0usize, 0usize);
    let byte = |n: usize| (n % 251) as u8;
    for millis in 0..600_000 {
        one.poll(millis);
        two.poll(millis);
        trouble(millis, [&mut one, &mut two]);
        if one.tcp().may_send() && sent < ALL {
            let part: Vec<u8> = (sent..ALL.min(sent + 2000)).map(byte).collect();
            sent += one.tcp().send_slice(&part).unwrap();
        }
        let mut part = [0; 2000];
        if two.tcp().can_recv() {
            let len = two.tcp().recv_slice(&mut part).unwrap();
            assert!(part[..len].iter().zip(received..).all(|(have, n)| *have == byte(n)));
            received += len;
        }
        if received == ALL {
            return [one, two].map(|host| host.told + host.device.counts().cut);
        }
    }
    panic!("sent {sent}, received {received}: {:?} {:?}", one.device.counts(), two.device.counts());
}

#[test]
fn a_stream_arrives_over_ethernet() {
    stream(Medium::Ethernet, |_, _| {});
}

#[test]
fn a_stream_arrives_over_ip() {
    stream(Medium::Ip, |_, _| {});
}

/// In turn their drivers write garbage and begin anew: frames under way are lost, and the stream goes on.
#[test]
fn a_stream_survives_drivers_that_spoil_the_wire() {
    let mut seed = 1u64;
    let told = stream(Medium::Ip, move |millis, mut hosts| {
        let host = &mut hosts[(millis / 20 % 2) as usize];
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match millis % 20 {
            _ if millis > 2000 => {}
            10 => host.spoil(seed),
            15 => host.renew(),
            _ => {}
        }
    });
    assert!(told.iter().all(|told| *told > 10), "nothing was spoilt: {told:?}");
}
