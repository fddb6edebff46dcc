//! Brings a network card up.

use crate::{devices, find};
use std::fs;
use std::process::Command;

/// Address that QEMU's user network expects of its only guest; the host is 10.0.2.2.
const ADDRESS: &str = "10.0.2.15/24";
const GATEWAY: &str = "10.0.2.2";
const CARDS: &str = "/sys/class/net";

/// Waits for the card of a driver (if several, the one with the first name in order), and gives it its address.
///
/// # Errors
/// In words, if it does not come or refuses.
pub fn up(driver: &str) -> Result<(), String> {
    let card = devices::wait(|| card(driver))
        .ok_or_else(|| format!("no network card of {driver} within {}", devices::limit()))?;
    ip(&["addr", "add", ADDRESS, "dev", &card])?;
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "set", &card, "up"])?;
    // A card without carrier drops what is sent.
    let carrier = format!("{CARDS}/{card}/carrier");
    devices::wait(|| fs::read_to_string(&carrier).ok().filter(|text| text.trim() == "1"))
        .ok_or_else(|| format!("{card}: no carrier within {}", devices::limit()))?;
    ip(&["route", "add", "default", "via", GATEWAY])?;
    println!("bulkhead-init: {card} ({driver}) is {ADDRESS}");
    Ok(())
}

fn card(driver: &str) -> Option<String> {
    let mut names: Vec<_> = fs::read_dir(CARDS)
        .ok()?
        .flatten()
        .filter(|entry| {
            fs::read_link(entry.path().join("device/driver"))
                .is_ok_and(|link| link.file_name().is_some_and(|name| name == driver))
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names.into_iter().next()
}

fn ip(args: &[&str]) -> Result<(), String> {
    let out = Command::new(find("ip")).args(args).output();
    let out = out.map_err(|why| format!("ip: {why}"))?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim()))
}
