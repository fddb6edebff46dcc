//! Whatever bits the memory holds, nothing panics and everything ends.

use bulkhead_sched::{
    Account, Context, Contexts, Id, Refill, Requester, Scheduler, Time, Utilization,
};
use zerocopy::{FromZeros, IntoBytes};

const COUNT: usize = 5;

/// Contexts that any id is one of, with different room.
struct Memory {
    contexts: [Context; COUNT],
    refills: [[Refill; COUNT]; COUNT],
}

impl Contexts for Memory {
    fn context(&mut self, id: Id) -> &mut Context {
        &mut self.contexts[id.index() % COUNT]
    }

    fn refills(&mut self, id: Id) -> (&mut Context, &mut [Refill]) {
        let index = id.index() % COUNT;
        (&mut self.contexts[index], &mut self.refills[index][..index])
    }
}

struct Random(bulkhead_oracle::Random);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.any()
    }

    /// All sizes are as likely, so that a field gets small values, too.
    fn word(&mut self) -> u64 {
        let size = self.next() % 65;
        self.next().checked_shr(size as u32).unwrap_or(0)
    }

    /// Writes over one in `sparse` words.
    fn spoil(&mut self, bytes: &mut [u8], sparse: u64) {
        for word in bytes.chunks_exact_mut(8) {
            if self.next() % sparse == 0 {
                word.copy_from_slice(&self.word().to_le_bytes());
            }
        }
    }

    fn one_bit(&mut self, bytes: &mut [u8]) {
        let at = self.next() as usize % bytes.len();
        bytes[at] ^= 1 << (self.next() % 8);
    }

    fn id(&mut self) -> Id {
        Id::of((self.next() % COUNT as u64) as u32)
    }
}

fn context(n: usize) -> Context {
    let account = match n {
        0 => Account::full(50),
        1 => Account::pibs(Utilization::new(1, 3).unwrap(), 1, 30, 0),
        2 => Account::strict(10, 40, 0),
        _ => Account::sporadic(10 * n as u64, 100, 0).unwrap().with_cost(2),
    };
    let context = Context::new(account.unwrap(), 3 + n as u8 % 2);
    if n % 2 == 0 { context.in_background() } else { context }
}

fn call(core: &mut Scheduler, all: &mut Memory, random: &mut Random, now: Time) {
    let id = random.id();
    match random.next() % 18 {
        0..4 => _ = core.wake(all, id, now),
        4..6 => core.block(all, id, now),
        6..8 => _ = core.block_until(all, id, now, now.saturating_add(random.word())),
        8 => _ = core.donate(all, random.next() as u8),
        9 => core.yield_now(all, now),
        10 => core.yield_to(all, id),
        11 => _ = core.set_priority(all, id, random.next() as u8, now),
        12 => _ = core.set_budget(all, id, (random.word(), random.word()), now),
        13 => {
            let requester = Requester { priority: random.next() as u8, period: random.word() };
            let _ = core.request(all, id, requester, now);
        }
        14 => _ = (core.reserve(), core.unreserve()),
        15 => _ = core.begin_call(all, id, random.word(), now),
        16 => core.end_call(all, id, random.word()),
        _ => _ = all.context(id).take_consumed(),
    }
}

#[test]
fn nothing_panics_on_any_bits() {
    let mut random = Random(bulkhead_oracle::Random::new(1));
    let mut ran = 0;
    for round in 0..4_000u64 {
        let refills = [[Refill::default(); COUNT]; COUNT];
        let mut all = Memory { contexts: std::array::from_fn(context), refills };
        let mut core = Scheduler::new(0);
        let mut now = 0;
        for step in 0..60 {
            call(&mut core, &mut all, &mut random, now);
            ran += u32::from(core.schedule(&mut all, now).run.is_some());
            now = now.wrapping_add(random.word() >> (8 * (round % 8)));
            // All of it, here and there, or a bit.
            match (step % 20, round % 4) {
                (10, 0) => {
                    random.spoil(core.as_mut_bytes(), 1);
                    random.spoil(all.contexts.as_mut_bytes(), 1);
                    random.spoil(all.refills.as_mut_bytes(), 1);
                }
                (10, 1) => random.spoil(all.contexts.as_mut_bytes(), 9),
                (_, 2) => random.one_bit(all.contexts.as_mut_bytes()),
                (_, 3) => random.one_bit(core.as_mut_bytes()),
                _ => (),
            }
        }
    }
    assert!(ran > 100_000, "{ran}");
}

/// Memory that was never anything else.
#[test]
fn zeros_are_data() {
    let mut core = Scheduler::new_zeroed();
    let contexts = [Context::new_zeroed(); COUNT];
    let mut all = Memory { contexts, refills: [[Refill::default(); COUNT]; COUNT] };
    let mut random = Random(bulkhead_oracle::Random::new(7));
    for now in 0..1_000 {
        call(&mut core, &mut all, &mut random, now);
        let _ = core.schedule(&mut all, now);
    }
}
