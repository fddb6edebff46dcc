//! The laws for all values of the fields that matter. Each also with a rule left out, where the code has rules: the law
//! must then be broken, or it says nothing.

use bulkhead_decoder::Mode;
use bulkhead_ioapic::{Lines, Wrong};
use bulkhead_laws::{Lawful, hypercall, icr, ioapic, mmio, msi};
use bulkhead_monitor_abi::hypercall::{LOOK, NULL, Rights};
use bulkhead_monitor_abi_x86::icr::Ids;
use bulkhead_monitor_abi_x86::msr::{X2APIC_LVT, X2APIC_LVT_LAST};
use bulkhead_pci::Rule;

/// One core, several, and one at each edge of a word, of a cluster and of what there is.
const OWN: [Ids; 3] =
    [[1, 0, 0, 0], [0b1100, 0, 0, 1 << 63], [1 << 16 | 1 << 31, 1, 0xFFFF << 48, 0]];

/// Something of each kind was let through, and something was not.
#[derive(Default)]
struct Count {
    all: u64,
    through: u64,
}

impl Count {
    fn take(&mut self, what: impl FnOnce() -> String, law: Lawful) -> bool {
        let through = law.unwrap_or_else(|why| panic!("{}: {why}", what()));
        self.all += 1;
        self.through += u64::from(through);
        through
    }

    fn tell(&self, name: &str) {
        println!("{name}: {} values, {} let through", self.all, self.through);
        assert!(
            self.through > 0 && self.through < self.all,
            "{name}: {} of {}",
            self.through,
            self.all
        );
    }
}

/// IDs that are near something.
fn destinations(own: &Ids) -> Vec<u32> {
    let ids = (0..=272).chain([u32::MAX, u32::MAX - 1, 1 << 16, 1 << 31, 0x100, 0x1_0000]);
    let clusters = (0..17)
        .flat_map(|cluster| [1, 0x8000, 0x8001, 0xFFFF, 0, 0b1100].map(|set| cluster << 16 | set));
    let _ = own;
    ids.chain(clusters).collect()
}

#[test]
fn interrupts_between_cores() {
    let mut count = Count::default();
    for own in OWN {
        let cores: Vec<_> = (0..256).filter(|id| icr::owns(&own, *id)).collect();
        let sender = cores[0];
        let near = destinations(&own);
        // Every combination of delivery mode, destination mode, both bits behind it, level, trigger mode, both bits
        // behind it, and shorthand. Each comes with no other bit, and with each of the reserved bits.
        let words = (0..1u32 << 12).map(|fields| fields << 8 | 0x41);
        let reserved =
            (20..32).flat_map(|bit| [0, 4, 5, 6].map(|mode| 1 << bit | mode << 8 | 0x41));
        for low in words.chain(reserved) {
            for destination in &near {
                let value = u64::from(*destination) << 32 | u64::from(low);
                let law = |id| icr::sent(&own, sender, value, id);
                let what = || format!("own {own:x?}, ICR {value:#x}");
                if count.take(what, law(0)) {
                    (0..=272).for_each(|id| assert_eq!(law(id), Ok(true), "{} {id}", what()));
                }
            }
        }
        // Every low word of 20 bits, vectors included, to an own core and to a foreign one.
        let foreign = (0..).find(|id| !icr::owns(&own, *id)).unwrap_or(0);
        for low in 0..1u64 << 20 {
            for destination in [cores[0], foreign] {
                let value = u64::from(destination) << 32 | low;
                count.take(|| format!("{value:#x}"), icr::sent(&own, sender, value, foreign));
            }
        }
    }
    count.tell("ICR");
}

#[test]
fn aims_of_other_monitors() {
    let mut count = Count::default();
    for own in OWN {
        for destination in destinations(&own) {
            let words = (0..1u64 << 12).chain((12..32).map(|bit| 1 << bit | 0x41));
            for low in words {
                let value = u64::from(destination) << 32 | low;
                count.take(|| format!("{value:#x}"), icr::aimed(&own, value));
            }
        }
    }
    count.tell("aims");
}

#[test]
fn local_vector_tables() {
    let mut count = Count::default();
    for register in X2APIC_LVT..=X2APIC_LVT_LAST {
        for deadline in [false, true] {
            let words =
                (0..1u64 << 19).chain((19..64).flat_map(|bit| [1 << bit, 1 << bit | 0x2_00EC]));
            for value in words {
                let law = icr::stored(register, value, deadline);
                count.take(|| format!("{register:#x}: {value:#x}, {deadline}"), law);
            }
        }
    }
    count.tell("LVT");
}

fn sets() -> Vec<u32> {
    (0..32).map(|bit| 1 << bit).chain([0, u32::MAX, 0xAAAA_AAAA]).collect()
}

/// Calls with a rule left out; the first that breaks the law.
fn calls(rule: &str, count: &mut Count) -> Result<(), String> {
    let firsts = (0..40).chain([255, 256, u64::from(u32::MAX), 1 << 32, 1 << 32 | 3, u64::MAX]);
    let seconds = [0, 1, 2, 3, 4, 31, 32, 255, 256, 0xFFFF, 0x1_0003, u64::MAX];
    for rax in (NULL - 2..=LOOK + 8).chain([0, u64::MAX, NULL | 1 << 32]) {
        for first in firsts.clone() {
            for second in seconds {
                for (n, set) in (0..5).flat_map(|n| sets().into_iter().map(move |set| (n, set))) {
                    let mut all = [0; 5];
                    all[n] = set;
                    let [stop, start, restart, offer, links] = all;
                    let rights = Rights { control: [stop, start, restart], offer, links };
                    for (cpl, sandboxes) in [(0, 1), (0, 5), (0, 32), (1, 5), (3, 32)] {
                        let enforced = |name: &str| name != rule;
                        let law = hypercall::called(
                            rax,
                            [first, second],
                            cpl,
                            (sandboxes, &rights),
                            enforced,
                        );
                        let what = || {
                            format!(
                                "{rax:#x}({first:#x}, {second:#x}) at {cpl} of {sandboxes}, {rights:x?}"
                            )
                        };
                        law.map_err(|why| format!("{}: {why}", what()))?;
                        count.take(what, law);
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn hypercalls() {
    let mut count = Count::default();
    calls("", &mut count).unwrap();
    count.tell("hypercalls");
    for rule in
        ["hypercall-cpl", "hypercall-number", "hypercall-length", "control-right", "link-right"]
    {
        assert!(calls(rule, &mut Count::default()).is_err(), "{rule}");
    }
}

#[test]
fn trapped_accesses() {
    let prefixes: [&[u8]; 19] = [
        &[],
        &[0x66],
        &[0x67],
        &[0x66, 0x67],
        &[0x2E],
        &[0x64],
        &[0xF0],
        &[0xF2],
        &[0xF3],
        &[0x40],
        &[0x41],
        &[0x44],
        &[0x48],
        &[0x4F],
        &[0x66, 0x48],
        &[0x48, 0x66],
        &[0x67, 0x4C],
        &[0x0F],
        &[0x66, 0x0F],
    ];
    let mut count = Count::default();
    for mode in [Mode::Bits16, Mode::Bits32, Mode::Bits64] {
        // Every opcode of one byte, and of two, with every ModRM byte.
        for (prefix, opcode, modrm) in prefixes
            .iter()
            .flat_map(|prefix| (0..=0xFFu8).map(move |opcode| (prefix, opcode)))
            .flat_map(|(prefix, opcode)| (0..=0xFFu8).map(move |modrm| (prefix, opcode, modrm)))
        {
            let mut code = [0x25; 15];
            let at = prefix.len();
            code[..at].copy_from_slice(prefix);
            (code[at], code[at + 1]) = (opcode, modrm);
            count.take(|| format!("{mode:?} {code:02x?}"), mmio::decoded(&code, mode));
        }
        // Every SIB byte.
        for (sib, modrm) in
            (0..=0xFFu8).flat_map(|sib| [0x04, 0x44, 0x84].map(|modrm| (sib, modrm)))
        {
            let mut code = [0x77; 15];
            code[..3].copy_from_slice(&[0x8B, modrm, sib]);
            count.take(|| format!("{mode:?} {code:02x?}"), mmio::decoded(&code, mode));
        }
        // Prefixes fill the room there is.
        for len in 0..15 {
            let mut code = [0x8B; 15];
            code[..len].fill(0x66);
            count.take(|| format!("{mode:?} {code:02x?}"), mmio::decoded(&code, mode));
        }
    }
    count.tell("MOV");
}

/// Writes of lines with a rule left out; the first that breaks the law.
fn lines(rule: Option<Wrong>, count: &mut Count) -> Result<(), String> {
    let cores = [0b1100, 0, 0, 1 << 63];
    let lines = Lines {
        own: 0b0111,
        level: 0b0010,
        low: 0b0110,
        count: 4,
        level_vectors: [0, 1 << 1, 0, 0],
        ..Lines::default()
    };
    let open = [0x41, 2 << 24];
    for line in 0..4 {
        // Every low half of 17 bits over a right and a wrong destination; then every high half, over an open entry.
        let highs = [2u32, 1, 255, 0].map(|core| core << 24);
        let low = highs
            .into_iter()
            .flat_map(|high| (0..1u32 << 17).map(move |value| ([1 << 16, high], 0, value)));
        let more = (17..32).map(|bit| (open, 0, 1 << bit | 0x41));
        let high =
            (0..256u32).flat_map(|core| [0, 1, 0xFF_FFFF].map(|rest| (open, 1, core << 24 | rest)));
        for (old, half, value) in low.chain(more).chain(high) {
            let law = ioapic::written((&lines, &cores), (line, half), old, value, |wrong| {
                Some(wrong) != rule
            });
            let what = || format!("line {line}, half {half} of {old:x?}: {value:#x}");
            law.map_err(|why| format!("{}: {why}", what()))?;
            count.take(what, law);
        }
    }
    Ok(())
}

#[test]
fn interrupt_lines() {
    let mut count = Count::default();
    lines(None, &mut count).unwrap();
    count.tell("lines");
    for rule in [Wrong::Line, Wrong::Mode, Wrong::Destination, Wrong::Vector, Wrong::LevelVector] {
        assert!(lines(Some(rule), &mut Count::default()).is_err(), "{rule:?}");
    }
}

/// Messages with a rule left out; the first that breaks the law.
fn messages(rule: Option<Rule>, count: &mut Count) -> Result<(), String> {
    let own = [0b1100, 0, 0, 1 << 63];
    let address = |bits: u32| 0xFEE0_0000 | bits;
    // Every address in the window, every data word of 16 bits, and each bit beyond them.
    let addresses = (0..1u32 << 20).map(|bits| [address(bits), 0, 0x41]);
    let outside = (20..32).map(|bit| [address(0x2000) ^ 1 << bit, 0, 0x41]);
    let uppers = (0..32).map(|bit| [address(0x2000), 1 << bit, 0x41]);
    let data = [0x2000, 0x1000, 0xF_F000]
        .into_iter()
        .flat_map(|core| (0..1u32 << 16).map(move |data| [address(core), 0, data]));
    let more = (16..32).map(|bit| [address(0x2000), 0, 1 << bit | 0x41]);
    for message in addresses.chain(outside).chain(uppers).chain(data).chain(more) {
        let law = msi::sent(&own, message, rule);
        law.map_err(|why| format!("{message:x?}: {why}"))?;
        count.take(|| format!("{message:x?}"), law);
    }
    Ok(())
}

#[test]
fn messages_of_functions() {
    let mut count = Count::default();
    messages(None, &mut count).unwrap();
    count.tell("messages");
    for rule in [Rule::Message, Rule::Vector] {
        assert!(messages(Some(rule), &mut Count::default()).is_err(), "{rule:?}");
    }
}

/// Accesses to the configuration space with a rule left out; the first that breaks the law.
fn accesses(rule: Option<Rule>, count: &mut Count) -> Result<(), String> {
    let values = [None, Some(0), Some(u32::MAX), Some(0x5555_5555), Some(0xAAAA_AAAA), Some(1)];
    for offset in 0..0x1000 {
        for (size, write) in (0..=9).flat_map(|size| values.map(|write| (size, write))) {
            for old in [0, u32::MAX, 0x1234_5678] {
                let law = msi::accessed(offset, size, write, old, rule);
                let what = || format!("{size} bytes at {offset:#x}, {write:x?} over {old:#x}");
                law.map_err(|why| format!("{}: {why}", what()))?;
                count.take(what, law);
            }
        }
    }
    Ok(())
}

#[test]
fn configuration() {
    let mut count = Count::default();
    accesses(None, &mut count).unwrap();
    count.tell("configuration");
    for rule in [Rule::Form, Rule::Unnamed] {
        assert!(accesses(Some(rule), &mut Count::default()).is_err(), "{rule:?}");
    }
}
