//! A network card of another sandbox, which ends at a station that answers pings. It answers for any IPv4 address, so
//! nobody has to tell it its own.

use crate::Guest;
use bulkhead_channel::{Bytes, Memory};
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_virtio::net::{BUFFERS, DEVICE, HEADER, MAC, RECEIVE, SEND};
use bulkhead_virtio::{Chain, Device, News, Offer};

/// A frame: Ethernet's header, and the largest IP packet in it.
const FRAME: usize = 14 + 1500;
/// Local Ethernet addresses: of the driver's card, and of the station.
const CARD: [u8; 6] = [0x02, 0xB4, 0, 0, 0, 1];
const STATION: [u8; 6] = [0x02, 0xB4, 0, 0, 0, 2];
/// Nanoseconds between looks without a packet.
const NAP: u64 = 1_000_000;

/// Serves for ever. Says how many pings it has answered whenever a session is over.
pub fn card(host: &impl Guest, pair: &Pair<'static>) -> Option<()> {
    let section = pair.shape().tx_bytes()?;
    let offer = Offer { device: DEVICE, features: MAC, config: &CARD, queues: &[64, 64] };
    let mut device = Device::open(*pair.rx(), *pair.tx(), section, &offer).ok()?;
    let mut caller = host.caller(pair);
    let (mut room, mut answered) = (None, 0);
    host.ready();
    loop {
        let news = device.attend();
        if news.is_some() {
            room = None;
        }
        if matches!(news, Some(News::Lost | News::Corrupted)) {
            host.say(format_args!("answered {answered} pings"));
        }
        let some = exchange(pair, &mut device, &mut room, &mut answered);
        if some.is_none() {
            room = None;
            device.spoilt();
        }
        if let Some(caller) = &mut caller {
            caller.tell();
        }
        if some == Some(false) {
            host.sleep_until(host.now() + NAP);
        }
    }
}

/// Answers the next packet. Tells if there was one; `None`: the driver wrote something impossible.
fn exchange(
    pair: &Pair<'static>,
    device: &mut Device<Mapping<'static>>,
    room: &mut Option<Chain>,
    answered: &mut u64,
) -> Option<bool> {
    let mut frame = [0; HEADER + FRAME];
    if room.is_none() {
        *room = device.queue(RECEIVE).map_or(Ok(None), |queue| queue.take()).ok()?;
    }
    // A packet waits until there is room for its answer.
    let Some(into) = room.as_ref().filter(|chain| chain.writes.len >= frame.len()) else {
        return Some(false);
    };
    let Some(queue) = device.queue(SEND) else { return Some(false) };
    let Some(chain) = queue.take().ok()? else { return Some(false) };
    let len = chain.reads.len.min(frame.len());
    let sent = part(pair.tx(), chain.reads.at, len);
    let read = sent.is_some_and(|(bytes, at)| bytes.read(at, &mut frame[..len]));
    queue.used(&chain, 0);
    queue.tell();
    frame[..HEADER].fill(0);
    if read && answer(frame.get_mut(HEADER..len)?, answered) {
        frame[BUFFERS] = 1;
        let own = part(pair.rx(), into.writes.at, len);
        own.filter(|(bytes, at)| bytes.write(*at, &frame[..len]))?;
        let queue = device.queue(RECEIVE)?;
        queue.used(into, len);
        queue.tell();
        *room = None;
    }
    Some(true)
}

/// Bytes of a section, from any place on.
fn part(
    memory: &Mapping<'static>,
    at: usize,
    len: usize,
) -> Option<(<Mapping<'static> as Memory>::Bytes, usize)> {
    let before = at % 8;
    Some((memory.bytes(at - before, before + len)?, before))
}

/// Makes the answer of a frame, in place, if it has one. It answers a question for an address (RFC 826), and one for an
/// echo (RFC 792).
fn answer(frame: &mut [u8], answered: &mut u64) -> bool {
    const ARP: [u8; 10] = [8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
    const LEAST: usize = 42;
    if frame.len() < LEAST {
        return false;
    }
    // IPv4 without options, and ICMP.
    let echo = frame[12..15] == [8, 0, 0x45] && frame[23] == 1 && frame[34..36] == [8, 0];
    if frame[12..22] == ARP {
        frame[21] = 2;
        // The asker's addresses become those of the other one; the one it asked for, this one's.
        let (mut asker, mut wanted) = ([0; 10], [0; 4]);
        asker.copy_from_slice(&frame[22..32]);
        wanted.copy_from_slice(&frame[38..42]);
        frame[32..42].copy_from_slice(&asker);
        frame[22..28].copy_from_slice(&STATION);
        frame[28..32].copy_from_slice(&wanted);
    } else if echo {
        let (from, to) = frame[26..34].split_at_mut(4);
        from.swap_with_slice(to);
        // The checksum without the type (RFC 1624).
        let sum = u32::from(!u16::from_be_bytes([frame[36], frame[37]])) + u32::from(!0x0800_u16);
        let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
        frame[34] = 0;
        frame[36..38].copy_from_slice(&sum.to_be_bytes());
        *answered += 1;
    } else {
        return false;
    }
    frame.copy_within(6..12, 0);
    frame[6..12].copy_from_slice(&STATION);
    true
}
