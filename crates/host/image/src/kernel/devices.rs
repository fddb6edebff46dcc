//! Devices of programs: registers, ports, and interrupts as signals.
//!
//! A program sees its device's registers, but not those that say where interrupts go. Its messages are routed once, by
//! a script that the kernel plays at its start. Its configuration space can be read only. So a driver cannot interrupt
//! the core with a vector that is not its own.

use super::build::{Build, Place};
use super::program::Made;
use super::space::at;
use crate::x86::ioapic::source;
use bulkhead_kernel::Cap;
use bulkhead_kernel::abi::name::Memory;
use bulkhead_kernel::abi::{Grant, Kind, Rights};
use bulkhead_kernel_x86::Step;
use bulkhead_layout::PAGE;
use bulkhead_plan::kernel::{DeviceUse, Driven, Kernel};
use bulkhead_plan::{BarKind, Function, Granted, Sandbox, Span, Trigger};

/// Context common to all devices of a sandbox.
pub struct Devices<'a> {
    /// The sandbox.
    pub sandbox: &'a Sandbox,
    /// The kernel that runs there.
    pub kernel: &'a Kernel,
    /// Places of its notifications.
    pub notifications: &'a [Place],
}

/// Writes that let an interrupt come, keep it back, and let it come again.
struct Route {
    set: Vec<(u64, u32)>,
    hold: Hold,
}

/// How an interrupt is kept back, and let come again.
enum Hold {
    /// By writes to its source.
    Writes { mask: Vec<(u64, u32)>, unmask: Vec<(u64, u32)> },
    /// From its delivery on it is in service, until it is acknowledged.
    Service,
}

/// PCI 3.0, 6.2.2.
const COMMAND: u64 = 0x04;
/// The function answers in memory and at ports, and accesses memory.
const ON: u32 = 0b111;
/// It leaves its line alone.
const NO_LINE: u32 = 1 << 10;

impl Devices<'_> {
    /// Gives a program a device.
    pub fn give(&self, build: &mut Build, made: &mut Made, used: &DeviceUse) -> Result<(), String> {
        match used.device {
            Driven::Device(n) => {
                let device = &self.sandbox.devices[n];
                for ports in &device.ports {
                    self.ports(build, made, &device.name, ports.first, ports.last)?;
                }
                self.interrupts(build, made, &device.name, used)
            }
            Driven::Function(n) => {
                let granted = &self.sandbox.functions[n];
                let name = format!("pci:{}", granted.function.bdf);
                self.registers(build, made, &name, granted)?;
                self.interrupts(build, made, &name, used)
            }
        }
    }

    /// A vector, and the way to it.
    fn route(&self, build: &Build, driven: Driven, number: u16) -> Result<(u8, Route), String> {
        let apic_id = self.apic_id();
        if let Some((line, trigger)) = source(self.sandbox, driven) {
            let vector = match trigger {
                Trigger::Edge => build.vector()?,
                _ => build.ground.level.ok_or("its line has no vector")?,
            };
            let route = line_route(build.ground.ioapic, line, trigger, apic_id, vector);
            return Ok((vector, route));
        }
        let Driven::Function(n) = driven else { return Err("it has no line".into()) };
        let (function, vector) = (&self.sandbox.functions[n].function, build.vector()?);
        let config = build.ground.config(function.bdf);
        Ok((vector, message_route(function, config, number, apic_id, vector)?))
    }

    fn apic_id(&self) -> u32 {
        self.sandbox.core_ids.first().copied().unwrap_or(0)
    }

    fn ports(
        &self,
        build: &mut Build,
        made: &mut Made,
        name: &str,
        first: u16,
        last: u16,
    ) -> Result<(), String> {
        let place = build.put(bulkhead_kernel_x86::ports(first, last))?;
        made.give(build, place, name, Rights::ALL, 0)
    }

    /// Its BARs, without pages that say where interrupts go, and its configuration space, to be read.
    fn registers(
        &self,
        build: &mut Build,
        made: &mut Made,
        name: &str,
        Granted { function, line, .. }: &Granted,
    ) -> Result<(), String> {
        let config = build.ground.config(function.bdf);
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
        // A line that it is not to use may be another's as well.
        build.at_start(config + COMMAND, if *line { ON } else { ON | NO_LINE })
    }

    fn interrupts(
        &self,
        build: &mut Build,
        made: &mut Made,
        name: &str,
        used: &DeviceUse,
    ) -> Result<(), String> {
        for interrupt in &used.interrupts {
            let (vector, Route { set, hold }) =
                { self.route(build, used.device, interrupt.number) }
                    .map_err(|e| format!("{name}: {e}"))?;
            for (at, value) in set {
                build.at_start(at, value)?;
            }
            let (scripts, held) = match hold {
                Hold::Writes { mask, unmask } => {
                    ([build.script(&mask)?, build.script(&unmask)?], false)
                }
                Hold::Service => ([0, build.end_of_interrupt()?], true),
            };
            let place = build.interrupt(vector, scripts, held)?;
            let notification = self.notifications[interrupt.notification];
            build.signal_from(place, notification, interrupt.bits)?;
            // A handler may only acknowledge: where it signals is the manifest's.
            let named = &self.kernel.notifications[interrupt.notification].name;
            made.give(build, place, named, Rights::READ, 0)?;
        }
        Ok(())
    }
}

/// An entry of the IOAPIC's redirection table: fixed, to one core (82093AA, 3.2.4; the register is chosen through the
/// first word). In a sandbox each of these writes is an exit, so a level-triggered line is not masked here. The IOAPIC
/// sends nothing more until the local APIC has ended what it sent.
fn line_route(select: u64, line: u32, trigger: Trigger, apic_id: u32, vector: u8) -> Route {
    const MASKED: u32 = 1 << 16;
    const LEVEL: u32 = 1 << 15;
    const ACTIVE_LOW: u32 = 1 << 13;
    let (window, low) = (select + 0x10, 0x10 + 2 * line);
    let write = |value: u32| vec![(select, low), (window, value)];
    let (entry, hold) = match trigger {
        Trigger::Edge => {
            let (mask, unmask) = (write(MASKED | u32::from(vector)), write(vector.into()));
            (0, Hold::Writes { mask, unmask })
        }
        Trigger::LevelHigh => (LEVEL, Hold::Service),
        Trigger::LevelLow => (LEVEL | ACTIVE_LOW, Hold::Service),
    };
    let mut set = vec![(select, low + 1), (window, apic_id << 24)];
    set.extend(write(entry | u32::from(vector)));
    Route { set, hold }
}

/// A message: an entry of the MSI-X table (PCI 3.0, 6.8.2), or the MSI capability (6.8.1).
fn message_route(
    function: &Function,
    config: u64,
    number: u16,
    apic_id: u32,
    vector: u8,
) -> Result<Route, String> {
    let address = 0xFEE0_0000 | (apic_id & 0xFF) << 12;
    if let Some(msix) = function.msix {
        const ENABLE: u32 = 1 << 31;
        let entry = msix.table + 16 * u64::from(number);
        let set = vec![
            (entry + 12, 1),
            (entry, address),
            (entry + 4, 0),
            (entry + 8, vector.into()),
            (entry + 12, 0),
            (config + u64::from(msix.at), ENABLE),
        ];
        let hold = Hold::Writes { mask: vec![(entry + 12, 1)], unmask: vec![(entry + 12, 0)] };
        return Ok(Route { set, hold });
    }
    let msi = function.msi.ok_or("it sends no messages, and has no line")?;
    const ENABLE: u32 = 1 << 16;
    let at = config + u64::from(msi.at);
    let mut set = vec![(at, 0), (at + 4, address)];
    let data = if msi.wide { at + 12 } else { at + 8 };
    if msi.wide {
        set.push((at + 8, 0));
    }
    set.extend([(data, u32::from(vector)), (at, ENABLE)]);
    Ok(Route { set, hold: Hold::Writes { mask: vec![(at, 0)], unmask: vec![(at, ENABLE)] } })
}

impl Made {
    /// Maps pages of a device, but those that are hidden; the first one's address.
    fn map_device(
        &mut self,
        build: &mut Build,
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

/// A script's bytes.
pub fn steps(writes: &[(u64, u32)]) -> Vec<Step> {
    let step = |(address, value): &(u64, u32)| Step { address: *address, value: (*value).into() };
    writes.iter().map(step).chain([Step::default()]).collect()
}
