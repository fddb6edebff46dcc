//! A peer with well-formed messages, but with packets' headers (virtio 1.2, 5.1.6) that lie, for tests. It acts as the
//! device side or the driver of a network card, or at the other end of `bhchannel net`. Fields are as they would be,
//! except some that are at a border or beyond it. The other side's kernel takes the packets for itself or sends them on
//! ([`crate::gate`]).

mod driver;
mod packet;

use crate::net;
use crate::side::Side;
use bulkhead_channel::layout::Kind;
use bulkhead_channel::{Bytes, Memory, Stop};
use bulkhead_linux::channel::named;
use bulkhead_linux::message::{Pause, Sender};
use bulkhead_virtio::net::{BUFFERS, DEVICE, HEADER, RECEIVE, SEND};
use bulkhead_virtio::{Chain, Offer};
pub use packet::Chance;
use std::io;
use std::time::{Duration, Instant};

/// Longest time for the other side to appear: its Linux has to boot.
const LIMIT: Duration = Duration::from_secs(120);

/// A driver that gives a card no buffer for so long has unplugged it, or waits for what belongs to a packet.
const STUCK: Duration = Duration::from_millis(40);

/// Hands out such packets for so many milliseconds, from the first one on. In the second half of that a card also lies
/// about the number of buffers of its packets and about their content. It begins anew when it is unplugged for that.
pub fn run(channel: &str, millis: &str) -> io::Result<()> {
    let millis = millis.parse().map_err(|_| io::Error::other("so many milliseconds?"))?;
    let mut liar = Liar {
        chance: Chance::new(),
        time: Duration::from_millis(millis),
        end: Instant::now() + LIMIT,
        count: 0,
    };
    let end = &named(channel)?[0];
    if end.kind == Some(Kind::Records) {
        liar.records(channel)?;
    } else {
        let mapped = end.open()?.stay();
        let pair = mapped.pair().ok_or_else(|| io::Error::other("raw pages"))?;
        if pair.sends() { liar.drive(mapped, &pair)? } else { liar.card(channel)? }
    }
    println!("bhvirtio: {} packets with headers that lie", liar.count);
    Ok(())
}

/// Behind the address of who receives: the sender's, and that IP follows.
const FROM: [u8; 8] = [2, 0, 0, 0, 0, 2, 8, 0];

struct Liar {
    chance: Chance,
    time: Duration,
    end: Instant,
    /// Packets that were handed out.
    count: u64,
}

impl Liar {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Has handed one out.
    fn told(&mut self) {
        if self.count == 0 {
            self.end = Instant::now() + self.time;
        }
        self.count += 1;
    }

    /// As records of a channel.
    fn records(&mut self, channel: &str) -> io::Result<()> {
        let mut sender = Sender::open(channel, 0)?;
        while !self.is_over() {
            let mut message = self.chance.message(&[], BUFFERS);
            if self.chance.below(32) == 0 {
                message.truncate(self.chance.of(&[0, 1, 2, 9, 10, 11, 29, 30, 31]));
            }
            let mut pause = Pause::default();
            while !self.is_over() {
                match sender.send(&message) {
                    Err(Stop::Wait | Stop::Apart) => pause.wait(Some(self.end)),
                    Err(Stop::Lost | Stop::Left) => {}
                    Err(stop) => return Err(io::Error::other(format!("{channel}: {stop:?}"))),
                    Ok(()) => {
                        self.told();
                        break;
                    }
                }
            }
        }
        sender.close();
        Ok(())
    }

    /// As what a network card receives.
    fn card(&mut self, channel: &str) -> io::Result<()> {
        let config = net::address(channel);
        let (features, queues) = (net::FEATURES, &net::SIZES);
        let offer = Offer { device: DEVICE, features, config: &config, queues };
        let cable = [&config[..], &FROM].concat();
        let mut lives = 0;
        while !self.is_over() {
            let mut side = Side::open(channel, &offer)?;
            lives += 1;
            let mut last = None;
            while !self.is_over() && last.is_none_or(|last: Instant| last.elapsed() < STUCK) {
                side.attend();
                let message = self.chance.message(&cable, HEADER);
                let taken = self.received(&mut side, message);
                if taken {
                    self.told();
                    last = Some(Instant::now());
                }
                sent(&mut side);
                side.rest(taken, None, Some(STUCK))?;
            }
            side.close();
        }
        println!("bhvirtio: {lives} lives of a card");
        Ok(())
    }

    /// Over some of the driver's buffers, if there are enough.
    fn received(&mut self, side: &mut Side, mut message: Vec<u8>) -> bool {
        let Some(queue) = side.device.queue(RECEIVE) else { return false };
        let (mut chains, mut bytes): (Vec<(Chain, usize)>, usize) = (Vec::new(), 0);
        // Sometimes the first ones hold little: what belongs together lies in several then.
        let little = self.chance.of(&[0, 0, 0, 0, 0, 0, 1, 3, 30]);
        while bytes < message.len() {
            let Ok(Some(chain)) = queue.take() else {
                queue.untake(chains.len() as u16);
                return false;
            };
            let few = self.chance.of(&[26, 27, 46, 60, 66, 100]);
            let most = if chains.len() < little { few } else { chain.writes.len };
            let len = chain.writes.len.min(most).min(message.len() - bytes);
            bytes += len;
            chains.push((chain, len));
        }
        let late =
            self.count > 0 && self.end.saturating_duration_since(Instant::now()) < self.time / 2;
        let right = chains.len() as u16;
        let wrong = [0, 1, right - 1, right + 1, 17, 18, 255, 256, 257, 0x8000, 0xFFFF];
        let buffers =
            if late && self.chance.below(64) == 0 { self.chance.of(&wrong) } else { right };
        message[BUFFERS..HEADER].copy_from_slice(&buffers.to_le_bytes());
        let short = late && self.chance.below(64) == 0;
        let mut rest = &message[..];
        for (chain, len) in &chains {
            let (here, behind) = rest.split_at(*len);
            rest = behind;
            if let Some(to) = side.mine.bytes(chain.writes.at, *len) {
                to.write(0, here);
            }
            let told = if short { self.chance.of(&[0, 1, 11, 12, 13, 25, 26]) } else { *len };
            queue.used(chain, told.min(*len));
        }
        queue.tell();
        true
    }
}

/// Packets that the driver sends are lost.
fn sent(side: &mut Side) {
    if let Some(queue) = side.device.queue(SEND) {
        while let Ok(Some(chain)) = queue.take() {
            queue.used(&chain, 0);
        }
        queue.tell();
    }
}
