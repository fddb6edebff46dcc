//! Reads what QEMU's human monitor prints. It has no other way to these registers:
//! reading an IOAPIC through its window would write its index.

use super::registers::{Ioapic, Iommu, Units, Vtd};
use crate::arch::Ask;
use crate::registers::{Core, Registers};

/// Offsets of IOMMU registers that matter (IOMMU specification, 3.4).
const IOMMU: [u64; 6] = [0x00, 0x08, 0x10, 0x18, 0x20, 0x28];
/// PCI capability of an IOMMU (3.2.1).
const SECURE_DEVICE: u64 = 0x0F;

/// Where a machine's IOMMU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Where bus 0's configuration space is, and an AMD IOMMU's function.
    Amd(u64, u16),
    /// The address of a VT-d unit's registers.
    Vtd(u64),
}

/// Asks a stopped machine.
///
/// # Errors
/// An answer that cannot be read.
pub fn registers(ask: &mut Ask, unit: Option<Unit>) -> Result<Registers, String> {
    let cores = cores(&ask("info registers -a")?)?;
    let (ioapic, pic_masks) = lines(&ask("info pic")?);
    let (mut iommu, mut vtd) = (None, None);
    match unit {
        Some(Unit::Amd(ecam, bdf)) => {
            iommu = Some(self::iommu(ask, ecam + (u64::from(bdf) << 12))?);
        }
        Some(Unit::Vtd(base)) => vtd = Some(self::vtd(ask, base)?),
        None => {}
    }
    Ok(Registers { cores, own: Units { ioapic, pic_masks, iommu, vtd } })
}

fn hex(text: &str) -> Option<u64> {
    let digits = text.trim_start_matches("0x");
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], 16).ok()
}

/// `info registers -a`.
fn cores(text: &str) -> Result<Vec<Core>, String> {
    let mut out: Vec<Core> = Vec::new();
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("CPU#") {
            let number = number.trim().parse().map_err(|_| format!("no core's number: {line}"))?;
            out.push(Core { number, ..Core::default() });
            continue;
        }
        let Some(core) = out.last_mut() else {
            continue;
        };
        // `CS =0010 0000000000000000 ffffffff 00af9b00`: selector, base, limit, attributes.
        if let Some(base) = line.strip_prefix("CS =").and_then(|l| l.split_whitespace().nth(1)) {
            core.own.cs_base = hex(base).unwrap_or(0);
        }
        for word in line.split_whitespace() {
            let Some((name, value)) = word.split_once('=') else {
                continue;
            };
            let to = match name {
                "RIP" | "EIP" => &mut core.pc,
                "CR0" => &mut core.own.cr0,
                "CR3" => &mut core.root,
                "CR4" => &mut core.own.cr4,
                "EFER" => &mut core.own.efer,
                "HLT" => {
                    core.halted = value.starts_with('1');
                    continue;
                }
                _ => continue,
            };
            *to = hex(value).ok_or_else(|| format!("CPU {}: {word}", core.number))?;
        }
    }
    if out.is_empty() { Err(format!("no core in {text:?}")) } else { Ok(out) }
}

/// `info pic`: the IOAPIC's entries and both masks.
fn lines(text: &str) -> (Option<Ioapic>, Option<[u8; 2]>) {
    let mut entries = Vec::new();
    let mut masks = [None; 2];
    for line in text.lines() {
        for (n, name) in ["pic0:", "pic1:"].into_iter().enumerate() {
            let mask = line.strip_prefix(name).and_then(|l| l.split_once("imr="));
            if let Some(value) = mask.and_then(|(_, v)| hex(v)) {
                masks[n] = u8::try_from(value).ok();
            }
        }
        let pin = line.trim_start().strip_prefix("pin ").map(str::split_whitespace);
        if let Some(mut words) = pin
            && words.next().is_some_and(|n| n.parse() == Ok(entries.len()))
            && let Some(entry) = words.next().and_then(hex)
        {
            entries.push(entry);
        }
    }
    let ioapic = (!entries.is_empty()).then_some(Ioapic { entries });
    (ioapic, masks[0].zip(masks[1]).map(|(a, b)| [a, b]))
}

/// A 32-bit word of configuration space or of a device.
fn word(ask: &mut Ask, address: u64) -> Result<u64, String> {
    let answer = ask(&format!("xp /1wx {address:#x}"))?;
    let value = answer.split_once(": ").and_then(|(_, v)| hex(v.trim()));
    value.ok_or_else(|| format!("QEMU's answer to xp {address:#x}: {answer:?}"))
}

/// The IOMMU's registers, where its PCI capability says that they are.
fn iommu(ask: &mut Ask, configuration: u64) -> Result<Iommu, String> {
    let mut at = word(ask, configuration + 0x34)? & 0xFC;
    // At most 48 capabilities fit.
    for _ in 0..48 {
        if at == 0 {
            break;
        }
        let head = word(ask, configuration + at)?;
        if head & 0xFF == SECURE_DEVICE {
            let low = word(ask, configuration + at + 4)?;
            let high = word(ask, configuration + at + 8)?;
            // Bits 31:14 of the address; bit 0 switches the decoder on.
            let base = high << 32 | low & 0xFFFF_C000;
            let mut values = [0; 6];
            for (value, offset) in values.iter_mut().zip(IOMMU) {
                *value = word(ask, base + offset)? | word(ask, base + offset + 4)? << 32;
            }
            let [device_table, command_buffer, event_log, control, exclusion_base, exclusion_limit] =
                values;
            return Ok(Iommu {
                base,
                device_table,
                command_buffer,
                event_log,
                control,
                exclusion_base,
                exclusion_limit,
            });
        }
        at = head >> 8 & 0xFC;
    }
    Err(format!("the function at {configuration:#x} has no IOMMU's capability"))
}

/// A VT-d unit's registers (VT-d specification, 11.4). Reading them has no effect.
fn vtd(ask: &mut Ask, base: u64) -> Result<Vtd, String> {
    let mut wide =
        |offset| Ok::<_, String>(word(ask, base + offset)? | word(ask, base + offset + 4)? << 32);
    let [capabilities, extended, root, queue, interrupts] =
        [wide(0x08)?, wide(0x10)?, wide(0x20)?, wide(0x90)?, wide(0xB8)?];
    let (status, protected) = (word(ask, base + 0x1C)?, word(ask, base + 0x64)?);
    Ok(Vtd { base, capabilities, extended, status, root, protected, queue, interrupts })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTERS: &str = "\r\nCPU#0\r\nRAX=0000000000000000 RBX=ffff8dd58141fe40\r\n\
        RIP=ffffffffb1852a4c RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0\r\n\
        CS =0010 0000000000000000 ffffffff 00af9b00 DPL=0 CS64 [-RA]\r\n\
        CR0=80050033 CR2=ffff8dd599401000 CR3=0000000018422000 CR4=003506b0\r\n\
        EFER=0000000000001d01\r\n\r\nCPU#1\r\nEIP=0000fff0 EFL=00000002 SMM=0 HLT=1\r\n\
        CS =f000 ffff0000 0000ffff 00009b00\r\nCR0=60000010 CR2=0 CR3=0 CR4=0\r\n";

    #[test]
    fn cores_are_read() {
        let cores = cores(REGISTERS).expect("two cores");
        let first = &cores[0];
        assert_eq!((first.pc, first.root), (0xFFFF_FFFF_B185_2A4C, 0x1842_2000));
        assert_eq!(
            (first.own.cr0, first.own.cr4, first.own.efer),
            (0x8005_0033, 0x35_06B0, 0x1D01)
        );
        assert_eq!((cores[1].pc, cores[1].own.cs_base), (0xFFF0, 0xFFFF_0000));
        assert_eq!((first.halted, cores[1].halted, cores[1].number), (false, true, 1));
        assert!(super::cores("nothing").is_err());
        assert!(super::cores("CPU#0\nCR3=zz\n").is_err());
    }

    #[test]
    fn lines_are_read() {
        let text = "pic1: irr=00 imr=fe isr=00\npic0: irr=19 imr=ff isr=00 hprio=0\n\
            ioapic0: ver=0x20 id=0x00 sel=0x3e (redir[23])\n\
            \x20 pin 0  0x0000000000010000 dest=0 vec=0   active-hi edge  masked fixed  physical\n\
            \x20 pin 1  0x0300000000008031 dest=3 vec=49  active-hi level        fixed  physical\n";
        let (ioapic, masks) = lines(text);
        assert_eq!(ioapic.expect("one").entries, [0x1_0000, 0x0300_0000_0000_8031]);
        assert_eq!(masks, Some([0xFF, 0xFE]));
        assert_eq!(lines("pic0: imr=ff"), (None, None));
    }

    #[test]
    fn an_iommu_is_found_by_its_capability() {
        let mut asked = Vec::new();
        let mut ask = |command: &str| {
            let at = hex(command.rsplit(' ').next().unwrap_or("")).expect("an address");
            asked.push(at);
            let value = match at {
                0xB001_8034 => 0x40,
                0xB001_8040 => 0x0000_5405u32,
                0xB001_8054 => 0x190B_640F,
                0xB001_8058 => 0xFED8_0001,
                0xFED8_0000 => 0x0200_0001,
                0xFED8_0004 => 1,
                0xFED8_0018 => 5,
                _ => 0,
            };
            Ok(format!("{at:016x}: {value:#010x}\r\n"))
        };
        let iommu = iommu(&mut ask, 0xB001_8000).expect("an IOMMU");
        assert_eq!((iommu.base, iommu.device_table), (0xFED8_0000, 0x1_0200_0001));
        assert_eq!(iommu.control, 5);
        // Nothing is read beyond the registers that matter: reading may have effects.
        assert!(asked.iter().all(|a| *a < 0xFED8_0030), "{asked:x?}");
        let mut none = |_: &str| Ok("0: 0x00000000".to_owned());
        assert!(super::iommu(&mut none, 0xB001_8000).is_err());
    }

    #[test]
    fn a_vtd_unit_is_read_where_it_is_said_to_be() {
        let mut ask = |command: &str| {
            let at = hex(command.rsplit(' ').next().unwrap_or("")).expect("an address");
            let value = match at {
                0xFED9_001C => 0xC700_0000u32,
                0xFED9_0020 => 0x0109_2000,
                0xFED9_0024 => 1,
                0xFED9_0064 => 1,
                0xFED9_0090 => 0x0109_3000,
                0xFED9_00B8 => 0x0109_480B,
                0xFED9_0008..0xFED9_0018 | 0xFED9_0094 | 0xFED9_00BC => 0,
                // Reading any other register may have an effect.
                _ => panic!("{at:#x} is read"),
            };
            Ok(format!("{at:016x}: {value:#010x}\r\n"))
        };
        let unit = vtd(&mut ask, 0xFED9_0000).expect("a unit");
        assert_eq!((unit.base, unit.status, unit.root), (0xFED9_0000, 0xC700_0000, 0x1_0109_2000));
        assert_eq!((unit.protected, unit.queue, unit.interrupts), (1, 0x0109_3000, 0x0109_480B));
        assert!(vtd(&mut |_: &str| Ok("nothing".to_owned()), 0xFED9_0000).is_err());
    }
}
