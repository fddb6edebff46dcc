//! Causes in an emulator's log for a machine that does not do what it should.

use crate::running::noise;

/// Words of QEMU's, and what they mean. The first that fits is told: those that explain more come first.
const KNOWN: [(&str, &str); 9] = [
    ("cannot set up guest memory", "the host has not enough memory for the machine's RAM"),
    ("Cannot allocate memory", "the host has not enough memory for the machine's RAM"),
    (
        "No space left on device",
        "the host's file system is full (the machine's RAM is a file in /dev/shm)",
    ),
    ("Bus error", "the host's /dev/shm is full: the machine's RAM is a file there"),
    ("to get \"write\" lock", "another machine has a disk's image open"),
    ("Address already in use", "another program has a port that this machine wants"),
    (
        "could not load PC BIOS",
        "the emulator does not find its firmware: tools/setup.sh installs seabios",
    ),
    (
        "failed to find romfile",
        "the emulator does not find a card's ROM: tools/setup.sh installs ipxe-qemu",
    ),
    // Last: a rogue's forged messages leave it, too.
    (
        "failed to remap interrupt",
        "the emulator's IOMMU refused a message; with devid 0xa0, the IOAPIC's, an interrupt line does not arrive, and \
         who waits for it waits for ever, or a device's DMA forged one",
    ),
];

/// Returns the likely cause with the line that says so; without a known one the last line that is no noise.
pub fn of(log: &str) -> Option<String> {
    let found = KNOWN.iter().find_map(|(words, why)| Some((why, said(log, words)?)));
    if let Some((why, line)) = found {
        return Some(format!("likely cause: {why} (qemu.log: {line})"));
    }
    let last = log.lines().rfind(|line| !line.trim().is_empty() && !noise(line))?;
    Some(format!("the emulator said last: {}", last.trim()))
}

fn said<'a>(log: &'a str, words: &str) -> Option<&'a str> {
    log.lines().find(|line| line.contains(words)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISE: &str = "qemu-system-x86_64: warning: TCG doesn't support requested feature: CPUID[eax=07h]\n\
                         qemu-system-x86_64: warning: netdev metronome has no peer\n";

    #[test]
    fn a_known_word_leads() {
        let log = format!(
            "{NOISE}qemu-system-x86_64: failed to remap interrupt from devid 0xa0\nsomething else\n"
        );
        let cause = of(&log).unwrap();
        assert!(
            cause.starts_with("likely cause: the emulator's IOMMU refused a message"),
            "{cause}"
        );
        assert!(cause.ends_with(
            "(qemu.log: qemu-system-x86_64: failed to remap interrupt from devid 0xa0)"
        ));
        // A word that explains more is preferred to what came before it.
        let both = format!("{log}bind: Address already in use\n");
        assert!(of(&both).unwrap().contains("another program has a port"));
    }

    #[test]
    fn else_the_last_words_are_told() {
        let log = format!("first\nqemu: terminating on signal 15\n\n{NOISE}");
        assert_eq!(of(&log).unwrap(), "the emulator said last: qemu: terminating on signal 15");
        assert_eq!(of(NOISE), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn every_known_word_is_found() {
        for (words, why) in KNOWN {
            let cause = of(&format!("{NOISE}qemu: x {words} y\nlater\n")).unwrap();
            assert!(cause.contains(why) && cause.contains(words), "{cause}");
        }
    }
}
