//! Figures with a bound that take a few seconds: `make bench` has them all. Each is what docs/numbers.md says.

use super::driver::{Job, Verdict};
use crate::Failure;
use crate::bench::{Figure, Found, Part, SHORT};
use crate::numbers;

pub fn jobs() -> Vec<Job> {
    SHORT.into_iter().map(job).collect()
}

fn test(row: &str) -> String {
    format!("bench/{row}")
}

fn job(part: Part) -> Job {
    let rows = part.rows;
    let name = test(&rows.join("+"));
    Job::new(name, rows.iter().copied().map(test), 200, move |bench| {
        let found = part.measure();
        rows.iter().for_each(|row| bench.verdict(&test(row), beside_the_page(&found, row)));
    })
}

/// As much may a figure differ from the page: a part of it, or one.
const AGREE: f64 = 0.02;

/// Tells if the page's figure is near enough. The host's time and its firmware are no figures of this tree.
fn agrees(figure: &Figure, said: f64) -> bool {
    let row = &figure.row;
    let hosts = row.unit == "s" || row.name.starts_with("boot.");
    hosts || (row.value - said).abs() <= (AGREE * said).max(1.0)
}

/// A verdict, and that the page is up to date.
fn beside_the_page(found: &Found, row: &str) -> Verdict {
    let figure = found.iter().flatten().find(|figure| figure.row.name == row);
    let page = || Ok((numbers::said(row)?, numbers::bound(row)?));
    match (judge(found, row), figure.map(|figure| (figure, page()))) {
        (Verdict::Passed(_), Some((_, Err::<_, Failure>(why)))) => Verdict::Failed(why.to_string()),
        (Verdict::Passed(_), Some((figure, Ok((said, bound))))) => {
            match outdated(figure, said, &bound) {
                None => Verdict::Passed(self::said(figure)),
                Some(why) => Verdict::Failed(format!(
                    "{why}: `bulkhead-harness bench --only {row}`, then `numbers --write`"
                )),
            }
        }
        (verdict, _) => verdict,
    }
}

/// Says where the page is not up to date.
fn outdated(figure: &Figure, said: f64, bound: &str) -> Option<String> {
    let must = figure.bound().unwrap_or_default();
    if !agrees(figure, said) {
        return Some(format!("{}, and docs/numbers.md says {said}", figure.row.value));
    }
    (must != bound).then(|| format!("{must}, and docs/numbers.md says {bound}"))
}

fn judge(found: &Found, row: &str) -> Verdict {
    let figures = match found {
        Ok(figures) => figures,
        Err(why) => return Verdict::Failed(why.to_string()),
    };
    match figures.iter().find(|figure| figure.row.name == row) {
        None => Verdict::Failed("it was not measured".into()),
        Some(figure) if figure.bound().is_none() => Verdict::Failed("it has no bound".into()),
        Some(figure) if figure.reached() => Verdict::Passed(said(figure)),
        Some(figure) => Verdict::Failed(said(figure)),
    }
}

fn said(figure: &Figure) -> String {
    let (row, verdict) = (&figure.row, figure.verdict());
    format!("{} {}, {verdict}; {}", row.value, row.unit, figure.note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Must;
    use crate::rows::Row;

    #[test]
    fn a_page_that_is_old_is_found() {
        let figure = |value| Figure::new(Row::new("a", "instructions", value));
        assert!(agrees(&figure(158.0), 158.0) && agrees(&figure(158.0), 157.0));
        assert!(!agrees(&figure(158.0), 148.0) && !agrees(&figure(2.0), 0.0));
        assert!(agrees(&Figure::new(Row::new("a", "s", 9.0)), 1.0));
        let bounded = figure(158.0).must(Must::AtMost(160.0));
        assert_eq!(outdated(&bounded, 158.0, "at most 160"), None);
        assert!(outdated(&bounded, 158.0, "at most 170").is_some());
        assert!(outdated(&bounded, 148.0, "at most 160").is_some());
    }

    #[test]
    fn a_missed_bound_fails_and_so_does_none() {
        let figure = |value| Figure::new(Row::new("a", "ns", value)).must(Must::AtMost(2.0));
        let judged = |found: Found| matches!(judge(&found, "a"), Verdict::Passed(_));
        assert!(judged(Ok(vec![figure(2.0)])));
        assert!(!judged(Ok(vec![figure(3.0)])));
        assert!(!judged(Ok(vec![figure(1.0).must(Must::Reported)])));
        assert!(!judged(Ok(Vec::new())));
        assert!(!judged(Err("broken".into())));
    }
}
