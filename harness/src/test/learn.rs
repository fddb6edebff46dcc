//! Learn mode: a guest touches what it has not been given, and the lines that
//! would grant it come out.

use super::driver::Job;
use super::system::{Manifest, artifacts, run};
use crate::build;
use crate::program::Program as _;
use std::path::Path;
use std::process::Command;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("learn/lines", 90, |bench| lines(&bench.dir)),
        Job::one("learn/memory", 60, |bench| memory(&bench.dir)),
        Job::one("learn/release", 60, |bench| release(&bench.dir)),
    ]
}

/// Grants that the pupil is to be told.
const LINES: [&str; 2] = ["devices = [\"pci:00:08.0\", \"rtc\", \"uart1\"]", "stop = [\"other\"]"];

fn system(args: &str, more: &str) -> Manifest {
    // A denial that would end a sandbox does not end one that learns.
    let stop = "[[health]]\nsandbox = \"pupil\"\non = \"port-violation\"\naction = \"stop\"\n";
    let mut manifest = Manifest::new().bare("pupil", "pupil", args, &[0], "4 MiB", more).bare(
        "other",
        "hello",
        "",
        &[1],
        "4 MiB",
        "",
    );
    manifest.0 += stop;
    manifest
}

/// All that can be answered is, with all ones, and the lines are right.
fn lines(dir: &Path) -> Result<String, String> {
    let seen = run(&system("control", "learn = true\n"), dir, |_| ())?;
    seen.exited("pupil")?;
    let outcome = seen.outcome()?;
    let told = outcome.consoles[0].contains("answered: [false, false, false, false]");
    seen.ensure(told, "something answered that it does not have")?;
    let (plan, lessons) = (&outcome.baked.plan, &outcome.lessons[0]);
    let learned = lessons.lines(&plan.sandboxes[0], plan);
    if learned != LINES {
        return Err(format!("it learned {learned:?}, not {LINES:?}"));
    }
    let broken = bulkhead_run::judge(outcome, true)
        .into_iter()
        .find(|promise| !promise.held && promise.name.contains("pupil"));
    seen.ensure(broken.is_none(), format!("{broken:?}"))?;
    let text = lessons.text(&plan.sandboxes[0], plan);
    let reset = "port 0x92 (nothing in a manifest allows it: it resets the machine)";
    seen.ensure(text.contains(reset), format!("the reset port is not in\n{text}"))?;
    seen.ensure(outcome.lessons[1].is_empty(), "who does not learn has lessons")?;
    // The lines are what a manifest takes.
    let granted = Manifest::new()
        .bare("pupil", "pupil", "", &[0], "4 MiB", &(learned.join("\n") + "\n"))
        .bare("other", "hello", "", &[1], "4 MiB", "");
    granted.load(&dir.join("granted"))?;
    // Without it the first port ends this guest.
    let strict = run(&system("", ""), &dir.join("strict"), |_| ())?;
    let state = strict.sandbox("pupil")?.state;
    strict.ensure(state == "stopped", format!("without learning it is {state}"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Memory cannot be answered as absent: it ends the guest, and is told.
fn memory(dir: &Path) -> Result<String, String> {
    let seen = run(&system("memory", "learn = true\n"), dir, |_| ())?;
    let outcome = seen.outcome()?;
    let state = outcome.report.sandboxes[0].state;
    seen.ensure(state == "stopped", format!("it is {state}"))?;
    let plan = &outcome.baked.plan;
    let learned = outcome.lessons[0].lines(&plan.sandboxes[0], plan);
    let text = outcome.lessons[0].text(&plan.sandboxes[0], plan);
    let touched = text.contains("guest-physical 0xfea00000");
    seen.ensure(touched && learned[0] == LINES[0], format!("it learned\n{text}"))?;
    Ok("stopped at the register".into())
}

/// `check` warns, `build` builds, `build --release` refuses.
fn release(dir: &Path) -> Result<String, String> {
    let manifest = system("", "learn = true\n");
    manifest.load(dir)?;
    let file = dir.join("system.toml").display().to_string();
    let image = dir.join("image").display().to_string();
    let command = |arguments: &[&str]| {
        let out = Command::new(build::target().join("release/bulkhead"))
            .args(arguments)
            .arg("--artifacts")
            .arg(artifacts())
            .printed()?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        Ok::<_, String>((out.status.success(), said))
    };
    let place = format!("{file}:5: `pupil`");
    let (right, said) = command(&["check", &file])?;
    if !right || !said.contains(&format!("{place} learns")) {
        return Err(format!("check does not warn: {said}"));
    }
    let (right, said) = command(&["build", &file, "-o", &image])?;
    if !right {
        return Err(format!("build refuses it: {said}"));
    }
    let (right, said) = command(&["build", "--release", &file, "-o", &image])?;
    let refusal = format!("{place}: no release has a sandbox that learns");
    if right || !said.contains(&refusal) {
        return Err(format!("build --release does not refuse it: {said}"));
    }
    Ok(refusal)
}
