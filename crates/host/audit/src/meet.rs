//! Frames that two parties reach, and frames that none may.

use crate::check::Context;
use crate::claim::{Function, Link, Range, Registers};
use crate::given::pages;
use crate::paging::{Leaf, Regime, entry_at};

/// Sorted frames of a party, for overlaps.
pub struct Sorted(Vec<(u64, u64)>);

impl Sorted {
    pub fn new(leaves: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut all: Vec<_> = leaves.map(|(frame, size)| (frame, frame + size)).collect();
        all.sort_unstable();
        Self(all)
    }

    fn of(regime: &Regime) -> Self {
        Self::new(regime.leaves.iter().map(|l| (l.frame, l.size)))
    }

    /// The parts of a range that are in it.
    fn inside(&self, start: u64, end: u64) -> impl Iterator<Item = Range> {
        // A gibibyte is the longest page.
        let from = self.0.partition_point(|f| f.0 + (1 << 30) <= start);
        let overlaps = self.0[from..].iter().take_while(move |f| f.0 < end);
        overlaps.filter(move |f| f.1 > start).map(move |f| {
            let first = f.0.max(start);
            Range { start: first, len: f.1.min(end) - first }
        })
    }
}

impl Context<'_> {
    /// Two sandboxes share a frame where a channel, `observe` or `[[shared_mmio]]` says so. Two monitors share only
    /// mailboxes, the start-up code, the interrupt controller, a channel's header and ranges of registers. A monitor
    /// and another's guest share only an observed report and such a header.
    pub(crate) fn shared(&mut self, nested: &[Option<Regime>], monitors: &[Option<Regime>]) {
        let sorted = |all: &[Option<Regime>]| -> Vec<Option<Sorted>> {
            all.iter().map(|r| r.as_ref().map(Sorted::of)).collect()
        };
        let (page, guests, hosts) = (self.page(), sorted(nested), sorted(monitors));
        for a in 0..nested.len() {
            for b in 0..nested.len() {
                let mut found = Vec::new();
                if a < b {
                    let both = meet(page, &guests[a], &nested[b], |f| self.both_guests(a, b, f));
                    found.extend(both.into_iter().map(|f| ("", "", f)));
                    let both = meet(page, &hosts[a], &monitors[b], |f| {
                        let mailbox = self.parts[a].mailboxes.contains(&f)
                            && self.parts[b].mailboxes.contains(&f);
                        let lock = self.parts[a].lock == Some(f) && self.parts[b].lock == Some(f);
                        let table = self.lines_frames().any(|&t| t == f);
                        let states = self.states(a, b, f);
                        let header = self.header(a, f) && self.header(b, f);
                        let lines = [a, b].iter().all(|i| {
                            let registers = self.claim.arch.line_registers(self.claim, *i);
                            registers.iter().any(|r| r.contains(f))
                        });
                        let code = self.claim.arch.places().start_code == Some(f);
                        let peer = self.quiets(a, b, f) || self.quiets(b, a, f);
                        let role = self.moves(a, b, f);
                        let registers = self.registers(a, b, f, true);
                        mailbox
                            || lock
                            || table
                            || states
                            || header
                            || lines
                            || code
                            || peer
                            || role
                            || registers
                    });
                    found.extend(both.into_iter().map(|f| ("'s monitor", "'s monitor", f)));
                }
                if a != b {
                    let both = meet(page, &hosts[a], &nested[b], |f| {
                        let report = self.claim.sandboxes[b].observe.contains(&a)
                            && self.parts[a].report.contains(&f);
                        let link = self
                            .claim
                            .in_link(f)
                            .is_some_and(|s| s.owner == a && s.to.contains(&b));
                        let role = self.moves(a, b, f);
                        report || link || role || self.header(a, f) || self.states(a, b, f)
                    });
                    found.extend(both.into_iter().map(|f| ("'s monitor", "", f)));
                }
                let place = self.claim.sandboxes[b].place.clone();
                for (of_a, of_b, frame) in found {
                    let (whose, a, b) = (self.owner(frame), self.name(a), self.name(b));
                    let message =
                        format!("{a}{of_a} and {b}{of_b} both reach {frame:#x} ({whose})");
                    let right = "one of them, or a channel between them in the manifest";
                    self.find("shared-frames", &place, Some(frame), message, right);
                }
            }
        }
        self.mailboxes(monitors);
    }

    /// Tells if a sandbox's monitor has to do with a channel's header. It closes its own guest's, and looks whether the
    /// other end wants to be woken. It reads a channel that holds its program.
    fn header(&self, sandbox: usize, frame: u64) -> bool {
        self.claim.in_channel(frame).is_some_and(|c| {
            let (writes, reads) = (self.claim.writes(c, sandbox), self.claim.reads(c, sandbox));
            let (own, rings) = (c.header && writes, c.rung && reads);
            let loads = c.program && reads;
            loads || c.hpa == frame && (own || rings)
        })
    }

    /// Tells if a monitor can keep a function of another sandbox from memory by this frame.
    fn quiets(&self, sandbox: usize, other: usize, frame: u64) -> bool {
        let kept = |f: &&Function| f.owner == Some(other) && f.role.is_none();
        let own = self.claim.functions.iter().filter(kept);
        let mut pages = own.filter_map(|f| self.claim.configuration(f));
        self.claim.sandboxes[sandbox].quiets.contains(&other)
            && pages.any(|page| page.contains(frame))
    }

    /// Registers of a role's function, by which the monitors of both holders stop it and switch it on.
    fn moves(&self, a: usize, b: usize, frame: u64) -> bool {
        let page = self.page();
        let both = |f: &&Function| f.role.is_some() && [a, b].iter().all(|i| self.claim.has(*i, f));
        let mut functions = self.claim.functions.iter().filter(both);
        functions.any(|f| {
            let own =
                f.mediated.iter().chain(&f.resets).copied().chain(self.claim.configuration(f));
            own.flat_map(|range| pages(range, page)).any(|page| page.contains(frame))
        })
    }

    fn both_guests(&self, a: usize, b: usize, frame: u64) -> bool {
        let observes = |who: usize, of: usize| self.claim.sandboxes[who].observe.contains(&of);
        self.claim.in_channel(frame).is_some_and(|c| {
            let at = |s: usize| self.claim.writes(c, s) || self.claim.reads(c, s);
            // Two holders of a role never have its memory both.
            let stands = |s: usize| self.claim.stands(c, s).is_some();
            at(a) && at(b) && !(stands(a) && stands(b))
        }) || self
            .claim
            .in_link(frame)
            .is_some_and(|s| s.owner == a && s.to.contains(&b) || s.owner == b && s.to.contains(&a))
            || self.states(a, b, frame)
            || self.registers(a, b, frame, false)
            || (0..self.parts.len()).any(|of| {
                observes(a, of) && observes(b, of) && self.parts[of].report.contains(&frame)
            })
    }

    /// Tells if a frame is a page of registers that two sandboxes share, as guests or by their monitors.
    fn registers(&self, a: usize, b: usize, frame: u64, mediated: bool) -> bool {
        let both = |all: &Registers| all.has(a, mediated) && all.has(b, mediated);
        self.claim.in_registers(frame).is_some_and(both)
    }

    /// Tells if a frame holds the states of peers of a channel that two sandboxes have both an end of.
    fn states(&self, a: usize, b: usize, frame: u64) -> bool {
        let of = |i: usize| {
            let ends = self.claim.sandboxes[i].ends.iter().zip(&self.parts[i].ends);
            ends.filter(move |(_, [_, states])| *states == frame).map(|(end, _)| end.channel)
        };
        of(a).any(|channel| of(b).any(|other| other == channel))
    }

    /// Checks that all monitors see one set of mailboxes.
    fn mailboxes(&mut self, monitors: &[Option<Regime>]) {
        let known: Vec<_> = (0..monitors.len()).filter(|&i| monitors[i].is_some()).collect();
        let Some(&first) = known.first() else {
            return;
        };
        for &i in &known[1..] {
            if self.parts[i].mailboxes != self.parts[first].mailboxes {
                let place = self.claim.sandboxes[i].place.clone();
                let message = format!(
                    "{}'s monitor has other mailboxes than {}'s",
                    self.name(i),
                    self.name(first)
                );
                self.find("monitor-map", &place, None, message, "the same, in the same order");
            }
        }
    }

    /// Checks that no party reaches a table that confines, nor anything that only the boot code used.
    pub(crate) fn unmapped(&mut self, nested: &[Option<Regime>], monitors: &[Option<Regime>]) {
        let page = self.page();
        for (n, regime) in nested.iter().chain(monitors).enumerate() {
            let i = n % nested.len();
            let who = if n < nested.len() { "" } else { "'s monitor" };
            let who = format!("{}{who}", self.name(i));
            let place = self.claim.sandboxes[i].place.clone();
            // A monitor fills the remapping tables of its sandbox's functions, and the tables of its guest's that
            // have nothing but entries of links.
            let mut own = Vec::new();
            if n >= nested.len() {
                let root = nested[i].iter().flat_map(|r| r.tables.first());
                let links = self.claim.links.iter().filter(|link| link.concerns(i));
                let table = |(link, root): (&Link, &u64)| {
                    entry_at(self.words, self.claim.arch.nested(), *root, link.gpa) / page * page
                };
                let all = links.flat_map(|link| root.clone().map(move |root| (link, root)));
                own.extend(self.remapping_frames(i).map(|r| r.start).chain(all.map(table)));
                own.extend(root.flat_map(|root| self.role_tables(i, *root)));
                if self.claim.arch.commands(self.claim, i).is_some() {
                    own.extend(&self.commands);
                }
            }
            let confining = self.confining.iter().map(|c| c.0).filter(|f| !own.contains(f));
            let confining: Vec<u64> = confining.collect();
            for leaf in regime.iter().flat_map(|r| &r.leaves) {
                self.reaches_table(&confining, &place, &who, leaf);
                let image = self.claim.image;
                let (from, to) = (leaf.frame.max(image.start), leaf.frame + leaf.size);
                let mut frames = (from..to.min(image.end())).step_by(page as usize);
                if let Some(frame) = frames.find(|f| !self.image.contains_key(f)) {
                    let message = format!(
                        "{who} reaches {frame:#x} at {:#x}: {}",
                        leaf.address,
                        self.owner(frame)
                    );
                    self.find(
                        "boot-code-unmapped",
                        &place,
                        Some(frame),
                        message,
                        "nobody reaches it",
                    );
                }
            }
        }
    }

    fn reaches_table(
        &mut self,
        sorted: &[u64],
        place: &crate::claim::Place,
        who: &str,
        leaf: &Leaf,
    ) {
        let first = sorted.partition_point(|t| *t < leaf.frame);
        let end = leaf.frame + leaf.size;
        if let Some(&table) = sorted.get(first).filter(|t| **t < end) {
            let message = format!("{who} reaches {table:#x} ({})", self.owner(table));
            self.find("tables-unmapped", place, Some(table), message, "nobody reaches it");
        }
    }
}

/// Frames that one party's tables share with another's though they may not.
fn meet(
    page: u64,
    one: &Option<Sorted>,
    other: &Option<Regime>,
    allowed: impl Fn(u64) -> bool,
) -> Vec<u64> {
    let mut out = Vec::new();
    if let (Some(one), Some(other)) = (one, other) {
        for leaf in &other.leaves {
            let parts = one.inside(leaf.frame, leaf.frame + leaf.size);
            let mut frames = parts.flat_map(|r| (r.start..r.end()).step_by(page as usize));
            out.extend(frames.find(|&frame| !allowed(frame)));
        }
    }
    out
}
