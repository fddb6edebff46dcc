//! A plan's part about kernels: their programs and threads, the contexts they run on, and all rights of each program.

use crate::text::{Sheet, joined, table};
use bulkhead_manifest::size;
use bulkhead_manifest::time::{show, show_share};
use bulkhead_plan::admission::Analysis;
use bulkhead_plan::kernel::{
    Context, Driven, Kernel, Managed, Policy, Program, Reached, Route, Test, Thread, User,
};
use bulkhead_plan::{Guest, Plan, Sandbox};

/// All kernels, each with its sandbox.
pub fn all(plan: &Plan) -> impl Iterator<Item = (&Sandbox, &Kernel)> {
    plan.sandboxes.iter().filter_map(|sandbox| match &sandbox.guest {
        Guest::Kernel(kernel) => Some((sandbox, &**kernel)),
        _ => None,
    })
}

/// As manifests write a test.
#[must_use]
pub const fn test(test: Test) -> &'static str {
    match test {
        Test::Bound => "utilization",
        Test::Response => "response-time",
        Test::None => "none",
    }
}

/// As manifests write a policy.
#[must_use]
pub const fn policy(policy: Policy) -> &'static str {
    match policy {
        Policy::Sporadic(_) => "sporadic",
        Policy::Strict(_) => "strict",
        Policy::Pibs { .. } => "pibs",
        Policy::Full { .. } => "full",
    }
}

/// C, or U, and T.
#[must_use]
pub fn budget(context: &Context) -> [String; 2] {
    let budget = match context.policy {
        Policy::Sporadic(server) | Policy::Strict(server) => show(server.budget),
        Policy::Pibs { utilization, .. } => show_share(utilization),
        Policy::Full { .. } => "-".into(),
    };
    [budget, show(context.period())]
}

/// The user of a context.
#[must_use]
pub fn user(kernel: &Kernel, context: usize) -> String {
    match kernel.contexts[context].user {
        User::Thread(thread) => kernel.threads[thread].name.clone(),
        User::Notification(notification) => {
            let threads = kernel.users(context).map(|thread| &kernel.threads[thread].name);
            let name = &kernel.notifications[notification].name;
            format!("{} by notification {name}", joined(threads))
        }
    }
}

/// The tables of all kernels.
pub fn tables(out: &mut Sheet, plan: &Plan) {
    for (sandbox, kernel) in all(plan) {
        programs(out, sandbox, kernel);
        traced(out, sandbox, kernel);
        threads(out, sandbox, kernel);
        contexts(out, sandbox, kernel);
        rights(out, plan, sandbox, kernel);
        meetings(out, sandbox, kernel);
    }
}

/// The place of its trace.
fn traced(out: &mut Sheet, sandbox: &Sandbox, kernel: &Kernel) {
    let Some(ram) = sandbox.ram.first().filter(|_| kernel.trace > 0) else { return };
    let (name, ring) = (&sandbox.name, size::show(kernel.trace));
    let at = ram.gpa + (ram.len - kernel.ring());
    out.push_str(&format!(
        "\n{name} is traced: it writes what it does into {ring} at {at:#x} of its memory, the oldest overwritten (`bulkhead trace`)\n"
    ));
}

fn or_none(bytes: u64) -> String {
    if bytes == 0 { "-".into() } else { size::show(bytes) }
}

fn programs(out: &mut Sheet, sandbox: &Sandbox, kernel: &Kernel) {
    let row = |program: &Program| {
        let file = program.file.file_name().unwrap_or_default().to_string_lossy();
        vec![
            program.name.clone(),
            file.into_owned(),
            if program.args.is_empty() { "-".into() } else { program.args.clone() },
            or_none(program.heap),
            or_none(program.memory),
            program.slots.to_string(),
            format!("line {}", program.place.line),
        ]
    };
    let rows: Vec<Vec<String>> = kernel.programs.iter().map(row).collect();
    let heads = ["name", "file", "arguments", "heap", "untyped memory", "slots", "described at"];
    table(out, &format!("Programs of {}", sandbox.name), &heads, &rows);
}

/// How a thread gets time that has no context.
pub fn without_time(kernel: &Kernel, thread: &Thread) -> &'static str {
    if kernel.stands_by(thread) { "stands by" } else { "passive" }
}

fn threads(out: &mut Sheet, sandbox: &Sandbox, kernel: &Kernel) {
    let route = |route: Option<Route>, without: &str| match route {
        None => without.to_owned(),
        Some(Route { endpoint, badge }) => badged(&kernel.endpoints[endpoint].name, badge),
    };
    let rows: Vec<Vec<String>> = { kernel.threads.iter() }
        .map(|thread| {
            let context = thread.context.map(|context| kernel.contexts[context].name.clone());
            vec![
                thread.name.clone(),
                kernel.programs[thread.program].name.clone(),
                thread.entry.clone().unwrap_or_else(|| "the file's".into()),
                thread.priority.to_string(),
                thread.max_priority.to_string(),
                context.unwrap_or_else(|| without_time(kernel, thread).into()),
                size::show(thread.stack),
                if thread.fpu { "yes" } else { "no" }.into(),
                route(thread.fault, "stops"),
                route(thread.timeout, "waits"),
            ]
        })
        .collect();
    let heads = [
        "name",
        "program",
        "entry",
        "priority",
        "may give",
        "context",
        "stack",
        "FPU",
        "fault",
        "end of budget",
    ];
    table(out, &format!("Threads of {}", sandbox.name), &heads, &rows);
}

fn contexts(out: &mut Sheet, sandbox: &Sandbox, kernel: &Kernel) {
    let rows: Vec<Vec<String>> = { kernel.contexts.iter().enumerate() }
        .map(|(index, context)| {
            let [budget, period] = budget(context);
            let refills = match context.policy {
                Policy::Sporadic(server) | Policy::Strict(server) => server.refills.to_string(),
                _ => "-".into(),
            };
            let background = match (context.policy, context.background) {
                (Policy::Full { .. }, _) => "-",
                (_, true) => "runs below all",
                (_, false) => "waits",
            };
            vec![
                context.name.clone(),
                policy(context.policy).into(),
                budget,
                period,
                refills,
                background.into(),
                user(kernel, index),
            ]
        })
        .collect();
    let heads = ["name", "policy", "budget", "period", "refills", "without budget", "used by"];
    let title = format!("Contexts of {} (admission: {})", sandbox.name, test(kernel.admission));
    table(out, &title, &heads, &rows);
}

/// A name, and a badge if there is one.
fn badged(name: &str, badge: u64) -> String {
    if badge == 0 { name.to_owned() } else { format!("{name}, badge {badge:#x}") }
}

/// Everything that programs may do, a row for each entry of the manifest.
fn rights(out: &mut Sheet, plan: &Plan, sandbox: &Sandbox, kernel: &Kernel) {
    let mut rows = Vec::new();
    for program in &kernel.programs {
        let mut may = |right: &str, what: String| {
            rows.push(vec![program.name.clone(), right.to_owned(), what]);
        };
        for call in &program.calls {
            let grant = if call.grant { ", may pass capabilities" } else { "" };
            let name = badged(&kernel.endpoints[call.endpoint].name, call.badge);
            may("calls", name + grant);
        }
        for endpoint in &program.serves {
            may("serves", kernel.endpoints[*endpoint].name.clone());
        }
        for signal in &program.signals {
            let name = &kernel.notifications[signal.notification].name;
            may("signals", format!("{name}, bits {:#x}", signal.bits));
        }
        for notification in &program.waits {
            may("waits for", kernel.notifications[*notification].name.clone());
        }
        for map in &program.maps {
            let shared = &kernel.shared[map.shared];
            let right = if map.write { "reads and writes" } else { "reads" };
            may(right, format!("shared {}, {}", shared.name, size::show(shared.len)));
        }
        for used in &program.channels {
            let channel = &plan.channels[used.channel];
            let right = if used.write { "reads and writes" } else { "reads" };
            may(right, format!("channel {}, {}", channel.name, size::show(channel.len)));
        }
        for number in &program.links {
            let link = &plan.links[*number];
            let owner = &plan.sandboxes[link.owner].name;
            let right = if *owner == sandbox.name { "offers" } else { "accepts" };
            let which = plan.which_link(*number);
            may(right, format!("link {which} of {owner}, {}", size::show(link.sent)));
        }
        devices(plan, sandbox, kernel, program, &mut may);
        if let Some(other) = program.alternative_to.and_then(|other| kernel.programs.get(other)) {
            may("stands by", format!("for {}, with its devices", other.name));
        }
        for managed in &program.manages {
            let name = match *managed {
                Managed::Program(n) => format!("program {}", kernel.programs[n].name),
                Managed::Thread(n) => format!("thread {}", kernel.threads[n].name),
                Managed::Context(n) => format!("context {}", kernel.contexts[n].name),
            };
            may("manages", name);
        }
        if program.sched_control {
            may("configures", "contexts of its core".into());
        }
        if program.ends {
            may("ends", "its sandbox, and says when it has started".into());
        }
        if program.memory > 0 {
            may("makes", format!("objects in {} of memory", size::show(program.memory)));
        }
    }
    rows.extend(undriven(sandbox, kernel).map(|name| {
        vec!["nobody".into(), "drives".into(), format!("{name}, which its sandbox has")]
    }));
    let title = format!(
        "What programs of {} may do (they print, and have themselves; all else is denied)",
        sandbox.name
    );
    table(out, &title, &["program", "may", "what"], &rows);
}

/// Devices of a kernel's sandbox that no program of it drives.
fn undriven<'a>(sandbox: &'a Sandbox, kernel: &'a Kernel) -> impl Iterator<Item = String> + 'a {
    let devices = sandbox.devices.iter().enumerate();
    let devices = devices.map(|(n, device)| (Driven::Device(n), device.name.clone()));
    let functions = { sandbox.functions.iter().enumerate() }
        .map(|(n, f)| (Driven::Function(n), format!("pci:{}", f.function.bdf)));
    let driven = |device| {
        kernel.programs.iter().flat_map(|program| &program.devices).any(|d| d.device == device)
    };
    let idle = devices.chain(functions).filter(move |(device, _)| !driven(*device));
    idle.map(|(_, name)| name)
}

fn devices(
    plan: &Plan,
    sandbox: &Sandbox,
    kernel: &Kernel,
    program: &Program,
    may: &mut dyn FnMut(&str, String),
) {
    for used in &program.devices {
        let name = match used.device {
            Driven::Device(index) => sandbox.devices[index].name.clone(),
            Driven::Function(index) => format!("pci:{}", sandbox.functions[index].function.bdf),
        };
        may("drives", name.clone());
        if let Driven::Function(index) = used.device {
            let reaches = |what: String| format!("{name} reach {what}");
            if sandbox.functions[index].unconfined {
                may("lets", reaches("all of the machine's memory".into()));
            }
            for what in reached(plan, sandbox, kernel, index) {
                may("lets", reaches(what));
            }
        }
        for interrupt in &used.interrupts {
            let to = &kernel.notifications[interrupt.notification].name;
            let what = format!(
                "interrupt {} of {name} as {to}, bits {:#x}",
                interrupt.number, interrupt.bits
            );
            may("takes", what);
        }
    }
}

/// Memory that a function of a kernel's sandbox reaches, piece by piece.
pub fn reached(plan: &Plan, sandbox: &Sandbox, kernel: &Kernel, function: usize) -> Vec<String> {
    let owner = plan.sandboxes.iter().position(|one| one.name == sandbox.name);
    let all = owner.and_then(|owner| plan.dma(owner, function)).unwrap_or_default();
    let piece = |dma: bulkhead_plan::Dma| {
        let how = if dma.write { "to read and write" } else { "to read" };
        let what = match dma.what {
            Reached::Shared(n) => format!("shared {}", kernel.shared[n].name),
            Reached::Channel(n) => {
                let region = &plan.channels[n];
                let part = if dma.len < region.len { "data of " } else { "" };
                let from = &plan.sandboxes[region.from].name;
                format!("{part}channel {} ({from} writes)", region.title())
            }
        };
        format!("{what}, {}, {how}", size::show(dma.len))
    };
    all.into_iter().map(piece).collect()
}

/// The places where programs meet: endpoints, notifications, shared memory.
fn meetings(out: &mut Sheet, sandbox: &Sandbox, kernel: &Kernel) {
    let who = |has: &dyn Fn(&Program) -> bool| {
        joined(kernel.programs.iter().filter(|program| has(program)).map(|program| &program.name))
    };
    let analysis = Analysis::new(kernel);
    let rows: Vec<Vec<String>> = { kernel.endpoints.iter().enumerate() }
        .map(|(index, endpoint)| {
            let faults = kernel.threads.iter().filter(|thread| {
                [thread.fault, thread.timeout].into_iter().flatten().any(|r| r.endpoint == index)
            });
            let priorities = match analysis.reach(index) {
                None => "its own".into(),
                Some((low, high)) if low == high => format!("caller's, at {high}"),
                Some((low, high)) => format!("caller's, at {low} to {high}"),
            };
            vec![
                endpoint.name.clone(),
                who(&|program| program.calls.iter().any(|call| call.endpoint == index)),
                joined(faults.map(|thread| &thread.name)),
                who(&|program| program.serves.contains(&index)),
                priorities,
                endpoint.longest.map_or("-".into(), show),
            ]
        })
        .collect();
    let heads = ["endpoint", "callers", "faults of", "servers", "in whose time", "longest"];
    table(out, &format!("Calls in {}", sandbox.name), &heads, &rows);
    let rows: Vec<Vec<String>> = { kernel.notifications.iter().enumerate() }
        .map(|(index, notification)| {
            let lends = notification.context.map(|context| kernel.contexts[context].name.clone());
            vec![
                notification.name.clone(),
                who(&|program| program.signals.iter().any(|s| s.notification == index)),
                who(&|program| {
                    let mut all = program.devices.iter().flat_map(|device| &device.interrupts);
                    all.any(|interrupt| interrupt.notification == index)
                }),
                who(&|program| program.waits.contains(&index)),
                lends.unwrap_or_else(|| "-".into()),
            ]
        })
        .collect();
    let heads = ["notification", "signalled by", "by devices of", "waited for by", "lends"];
    table(out, &format!("Signals in {}", sandbox.name), &heads, &rows);
}
