//! A Linux's ends of channels as PCI functions (ivshmem version 2). Their configuration and register pages are baked,
//! and their few writable registers are mediated as those of any function.

use crate::pages::Pages;
use crate::pci::{self, Described, Shadow};
use bulkhead_layout::PAGE;
use bulkhead_layout::ivshmem::*;
use bulkhead_layout::map::{FUNCTION_STRIDE, FUNCTIONS_VA, MMIO_VA};
use bulkhead_layout::pci::Reset;
use bulkhead_plan::{
    Bar, BarKind, Channel, End, Function, Granted, Guest, Msix, Place, Plan, Span,
};

/// Where the capabilities are.
const SHARED_AT: usize = 0x40;
/// The one that names the channel.
pub const NAMED_AT: usize = 0x60;
const MSIX_AT: usize = 0x98;
const _: () = assert!(NAMED_AT + NAMED_LEN <= MSIX_AT);
/// MSI-X (PCI 3.0, 6.8.2): the table is at the start of BAR 1, the pending bits here.
const MSIX: u8 = 0x11;
const PENDING: u64 = 0x800;
/// No interrupt controller has this line, so nothing comes by it.
const NO_LINE: u32 = u32::MAX;

/// The pages that an end's monitor maps, beside the peers' states.
pub struct Made {
    /// Its configuration.
    pub config: u64,
    /// Its registers.
    pub registers: u64,
    /// The peers' states.
    pub states: u64,
}

/// A page with the states of a channel's peers, before anybody runs. A guest that has no state register is
/// shown as 1: that it begins and ends shows in the channel's own words.
pub fn states(pages: &mut Pages, plan: &Plan, region: &Channel) -> u64 {
    let state = |peer: &usize| match plan.sandboxes[*peer].guest {
        Guest::Linux { .. } | Guest::Running => 0u32,
        _ => 1,
    };
    let all = bulkhead_plan::peers(region);
    pages.put(&all.iter().map(state).flat_map(u32::to_le_bytes).collect::<Vec<_>>())
}

/// Bakes the `n`th end of a sandbox, and describes it to its monitor.
pub fn bake(
    pages: &mut Pages,
    plan: &Plan,
    (n, own): (usize, &End),
    states: u64,
    shadow: &mut Shadow,
) -> (Made, Described) {
    let made = Made {
        config: pages.put(&configuration(plan, own)),
        registers: pages.put(&registers(own)),
        states,
    };
    (made, described(n, own, shadow))
}

/// The `n`th end of a sandbox as its monitor knows it; its words of shadow are taken.
pub fn described(n: usize, own: &End, shadow: &mut Shadow) -> Described {
    let mut described = pci::own(&granted(own), shadow, PAGE);
    // It is memory: what hardware would keep by itself is written as it was.
    described.registers.iter_mut().for_each(|r| r.hold |= !r.write);
    let at = FUNCTIONS_VA + n as u64 * FUNCTION_STRIDE;
    let function = &mut described.function;
    function.bdf = u32::from(own.bdf.0);
    function.config_va = at;
    (function.trap, function.trap_len) = (own.registers, own.pages());
    function.end = at + PAGE - MMIO_VA;
    function.state = at + 2 * PAGE - MMIO_VA + 4 * u64::from(own.id);
    function.bell = own.rings.map_or(0, |bell| bell.number + 1);
    // Messages have two ends.
    function.peer = u16::from(own.id == 0);
    if let Some(woken) = own.woken {
        (function.msix, function.line) =
            (MSIX_AT as u16, woken.pin.map_or(NO_LINE, |pin| pin.line));
        function.woken = woken.bell.nth + 1;
    }
    let zero = |at| Reset { at, kind: Reset::STORE, size: 4, ..Reset::default() };
    let (registers, state) = (function.end, function.state);
    let all = [state, registers + STATE, registers + CONTROL];
    described.resets.extend(all.map(zero));
    described
}

/// The function as if the machine had it.
fn granted(own: &End) -> Granted {
    let memory = |wide| BarKind::Memory { wide, prefetchable: wide };
    let registers = Span { start: own.registers, len: PAGE };
    let mut bars = vec![
        Bar { number: 0, kind: memory(false), span: registers },
        Bar { number: 2, kind: memory(true), span: own.memory },
    ];
    let mut function = Function { bdf: own.bdf, ..Function::default() };
    if let Some(woken) = own.woken {
        let table = registers.end();
        bars.push(Bar { number: 1, kind: memory(false), span: Span { start: table, len: PAGE } });
        function.pin = woken.pin.map_or(0, |pin| pin.number);
        function.msix = Some(Msix { at: MSIX_AT as u8, vectors: 1, table, pba: table + PENDING });
    }
    function.bars = bars;
    Granted {
        function,
        unconfined: false,
        line: own.pin().is_some(),
        role: None,
        place: Place::default(),
    }
}

/// Its configuration: what the specification asks for, then a capability that says which channel it is.
fn configuration(plan: &Plan, own: &End) -> Vec<u8> {
    const CAPABILITIES: u32 = 1 << 20;
    const SEVERAL_FUNCTIONS: u32 = 1 << 23;
    // Always: a driver of the line asks whether the interrupt was this function's.
    const INTERRUPT: u32 = 1 << 19;
    let region = &plan.channels[own.region];
    let shape = region.part.shape();
    let carries = shape.map_or(0, |shape| shape.kind() as u32);
    let mut page = vec![0; PAGE as usize];
    let mut put = |at: usize, value: u32| page[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(0x00, IDS);
    let woken = own.woken.is_some();
    put(0x04, CAPABILITIES | if own.pin().is_some() { INTERRUPT } else { 0 });
    put(0x08, 0xFF << 24 | (PROTOCOL + carries) << 8);
    put(0x0C, if own.more { SEVERAL_FUNCTIONS } else { 0 });
    put(0x2C, PROVIDER);
    put(0x34, SHARED_AT as u32);
    let capability =
        |next: usize, len: usize| u32::from(VENDOR_SPECIFIC) | (next << 8 | len << 16) as u32;
    put(SHARED_AT, capability(NAMED_AT, SHARED_LEN));
    put(SHARED_AT + TABLE_SIZE, PAGE as u32);
    put(SHARED_AT + SECTION_SIZE, region.len as u32);
    put(SHARED_AT + SECTION_SIZE + 4, (region.len >> 32) as u32);
    put(NAMED_AT, capability(if woken { MSIX_AT } else { 0 }, NAMED_LEN));
    put(NAMED_AT + NAMED, MAGIC);
    put(NAMED_AT + MESSAGES, carries);
    put(NAMED_AT + MESSAGE, shape.map_or(0, |shape| shape.message()));
    put(NAMED_AT + NOTIFY, plan.bell(own.region).map_or(0, |bell| bell.told(own.id == 0)));
    if woken {
        // One entry, in BAR 1.
        put(MSIX_AT, u32::from(MSIX));
        put(MSIX_AT + 4, 1);
        put(MSIX_AT + 8, PENDING as u32 | 1);
    }
    let name = &region.name.as_bytes()[..region.name.len().min(bulkhead_layout::info::NAME - 1)];
    page[NAMED_AT + NAME..][..name.len()].copy_from_slice(name);
    page
}

/// The page of its registers as a guest reads it.
fn registers(own: &End) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    for (at, value) in [(ID, own.id), (PEERS, own.peers.len() as u32)] {
        page[at as usize..at as usize + 4].copy_from_slice(&value.to_le_bytes());
    }
    page
}
