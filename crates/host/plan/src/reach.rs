//! Reach of a sandbox: each range of its guest-physical addresses that leads anywhere. The nested tables and the table
//! of `bulkhead plan` derive from this list.

use crate::{BarKind, Guest, Plan, Span};
use bulkhead_layout::{PAGE, report};
use std::fmt;

/// Access to a range; reading is always part of it, except where each access is mediated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// Reading, writing and executing.
    All,
    /// By the segments of the guest's program.
    Segments,
    /// Mediated by the monitor: nothing is mapped.
    Trap,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "r--",
            Self::Write => "rw-",
            Self::All => "rwx",
            Self::Segments => "segments",
            Self::Trap => "trap",
        })
    }
}

/// Content of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// RAM at a host-physical address.
    Ram(u64),
    /// Its information page.
    Info,
    /// Its progress words.
    Progress,
    /// Words that show its roles.
    Roles,
    /// Its snapshots.
    Snapshots,
    /// Report of a sandbox.
    Report(usize),
    /// A piece of a BAR: index of the function among its own, number of the BAR. If the function is a role's, the
    /// sandbox reaches it while it has that one.
    Bar(usize, u8),
    /// Shared registers: all pages, or a range.
    Shared(usize),
    /// The MSI-X table of a function.
    Vectors(usize),
    /// Registers of its nth end of a channel.
    Registers(usize),
    /// The MSI-X table of its nth end of a channel.
    EndVectors(usize),
    /// States of the peers of its nth end of a channel.
    States(usize),
    /// A region of a channel.
    Channel(usize),
    /// A region of a channel, while it has the role at its end there.
    Role(usize),
    /// A part of a link, while it has a channel there.
    Link(usize),
}

/// A range of a sandbox' reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// First guest-physical address.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// Access to it.
    pub access: Access,
    /// Its content.
    pub what: What,
}

impl Plan {
    /// Lists a sandbox' reach.
    #[must_use]
    pub fn reach(&self, index: usize) -> Vec<Reach> {
        let (sandbox, facts) = (&self.sandboxes[index], self.machine.arch.facts());
        let mut all = Vec::new();
        let mut add = |at, len, access, what| all.push(Reach { at, len, access, what });
        let access = match sandbox.guest {
            Guest::Bare { enforce_segments: true, .. } => Access::Segments,
            _ => Access::All,
        };
        for ram in &sandbox.ram {
            add(ram.gpa, ram.len, access, What::Ram(ram.hpa));
        }
        add(facts.guest.info, facts.page, Access::Read, What::Info);
        if sandbox.watch.is_some_and(|watch| watch.alive.is_some()) {
            add(facts.guest.progress, facts.page, Access::Write, What::Progress);
        }
        if self.roles_of(index).next().is_some() {
            add(facts.guest.roles, facts.page, Access::Read, What::Roles);
        }
        if sandbox.snapshot > 0 {
            let len = sandbox.store(facts);
            add(facts.guest.snapshots, len, Access::Read, What::Snapshots);
        }
        for &other in &sandbox.observe {
            let at = facts.guest.reports + other as u64 * facts.guest.report_stride;
            let len = facts.paged(report::size(self.sandboxes[other].cores.len()));
            add(at, len, Access::Read, What::Report(other));
        }
        for (n, one) in sandbox.functions.iter().enumerate() {
            for bar in one.function.bars.iter().filter(|bar| bar.kind != BarKind::Io) {
                for piece in one.function.mapped(bar, facts.page) {
                    add(piece.start, piece.len, Access::Write, What::Bar(n, bar.number));
                }
            }
            if let Some(trapped) = one.function.trapped(facts.page) {
                add(trapped.start, trapped.len, Access::Trap, What::Vectors(n));
            }
        }
        for (n, shared) in self.mmio.iter().enumerate() {
            for part in shared.of(index) {
                let access = match (part.range, part.write) {
                    (Some(_), _) => Access::Trap,
                    (None, true) => Access::Write,
                    (None, false) => Access::Read,
                };
                let Span { start, len } = part.range.unwrap_or(shared.span);
                add(start, len, access, What::Shared(n));
            }
        }
        for (n, end) in self.ends(index).iter().enumerate() {
            add(end.registers, PAGE, Access::Read, What::Registers(n));
            if end.woken.is_some() {
                add(end.registers + PAGE, PAGE, Access::Trap, What::EndVectors(n));
            }
            add(end.memory.start, PAGE, Access::Read, What::States(n));
        }
        for (n, channel) in self.channels.iter().enumerate() {
            let what = match channel.stands(index) {
                Some(_) => What::Role(n),
                None => What::Channel(n),
            };
            if channel.writes(index) {
                add(channel.gpa, channel.len, Access::Write, what);
            } else if channel.reads(index) {
                add(channel.gpa, channel.len, Access::Read, what);
            }
        }
        for (n, link) in self.links.iter().enumerate().filter(|(_, link)| link.concerns(index)) {
            let mine = |first: bool| match first == (link.owner == index) {
                true => Access::Write,
                false => Access::Read,
            };
            add(link.gpa, link.sent, mine(true), What::Link(n));
            add(link.gpa + link.sent, link.len - link.sent, mine(false), What::Link(n));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MmioPart, Sandbox, SharedMmio};

    #[test]
    fn shared_pages_are_mapped_and_ranges_are_not() {
        let span = Span { start: 0xFED1_D000, len: 0x1000 };
        let part =
            |sandbox, write, range| MmioPart { sandbox, write, range, ..MmioPart::default() };
        let shared = |span, parts| SharedMmio { span, parts, ..SharedMmio::default() };
        let behind = Span { start: span.end(), ..span };
        let range = |offset| Some(Span { start: behind.start + offset, len: 8 });
        let plan = Plan {
            sandboxes: vec![Sandbox::default(), Sandbox::default(), Sandbox::default()],
            mmio: vec![
                shared(span, vec![part(0, true, None), part(1, false, None)]),
                shared(behind, vec![part(0, true, range(0)), part(0, false, range(16))]),
            ],
            ..Plan::default()
        };
        let of = |index: usize| {
            let all = plan.reach(index).into_iter();
            let own = all.filter(|reach| matches!(reach.what, What::Shared(_)));
            own.map(|reach| (reach.at, reach.len, reach.access)).collect::<Vec<_>>()
        };
        let mediated = |offset| (behind.start + offset, 8, Access::Trap);
        let page = |access| (span.start, span.len, access);
        assert_eq!(of(0), [page(Access::Write), mediated(0), mediated(16)]);
        assert_eq!(of(1), [page(Access::Read)]);
        assert_eq!(of(2), []);
    }
}
