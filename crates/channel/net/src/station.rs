//! A wire as `smoltcp` wants a network device.

use crate::wire::{Counts, FRAME, Wire};
use bulkhead_channel::Memory;
use bulkhead_channel::bell::Ring;
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// Bytes of an Ethernet header.
const HEADER: usize = 14;
/// Bytes of the longest packet.
const PACKET: usize = 1500;

/// A network device at a wire's end.
#[derive(Debug)]
pub struct Station<M: Memory, R> {
    wire: Wire<M, R>,
    medium: Medium,
    incoming: [u8; FRAME],
    outgoing: [u8; FRAME],
}

impl<M: Memory, R: Ring> Station<M, R> {
    /// Makes a station. The other end sends and takes `medium`: Ethernet frames or IP packets.
    pub const fn new(wire: Wire<M, R>, medium: Medium) -> Self {
        Self { wire, medium, incoming: [0; FRAME], outgoing: [0; FRAME] }
    }

    /// Returns the wire, to arm it.
    pub const fn wire(&mut self) -> &mut Wire<M, R> {
        &mut self.wire
    }

    /// Returns the counts of the wire so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.wire.counts()
    }
}

impl<M: Memory, R: Ring> Device for Station<M, R> {
    type RxToken<'a>
        = Frame<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Room<'a, M, R>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Frame<'_>, Room<'_, M, R>)> {
        let frame = self.wire.receive(&mut self.incoming)?;
        Some((Frame(frame), Room { wire: &mut self.wire, buffer: &mut self.outgoing }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_, M, R>> {
        Some(Room { wire: &mut self.wire, buffer: &mut self.outgoing })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = self.medium;
        capabilities.max_transmission_unit =
            if self.medium == Medium::Ethernet { PACKET + HEADER } else { PACKET };
        capabilities
    }
}

/// A frame that came, copied.
#[derive(Debug)]
pub struct Frame<'a>(&'a mut [u8]);

impl RxToken for Frame<'_> {
    fn consume<T, F: FnOnce(&[u8]) -> T>(self, look: F) -> T {
        look(self.0)
    }
}

/// Room for a frame, before it is copied to the wire. If that is full then the frame is lost, as on any network.
#[derive(Debug)]
pub struct Room<'a, M: Memory, R> {
    wire: &'a mut Wire<M, R>,
    buffer: &'a mut [u8; FRAME],
}

impl<M: Memory, R: Ring> TxToken for Room<'_, M, R> {
    fn consume<T, F: FnOnce(&mut [u8]) -> T>(self, len: usize, fill: F) -> T {
        // No more than the capabilities say: they are below FRAME.
        let frame = &mut self.buffer[..len];
        let done = fill(frame);
        self.wire.send(frame);
        done
    }
}
