//! Faults: how many have harmed another sandbox, and how many there are in a minute.

use super::Found;
use super::figure::{Figure, Must};
use crate::build;
use crate::rows::Row;
use bulkhead_inject::{Campaign, Golden, Shard, Store, System};
use bulkhead_manifest::{Options, load};
use std::time::Instant;

/// Faults of the figures.
const FAULTS: u64 = 300;

/// The first faults of `make campaign`.
pub fn rows() -> Found {
    let artifacts = build::target().join("artifacts");
    let options = Options { artifacts: Some(artifacts.clone()), ..Options::default() };
    let checked = load(&build::root().join("tests/inject/pair.toml"), &options)
        .map_err(|findings| bulkhead_manifest::render::human(&findings, false))?;
    let system = System::new(&checked, &artifacts, build::plugin()?, None)?;
    let dir = build::target().join("bench/inject");
    std::fs::create_dir_all(&dir)?;
    let file = dir.join("faults.db");
    // Rows that are there already would not be struck again.
    let _ = std::fs::remove_file(&file);
    let begun = Instant::now();
    let golden = Golden::new(&system, &dir)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let campaign = Campaign {
        system: &system,
        golden: &golden,
        seed: 1,
        kinds: Vec::new(),
        faults: FAULTS,
        shard: Shard::WHOLE,
        jobs,
    };
    let store = Store::open(&file, &campaign.facts())?;
    campaign.run(&store, &dir, |_| {})?;
    let took = begun.elapsed();
    let rows = store.rows()?;
    let harm = |apart| rows.iter().filter(|r| r.class == "harm" && r.apart == apart).count();
    let note = format!(
        "of {FAULTS} faults, those in a monitor apart, which were {}; by the emulator's time",
        harm(true)
    );
    let rate = rows.len() as f64 * 60.0 / took.as_secs_f64();
    Ok(vec![
        Figure::new(Row::new("inject.harm", "faults", harm(false) as f64))
            .must(Must::AtMost(0.0))
            .note(note),
        Figure::new(Row::new("inject.rate", "faults/min", rate.round()).higher())
            .must(Must::Reported)
            .note(format!("{jobs} runs side by side, in the host's time")),
    ])
}
