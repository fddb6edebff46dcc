//! Slots of channels that are made at run time, as this sandbox has them ([`bulkhead_resident::link`]).

use crate::core::{Core, config, mailbox, shared_of, slice};
use crate::life::{self, Memory};
use crate::{ipi, mail};
use ::core::ptr::{addr_of_mut, read_volatile, write_volatile};
use ::core::sync::atomic::AtomicU64;
use bulkhead_resident::hypercall::{ACCEPT, BAD_ARGUMENT, BUSY, CLOSE, OFFER, OK, SLOT};
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

    #[inline(never)]
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
        link::empty(self, self.0.index(), || life::flush(self.0));
        ipi::signal_each(self.0, To::Others, 0);
    }

    fn ring(&self, sandbox: u32) {
        if let Some(&id) = config().first_core.get(sandbox as usize) {
            ipi::ring(sandbox, id);
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

/// What there is to do when an NMI has come.
pub fn look(core: Core) {
    for part in parts(core) {
        link::empty(&part, core.index(), || life::flush(core));
        link::settle(&part);
        if core.is_first() {
            link::look(&part);
        }
    }
}

/// The guest has ended, on all cores: its ends are closed, as by itself.
pub fn end(core: Core) {
    parts(core).for_each(|part| link::end(&part));
}

/// A call with its first two arguments; `slot` is the one that they name.
pub fn call(core: Core, call: u64, slot: u32, [first, second]: [u64; 2]) -> u64 {
    let Some(part) = parts(core).find(|part| part.1.number == slot) else { return BAD_ARGUMENT };
    let (mine, to) = (part.owner() == part.me(), first as u32);
    let done = match call {
        OFFER if mine && part.1.to >> to & 1 != 0 => Some(link::offer(&part, to, second >> 16)),
        ACCEPT if !mine => link::accept(&part, second as u32 as u64),
        CLOSE => link::close(&part),
        SLOT => return link::state(&part, second != 0),
        _ => None,
    };
    if done == Some(true) && call != CLOSE {
        // SAFETY: this core's own counter.
        unsafe {
            let consents = addr_of_mut!((*core.counters()).consents);
            write_volatile(consents, read_volatile(consents) + 1);
        }
    }
    done.map_or(BAD_ARGUMENT, |done| if done { OK } else { BUSY })
}
