//! Links, as this sandbox has them ([`bulkhead_monitor_abi::link`]).

use crate::contract::Monitor;
use crate::record::add;
use crate::{mail, signal};
use bulkhead_monitor_abi::cores::To;
use bulkhead_monitor_abi::hypercall::{ACCEPT, BAD_ARGUMENT, BUSY, CLOSE, LOOK, OFFER, OK};
use bulkhead_monitor_abi::link::{self, Link, MAX_LINKS, OPEN, Side};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::record::RecordMemory;
use core::sync::atomic::AtomicU64;

/// This sandbox's part in a link.
struct Part<'a, M>(&'a M, &'a Link);

impl<M: Monitor> Side for Part<'_, M> {
    type Word = AtomicU64;

    fn me(&self) -> u32 {
        self.0.config().sandbox
    }

    fn owner(&self) -> u32 {
        self.1.owner
    }

    #[inline(never)]
    fn word(&self, of: u32) -> &AtomicU64 {
        &self.0.mailbox(of).links[self.1.number as usize % MAX_LINKS]
    }

    fn clear(&self) {
        let [memory, len] = self.1.memory;
        // The last party's data are not the next one's to read.
        self.0.memory().zero(memory, len);
    }

    fn map(&self, phase: u64) {
        // Entries are baked: the monitor decides whether, never where to.
        let open = self.0.entries(self.1.open);
        let entries = if phase == OPEN { open } else { self.0.entries(self.1.gone) };
        for n in 0..open.len() {
            let entry = if phase == link::IDLE { None } else { entries.get(n) };
            // A table of the guest's: entries that the host has baked, or none, on a page that has no others.
            self.0.memory().store(self.1.table + 8 * n as u64, entry.copied().unwrap_or(0));
        }
    }

    fn wanted(&self) -> &AtomicU64 {
        &self.0.shared(0).flushes
    }

    fn done(&self, core: u32) -> Option<&AtomicU64> {
        (core < self.0.config().cores).then(|| &self.0.shared(core).flushed)
    }

    fn flush(&self) {
        // This core is in its monitor already; the others come by the signal.
        link::empty(self, self.0.index(), || self.0.flush());
        signal::send_each(self.0, To::Others, 0);
    }

    fn ring(&self, sandbox: u32) {
        if let Some(&id) = self.0.config().first_core.get(sandbox as usize) {
            signal::ring(self.0, sandbox, id);
        }
    }

    fn bury(&self, end: usize) {
        if let Some(end) = self.1.ends.get(end) {
            mail::bury_end(self.0, end);
        }
    }
}

fn parts<M: Monitor>(m: &M) -> impl Iterator<Item = Part<'_, M>> {
    let links = if M::has(need::LINKS) { m.links() } else { &[] };
    links.iter().map(move |link| Part(m, link))
}

/// Does what links demand when a doorbell has come.
pub fn look<M: Monitor>(m: &M) {
    for part in parts(m) {
        link::empty(&part, m.index(), || m.flush());
        link::settle(&part);
        // One core of a sandbox looks at the other party's word.
        if m.is_first() {
            link::look(&part);
        }
    }
}

/// Closes the guest's ends, as by itself: the guest has ended, on all cores.
pub fn end<M: Monitor>(m: &M) {
    parts(m).for_each(|part| link::end(&part));
}

/// Makes a call with its first two arguments; `link` is the one that they name.
pub fn call<M: Monitor>(m: &M, call: u64, link: u32, [first, second]: [u64; 2]) -> u64 {
    // The right is checked before, by the manifest's sets; this finds the number.
    let Some(part) = parts(m).find(|part| part.1.number == link) else { return BAD_ARGUMENT };
    let (mine, to) = (part.owner() == part.me(), first as u32);
    let done = match call {
        OFFER if mine && part.1.to >> (to & 31) & 1 != 0 => {
            Some(link::offer(&part, to, second >> 16))
        }
        ACCEPT if !mine => link::accept(&part, second as u32 as u64),
        CLOSE => link::close(&part),
        LOOK => return link::state(&part, second != 0),
        _ => None,
    };
    // The host compares doorbells with this number: no sandbox is rung for more often than it has consented.
    if done == Some(true) && call != CLOSE {
        add(&m.counters().consents);
    }
    done.map_or(BAD_ARGUMENT, |done| if done { OK } else { BUSY })
}
