//! Channels of a Linux that ran first. Their functions come with an image, and go with it.

use super::super::driver::{Bench, Job};
use super::{Kind, Linux, complaints, load_from, run};
use bulkhead_manifest::Checked;
use std::time::Duration;

/// The image.
pub const IMAGE: &str = "channels.img";

pub fn jobs() -> Vec<Job> {
    vec![Job::one("under/channels", 200, channels)]
}

/// Loads the system.
pub fn system(_: &Bench) -> Result<Checked, String> {
    load_from(&crate::build::root().join("tests/under/channels.toml"))
}

fn channels(bench: &Bench) -> Result<String, String> {
    let text = run(
        bench,
        &Linux {
            kernel: "6.12",
            cores: 4,
            script: include_str!("channels.sh"),
            arguments: String::new(),
            machine: Kind::Confined,
            disks: &[""; 4],
            limit: Duration::from_secs(180),
        },
    )?;
    complaints(&text)?;
    let all = |what: &str| text.lines().filter(|line| line.contains(what)).collect::<Vec<_>>();
    let (woken, answered) = (all("armings"), all("20 packets received"));
    let shown = std::fs::read_to_string(crate::build::root().join("docs/under-linux.md"));
    let shown = shown.map_err(|e| e.to_string())?;
    let listed = all(" 0000:00:10.");
    let listed = listed.iter().filter(|line| shown.contains(&format!("\n{}\n", line.trim())));
    if woken.len() != 2 || answered.len() != 2 || listed.count() != 4 {
        return Err(text);
    }
    Ok(format!("2 images; {}", woken[0].trim()))
}
