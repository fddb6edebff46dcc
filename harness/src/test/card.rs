//! A device that is a role's: its driver fails, and the one that stands by takes the device over.

use super::driver::{Bench, Job, tail};
use super::mutate;
use super::standby::deeds;
use super::system::{Manifest, Seen, artifacts, run};
use super::typed::sample;
use super::voter::system;
use crate::build;
use crate::program::Program as _;
use bulkhead_explain::{FAILOVER, TOOK};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Test of a monitor that shows a role's functions to each holder.
pub const MUTANT: &str = "standby/card-mutant";
/// Test of one that lets a role's function send messages.
pub const MESSAGES: &str = "standby/card-messages-mutant";

/// Arguments of both drivers in the system of the book.
const ARGS: &str = "way=each";

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("standby/card-page", 150, page),
        Job::one("standby/card", 200, |bench| moves(bench, "qemu-q35", 20)),
        Job::one("standby/card-vtd", 200, |bench| moves(bench, "qemu-q35-vtd", 8)),
        Job::one("standby/card-early", 150, early),
        Job::one("standby/card-write", 150, write),
        Job::one("standby/card-beyond", 150, beyond),
        Job::one("standby/card-message", 150, |bench| messages(bench, "qemu-q35")),
        Job::one("standby/card-message-vtd", 150, |bench| messages(bench, "qemu-q35-vtd")),
        Job::one(MESSAGES, 400, messages_mutant),
        Job::one(MUTANT, 400, mutant),
    ]
}

/// The system of the book with other arguments of its drivers, for so many pages.
fn with(pages: u64, args: [&str; 2]) -> Result<Manifest, String> {
    let Manifest(mut text) =
        system("standby-card.toml", &[("rounds=8", format!("rounds={pages}"))])?;
    for args in args {
        text = text.replacen(&format!("\"{ARGS}\""), &format!("\"{args}\""), 1);
    }
    Ok(Manifest(text))
}

fn options(o: &mut bulkhead_run::Options) {
    o.limit = Duration::from_secs(140);
    o.audit = true;
}

/// The command of the page.
fn page(_: &Bench) -> Result<String, String> {
    let out = Command::new(build::target().join("release/bulkhead"))
        .args(["run", "systems/standby-card.toml", "--icount"])
        .current_dir(build::root())
        .env("BULKHEAD_ARTIFACTS", artifacts())
        .printed()?;
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        return Err(format!("{}\n{}", out.status, tail(&said)));
    }
    let page = build::root().join("docs/standby.md");
    let page = std::fs::read_to_string(&page).map_err(|e| format!("{}: {e}", page.display()))?;
    let shown = page.split_once("standby-card.toml --icount").map_or("", |(_, rest)| rest);
    let shown = shown.split_once("```text\n").and_then(|(_, rest)| rest.split_once("```"));
    let shown = sample(shown.ok_or("the page shows no run")?.0, &said)?;
    Ok(format!("{shown} lines of the page"))
}

/// A driver fails in four ways, before and in the midst of a transfer. The next one has a device that is at rest and
/// answers, and no page comes back wrong.
fn moves(bench: &Bench, machine: &str, pages: u64) -> Result<String, String> {
    let Manifest(text) = with(pages, [ARGS; 2])?;
    let text = text.replace("qemu-q35.toml", &format!("{machine}.toml"));
    let seen = run(&Manifest(text), &bench.dir, options)?;
    seen.exited("judge")?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    seen.undisturbed("judge", &["exited"])?;
    let mut conditions = Vec::new();
    for name in ["one", "two"] {
        let all = deeds(&seen, name, FAILOVER)?;
        let moved = all.iter().all(|deed| deed.roles == ["porter"] && deed.party.is_some());
        seen.ensure(moved, format!("{all:?}"))?;
        conditions.extend(all.iter().map(|deed| deed.condition));
    }
    conditions.sort();
    conditions.dedup();
    // Each has the device for a page and a part of the next one. The oldest ones have no record any more.
    let holders = seen.console.matches("the device answers").count() as u64;
    seen.ensure(holders >= pages, format!("the device answered {holders} holders"))?;
    seen.ensure(conditions.len() >= 4, format!("{conditions:?}"))?;
    for sign in ["is silent", "are wrong", "for ever"] {
        seen.ensure(!seen.console.contains(sign), format!("a driver says `{sign}`"))?;
    }
    let said = seen.console.lines().find(|line| line.contains("judge: ")).unwrap_or_default();
    Ok(format!("{} failovers; {said}", holders - 1))
}

/// The system of the book behind its end.
pub fn stopped(dir: &Path) -> Result<Seen, String> {
    let seen = run(&with(2, [""; 2])?, dir, options)?;
    seen.exited("judge")?;
    Ok(seen)
}

/// A standby does something with the device before it has the role. The holder goes on.
fn thief(way: &str, bench: &Bench, change: fn(&mut bulkhead_run::Options)) -> Result<Seen, String> {
    let Manifest(text) = with(3, ["", &format!("early={way}")])?;
    // It is to be seen how it ends.
    let last = text.rfind("ladder =").ok_or("the system has another form")?;
    let text = format!("{}{}", &text[..last], text[last..].replacen("failover", "stop", 1));
    let seen = run(&Manifest(text), &bench.dir, |o| {
        options(o);
        change(o);
    })?;
    seen.exited("judge")?;
    let took = deeds(&seen, "two", TOOK)?;
    seen.ensure(took.is_empty(), "two has the role")?;
    Ok(seen)
}

/// Its registers are not there, and the record names the role.
fn early(bench: &Bench) -> Result<String, String> {
    let seen = thief("registers", bench, |_| ())?;
    seen.undisturbed("one", &["running"])?;
    let absent = seen.console.contains("without the role the device's ID reads 0xffffffff");
    seen.ensure(absent, "its configuration space answers")?;
    seen.ensure(!seen.console.contains("its registers answer"), "its registers answer")?;
    let denial = seen.denials.iter().find(|denial| denial.sandbox == "two");
    let denial = denial.ok_or_else(|| seen.wrong("no record of two"))?.to_string();
    let told = denial.contains("it is role porter's registers of PCI function 00:08.0");
    seen.ensure(told, &denial)?;
    Ok(denial)
}

/// A write to its configuration space is denied, and stops nothing.
fn write(bench: &Bench) -> Result<String, String> {
    let seen = thief("write", bench, |_| ())?;
    seen.undisturbed("one", &["running"])?;
    let denial = seen.denials.iter().find(|denial| denial.sandbox == "two");
    let denial = denial.ok_or_else(|| seen.wrong("no record of two"))?.to_string();
    let told = denial.contains("device-violation") && denial.contains("it is role porter's");
    seen.ensure(told, &denial)?;
    Ok(denial)
}

/// The holder has the device read its own memory, which is not the role's.
fn beyond(bench: &Bench) -> Result<String, String> {
    let Manifest(text) = with(3, ["early=dma", ""])?;
    let text = text.replacen("ends_with = [\"judge\"]", "ends_with = [\"one\"]", 1);
    // QEMU's IOMMU of Intel's kind keeps a record.
    let text = text.replace("qemu-q35.toml", "qemu-q35-vtd.toml");
    let seen = run(&Manifest(text), &bench.dir, options)?;
    seen.exited("one")?;
    let none = seen.console.contains("porter: found 0 words of its own by the device");
    seen.ensure(none, "the device has read what is not the role's")?;
    let told = "a role's function reaches the channels that the role names in `dma`";
    let blocked = seen.console.lines().find(|line| line.contains("blocked: "));
    let blocked = blocked.ok_or_else(|| seen.wrong("the IOMMU has no record"))?;
    seen.ensure(blocked.contains(told), blocked)?;
    Ok(blocked.to_owned())
}

fn mutant(bench: &Bench) -> Result<String, String> {
    mutate::build_mutants()?;
    mutate::monitor_without("role-function")?;
    let seen = thief("write", bench, |o| {
        o.audit = false;
        o.artifacts = build::target().join("mutants/role-function");
    })?;
    let there = seen.console.contains("without the role the device's ID reads 0x11e81234");
    seen.ensure(there, "two sees nothing of the device")?;
    let wrote = seen.console.contains("porter: wrote its configuration");
    let denied = seen.denials.iter().any(|denial| denial.sandbox == "two");
    seen.ensure(wrote && !denied, "its write was denied")?;
    Ok("a standby reaches the device".into())
}

/// The holder has the device send an interrupt to its own core.
fn sends(
    bench: &Bench,
    machine: &str,
    change: fn(&mut bulkhead_run::Options),
) -> Result<Seen, String> {
    let Manifest(text) = with(3, ["early=message", ""])?;
    let text = text.replacen("ends_with = [\"judge\"]", "ends_with = [\"one\"]", 1);
    let text = text.replace("qemu-q35.toml", &format!("{machine}.toml"));
    let seen = run(&Manifest(text), &bench.dir, |o| {
        options(o);
        change(o);
    })?;
    seen.exited("one")?;
    // The IOMMU blocks all of its messages, whatever its monitor does. QEMU's of Intel's kind passes forged ones on
    // (docs/limits.md), which shows that this one is sent.
    let passes = u8::from(machine == "qemu-q35-vtd");
    for (way, count) in [("by its registers", 0), ("by a forged write", passes)] {
        let right = seen.console.contains(&format!("porter: {count} interrupts {way}"));
        seen.ensure(right, format!("not {count} interrupts came {way}"))?;
    }
    Ok(seen)
}

fn messages(bench: &Bench, machine: &str) -> Result<String, String> {
    let seen = sends(bench, machine, |_| ())?;
    let denial = seen.denials.iter().find(|denial| denial.sandbox == "one");
    let denial = denial.ok_or_else(|| seen.wrong("no record of one"))?.to_string();
    seen.ensure(denial.contains("device-violation"), &denial)?;
    Ok(denial)
}

fn messages_mutant(bench: &Bench) -> Result<String, String> {
    mutate::build_mutants()?;
    mutate::monitor_without("role-message")?;
    let seen =
        sends(bench, "qemu-q35", |o| o.artifacts = build::target().join("mutants/role-message"))?;
    let denied = seen.denials.iter().any(|denial| denial.sandbox == "one");
    seen.ensure(!denied, "its message registers were denied")?;
    Ok("the device was told where to send, and the IOMMU blocked it".into())
}
