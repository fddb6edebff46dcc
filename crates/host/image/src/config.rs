//! A monitor's configuration: one block of bytes, [`Config`] and the tables that its slices name.

use crate::Error;
use crate::devices::Devices;
use crate::monitor::{Functions, INFO_VA, Input, Standby, bells, ends, ids, loads, quieted};
use crate::nested;
use crate::sweep;
use crate::target::{Confine, Target};
use bulkhead_channel::layout::{ARMED, HELLO};
use bulkhead_layout::bell::{Bell, End};
use bulkhead_layout::hypercall;
use bulkhead_layout::info::Info;
use bulkhead_layout::ladder::{Ladder, Rung};
use bulkhead_layout::link::Link;
use bulkhead_layout::load::PROGRAM_GPA;
use bulkhead_layout::map::*;
use bulkhead_layout::monitor::{Action, Config, Core, Mailbox, Ram, Slice, Start};
use bulkhead_layout::pci::{COMMAND, Function};
use bulkhead_layout::peer::{BusMaster, Peer};
use bulkhead_layout::record::Op;
use bulkhead_layout::report::{Kind, State};
use bulkhead_layout::role::{COLD, NOBODY, Piece, Role};
use bulkhead_layout::watch::Watch;
use bulkhead_layout::{MAX_SANDBOXES, need};
use bulkhead_plan::{self as plan, Facts, Plan, RTC, Sandbox};
use core::mem::offset_of;
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Bytes behind a [`Target::Config`].
pub struct Tail {
    /// Bytes before them.
    behind: usize,
    bytes: Vec<u8>,
}

impl Tail {
    /// Appends a table, and says where it lies.
    pub fn append<T: IntoBytes + Immutable>(&mut self, items: &[T]) -> Slice {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let offset = (self.behind + self.bytes.len()) as u32;
        self.bytes.extend_from_slice(items.as_bytes());
        Slice { offset, len: items.len() as u32 }
    }
}

/// Things that a configuration describes, beside the plan.
pub struct Told<'a, L> {
    pub confine: Confine,
    /// Control blocks and the processor's own pages, one for each core.
    pub control: [u64; 2],
    pub functions: &'a Functions,
    pub shadow: Vec<u32>,
    pub lines: Option<L>,
    pub links: &'a [nested::Link],
    pub roles: &'a [nested::Role],
    /// Guests that can take the place of the first one.
    pub others: &'a [Other<'a>],
}

/// A guest that can take the place of the first one, and the root of its nested tables.
pub struct Other<'a> {
    pub standby: &'a Standby<'a>,
    pub root: u64,
}

/// Makes it.
///
/// # Errors
/// The processor would refuse a start state, or the monitor lacks code for its work.
pub fn config<T: Target>(
    input: &Input,
    told: Told<<T::Devices as Devices>::Lines>,
) -> Result<Vec<u8>, Error> {
    let mut config = T::Config::new_zeroed();
    let mut tail = Tail { behind: size_of::<T::Config>(), bytes: Vec::new() };
    identity(&mut config, input, told.control);
    rights(&mut config, input, told.links);
    starts::<T>(&mut config, &mut tail, input, told.shadow, &told.confine, told.others)?;
    ladders(&mut config, &mut tail, &input.plan.sandboxes[input.index]);
    peers::<T>(&mut config, &mut tail, input);
    functions(&mut config, &mut tail, told.functions);
    T::configure(
        &mut config,
        &mut tail,
        input.plan,
        &input.plan.sandboxes[input.index],
        told.lines,
    );
    channels::<T>(&mut config, &mut tail, input, told.links);
    roles(&mut config, &mut tail, input, told.roles);
    has_code::<T>(&config, input)?;
    Ok([config.as_bytes(), &tail.bytes].concat())
}

fn facts(input: &Input) -> &'static Facts {
    input.plan.machine.arch.facts()
}

/// Makes a set of sandboxes or links.
fn set(numbers: impl Iterator<Item = usize>) -> u32 {
    numbers.fold(0, |set, i| set | 1 << i)
}

/// Its number, its cores, its memory.
fn identity(config: &mut Config, input: &Input, [control, host]: [u64; 2]) {
    let sandbox = &input.plan.sandboxes[input.index];
    config.sandbox = input.index as u32;
    config.cores = sandbox.cores.len() as u32;
    config.sandboxes = input.plan.sandboxes.len() as u32;
    config.begin = match sandbox.autostart {
        _ if input.plan.runs(input.index) => State::Running as u32,
        true => State::Launching as u32,
        false => State::Stopped as u32,
    };
    let ends = sandbox.actions.map(Action::ends_in);
    config.ends[..ends.len()].copy_from_slice(&ends);
    config.core_ids = ids(sandbox);
    for (to, s) in config.first_core.iter_mut().zip(&input.plan.sandboxes).take(MAX_SANDBOXES) {
        *to = s.core_ids[0];
    }
    for (i, core) in config.core.iter_mut().enumerate().take(sandbox.cores.len()) {
        let at = i as u64 * facts(input).page;
        *core = Core { control_pa: control + at, host_pa: host + at };
    }
    config.clock_va = INFO_VA + offset_of!(Info, clock) as u64;
    config.snapshot = sandbox.snapshot;
    config.lockable = sandbox.lockable.into();
    config.debug = sandbox.debug.into();
    config.watch = sandbox.watch.map_or_else(Watch::default, |own| watch(input, own));
    for (to, ram) in config.ram.iter_mut().zip(&sandbox.ram) {
        *to = Ram { gpa: ram.gpa, len: ram.len };
    }
}

/// Its watchdog.
fn watch(input: &Input, own: plan::Watch) -> Watch {
    let patience = |time| own.patience(time).min(u64::from(u32::MAX)) as u32;
    Watch {
        least: (if facts(input).ticks_beside { own.least() } else { own.period } / 1_000) as u32,
        alive: own.alive.map_or(0, |alive| patience(alive.every)),
        first: own.alive.and_then(|alive| alive.first).map_or(0, patience),
        ..Watch::default()
    }
}

/// Its rights over others, and theirs over it.
fn rights(config: &mut Config, input: &Input, links: &[nested::Link]) {
    let (plan, index) = (input.plan, input.index);
    let sandbox = &plan.sandboxes[index];
    let offers = plan.links.iter().filter(|link| link.owner == index);
    config.rights = hypercall::Rights {
        control: [0, 1, 2].map(|n: usize| set(sandbox.control[n].iter().map(|r| r.sandbox))),
        offer: set(offers.flat_map(|link| link.to.iter().copied())),
        links: set(links.iter().map(|link| link.number)),
    };
    config.controlled_by = [0, 1, 2].map(|n: usize| {
        let has = |s: &Sandbox| s.control[n].iter().any(|right| right.sandbox == index);
        set(plan.sandboxes.iter().enumerate().filter_map(|(i, s)| has(s).then_some(i)))
    });
    for (n, rights) in sandbox.control.iter().enumerate() {
        let every = |right: &plan::Right| (right.every / 1_000).min(u64::from(u32::MAX)) as u32;
        rights.iter().for_each(|right| config.every[right.sandbox][n] = every(right));
    }
}

/// The launch record of its memory without its program, and how its guest and others in its place begin.
fn starts<T: Target>(
    config: &mut Config,
    tail: &mut Tail,
    input: &Input,
    mut shadow: Vec<u32>,
    confine: &Confine,
    others: &[Other],
) -> Result<(), Error> {
    shadow.resize(shadow.len().next_multiple_of(2), 0);
    let begin = tail.append(&shadow);
    let src = CONFIG_VA + u64::from(begin.offset);
    let shadow = Op { kind: Op::COPY, dst: SHADOW_VA, src, len: u64::from(begin.len) * 4 };
    let shadow = || (begin.len > 0).then_some(shadow);
    let mut start = |input: &Input, confine: &Confine| {
        let whole: Vec<Op> = launch(input, u64::MAX).chain(shadow()).collect();
        let launch = tail.append(&whole);
        let [first_state, other_state] = states::<T>(tail, input, confine)?;
        let (swept, parts) = sweep::pages(input)?;
        let steady = if swept.is_empty() { Vec::new() } else { steady::<T>(input, confine) };
        let fixed = [tail.append(&swept), tail.append(&steady)];
        let argument = input.guest.argument;
        Ok(Start { argument, launch, first_state, other_state, fixed, parts })
    };
    config.start = start(input, confine)?;
    let other = |other: &Other| {
        let (guest, pristine) = (&other.standby.guest, &other.standby.pristine[..]);
        start(&Input { guest, pristine, ..*input }, &Confine { root: other.root, ..*confine })
    };
    let others = others.iter().map(other).collect::<Result<Vec<_>, Error>>()?;
    config.alternatives = tail.append(&others);
    if let Some(from) = loads(input.plan, input.index) {
        let empty: Vec<Op> = launch(input, PROGRAM_GPA).chain(shadow()).collect();
        config.empty = tail.append(&empty);
        (config.loads, config.room) = (GUEST_VA + from.gpa, from.len);
    }
    Ok(())
}

/// Its ladders.
fn ladders(config: &mut Config, tail: &mut Tail, sandbox: &Sandbox) {
    let rung = |rung: &plan::Rung| {
        let (action, guest) = match rung.step {
            plan::Step::Stop => (Rung::STOP, 0),
            plan::Step::Restart => (Rung::RESTART, 0),
            plan::Step::Warm => (Rung::WARM, 0),
            plan::Step::Alternative(number) => (Rung::ALTERNATIVE, number as u16 + 1),
            plan::Step::Failover(to) => (Rung::FAILOVER, to.map_or(0, |to| to as u16 + 1)),
        };
        let (times, within) = rung.at_most.unwrap_or_default();
        Rung { action, times, guest, within: (within / 1_000_000) as u32 }
    };
    let ladder = |of: &plan::Ladder| {
        let mut ladder = Ladder::default();
        for (to, from) in ladder.rungs.iter_mut().zip(&of.rungs) {
            *to = rung(from);
        }
        ladder
    };
    let all: Vec<_> = sandbox.ladders.iter().map(ladder).collect();
    config.ladders = tail.append(&all);
}

/// The monitors that it looks at.
fn peers<T: Target>(config: &mut Config, tail: &mut Tail, input: &Input) {
    const BUS_MASTER: u64 = 1 << 2;
    let plan = input.plan;
    let sandbox = &plan.sandboxes[input.index];
    let Some(watch) = sandbox.watch else { return };
    let looks = |time| watch.patience(time).min(u64::from(u32::MAX)) as u32;
    let mut peer = |of: &plan::Peer| {
        let ids = plan.sandboxes[of.sandbox].core_ids.iter();
        let messages: Vec<_> = ids.clone().filter(|_| of.takes).map(|id| T::take(*id)).collect();
        let master = |page: plan::Span| BusMaster {
            at: MMIO_VA + page.start + u64::from(COMMAND),
            bits: BUS_MASTER,
        };
        let masters: Vec<_> = quieted(plan, of).into_iter().map(master).collect();
        Peer {
            sandbox: of.sandbox as u32,
            cores: ids.len() as u32,
            alive: looks(of.every),
            first: of.first.map_or(0, looks),
            cores_by: tail.append(&messages),
            functions: tail.append(&masters),
        }
    };
    let all: Vec<_> = sandbox.peers.iter().map(&mut peer).collect();
    config.peers = tail.append(&all);
}

/// Fields of a control block that stay as they are at the start of a core.
fn steady<T: Target>(input: &Input, confine: &Confine) -> Vec<Op> {
    let set = T::first(confine, &input.guest.entry);
    let value = |field| set.iter().find(|op| op.dst == field).map_or(0, |op| op.src);
    let stays = |&(field, bits): &(u64, u64)| Op {
        kind: Op::STORE,
        dst: field,
        src: value(field),
        len: bits,
    };
    T::STEADY.iter().map(stays).collect()
}

/// States in which its first core and the others start.
fn states<T: Target>(
    tail: &mut Tail,
    input: &Input,
    confine: &Confine,
) -> Result<[Slice; 2], Error> {
    let states = [T::first(confine, &input.guest.entry), T::further(confine)];
    if let Some(why) = states.iter().find_map(|state| T::refused(state)) {
        let name = &input.plan.sandboxes[input.index].name;
        return Err(Error::Program(format!(
            "the processor would refuse the start of {name}: {why}"
        )));
    }
    Ok(states.map(|state| tail.append(&state)))
}

/// PCI functions that it sees.
fn functions(config: &mut Config, tail: &mut Tail, functions: &Functions) {
    let known = functions.seen.iter().map(|seen| Function {
        registers: tail.append(&seen.registers),
        resets: tail.append(&seen.resets),
        ..seen.function
    });
    let known: Vec<_> = known.collect();
    config.functions = tail.append(&known);
}

/// Ends of channels, doorbells, links.
fn channels<T: Target>(
    config: &mut Config,
    tail: &mut Tail,
    input: &Input,
    links: &[nested::Link],
) {
    let (plan, index) = (input.plan, input.index);
    let word = |region: &plan::Channel, at: usize| GUEST_VA + region.gpa + at as u64;
    let own = ends(plan, index).filter(|own| own.stands(index).is_none());
    config.channel_ends = tail.append(&own.map(end).collect::<Vec<_>>());
    let mailbox = facts(input).paged(size_of::<Mailbox>() as u64);
    let bells = bells(plan, index).map(|(rx, bell)| {
        let receiver = &plan.sandboxes[rx.from];
        let core = receiver.core_ids.first().copied().unwrap_or(0);
        let aims = MAILBOX_VA + rx.from as u64 * mailbox + offset_of!(Mailbox, aims) as u64;
        Bell {
            armed: word(rx, ARMED),
            message: T::signal(core, bell.vector),
            aim: match receiver.guest {
                plan::Guest::Linux { .. } | plan::Guest::Running => aims + 8 * u64::from(bell.nth),
                _ => 0,
            },
            cores: T::cores(&receiver.core_ids),
        }
    });
    config.bells = tail.append(&bells.collect::<Vec<_>>());
    let links = links.iter().map(|own| {
        let link = &plan.links[own.number];
        let (mine, at) = (link.owner == index, GUEST_VA + link.gpa);
        let end = |base: u64| End { hello: base + HELLO as u64, armed: base + ARMED as u64 };
        Link {
            number: own.number as u32,
            owner: link.owner as u32,
            to: set(link.to.iter().copied()),
            open: tail.append(&own.open),
            gone: tail.append(&own.gone),
            table: LINK_TABLES_VA + own.number as u64 * facts(input).page,
            memory: if mine { [at, link.len] } else { [0; 2] },
            ends: if mine { [end(at), end(at + link.sent)] } else { [End::default(); 2] },
            ..Link::default()
        }
    });
    let links: Vec<_> = links.collect();
    config.links = tail.append(&links);
}

/// Words of an own end of a channel.
fn end(own: &plan::Channel) -> End {
    let base = GUEST_VA + own.gpa;
    End { hello: base + HELLO as u64, armed: base + ARMED as u64 }
}

/// Roles that it can hold.
fn roles(config: &mut Config, tail: &mut Tail, input: &Input, roles: &[nested::Role]) {
    let (plan, index) = (input.plan, input.index);
    let role = |own: &nested::Role| {
        let role = &plan.roles[own.number];
        let of = |region: &&plan::Channel| {
            region.stands(index).is_some_and(|stand| stand.role == own.number)
        };
        let ends: Vec<_> = ends(plan, index).filter(of).map(end).collect();
        let others = role.holders.iter().filter(|holder| **holder != index);
        let cold = |holder: usize| if plan.waits(holder) { COLD } else { 0 };
        let piece = |piece: &nested::Piece| Piece {
            entries: tail.append(&piece.entries),
            table: piece.at(facts(input).page) + piece.first as u64 * 8,
        };
        let pieces: Vec<_> = own.pieces.iter().map(piece).collect();
        let mut told = Role {
            number: own.number as u32,
            least_loaded: if role.least_loaded { u64::MAX } else { 0 },
            others: [NOBODY; 8],
            begins: role.begins_with(index).into(),
            waits: plan.waits(index).into(),
            pieces: tail.append(&pieces),
            ends: tail.append(&ends),
            ..Role::default()
        };
        for (to, other) in told.others.iter_mut().zip(others) {
            *to = *other as u8 | cold(*other);
        }
        told
    };
    let all: Vec<_> = roles.iter().map(role).collect();
    config.roles = tail.append(&all);
}

/// Needs of a sandbox, by the plan. A look at the baked configuration follows ([`has_code`]).
pub fn needs(plan: &Plan, index: usize) -> u32 {
    let sandbox = &plan.sandboxes[index];
    let answered = |device: &plan::Device| device.irq.is_some() || device.class == RTC;
    let shown = || !plan.ends(index).is_empty();
    let devices = !sandbox.functions.is_empty() || shown() || sandbox.devices.iter().any(answered);
    let controls = |s: &Sandbox, of: &dyn Fn(usize) -> bool| {
        s.control.iter().flatten().any(|right| of(right.sandbox))
    };
    let controlled = |s: &Sandbox| controls(s, &|target| target == index);
    let control = controls(sandbox, &|_| true) || plan.sandboxes.iter().any(controlled);
    let party = |link: &plan::Link| link.owner == index || link.to.contains(&index);
    let channels = bells(plan, index).next().is_some() || ends(plan, index).next().is_some();
    let failure = sandbox.actions[Kind::Failure as usize] != Action::Ignore;
    let mediated = |shared: &plan::SharedMmio| shared.of(index).any(|part| part.range.is_some());
    let all = [
        (devices, need::DEVICES),
        (sandbox.cores.len() > 1, need::CORES),
        (plan.links.iter().any(party), need::LINKS),
        (loads(plan, index).is_some(), need::LOADS),
        (control || sandbox.lockable, need::CONTROL),
        (channels, need::CHANNELS),
        (matches!(sandbox.guest, plan::Guest::Linux { .. } | plan::Guest::Running), need::LINUX),
        (plan.runs(index), need::RUNNING),
        (sandbox.watch.is_some(), need::WATCHDOG),
        (!sandbox.ladders.is_empty() || failure, need::LADDER),
        (sandbox.snapshot > 0, need::SNAPSHOT),
        (sandbox.debug, need::DEBUG),
        (plan.mmio.iter().any(mediated), need::MMIO),
        (
            sandbox.lockable || controls(sandbox, &|target| plan.sandboxes[target].lockable),
            need::LOCK,
        ),
        (plan.roles_of(index).next().is_some(), need::ROLE),
    ];
    all.into_iter().filter(|(needed, _)| *needed).fold(0, |set, (_, need)| set | need)
}

/// A monitor has code for each thing that its configuration names, whatever chose the monitor.
fn has_code<T: Target>(config: &T::Config, input: &Input) -> Result<(), Error> {
    let has = input.program.symbol("monitor_needs")? as u32;
    let control = config.rights.control.iter().chain(&config.controlled_by);
    let told = [
        (config.functions.len != 0, need::DEVICES, "PCI functions"),
        (config.cores > 1, need::CORES, "several cores"),
        (config.begin == State::Running as u32, need::RUNNING, "a guest that runs already"),
        (config.links.len != 0, need::LINKS, "links"),
        (config.loads != 0, need::LOADS, "loading"),
        (control.fold(0, |all, set| all | set) != 0, need::CONTROL, "control"),
        (config.lockable != 0, need::LOCK, "locks"),
        (config.bells.len + config.channel_ends.len != 0, need::CHANNELS, "channels"),
        (config.watch.least != 0, need::WATCHDOG, "a watchdog"),
        (config.peers.len != 0, need::WATCHDOG, "looks at other monitors"),
        (config.ladders.len != 0, need::LADDER, "ladders"),
        (config.snapshot != 0, need::SNAPSHOT, "snapshots"),
        (config.debug != 0, need::DEBUG, "a debugger"),
        (config.roles.len != 0, need::ROLE, "roles"),
    ];
    let lacks = told
        .into_iter()
        .chain(T::named(config))
        .find(|&(named, need, _)| named && !need::has(has, need));
    let name = &input.plan.sandboxes[input.index].name;
    let say = |what| Error::Program(format!("the monitor of {name} has no code for {what}"));
    lacks.map_or(Ok(()), |(_, _, what)| Err(say(what)))
}

/// The launch record: zero all RAM, copy what of the pristine guest lies below an address.
fn launch(input: &Input, below: u64) -> impl Iterator<Item = Op> {
    let rams = &input.plan.sandboxes[input.index].ram;
    let image = input.plan.image.start;
    let zero =
        rams.iter().map(|r| Op { kind: Op::ZERO, dst: GUEST_VA + r.gpa, src: 0, len: r.len });
    let copy = input.pristine.iter().filter(move |p| p.gpa < below).map(move |p| Op {
        kind: Op::COPY,
        dst: GUEST_VA + p.gpa,
        src: PRISTINE_VA + (p.pa - image),
        len: p.len,
    });
    zero.chain(copy)
}
