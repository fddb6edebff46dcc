//! The results of markers: events and statistics. Knows nothing of QEMU.

use crate::stats::Stats;
use bulkhead_layout::marker::{self, ID_MASK, KIND_MASK};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Named ranges, plus one class for everything else.
pub const CLASSES: usize = 8;
/// Events kept; later ones are counted as dropped.
const EVENTS: usize = 1 << 16;

/// A core's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Instructions by class; class 0 lies in no named range.
    pub class: [u64; CLASSES],
    /// VMRUN instructions, which is entries into guests.
    pub vmruns: u64,
}

impl Counters {
    /// All instructions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.class.iter().sum()
    }

    /// Instructions in named ranges.
    #[must_use]
    pub fn privileged(&self) -> u64 {
        self.class[1..].iter().sum()
    }
}

/// One `EVENT`.
#[derive(Clone, Debug)]
struct Event {
    id: u16,
    vcpu: u32,
    at: Counters,
    value: u64,
    words: Vec<u64>,
    cores: Vec<u64>,
    spun: Vec<u64>,
}

/// Facts of the machine that an event carries.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Words of RAM that were asked for.
    pub words: Vec<u64>,
    /// Instructions of each core so far, by index.
    pub cores: Vec<u64>,
}

/// One id's spans.
#[derive(Debug, Default)]
struct Spans {
    total: Stats,
    privileged: u64,
    vmruns: u64,
    unmatched: u64,
}

/// Everything gathered.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Names of the classes from 1 on.
    ranges: Vec<String>,
    events: Vec<Event>,
    dropped: u64,
    open: BTreeMap<(u16, u32), Counters>,
    spans: BTreeMap<u16, Spans>,
    /// Instructions of each core in spans of [`marker::id::IO_SPIN`] that are over.
    spun: BTreeMap<u32, u64>,
    laps: BTreeMap<u16, Stats>,
    lap_start: BTreeMap<(u16, u32), u64>,
    values: BTreeMap<u16, Stats>,
    last_entry: BTreeMap<u32, u64>,
    exits: Stats,
}

impl Gathered {
    /// Nothing yet; the names of the classes from 1 on.
    #[must_use]
    pub fn new(ranges: Vec<String>) -> Self {
        Self { ranges, ..Self::default() }
    }

    /// A marker was executed; `at` counts it already. An event carries `facts`. True if the file is to be written.
    pub fn mark(
        &mut self,
        code: u16,
        vcpu: u32,
        at: Counters,
        value: u64,
        facts: impl FnOnce() -> Facts,
    ) -> bool {
        let id = code & ID_MASK;
        match code & KIND_MASK {
            marker::EVENT => self.event(id, vcpu, at, value, facts()),
            marker::BEGIN => self.begin(id, vcpu, at),
            marker::END => self.end(id, vcpu, at),
            marker::VALUE => self.values.entry(id).or_default().add(value),
            marker::LAP => self.lap(id, vcpu, at.total()),
            _ if code == marker::RESET => self.reset(),
            _ => return code == marker::DUMP,
        }
        false
    }

    /// A VMRUN was executed; `at` counts it already.
    pub fn entry(&mut self, vcpu: u32, at: Counters) {
        match self.last_entry.insert(vcpu, at.privileged()) {
            Some(last) => self.exits.add(at.privileged() - last),
            None => self.event(marker::id::LAUNCH, vcpu, at, 0, Facts::default()),
        }
    }

    /// Keeps an event.
    fn event(&mut self, id: u16, vcpu: u32, at: Counters, value: u64, facts: Facts) {
        let Facts { words, cores } = facts;
        if self.events.len() < EVENTS {
            let spun = self.spun(&cores);
            self.events.push(Event { id, vcpu, at, value, words, cores, spun });
        } else {
            self.dropped += 1;
        }
    }

    /// Instructions of each core that looked for work and found none, so far: also in spans that are not over.
    fn spun(&self, cores: &[u64]) -> Vec<u64> {
        let one = |(vcpu, total): (usize, &u64)| {
            let vcpu = vcpu as u32;
            let open = self.open.get(&(marker::id::IO_SPIN, vcpu));
            let now = open.map_or(0, |begin| total.saturating_sub(begin.total()));
            self.spun.get(&vcpu).copied().unwrap_or(0) + now
        };
        cores.iter().enumerate().map(one).collect()
    }

    fn begin(&mut self, id: u16, vcpu: u32, at: Counters) {
        if self.open.insert((id, vcpu), at).is_some() {
            self.spans.entry(id).or_default().unmatched += 1;
        }
    }

    fn end(&mut self, id: u16, vcpu: u32, at: Counters) {
        let spans = self.spans.entry(id).or_default();
        let Some(begin) = self.open.remove(&(id, vcpu)) else {
            spans.unmatched += 1;
            return;
        };
        let inside = at.total() - begin.total() - 1;
        if id == marker::id::IO_SPIN {
            *self.spun.entry(vcpu).or_default() += inside;
        }
        spans.total.add(inside);
        spans.privileged += at.privileged() - begin.privileged();
        spans.vmruns += at.vmruns - begin.vmruns;
    }

    fn lap(&mut self, id: u16, vcpu: u32, total: u64) {
        if let Some(start) = self.lap_start.insert((id, vcpu), total) {
            self.laps.entry(id).or_default().add(total - start);
        }
    }

    fn reset(&mut self) {
        let (ranges, last_entry) =
            (std::mem::take(&mut self.ranges), std::mem::take(&mut self.last_entry));
        *self = Self { ranges, last_entry, ..Self::default() };
    }

    /// The file: one JSON object a line.
    #[must_use]
    pub fn lines(&self, vcpus: &[(u32, Counters)]) -> String {
        let mut out = String::new();
        for (n, at) in vcpus {
            let _ = writeln!(out, "{{\"kind\":\"vcpu\",\"vcpu\":{n},{}}}", self.counters(at));
        }
        for e in &self.events {
            let counters = self.counters(&e.at);
            let (name, vcpu, value) = (label(e.id), e.vcpu, e.value);
            let (words, cores, spun) = (&e.words, &e.cores, &e.spun);
            let _ = writeln!(
                out,
                "{{\"kind\":\"event\",{name},\"vcpu\":{vcpu},{counters},\"value\":{value},\"words\":{words:?},\"cores\":{cores:?},\"spun\":{spun:?}}}"
            );
        }
        for (id, spans) in &self.spans {
            let (name, stats) = (label(*id), spans.total.json());
            let _ = writeln!(
                out,
                "{{\"kind\":\"span\",{name},{stats},\"privileged\":{},\"vmruns\":{},\"unmatched\":{}}}",
                spans.privileged, spans.vmruns, spans.unmatched
            );
        }
        for (kind, map) in [("lap", &self.laps), ("value", &self.values)] {
            for (id, stats) in map {
                let _ = writeln!(out, "{{\"kind\":\"{kind}\",{},{}}}", label(*id), stats.json());
            }
        }
        let _ = writeln!(out, "{{\"kind\":\"exits\",{}}}", self.exits.json());
        let _ = writeln!(out, "{{\"kind\":\"end\",\"dropped\":{}}}", self.dropped);
        out
    }

    fn counters(&self, at: &Counters) -> String {
        let ranges: Vec<String> = self
            .ranges
            .iter()
            .zip(&at.class[1..])
            .map(|(name, count)| format!("\"{name}\":{count}"))
            .collect();
        format!(
            "\"instructions\":{},\"vmruns\":{},\"ranges\":{{{}}}",
            at.total(),
            at.vmruns,
            ranges.join(",")
        )
    }
}

/// `"id":1,"name":"entry"`.
fn label(id: u16) -> String {
    let name = marker::NAMES.iter().find(|(known, _)| *known == id);
    let name = name.map_or_else(|| format!("id{id:#x}"), |(_, name)| (*name).to_owned());
    format!("\"id\":{id},\"name\":\"{name}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_layout::marker::{BEGIN, DUMP, END, LAP, RESET, VALUE};

    fn at(total: u64, privileged: u64) -> Counters {
        let mut counters = Counters::default();
        counters.class[0] = total - privileged;
        counters.class[1] = privileged;
        counters
    }

    #[test]
    fn a_span_counts_what_is_strictly_inside() {
        let mut gathered = Gathered::default();
        gathered.mark(BEGIN | 5, 0, at(100, 10), 0, Facts::default);
        gathered.mark(END | 5, 0, at(104, 12), 0, Facts::default);
        let text = gathered.lines(&[]);
        assert!(text.contains("\"n\":1,\"min\":3,\"p1\":3,\"median\":3"), "{text}");
        assert!(text.contains("\"privileged\":2"), "{text}");
    }

    #[test]
    fn an_end_on_another_core_is_unmatched() {
        let mut gathered = Gathered::default();
        gathered.mark(BEGIN | 5, 0, at(1, 0), 0, Facts::default);
        gathered.mark(END | 5, 1, at(9, 0), 0, Facts::default);
        assert!(gathered.lines(&[]).contains("\"unmatched\":1"));
    }

    #[test]
    fn laps_values_and_reset() {
        let mut gathered = Gathered::default();
        for n in 0..4 {
            gathered.mark(LAP | 1, 0, at(n * 7, 0), 0, Facts::default);
            gathered.mark(VALUE | 2, 0, at(n * 7, 0), n, Facts::default);
        }
        let text = gathered.lines(&[]);
        assert!(text.contains("\"kind\":\"lap\",\"id\":1,\"name\":\"entry\",\"n\":3,\"min\":7"));
        assert!(text.contains("\"n\":4,\"min\":0,\"p1\":0,\"median\":1"), "{text}");
        assert!(gathered.mark(DUMP, 0, at(0, 0), 0, Facts::default));
        gathered.mark(RESET, 0, at(0, 0), 0, Facts::default);
        assert!(!gathered.lines(&[]).contains("lap"));
    }

    #[test]
    fn events_carry_facts() {
        let mut gathered = Gathered::default();
        let facts = || Facts { words: vec![3, 4], cores: vec![1, 9] };
        gathered.mark(marker::EVENT | 5, 0, at(1, 0), 2, facts);
        let text = gathered.lines(&[]);
        assert!(text.contains("\"value\":2,\"words\":[3, 4],\"cores\":[1, 9],\"spun\":[0, 0]}"), "{text}");
    }

    #[test]
    fn an_event_carries_what_was_spun() {
        const SPIN: u16 = marker::id::IO_SPIN;
        let mut gathered = Gathered::default();
        gathered.mark(BEGIN | SPIN, 0, at(100, 0), 0, Facts::default);
        gathered.mark(END | SPIN, 0, at(111, 0), 0, Facts::default);
        gathered.mark(BEGIN | SPIN, 1, at(50, 0), 0, Facts::default);
        let facts = || Facts { words: vec![], cores: vec![200, 57, 9] };
        gathered.mark(marker::EVENT | 5, 0, at(200, 0), 2, facts);
        assert!(gathered.lines(&[]).contains("\"spun\":[10, 7, 0]"));
    }

    #[test]
    fn exits_are_measured_from_entry_to_entry() {
        let mut gathered = Gathered::default();
        gathered.entry(0, at(10, 10));
        gathered.entry(0, at(1000, 52));
        let text = gathered.lines(&[]);
        assert!(text.contains("\"kind\":\"exits\",\"n\":1,\"min\":42"), "{text}");
        assert!(text.contains("\"name\":\"launch\""), "{text}");
    }
}
