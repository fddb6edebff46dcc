//! Figures: `target/bench/results.json` and a table.

use crate::Failure;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less.
    Lower,
    /// More.
    Higher,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name, e.g. `linux.getpid`.
    pub name: String,
    /// Unit of value and baseline.
    pub unit: String,
    /// Measured value.
    pub value: f64,
    /// Value without Bulkhead, where there is such a thing.
    pub baseline: Option<f64>,
    /// Value by baseline.
    pub ratio: Option<f64>,
    /// Which way is better.
    pub better: Better,
    /// Value under another hypervisor in this emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<f64>,
    /// That by the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_ratio: Option<f64>,
    /// The bound that must be reached, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// Tells if the bound is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
}

impl Row {
    /// Returns a figure that stands alone; lower is better.
    #[must_use]
    pub fn new(name: &str, unit: &str, value: f64) -> Self {
        let (name, unit) = (name.to_owned(), unit.to_owned());
        Self {
            name,
            unit,
            value,
            baseline: None,
            ratio: None,
            better: Better::Lower,
            peer: None,
            peer_ratio: None,
            bound: None,
            reached: None,
        }
    }

    /// With a baseline.
    #[must_use]
    pub fn against(mut self, baseline: f64) -> Self {
        self.baseline = Some(baseline);
        self.ratio = (baseline != 0.0).then_some(self.value / baseline);
        self
    }

    /// With a peer's value.
    #[must_use]
    pub fn beside(mut self, peer: f64) -> Self {
        self.peer = Some(peer);
        let baseline = self.baseline.filter(|baseline| *baseline != 0.0);
        self.peer_ratio = baseline.map(|baseline| peer / baseline);
        self
    }

    /// Higher is better.
    #[must_use]
    pub fn higher(mut self) -> Self {
        self.better = Better::Higher;
        self
    }
}

/// All figures of a run of `make bench`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// In the order in which they came.
    pub rows: Vec<Row>,
}

impl Rows {
    /// Reads a file; a missing one has no rows.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| format!("{}: {error}", path.display()).into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", path.display()).into()),
        }
    }

    /// Adds rows; one with the name of a row that is there replaces it.
    pub fn merge(&mut self, new: &[Row]) {
        for row in new {
            match self.rows.iter_mut().find(|old| old.name == row.name) {
                Some(old) => *old = row.clone(),
                None => self.rows.push(row.clone()),
            }
        }
    }

    /// Merges rows into a file.
    pub fn add_to(path: &Path, new: &[Row]) -> Result<(), Failure> {
        let mut all = Self::read(path)?;
        all.merge(new);
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(path, serde_json::to_string_pretty(&all)? + "\n")?;
        Ok(())
    }

    /// Returns the rows as a table.
    #[must_use]
    pub fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(6);
        let mut out = format!(
            "{:width$} {:>14} {:>14} {:>8} {:>14} {:>8} {:<14} better\n",
            "figure", "value", "baseline", "ratio", "peer", "ratio", "unit"
        );
        for row in &self.rows {
            let optional = |value: Option<f64>| value.map_or_else(|| "-".into(), plain);
            let ratio = |value: Option<f64>| {
                value.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}"))
            };
            let better = match row.better {
                Better::Lower => "lower",
                Better::Higher => "higher",
            };
            out += &format!(
                "{:width$} {:>14} {:>14} {:>8} {:>14} {:>8} {:<14} {better}\n",
                row.name,
                plain(row.value),
                optional(row.baseline),
                ratio(row.ratio),
                optional(row.peer),
                ratio(row.peer_ratio),
                row.unit
            );
        }
        out
    }
}

/// Whole numbers without a fraction.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_same_name_is_replaced() {
        let mut rows = Rows::default();
        rows.merge(&[Row::new("a", "ns", 1.0), Row::new("b", "ns", 2.0)]);
        rows.merge(&[Row::new("a", "ns", 3.0).against(2.0)]);
        assert_eq!(rows.rows.len(), 2);
        assert_eq!(rows.rows[0].ratio, Some(1.5));
    }

    #[test]
    fn a_peer_is_compared_with_the_baseline() {
        let row = Row::new("a", "ns", 4.0).against(2.0).beside(6.0);
        assert_eq!((row.ratio, row.peer_ratio), (Some(2.0), Some(3.0)));
        let text = serde_json::to_string(&row).expect("plain data");
        let back: Row = serde_json::from_str(&text).expect("the same");
        assert_eq!(back, row);
        assert_eq!(Row::new("a", "ns", 4.0).beside(6.0).peer_ratio, None);
    }

    #[test]
    fn the_file_has_the_agreed_form() {
        let mut rows = Rows::default();
        rows.merge(&[Row::new("a", "ns", 4.0).against(2.0).higher()]);
        let text = serde_json::to_string(&rows).expect("plain data");
        assert_eq!(
            text,
            r#"{"rows":[{"name":"a","unit":"ns","value":4.0,"baseline":2.0,"ratio":2.0,"better":"higher"}]}"#
        );
        assert!(rows.table().contains("2.0000"));
    }
}
