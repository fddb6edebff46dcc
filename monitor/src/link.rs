//! Slots of channels that are made at run time, as this sandbox has them ([`bulkhead_resident::link`]).

use crate::core::{Core, config, mailbox, shared_of, slice};
use crate::life::{self, Memory};
use crate::{ipi, mail};
use ::core::sync::atomic::AtomicU64;
use bulkhead_resident::hypercall::{ACCEPT, BAD_ARGUMENT, BUSY, CLOSE, OK};
use bulkhead_resident::link::{self, Link, OPEN, SLOTS, Side};
use bulkhead_resident::record::RecordMemory;
use bulkhead_resident_x86::icr::To;

/// This sandbox's part in a slot.
struct Part(Core, &'static Link);

impl Side for Part {
    type Word = AtomicU64;

    fn me(&self) -> u32 {
        config().sandbox
    }

    fn owner(&self) -> u32 {
        self.1.owner
    }

    fn word(&self, of: u32) -> &AtomicU64 {
        &mailbox(of).links[self.1.number as usize % SLOTS]
    }

    fn clear(&self) {
        let [memory, len] = self.1.memory;
        Memory.zero(memory, len);
    }

    fn map(&self, phase: u64) {
        let open = slice::<u64>(self.1.open);
        let entries = if phase == OPEN { open } else { slice(self.1.gone) };
        for n in 0..open.len() {
            let entry = if phase == link::IDLE { None } else { entries.get(n) };
            // A table of the guest's: entries that the host has baked, or none, on a page that has no others.
            Memory.store(self.1.table + 8 * n as u64, entry.copied().unwrap_or(0));
        }
    }

    fn wanted(&self) -> &AtomicU64 {
        &shared_of(0).flushes
    }

    fn done(&self, core: u32) -> Option<&AtomicU64> {
        (core < config().cores).then(|| &shared_of(core).flushed)
    }

    fn flush(&self) {
        ipi::each(self.0, To::All, |_, id| ipi::ring(id));
    }

    fn ring(&self, sandbox: u32) {
        if let Some(&id) = config().first_core.get(sandbox as usize) {
            ipi::ring(id);
        }
    }

    fn bury(&self, end: usize) {
        if let Some(end) = self.1.ends.get(end) {
            mail::bury_end(end);
        }
    }
}

fn parts(core: Core) -> impl Iterator<Item = Part> {
    slice::<Link>(config().links).iter().map(move |link| Part(core, link))
}

/// What there is to do at an NMI.
pub fn look(core: Core) {
    if let Some(any) = parts(core).next() {
        link::empty(&any, core.index(), || life::flush(core));
    }
    parts(core).for_each(|part| link::look(&part));
}

/// The guest has ended, on all cores.
pub fn end(core: Core) {
    parts(core).for_each(|part| link::end(&part));
}

/// Offers a slot to a sandbox: its number.
pub fn offer(core: Core, to: u32, tag: u64) -> u64 {
    let mut own = parts(core).filter(|part| part.1.owner == part.me() && part.1.to >> to & 1 != 0);
    own.find(|part| link::offer(part, to, tag)).map_or(BUSY, |part| u64::from(part.1.number))
}

/// Another call about a slot that the sandbox is a party of.
pub fn call(core: Core, call: u64, number: u32, epoch: u64) -> u64 {
    let Some(part) = parts(core).find(|part| part.1.number == number) else { return BAD_ARGUMENT };
    let done = match call {
        ACCEPT if part.owner() != part.me() => link::accept(&part, epoch),
        CLOSE => link::close(&part).then_some(true),
        ACCEPT => None,
        _ => return link::state(&part),
    };
    done.map_or(BAD_ARGUMENT, |done| if done { OK } else { BUSY })
}
