//! Devices of programs: registers, ports, and interrupts as signals.
//!
//! A program sees its device's registers, but not those that say where interrupts go. Its messages are routed once, by
//! a script that the kernel plays at its start. Its configuration space can be read only. So a driver cannot interrupt
//! the core with a vector that is not its own.

use super::build::{Build, Place};
use super::program::Made;
use super::space::at;
use super::target::{Asked, Hold, Kernels, Route};
use bulkhead_kernel::Cap;
use bulkhead_kernel::abi::name::Memory;
use bulkhead_kernel::abi::{Grant, Kind, Rights};
use bulkhead_layout::PAGE;
use bulkhead_plan::kernel::{DeviceUse, Driven, Kernel};
use bulkhead_plan::{BarKind, Granted, Plan, Span};

/// Context common to all devices of a sandbox.
pub struct Devices<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The sandbox.
    pub index: usize,
    /// The kernel that runs there.
    pub kernel: &'a Kernel,
    /// Places of its notifications.
    pub notifications: &'a [Place],
}

/// PCI 3.0, 6.2.2.
const COMMAND: u64 = 0x04;
/// The function answers in memory and at ports, and accesses memory.
const ON: u32 = 0b111;
/// It leaves its line alone.
const NO_LINE: u32 = 1 << 10;

impl Devices<'_> {
    /// Gives a program a device.
    pub fn give<K: Kernels>(
        &self,
        build: &mut Build<K>,
        made: &mut Made,
        used: &DeviceUse,
    ) -> Result<(), String> {
        let sandbox = &self.plan.sandboxes[self.index];
        match used.device {
            Driven::Device(n) => {
                let device = &sandbox.devices[n];
                for ports in &device.ports {
                    self.ports(build, made, &device.name, ports.first, ports.last)?;
                }
                self.interrupts(build, made, &device.name, used)
            }
            Driven::Function(n) => {
                let granted = &sandbox.functions[n];
                let name = format!("pci:{}", granted.function.bdf);
                self.registers(build, made, &name, granted)?;
                self.interrupts(build, made, &name, used)
            }
        }
    }

    fn ports<K: Kernels>(
        &self,
        build: &mut Build<K>,
        made: &mut Made,
        name: &str,
        first: u16,
        last: u16,
    ) -> Result<(), String> {
        let ports = K::ports(first, last).ok_or("it has ports, and its processor none")?;
        let place = build.put(ports)?;
        made.give(build, place, name, Rights::ALL, 0)
    }

    /// Its BARs, without pages that say where interrupts go, and its configuration space, to be read.
    fn registers<K: Kernels>(
        &self,
        build: &mut Build<K>,
        made: &mut Made,
        name: &str,
        Granted { function, line, role, .. }: &Granted,
    ) -> Result<(), String> {
        let config = build.ground.config(self.plan, function.bdf);
        let page = Span { start: config, len: PAGE };
        let address = made.map_device(build, page, Rights::READ, |_| false)?;
        let memory = Memory { write: false, device: 0, start: address, len: PAGE };
        made.tell(&format!("{name}:config"), Grant::Memory(memory))?;
        let table = function
            .msix
            .map(|msix| Span { start: msix.table, len: 16 * u64::from(msix.vectors) }.pages());
        for bar in &function.bars {
            let rights = Rights::READ.and(Rights::WRITE);
            match bar.kind {
                // A role's holder has no ports of it: they could not be taken away.
                BarKind::Io if role.is_some() => {}
                BarKind::Io => {
                    let (first, len) = (bar.span.start as u16, bar.span.len as u16);
                    self.ports(
                        build,
                        made,
                        &format!("{name}:{}", bar.number),
                        first,
                        first + (len - 1),
                    )?;
                }
                BarKind::Memory { .. } => {
                    let hidden = |page: u64| table.is_some_and(|table| table.contains(page));
                    let address = made.map_device(build, bar.span.pages(), rights, hidden)?;
                    let start = address + bar.span.start % PAGE;
                    let memory = Memory { write: true, device: 0, start, len: bar.span.len };
                    made.tell(&format!("{name}:{}", bar.number), Grant::Memory(memory))?;
                }
            }
        }
        if role.is_some() {
            // The monitor switches it on when the role comes.
            return Ok(());
        }
        // A line that it is not to use may be another's as well.
        build.at_start(config + COMMAND, if *line { ON } else { ON | NO_LINE })
    }

    fn interrupts<K: Kernels>(
        &self,
        build: &mut Build<K>,
        made: &mut Made,
        name: &str,
        used: &DeviceUse,
    ) -> Result<(), String> {
        for interrupt in &used.interrupts {
            // A handler may only acknowledge: where it signals is the manifest's.
            let named = &self.kernel.notifications[interrupt.notification].name;
            // An alternative of the driver handles the interrupt that is there.
            if let Some(place) = build.routed(used.device, interrupt.number) {
                made.give(build, place, named, Rights::READ, 0)?;
                continue;
            }
            let asked = Asked {
                plan: self.plan,
                index: self.index,
                ground: build.ground,
                device: used.device,
                number: interrupt.number,
                taken: &build.taken(),
            };
            let Route { interrupt: number, set, hold } =
                K::route(&asked).map_err(|e| format!("{name}: {e}"))?;
            for (at, value) in set {
                build.at_start(at, value)?;
            }
            let (scripts, held) = match hold {
                Hold::Writes { mask, unmask } => {
                    ([build.script(&mask)?, build.script(&unmask)?], false)
                }
                Hold::Service => ([0, build.end_of_interrupt()?], true),
            };
            let place = build.interrupt(number, scripts, held)?;
            let notification = self.notifications[interrupt.notification];
            build.signal_from(place, notification, interrupt.bits)?;
            build.route(used.device, interrupt.number, place);
            made.give(build, place, named, Rights::READ, 0)?;
        }
        Ok(())
    }
}

impl Made {
    /// Maps pages of a device, but those that are hidden; the first one's address.
    fn map_device<K: Kernels>(
        &mut self,
        build: &mut Build<K>,
        pages: Span,
        rights: Rights,
        hidden: impl Fn(u64) -> bool,
    ) -> Result<u64, String> {
        let first = self.next_device;
        for n in 0..pages.len / PAGE {
            let physical = pages.start + n * PAGE;
            if hidden(physical) {
                continue;
            }
            let mut cap = Cap::original(Kind::Frame, (physical / PAGE) as u32, 12);
            cap.flags |= Cap::DEVICE;
            cap.rights = rights.0;
            let frame = build.put(cap)?;
            build.map(self.space, frame, 1, first + n * PAGE, rights)?;
        }
        self.next_device = first + pages.len;
        Ok(first)
    }
}

/// First address of devices' registers in a program.
pub const FIRST: u64 = at::DEVICES;
