//! A flaw of QEMU's SVM: bits 63:32 of RCX at RDMSR and WRMSR move its place in the permission map. A processor ignores
//! them. So a guest there can reach registers that its monitor denies (docs/limits.md). No monitor can mend that, so a
//! run says it.

use std::process::Command;

/// Release that the test `fuzz/high-rcx` has seen with the flaw.
const SEEN: [u32; 2] = [10, 0];

/// Returns the words for a run with this machine's emulator, by the version that it tells.
#[must_use]
pub fn confines(program: &str) -> String {
    let said = Command::new(program).arg("--version").output();
    let said = said.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    words(&said.unwrap_or_default())
}

/// Returns the words for what an emulator says of its version.
fn words(said: &str) -> String {
    const WHERE: &str =
        "RDMSR and WRMSR with RCX above 32 bits; docs/limits.md, \"Differences of QEMU's SVM\"";
    let version = version(said);
    let name = version.map_or("QEMU of an unknown version".to_owned(), |v| format!("QEMU {v}"));
    match version.and_then(release) == Some(SEEN) {
        true => format!(
            "note: {name} does not confine a hostile guest's MSRs, as a processor does ({WHERE})"
        ),
        false => format!(
            "note: {name} may not confine a hostile guest's MSRs, as a processor does: {}.{} does not, and no other \
             release was tried ({WHERE})",
            SEEN[0], SEEN[1]
        ),
    }
}

/// `10.0.2` of `QEMU emulator version 10.0.2 (Debian …)`.
fn version(said: &str) -> Option<&str> {
    said.split_once(" version ")?.1.split_whitespace().next()
}

/// Returns the first two numbers.
fn release(version: &str) -> Option<[u32; 2]> {
    let mut numbers = version.split('.').map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_was_not_tried_is_not_judged() {
        let said =
            |version: &str| words(&format!("QEMU emulator version {version} (Debian)\nCopyright"));
        for seen in ["10.0.2", "10.0.13"] {
            assert!(
                said(seen).starts_with(&format!("note: QEMU {seen} does not confine")),
                "{}",
                said(seen)
            );
        }
        for other in ["10.1.0", "7.2.19", "100.0.1"] {
            assert!(
                said(other).starts_with(&format!("note: QEMU {other} may not confine")),
                "{}",
                said(other)
            );
        }
        for odd in ["", "QEMU emulator version", "QEMU emulator version  \n"] {
            assert!(
                words(odd).starts_with("note: QEMU of an unknown version may not confine"),
                "{}",
                words(odd)
            );
        }
    }
}
