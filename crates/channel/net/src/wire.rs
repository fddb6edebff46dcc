//! Frames in and out.

use bulkhead_channel::bell::{Arm, Caller, Ring};
use bulkhead_channel::{Memory, Stop, records};

/// Bytes of the longest frame: an Ethernet header, a tag and the 1,500 bytes of a packet, rounded up.
pub const FRAME: usize = 1536;

/// Counts of a wire's frames, carried and not. All of them wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that came.
    pub received: u32,
    /// Frames that went.
    pub sent: u32,
    /// Frames that found no room, or no peer.
    pub full: u32,
    /// Frames of more than [`FRAME`] bytes that came and were dropped.
    pub long: u32,
    /// Times that the peer went, or wrote something impossible.
    pub cut: u32,
}

/// A bell for a channel with a receiver that looks by itself.
#[derive(Debug)]
pub enum Silent {}

impl Ring for Silent {
    fn ring(&mut self) {
        match *self {}
    }
}

/// An end of two channels of records, one each way.
#[derive(Debug)]
pub struct Wire<M: Memory, R = Silent> {
    to: records::Sender<M>,
    from: records::Receiver<M>,
    bell: Option<Caller<M, R>>,
    arm: Option<Arm<M>>,
    counts: Counts,
}

impl<M: Memory, R: Ring> Wire<M, R> {
    /// Makes a wire of two channels. The end that it sends to has a bell for its receiver, if that needs one. The end
    /// that it receives from has an armed word, if it is to be woken.
    pub fn new(
        (to, bell): (records::Sender<M>, Option<Caller<M, R>>),
        (from, arm): (records::Receiver<M>, Option<Arm<M>>),
    ) -> Self {
        Self { to, from, bell, arm, counts: Counts::default() }
    }

    /// Asks to be woken for the next frame, and goes on with the agreement on the outgoing channel. True if a bell
    /// will come. The caller looks for frames once more after this, and then sleeps.
    pub fn arm(&mut self) -> bool {
        if let Some(arm) = &mut self.arm {
            arm.arm();
        }
        if let Err(stop) = self.to.attend() {
            self.heed_receiver(stop);
            if let Some(bell) = &mut self.bell {
                bell.tell();
            }
        }
        self.arm.is_some()
    }

    /// Asks no longer.
    pub fn disarm(&mut self) {
        if let Some(arm) = &mut self.arm {
            arm.disarm();
        }
    }

    /// Returns the counts of the wire so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Sends a frame. Returns true if there was room for it, and a peer.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        let sent = self.to.send(frame);
        let sent = match &mut self.bell {
            Some(bell) => bell.after(sent),
            None => sent,
        };
        match sent {
            Ok(()) => self.counts.sent = self.counts.sent.wrapping_add(1),
            Err(stop) => {
                self.counts.full = self.counts.full.wrapping_add(1);
                self.heed_receiver(stop);
            }
        }
        sent.is_ok()
    }

    /// Copies the oldest frame out, if there is one: its bytes in `buffer`. Frames that are too long are dropped, at
    /// most 64 in a call: a peer that sends nothing else does not keep the caller here.
    pub fn receive<'a>(&mut self, buffer: &'a mut [u8; FRAME]) -> Option<&'a mut [u8]> {
        for _ in 0..64 {
            match self.from.receive(buffer) {
                Ok(len) => {
                    self.counts.received = self.counts.received.wrapping_add(1);
                    return buffer.get_mut(..len);
                }
                Err(Stop::Size) => {
                    self.counts.long = self.counts.long.wrapping_add(1);
                    self.from.peek().ok()?.release();
                }
                Err(Stop::Wait | Stop::Apart | Stop::Foreign) => return None,
                Err(stop) => {
                    if self.heed(stop) {
                        self.from.reset();
                    }
                }
            }
        }
        None
    }

    fn heed_receiver(&mut self, stop: Stop) {
        if self.heed(stop) {
            self.to.reset();
        }
    }

    /// Takes news of the peer; true if the own end has to begin anew. A peer that spoils a channel loses its own
    /// messages, no more.
    fn heed(&mut self, stop: Stop) -> bool {
        let news = matches!(stop, Stop::Lost | Stop::Left | Stop::Corrupted | Stop::Closed);
        self.counts.cut = self.counts.cut.wrapping_add(u32::from(news));
        matches!(stop, Stop::Corrupted | Stop::Closed)
    }
}
