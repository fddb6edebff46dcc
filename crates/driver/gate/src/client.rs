//! A client: its end of a virtio device, or of a wire.

use crate::FRAME;
use bulkhead_cards::{Card, HEADER, Mac, Received};
use bulkhead_channel::bell::{Caller, Ring};
use bulkhead_channel::{BLOCK, Bytes, Memory, Misfit};
use bulkhead_net::{ETHERNET, Wire};
use bulkhead_virtio::net::{BUFFERS, DEVICE, MAC, RECEIVE, SEND};
use bulkhead_virtio::{Chain, News, Offer, Sections, Served};

/// Descriptors: what the driver receives into, and what it sends.
static SIZES: [u16; 2] = [256, 128];
const _: () = assert!(HEADER == bulkhead_virtio::net::HEADER && FRAME <= bulkhead_net::FRAME);

/// Counts of a client's frames. All of them wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames from the client.
    pub sent: u32,
    /// Frames to it.
    pub received: u32,
    /// Frames to it that found no room.
    pub lost: u32,
    /// Frames from it that went nowhere: another's name, too many to all, no frames at all.
    pub refused: u32,
}

/// A client.
#[derive(Debug)]
pub struct Client<M: Memory, R> {
    pub(crate) mac: Mac,
    pub(crate) end: End<M, R>,
    /// Frames at the card.
    pub(crate) under_way: u16,
    pub(crate) counts: Counts,
}

/// Its end.
#[derive(Debug)]
pub(crate) enum End<M: Memory, R> {
    Virtio(Virtual<M, R>),
    Wire(Wire<M, R>),
}

/// A frame from a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Its Ethernet header, copied.
    pub header: [u8; ETHERNET],
    pub len: usize,
    /// A virtio client's chain. A wire's frame lies in the buffer.
    pub chain: Option<Chain>,
}

/// The next thing that a client sends.
pub(crate) enum Next {
    Nothing,
    Frame(Sent),
    /// A chain without a frame.
    Garbage(Chain),
    News(News),
}

impl<M: Memory, R: Ring> Client<M, R> {
    /// Opens the device's end of a virtio network card with this address. `caller` rings the client, if it wants to be
    /// woken.
    ///
    /// # Errors
    /// The sections are too small.
    pub fn card(
        mac: Mac,
        sections: Sections<M>,
        caller: Option<Caller<M, R>>,
    ) -> Result<Self, Misfit> {
        let end = Virtual { mac, served: Served::open(sections, caller, &offer(&mac))? };
        Ok(Self { mac, end: End::Virtio(end), under_way: 0, counts: Counts::default() })
    }

    /// Makes a client of a wire's end, with this address.
    pub fn wire(mac: Mac, wire: Wire<M, R>) -> Self {
        Self { mac, end: End::Wire(wire), under_way: 0, counts: Counts::default() }
    }

    /// Returns the counts of its frames.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Asks to be woken, or asks no longer. Returns true if it will not be.
    pub(crate) fn arm(&mut self, wanted: bool) -> bool {
        match (&mut self.end, wanted) {
            (End::Virtio(end), wanted) => return !end.served.arm(wanted),
            (End::Wire(wire), true) => return !wire.arm(),
            (End::Wire(wire), false) => wire.disarm(),
        }
        false
    }

    /// Goes on with the session.
    pub(crate) fn attend(&mut self) -> Option<News> {
        match &mut self.end {
            End::Virtio(end) => end.served.attend(self.under_way > 0, &offer(&end.mac)),
            End::Wire(_) => None,
        }
    }

    /// Takes the next frame that it sends. A wire's is in the buffer then.
    pub(crate) fn next(&mut self, buffer: &mut [u8; bulkhead_net::FRAME]) -> Next {
        match &mut self.end {
            End::Virtio(end) => end.next(),
            End::Wire(wire) => {
                let Some(frame) = wire.receive(buffer) else { return Next::Nothing };
                let len = frame.len();
                // A frame without a header has one of zeros, which goes nowhere.
                let header = frame.first_chunk().filter(|_| len <= FRAME);
                Next::Frame(Sent { header: header.copied().unwrap_or_default(), len, chain: None })
            }
        }
    }

    /// Passes a frame on that another client has sent.
    pub(crate) fn deliver(&mut self, frame: &[u8]) {
        let done = match &mut self.end {
            End::Wire(wire) => wire.send(frame),
            End::Virtio(end) => end.receive(frame.len(), |to| {
                to.write(HEADER, frame);
            }),
        };
        self.delivered(done);
    }

    /// Passes a frame on that the card has received.
    pub(crate) fn deliver_from(&mut self, card: &impl Card, frame: Received) {
        let word = |at| card.read(frame.buffer, at);
        let done = match &mut self.end {
            End::Virtio(end) => end.receive(frame.len, |to| copy(to, HEADER + frame.len, word)),
            End::Wire(wire) => {
                let mut whole = [[0; 8]; (HEADER + FRAME).div_ceil(8)];
                let words = whole.iter_mut().take((HEADER + frame.len).div_ceil(8));
                words.enumerate().for_each(|(n, to)| *to = word(8 * n).to_le_bytes());
                let frame = whole.as_flattened().get(HEADER..HEADER + frame.len);
                frame.is_some_and(|frame| wire.send(frame))
            }
        };
        self.delivered(done);
    }

    const fn delivered(&mut self, done: bool) {
        let count = if done { &mut self.counts.received } else { &mut self.counts.lost };
        *count = count.wrapping_add(1);
    }

    /// Gives a chain back to the client that sent it.
    pub(crate) fn used(&mut self, chain: &Chain) {
        if let End::Virtio(end) = &mut self.end {
            end.served.used(SEND, chain, 0);
        }
    }

    /// Lets the frame that was taken last come again. A wire's is lost.
    pub(crate) fn untake(&mut self) {
        match &mut self.end {
            End::Virtio(end) => end.served.untake(SEND),
            End::Wire(_) => self.counts.refused = self.counts.refused.wrapping_add(1),
        }
    }

    /// Tells the client of all that was done, and wakes it if it sleeps.
    pub(crate) fn tell(&mut self) {
        if let End::Virtio(end) = &mut self.end {
            end.served.tell(SIZES.len());
        }
    }

    /// Tells if the client has given up on its device, and that was not mended yet.
    pub(crate) fn complains(&mut self) -> bool {
        match &mut self.end {
            End::Virtio(end) => end.served.complains(),
            End::Wire(_) => false,
        }
    }

    /// Opens the device anew, as soon as the card reaches no buffer of the last session any more.
    pub(crate) const fn renew(&mut self) {
        if let End::Virtio(end) = &mut self.end {
            end.served.renew();
        }
    }
}

/// The device's side of a virtio network card.
#[derive(Debug)]
pub(crate) struct Virtual<M: Memory, R> {
    mac: Mac,
    served: Served<M, R>,
}

impl<M: Memory, R: Ring> Virtual<M, R> {
    fn next(&mut self) -> Next {
        let chain = match self.served.take(SEND) {
            Ok(None) => return Next::Nothing,
            Ok(Some(chain)) => chain,
            Err(news) => return Next::News(news),
        };
        let mut header = [0; ETHERNET];
        let len = chain.reads.len.saturating_sub(HEADER);
        let frame = self.sent(&chain);
        let whole = (ETHERNET..=FRAME).contains(&len)
            && frame.is_some_and(|frame| frame.read(HEADER, &mut header));
        match whole {
            true => Next::Frame(Sent { header, len, chain: Some(chain) }),
            false => Next::Garbage(chain),
        }
    }

    /// The client's bytes of a chain.
    fn sent(&self, chain: &Chain) -> Option<M::Bytes> {
        self.served.sections().theirs.bytes(chain.reads.at, chain.reads.len)
    }

    /// Bus address and bytes of a frame behind its header; `None`: it has no more.
    pub(crate) fn rest(&self, sent: &Sent, chain: &Chain) -> Option<(u64, u32)> {
        let at = chain.reads.at + HEADER + ETHERNET;
        let len = sent.len.checked_sub(ETHERNET).filter(|len| *len > 0)?;
        Some((self.served.sections().bus + at as u64, len as u32))
    }

    /// Copies a frame, all but the header that was copied before: that does not change any more.
    pub(crate) fn copy(
        &self,
        sent: &Sent,
        chain: &Chain,
        buffer: &mut [u8; bulkhead_net::FRAME],
    ) -> bool {
        let Some((header, rest)) = buffer.split_first_chunk_mut() else { return false };
        *header = sent.header;
        let frame = self.sent(chain);
        let rest = rest.get_mut(..sent.len.saturating_sub(ETHERNET));
        rest.zip(frame).is_some_and(|(rest, frame)| frame.read(HEADER + ETHERNET, rest))
    }

    /// Passes a frame of so many bytes to the client, if it has room. `fill` writes it behind the header.
    fn receive(&mut self, len: usize, fill: impl FnOnce(&M::Bytes)) -> bool {
        // A chain that cannot be ends the session, and the frame is lost.
        let Ok(Some(chain)) = self.served.take(RECEIVE) else { return false };
        let writes = chain.writes;
        let room = self.served.sections().mine.bytes(writes.at, HEADER + len);
        let Some(room) = room.filter(|_| HEADER + len <= writes.len) else {
            // No client of ours gives so little room. It keeps that, and loses the frame.
            self.served.untake(RECEIVE);
            return false;
        };
        fill(&room);
        let mut header = [0; HEADER];
        header[BUFFERS] = 1;
        room.write(0, &header);
        self.served.used(RECEIVE, &chain, HEADER + len);
        true
    }
}

/// Copies so many bytes into a run, by words of eight from its beginning on.
fn copy(to: &impl Bytes, len: usize, word: impl Fn(usize) -> u64) {
    const BYTES: usize = 8 * BLOCK;
    let blocks = len / BYTES;
    to.fill(0, blocks, |n| core::array::from_fn(|at| word(BYTES * n + 8 * at)));
    for at in (BYTES * blocks..len).step_by(8) {
        let bytes = word(at).to_le_bytes();
        to.write(at, bytes.get(..len - at).unwrap_or(&bytes));
    }
}

/// Describes the device.
const fn offer(mac: &Mac) -> Offer<'_> {
    Offer { device: DEVICE, features: MAC, config: mac, queues: &SIZES }
}
