//! Networks over channels: a Linux with a program of the kernel that speaks TCP (`programs/net`), and a switch with a
//! port that gets garbage. Two stations that mean well are `tests/channel/net.toml` ([`super::kernel`]).

use super::driver::{Bench, Job};
use super::system::{Manifest, NEWER, run};
use crate::build;
use std::fmt::Write as _;
use std::time::Duration;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("channel/net-linux", 240, linux),
        Job::one("channel/net-rogue", 120, |bench| rogue(bench, "writer")),
        Job::one("channel/net-thief", 120, |bench| rogue(bench, "thief")),
    ]
}

/// A program of package `program-net` in a sandbox of its own; its channels and whether they wake it.
fn program(
    manifest: &mut Manifest,
    (name, core): (&str, u32),
    (file, args): (&str, &str),
    [to, from]: [&str; 2],
    doorbell: bool,
) {
    // Where nobody wakes it, it sleeps at the notification until a time.
    let (from, signals) = if doorbell {
        (format!("{{ channel = \"{from}\", notification = \"news\" }}"), "[]")
    } else {
        (format!("\"{from}\""), r#"["news"]"#)
    };
    let _ = writeln!(
        manifest.0,
        r#"[[sandbox]]
name = "{name}"
guest = {{ kind = "kernel" }}
cores = [{core}]
memory = "16 MiB"
[[program]]
name = "{name}"
sandbox = "{name}"
file = "artifact:{file}"
args = "{args}"
heap = "128 KiB"
channels = ["{to}", {from}]
waits = ["news"]
signals = {signals}
[[notification]]
name = "news"
sandbox = "{name}"
[[context]]
name = "main"
sandbox = "{name}"
budget = "900 us"
period = "1 ms"
[[thread]]
name = "main"
program = "{name}"
priority = 100
context = "main"
stack = "32 KiB""#
    );
}

fn channel(manifest: &mut Manifest, name: &str, [from, to]: [&str; 2], notify: &str) {
    let _ = writeln!(
        manifest.0,
        "[[channel]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = [\"{to}\"]\nsize = \"16 KiB\"\nkind = \"records\"\nnotify = \"{notify}\""
    );
}

/// Pings, a page and an echo of what was sent, between a Linux's network device and `smoltcp`.
fn linux(bench: &Bench) -> Result<String, String> {
    // Packets sent before both ends have agreed are lost, as with a cable that is plugged in: the first one may be.
    let script = "ping${IFS}-c1${IFS}10.9.0.2;ping${IFS}-c3${IFS}10.9.0.2;wget${IFS}-qO-${IFS}http://10.9.0.2/;\
        (echo${IFS}good$((40+2))news;sleep${IFS}1)|nc${IFS}10.9.0.2${IFS}7";
    let job = format!("bhchannel:net,bh0,there,back,10.9.0.1/24,sh,-c,{script}");
    let mut manifest =
        Manifest::new().ends_with(&["linux"]).linux("linux", NEWER, &job, &[0], "256 MiB", 1);
    // The initramfs that has this kernel's drivers.
    manifest.0 = manifest.0.replace("artifact:test.cpio", "artifact:demo.cpio");
    let args = "to=back from=there address=10.9.0.2";
    program(&mut manifest, ("web", 1), ("net-station", args), ["back", "there"], false);
    channel(&mut manifest, "there", ["linux", "web"], "poll");
    channel(&mut manifest, "back", ["web", "linux"], "poll");
    let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(220))?;
    seen.undisturbed("web", &["running"])?;
    let said = seen.serial(1)?;
    for part in ["3 packets transmitted, 3 packets received", "web: page 1, ", "good42news"] {
        seen.ensure(said.contains(part), format!("Linux did not say `{part}`"))?;
    }
    let page = said.lines().find(|line| line.starts_with("web: page")).unwrap_or_default();
    Ok(page.trim_end().into())
}

/// Adds a third station to the two that mean well. It writes garbage into its channels, or sends in the name of
/// another.
fn rogue(bench: &Bench, kind: &str) -> Result<String, String> {
    let system = build::root().join("tests/channel/net.toml");
    let system = std::fs::read_to_string(&system)
        .map_err(|why| format!("{}: {why}", system.display()))?
        .replace("ports=one,two", "ports=one,two,three")
        .replace(
            r#""one-out", "two-out"]"#,
            r#""one-out", "two-out", "three-out", { channel = "three-in", notification = "news" }]"#,
        );
    let mut manifest = Manifest(system);
    if kind == "writer" {
        let args = "role=rogue channel=three-in ms=100000";
        manifest = manifest.bare("rogue", "talk", args, &[3], "4 MiB", "");
    } else {
        // The server's name, at another address.
        let args =
            "to=three-in from=three-out address=10.9.0.3 mac=2 ask=10.9.0.1 bytes=1 limit=1000000";
        let channels = ["three-in", "three-out"];
        program(&mut manifest, ("rogue", 3), ("net-station", args), channels, true);
    }
    channel(&mut manifest, "three-in", ["rogue", "switch"], "doorbell");
    channel(&mut manifest, "three-out", ["switch", "rogue"], "doorbell");
    let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(100))?;
    for name in ["client", "switch", "server"] {
        seen.undisturbed(name, &["running", "exited"])?;
    }
    seen.exited("client")?;
    let all = "200000 of 200000 bytes came back";
    seen.ensure(seen.console.contains(all), "the stations were disturbed")?;
    let refused = seen.console.contains("port 2: Stolen");
    seen.ensure(refused == (kind == "thief"), "refused, or not, what was to be")?;
    Ok(format!("{all}, beside a {kind}"))
}
