//! Finds drivers for devices: what udev does at boot, as far as a guest with a
//! few modules in its initramfs needs it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Buses that have devices with drivers in modules. A driver of the first makes devices on the others appear.
const BUSES: [&str; 3] = ["pci", "virtio", "scsi"];
/// Longest time for a device to appear. A disk that is asked in vain takes less.
const LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// Loads drivers for devices until `look` finds something, at most for 30 s.
pub fn wait<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    let mut seen = BTreeSet::new();
    loop {
        let new = load_new(&mut seen);
        // Checked after the last driver has brought its devices, and no earlier:
        // what is found must not depend on the order of loading.
        if new == 0 {
            if let Some(found) = look() {
                return Some(found);
            }
            if begun.elapsed() > LIMIT {
                return None;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// The limit in words.
pub fn limit() -> String {
    format!("{} s", LIMIT.as_secs())
}

/// Loads what the devices ask for that were not there the last time; how many
/// those are.
fn load_new(seen: &mut BTreeSet<String>) -> usize {
    let all = BUSES.iter().flat_map(|bus| aliases(&Path::new("/sys/bus").join(bus)));
    let new: Vec<_> = all.filter(|alias| !seen.contains(alias)).collect();
    if !new.is_empty() {
        // Fails for each device without a driver here, such as bridges: no news.
        let _ = Command::new("/sbin/modprobe").arg("-qa").args(&new).status();
    }
    let count = new.len();
    seen.extend(new);
    count
}

fn aliases(bus: &Path) -> Vec<String> {
    let devices = fs::read_dir(bus.join("devices")).into_iter().flatten().flatten();
    let texts = devices.filter_map(|d| fs::read_to_string(d.path().join("modalias")).ok());
    texts.map(|text| text.trim().to_owned()).collect()
}
