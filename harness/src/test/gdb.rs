//! gdb in a live sandbox, while others run on.

use super::driver::{Bench, Job};
use super::system::{Manifest, NEWER, Seen, artifacts, run};
use bulkhead_explain::Exits;
use bulkhead_qemu::Time;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::process::{Command, Output};
use std::rc::Rc;
use std::time::Duration;

use crate::build;
use crate::program::Program as _;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("gdb/bare", 120, bare),
        Job::one("gdb/linux", 200, linux),
        Job::one("gdb/refused", 30, refused),
    ]
}

/// Runs `bulkhead gdb` for a sandbox in the folder of a machine, with these commands of gdb's.
fn debug(folder: &Path, sandbox: &str, commands: &[&str]) -> Result<Output, String> {
    let mut command = Command::new(build::target().join("release/bulkhead"));
    command.args(["gdb", "system.toml", sandbox, "--attach", ".", "--", "-nx", "-batch"]);
    commands.iter().for_each(|line| {
        command.args(["-ex", line]);
    });
    command.current_dir(folder).env("BULKHEAD_ARTIFACTS", artifacts()).printed()
}

/// Runs a system in virtual time, and a debugger in it as soon as `ready` is on its console.
fn debugged(
    manifest: &Manifest,
    dir: &Path,
    time: Time,
    ready: Option<&str>,
    work: impl Fn(&Path) -> Result<String, String> + 'static,
) -> Result<(Seen, String), String> {
    let said = Rc::new(RefCell::new(None));
    let (tells, folder, first) = (Rc::clone(&said), dir.to_owned(), Cell::new(true));
    let ready = ready.map(str::to_owned);
    let seen = run(manifest, dir, |options| {
        options.limit = Duration::from_secs(150);
        options.time = time;
        options.stop = Some(Box::new(move || {
            let serial = std::fs::read_to_string(folder.join("serial1.log")).unwrap_or_default();
            if first.get() && ready.as_ref().is_none_or(|ready| serial.contains(ready)) {
                first.set(false);
                *tells.borrow_mut() = Some(work(&folder));
            }
            false
        }));
    })?;
    let said = said.borrow_mut().take();
    match said {
        Some(said) => said.map(|said| (seen, said)),
        None => Err(seen.wrong("no debugger was there in time")),
    }
}

/// Text that a gdb printed, if it ended well and said all of this.
fn expect(out: &Output, all: &[&str]) -> Result<String, String> {
    let said =
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    match all.iter().find(|one| !said.contains(**one)) {
        _ if !out.status.success() => Err(format!("gdb ended with {}:\n{said}", out.status)),
        Some(one) => Err(format!("gdb did not say `{one}`:\n{said}")),
        None => Ok(said),
    }
}

/// Exits of a sandbox.
fn exits(seen: &Seen, name: &str) -> Result<Exits, String> {
    Ok(seen.sandbox(name)?.exits.clone())
}

/// A breakpoint in each round of a guest, steps, a changed register and a changed word. The other one misses nothing.
fn bare(bench: &Bench) -> Result<String, String> {
    let beside = |debug: &str| {
        Manifest::new().bare("beside", "duty", "rounds=500 late=50", &[0], "8 MiB", "").bare(
            "wanted",
            "duty",
            "rounds=500",
            &[1],
            "8 MiB",
            debug,
        )
    };
    // Cores take turns of microseconds, so one that is late is late by itself.
    let alone = run(&beside(""), &bench.dir.join("alone"), |o| o.time = Time::precise())?;
    let work = |folder: &Path| {
        // STI, HLT and CLI of a sleep, and out of it; then a word and a register are changed and read again.
        let out = debug(
            folder,
            "wanted",
            &[
                "break sdk/src/arch/x86.rs:57",
                "continue",
                "continue",
                "stepi",
                "stepi",
                "stepi",
                "x/3i $rip - 3",
                "bt 3",
                "delete",
                "set language c",
                "set $r15 = 0x1234",
                "set {long}($rsp - 256) = 0x5678",
                "p/x $r15 + *(long*)($rsp - 256)",
                "p/x $mxcsr",
                "monitor registers",
                "detach",
            ],
        )?;
        expect(
            &out,
            &[
                "Breakpoint 1,",
                "sdk/src/arch/x86.rs:57",
                "sti",
                "hlt",
                "cli",
                "sleep_until",
                "$1 = 0x68ac",
                "$2 = 0x1f80",
                "efer",
                "detached",
            ],
        )
    };
    let (seen, _) = debugged(&beside("debug = true"), &bench.dir, Time::precise(), None, work)?;
    seen.undisturbed("beside", &["exited"])?;
    seen.exited("beside")?;
    seen.exited("wanted")?;
    let (before, after) = (exits(&alone, "beside")?, exits(&seen, "beside")?);
    if (&before.boot, &before.steady) != (&after.boot, &after.steady) {
        return Err(seen.wrong(format!("beside: exits alone {before:?}, now {after:?}")));
    }
    Ok("two breakpoints, three steps; the one beside was never late, and had as many exits".into())
}

/// A Linux is stopped in its kernel, and goes on.
fn linux(bench: &Bench) -> Result<String, String> {
    let mut manifest = Manifest::new().linux("ground", NEWER, "sleep:3", &[0], "256 MiB", 1).bare(
        "beside",
        "duty",
        "rounds=4000",
        &[1],
        "8 MiB",
        "",
    );
    manifest.0 = manifest.0.replacen("cores = [0]\n", "cores = [0]\ndebug = true\n", 1);
    let work = |folder: &Path| {
        let out = debug(
            folder,
            "ground",
            &[
                "info registers rip cs",
                "set $first = $rip",
                // It sleeps, and comes back there at its next tick.
                "break *$first",
                "continue",
                "print $rip == $first",
                "delete",
                "detach",
            ],
        )?;
        expect(&out, &["rip", "0xffffffff", "Breakpoint 1", "$1 = 1", "detached"])
    };
    let (seen, _) =
        debugged(&manifest, &bench.dir, Time::virtual_time(), Some("user space"), work)?;
    seen.exited("beside")?;
    // It goes on to its end.
    seen.undisturbed("ground", &["stopped"])?;
    Ok("it stops in its kernel, there once more by a breakpoint, and goes on".into())
}

/// No debugger is let in without the manifest's word.
fn refused(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().bare("closed", "duty", "rounds=300", &[0], "8 MiB", "");
    let work = |folder: &Path| {
        let out = debug(folder, "closed", &["detach"])?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let right = out.status.code() == Some(1) && said.contains("`debug = true`");
        if right { Ok(said) } else { Err(format!("{}: {said}", out.status)) }
    };
    debugged(&manifest, &bench.dir, Time::virtual_time(), None, work)?;
    Ok("`debug = true` would let it in".into())
}
