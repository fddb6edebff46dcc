//! Root's attacks in a Linux sandbox with a channel's end on the others. For each attack it prints
//! `expected KIND ADDRESS` (a denial) or `expected harmless VALUE`, then `got VALUE`. The last one ends the guest.

use bulkhead_layout::ivshmem;
use bulkhead_linux::channel::{Channel, named};
use bulkhead_linux::devmem::Registers;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Where a guest has configuration space.
const ECAM: u64 = bulkhead_layout::map::ECAM_GPA;
/// Registers, as offsets in their page.
const CONTROL: usize = ivshmem::CONTROL as usize;
const DOORBELL: usize = ivshmem::DOORBELL as usize;
const STATE: usize = ivshmem::STATE as usize;

/// Makes one; `act` gives a value that can be read afterwards.
fn attack(name: &str, expected: &str, act: impl FnOnce() -> io::Result<u64>) {
    println!("bhattack: {name}: expected {expected}");
    match act() {
        Ok(value) => println!("bhattack: {name}: got harmless {value:#x}"),
        Err(why) => println!("bhattack: {name}: got {why}"),
    }
}

/// An end and where the guest sees it.
struct Own {
    channel: Channel,
    config: File,
    at: u64,
    registers: u64,
    memory: u64,
}

impl Own {
    fn open(name: &str) -> io::Result<Self> {
        let end = named(name)?.remove(0);
        let config = OpenOptions::new().read(true).write(true).open(end.path.join("config"))?;
        let wrong = || io::Error::other(format!("`{}` is no function", end.address()));
        // 0000:BB:DD.F
        let hex = |from: usize, to: usize| {
            let digits = end.address().get(from..to).ok_or_else(wrong)?;
            u64::from_str_radix(digits, 16).map_err(|_| wrong())
        };
        let at = ECAM + (hex(5, 7)? << 20 | hex(8, 10)? << 15 | hex(11, 12)? << 12);
        let mut own = Self { channel: end.open()?, config, at, registers: 0, memory: 0 };
        own.registers = own.read(0x10)? & !0xF;
        own.memory = own.read(0x18)? & !0xF;
        Ok(own)
    }

    fn read(&self, offset: u64) -> io::Result<u64> {
        let mut bytes = [0; 4];
        self.config.read_exact_at(&mut bytes, offset)?;
        Ok(u32::from_le_bytes(bytes).into())
    }

    fn configure(&self, offset: u64, bytes: &[u8]) -> io::Result<u64> {
        self.config.write_all_at(bytes, offset)?;
        self.read(offset & !3)
    }
}

/// All of them on each end, and then the one that ends the guest.
pub fn all(names: &[&str]) -> io::Result<()> {
    let mut last = None;
    for name in names {
        let own = Own::open(name)?;
        configuration(&own)?;
        registers(&own);
        if own.channel.id() != 0 && own.channel.end().doorbell.is_some() {
            interrupts(&own)?;
        }
        last = Some(own);
    }
    let own = last.ok_or(io::ErrorKind::InvalidInput)?;
    // The last one: nothing comes after it.
    attack("write-states", &format!("memory-violation {:#x}", own.memory), || {
        own.channel.memory().set32(0, 0xBAD);
        Ok(0)
    });
    Ok(())
}

/// Base addresses stay; everything that is no register of a guest's stays, too.
fn configuration(own: &Own) -> io::Result<()> {
    let denied = |offset: u64| format!("device-violation {:#x}", own.at + offset);
    let word = |value: u32| value.to_le_bytes();
    for (name, offset, value) in [
        ("bar-registers", 0x10, 0x4000_0000),
        ("bar-onto-lapic", 0x10, 0xFEE0_0000),
        ("bar-memory", 0x18, 0x0010_0000),
        ("bar-memory-upper", 0x1C, 1),
    ] {
        attack(name, &denied(offset), || own.configure(offset, &word(value)));
    }
    for (name, offset) in [
        ("config-ids", 0x00),
        ("config-class", 0x08),
        ("config-header", 0x0C),
        ("config-rom", 0x30),
        ("config-capability", 0x40),
        ("config-section-size", 0x50),
        ("config-name", 0x70),
    ] {
        let now = own.read(offset)?;
        attack(name, &format!("harmless {now:#x}"), || own.configure(offset, &word(!now as u32)));
    }
    Ok(())
}

/// Registers by other widths than 32 bits, and offsets that are none.
fn registers(own: &Own) {
    let page = own.channel.registers();
    let denied = |offset: usize| format!("device-violation {:#x}", own.registers + offset as u64);
    attack("state-by-8", &denied(STATE), || {
        page.set8(STATE, 1);
        Ok(page.get32(STATE).into())
    });
    attack("state-by-16", &denied(STATE + 2), || {
        page.set16(STATE + 2, 1);
        Ok(page.get32(STATE).into())
    });
    attack("state-by-64", &denied(STATE), || {
        page.set64(STATE, u64::MAX);
        Ok(page.get32(STATE).into())
    });
    for (name, offset, value) in [
        ("id", 0, own.channel.id()),
        ("peers", 4, own.channel.peers()),
        ("control-reserved", CONTROL, 1),
        ("doorbell-of-nobody", DOORBELL, 0),
        ("no-register", 0x14, 0),
        ("end-of-page", 0xFFC, 0),
    ] {
        attack(name, &format!("harmless {value:#x}"), || {
            page.set32(offset, u32::MAX);
            Ok(page.get32(offset).into())
        });
    }
    // The own entry of the state table follows, whatever the value.
    attack("state", "harmless 0xffffffff", || {
        page.set32(STATE, u32::MAX);
        Ok(own.channel.state_of(own.channel.id()).into())
    });
}

/// Interrupts of a receiver: nothing is sent where its table or its control register has no interrupt.
fn interrupts(own: &Own) -> io::Result<()> {
    const TABLE: u64 = 0x1000;
    const PENDING: usize = 0x800;
    /// Core 0 is another sandbox's; this one's is core 1.
    const OWN: u32 = 0xFEE0_1000;
    const FOREIGN: u32 = 0xFEE0_0000;
    const ALL: u32 = 0xFEEF_F000;
    let msix = msix(own)?;
    let path = own.channel.end().path.join("resource1");
    let table = Registers::map(&path.display().to_string(), 0, 0x1000)?;
    let at = own.registers + TABLE;
    let control = |value: u16| own.config.write_all_at(&value.to_le_bytes(), msix + 2);
    own.channel.registers().set32(CONTROL, 1);
    control(1 << 15)?;
    for (name, address, upper, data) in [
        ("message-foreign-core", FOREIGN, 0, 0x41),
        ("message-all-cores", ALL, 0, 0x41),
        ("message-low-vector", OWN, 0, 0x0F),
        ("message-nmi", OWN, 0, 0x441),
        ("message-level", OWN, 0, 0x8041),
        ("message-logical", OWN | 1 << 2, 0, 0x41),
        ("message-to-memory", 0x0010_1000, 0, 0x41),
        ("message-upper", OWN, 1, 0x41),
    ] {
        [address, upper, data].iter().enumerate().for_each(|(n, word)| table.set32(4 * n, *word));
        // Opening it is denied; it reads as it was written.
        attack(name, &format!("device-violation {:#x}", at + 12), || {
            table.set32(12, 0);
            Ok(0)
        });
        table.set32(12, 1);
    }
    attack("table-by-8", &format!("device-violation {at:#x}"), || {
        table.set8(0, 0);
        Ok(0)
    });
    attack("table-by-16", &format!("device-violation {:#x}", at + 8), || {
        table.set16(8, 0x41);
        Ok(0)
    });
    attack("pending-bits", "harmless 0x0", || {
        table.set32(PENDING, u32::MAX);
        Ok(table.get32(PENDING).into())
    });
    attack("behind-the-table", "harmless 0x0", || {
        table.set32(0x10, u32::MAX);
        Ok(table.get32(0x10).into())
    });
    // Wrong before it is switched on: denied then.
    control(0)?;
    [FOREIGN, 0, 0x41, 0].iter().enumerate().for_each(|(n, word)| table.set32(4 * n, *word));
    attack("msix-on-foreign-core", &format!("device-violation {:#x}", own.at + msix + 2), || {
        control(1 << 15)?;
        Ok(0)
    });
    control(0)
}

/// Where its MSI-X capability is.
fn msix(own: &Own) -> io::Result<u64> {
    const MSIX: u64 = 0x11;
    let mut at = own.read(0x34)? & 0xFF;
    for _ in 0..48 {
        let word = own.read(at)?;
        if word & 0xFF == MSIX {
            return Ok(at);
        }
        at = word >> 8 & 0xFF;
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "no MSI-X"))
}
