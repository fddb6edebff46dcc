//! Objects that the manifest names: each is made, and given to its owner.

use super::build::{Build, Place};
use super::devices::Devices;
use super::program::{self, Made, entry};
use super::space::at;
use super::target::Kernels;
use crate::elf::Program as Elf;
use bulkhead_kernel::MAX_PERIOD;
use bulkhead_kernel::abi::name::{Memory, Messages};
use bulkhead_kernel::abi::{Grant, Kind, Policy as Number, Rights, label, slot};
use bulkhead_kernel::{CONTEXT_BITS, Cap, Endpoint, Machine, Ref, Thread, refills};
use bulkhead_layout::PAGE;
use bulkhead_plan::kernel::{
    ChannelUse, Context, Kernel, Managed, Policy, Program, Reached, Signal, User, Utilization,
};
use bulkhead_plan::{Bell, Channel, Plan};

/// Budget of a passive thread's beginning, ns. It comes again after the longest period only, so one that never waits
/// for messages takes no more.
const START: u64 = 10_000_000;

/// A policy's number for the kernel.
pub fn number(policy: Policy) -> Number {
    match policy {
        Policy::Sporadic(_) => Number::Sporadic,
        Policy::Strict(_) => Number::Strict,
        Policy::Pibs { .. } => Number::Pibs,
        Policy::Full { .. } => Number::Full,
    }
}

/// A share in millionths, rounded down.
pub fn millionths(share: Utilization) -> u64 {
    u64::from(share.numerator()) * 1_000_000 / u64::from(share.denominator())
}

/// Places of what programs share.
struct Shared {
    authority: Place,
    control: Place,
    sandbox: Place,
    endpoints: Vec<Place>,
    notifications: Vec<Place>,
    contexts: Vec<Place>,
    /// Reply objects, by thread.
    replies: Vec<Place>,
    threads: Vec<Place>,
    memory: Vec<Place>,
}

impl<K: Kernels> Build<K> {
    /// All of a kernel's system.
    pub fn everything(
        &mut self,
        plan: &Plan,
        index: usize,
        kernel: &Kernel,
        elfs: &[Elf],
    ) -> Result<(), String> {
        let sandbox = &plan.sandboxes[index];
        let memory = sandbox.ram.first().map_or(0, |ram| ram.len);
        let mut shared = self.shared(kernel, memory)?;
        let mut programs = Vec::new();
        for (n, (program, elf)) in kernel.programs.iter().zip(elfs).enumerate() {
            let threads = kernel.threads.iter().filter(|t| t.program == n).count();
            let mut made = Made::new(self, program, elf, threads)?;
            let of_it = (0..kernel.threads.len()).filter(|t| kernel.threads[*t].program == n);
            for (number, thread) in of_it.enumerate() {
                self.thread(kernel, thread, number as u64, elf, &mut made, &mut shared)
                    .map_err(|e| format!("thread {}: {e}", kernel.threads[thread].name))?;
            }
            programs.push(made);
        }
        let nodes: Vec<_> = programs.iter().map(|made| (made.node, made.space)).collect();
        let mut links = self.room_for_links(kernel)?;
        for (n, mut made) in programs.into_iter().enumerate() {
            self.rights(&plan.channels, kernel, n, &mut made, &shared, &nodes)
                .map_err(|e| format!("program {}: {e}", kernel.programs[n].name))?;
            let devices = Devices { plan, index, kernel, notifications: &shared.notifications };
            for used in kernel.devices_of(n) {
                devices.give(self, &mut made, used)?;
            }
            let alive = plan.sandboxes[index].watch.and_then(|watch| watch.alive);
            if let Some(alive) = alive.filter(|_| kernel.programs[n].watchdog) {
                made.watched(self, plan.machine.arch.facts().guest.progress, alive.every)?;
            }
            self.roles(plan, index, &kernel.programs[n], &mut made)?;
            self.links(plan, index, &kernel.programs[n], &mut made, &mut links)
                .map_err(|e| format!("program {}: {e}", kernel.programs[n].name))?;
            made.finish(self);
        }
        self.start(kernel, &shared)
    }

    fn shared(&mut self, kernel: &Kernel, memory: u64) -> Result<Shared, String> {
        let authority = self.make(Kind::Thread, 0, 1)?;
        let at: Ref<Thread> = self.cap(authority).at();
        self.machine().get_mut(at).max_priority = u8::MAX;
        let control = self.put(Cap::original(Kind::Control, 0, 0))?;
        let sandbox = self.put(Cap::original(Kind::Sandbox, 0, 0))?;
        let many = |build: &mut Self, kind, count: usize| -> Result<Vec<Place>, String> {
            (0..count).map(|_| build.make(kind, 0, 1)).collect()
        };
        let endpoints = many(self, Kind::Endpoint, kernel.endpoints.len())?;
        for (place, endpoint) in endpoints.iter().zip(&kernel.endpoints) {
            let at: Ref<Endpoint> = self.cap(*place).at();
            self.machine().get_mut(at).longest = endpoint.longest.unwrap_or(0);
        }
        let notifications = many(self, Kind::Notification, kernel.notifications.len())?;
        let threads = vec![0; kernel.threads.len()];
        let replies = many(self, Kind::Reply, kernel.threads.len())?;
        let contexts = { kernel.contexts.iter().enumerate() }
            .map(|(n, context)| self.context(control, n, context, kernel.overhead))
            .collect::<Result<_, _>>()?;
        let memory = { kernel.shared.iter().enumerate() }
            .map(|(n, shared)| match kernel.place_for_devices(n, memory) {
                Some(at) => self.frames_at(at, shared.len),
                None => self.frames(shared.len).map(|(place, _)| place),
            })
            .collect::<Result<_, _>>()?;
        Ok(Shared {
            authority,
            control,
            sandbox,
            endpoints,
            notifications,
            contexts,
            replies,
            threads,
            memory,
        })
    }

    fn context(
        &mut self,
        control: Place,
        n: usize,
        context: &Context,
        overhead: u64,
    ) -> Result<Place, String> {
        let (policy, period) = (number(context.policy), context.period());
        let (first, count) = match context.policy {
            Policy::Sporadic(b) | Policy::Strict(b) => (context.gross(overhead), b.refills),
            Policy::Pibs { utilization, .. } => (millionths(utilization), 0),
            Policy::Full { slice } => (slice, 0),
        };
        let [least, most] = CONTEXT_BITS;
        let bits = (least..=most).find(|bits| refills(*bits) + 1 >= count).unwrap_or(most);
        let place = self.make(Kind::Context, bits, 1)?;
        if count > 0 {
            // As long as the manifest says, not as there is room; the first one lies in the context.
            let at: Ref<bulkhead_kernel::Context> = self.cap(place).at();
            self.machine().get_mut(at).refills = count - 1;
        }
        let word = u64::from(place) | (policy as u64) << 32 | u64::from(context.background) << 40;
        self.call(control, label::SET_CONTEXT, [word, first, period, n as u64 + 1])
            .map_err(|e| format!("context {}: {e}", context.name))?;
        Ok(place)
    }

    fn thread(
        &mut self,
        kernel: &Kernel,
        n: usize,
        number: u64,
        elf: &Elf,
        made: &mut Made,
        shared: &mut Shared,
    ) -> Result<(), String> {
        let wanted = &kernel.threads[n];
        let place = self.make(Kind::Thread, 0, 1)?;
        shared.threads[n] = place;
        let at: Ref<Thread> = self.cap(place).at();
        self.machine().get_mut(at).number = n as u32 + 1;
        let (buffer, offset) = made.buffer(number);
        let spaces = [made.node, made.space, buffer].map(u64::from);
        self.call(place, label::CONFIGURE, [spaces[0], spaces[1], spaces[2], offset])?;
        let priorities = [wanted.priority, wanted.max_priority].map(u64::from);
        let authority = u64::from(shared.authority);
        self.call(place, label::SET_PRIORITY, [priorities[0], priorities[1], authority, 0])?;
        self.call(place, label::SET_FPU, [wanted.fpu.into(), 0, 0, 0])?;
        let routes = [(wanted.fault, label::SET_FAULT), (wanted.timeout, label::SET_TIMEOUT)];
        for (route, method) in routes {
            let Some(route) = route else { continue };
            let badged = self.slot()?;
            let rights = Rights::WRITE.and(Rights::CALL);
            self.give(1, badged, shared.endpoints[route.endpoint], rights, route.badge)?;
            self.call(place, method, [u64::from(badged), 0, 0, 0])?;
        }
        let (stack, pointer) = made.stack(self, wanted.stack, elf)?;
        self.call(place, label::SET_POINTER, [pointer, 0, 0, 0])?;
        let ip = entry(kernel, n, elf)?;
        let words = [ip, stack - K::ABOVE_STACK, at::PAGE, number];
        self.call(place, label::WRITE_REGISTERS, words)?;
        Ok(())
    }

    /// Gives a program its capabilities.
    fn rights(
        &mut self,
        channels: &[Channel],
        kernel: &Kernel,
        n: usize,
        made: &mut Made,
        shared: &Shared,
        nodes: &[(Place, Place)],
    ) -> Result<(), String> {
        let program = &kernel.programs[n];
        let end = if program.ends { Rights::EXECUTE } else { Rights::NONE };
        self.give(made.node, slot::SANDBOX, shared.sandbox, Rights::WRITE.and(end), 0)?;
        made.tell_overhead(kernel);
        if program.sched_control {
            self.give(made.node, slot::CONTROL, shared.control, Rights::ALL, 0)?;
            made.tell_load(kernel);
        }
        if program.memory > 0 {
            let bits = program.memory.next_power_of_two().trailing_zeros() as u8;
            let memory = self.make(Kind::Untyped, bits, 1)?;
            let words = [u64::from(slot::MEMORY), u64::from(memory), 0, 0];
            self.call(made.node, label::MOVE, words)?;
        }
        for call in &program.calls {
            let mut rights = Rights::WRITE.and(Rights::CALL);
            rights = if call.grant { rights.and(Rights::GRANT) } else { rights };
            let name = &kernel.endpoints[call.endpoint].name;
            made.give(self, shared.endpoints[call.endpoint], name, rights, call.badge)?;
        }
        for serves in &program.serves {
            let name = &kernel.endpoints[*serves].name;
            made.give(self, shared.endpoints[*serves], name, Rights::READ, 0)?;
        }
        for signal in &program.signals {
            let name = &kernel.notifications[signal.notification].name;
            let from = shared.notifications[signal.notification];
            made.give(self, from, name, Rights::WRITE, signal.bits)?;
        }
        for waits in &program.waits {
            let name = &kernel.notifications[*waits].name;
            made.give(self, shared.notifications[*waits], name, Rights::READ, 0)?;
        }
        self.memory_of(channels, kernel, n, made, shared)?;
        let own = (0..kernel.threads.len()).filter(|t| kernel.threads[*t].program == n);
        for thread in own {
            let name = &kernel.threads[thread].name;
            made.give(self, shared.replies[thread], name, Rights::ALL, 0)?;
        }
        for managed in &program.manages {
            match *managed {
                Managed::Program(other) => {
                    let name = &kernel.programs[other].name;
                    made.give(self, nodes[other].0, name, Rights::ALL, 0)?;
                    made.give(self, nodes[other].1, name, Rights::ALL, 0)?;
                }
                Managed::Thread(thread) => {
                    let managed = &kernel.threads[thread];
                    let name = &managed.name;
                    made.give_thread(self, shared.threads[thread], (name, managed.priority))?;
                    if kernel.threads[thread].program != n {
                        made.give(self, shared.replies[thread], name, Rights::ALL, 0)?;
                    }
                }
                Managed::Context(context) => {
                    let own = |t: &usize| kernel.threads[*t].program == n;
                    let has = |t: &usize| kernel.threads[*t].context == Some(context);
                    let thread = (0..kernel.threads.len()).filter(own).position(|t| has(&t));
                    let address = made.take(self, shared.contexts[context], Rights::ALL, 0)?;
                    let context = &kernel.contexts[context];
                    made.tell(&context.name, program::context(context, thread, address))?;
                }
            }
        }
        Ok(())
    }

    /// Shared memory and channels that a program sees.
    fn memory_of(
        &mut self,
        channels: &[Channel],
        kernel: &Kernel,
        n: usize,
        made: &mut Made,
        shared: &Shared,
    ) -> Result<(), String> {
        let rights = |write| if write { Rights::READ.and(Rights::WRITE) } else { Rights::READ };
        let mut address = at::SHARED;
        for map in &kernel.programs[n].maps {
            let len = kernel.shared[map.shared].len;
            let frames = shared.memory[map.shared];
            self.map_again(made.space, frames, (len / PAGE) as u32, address, rights(map.write))?;
            // A driver tells its device where that finds it.
            let mut uses = kernel.devices_of(n).iter();
            let reached = uses.any(|used| used.dma.contains(&Reached::Shared(map.shared)));
            let start = u64::from(self.cap(frames).object) * PAGE;
            let device = if reached { self.ground.base + start } else { 0 };
            let device = u32::try_from(device).map_err(|_| {
                format!("memory {} lies above 4 GiB", kernel.shared[map.shared].name)
            })?;
            let memory = Memory { write: map.write, device, start: address, len };
            made.tell(&kernel.shared[map.shared].name, Grant::Memory(memory))?;
            address += len;
        }
        let mut address = at::CHANNELS;
        for used in &kernel.programs[n].channels {
            let channel = &channels[used.channel];
            self.region(made.space, channel, address, rights(used.write))?;
            let (write, start, len) = (used.write, address, channel.len);
            address += len;
            let mut uses = kernel.devices_of(n).iter();
            let reached = uses.any(|one| one.dma.contains(&Reached::Channel(used.channel)));
            // Channels lie below 4 GiB, in a sandbox; without a monitor only the first ones may.
            let found = if reached { self.ground.channel(channel) } else { 0 };
            let device = u32::try_from(found)
                .map_err(|_| format!("channel {} lies above 4 GiB", channel.name))?;
            let grant = match channel.part.shape() {
                None => Grant::Memory(Memory { write, device, start, len }),
                Some(shape) => {
                    // The receiver's region, behind the sender's.
                    let other = channels.get(used.channel + 1);
                    let other = other.ok_or("a sender without a receiver")?;
                    self.region(made.space, other, address, rights(!write))?;
                    address += other.len;
                    let (kind, message) = (shape.kind() as u8, shape.message());
                    let (there, back) = (other.bell, channel.bell);
                    let (rung, wakes) = if write { (there, back) } else { (back, there) };
                    let right = match rung {
                        Some(bell) => self.right_to_ring(made, bell)?,
                        None => 0,
                    };
                    let signal = wakes.zip(used.signal);
                    if let Some((bell, signal)) = signal {
                        self.woken(bell, signal, &shared.notifications)?;
                    }
                    // An end without a notification is not woken.
                    let rung = rung.map_or(0, |bell| bell.ring);
                    let vector = signal.map_or(0, |(bell, _)| bell.vector as u16);
                    let (bell, back) = if write { (rung, vector) } else { (vector, rung) };
                    let sends = write;
                    let adaptive = there.is_some_and(|bell| bell.adaptive);
                    let len = channel.len as u32;
                    Grant::Messages(Messages {
                        sends,
                        kind,
                        adaptive,
                        bell,
                        back,
                        message,
                        right,
                        start,
                        len,
                        device,
                    })
                }
            };
            made.tell(&channel.name, grant)?;
        }
        Ok(())
    }

    /// Gives a program the right to ring the other end of a channel.
    fn right_to_ring(&mut self, made: &mut Made, bell: Bell) -> Result<u32, String> {
        let place = self.put(K::bell(bell.ring))?;
        made.take(self, place, Rights::NONE, 0)
    }

    /// Makes the interrupt of an end of a channel, which signals. It needs no acknowledgement: it comes again when the
    /// end has asked for it.
    fn woken(&mut self, bell: Bell, signal: Signal, notifications: &[Place]) -> Result<(), String> {
        let place = self.interrupt(bell.vector, [0, 0], false)?;
        self.signal_from(place, notifications[signal.notification], signal.bits)
    }

    /// Has an interrupt signal a notification.
    pub fn signal_from(
        &mut self,
        interrupt: Place,
        notification: Place,
        bits: u64,
    ) -> Result<(), String> {
        let signal = self.slot()?;
        self.give(1, signal, notification, Rights::WRITE, bits)?;
        self.call(interrupt, label::SET_NOTIFICATION, [signal.into(), 0, 0, 0]).map(drop)
    }

    /// Shows a program which roles its sandbox has, if it has a channel of one.
    fn roles(
        &mut self,
        plan: &Plan,
        index: usize,
        program: &Program,
        made: &mut Made,
    ) -> Result<(), String> {
        let stands = |used: &ChannelUse| plan.channels[used.channel].stands(index);
        let own = |number: usize| {
            program.channels.iter().filter_map(stands).any(|stand| stand.role == number)
        };
        let roles: Vec<_> = plan.roles_of(index).filter(|(number, _)| own(*number)).collect();
        if !roles.is_empty() {
            made.sees_roles(self, plan.machine.arch.facts().guest.roles)?;
        }
        for (number, role) in roles {
            made.tell_role(number, &role.name)
                .map_err(|e| format!("program {}: {e}", program.name))?;
        }
        Ok(())
    }

    /// Maps a channel's region.
    fn region(
        &mut self,
        space: Place,
        region: &Channel,
        address: u64,
        rights: Rights,
    ) -> Result<(), String> {
        let start = self.ground.channel(region);
        for page in 0..region.len / PAGE {
            let mut cap = Cap::original(Kind::Frame, (start / PAGE + page) as u32, 12);
            cap.flags |= Cap::DEVICE;
            cap.rights = rights.0;
            let frame = self.put(cap)?;
            self.map(space, frame, 1, address + page * PAGE, rights)?;
        }
        Ok(())
    }

    /// Writes down where the objects lie that a trace names.
    fn tell(&mut self, shared: &Shared, starts: Vec<(u32, usize)>) {
        let at = |build: &Self, places: &[Place]| -> Vec<u32> {
            places.iter().map(|place| build.cap(*place).object).collect()
        };
        let [threads, contexts, notifications] =
            [&shared.threads, &shared.contexts, &shared.notifications].map(|all| at(self, all));
        if let Some(trace) = self.trace() {
            (trace.threads, trace.contexts) = (threads, contexts);
            (trace.notifications, trace.starts) = (notifications, starts);
        }
    }

    /// Binds contexts to their users, and starts threads. Passive threads run on lent time until they wait for messages
    /// for the first time. Threads of an alternative wait until another program starts them.
    fn start(&mut self, kernel: &Kernel, shared: &Shared) -> Result<(), String> {
        for (n, context) in kernel.contexts.iter().enumerate() {
            let to = match context.user {
                User::Thread(thread) => shared.threads[thread],
                User::Notification(notification) => shared.notifications[notification],
            };
            self.call(shared.contexts[n], label::BIND, [u64::from(to), 0, 0, 0])?;
        }
        let passive = { kernel.threads.iter().zip(&shared.threads).enumerate() }
            .filter(|(_, (t, _))| t.context.is_none() && !kernel.stands_by(t))
            .map(|(n, (_, place))| (n, place));
        let mut starts = Vec::new();
        for (n, thread) in passive {
            let context = self.make(Kind::Context, CONTEXT_BITS[0], 1)?;
            let word = u64::from(context) | (Number::Sporadic as u64) << 32;
            self.call(shared.control, label::SET_CONTEXT, [word, START, MAX_PERIOD, 0])?;
            self.call(context, label::BIND, [u64::from(*thread), 1, 0, 0])?;
            starts.push((self.cap(context).object, n));
        }
        for (thread, place) in kernel.threads.iter().zip(&shared.threads) {
            if !kernel.stands_by(thread) {
                self.call(*place, label::RESUME, [0; 4])?;
            }
        }
        self.tell(shared, starts);
        Ok(())
    }
}
