//! Owner of every frame of the machine.

use crate::check::Context;
use crate::claim::{Place, Range};
use crate::report::Frames;

/// Words for what the image holds and nobody reaches.
const UNUSED: &str = "boot code and what only it used (free)";

impl Context<'_> {
    /// Names a frame's owner, in words.
    #[must_use]
    pub fn owner(&self, address: u64) -> String {
        let frame = address / self.page() * self.page();
        if let Some(i) = self.claim.in_ram_of(frame) {
            return format!("RAM of {}", self.name(i));
        }
        if let Some(c) = self.claim.in_channel(frame) {
            return format!("channel {}", c.name);
        }
        if let Some(link) = self.claim.in_link(frame) {
            return format!("link of {}", self.name(link.owner));
        }
        if let Some(what) = self.image.get(&frame) {
            return what.clone();
        }
        if self.claim.image.contains(frame) {
            return UNUSED.into();
        }
        if self.claim.arch.places().start_code == Some(frame) {
            return "start-up code of all monitors".into();
        }
        if let Some(f) =
            self.claim.functions.iter().find(|f| f.bars.iter().any(|b| b.contains(address)))
        {
            let owner = match f.role {
                Some(role) => format!("role {role}"),
                None => f.owner.map_or("nobody", |i| self.name(i)).to_owned(),
            };
            return format!("registers of {}, {owner}'s", f.name);
        }
        if let Some((what, _)) = self.claim.reserved.iter().find(|(_, r)| r.contains(frame)) {
            return what.clone();
        }
        if self.claim.free.iter().any(|r| r.contains(frame)) {
            return "free".into();
        }
        "nobody's".into()
    }

    /// All of RAM and everything described, in runs with one owner. RAM that the
    /// machine's description does not mention is a finding.
    pub(crate) fn account(&mut self) -> Vec<Frames> {
        let (claim, page) = (self.claim, self.page());
        let start_code = claim.arch.places().start_code;
        let ranges = |s: &crate::claim::Sandbox| -> Vec<Range> {
            s.ram.iter().map(|r| Range { start: r.hpa, len: r.len }).collect()
        };
        let mut edges: Vec<u64> = Vec::new();
        let all = claim.ram.iter().chain(&claim.free).copied();
        let all = all
            .chain(claim.reserved.iter().map(|r| r.1))
            .chain(claim.sandboxes.iter().flat_map(ranges))
            .chain(claim.channels.iter().map(|c| Range { start: c.hpa, len: c.len }))
            .chain(claim.links.iter().map(|s| Range { start: s.hpa, len: s.len }))
            .chain(claim.functions.iter().flat_map(|f| f.bars.iter().copied()))
            .chain([claim.image])
            .chain(self.image.keys().chain(&start_code).map(|&start| Range { start, len: page }));
        all.for_each(|r| edges.extend([r.start / page * page, r.end().next_multiple_of(page)]));
        edges.sort_unstable();
        edges.dedup();
        let mut out: Vec<Frames> = Vec::new();
        for pair in edges.windows(2) {
            let (start, len) = (pair[0], pair[1] - pair[0]);
            let owner = self.owner(start);
            let is_ram = claim.ram.iter().any(|r| r.contains(start));
            if owner == "nobody's" && !is_ram {
                continue;
            }
            match out.last_mut() {
                Some(last) if last.start + last.len == start && last.owner == owner => {
                    last.len += len
                }
                _ => out.push(Frames { start, len, owner }),
            }
        }
        let lost: Vec<_> = out.iter().filter(|f| f.owner == "nobody's").cloned().collect();
        for f in lost {
            let message = format!("RAM from {:#x} to {:#x} has no owner", f.start, f.start + f.len);
            let right = "a [[ram]] or [[reserved]] of the machine's description";
            self.find("frames", &Place::default(), Some(f.start), message, right);
        }
        out
    }
}
