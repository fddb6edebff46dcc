//! Figures with a bound that take a few seconds: `make bench` has them all.

use super::driver::{Job, Verdict};
use crate::bench::{Figure, Found, Part, SHORT};

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
        rows.iter().for_each(|row| bench.verdict(&test(row), judge(&found, row)));
    })
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
