//! A sandbox that may load programs into another one, and leaves false ones: the other one runs the image's.

use super::attack::{CANARY_HPA, VICTIM, intact, judge};
use super::driver::{Bench, Job};
use super::system::{Manifest, run};
use rogue::{Attack, Set};

pub fn jobs() -> Vec<Job> {
    let job = |attack: &'static Attack| {
        Job::one(format!("load/{}", attack.name), 60, move |bench| harmless(bench, attack))
    };
    Set::Loads.ending().map(job).collect()
}

/// A victim, and a rogue that has a channel of kind `program` to it and may restart it.
pub fn system(args: &str) -> Manifest {
    let args = format!("victim={CANARY_HPA:#x} sandbox=0 {args}");
    let control = "stop = [\"victim\"]\nstart = [\"victim\"]\nrestart = [\"victim\"]";
    let mut manifest = Manifest::new()
        .ends_with(&["rogue"])
        .bare("victim", "victim", "", &[0], VICTIM, "")
        .bare("rogue", "rogue", &args, &[1], "4 MiB", control);
    manifest.0 = manifest.0.replace("artifact:victim\"", "artifact:victim\", access = \"rwx\"");
    manifest.0 += "[[channel]]\nname = \"lessons\"\nfrom = \"rogue\"\nto = [\"victim\"]\nsize = \"64 KiB\"\nkind = \"program\"\n";
    manifest
}

fn harmless(bench: &Bench, attack: &Attack) -> Result<String, String> {
    let args = format!("attack={} once pause=100 linger=100", attack.name);
    let seen = run(&system(&args), &bench.dir, |_| {})?;
    let made = judge(&seen, 0, attack)?;
    let victim = seen.sandbox("victim")?;
    let runs = victim.state == "running" && victim.restarts == 1 && victim.denials == 0;
    seen.ensure(runs, format!("the victim was not restarted, or does not run: {victim:?}"))?;
    seen.ensure(intact(&seen), "it is not the image's program that runs")?;
    Ok(format!("{made}; the image's program runs"))
}
