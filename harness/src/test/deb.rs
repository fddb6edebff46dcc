//! The Debian package: built, looked at by lintian, and used from the folder that it is unpacked in.

use super::driver::{Bench, Job, Verdict, tail};
use crate::build;
use crate::program::Program as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn jobs() -> Vec<Job> {
    let tests = ["deb/package", "deb/lintian"].map(str::to_owned);
    vec![Job::new("deb", tests, 240, all)]
}

fn all(bench: &Bench) {
    if !there("dpkg-deb") || !there("dpkg-shlibdeps") {
        let why = "this machine has no dpkg-deb, or no dpkg-shlibdeps (apt install dpkg-dev)";
        for test in ["deb/package", "deb/lintian"] {
            bench.verdict(test, Verdict::Skipped(why.to_owned()));
        }
        return;
    }
    let package = made(&bench.dir);
    let used = package.as_ref().map_err(Clone::clone).and_then(|file| used(file));
    bench.result("deb/package", used);
    match package {
        Err(why) => bench.verdict("deb/lintian", Verdict::Failed(why)),
        Ok(_) if !there("lintian") => {
            let why = "this machine has no lintian (apt install lintian)";
            bench.verdict("deb/lintian", Verdict::Skipped(why.to_owned()));
        }
        Ok(file) => bench.result("deb/lintian", clean(&file)),
    }
}

fn there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// All that a command printed, if it did not end well.
fn well(command: &mut Command) -> Result<Output, String> {
    let done = command.printed()?;
    let both = [&done.stdout[..], &done.stderr[..]].concat();
    match done.status.success() {
        true => Ok(done),
        false => Err(format!("{}\n{}", done.status, tail(&String::from_utf8_lossy(&both)))),
    }
}

/// Makes the package, hardly compressed. A clone without git has no author to name, so the test is its maintainer.
fn made(dir: &Path) -> Result<PathBuf, String> {
    let file = dir.join("bulkhead.deb");
    let mut script = Command::new(build::root().join("tools/deb.sh"));
    script.arg("--fast").arg(&file);
    script.env("DEBFULLNAME", "A test").env("DEBEMAIL", "test@bulkhead.dev");
    well(&mut script).map(|_| file)
}

/// Unpacks it outside of the tree. There the command tells its version, and makes a project that is right.
fn used(package: &Path) -> Result<String, String> {
    let root = std::env::temp_dir().join(format!("bulkhead-deb-{}", std::process::id()));
    let judged = unpacked(package, &root);
    let _ = std::fs::remove_dir_all(&root);
    judged
}

fn unpacked(package: &Path, root: &Path) -> Result<String, String> {
    well(Command::new("dpkg-deb").arg("-x").arg(package).arg(root))?;
    let bulkhead = root.join("usr/bin/bulkhead");
    let run = |arguments: &[&str], folder: &Path| {
        let mut command = Command::new(&bulkhead);
        command.args(arguments).current_dir(folder).env_remove("BULKHEAD_ARTIFACTS");
        well(&mut command).map(|done| String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let version = run(&["--version"], root)?;
    run(&["new", "rover", "--template", "kernel-c"], root)?;
    // Guests in C need no toolchain but the machine's: the image is made by what the package has.
    let rover = root.join("rover");
    let image = run(&["build", "system.toml", "-o", "system.image"], &rover)?;
    if !rover.join("system.image").is_file() {
        return Err(format!("no image was made: {image}"));
    }
    let fields = well(Command::new("dpkg-deb").args(["-f"]).arg(package).arg("Depends"))?;
    let depends = String::from_utf8_lossy(&fields.stdout).into_owned();
    if !depends.contains("qemu-system-x86 (>= 1:") || !depends.contains("libc6 (>= ") {
        return Err(format!("it depends on {depends}"));
    }
    let sources = root.join("usr/src").read_dir().map_err(|e| format!("usr/src: {e}"))?;
    let modules = sources.flatten().filter(|one| one.path().join("dkms.conf").is_file()).count();
    match modules {
        2 => Ok(format!("{}, a project's image, {modules} modules for DKMS", version.trim())),
        other => Err(format!("{other} modules in usr/src have a dkms.conf")),
    }
}

/// lintian finds nothing: no error and no warning, beside those that tools/deb/lintian argues about.
fn clean(package: &Path) -> Result<String, String> {
    // Root is warned of by lintian itself.
    let mut lintian = Command::new("lintian");
    let done =
        lintian.args(["--fail-on", "error,warning", "--allow-root"]).arg(package).printed()?;
    let said = String::from_utf8_lossy(&done.stdout);
    match done.status.success() && said.trim().is_empty() {
        true => Ok("no error, no warning".to_owned()),
        false => Err(tail(&said)),
    }
}
