//! Machines that a system was not built for: the boot stops within its time limit, and a message says what is missing.

use super::driver::Job;
use super::system::{Manifest, run};
use crate::program::Program as _;
use bulkhead_run::Options;
use std::process::Command;
use std::time::Duration;

type Change = fn(&mut Options);

/// Name, change, number of the error, part of the message.
const WRONG: [(&str, Change, u64, &str); 8] = [
    ("too-little-memory", |o| o.memory = Some(64 << 20), 6, "more memory"),
    ("no-memory-above-4-gib", |o| o.memory = Some(2 << 30), 6, "more memory"),
    ("too-few-cores", |o| o.cores = Some(2), 7, "more cores"),
    ("no-svm", |o| o.cpu = Some("EPYC,-svm,+x2apic".into()), 18, "SVM"),
    ("no-x2apic", |o| o.cpu = Some("EPYC,+svm,+npt,-x2apic".into()), 18, "x2APIC"),
    ("no-nested-paging", |o| o.cpu = Some("EPYC,+svm,-npt,+x2apic".into()), 18, "nested paging"),
    ("no-gib-pages", |o| o.cpu = Some("EPYC,+svm,+npt,+x2apic,-pdpe1gb".into()), 18, "1 GiB pages"),
    ("no-source-validation", without_acs, 24, "source validation"),
];

/// The port above the network card lets any requester ID pass.
fn without_acs(options: &mut Options) {
    options.qemu = vec!["-global".into(), "pcie-root-port.disable-acs=on".into()];
}

fn system() -> Manifest {
    let high = "{ size = \"4 MiB\", at = \"0x140000000\" }";
    Manifest::new().bare("one", "hello", "", &[0], "128 MiB", "").bare(
        "two",
        "hello",
        "",
        &[2],
        high,
        "",
    )
}

pub fn jobs() -> Vec<Job> {
    let tests = WRONG.iter().map(|w| format!("machine/{}", w.0));
    let machines = Job::new("machine", tests, 150, |bench| {
        for (name, change, code, part) in WRONG {
            let seen = run(&system(), &bench.dir.join(name), |o| {
                o.limit = Duration::from_secs(20);
                change(o);
            });
            let result = seen.and_then(|seen| match &seen.outcome {
                Ok(_) => Err(seen.wrong("it booted")),
                Err(error) => stopped(error, code, part),
            });
            bench.result(&format!("machine/{name}"), result);
        }
    });
    // No-execute pages are tried first of all by the entry code.
    let no_nx = Job::one("machine/no-nx", 60, |bench| {
        let seen = run(&system(), &bench.dir, |o| {
            o.limit = Duration::from_secs(20);
            o.cpu = Some("EPYC,+svm,+npt,+x2apic,-nx".into());
        })?;
        match &seen.outcome {
            Ok(_) => Err(seen.wrong("it booted")),
            Err(error) => stopped(error, 18, "no-execute"),
        }
    });
    vec![machines, no_nx, command()]
}

/// The message of a boot that stopped as it should.
pub fn stopped(error: &str, code: u64, part: &str) -> Result<String, String> {
    let line = error.lines().next().unwrap_or_default();
    if error.contains(&format!("error {code}:")) && error.contains(part) {
        Ok(line.into())
    } else {
        Err(format!("expected error {code} with \"{part}\", got: {error}"))
    }
}

/// The command says it, too, and exits with 1.
fn command() -> Job {
    Job::one("machine/command", 60, |bench| {
        system().load(&bench.dir)?;
        let out = Command::new(crate::build::target().join("release/bulkhead"))
            .args(["run", "--smp", "2", "--limit", "30"])
            .arg(bench.dir.join("system.toml"))
            .env("CI", "true")
            .printed()?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        match (out.status.code(), said.lines().find(|line| line.contains("more cores"))) {
            (Some(1), Some(line)) => Ok(line.into()),
            (code, _) => Err(format!("exit code {code:?}: {said}")),
        }
    })
}
