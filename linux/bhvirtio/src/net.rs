//! A network card with its cable to a tap of this Linux's. The kernel's own copies carry packets between the sections
//! and the tap: this program moves descriptors, and looks at the headers that the driver writes. Packets are as large
//! as the two kernels make them, up to 64 KiB. Before each stands virtio's header, which tap and card have in common.

use crate::side::Side;
use bulkhead_channel::{Bytes, Memory};
use bulkhead_linux::run::done;
use bulkhead_linux::section::PARTS;
use bulkhead_linux::tun;
use bulkhead_virtio::net::*;
use bulkhead_virtio::{Chain, News, Offer};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;

/// Packets each way before it looks at the other one.
const ROUND: usize = 32;
/// Checksums and large packets, each way.
pub const FEATURES: u64 =
    CSUM | GUEST_CSUM | HOST_TSO4 | HOST_TSO6 | GUEST_TSO4 | GUEST_TSO6 | MAC | MRG_RXBUF;
/// Features that it cannot do without: packets go over several of the driver's buffers.
pub const NEEDED: u64 = MRG_RXBUF;
/// Descriptors: what the driver receives into, and what it sends.
pub const SIZES: [u16; 2] = [256, 128];

/// Serves; see the crate's table.
pub fn serve(device: &str, channel: &str, more: &[&str]) -> io::Result<()> {
    // Built in, or there already: then this fails, and nothing is wrong.
    let _ = Command::new("modprobe").args(["-q", "tun"]).status();
    let tap = tun::open_tap(device, HEADER)?;
    let config = address(channel);
    let offer = Offer { device: DEVICE, features: FEATURES, config: &config, queues: &SIZES };
    let side = Side::open(channel, &offer)?;
    let mut card = Card { side, tap, room: VecDeque::new() };
    let [address, program @ ..] = more else { return card.run() };
    done(Command::new("ip").args(["addr", "add", address, "dev", device]))?;
    done(Command::new("ip").args(["link", "set", device, "up"]))?;
    println!("bhvirtio: {device} is {address}");
    let [program, arguments @ ..] = program else { return card.run() };
    thread::spawn(move || println!("bhvirtio: the network has ended: {:?}", card.run()));
    done(Command::new(program).args(arguments))
}

/// An Ethernet address for the driver: a local one, from the channel's name.
pub fn address(channel: &str) -> [u8; 6] {
    let hash = channel
        .bytes()
        .fold(0x811C_9DC5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [a, b, c, d] = hash.to_be_bytes();
    [0x02, 0xB4, a, b, c, d]
}

struct Card {
    side: Side,
    tap: File,
    /// Chains for the driver to receive into: there is room in them for one packet, of any size.
    room: VecDeque<Chain>,
}

impl Card {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let news = self.side.attend();
            // Whatever became of the driver: what was taken is an older session's, also after one that was spoilt.
            if news.is_some() {
                self.room.clear();
            }
            match news {
                Some(News::Begun(features)) if features & NEEDED != NEEDED => self.side.spoilt(),
                Some(News::Begun(features)) => {
                    let large = features & GUEST_TSO4 != 0 && features & GUEST_TSO6 != 0;
                    tun::offload(&self.tap, large && features & GUEST_CSUM != 0)?;
                }
                Some(_) | None => {}
            }
            let sent = self.sent()?;
            let received = self.received()?;
            // Packets from the tap have to wait for the driver's room.
            let tap = if self.has_room() { Some(self.tap.as_fd()) } else { None };
            self.side.rest(sent || received, tap, None)?;
        }
    }

    /// Tells if any packet fits into the driver's receive buffers.
    fn has_room(&mut self) -> bool {
        let bytes: usize = self.room.iter().map(|chain| chain.writes.len).sum();
        let serves = self.side.device.queue(RECEIVE).is_some();
        serves
            && bytes >= LARGEST
            && self.room.front().is_some_and(|first| first.writes.len >= HEADER)
    }

    /// Passes the driver's packets to the tap.
    fn sent(&mut self) -> io::Result<bool> {
        let Some(queue) = self.side.device.queue(SEND) else { return Ok(false) };
        let mut any = false;
        for _ in 0..ROUND {
            let Ok(chain) = queue.take() else {
                self.side.spoilt();
                return Ok(false);
            };
            let Some(chain) = chain else { break };
            // A packet that the kernel does not take, such as garbage, or because the tap is down, is lost.
            let mut header = [0; HEADER];
            let read = self.side.theirs.bytes(chain.reads.at, chain.reads.len);
            if read.is_some_and(|packet| packet.read(0, &mut header)) {
                let (at, len) = (chain.reads.at + HEADER, chain.reads.len - HEADER);
                let _ = self.side.driver.write_behind(&harmless(header), &self.tap, at, len);
            }
            queue.used(&chain, 0);
            any = true;
        }
        if any {
            queue.tell();
        }
        Ok(any)
    }

    /// Passes the tap's packets to the driver.
    fn received(&mut self) -> io::Result<bool> {
        let Some(queue) = self.side.device.queue(RECEIVE) else { return Ok(false) };
        let mut any = false;
        let mut bytes: usize = self.room.iter().map(|chain| chain.writes.len).sum();
        for _ in 0..ROUND {
            while bytes < LARGEST && self.room.len() < PARTS {
                let Ok(chain) = queue.take() else {
                    self.side.spoilt();
                    return Ok(false);
                };
                let Some(chain) = chain else { break };
                bytes += chain.writes.len;
                self.room.push_back(chain);
            }
            let first = self.room.front().map_or(0, |chain| chain.writes.len);
            if bytes < LARGEST || first < HEADER {
                break;
            }
            let parts = self.room.iter().map(|chain| (chain.writes.at, chain.writes.len));
            let len = match self.side.own.read_from(&self.tap, parts) {
                Ok(len) if len >= HEADER => len,
                Err(why) if why.kind() != io::ErrorKind::WouldBlock => return Err(why),
                Ok(_) | Err(_) => break,
            };
            any = true;
            let (header, mut rest, mut buffers) = (self.room[0].writes.at + BUFFERS, len, 0);
            while rest > 0 {
                let Some(chain) = self.room.pop_front() else { break };
                let here = chain.writes.len.min(rest);
                queue.used(&chain, here);
                bytes -= chain.writes.len;
                rest -= here;
                buffers += 1;
            }
            self.side.own.set16(header, buffers);
        }
        if any {
            queue.tell();
        }
        Ok(any)
    }
}
