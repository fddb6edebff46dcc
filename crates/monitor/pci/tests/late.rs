//! Messages of a function that its owner uses already: each arrives where its owner wants it, at each step.

use bulkhead_layout::pci::{Function, Register, SLOTS};
use bulkhead_pci::late::{lead, note, of_msi, open, restore, translate};
use bulkhead_pci::x86::{self, Routes};
use bulkhead_pci::{Denied, Hardware};
use proptest::prelude::*;
use std::cell::RefCell;

const MSI: u16 = 0x50;
const BAR: u16 = 0x10;
const PLACE: u32 = 0xFEB0_0000;
const CORES: [u32; 3] = [0, 2, 9];
/// Their logical names.
const NAMES: [u8; 3] = [1, 4, 8];
const VECTORS: u32 = 12;

struct Fake {
    function: Function,
    registers: Vec<Register>,
    config: RefCell<Vec<u32>>,
    table: RefCell<Vec<u32>>,
    shadow: RefCell<Vec<u32>>,
    remap: RefCell<Vec<u32>>,
}

impl Hardware for Fake {
    fn registers(&self, _: &Function) -> &[Register] {
        &self.registers
    }
    fn config(&self, _: &Function, offset: u16) -> u32 {
        self.config.borrow()[usize::from(offset) / 4]
    }
    fn set_config(&self, _: &Function, offset: u16, value: u32) {
        self.config.borrow_mut()[usize::from(offset) / 4] = value;
    }
    fn shadow(&self, word: u32) -> u32 {
        self.shadow.borrow()[word as usize]
    }
    fn set_shadow(&self, word: u32, value: u32) {
        self.shadow.borrow_mut()[word as usize] = value;
    }
    fn page(&self, address: u64, _: u8) -> u64 {
        self.table.borrow()[(address - self.function.table) as usize / 4].into()
    }
    fn set_page(&self, address: u64, _: u8, value: u64) {
        self.table.borrow_mut()[(address - self.function.table) as usize / 4] = value as u32;
    }
    fn wait(&self, _: u32, _: impl Fn() -> bool) -> bool {
        unreachable!("nothing is reset")
    }
    fn message(&self, function: &Function, wanted: [u32; 3]) -> Result<[u32; 3], Denied> {
        x86::message(self, function, wanted)
    }
    fn sends(&self, message: [u32; 3]) -> u64 {
        x86::sends(message)
    }
    fn ring(&self, _: u32) {}
    fn line(&self, _: u32) -> u64 {
        0
    }
    fn aim(&self, _: usize, _: u64) {}
}

impl Routes for Fake {
    fn owns_core(&self, id: u32) -> bool {
        CORES.contains(&id)
    }
    fn named(&self, names: u8) -> Option<u32> {
        NAMES.iter().position(|name| *name == names).map(|n| CORES[n])
    }
    fn entry(&self, _: u32, _: u8) -> u32 {
        unreachable!("the table is its own")
    }
    fn remap(&self, _: &Function, slot: usize) -> Option<u32> {
        Some(self.remap.borrow()[slot])
    }
    fn set_remap(&self, _: &Function, slot: usize, entry: u32) -> bool {
        let free = self.remap.borrow()[slot] == 0;
        if free {
            self.remap.borrow_mut()[slot] = entry;
        }
        free
    }
}

/// A core, its name in place of its ID, and a vector.
type To = (usize, bool, u8);

fn message((core, logical, vector): To) -> [u32; 3] {
    let to = if logical { NAMES[core].into() } else { CORES[core] };
    [0xFEE0_0000 | to << 12 | u32::from(logical) << 2, 0, vector.into()]
}

/// Where a message arrives; `None`: nowhere.
type Arrival = Option<(u32, u8)>;

impl Fake {
    fn new(msi: Option<To>, entries: &[(To, bool)]) -> Self {
        let function = Function {
            msi: MSI,
            msi_data: MSI + 12,
            msi_shadow: 1,
            shadow: 4,
            table: 0x9000,
            vectors: VECTORS,
            remap_va: 1 << 32,
            ..Function::default()
        };
        let bar = Register {
            offset: BAR,
            kind: Register::BAR,
            write: !0xFFF,
            keep: PLACE,
            ..Register::default()
        };
        let mut config = vec![0; 64];
        config[usize::from(BAR) / 4] = PLACE | 8;
        let first = usize::from(MSI) / 4;
        if let Some(to) = msi {
            config[first] = 1 << 16;
            config[first + 1..first + 4].copy_from_slice(&message(to));
        }
        // Bits above the data are no part of it.
        config[first + 3] |= 0xABCD_0000;
        let mut table = Vec::new();
        for n in 0..VECTORS as usize {
            let (to, masked) = entries.get(n).copied().unwrap_or(((0, false, 0), true));
            table.extend(message(to));
            table.push(u32::from(masked));
        }
        Self {
            function,
            registers: vec![bar],
            config: config.into(),
            table: table.into(),
            shadow: vec![0; 4 + 4 * VECTORS as usize].into(),
            remap: vec![0; SLOTS].into(),
        }
    }

    fn sent(&self, words: [u32; 3], remaps: bool) -> Arrival {
        if remaps {
            let entry = self.remap.borrow()[(words[2] & 0x1FF) as usize];
            return (entry & 1 != 0).then_some((entry >> 8 & 0xFF, (entry >> 16) as u8));
        }
        let to = words[0] >> 12 & 0xFF;
        let core = if words[0] & 4 != 0 { self.named(to as u8)? } else { to };
        Some((core, words[2] as u8))
    }

    fn msi(&self, remaps: bool) -> Arrival {
        let first = usize::from(MSI) / 4;
        let config = self.config.borrow();
        let words = [config[first + 1], config[first + 2], config[first + 3] & 0xFFFF];
        if config[first] & 1 << 16 != 0 { self.sent(words, remaps) } else { None }
    }

    /// Arrival of an entry's message; the error: it waits, masked.
    fn entry(&self, n: usize, remaps: bool) -> Result<Arrival, ()> {
        let words: Vec<u32> = self.table.borrow()[4 * n..4 * n + 4].to_vec();
        if words[3] & 1 != 0 {
            Err(())
        } else {
            Ok(self.sent([words[0], words[1], words[2]], remaps))
        }
    }
}

fn to() -> impl Strategy<Value = To> {
    // Few vectors, so that some are equal on two cores.
    (0..CORES.len(), any::<bool>(), 32u8..38)
}

proptest! {
    #[test]
    fn each_message_arrives_at_each_step(
        msi in proptest::option::of(to()),
        entries in proptest::collection::vec((to(), any::<bool>()), 0..VECTORS as usize),
    ) {
        let fake = Fake::new(msi, &entries);
        let f = &fake.function;
        let before = (fake.config.borrow().clone(), fake.table.borrow().clone());
        let wanted = |to: To| Some((CORES[to.0], to.2));
        let own = msi.and_then(wanted);
        prop_assert_eq!(fake.msi(false), own);
        note(&fake, f).unwrap();
        lead(&fake, f).unwrap();
        // The IOMMU may be switched on at any moment now.
        for remaps in [false, true] {
            prop_assert_eq!(fake.msi(remaps), own);
            for (n, (to, masked)) in entries.iter().enumerate() {
                let is = fake.entry(n, remaps);
                prop_assert!(is.is_err() || !masked && is == Ok(wanted(*to)), "{n} {is:?}");
            }
        }
        translate(&fake, f).unwrap();
        prop_assert_eq!(fake.msi(true), own);
        for (n, (to, masked)) in entries.iter().enumerate() {
            let right = if *masked { Err(()) } else { Ok(wanted(*to)) };
            prop_assert_eq!(fake.entry(n, true), right);
        }
        prop_assert_eq!(of_msi(&fake, f).is_some(), msi.is_some());
        restore(&fake, f);
        // MSI may get lost until the IOMMU is off, and entries wait.
        prop_assert_eq!(fake.msi(false), own);
        for n in 0..VECTORS as usize {
            prop_assert!(fake.entry(n, false).is_err());
        }
        open(&fake, f);
        let mut after = (fake.config.borrow().clone(), fake.table.borrow().clone());
        after.0[usize::from(MSI) / 4 + 3] |= before.0[usize::from(MSI) / 4 + 3] & 0xFFFF_0000;
        prop_assert_eq!(after, before);
    }
}

#[test]
fn a_moved_register_and_a_foreign_core_are_told() {
    let fake = Fake::new(Some((0, false, 40)), &[]);
    fake.set_config(&fake.function, BAR, 0xFEB0_1000);
    assert_eq!(note(&fake, &fake.function), Err(BAR));
    for (at, value) in
        [(MSI + 4, 0xFEE0_1000), (MSI + 4, 0xFEE0_5004), (MSI + 12, 0x440), (MSI + 12, 0x0F)]
    {
        let fake = Fake::new(Some((0, false, 40)), &[]);
        fake.set_config(&fake.function, at, value);
        note(&fake, &fake.function).unwrap();
        assert_eq!(lead(&fake, &fake.function), Err(Denied), "{at:#x} {value:#x}");
    }
    // A masked entry is none of a message.
    let masked = Fake::new(None, &[((1, true, 3), true)]);
    note(&masked, &masked.function).unwrap();
    assert_eq!(lead(&masked, &masked.function), Ok(()));
}
