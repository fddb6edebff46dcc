//! Errors in the tables by which holders of a role reach its memory and its device, and that device memory.

use super::store::{PRESENT, READ, WRITE};
use super::{ALL, EDU, Hand, MAILBOX_VA, PAGE, Plant};
use bulkhead_audit::memory::Words;
use bulkhead_audit::paging::entry_at;

/// The two holders, as the manifest has them.
const HOLDERS: [usize; 2] = [1, 2];
/// In a mailbox, the word of the first role; the phase in which its sandbox has it.
const ROLE_WORD: u64 = 0x990;
const HELD: u64 = 1;
const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;

impl Hand<'_> {
    /// Where a sandbox's word of the role is.
    fn role_word(&self, sandbox: usize) -> u64 {
        let words = Words::new(&self.memory);
        let own = MAILBOX_VA + sandbox as u64 * PAGE;
        let entry = entry_at(&words, self.claim.arch.own(), self.monitor_root(sandbox), own);
        (self.memory.word(entry) & ADDRESS) + ROLE_WORD
    }

    /// The holder with the role, and the one that stands by.
    fn holders(&self) -> [usize; 2] {
        let [one, two] = HOLDERS;
        if self.memory.word(self.role_word(one)) & 3 == HELD { [one, two] } else { [two, one] }
    }

    /// Guest-physical and machine address of the device's registers.
    fn registers_of(&self) -> u64 {
        let function = &self.baked.plan.sandboxes[HOLDERS[0]].functions[0].function;
        function.bars[0].span.start
    }
}

pub static PLANTS: &[Plant] = &[
    ("role-held-twice", "role-given", |h| {
        let [holder, standby] = h.holders();
        let word = h.memory.word(h.role_word(holder));
        h.memory.change(h.role_word(standby), word, u64::MAX);
    }),
    ("role-memory-for-a-standby", "role-given", |h| {
        let [gpa, hpa] = h.page("done", 0);
        h.nested(h.holders()[1], gpa, hpa | ALL, u64::MAX);
    }),
    ("role-memory-taken-away", "role-given", |h| {
        let [gpa, _] = h.page("done", 0);
        h.nested(h.holders()[0], gpa, 0, u64::MAX);
    }),
    ("role-memory-leads-elsewhere", "nested-map", |h| {
        let [gpa, _] = h.page("done", 0);
        let [holder, standby] = h.holders();
        h.nested(holder, gpa, h.ram(standby) | ALL, u64::MAX);
    }),
    ("role-registers-for-a-standby", "role-given", |h| {
        let at = h.registers_of();
        h.nested(h.holders()[1], at, at | ALL, u64::MAX);
    }),
    ("role-registers-taken-away", "role-given", |h| {
        let at = h.registers_of();
        h.nested(h.holders()[0], at, 0, u64::MAX);
    }),
    ("ram-among-role-registers", "role-given", |h| {
        let holder = h.holders()[0];
        // Its registers are a mebibyte, and the table has room for two.
        let beside = h.registers_of() ^ 1 << 20;
        h.nested(holder, beside, h.ram(holder) | ALL, u64::MAX);
    }),
    ("role-device-reaches-its-holder", "dma-map", |h| {
        let [gpa, _] = h.page("pages", 0);
        let holder = h.holders()[0];
        h.dma(EDU, gpa, h.ram(holder) | PRESENT | READ | WRITE, u64::MAX);
    }),
    ("role-device-reaches-another-channel", "dma-map", |h| {
        let [gpa, _] = h.page("pages", 0);
        let [_, hpa] = h.page("done", 0);
        h.dma(EDU, gpa, hpa | PRESENT | READ | WRITE, u64::MAX);
    }),
    ("role-device-lacks-a-page", "dma-missing", |h| {
        let [gpa, _] = h.page("pages", PAGE as usize);
        h.dma(EDU, gpa, 0, u64::MAX);
    }),
    ("role-devices-messages-pass", "dma-messages", |h| h.device(EDU, 2, 1 << 60, 3 << 60)),
];
