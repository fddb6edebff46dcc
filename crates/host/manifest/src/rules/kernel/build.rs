//! From a manifest's kernels to the plan's types. Parts that some rule refuses are left out.

use super::{Managed, Parts, REFILLS, SLOTS, STACK, find, links, managed};
use crate::raw;
use crate::raw_kernel::{Call, ChannelUse, MapAccess, Route};
use crate::rules::build::regions;
use crate::rules::{Context, Item, guests, link, pci, rights};
use crate::{size, time};
use bulkhead_plan::kernel::Test;
use bulkhead_plan::kernel::{self as plan, Budget, Policy, User};
use bulkhead_plan::{Channel, Part};
use std::path::PathBuf;

/// Builds the kernel of a sandbox with its programs.
pub fn kernel(
    cx: &Context<'_, '_>,
    sandbox: &Item<raw::Sandbox>,
    file: PathBuf,
    admission: raw::Admission,
) -> plan::Kernel {
    let build = Build { cx, parts: super::parts(cx, sandbox) };
    let doorbells = doorbells(cx, sandbox);
    plan::Kernel {
        file,
        admission: test(admission),
        overhead: plan::OVERHEAD,
        entry: plan::ENTRY,
        doorbell: doorbell(cx, sandbox, &doorbells),
        doorbells,
        trace: super::trace(sandbox).and_then(|text| size::parse(text).ok()).unwrap_or(0),
        programs: build.parts.programs.iter().map(|item| build.program(item)).collect(),
        threads: build.parts.threads.iter().filter_map(|item| build.thread(item)).collect(),
        contexts: build.parts.contexts.iter().filter_map(|item| build.context(item)).collect(),
        endpoints: { build.parts.endpoints.iter() }
            .map(|item| plan::Endpoint {
                name: item.name.clone(),
                place: cx.at(item, &[]).place(),
                longest: item.longest.as_deref().and_then(|text| time::parse(text).ok()),
            })
            .collect(),
        notifications: { build.parts.notifications.iter() }
            .map(|item| plan::Notification {
                name: item.name.clone(),
                place: cx.at(item, &[]).place(),
                context: build.context_named(item.context.as_deref()),
            })
            .collect(),
        shared: { build.parts.shared.iter() }
            .map(|item| plan::Shared {
                name: item.name.clone(),
                place: cx.at(item, &[]).place(),
                len: size::parse(&item.size).unwrap_or(0),
            })
            .collect(),
    }
}

/// How far requests of others' rights over a sandbox's life are apart, for each right.
fn doorbells(cx: &Context<'_, '_>, sandbox: &Item<raw::Sandbox>) -> Vec<u64> {
    let index = cx.sandbox_index(&sandbox.name);
    let others = cx.sandboxes.iter().filter(|other| other.name != sandbox.name);
    let rights = others.flat_map(|other| rights::control(cx, other).into_iter().flatten());
    rights.filter(|right| Some(right.sandbox) == index).map(|right| right.every).collect()
}

/// Returns the longest time of a doorbell, if there are any. Refused links don't count.
fn doorbell(cx: &Context<'_, '_>, sandbox: &Item<raw::Sandbox>, doorbells: &[u64]) -> u64 {
    if doorbells.is_empty() {
        return 0;
    }
    let links: Vec<_> = link::links(cx).into_iter().map(|(link, _)| link).collect();
    let index = cx.sandbox_index(&sandbox.name);
    index.map_or(0, |index| bulkhead_plan::doorbell(index, cx.sandboxes.len(), &links))
}

const fn test(admission: raw::Admission) -> Test {
    match admission {
        raw::Admission::Utilization => Test::Bound,
        raw::Admission::ResponseTime => Test::Response,
        raw::Admission::None => Test::None,
    }
}

/// Returns the policy of a context; `None` if its values are refused.
#[must_use]
pub fn policy(context: &raw::Context) -> Option<Policy> {
    let time = |text: &Option<String>| time::parse(text.as_deref()?).ok().filter(|t| *t > 0);
    let period = time(&context.period)?;
    let budget = || {
        let refills = context.refills.unwrap_or(REFILLS);
        Some(Budget { budget: time(&context.budget)?, period, refills })
    };
    match context.policy {
        raw::Policy::Sporadic => Some(Policy::Sporadic(budget()?)),
        raw::Policy::Strict => Some(Policy::Strict(budget()?)),
        raw::Policy::Full => Some(Policy::Full { slice: period }),
        raw::Policy::Pibs => {
            let utilization = time::parse_share(context.utilization.as_deref()?).ok()?;
            Some(Policy::Pibs { utilization, period })
        }
    }
}

struct Build<'a, 'c, 't> {
    cx: &'a Context<'c, 't>,
    parts: Parts<'a>,
}

impl Build<'_, '_, '_> {
    fn path(&self, written: &str) -> PathBuf {
        guests::resolve(&self.cx.base, &self.cx.artifacts, written)
    }

    fn endpoint(&self, name: &str) -> Option<usize> {
        find(&self.parts.endpoints, name)
    }

    fn notification(&self, name: &str) -> Option<usize> {
        find(&self.parts.notifications, name)
    }

    fn context_named(&self, name: Option<&str>) -> Option<usize> {
        find(&self.parts.contexts, name?)
    }

    fn program(&self, item: &Item<raw::Program>) -> plan::Program {
        let bytes = |text: &Option<String>| {
            text.as_deref().and_then(|text| size::parse(text).ok()).unwrap_or(0)
        };
        let signal = |signal: &crate::raw_kernel::Signal| {
            let (name, bits) = signal.parts();
            Some(plan::Signal { notification: self.notification(name)?, bits })
        };
        let map = |map: &crate::raw_kernel::Map| {
            let (name, access) = map.parts();
            let shared = find(&self.parts.shared, name)?;
            Some(plan::Map { shared, write: access == MapAccess::Rw })
        };
        plan::Program {
            name: item.name.clone(),
            place: self.cx.at(item, &[]).place(),
            file: self.path(&item.file),
            args: item.args.clone().unwrap_or_default(),
            heap: bytes(&item.heap),
            memory: bytes(&item.memory),
            slots: item.slots.unwrap_or(SLOTS),
            sched_control: item.sched_control,
            ends: item.ends_sandbox,
            watchdog: item.watchdog,
            calls: item.calls.iter().filter_map(|call| self.call(call)).collect(),
            serves: item.serves.iter().filter_map(|name| self.endpoint(name)).collect(),
            signals: item.signals.iter().filter_map(signal).collect(),
            waits: item.waits.iter().filter_map(|name| self.notification(name)).collect(),
            maps: item.maps.iter().filter_map(map).collect(),
            devices: item.devices.iter().filter_map(|device| self.device(item, device)).collect(),
            alternative_to: item
                .alternative_to
                .as_deref()
                .and_then(|name| find(&self.parts.programs, name)),
            channels: item.channels.iter().flat_map(|used| self.channel(used)).collect(),
            links: { item.links.iter() }
                .flat_map(|used| links::named(self.cx, self.parts.sandbox, used))
                .map(|named| named.number)
                .collect(),
            manages: item.manages.iter().filter_map(|text| self.managed(text)).collect(),
        }
    }

    fn call(&self, call: &Call) -> Option<plan::Call> {
        let call = call.detailed();
        let endpoint = self.endpoint(&call.endpoint)?;
        Some(plan::Call { endpoint, badge: call.badge, grant: call.grant })
    }

    fn device(
        &self,
        program: &raw::Program,
        device: &crate::raw_kernel::DeviceUse,
    ) -> Option<plan::DeviceUse> {
        let (name, interrupts) = device.parts();
        let interrupt = |interrupt: &crate::raw_kernel::Interrupt| {
            let notification = self.notification(&interrupt.notification)?;
            let bits = interrupt.bits.unwrap_or(1);
            Some(plan::Interrupt { number: interrupt.number, notification, bits })
        };
        let interrupts = interrupts.iter().filter_map(interrupt).collect();
        let driven = driven(self.cx, self.parts.sandbox, name)?;
        let role = super::programs::role(self.cx, &self.parts, Some(driven));
        let dma = match role.and_then(|name| self.cx.roles.iter().find(|role| role.name == name)) {
            // The program learns where the device finds the role's memory, if it has that.
            Some(role) => {
                let has = |name: &&String| program.channels.iter().any(|one| one.name() == **name);
                role.dma.iter().filter(has).flat_map(|name| self.reached(program, name)).collect()
            }
            None => device.dma().iter().flat_map(|name| self.reached(program, name)).collect(),
        };
        Some(plan::DeviceUse { device: driven, interrupts, dma })
    }

    /// Memory that a device reaches by a name: a channel's, or shared memory.
    fn reached(&self, program: &raw::Program, name: &str) -> Vec<plan::Reached> {
        match program.channels.iter().find(|used| used.name() == name) {
            Some(used) => {
                let ends = self.channel(used).into_iter();
                ends.map(|end| plan::Reached::Channel(end.channel)).collect()
            }
            None => {
                let shared = find(&self.parts.shared, name);
                shared.map(plan::Reached::Shared).into_iter().collect()
            }
        }
    }

    /// Its regions that this sandbox is an end of, but for receivers' own.
    fn channel(&self, used: &ChannelUse) -> Vec<plan::ChannelUse> {
        let (name, signal) = (used.name(), used.signal());
        let signal = signal.and_then(|signal| {
            let notification = self.notification(&signal.notification)?;
            Some(plan::Signal { notification, bits: signal.bits.unwrap_or(1) })
        });
        let own = self.cx.sandbox_index(&self.parts.sandbox.name);
        let regions = self.cx.channels.iter().flat_map(|item| regions(self.cx, item));
        let used = |(channel, (region, _)): (usize, (Channel, _))| {
            let (write, read) = (
                own.is_some_and(|own| region.writes(own)),
                own.is_some_and(|own| region.reads(own)),
            );
            let end = region.name == name && region.part != Part::Rx && (write || read);
            end.then_some(plan::ChannelUse { channel, write, signal })
        };
        regions.enumerate().filter_map(used).collect()
    }

    fn managed(&self, text: &str) -> Option<plan::Managed> {
        match managed(text)? {
            Managed::Program(name) => find(&self.parts.programs, name).map(plan::Managed::Program),
            Managed::Thread(name) => find(&self.parts.threads, name).map(plan::Managed::Thread),
            Managed::Context(name) => find(&self.parts.contexts, name).map(plan::Managed::Context),
        }
    }

    fn thread(&self, item: &Item<raw::Thread>) -> Option<plan::Thread> {
        let route = |route: &Option<Route>| {
            let (name, badge) = route.as_ref()?.parts();
            Some(plan::Route { endpoint: self.endpoint(name)?, badge })
        };
        Some(plan::Thread {
            name: item.name.clone(),
            place: self.cx.at(item, &[]).place(),
            program: find(&self.parts.programs, &item.program)?,
            entry: item.entry.clone(),
            priority: item.priority,
            max_priority: item.max_priority,
            context: self.context_named(item.context.as_deref()),
            stack: size::parse(item.stack.as_deref().unwrap_or(STACK)).unwrap_or(0),
            fpu: item.fpu,
            fault: route(&item.fault),
            timeout: route(&item.timeout),
        })
    }

    fn context(&self, item: &Item<raw::Context>) -> Option<plan::Context> {
        let policy = policy(item)?;
        let full = matches!(policy, Policy::Full { .. });
        Some(plan::Context {
            name: item.name.clone(),
            place: self.cx.at(item, &[]).place(),
            policy,
            background: item.background,
            guaranteed: item.guaranteed.unwrap_or(!full),
            activations: item.activations.unwrap_or(1),
            user: self.user(&item.name)?,
        })
    }

    /// Returns the user that a context is bound to.
    fn user(&self, context: &str) -> Option<User> {
        let bound = |name: &Option<String>| name.as_deref() == Some(context);
        let parts = &self.parts;
        let thread = parts.threads.iter().position(|thread| bound(&thread.context));
        let notification = || {
            let mut all = parts.notifications.iter();
            all.position(|notification| bound(&notification.context)).map(User::Notification)
        };
        thread.map(User::Thread).or_else(notification)
    }
}

/// The device or function that a sandbox has by that name.
#[must_use]
pub fn driven(
    cx: &Context<'_, '_>,
    sandbox: &Item<raw::Sandbox>,
    name: &str,
) -> Option<plan::Driven> {
    if !pci::is_pci(name) {
        let mut devices = sandbox.devices.iter().filter(|grant| !pci::is_pci(grant.name()));
        return devices.position(|grant| grant.name() == name).map(plan::Driven::Device);
    }
    let bdf = pci::the_one(cx.machine.as_ref()?, name)?.bdf;
    let granted = crate::rules::build::functions(cx, sandbox);
    granted.iter().position(|one| one.function.bdf == bdf).map(plan::Driven::Function)
}
