//! A bay under a Linux that ran first. A part comes and goes there, and all of it goes when the Linux takes its machine
//! back. Channels to the bay come and go as PCI functions with each part, here and in a Linux of an image.

use super::super::driver::{Bench, Job};
use super::super::system::artifacts;
use super::{Kind, Linux, load_from, run};
use bulkhead_initramfs::{Archive, Entry};
use bulkhead_manifest::Checked;
use std::time::Duration;

/// The image.
pub const IMAGE: &str = "bays.img";
/// The image with channels to its bay.
pub const HOTPLUG: &str = "hotplug.img";
/// The script for a Linux of either kind.
pub const SCRIPT: &str = include_str!("hotplug.sh");
/// How often a part with a card came.
pub const ROUNDS: usize = 3;

pub fn jobs() -> Vec<Job> {
    vec![Job::one("under/create", 150, created), Job::one("under/hotplug", 200, plugged)]
}

/// A bay on a core, and the channel for its program.
pub fn bay(core: usize) -> String {
    format!(
        "\n[[sandbox]]\nname = \"bay\"\ncores = [{core}]\nmemory = \"8 MiB\"\nguest = {{ kind = \"vacant\" }}\n\
         [[channel]]\nname = \"bay-part\"\nfrom = \"ground\"\nto = [\"bay\"]\nsize = \"256 KiB\"\nkind = \"program\"\n"
    )
}

/// Messages of the bay, and a card of which it has the device side.
pub const CHANNELS: &str = "\n[[channel]]\nname = \"news\"\nfrom = \"bay\"\nto = [\"ground\"]\nsize = \"8 KiB\"\nkind = \"queue\"\nmessage = 64\nnotify = \"doorbell\"\n\
     [[channel]]\nname = \"lan\"\nfrom = \"ground\"\nto = [\"bay\"]\nsize = \"512 KiB\"\nkind = \"virtio\"\n";

/// A system with a bay on the last core.
fn text(of: &str) -> Result<String, String> {
    let text = crate::build::root().join(of);
    let text = std::fs::read_to_string(&text).map_err(|e| format!("{}: {e}", text.display()))?;
    Ok(text.replace("[\"flight\"]", "[\"flight\", \"bay\"]") + &bay(2))
}

/// Without channels, and with them.
fn vacant() -> Result<String, String> {
    Ok(text("tests/under/unconfined.toml")?.replace("../../machines", "machines"))
}

fn connected() -> Result<String, String> {
    Ok(text("systems/under-linux.toml")?.replace("../machines", "machines") + CHANNELS)
}

fn loaded(bench: &Bench, name: &str, text: &str) -> Result<Checked, String> {
    let machines = format!("\"{}/machines", crate::build::root().display());
    let manifest = bench.dir.join(name);
    let text = text.replace("\"machines", &machines);
    std::fs::write(&manifest, text).map_err(|e| e.to_string())?;
    load_from(&manifest)
}

/// Loads them.
pub fn system(bench: &Bench) -> Result<Checked, String> {
    loaded(bench, "bays.toml", &vacant()?)
}

pub fn with_channels(bench: &Bench) -> Result<Checked, String> {
    loaded(bench, "hotplug.toml", &connected()?)
}

/// Parts for the channels, as files of a folder `/late`, with their program.
pub fn parts() -> Result<Vec<(&'static str, Vec<u8>)>, String> {
    let part = |name: &str, args: &str| {
        format!(
            "[part]\nname = \"{name}\"\nguest = {{ kind = \"bare\", program = \"talk\", args = \"{args}\" }}\nmemory = \"8 MiB\"\n"
        )
        .into_bytes()
    };
    let talk = artifacts().join("talk");
    Ok(vec![
        ("/late/card.toml", part("card", "role=card channel=lan")),
        ("/late/source.toml", part("source", "role=send channel=news count=300 gap=3000")),
        ("/late/talk", std::fs::read(&talk).map_err(|e| format!("{}: {e}", talk.display()))?),
    ])
}

/// Puts what the Linux needs into an archive: the manifest with its machine, parts and their programs.
pub fn files(archive: &mut Archive, image: &str) -> Result<(), String> {
    const PART: &str = "[part]\nname = \"camera\"\nguest = { kind = \"bare\", program = \"camera\" }\nmemory = \"4 MiB\"\n";
    let mut add = |name: &str, bytes| archive.add(name, Entry::File(0o644, bytes));
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let machine = "machines/qemu-q35.toml";
    add(&format!("/etc/bulkhead/{machine}"), read(&crate::build::root().join(machine))?);
    if image == HOTPLUG {
        add("/etc/bulkhead/system.toml", connected()?.into());
        parts()?.into_iter().for_each(|(name, bytes)| add(name, bytes));
        return Ok(());
    }
    add("/etc/bulkhead/system.toml", vacant()?.into());
    add("/late/camera.toml", PART.into());
    add("/late/camera", read(&artifacts().join("duty"))?);
    Ok(())
}

/// Judges the script's log.
pub fn came_and_went(text: &str) -> Result<String, String> {
    super::complaints(text)?;
    let count = |what| text.matches(what).count();
    let (cards, pings, woken) =
        (count("card is created in bay bay"), count("10 packets received"), count("armings"));
    if (cards, pings, woken) != (ROUNDS, ROUNDS, ROUNDS) {
        return Err(format!("{cards} cards, {pings} that answered, {woken} sources\n{text}"));
    }
    Ok(format!("{cards} cards and {woken} sources of messages came and went"))
}

fn plugged(bench: &Bench) -> Result<String, String> {
    let text = run(
        bench,
        &Linux {
            kernel: "6.12-cloud",
            cores: 3,
            script: &format!("set -- /late/{HOTPLUG}\n{SCRIPT}"),
            arguments: String::new(),
            machine: Kind::Confined,
            disks: &[""; 4],
            limit: Duration::from_secs(180),
        },
    )?;
    came_and_went(&text)
}

fn created(bench: &Bench) -> Result<String, String> {
    let text = run(
        bench,
        &Linux {
            kernel: "6.12-cloud",
            cores: 3,
            script: include_str!("bays.sh"),
            arguments: String::new(),
            machine: Kind::Remaps,
            disks: &[],
            limit: Duration::from_secs(130),
        },
    )?;
    Ok(format!("{} parts, in two images", text.matches("camera is created").count()))
}
