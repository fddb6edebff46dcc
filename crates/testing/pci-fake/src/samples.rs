//! Functions of all kinds.

use bulkhead_plan::{
    Bar, BarKind, Bdf, Bridge, Function, Granted, Msi, Msix, Place, Pm, ResetStep, Resettable, Span,
};

const fn memory(wide: bool, prefetchable: bool) -> BarKind {
    BarKind::Memory { wide, prefetchable }
}

const fn bar(number: u8, kind: BarKind, start: u64, len: u64) -> Bar {
    Bar { number, kind, span: Span { start, len } }
}

fn none() -> Function {
    Function {
        bdf: Bdf(0x0018),
        vendor: 0x1234,
        device: 0x5678,
        class: 0x02_0000,
        ..Function::default()
    }
}

/// A PCI Express function with everything; its MSI-X table shares a page with other
/// registers.
fn express() -> Function {
    Function {
        bars: vec![
            bar(0, memory(true, true), 0xC0_6000_0000, 0x1_0000),
            bar(2, BarKind::Io, 0xC040, 0x20),
            bar(3, memory(false, false), 0xFEB0_4000, 0x1000),
        ],
        pm: Some(Pm { at: 0x40, resets: true }),
        msi: Some(Msi { at: 0x50, wide: true, masks: true }),
        msix: Some(Msix { at: 0x70, vectors: 5, table: 0xFEB0_4800, pba: 0xFEB0_4C00 }),
        pcie: Some(Resettable { at: 0x80, flr: true }),
        ..none()
    }
}

/// A conventional one with its interrupt line and ports; nothing resets it.
fn conventional() -> Function {
    Function {
        bars: vec![
            bar(4, BarKind::Io, 0xD040, 0x20),
            bar(5, memory(false, true), 0xFEB0_7000, 0x800),
        ],
        msi: Some(Msi { at: 0x80, wide: false, masks: false }),
        pm: Some(Pm { at: 0x70, resets: false }),
        ..none()
    }
}

/// A large BAR above 4 GiB with an MSI-X table that takes two pages and begins amid one; reset by advanced features.
fn large() -> Function {
    Function {
        bars: vec![bar(0, memory(true, true), 0x40_0000_0000, 0x2_0000_0000)],
        msi: Some(Msi { at: 0x50, wide: false, masks: true }),
        msix: Some(Msix { at: 0x60, vectors: 40, table: 0x40_0000_1F08, pba: 0x40_0000_4000 }),
        af: Some(Resettable { at: 0x90, flr: true }),
        ..none()
    }
}

/// Reset by its power state alone; MSI-X without MSI.
fn sleeper() -> Function {
    Function {
        bars: vec![bar(1, memory(false, false), 0xFE84_0000, 0x4000)],
        pm: Some(Pm { at: 0xC8, resets: true }),
        msix: Some(Msix { at: 0xA0, vectors: 2, table: 0xFE84_0000, pba: 0xFE84_2000 }),
        pcie: Some(Resettable { at: 0xE0, flr: false }),
        ..none()
    }
}

/// Reset by nothing.
fn stubborn() -> Function {
    Function {
        bars: vec![
            bar(1, memory(false, false), 0xFEB0_1000, 0x1000),
            bar(4, memory(true, true), 0xC0_6000_0000, 0x4000),
        ],
        msix: Some(Msix { at: 0x98, vectors: 3, table: 0xFEB0_1000, pba: 0xFEB0_1800 }),
        ..none()
    }
}

/// Reset by a register of its own.
fn peculiar() -> Function {
    let at = 0xC0_6000_0014;
    Function {
        bars: vec![
            bar(1, memory(false, false), 0xFEB0_2000, 0x1000),
            bar(4, memory(true, true), 0xC0_6000_0000, 0x4000),
        ],
        msix: Some(Msix { at: 0x98, vectors: 2, table: 0xFEB0_2000, pba: 0xFEB0_2800 }),
        reset: vec![ResetStep {
            at,
            size: 1,
            write: Some(0),
            keep: 0,
            mask: 0xFF,
            value: 0,
            within: 10,
        }],
        ..none()
    }
}

/// An NVMe controller: reset by its own registers, or else by PCI. Its MSI-X table is in another page than they are.
fn controller() -> Function {
    let start = 0xC0_6000_0000;
    let step = |at, write: bool, keep, mask, value, within| {
        let (at, write) = (start + at, write.then_some(0));
        ResetStep { at, size: 4, write, keep, mask, value, within }
    };
    Function {
        class: 0x01_0802,
        bars: vec![bar(0, memory(true, false), start, 0x4000)],
        pm: Some(Pm { at: 0x60, resets: false }),
        msix: Some(Msix { at: 0x40, vectors: 5, table: start + 0x2000, pba: start + 0x3000 }),
        pcie: Some(Resettable { at: 0x80, flr: true }),
        reset: vec![
            step(0x1C, false, 0, 0b10_1111, 1, 1),
            step(0x14, true, 0xFFFF_3FFE, 1, 0, 1),
            step(0x1C, false, 0, 0b11, 0, 100),
            step(0x50, true, 0, 0b11, 0, 1),
            step(0xE14, true, 0, 0b10, 0, 1),
        ],
        ..none()
    }
}

/// One of each kind, and whether it owns its interrupt line.
#[must_use]
pub fn all() -> Vec<Granted> {
    let grant = |(function, line)| Granted {
        function,
        unconfined: false,
        line,
        role: None,
        place: Place::default(),
    };
    let all = [express(), conventional(), large(), sleeper(), stubborn(), peculiar(), controller()];
    all.into_iter().zip([false, true, false, true, false, false, false]).map(grant).collect()
}

/// A root port.
#[must_use]
pub fn bridge() -> Function {
    Function {
        class: 0x06_0400,
        bars: vec![bar(0, memory(false, false), 0xFEB0_0000, 0x1000)],
        msi: Some(Msi { at: 0x50, wide: true, masks: true }),
        pcie: Some(Resettable { at: 0x80, flr: false }),
        bridge: Some(Bridge {
            secondary: 1,
            subordinate: 2,
            acs: Some(0x148),
            ..Bridge::default()
        }),
        ..none()
    }
}
