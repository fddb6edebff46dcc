//! The rounds: requests from clients to the disk, and its answers back.

use crate::client::{Client, Fate};
use crate::disk::{Disk, Failed, Operation, Request};
use bulkhead_channel::Memory;
use bulkhead_channel::bell::Ring;
use bulkhead_virtio::block::{FAILED, OK};
use bulkhead_virtio::{Chain, News};

/// Requests at the disk, at most.
const DEPTH: usize = 64;

/// Terms on which clients are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Most requests of a client in a round.
    pub share: u16,
    /// Queues of each device.
    pub queues: usize,
    /// Longest time of a request at the disk, in nanoseconds.
    pub patience: u64,
}

/// A request at the disk.
#[derive(Clone, Copy, Debug)]
struct Flight {
    client: usize,
    queue: usize,
    chain: Chain,
    /// Offset of the status.
    status: usize,
    /// Bytes that it writes.
    written: usize,
    request: Request,
    /// Its number among all requests: those of a disk that was reset go there again in this order.
    number: u64,
    /// Time at which the disk is given up.
    due: u64,
}

/// A disk's clients, and the requests under way.
#[derive(Debug)]
pub struct Store<M: Memory, R, const N: usize> {
    clients: [Option<Client<M, R>>; N],
    /// The first so many places have a client.
    count: usize,
    terms: Terms,
    flights: [Option<Flight>; DEPTH],
    under_way: u16,
    requests: u64,
    /// Client with the first turn.
    first: usize,
    /// Answers of the disk to requests of nobody's.
    strays: u64,
    /// Time at which the flights' deadlines are looked at.
    look: u64,
}

impl<M: Memory, R: Ring, const N: usize> Store<M, R, N> {
    /// Makes a store without clients.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        let (clients, flights) = ([const { None }; N], [const { None }; DEPTH]);
        let (count, first) = (0, 0);
        Self {
            clients,
            count,
            terms,
            flights,
            under_way: 0,
            requests: 0,
            first,
            strays: 0,
            look: 0,
        }
    }

    /// Adds a client. `false`: there is no room.
    #[must_use]
    pub fn add(&mut self, client: Client<M, R>) -> bool {
        let place = self.clients.get_mut(self.count);
        let there = place.is_some();
        if let Some(place) = place {
            *place = Some(client);
            self.count += 1;
        }
        there
    }

    /// Requests at the disk.
    #[must_use]
    pub const fn under_way(&self) -> u16 {
        self.under_way
    }

    /// Answers of the disk to requests that are not under way: it, or its driver, is not sound.
    #[must_use]
    pub const fn strays(&self) -> u64 {
        self.strays
    }

    /// Returns a client that has given up on its device, because an answer could not be. Its session is over. Clients
    /// are heard in turns, so one that complains all the time hides nobody.
    pub fn complaint(&mut self) -> Option<usize> {
        let mut turns = (self.first..self.count).chain(0..self.first);
        let mut complains = |n: usize| Some(self.clients.get_mut(n)?.as_mut()?.complains());
        turns.find(|n| complains(*n) == Some(true))
    }

    /// Opens a client's device anew, as soon as the disk reaches no buffer of its last session any more.
    pub fn renew(&mut self, client: usize) {
        if let Some(Some(client)) = self.clients.get_mut(client) {
            client.renew();
        }
    }

    /// Asks all clients to wake the store, or asks no longer. A round follows before the store sleeps.
    pub fn arm(&mut self, wanted: bool) {
        self.there().for_each(|client| client.arm(wanted));
    }

    /// Takes the disk's answers and the clients' requests, and tells both sides. `news` hears of sessions. Returns true
    /// if there was anything to do.
    ///
    /// # Errors
    /// The disk was silent for too long, and cannot be reset.
    pub fn round(
        &mut self,
        disk: &mut impl Disk,
        now: u64,
        news: &mut impl FnMut(usize, News),
    ) -> Result<bool, Failed> {
        let mut busy = self.finish(disk);
        if now >= self.look {
            self.look = now.saturating_add(self.terms.patience / 8);
            self.patience(disk, now)?;
        }
        let (mut asked, most) = (false, self.most(disk.info().depth));
        for client in (self.first..self.count).chain(0..self.first) {
            let (some, submitted) = self.serve(disk, now, (client, most), news);
            busy |= some;
            asked |= submitted;
        }
        self.first = if self.first + 1 < self.count { self.first + 1 } else { 0 };
        if asked {
            disk.ring();
        }
        let queues = self.terms.queues;
        self.there().for_each(|client| client.tell(queues));
        Ok(busy)
    }

    fn there(&mut self) -> impl Iterator<Item = &mut Client<M, R>> {
        self.clients.iter_mut().map_while(Option::as_mut)
    }

    /// Takes the disk's answers.
    fn finish(&mut self, disk: &mut impl Disk) -> bool {
        let mut busy = false;
        while let Some((tag, result)) = disk.completed() {
            busy = true;
            // A tag that is not under way is the disk's mistake, and nobody's answer.
            match self.flights.get_mut(usize::from(tag)).and_then(Option::take) {
                Some(flight) => self.land(&flight, result),
                None => self.strays += 1,
            }
        }
        busy
    }

    /// Answers a request that the disk has done.
    fn land(&mut self, flight: &Flight, result: Result<(), Failed>) {
        self.under_way -= 1;
        let Some(client) = self.clients.get_mut(flight.client).and_then(Option::as_mut) else {
            return;
        };
        client.under_way -= 1;
        let end = match result {
            Ok(()) => (OK, flight.written),
            Err(Failed) => (FAILED, 0),
        };
        client.answer(flight.queue, &flight.chain, flight.status, end);
    }

    /// Takes a client's requests, as many as it may have in a round, and `most` at the disk. Returns if there were any,
    /// and if the disk has some of them.
    fn serve(
        &mut self,
        disk: &mut impl Disk,
        now: u64,
        (number, most): (usize, u16),
        news: &mut impl FnMut(usize, News),
    ) -> (bool, bool) {
        let (mut busy, mut asked) = (false, false);
        let Some(Some(client)) = self.clients.get_mut(number) else { return (false, false) };
        if let Some(heard) = client.attend() {
            busy = true;
            news(number, heard);
        }
        let mut left = self.terms.share;
        'queues: for queue in 0..self.terms.queues {
            while left > 0 && client.under_way < most {
                let (chain, request, fate) = match client.take(queue) {
                    Ok(None) => break,
                    Ok(Some(taken)) => taken,
                    Err(heard) => {
                        news(number, heard);
                        return (true, asked);
                    }
                };
                left -= 1;
                let asks = match fate {
                    Fate::Answered { status, written } => {
                        client.answer(queue, &chain, request.status, (status, written));
                        busy = true;
                        continue;
                    }
                    Fate::Asked(asks) => asks,
                };
                let free = self.flights.iter().position(Option::is_none);
                let sent = free.map(|tag| Request { tag: tag as u16, ..asks });
                let Some(sent) = sent.filter(|request| disk.submit(request).is_ok()) else {
                    client.untake(queue);
                    break 'queues;
                };
                self.requests += 1;
                let reads = sent.operation == Operation::Read;
                let written = if reads { sent.len as usize } else { 0 };
                self.flights[usize::from(sent.tag)] = Some(Flight {
                    client: number,
                    queue,
                    chain,
                    status: request.status,
                    written,
                    request: sent,
                    number: self.requests,
                    due: now.saturating_add(self.terms.patience),
                });
                (busy, asked) = (true, true);
                client.under_way += 1;
                self.under_way += 1;
            }
        }
        (busy, asked)
    }

    /// Returns how many places of the disk a client may have: the others find some free.
    fn most(&self, depth: u16) -> u16 {
        let clients = self.count as u16;
        let depth = depth.min(DEPTH as u16);
        let others = self.terms.share.saturating_mul(clients.saturating_sub(1));
        depth.saturating_sub(others).max(depth / clients.max(1)).max(1)
    }

    /// Resets a disk that is silent for too long, and asks it again in the old order. Requests of
    /// sessions that are over are forgotten: after the reset the disk reaches none of their buffers.
    fn patience(&mut self, disk: &mut impl Disk, now: u64) -> Result<(), Failed> {
        if !self.flights.iter().flatten().any(|flight| now >= flight.due) {
            return Ok(());
        }
        disk.reset()?;
        let mut after = 0;
        loop {
            let later = self.flights.iter().flatten().filter(|flight| flight.number > after);
            let Some(flight) = later.min_by_key(|flight| flight.number).copied() else { break };
            after = flight.number;
            let client = self.clients.get_mut(flight.client).and_then(Option::as_mut);
            let goes_on = client.is_some_and(Client::is_up);
            let again = goes_on && disk.submit(&flight.request).is_ok();
            let place = self.flights.get_mut(usize::from(flight.request.tag));
            let Some(place) = place else { continue };
            match again {
                true => {
                    let due = now.saturating_add(self.terms.patience);
                    *place = Some(Flight { due, ..flight });
                }
                false => {
                    *place = None;
                    self.land(&flight, Err(Failed));
                }
            }
        }
        disk.ring();
        Ok(())
    }
}
