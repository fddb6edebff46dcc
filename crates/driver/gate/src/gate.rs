//! The rounds: frames from the card to the clients, from the clients to the card and to each other.

use crate::client::{Client, Counts, End, Next, Sent};
use crate::{FRAME, News};
use bulkhead_cards::{Card, HEADER, PLACES, Received, Wrong};
use bulkhead_channel::Memory;
use bulkhead_channel::bell::Ring;
use bulkhead_net::{ETHERNET, Limit, OUTSIDE, Pinned, Refused};
use bulkhead_virtio::Chain;

/// Frames from the card in a round, at most.
const ROUND: usize = 64;

/// Terms on which clients are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Most frames of a client in a round.
    pub share: u16,
    /// A client's frames to all.
    pub limit: Limit,
    /// Longest time of a frame at the card, in nanoseconds.
    pub patience: u64,
}

/// A frame at the card.
#[derive(Clone, Copy, Debug)]
struct Flight {
    client: usize,
    /// A virtio client's buffers, which the card reads.
    chain: Option<Chain>,
    /// Time at which the card is given up.
    due: u64,
}

/// A card's clients, and the frames under way. Client `n` is at port `n + 1`.
#[derive(Debug)]
pub struct Gate<M: Memory, R, const N: usize, const PORTS: usize> {
    clients: [Option<Client<M, R>>; N],
    switch: Pinned<PORTS>,
    terms: Terms,
    flights: [Option<Flight>; PLACES],
    under_way: u16,
    /// Client with the first turn.
    first: usize,
    /// Frames of the card that went nowhere.
    refused: u32,
    /// Places that the card names, and that have no frame.
    strays: u64,
    /// Time at which the flights' deadlines are looked at.
    look: u64,
}

impl<M: Memory, R: Ring, const N: usize, const PORTS: usize> Gate<M, R, N, PORTS> {
    /// Makes a gate without clients.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        const { assert!(PORTS == N + 1) };
        let (clients, flights) = ([const { None }; N], [const { None }; PLACES]);
        let switch = Pinned::new(terms.limit);
        let (under_way, first, refused, strays, look) = (0, 0, 0, 0, 0);
        Self { clients, switch, terms, flights, under_way, first, refused, strays, look }
    }

    /// Adds a client. `false`: there is no room, or its address is taken or none.
    #[must_use]
    pub fn add(&mut self, client: Client<M, R>) -> bool {
        let place = self.clients.iter().position(Option::is_none);
        let Some(n) = place.filter(|n| self.switch.pin(n + 1, client.mac)) else { return false };
        self.clients[n] = Some(client);
        true
    }

    /// Frames at the card.
    #[must_use]
    pub const fn under_way(&self) -> u16 {
        self.under_way
    }

    /// Answers of the card about frames that it does not have: it, or its driver, is not sound.
    #[must_use]
    pub const fn strays(&self) -> u64 {
        self.strays
    }

    /// Returns the counts of a client's frames.
    #[must_use]
    pub fn counts(&self, client: usize) -> Option<Counts> {
        self.clients.get(client)?.as_ref().map(Client::counts)
    }

    /// Returns a client that has given up on its device, because an answer could not be. Its session is over.
    pub fn complaint(&mut self) -> Option<usize> {
        let complains =
            |client: &mut Option<Client<M, R>>| client.as_mut().is_some_and(Client::complains);
        self.clients.iter_mut().position(complains)
    }

    /// Opens a client's device anew, as soon as the card reaches no buffer of its last session any more.
    pub fn renew(&mut self, client: usize) {
        if let Some(Some(client)) = self.clients.get_mut(client) {
            client.renew();
        }
    }

    /// Asks all clients to wake the gate, or asks no longer. A round follows before the gate sleeps. Returns true if
    /// there is a client that wakes nobody.
    pub fn arm(&mut self, wanted: bool) -> bool {
        self.clients.iter_mut().flatten().fold(false, |silent, client| client.arm(wanted) | silent)
    }

    /// Resets the card. Its frames are lost, as on any network: after the reset it reads none of their buffers.
    ///
    /// # Errors
    /// It cannot be reset.
    pub fn reset(&mut self, card: &mut impl Card) -> Result<(), Wrong> {
        card.reset()?;
        for place in 0..PLACES {
            if let Some(flight) = self.flights.get_mut(place).and_then(Option::take) {
                self.over(&flight);
            }
        }
        Ok(())
    }

    /// Takes the card's frames and the clients', and passes them on. `news` hears of sessions. Returns true if there
    /// was anything to do.
    ///
    /// # Errors
    /// The card was silent for too long, and cannot be reset.
    pub fn round(
        &mut self,
        card: &mut impl Card,
        now: u64,
        news: &mut impl FnMut(usize, News),
    ) -> Result<bool, Wrong> {
        let mut busy = self.land(card);
        busy |= self.receive(card, now);
        if now >= self.look {
            self.look = now.saturating_add(self.terms.patience / 8);
            self.patience(card, now)?;
        }
        for n in 0..N {
            busy |= self.serve(card, now, (self.first + n) % N, news);
        }
        self.first = (self.first + 1) % N.max(1);
        card.ring();
        self.clients.iter_mut().flatten().for_each(Client::tell);
        Ok(busy)
    }

    /// Gives back what the card has sent.
    fn land(&mut self, card: &mut impl Card) -> bool {
        let mut busy = false;
        while let Some(place) = card.sent() {
            busy = true;
            match self.flights.get_mut(usize::from(place)).and_then(Option::take) {
                Some(flight) => self.over(&flight),
                None => self.strays += 1,
            }
        }
        busy
    }

    /// A frame is at the card no longer.
    fn over(&mut self, flight: &Flight) {
        self.under_way -= 1;
        if let Some(Some(client)) = self.clients.get_mut(flight.client) {
            client.under_way -= 1;
            if let Some(chain) = &flight.chain {
                client.used(chain);
            }
        }
    }

    /// Passes the card's frames on. Each buffer goes back to the card at once.
    fn receive(&mut self, card: &mut impl Card, now: u64) -> bool {
        for n in 0..ROUND {
            let Some(frame) = card.receive() else { return n > 0 };
            if (ETHERNET..=FRAME).contains(&frame.len) {
                self.spread(card, frame, now);
            } else {
                self.refused = self.refused.wrapping_add(1);
            }
            card.give_back(frame.buffer);
        }
        true
    }

    fn spread(&mut self, card: &impl Card, frame: Received, now: u64) {
        let words = [8, 16, 24].map(|at| card.read(frame.buffer, at).to_le_bytes());
        let header = words.as_flattened().get(HEADER - 8..).and_then(<[u8]>::first_chunk);
        let header = header.copied().unwrap_or_default();
        let Ok(ports) = self.switch.route(OUTSIDE, header, now) else {
            self.refused = self.refused.wrapping_add(1);
            return;
        };
        for client in chosen(&mut self.clients, ports) {
            client.deliver_from(card, frame);
        }
    }

    /// Passes a client's frames on, as many as it may send in a round. Returns if there were any.
    fn serve(
        &mut self,
        card: &mut impl Card,
        now: u64,
        number: usize,
        news: &mut impl FnMut(usize, News),
    ) -> bool {
        let most = self.most();
        let mut buffer = [0; bulkhead_net::FRAME];
        let mut busy = false;
        let Some(Some(client)) = self.clients.get_mut(number) else { return false };
        if let Some(heard) = client.attend() {
            busy = true;
            news(number, heard);
        }
        for _ in 0..self.terms.share {
            let Some(Some(client)) = self.clients.get_mut(number) else { break };
            if client.under_way >= most {
                break;
            }
            let sent = match client.next(&mut buffer) {
                Next::Nothing => break,
                Next::News(heard) => {
                    news(number, heard);
                    return true;
                }
                Next::Garbage(chain) => {
                    client.counts.refused = client.counts.refused.wrapping_add(1);
                    client.used(&chain);
                    busy = true;
                    continue;
                }
                Next::Frame(sent) => sent,
            };
            busy = true;
            match self.switch.route(number + 1, sent.header, now) {
                Ok(ports) => {
                    if !self.pass(card, (number, &sent), ports, &mut buffer, now) {
                        break;
                    }
                }
                Err(Refused::Malformed | Refused::Stolen | Refused::Storm) => {
                    client.counts.refused = client.counts.refused.wrapping_add(1);
                    sent.chain.iter().for_each(|chain| client.used(chain));
                }
            }
        }
        busy
    }

    /// Passes a frame to its ports. `false`: the card has no place for it.
    fn pass(
        &mut self,
        card: &mut impl Card,
        (number, sent): (usize, &Sent),
        ports: u32,
        buffer: &mut [u8; bulkhead_net::FRAME],
        now: u64,
    ) -> bool {
        const CARD: u32 = 1 << OUTSIDE;
        let Some(Some(client)) = self.clients.get_mut(number) else { return false };
        let alone = ports == CARD;
        let place = match (&client.end, &sent.chain) {
            // The card reads all but the header where it lies.
            (End::Virtio(end), Some(chain)) if alone => {
                Some(card.send(&sent.header, end.rest(sent, chain)))
            }
            (End::Virtio(end), Some(chain)) => {
                if !end.copy(sent, chain, buffer) {
                    return false;
                }
                None
            }
            _ => None,
        };
        let frame = buffer.get(..sent.len).unwrap_or_default();
        let place = match place {
            Some(place) => place,
            None if ports & CARD != 0 => card.send(frame, None),
            None => None,
        };
        if ports & CARD != 0 && place.is_none() {
            client.untake();
            return false;
        }
        client.counts.sent = client.counts.sent.wrapping_add(1);
        // What was copied is the client's again.
        let chain = sent.chain.filter(|_| alone);
        if !alone {
            sent.chain.iter().for_each(|chain| client.used(chain));
        }
        if let Some(place) = place
            && let Some(slot) = self.flights.get_mut(usize::from(place))
        {
            client.under_way += 1;
            self.under_way += 1;
            *slot = Some(Flight {
                client: number,
                chain,
                due: now.saturating_add(self.terms.patience),
            });
        }
        for client in chosen(&mut self.clients, ports) {
            client.deliver(frame);
        }
        true
    }

    /// Returns how many places of the card a client may have: the others' stay free.
    fn most(&self) -> u16 {
        let clients = self.clients.iter().flatten().count();
        ((PLACES - 1) / clients.max(1)).max(1) as u16
    }

    /// Resets a card that does not send a frame for too long.
    fn patience(&mut self, card: &mut impl Card, now: u64) -> Result<(), Wrong> {
        match self.flights.iter().flatten().any(|flight| now >= flight.due) {
            true => self.reset(card),
            false => Ok(()),
        }
    }
}

/// The clients at these ports.
fn chosen<M: Memory, R>(
    clients: &mut [Option<Client<M, R>>],
    ports: u32,
) -> impl Iterator<Item = &mut Client<M, R>> {
    let at = move |(n, client): (usize, _)| (ports >> 1 >> n & 1 != 0).then_some(client);
    clients.iter_mut().enumerate().filter_map(at).flatten()
}
