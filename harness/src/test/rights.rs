//! Rights, abused: what a holder that uses one without a pause can do to somebody else.

use super::driver::Job;
use super::system::{Manifest, Seen, run};

const SMALL: &str = "4 MiB";

pub fn jobs() -> Vec<Job> {
    vec![Job::one("abuse/start", 60, |bench| start(&run(&starting(), &bench.dir, |_| {})?))]
}

/// A flight controller, and one who asks for its start 20,000 times while it runs.
fn starting() -> Manifest {
    Manifest::new()
        .ends_with(&["warden"])
        .bare("flight", "flight", "substeps=9", &[0], "16 MiB", "")
        .bare(
            "warden",
            "warden",
            "target=0 do=wait,sleep,flood,sleep",
            &[1],
            SMALL,
            "start = [\"flight\"]",
        )
}

fn start(seen: &Seen) -> Result<String, String> {
    seen.exited("warden")?;
    seen.undisturbed("flight", &["running"])?;
    let exits = &seen.sandbox("flight")?.exits;
    let of =
        |phase: &std::collections::BTreeMap<&str, u64>| phase.get("doorbell").copied().unwrap_or(0);
    let doorbells = of(&exits.boot) + of(&exits.steady);
    let said = seen.console.lines().find(|line| line.contains("requests in")).unwrap_or_default();
    seen.ensure(doorbells == 0, format!("{doorbells} doorbell exits of flight; {said}"))?;
    Ok(said.to_owned())
}
