//! A PC's devices: the IOAPIC, and AMD's or Intel's IOMMU.

use super::vtd::{self, Source};
use super::{hpet, ioapic, iommu};
use crate::Error;
use crate::devices::{Devices, Grant, Route, Unit};
use crate::nested::Small;
use crate::pages::Pages;
use crate::space::Space;
use bulkhead_arch_x86::iommu::IoPages;
use bulkhead_arch_x86::vtd::IoPages as VtdPages;
use bulkhead_ioapic::Lines;
use bulkhead_layout::image::ConfigOp;
use bulkhead_layout::info::Info;
use bulkhead_layout::x86;
use bulkhead_plan::{Bdf, Machine, Plan};

/// See the module.
pub struct Pc;

fn is_vtd(machine: &Machine) -> bool {
    machine.iommu.is_some_and(|iommu| iommu.is_vtd())
}

impl Devices for Pc {
    type Shared = ioapic::Shared;
    type Lines = Lines;
    type Header = x86::Iommu;

    fn share(pages: &mut Pages, plan: &Plan) -> Option<ioapic::Shared> {
        ioapic::shared(pages, plan)
    }

    fn lines(
        plan: &Plan,
        index: usize,
        shared: Option<ioapic::Shared>,
    ) -> Result<Option<Lines>, Error> {
        ioapic::lines(plan, index, shared.and_then(|shared| shared.table))
    }

    fn tell(lines: &Lines, info: &mut Info) {
        info.lines = lines.own & !lines.channels;
        info.level_lines = lines.level;
        info.level_vectors = lines.level_vectors;
    }

    fn map(pages: &mut Pages, plan: &Plan, lines: &Lines, shared: Option<ioapic::Shared>) -> Space {
        ioapic::space(pages, plan, lines, shared)
    }

    fn route(plan: &Plan, function: Bdf) -> Result<Route, Error> {
        iommu::route(plan, Source::Function(function))
    }

    // The tables map what the sandbox's nested tables map of its own memory and channels.
    fn tables(pages: &mut Pages, machine: &Machine, memory: &Space) -> Result<Option<u64>, Error> {
        if is_vtd(machine) {
            return memory.bake::<VtdPages>(pages, None);
        }
        memory.bake::<IoPages>(pages, None)
    }

    fn running(pages: &mut Pages, _: &Machine, memory: &Space) -> Result<Option<u64>, Error> {
        memory.bake::<Small<IoPages>>(pages, None)
    }

    fn timers(plan: &Plan) -> Vec<ConfigOp> {
        hpet::steps(plan)
    }

    fn steps(machine: &Machine) -> usize {
        let unit = machine.iommu.filter(|_| is_vtd(machine));
        unit.map_or(0, |unit| vtd::count(&unit))
    }

    fn iommu(
        pages: &mut Pages,
        plan: &Plan,
        grants: &[Grant],
        shared: Option<ioapic::Shared>,
    ) -> Result<Unit<x86::Iommu>, Error> {
        let mut unit = if is_vtd(&plan.machine) {
            vtd::tables(pages, plan, grants)?
        } else {
            // A running Linux uses the line that the test would fire.
            let ioapic = match plan.block {
                None => ioapic::until_tested(&plan.machine, shared),
                Some(_) => ioapic::messages(&plan.machine, shared),
            };
            let commands = shared.and_then(|shared| shared.commands);
            let header = iommu::tables(pages, &plan.machine, grants, ioapic, commands);
            Unit { header, events: header.events, steps: Vec::new() }
        };
        if plan.block.is_none() {
            unit.header.lines = ioapic::test(plan, shared, unit.header.device_table.start);
        }
        Ok(unit)
    }
}
