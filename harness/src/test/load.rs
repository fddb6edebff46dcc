//! A sandbox that may load programs into another one, and leaves false ones: the other one runs the image's.

use super::attack::{CANARY_HPA, VICTIM, intact, judge};
use super::driver::{Bench, Job};
use super::explained;
use super::system::{Manifest, Seen, run};
use rogue::{Attack, Set};

/// Each false program, in a run of its own; then what their records say.
pub fn jobs() -> Vec<Job> {
    const EXPLAINED: &str = "load/explained";
    let name = |attack: &Attack| format!("load/{}", attack.name);
    let tests = Set::Loads.ending().map(name).chain([EXPLAINED.into()]);
    vec![Job::new("load", tests, 120, move |bench| {
        let mut all = Ok(Vec::new());
        for attack in Set::Loads.ending() {
            let run = attempt(bench, attack);
            match (&run, &mut all) {
                (Ok(seen), Ok(all)) => all.push((attack.name, explained::said(seen, 0, attack))),
                (Err(why), _) => all = Err(why.clone()),
                _ => {}
            }
            bench.result(&name(attack), run.and_then(|seen| harmless(&seen, attack)));
        }
        bench.result(EXPLAINED, all.and_then(|all| explained::compare("load", &all)));
    })]
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

fn attempt(bench: &Bench, attack: &Attack) -> Result<Seen, String> {
    let args = format!("attack={} once pause=100 linger=100", attack.name);
    run(&system(&args), &bench.dir, |_| {})
}

fn harmless(seen: &Seen, attack: &Attack) -> Result<String, String> {
    let made = judge(seen, 0, attack)?;
    let victim = seen.sandbox("victim")?;
    let runs = victim.state == "running" && victim.restarts == 1 && victim.denials == 0;
    seen.ensure(runs, format!("the victim was not restarted, or does not run: {victim:?}"))?;
    seen.ensure(intact(seen), "it is not the image's program that runs")?;
    Ok(format!("{made}; the image's program runs"))
}
