//! Functions for the tests.

use bulkhead_plan::{
    Bar, BarKind, Bdf, Bridge, Function, Granted, Machine, Msix, PciRoot, Place, Span,
};

pub fn function(bdf: u16) -> Function {
    Function {
        bdf: Bdf(bdf),
        vendor: 0x1AF4,
        device: 0x1042,
        class: 0x01_0000,
        ..Function::default()
    }
}

pub fn grant(function: Function, line: bool) -> Granted {
    Granted { function, unconfined: false, line, role: None, place: Place::default() }
}

pub fn memory(number: u8, wide: bool, start: u64, len: u64) -> Bar {
    let kind = BarKind::Memory { wide, prefetchable: wide };
    Bar { number, kind, span: Span { start, len } }
}

pub fn io(number: u8, start: u64, len: u64) -> Bar {
    Bar { number, kind: BarKind::Io, span: Span { start, len } }
}

pub fn msix(at: u8, vectors: u16, table: u64) -> Option<Msix> {
    Some(Msix { at, vectors, table, pba: table + 0x800 })
}

pub fn machine(functions: Vec<Function>) -> Machine {
    let pci = Some(PciRoot { ecam: 0xB000_0000, last_bus: 255, ..PciRoot::default() });
    Machine { pci, functions, ..Machine::default() }
}

pub fn port(bdf: u16, bridge: Bridge) -> Function {
    let bars = vec![memory(0, false, 0xFEB0_0000, 0x1000)];
    Function { bridge: Some(bridge), nobody: Some("it forwards".into()), bars, ..function(bdf) }
}
