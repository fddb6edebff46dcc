//! Denied accesses on the screen. A guest makes as many as it likes. Each is shown once, and repetitions are counted;
//! after [`MOST`] different ones of a sandbox the rest is counted, too.

use bulkhead_explain::Explained;
use std::collections::BTreeMap;

/// Different denials of a sandbox that are shown.
const MOST: usize = 1000;

/// Records shown, by sandbox.
#[derive(Default)]
pub struct Denied(BTreeMap<String, Shown>);

#[derive(Default)]
struct Shown {
    /// Each with how often it came.
    all: Vec<Explained>,
    /// Besides.
    more: u64,
}

impl Denied {
    /// Takes one; its line, if it is to be shown now.
    pub fn tell(&mut self, denial: Explained) -> Option<String> {
        let shown = self.0.entry(denial.sandbox.clone()).or_default();
        if let Some(known) = shown.all.iter_mut().find(|known| known.repeats(&denial)) {
            known.times += denial.times;
            return None;
        }
        if shown.all.len() == MOST {
            shown.more += denial.times;
            return None;
        }
        let line = format!("[denied] {denial}\n");
        shown.all.push(denial);
        Some(line)
    }

    /// Repeats, and records that were not shown.
    pub fn rest(&self) -> String {
        let mut text = String::new();
        for (name, Shown { all, more }) in &self.0 {
            for Explained { core, rip, access, times, .. } in all.iter().filter(|d| d.times > 1) {
                text += &format!("[denied] {name} core {core} at {rip}: {access} (×{times})\n");
            }
            if *more > 0 {
                text += &format!("[denied] {name}: {more} more, beside {MOST} different ones\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_layout::report::Denial;

    fn denial(access: &str) -> Explained {
        let text = || String::from("x");
        Explained {
            sandbox: "rogue".into(),
            core: 0,
            incarnation: 0,
            rip: "0x10".into(),
            kind: "port-violation",
            condition: "port-read",
            access: access.into(),
            owner: text(),
            guarantee: "ports",
            rule: text(),
            allow: text(),
            at_us: None,
            times: 1,
            record: Denial::default(),
        }
    }

    #[test]
    fn repeats_fold() {
        let mut denied = Denied::default();
        let lines = (0..427).filter_map(|_| denied.tell(denial("one"))).count();
        assert_eq!(lines, 1);
        assert!(denied.tell(denial("two")).is_some_and(|line| !line.contains('×')));
        assert_eq!(denied.rest(), "[denied] rogue core 0 at 0x10: one (×427)\n");
    }

    #[test]
    fn a_flood_of_different_ones_is_bounded() {
        let mut denied = Denied::default();
        let lines = (0..5000).filter_map(|n| denied.tell(denial(&n.to_string()))).count();
        assert_eq!(lines, MOST);
        assert_eq!(denied.rest(), "[denied] rogue: 4000 more, beside 1000 different ones\n");
    }
}
