//! Programs in plain C with newlib, on the kernel: `programs/apps`. Those with a library of others print the lines that
//! they print on the host. `threads` looks at threads, which are our own, and judges itself.

use super::driver::{Bench, Job};
use super::kernel::ended_well;
use super::system::{Manifest, Seen, run};
use crate::build;
use std::process::Command;

/// Programs with a library of others.
const LIBRARIES: [&str; 3] = ["lua", "sqlite", "zlib"];

pub fn jobs() -> Vec<Job> {
    let libraries = LIBRARIES.into_iter().map(|name| {
        Job::one(format!("libc/{name}"), 120, move |bench| {
            let (seen, host) = (started(bench, name)?, on_host(name)?);
            seen.ensure(said(&seen) == host, format!("the host says:\n{host}"))?;
            Ok(format!("{} lines, as on the host", host.lines().count()))
        })
    });
    let threads = Job::one("libc/threads", 120, |bench| {
        let seen = started(bench, "threads")?;
        let right = said(&seen).lines().filter(|line| line.ends_with(": right")).count();
        let told = seen.console.contains("its 3 threads with entry `pthread` are all in use");
        seen.ensure(right == THREADS && told, format!("{right} of {THREADS} right"))?;
        Ok(format!("{right} right"))
    });
    libraries.chain([threads]).collect()
}

/// Lines of `threads` about something that is right.
const THREADS: usize = 10;

fn started(bench: &Bench, name: &str) -> Result<Seen, String> {
    let path = build::root().join(format!("tests/libc/{name}.toml"));
    let system = std::fs::read_to_string(&path);
    let system = system.map_err(|e| format!("{}: {e}", path.display()))?;
    let seen = run(&Manifest(system), &bench.dir, |options| {
        options.time = bulkhead_qemu::Time::one_core();
    })?;
    ended_well(&seen)?;
    Ok(seen)
}

/// Lines of the program itself.
fn said(seen: &Seen) -> String {
    let own = seen.console.lines().filter_map(|line| line.strip_prefix("[rt] "));
    own.filter(|line| !line.starts_with("is now ")).map(|line| format!("{line}\n")).collect()
}

fn on_host(name: &str) -> Result<String, String> {
    let program = build::root().join(format!("target/artifacts/host-{name}"));
    let output = Command::new(&program).env_clear().output();
    let output = output.map_err(|e| format!("{}: {e}", program.display()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{} ended with {}", program.display(), output.status)),
    }
}
