//! A bay under a Linux that ran first. A part comes and goes there, and all of it goes when the Linux takes its machine
//! back.

use super::super::driver::{Bench, Job};
use super::super::system::artifacts;
use super::{Kind, Linux, load_from, run};
use bulkhead_initramfs::{Archive, Entry};
use bulkhead_manifest::Checked;
use std::time::Duration;

/// The image.
pub const IMAGE: &str = "bays.img";

pub fn jobs() -> Vec<Job> {
    vec![Job::one("under/create", 150, created)]
}

/// The system with a bay on the last core.
fn text() -> Result<String, String> {
    let text = crate::build::root().join("tests/under/unconfined.toml");
    let text = std::fs::read_to_string(&text).map_err(|e| format!("{}: {e}", text.display()))?;
    let mut text = text.replace("[\"flight\"]", "[\"flight\", \"bay\"]");
    text.push_str(
        "\n[[sandbox]]\nname = \"bay\"\ncores = [2]\nmemory = \"8 MiB\"\nguest = { kind = \"vacant\" }\n\
         [[channel]]\nname = \"bay-part\"\nfrom = \"ground\"\nto = [\"bay\"]\nsize = \"256 KiB\"\nkind = \"program\"\n",
    );
    Ok(text)
}

/// Loads it.
pub fn system(bench: &Bench) -> Result<Checked, String> {
    let machines = format!("{}/machines", crate::build::root().display());
    let manifest = bench.dir.join("bays.toml");
    let text = text()?.replace("../../machines", &machines);
    std::fs::write(&manifest, text).map_err(|e| e.to_string())?;
    load_from(&manifest)
}

/// Puts what the Linux needs into an archive: the manifest with its machine, a part and its program.
pub fn files(archive: &mut Archive) -> Result<(), String> {
    const PART: &str = "[part]\nname = \"camera\"\nguest = { kind = \"bare\", program = \"camera\" }\nmemory = \"4 MiB\"\n";
    let mut add = |name: &str, bytes| archive.add(name, Entry::File(0o644, bytes));
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let machine = "machines/qemu-q35.toml";
    add(&format!("/etc/bulkhead/{machine}"), read(&crate::build::root().join(machine))?);
    add("/etc/bulkhead/system.toml", text()?.replace("../../machines", "machines").into());
    add("/late/camera.toml", PART.into());
    add("/late/camera", read(&artifacts().join("duty"))?);
    Ok(())
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
