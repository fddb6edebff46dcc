//! Roles: memory that a guest reaches while it has one (docs/standby.md).

use crate::check::Context;
use crate::claim::{Channel, Claim, Range};
use crate::paging::{Leaf, Regime, entry_at};
use std::collections::BTreeSet;

/// In a mailbox, the words of roles; phases of one.
const ROLE_WORDS: u64 = 0x990;
const HELD: u64 = 1;

/// Tables of a guest's that map registers of functions of its roles, by what each maps: apart from all else.
pub fn windows(claim: &Claim, i: usize) -> BTreeSet<u64> {
    let page = claim.arch.places().page;
    let held = claim.functions.iter().filter(|f| f.role.is_some() && claim.has(i, f));
    held.flat_map(|f| f.registers(page)).map(|own| own.start / (page * (page / 8))).collect()
}

impl Context<'_> {
    /// Channels of a role, as one of its holders sees them.
    fn memory_of(&self, i: usize, role: usize) -> impl Iterator<Item = &Channel> {
        let of =
            move |c: &&Channel| self.claim.stands(c, i).is_some_and(|(number, _)| number == role);
        self.claim.channels.iter().filter(of)
    }

    /// Tables of the guest's with entries of roles, which its monitor fills.
    pub(crate) fn role_tables(&self, i: usize, root: u64) -> Vec<u64> {
        let page = self.page();
        let first = |role| self.memory_of(i, role).map(|c| c.gpa).min();
        let memory = (0..self.claim.roles.len()).filter_map(first);
        let windows = windows(self.claim, i).into_iter().map(|window| window * page * (page / 8));
        let all = memory.chain(windows);
        all.map(|at| entry_at(self.words, self.claim.arch.nested(), root, at) / page * page)
            .collect()
    }

    /// Checks that tables with registers of roles' functions have nothing else: a monitor fills them.
    fn alone(&mut self, i: usize, regime: &Regime) {
        let (page, claim) = (self.page(), self.claim);
        let windows = windows(claim, i);
        let held = claim.functions.iter().filter(|f| f.role.is_some() && claim.has(i, f));
        let own: Vec<Range> = held.flat_map(|f| f.registers(page)).collect();
        let inside = |leaf: &&Leaf| windows.contains(&(leaf.address / (page * (page / 8))));
        let other = |leaf: &&Leaf| !own.iter().any(|range| range.contains(leaf.address));
        if let Some(leaf) = regime.leaves.iter().filter(inside).find(other) {
            let message = format!(
                "{} reaches {:#x} by a table with registers of a role's function",
                self.name(i),
                leaf.address
            );
            let place = claim.sandboxes[i].place.clone();
            self.find(
                "role-given",
                &place,
                Some(leaf.frame),
                message,
                "a table that has no others",
            );
        }
    }

    /// Checks that a guest has of each role what its monitor's word in its mailbox says, and that one holder has it.
    pub(crate) fn roles(&mut self, i: usize, regime: &Regime) {
        let mailbox = self.parts[i].mailboxes.get(i).copied();
        let claim = self.claim;
        self.alone(i, regime);
        for (n, holders) in claim.roles.iter().enumerate().filter(|(_, all)| all.contains(&i)) {
            let word = |of: usize| {
                let at = self.parts[of].mailboxes.get(of)?;
                self.words.word(at + ROLE_WORDS + n as u64 * 8)
            };
            let held = |of: &usize| word(*of).is_some_and(|word| word & 3 == HELD);
            let all: Vec<_> = holders.iter().copied().filter(|of| held(of)).collect();
            if mailbox.is_none() {
                continue;
            }
            let memory = self.memory_of(i, n).map(|c| Range { start: c.gpa, len: c.len });
            let functions = claim.functions.iter().filter(|f| f.role == Some(n));
            let registers = functions.flat_map(|f| f.registers(self.page()));
            let mut ranges: Vec<_> = memory.chain(registers).collect();
            ranges.sort_by_key(|range| range.start);
            // Small BARs can share a page.
            ranges.dedup();
            let wanted: u64 = match held(&i) {
                true => ranges.iter().map(|range| range.len).sum(),
                false => 0,
            };
            let inside = |at: u64| ranges.iter().any(|range| range.contains(at));
            let leaves = regime.leaves.iter().filter(|leaf| inside(leaf.address));
            let has: u64 = leaves.map(|leaf| leaf.size).sum();
            let place = claim.sandboxes[i].place.clone();
            if has != wanted {
                let message = format!("{} has {has:#x} bytes of role {n}", self.name(i));
                let right = format!("{wanted:#x}, as its monitor's word says");
                self.find("role-given", &place, None, message, right);
            }
            if let [first, second, ..] = all[..] {
                let message = format!(
                    "{} and {} have role {n} by their monitors' words",
                    self.name(first),
                    self.name(second)
                );
                self.find("role-given", &place, None, message, "one of them");
            }
        }
    }
}
