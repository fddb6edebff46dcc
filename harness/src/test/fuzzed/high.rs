//! Bits 63:32 of RCX at RDMSR and WRMSR: a processor ignores them, QEMU 10.0 does not when it looks up the permission
//! map. Random exits found that (`docs/limits.md`).

use super::super::attack::VICTIM;
use super::super::driver::{Bench, Verdict};
use super::super::system::{Manifest, Seen, run};
use fuzz_guest::HIGH;

const ICR: u64 = 0x830;

/// Tells if an emulator with the flaw lets this through: bits 33:32 are not 0, and the register is below 0x2000.
fn flawed(register: u64, high: u64) -> bool {
    register < 0x2000 && high & 3 != 0
}

/// Gives the verdict. It is skipped, with what was written, where the emulator does not confine.
pub fn job(bench: &Bench, test: &str) {
    bench.verdict(test, attempt(bench).unwrap_or_else(Verdict::Failed));
}

/// Tries forbidden writes of a guest with each of [`HIGH`]. All are refused, or all but exactly those that the limits
/// name. Then the page says that a guest is not confined in such an emulator, as `bulkhead run` does.
fn attempt(bench: &Bench) -> Result<Verdict, String> {
    let manifest = Manifest::new()
        .ends_with(&["fuzz"])
        .bare("victim", "victim", "", &[0], VICTIM, "devices = [\"uart0\"]")
        .bare("fuzz", "fuzz", "foreign=0", &[1], "4 MiB", "");
    let seen = run(&manifest, &bench.dir, |_| {})?;
    let tried = tried(&seen)?;
    // A write of the ICR that is denied raises no fault. Those that took no exit have no record.
    let sent =
        |d: &&bulkhead_explain::Explained| d.sandbox == "fuzz" && d.condition == "ipi-destination";
    let through = HIGH.len() - seen.denials.iter().filter(sent).count().min(HIGH.len());
    let icr = HIGH.iter().filter(|high| flawed(ICR, **high)).take(through).map(|high| (ICR, *high));
    if through > icr.clone().count() {
        return Err(format!("{through} writes of the ICR have no record"));
    }
    let faults = tried.iter().filter(|t| t.0 != ICR && t.2).map(|t| (t.0, t.1));
    let written: Vec<_> = icr.chain(faults).collect();
    let reached = seen.console.contains("stray interrupt");
    if let Some((register, high)) = written.iter().find(|(r, high)| !flawed(*r, *high)) {
        return Err(format!("register {register:#x} is written with {high:#x} in RCX bits 63:32"));
    }
    let note = bulkhead_qemu::confines(bulkhead_qemu::PROGRAM);
    if written.is_empty() {
        let all = tried.len();
        return match (reached, note.contains("does not confine")) {
            (true, _) => Err("an interrupt at the victim".into()),
            (_, true) => Err(format!("all is refused, but `bulkhead run` says: {note}")),
            _ => Ok(Verdict::Passed(format!("{all} writes, all refused"))),
        };
    }
    if !note.contains(" not confine") {
        return Err(format!("{written:x?} written, but `bulkhead run` says: {note}"));
    }
    Ok(Verdict::Skipped(format!(
        "not confined by this emulator (docs/limits.md): {written:x?} written, the victim {}",
        if reached { "was interrupted" } else { "saw nothing" }
    )))
}

/// Register, upper half of RCX, whether it was written.
fn tried(seen: &Seen) -> Result<Vec<(u64, u64, bool)>, String> {
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let parse = |line: &str| {
        let (register, rest) = line.strip_prefix("[fuzz] ")?.split_once(" with ")?;
        let (high, how) = rest.split_once(": ")?;
        Some((hex(register)?, hex(high)?, how == "written"))
    };
    let tried: Vec<_> = seen.console.lines().filter_map(parse).collect();
    // Four registers.
    let right = tried.len() == 4 * HIGH.len() && tried.iter().any(|t| t.0 == ICR);
    if right {
        Ok(tried)
    } else {
        Err(format!("{} writes were tried:\n{}", tried.len(), seen.console))
    }
}
