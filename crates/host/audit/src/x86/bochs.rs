//! Reads registers out of Bochs' debugger. It shows each by a path of parameters (`show "cpu0.CR3"`), the VMCS pointer
//! among them, and the IOAPIC and the two 8259A as devices.

use super::registers::{self as own, Ioapic, Units};
use crate::arch::Ask;
use crate::registers::{Core, Registers};

/// Activity of a core that runs; others halt, wait for a start-up IPI, or are shut down.
const ACTIVE: u64 = 0;
/// Answer for a parameter that the machine lacks: a core beyond the last one.
const MISSING: &str = "can't find param";

/// Asks a stopped machine.
///
/// # Errors
/// An answer that cannot be read.
pub fn registers(ask: &mut Ask) -> Result<Registers, String> {
    let mut cores = vec![core(ask, 0)?];
    while !ask(&show(cores.len(), "RIP"))?.contains(MISSING) {
        cores.push(core(ask, cores.len())?);
    }
    let ioapic = ioapic(&ask("info device \"ioapic\"")?);
    let pic_masks = pic(&ask("info device \"pic\"")?);
    Ok(Registers { cores, own: Units { ioapic, pic_masks, ..Units::default() } })
}

fn show(core: usize, name: &str) -> String {
    format!("show \"cpu{core}.{name}\"")
}

fn core(ask: &mut Ask, number: usize) -> Result<Core, String> {
    let mut value = |name: &str| {
        let command = show(number, name);
        let said = ask(&command)?;
        last(&said, name).ok_or_else(|| format!("{command}: no value: {said}"))
    };
    Ok(Core {
        number,
        pc: value("RIP")?,
        root: value("CR3")?,
        halted: value("activity_state")? != ACTIVE,
        own: own::Core {
            cs_base: value("CS.base")?,
            cr0: value("CR0")?,
            cr4: value("CR4")?,
            efer: value("MSR.EFER")?,
            // All ones: there is none.
            vmcs: Some(value("VMX.vmcsptr")?).filter(|at| at & 0xFFF == 0),
            ..own::Core::default()
        },
        ..Core::default()
    })
}

/// Value behind the last part of a name, hexadecimal or decimal.
fn last(said: &str, name: &str) -> Option<u64> {
    let name = name.rsplit('.').next()?;
    let line = said
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix('='));
    number(line?.trim())
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Redirection entries, each as its fields: `entry[4]: dest=01, masked=0, trig_mode=0, remote_irr=0, polarity=0,
/// delivery_status=0, dest_mode=0, delivery_mode=0, vector=30`. Destination and vector are hexadecimal.
fn ioapic(said: &str) -> Option<Ioapic> {
    let entries = said.lines().filter_map(|line| {
        let fields = line.trim().strip_prefix("entry[")?.split_once("]: ")?.1;
        let field = |name: &str, radix| {
            let of = |f: &str| f.trim().strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
            u64::from_str_radix(&fields.split(',').find_map(of)?, radix).ok()
        };
        Some(
            field("dest", 16)? << 56
                | field("masked", 10)? << 16
                | field("trig_mode", 10)? << 15
                | field("dest_mode", 10)? << 11
                | field("delivery_mode", 10)? << 8
                | field("vector", 16)?,
        )
    });
    let entries: Vec<_> = entries.collect();
    (!entries.is_empty()).then_some(Ioapic { entries })
}

/// Masks of both: `master IMR = ff`, `slave IMR = ff`.
fn pic(said: &str) -> Option<[u8; 2]> {
    let mask = |name: &str| {
        let value = said.lines().find_map(|line| line.trim().strip_prefix(name))?;
        u8::from_str_radix(value.trim_start_matches([' ', '=']), 16).ok()
    };
    Some([mask("master IMR")?, mask("slave IMR")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Bochs 2.7 says it.
    fn debugger(command: &str) -> Result<String, String> {
        let value = match command {
            "info device \"ioapic\"" => {
                let entry = |n, masked, level, vector| {
                    format!(
                        "entry[{n}]: dest=02, masked={masked}, trig_mode={level}, remote_irr=0, \
                         polarity=0, delivery_status=0, dest_mode=0, \
                         delivery_mode=1, vector={vector}\n"
                    )
                };
                return Ok("IOAPIC\n".to_owned() + &entry(0, 1, 0, "00") + &entry(1, 0, 1, "3f"));
            }
            "info device \"pic\"" => {
                return Ok(
                    "i8259A PIC\n\nmaster IMR = ff\nmaster ISR = 00\nslave IMR = fe\n".into()
                );
            }
            c if c.contains("cpu2") => return Ok(format!("{MISSING} <x> in CPU tree\n")),
            c if c.contains("activity_state") => "0",
            c if c.contains("cpu1.VMX.vmcsptr") => "0xffffffffffffffff",
            c if c.contains("vmcsptr") => "0x12345000",
            _ => "0x1000",
        };
        let name = command.trim_end_matches('"').rsplit('.').next().unwrap_or_default();
        Ok(format!("show param name: <{name}>\n{name} = {value}\n"))
    }

    #[test]
    fn registers_are_read_as_the_debugger_prints_them() {
        let all = registers(&mut debugger).expect("all of them");
        let vmcs: Vec<_> = all.cores.iter().map(|core| core.own.vmcs).collect();
        assert_eq!(vmcs, [Some(0x1234_5000), None]);
        assert_eq!(
            (all.cores[1].number, all.cores[1].root, all.cores[1].halted),
            (1, 0x1000, false)
        );
        let entries = all.own.ioapic.expect("an IOAPIC").entries;
        assert_eq!(entries, [2 << 56 | 1 << 16 | 1 << 8, 2 << 56 | 1 << 15 | 1 << 8 | 0x3F]);
        assert_eq!(all.own.pic_masks, Some([0xFF, 0xFE]));
        let lost = registers(&mut |_| Ok(MISSING.into()));
        assert!(lost.is_err_and(|why| why.contains("cpu0.RIP")));
    }
}
