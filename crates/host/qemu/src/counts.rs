//! The plugin's counts (plugin/src/lib.rs describes the file).

use crate::Error;
use serde_json::Value;
use std::path::Path;

/// The plugin's file.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    lines: Vec<Value>,
}

/// A distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Samples.
    pub n: u64,
    /// Smallest.
    pub min: u64,
    /// First percentile.
    pub p1: u64,
    /// Median.
    pub median: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
    /// Sum.
    pub sum: u64,
    /// Spans: how many of the instructions lay in named ranges.
    pub privileged: u64,
    /// Spans: entries into guests in all of them.
    pub vmruns: u64,
    /// Spans: begins or ends without the other one.
    pub unmatched: u64,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Core.
    pub vcpu: u64,
    /// Instructions that the core had executed.
    pub instructions: u64,
    /// Entries into guests that it had made.
    pub vmruns: u64,
    /// RAX.
    pub value: u64,
    /// The words of RAM that were asked for ([`crate::Plugin::words`]).
    pub words: Vec<u64>,
    /// Instructions of each core so far, by index: at this instant, whichever core the event is of.
    pub cores: Vec<u64>,
    /// Those in spans of [`IO_SPIN`](bulkhead_layout::marker::id::IO_SPIN): they looked for work and found none.
    pub spun: Vec<u64>,
}

impl Counts {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
        Self::parse(&text).map_err(|why| Error::Counts(path.to_owned(), why))
    }

    /// From the file's text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        let lines = lines.map_err(|error| error.to_string())?;
        if lines.last().is_none_or(|line| line["kind"] != "end") {
            return Err("the plugin did not finish it".into());
        }
        Ok(Self { lines })
    }

    /// Spans (`BEGIN`, `END`) of this id.
    #[must_use]
    pub fn span(&self, id: u16) -> Option<Distribution> {
        self.distribution("span", Some(id))
    }

    /// Laps of this id.
    #[must_use]
    pub fn lap(&self, id: u16) -> Option<Distribution> {
        self.distribution("lap", Some(id))
    }

    /// Values of this id.
    #[must_use]
    pub fn value(&self, id: u16) -> Option<Distribution> {
        self.distribution("value", Some(id))
    }

    /// Instructions in named ranges from one VMRUN to the next.
    #[must_use]
    pub fn exits(&self) -> Option<Distribution> {
        self.distribution("exits", None)
    }

    /// Returns the events of this id, oldest first.
    #[must_use]
    pub fn events(&self, id: u16) -> Vec<Event> {
        let events = self.of("event").filter(|line| line["id"] == id);
        events
            .map(|line| Event {
                vcpu: number(line, "vcpu"),
                instructions: number(line, "instructions"),
                vmruns: number(line, "vmruns"),
                value: number(line, "value"),
                words: words(&line["words"]),
                cores: words(&line["cores"]),
                spun: words(&line["spun"]),
            })
            .collect()
    }

    /// Instructions of a core: all, or those in a named range.
    #[must_use]
    pub fn instructions(&self, vcpu: u64, range: Option<&str>) -> u64 {
        let core = self.of("vcpu").find(|line| line["vcpu"] == vcpu);
        core.map_or(0, |line| match range {
            Some(name) => number(&line["ranges"], name),
            None => number(line, "instructions"),
        })
    }

    /// Returns the cores that ran. One of 1000 or more could not be told which it is.
    #[must_use]
    pub fn vcpus(&self) -> Vec<u64> {
        self.of("vcpu").map(|line| number(line, "vcpu")).collect()
    }

    /// Tells if the other run's counts are exactly equal.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        self.lines == other.lines
    }

    fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter(move |line| line["kind"] == kind)
    }

    fn distribution(&self, kind: &str, id: Option<u16>) -> Option<Distribution> {
        let line = self.of(kind).find(|line| id.is_none_or(|id| line["id"] == id))?;
        Some(Distribution {
            n: number(line, "n"),
            min: number(line, "min"),
            p1: number(line, "p1"),
            median: number(line, "median"),
            p99: number(line, "p99"),
            max: number(line, "max"),
            sum: number(line, "sum"),
            privileged: number(line, "privileged"),
            vmruns: number(line, "vmruns"),
            unmatched: number(line, "unmatched"),
        })
    }
}

/// Returns an array of numbers.
fn words(list: &Value) -> Vec<u64> {
    let list = list.as_array().into_iter().flatten();
    list.map(|word| word.as_u64().unwrap_or(0)).collect()
}

/// Returns a member, 0 if it is missing or beyond 64 bits.
fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"kind":"vcpu","vcpu":1,"instructions":9,"vmruns":0,"ranges":{"monitor":4}}
{"kind":"event","id":2,"name":"user","vcpu":1,"instructions":7,"vmruns":3,"ranges":{},"value":5,"words":[8,9],"cores":[0,7],"spun":[0,2]}
{"kind":"span","id":16,"name":"x","n":2,"min":1,"p1":1,"median":1,"p99":3,"max":3,"sum":4,"privileged":1,"vmruns":2,"unmatched":0}
{"kind":"end","dropped":0}
"#;

    #[test]
    fn the_plugins_lines_are_understood() {
        let counts = Counts::parse(FILE).expect("valid");
        assert_eq!(counts.instructions(1, Some("monitor")), 4);
        assert_eq!(counts.events(2)[0].value, 5);
        assert_eq!(counts.events(2)[0].words, [8, 9]);
        assert_eq!(counts.events(2)[0].cores, [0, 7]);
        assert_eq!(counts.events(2)[0].spun, [0, 2]);
        assert_eq!(counts.span(16).expect("there").max, 3);
        assert_eq!(counts.span(17), None);
    }

    #[test]
    fn a_file_cut_short_is_refused() {
        assert!(Counts::parse(&FILE[..FILE.len() - 30]).is_err());
        assert!(Counts::parse("").is_err());
    }
}
