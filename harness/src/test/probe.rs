//! `bulkhead-probe` in the machine that a description describes: what it prints
//! there is the description.

use super::driver::{Job, tail};
use super::system::{FAST, Manifest, artifacts};
use crate::build;
use bulkhead_qemu::Serial;
use std::path::Path;
use std::time::Duration;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("probe/qemu-q35", 240, |bench| probe(&bench.dir, "qemu-q35", "", str::to_owned)),
        Job::one("vtd/probe", 240, |bench| {
            probe(&bench.dir, "qemu-q35-vtd", "intel_iommu=on", vtd)
        }),
    ]
}

/// The description for the machine with Intel's IOMMU. The one in the guest, for facts that no Linux can know, is the
/// other machine's.
fn vtd(file: &str) -> String {
    let [own, kept] = [
        "intel-iommu,intremap=on,eim=on,caching-mode=off,aw-bits=48",
        "amd-iommu,pt=off,intremap=on",
    ];
    file.replace("name = \"qemu-q35-vtd\"", "name = \"qemu-q35\"").replace(own, kept)
}

/// Lines of a description without comments.
fn lines(text: &str) -> Vec<&str> {
    let plain = |line| str::split(line, " #").next().unwrap_or_default();
    let lines = text.lines().map(plain);
    lines.filter(|line| !line.is_empty() && !line.trim_start().starts_with('#')).collect()
}

/// Boots a bare Linux after SeaBIOS, and compares what the probe wrote to its
/// second serial port. The description is in the guest, too: what no Linux can
/// know is kept from it, and crates/host/probe/tests says what that is.
fn probe(
    dir: &Path,
    name: &str,
    more: &str,
    expected: impl Fn(&str) -> String,
) -> Result<String, String> {
    let checked = Manifest::on(name).bare("none", "hello", "", &[0], "4 MiB", "").load(dir)?;
    let description = &checked.system.machine;
    let mut machine = bulkhead_run::machine(description, &[], &[], dir);
    machine.kernel = Some(artifacts().join("linux-6.12"));
    machine.initrd = Some(artifacts().join("probe.cpio").display().to_string());
    // The driver of the IOMMU tells the groups. Interrupts are not remapped: with
    // QEMU's model the timer's is lost, and the kernel panics.
    // Nor are lines routed that no driver asks for.
    machine.append = format!(
        "console=ttyS0,115200 panic=-1 quiet intremap=off pci=routeirq \
         bulkhead.run=bulkhead-probe:--keep,/machine.toml,-o,/dev/ttyS1 {more}"
    );
    machine.cores = description.core_ids.len();
    machine.serials = vec![Serial::File; 4];
    // In real time the emulator may lose a wake-up of one of several cores.
    machine.time = FAST;
    let mut running = machine.start().map_err(|e| e.to_string())?;
    let limit = Duration::from_secs(220);
    running.wait_end("the guest to power off", limit).map_err(|e| e.to_string())?;
    let (said, printed) = (running.serial(0).text(), running.serial(1).text());
    if !said.contains("bulkhead-init: exit code 0") {
        return Err(format!("the probe did not succeed\n{}", tail(&said)));
    }
    let path = build::root().join(format!("machines/{name}.toml"));
    let file = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let file = expected(&file);
    let printed = printed.replace('\r', "");
    let (is, was) = (lines(&printed), lines(&file));
    let differs = is.iter().zip(&was).position(|(is, was)| is != was);
    match differs.or_else(|| (is.len() != was.len()).then(|| is.len().min(was.len()))) {
        None => Ok(format!("{} lines", is.len())),
        Some(at) => {
            let line =
                |all: &[&str]| all.get(at).map_or("its end".to_owned(), |l| format!("`{l}`"));
            Err(format!("it prints {}, but the file has {}\n{printed}", line(&is), line(&was)))
        }
    }
}
