//! TCP between two Linux sandboxes, by iperf3, against loopback inside one Linux. One side has the module and stock
//! `virtio_net`, or both have a program and `tun`. The figures are instructions for each byte, on the core that
//! executes most. A sleeping core executes none, and one that looks for work executes all that time.

use super::Found;
use super::figure::{Figure, Must};
use super::system::System;
use crate::Failure;
use crate::rows::Row;
use bulkhead_layout::marker::id;
use bulkhead_qemu::counts::Event;
use bulkhead_qemu::{Counts, Peer};

/// Both ways, from the client and to it, for a second each.
const WAYS: [&str; 2] = ["stream", "stream_from"];
/// In an event's value: it is the server's; where the stream's number is; it ends; bytes that arrived.
const SERVER: u64 = 1 << 63;
const NUMBER: u32 = 56;
const ENDS: u64 = 1 << 55;
const BYTES: u64 = ENDS - 1;

/// Writes the client's job, with a server at this address.
fn client(address: &str) -> String {
    format!("peer={address}:5201,{}", WAYS.map(|way| format!("{way}=1")).join(","))
}

const STREAMS: usize = WAYS.len();

/// All of them.
pub fn streams() -> Found {
    let one = loopback("tcp-loopback", "[0]")?;
    let two = loopback("tcp-loopback-smp", "[0, 1]")?;
    let module = |dir, notify| {
        between(
            dir,
            notify,
            format!("bulkhead.run=bhvirtio:card,10.9.0.1/24,bhio,{}", client("10.9.0.2")),
            format!("bulkhead.run=bhvirtio:net,tap0,lan,10.9.0.2/24,bhio,serve={STREAMS}"),
        )
    };
    let [module, woken, daemon] = [
        module("tcp-module", "poll")?,
        module("tcp-module-woken", "doorbell")?,
        between(
            "tcp-daemon",
            "poll",
            format!(
                "bulkhead.run=bhchannel:net,bh0,there,back,10.9.0.1/24,bhio,{}",
                client("10.9.0.2")
            ),
            format!("bulkhead.run=bhchannel:net,bh0,back,there,10.9.0.2/24,bhio,serve={STREAMS}"),
        )?,
    ];
    let row = |name, cores: &Cores| Row::new(name, "instructions/byte", cores.worse());
    let judged = |name, cores: &Cores, most| {
        let note = format!(
            "{}; with loopback over two cores {:.2}",
            cores.note(),
            cores.worse() / two.worse()
        );
        Figure::new(row(name, cores).against(one.worse())).must(Must::Times(most)).note(note)
    };
    Ok(vec![
        Figure::new(row("channel.tcp_loopback", &one)).note(one.note()),
        Figure::new(row("channel.tcp_loopback_smp", &two)).note(two.note()),
        judged("channel.tcp_module", &module, 1.4),
        judged("channel.tcp_module_woken", &woken, 1.4),
        judged("channel.tcp_daemon", &daemon, 2.5),
    ])
}

/// MiB of a stream to the world outside, and of one from it.
const MIB: u64 = 16;

/// A stream to the world outside and one from it, through a driver sandbox that has the card. The baseline is a Linux
/// that has the card. All instructions of a core between a stream's beginning and its end count.
pub fn wall() -> Found {
    let streams = |manifest: &'static str, card: &str| -> Result<[Vec<f64>; 2], Failure> {
        let peer = Peer::start()?;
        let peer = peer.arguments().join(",");
        let job = format!(
            "bulkhead.run={card}{peer},tcp=1,tcp_from=1,start=here,tcp={MIB},start=here,tcp_from={MIB}"
        );
        let counts = System::new(manifest, manifest).with("one", job).run()?.counts;
        let events = [counts.events(id::START), counts.events(id::FINISH)].concat();
        let [there, back, end] = events.as_slice() else {
            return Err(format!("{} events in place of 3", events.len()).into());
        };
        Ok([per_byte(there, back), per_byte(back, end)])
    };
    let wall = streams("gate", "bhvirtio:card,10.0.2.16/24,bhio,")?;
    let own = streams("gate-own", "bhio:")?;
    let busiest = |cores: &[f64]| cores.iter().copied().fold(0.0, f64::max);
    let row = |name, way: usize| {
        let (wall, own): (&[f64], &[f64]) = (&wall[way], &own[way]);
        let row = Row::new(name, "instructions/byte", busiest(wall)).against(busiest(own));
        let note =
            format!("of the gate's core and the client's {wall:.3?}; with its own card {own:.3?}");
        Figure::new(row).must(Must::Times(1.3)).note(note)
    };
    Ok(vec![row("net.wall_tcp", 0), row("net.wall_tcp_from", 1)])
}

/// Instructions for each byte of a stream, of each core that has a sandbox.
fn per_byte(begin: &Event, end: &Event) -> Vec<f64> {
    /// The others have no sandbox, or keep the time.
    const CORES: usize = 2;
    let cores = end.cores.iter().zip(&begin.cores).take(CORES);
    cores.map(|(end, begin)| (end - begin) as f64 / (MIB << 20) as f64).collect()
}

/// Client and server in one Linux, on its first and its last core.
fn loopback(dir: &'static str, cores: &str) -> Result<Cores, Failure> {
    let job = format!("bulkhead.run=bhio:beside={STREAMS},{}", client("127.0.0.1"));
    let system = System::new("tcp-loopback", dir).changed("[0]", cores).with("one", job);
    Cores::of(&system.run()?.counts)
}

/// Client and server in a sandbox each, and how the ends of the device's channel are woken.
fn between(
    dir: &'static str,
    notify: &'static str,
    one: String,
    two: String,
) -> Result<Cores, Failure> {
    let system =
        System::new("tcp", dir).changed("notify = \"poll\"", format!("notify = \"{notify}\""));
    Cores::of(&system.with("one", one).with("two", two).run()?.counts)
}

/// Instructions for each byte, of the client's core and of the server's, each way.
struct Cores([[f64; 2]; WAYS.len()]);

impl Cores {
    fn of(counts: &Counts) -> Result<Self, Failure> {
        let events = counts.events(id::CHANNEL_STREAM);
        let mut ways = [[0.0; 2]; WAYS.len()];
        for (way, cores) in ways.iter_mut().enumerate() {
            let [client, server] =
                [0, SERVER].map(|who| took(&events, who | (way as u64) << NUMBER));
            let ((client, bytes), (server, _)) =
                client.zip(server).ok_or_else(|| format!("no stream {way}"))?;
            *cores = [client, server].map(|took| took as f64 / bytes as f64);
        }
        Ok(Self(ways))
    }

    /// The busiest core's, the worse way.
    fn worse(&self) -> f64 {
        self.0.iter().flatten().copied().fold(0.0, f64::max)
    }

    fn note(&self) -> String {
        let [there, back] = self.0.map(|[client, server]| format!("{client:.3} and {server:.3}"));
        format!("of the client's core and the server's {there}; from the server {back}")
    }
}

/// Instructions from the last beginning of a stream to its end, and its bytes.
fn took(events: &[Event], begins: u64) -> Option<(u64, u64)> {
    let (end, begin) = span(events, begins)?;
    Some((end.instructions - begin.instructions, end.value & BYTES))
}

/// A stream's end, and its last beginning.
fn span(events: &[Event], begins: u64) -> Option<(&Event, &Event)> {
    let end = events.iter().find(|event| event.value & !BYTES == begins | ENDS)?;
    let begin = events.iter().rfind(|event| {
        event.value == begins && event.vcpu == end.vcpu && event.instructions < end.instructions
    })?;
    Some((end, begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(vcpu: u64, value: u64, instructions: u64) -> Event {
        Event { vcpu, instructions, value, ..Event::default() }
    }

    #[test]
    fn an_attempt_that_failed_does_not_count() {
        const SECOND: u64 = 1 << NUMBER;
        let server = event(1, SERVER | SECOND, 7);
        let ends = event(0, SECOND | ENDS | 400, 150);
        let events = [event(0, SECOND, 10), event(0, SECOND, 100), server, ends];
        assert_eq!(took(&events, SECOND), Some((50, 400)));
        assert_eq!(took(&events, SERVER | SECOND), None);
    }

    #[test]
    fn the_busier_core_of_the_worse_way_counts() {
        let cores = Cores([[0.5, 0.75], [0.25, 0.625]]);
        assert_eq!(cores.worse(), 0.75);
    }
}
