//! A client of a disk in another sandbox, in a bare guest as in a program: it works in the channel's sections.

use crate::Guest;
use bulkhead_channel::Bytes;
use bulkhead_channel::bell::Caller;
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_virtio::disk::{Disk, Failed, News, Operation};

/// Bytes of a request, and of a word.
const BLOCK: usize = 4096;
const WORD: usize = 8;
const SECTORS: u64 = BLOCK as u64 / 512;
/// Requests under way at once, at most.
const BATCH: usize = 8;

struct Client<'a, H: Guest> {
    host: &'a H,
    disk: Disk<Mapping<'static>>,
    caller: Option<Caller<Mapping<'static>, H::Ring>>,
    /// Nanoseconds that an answer may take.
    patience: u64,
    lives: u32,
}

/// Writes batches of blocks, flushes, reads them again, and compares. Then it asks for what a disk refuses. Arguments:
/// `rounds=N` batches (default 8), `patience=MILLISECONDS` for each answer (default 10,000).
pub fn disk(host: &impl Guest, pair: &Pair<'static>) -> Option<()> {
    let section = pair.shape().tx_bytes()?;
    let disk = Disk::open(*pair.tx(), *pair.rx(), section, BLOCK).ok()?;
    let patience = host.number("patience").unwrap_or(10_000) * 1_000_000;
    let mut client = Client { host, disk, caller: host.caller(pair), patience, lives: 0 };
    host.ready();
    let sectors = client.wait(|disk| disk.info())?.sectors;
    let rounds = host.number("rounds").unwrap_or(8);
    let wrong = client.rounds(rounds, sectors)?;
    let refused = client.refusals(sectors);
    host.say(format_args!(
        "{sectors} sectors, {rounds} rounds, {wrong} wrong, {refused} refused, {} lives of the disk",
        client.lives
    ));
    (wrong == 0 && refused == 3).then_some(())
}

/// A word of what a round writes.
fn pattern(round: u64, block: usize, at: usize) -> u64 {
    (round << 40 | (block as u64) << 32 | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl<H: Guest> Client<'_, H> {
    /// Looks until something is there, for as long as its patience lasts.
    fn wait<T>(
        &mut self,
        mut ask: impl FnMut(&mut Disk<Mapping<'static>>) -> Option<T>,
    ) -> Option<T> {
        let due = self.host.now() + self.patience;
        while self.host.now() < due {
            self.lives += u32::from(matches!(self.disk.attend(), Some(News::Up(_))));
            let found = ask(&mut self.disk);
            if let Some(caller) = &mut self.caller {
                caller.tell();
            }
            if found.is_some() {
                return found;
            }
            core::hint::spin_loop();
        }
        self.host.say(format_args!("no answer, {} under way", self.disk.waiting()));
        None
    }

    /// A batch of requests under way at once. `fill` and `check` have the bytes of each; returns how many failed.
    fn batch(
        &mut self,
        operation: Operation,
        sector: impl Fn(usize) -> u64,
        fill: impl Fn(usize, &<Mapping<'static> as bulkhead_channel::Memory>::Bytes),
        mut check: impl FnMut(usize, &<Mapping<'static> as bulkhead_channel::Memory>::Bytes) -> bool,
    ) -> Option<usize> {
        let count = BATCH.min(self.disk.bounds()[1]);
        let (mut blocks, mut wrong) = ([0; bulkhead_virtio::disk::DEPTH], 0);
        for block in 0..count {
            let slot = self.disk.slot()?;
            blocks[slot.number()] = block;
            if let Some(bytes) = self.disk.outgoing(slot) {
                fill(block, &bytes);
            }
            self.disk.send(slot, operation, sector(block), BLOCK).ok()?;
        }
        // One word tells of them all.
        self.disk.tell();
        for _ in 0..count {
            let (slot, done) = self.wait(Disk::completed)?;
            let block = blocks[slot.number()];
            let right = match self.disk.incoming(slot).filter(|_| done.is_ok()) {
                Some(bytes) => check(block, &bytes),
                None => done.is_ok(),
            };
            wrong += usize::from(!right);
            self.disk.free(slot);
        }
        Some(wrong)
    }

    fn rounds(&mut self, rounds: u64, sectors: u64) -> Option<usize> {
        let mut wrong = 0;
        for round in 0..rounds {
            let sector = |block: usize| {
                (round * BATCH as u64 + block as u64) * SECTORS % (sectors - SECTORS + 1)
            };
            wrong += self.batch(
                Operation::Write,
                sector,
                |block, bytes| {
                    let words = (0..BLOCK).step_by(WORD);
                    words.for_each(|at| bytes.set_word(at, pattern(round, block, at)));
                },
                |_, _| true,
            )?;
            wrong += usize::from(self.flush()?.is_err());
            wrong += self.batch(
                Operation::Read,
                sector,
                |_, _| {},
                |block, bytes| {
                    let mut words = (0..BLOCK).step_by(WORD);
                    words.all(|at| bytes.word(at) == pattern(round, block, at))
                },
            )?;
        }
        Some(wrong)
    }

    fn flush(&mut self) -> Option<Result<(), Failed>> {
        let slot = self.disk.slot()?;
        self.disk.send(slot, Operation::Flush, 0, 0).ok()?;
        self.disk.tell();
        let (slot, done) = self.wait(Disk::completed)?;
        self.disk.free(slot);
        Some(done)
    }

    /// Requests that are never sent: behind the disk's end, across it, and of half a sector.
    fn refusals(&mut self, sectors: u64) -> usize {
        let Some(slot) = self.disk.slot() else { return 0 };
        let bad = [(sectors, BLOCK), (sectors - 1, BLOCK), (0, 256)];
        let refused = bad.into_iter().filter(|(sector, len)| {
            self.disk.send(slot, Operation::Read, *sector, *len) == Err(Failed::Bad)
        });
        let refused = refused.count();
        self.disk.free(slot);
        refused
    }
}
