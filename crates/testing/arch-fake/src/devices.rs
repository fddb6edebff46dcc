//! Devices of the odd machine. Its interrupt controller has a page of registers for each line, so that monitors share
//! none of it. Interrupts of lines descend from 3000 on in steps of 7. Its IOMMU knows 256 streams, the last one first.
//! Messages of a stream find their way by a table that its owner's monitor fills.
//! Tables for DMA are reversed, too: the last entry decides about the lowest address.

use crate::target::PAGE;
use bulkhead_arch::{Entry, Memory, PageFormat, Rights, TableMemory};
use bulkhead_image::space::Space;
use bulkhead_image::{Devices, Error, Grant, Pages, Route, Unit};
use bulkhead_layout::image::Range;
use bulkhead_layout::info::Info;
use bulkhead_layout::map::MMIO_VA;
use bulkhead_plan::{Bdf, Controller, Machine, Plan, Trigger};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A line, as its owner's monitor is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Line {
    /// Its registers, by a monitor's address.
    pub registers: u64,
    /// Its number.
    pub number: u32,
    /// Its interrupt.
    pub interrupt: u32,
    /// 1 if it is level-triggered.
    pub level: u64,
}

/// Interrupt of a line.
#[must_use]
pub const fn interrupt(line: u32) -> u32 {
    3000 - 7 * line
}

/// Streams that the IOMMU knows.
pub const STREAMS: u64 = 256;

/// The format of tables for DMA: 3 levels, pages at level 0 alone, bits rotated, nothing empty but all ones.
#[derive(Clone, Copy, Debug)]
pub struct FakeIo;

const ROTATED: u32 = 13;
const LEAF: u64 = 1;
const WRITE: u64 = 1 << 2;

impl PageFormat for FakeIo {
    const PAGE: u64 = PAGE;
    const LEVELS: u32 = 3;
    const LARGEST: u32 = 0;

    fn page(pa: u64, rights: Rights, _: Memory, _: u32) -> u64 {
        let write = if rights.write { WRITE } else { 0 };
        (pa | LEAF | write).rotate_left(ROTATED)
    }

    fn table(pa: u64, _: u32) -> u64 {
        pa.rotate_left(ROTATED)
    }

    fn decode(entry: u64, _: u32) -> Entry {
        let bits = entry.rotate_right(ROTATED);
        let (pa, rights) =
            (bits / PAGE * PAGE, Rights { write: bits & WRITE != 0, execute: false });
        match bits {
            u64::MAX => Entry::Empty,
            _ if bits & LEAF != 0 => Entry::Page(pa, rights, Memory::Normal),
            _ => Entry::Table(pa),
        }
    }

    fn empty() -> u64 {
        u64::MAX
    }
}

/// Tables with their entries in reverse.
struct Reversed<'a>(&'a mut Pages);

fn reversed(index: usize) -> usize {
    bulkhead_arch::entries::<FakeIo>() - 1 - index
}

impl TableMemory for Reversed<'_> {
    fn alloc(&mut self, bytes: u64) -> Option<u64> {
        self.0.alloc(bytes)
    }

    fn read(&self, pa: u64, index: usize) -> u64 {
        TableMemory::read(self.0, pa, reversed(index))
    }

    fn write(&mut self, pa: u64, index: usize, entry: u64) {
        TableMemory::write(self.0, pa, reversed(index), entry);
    }
}

/// See the module.
pub struct OddDevices;

impl Devices for OddDevices {
    type Shared = ();
    type Lines = Vec<Line>;
    type Header = Range;

    fn share(_: &mut Pages, _: &Plan) -> Option<()> {
        None
    }

    fn lines(plan: &Plan, index: usize, _: Option<()>) -> Result<Option<Vec<Line>>, Error> {
        let Some(Controller::Other { base }) = plan.machine.controller else { return Ok(None) };
        let sandbox = &plan.sandboxes[index];
        let devices = sandbox.devices.iter().filter_map(|d| Some((d.irq?, d.trigger)));
        let functions = sandbox.functions.iter().filter(|granted| granted.line);
        let functions = functions.filter_map(|f| Some((f.function.irq?, Trigger::LevelLow)));
        let line = |(number, trigger)| Line {
            registers: MMIO_VA + base + u64::from(number) * PAGE,
            number,
            interrupt: interrupt(number),
            level: u64::from(trigger != Trigger::Edge),
        };
        let all: Vec<_> = devices.chain(functions).map(line).collect();
        Ok((!all.is_empty()).then_some(all))
    }

    fn tell(lines: &Vec<Line>, info: &mut Info) {
        info.lines = lines.iter().fold(0, |set, line| set | 1 << line.number);
    }

    fn map(_: &mut Pages, _: &Plan, lines: &Vec<Line>, _: Option<()>) -> Space {
        let mut own = Space::default();
        for Line { registers, .. } in lines {
            own.device(*registers, registers - MMIO_VA, PAGE, Rights::RW, "registers of a line");
        }
        own
    }

    fn route(_: &Plan, _: Bdf) -> Result<Route, Error> {
        Ok(Route::Table)
    }

    fn tables(pages: &mut Pages, machine: &Machine, memory: &Space) -> Result<Option<u64>, Error> {
        match machine.iommu {
            Some(_) => memory.bake::<FakeIo>(&mut Reversed(pages), None),
            None => Ok(None),
        }
    }

    fn steps(_: &Machine) -> usize {
        0
    }

    fn iommu(
        pages: &mut Pages,
        plan: &Plan,
        grants: &[Grant],
        _: Option<()>,
    ) -> Result<Unit<Range>, Error> {
        if plan.machine.iommu.is_none() {
            return Ok(Unit::default());
        }
        // Root, domain and table for messages, all inverted: zeros are no refusal, but ones are.
        let entry = |stream: u64| {
            let grant = grants.iter().find(|grant| u64::from(grant.requester.0) == stream);
            let words = grant.map_or([0; 4], |grant| {
                let [root, messages] = [grant.root, grant.messages].map(Option::unwrap_or_default);
                [root, u64::from(grant.domain), messages, 0]
            });
            words.map(|word| !word)
        };
        let table: Vec<[u64; 4]> = (0..STREAMS).rev().map(entry).collect();
        let len = size_of_val(&table[..]) as u64;
        let header = Range { start: pages.put(table.as_bytes()), len };
        Ok(Unit { header, ..Unit::default() })
    }
}
