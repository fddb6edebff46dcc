//! `/proc/iomem`, `/proc/ioports` and the firmware's memory map.

use crate::tree::Tree;
use bulkhead_plan::Span;

/// A line: what has which addresses or ports, and how deep it is nested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Addresses or ports.
    pub span: Span,
    /// As Linux calls it.
    pub name: String,
    /// 0 for the outermost.
    pub depth: usize,
}

fn span(start: &str, last: &str) -> Option<Span> {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (start, last) = (number(start)?, number(last)?);
    Some(Span { start, len: last.checked_sub(start)?.checked_add(1)? })
}

/// Reads lines such as `  0070-0077 : rtc0`.
#[must_use]
pub fn read(text: &str) -> Vec<Resource> {
    let line = |line: &str| {
        let (range, name) = line.split_once(" : ")?;
        let (start, last) = range.trim_start().split_once('-')?;
        let depth = (range.len() - range.trim_start().len()) / 2;
        Some(Resource { span: span(start, last)?, name: name.trim().to_owned(), depth })
    };
    text.lines().filter_map(line).collect()
}

/// Without the right to see addresses, Linux shows zeros.
#[must_use]
pub fn hidden(resources: &[Resource]) -> bool {
    resources.iter().all(|resource| resource.span.start == 0)
}

/// Returns the firmware's memory map: RAM that is free, and all the rest that it lists.
#[must_use]
pub fn firmware_map(tree: &Tree) -> Option<(Vec<Span>, Vec<Span>)> {
    let folder = "sys/firmware/memmap";
    let (mut free, mut rest) = (Vec::new(), Vec::new());
    for name in tree.names(folder) {
        let part = |key: &str| tree.text(&format!("{folder}/{name}/{key}"));
        let found = span(&part("start")?, &part("end")?)?;
        if part("type")? == "System RAM" { &mut free } else { &mut rest }.push(found);
    }
    for list in [&mut free, &mut rest] {
        list.sort_by_key(|span| span.start);
    }
    (!free.is_empty()).then_some((free, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_read() {
        let all = read("0000-0cf7 : PCI Bus 0000:00\n  0070-0077 : rtc0\nnothing\n  9-8 : x\n");
        let names: Vec<_> = all.iter().map(|r| (r.name.as_str(), r.depth, r.span.len)).collect();
        assert_eq!(names, [("PCI Bus 0000:00", 0, 0xCF8), ("rtc0", 1, 8)]);
        assert!(!hidden(&all));
        assert!(hidden(&read("00000000-00000000 : System RAM\n")));
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String, line in "[0-9a-f]{0,17}-[0-9a-f]{0,17} : .*") {
            let _ = (read(&text), read(&line));
        }
    }
}
