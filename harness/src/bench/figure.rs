//! A figure and what it must reach.

use crate::rows::{Row, Rows};

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Must {
    /// The value, at most.
    AtMost(f64),
    /// The value, at least.
    AtLeast(f64),
    /// The ratio, from and to: a value below is as suspect as one above.
    Ratio(f64, f64),
    /// The ratio, at most: nothing is known that it has to be above.
    Times(f64),
    /// The value exceeds its baseline by at most this.
    Above(f64),
    /// The value, at most; and the ratio is exactly 1.
    AtMostAndAlike(f64),
    /// The lower quartile of many rounds, at most; and what it is: of figures that the host's load is in.
    Often(f64, f64),
    /// Nothing: it is reported only.
    Reported,
}

/// A row with its bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Measured row.
    pub row: Row,
    /// The bound that it must reach.
    pub must: Must,
    /// Details for the reader, if any.
    pub note: String,
}

impl Figure {
    /// A figure without a bound.
    #[must_use]
    pub fn new(row: Row) -> Self {
        let (must, note) = (Must::Reported, String::new());
        Self { row, must, note }
    }

    /// With a bound.
    #[must_use]
    pub fn must(mut self, must: Must) -> Self {
        self.must = must;
        self
    }

    /// With details.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Tells if the bound is reached.
    #[must_use]
    pub fn reached(&self) -> bool {
        match self.must {
            Must::AtMost(most) => self.row.value <= most,
            Must::AtLeast(least) => self.row.value >= least,
            Must::AtMostAndAlike(most) => self.row.value <= most && self.row.ratio == Some(1.0),
            Must::Ratio(from, to) => {
                self.row.ratio.is_some_and(|ratio| (from..=to).contains(&ratio))
            }
            Must::Times(most) => self.row.ratio.is_some_and(|ratio| ratio <= most),
            Must::Above(more) => {
                self.row.baseline.is_some_and(|baseline| self.row.value <= baseline + more)
            }
            Must::Often(most, seen) => seen <= most,
            Must::Reported => true,
        }
    }

    /// The bound in words, if there is one.
    #[must_use]
    pub fn bound(&self) -> Option<String> {
        match self.must {
            Must::AtMost(most) => Some(format!("at most {most}")),
            Must::AtLeast(least) => Some(format!("at least {least}")),
            Must::AtMostAndAlike(most) => Some(format!("at most {most}, ratio 1")),
            Must::Ratio(from, to) => Some(format!("ratio {from} to {to}")),
            Must::Times(most) => Some(format!("ratio at most {most}")),
            Must::Above(more) => Some(format!("at most {more} above the baseline")),
            Must::Often(most, _) => {
                Some(format!("at most {most:.3} in the best quarter of the rounds"))
            }
            Must::Reported => None,
        }
    }

    /// The row for the file, its bound included.
    #[must_use]
    pub fn to_row(&self) -> Row {
        let mut row = self.row.clone();
        row.bound = self.bound();
        row.reached = row.bound.is_some().then(|| self.reached());
        row
    }

    /// The bound and whether it is reached, in words.
    #[must_use]
    pub fn verdict(&self) -> String {
        let Some(must) = self.bound() else {
            return "reported".into();
        };
        let reached = if self.reached() { "reached" } else { "NOT reached" };
        format!("{must}: {reached}")
    }
}

/// Figures as a table.
#[must_use]
pub fn table(figures: &[Figure]) -> String {
    let rows = figures.iter().map(|figure| figure.row.clone()).collect();
    let rows = Rows { rows }.table();
    let mut verdicts =
        figures.iter().map(|figure| format!("{}  {}", figure.verdict(), figure.note));
    let mut line = |row: &str| format!("{row:<110} {}\n", verdicts.next().unwrap_or_default());
    let mut rows = rows.lines();
    let heading = rows.next().map(|heading| format!("{heading:<110} must\n"));
    heading.into_iter().chain(rows.map(&mut line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_checked_from_both_sides() {
        let figure = |value: f64| {
            Figure::new(Row::new("a", "ns", value).against(100.0)).must(Must::Ratio(0.99, 1.01))
        };
        assert!(figure(100.5).reached());
        assert!(!figure(102.0).reached());
        assert!(!figure(98.0).reached());
        assert!(figure(98.0).verdict().ends_with("NOT reached"));
        assert_eq!(figure(98.0).to_row().reached, Some(false));
    }

    #[test]
    fn a_bound_and_a_ratio_are_both_checked() {
        let figure = |value: f64, baseline: f64| {
            Figure::new(Row::new("a", "ns", value).against(baseline))
                .must(Must::AtMostAndAlike(9.0))
        };
        assert!(figure(9.0, 9.0).reached());
        assert!(!figure(10.0, 10.0).reached());
        assert!(!figure(8.0, 9.0).reached());
        let least = |value| Figure::new(Row::new("a", "ns", value)).must(Must::AtLeast(1.0));
        assert!(least(1.0).reached() && !least(0.0).reached());
    }

    #[test]
    fn a_ratio_may_have_one_side() {
        let figure = |value: f64| {
            Figure::new(Row::new("a", "ns", value).against(100.0)).must(Must::Times(1.4))
        };
        assert!(figure(140.0).reached() && figure(50.0).reached() && !figure(141.0).reached());
    }

    #[test]
    fn without_a_baseline_a_ratio_is_not_reached() {
        assert!(!Figure::new(Row::new("a", "ns", 1.0)).must(Must::Ratio(0.0, 9.0)).reached());
        assert!(!Figure::new(Row::new("a", "ns", 1.0)).must(Must::Above(9.0)).reached());
        assert!(!Figure::new(Row::new("a", "ns", 1.0)).must(Must::Times(9.0)).reached());
        assert!(Figure::new(Row::new("a", "ns", 1.0)).reached());
    }
}
