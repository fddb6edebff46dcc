//! A driver of a wire that answers pings and does nothing else. All that it knows lies on its stack, so that a thread
//! of it that begins anew (`flight-guard`) has nothing of its last life.
//!
//! Arguments: `to=CHANNEL from=CHANNEL` (records, one each way, that carry IP packets), `address=10.9.0.2`, of a
//! network of 24 bits. With `break=N` its first life ends on purpose, with the first frame N milliseconds or more after
//! it began. It writes garbage to all words of its channels that it can, and then to its peer's. Waits at the
//! notification `news`.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_net::{FRAME, Station};
use bulkhead_program::typed::Mapping;
use bulkhead_program::{FOREVER, Guest, Program, bell, now, println, ready};
use bulkhead_scenarios::{fall, spoil};
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};
use net_programs::{instant, line, serve};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, SocketSet};
use smoltcp::phy::Medium;
use smoltcp::wire::{HardwareAddress, IpCidr};

bulkhead_program::entry!(echo);

/// How often it began.
static BEGUN: AtomicU64 = AtomicU64::new(0);

struct Net {
    device: Station<Mapping<'static>, bell::Port>,
    interface: Interface,
    sockets: SocketSet<'static>,
    /// When the next frame breaks it.
    breaks: u64,
}

fn echo(program: Program) -> u32 {
    let name = |key| program.arg(key).unwrap_or_default();
    let Ok(address) = name("address").parse::<Ipv4Addr>() else {
        println!("{}: address= is missing, or is no IPv4 address", program.name());
        return 1;
    };
    let first = BEGUN.fetch_add(1, Ordering::Relaxed) == 0;
    let breaks = program.number("break").filter(|_| first);
    let mut device = Station::new(line(program, name("to"), name("from")), Medium::Ip);
    let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut device, instant());
    interface.update_ip_addrs(|all| {
        // There is room for one.
        let _ = all.push(IpCidr::new(address.into(), 24));
    });
    ready();
    let mut net = Net {
        device,
        interface,
        sockets: SocketSet::new(&mut [][..]),
        breaks: breaks.map_or(FOREVER, |millis| now() + 1_000_000 * millis),
    };
    serve(
        &mut net,
        program.waits("news"),
        |net, each| each(net.device.wire()),
        |net| net.turn(program),
    )
}

impl Net {
    /// Takes a frame, and answers it; when to look again.
    fn turn(&mut self, program: Program) -> u64 {
        if now() >= self.breaks && self.device.wire().receive(&mut [0; FRAME]).is_some() {
            // It ends here, or its peer's words are not kept from it.
            let pair = |key| program.pair(program.arg(key).unwrap_or_default());
            let _ = spoil(&pair("to")).and_then(|()| fall(&pair("from")));
            println!("{}: wrote what is its peer's", program.name());
        }
        let took =
            self.interface.poll_ingress_single(instant(), &mut self.device, &mut self.sockets);
        if took == PollIngressSingleResult::None {
            return FOREVER;
        }
        now()
    }
}
