//! Statements about threads, the objects that they wait for, and the contexts that they use.

use crate::World;
use crate::tree::must;
use bulkhead_kernel::abi::{Kind, Rights};
use bulkhead_kernel::{
    Cap, Context, Endpoint, Machine as _, Notification, Place, Queue, Ref, Reply, State, Thread,
};
use std::collections::HashMap;

type Checked<T = ()> = Result<T, String>;

fn is(thread: &Thread, state: State) -> bool {
    thread.state == state as u8
}

/// Where each thread is queued.
type Queued = HashMap<Ref<Thread>, u32>;

fn queue(world: &World, at: u32, queue: Queue, state: u8, queued: &mut Queued) -> Checked {
    let m = &world.machine;
    let (mut previous, mut priority) = (Ref::NONE, 255);
    let mut next = queue.first;
    while let Some(thread) = next.some() {
        let waits = m.get(thread);
        must!(waits.previous == previous, "{thread:?} in {at:#x} has {:?} before", waits.previous);
        must!(waits.waits_at == at && waits.state == state, "{thread:?} in the queue of {at:#x}");
        must!(waits.priority <= priority, "{thread:?} is too late in {at:#x}");
        must!(queued.insert(thread, at).is_none(), "{thread:?} is queued twice");
        (previous, priority, next) = (thread, waits.priority, waits.next);
    }
    must!(queue.last == previous, "the last one of {at:#x}");
    let (mut above, mut next) = (Ref::NONE, queue.first);
    while let Some(thread) = next.some() {
        let waits = m.get(thread);
        next = waits.next;
        let lower = next.some().filter(|next| m.get(*next).priority == waits.priority);
        if lower.is_some() {
            let knows = !waits.higher.is_none() || !waits.lower.is_none();
            must!(!knows, "{thread:?} is not the last of its priority");
            continue;
        }
        must!(waits.higher == above, "{thread:?} has {:?} above, not {above:?}", waits.higher);
        must!(above.is_none() || m.get(above).lower == thread, "{above:?} has {thread:?} below");
        above = thread;
    }
    must!(above.is_none() || m.get(above).lower.is_none(), "{above:?} is the lowest");
    Ok(())
}

fn queues(world: &World) -> Checked<Queued> {
    let m = &world.machine;
    let mut queued = Queued::new();
    for (at, kind) in m.objects() {
        match kind {
            Kind::Endpoint => {
                let endpoint: &Endpoint = m.get(Ref::new(at));
                let state = endpoint.state;
                let empty = endpoint.queue.first.is_none();
                must!((state == 0) == empty, "endpoint {at:#x} is in state {state}");
                queue(world, at, endpoint.queue, state as u8, &mut queued)?;
            }
            Kind::Notification => {
                let notification: &Notification = m.get(Ref::new(at));
                queue(world, at, notification.queue, State::Waiting as u8, &mut queued)?;
                unheard(world, at, notification)?;
            }
            _ => (),
        }
    }
    Ok(queued)
}

/// No thread sleeps on while its signal is there.
fn unheard(world: &World, at: u32, notification: &Notification) -> Checked {
    let m = &world.machine;
    if let Some(bound) = notification.bound.some() {
        must!(m.get(bound).notification.at() == at, "{bound:?} is not bound to {at:#x}");
    }
    if let Some(context) = notification.context.some() {
        must!(m.get(context).notification.at() == at, "{context:?} is not that of {at:#x}");
    }
    let lent = notification.context.some().filter(|c| m.get(*c).thread.is_none());
    let first = notification.queue.first.some().or_else(|| {
        let receives = |t: &Ref<Thread>| is(m.get(*t), State::Receiving);
        notification.bound.some().filter(receives)
    });
    let could = first.is_some_and(|t| !m.get(t).context.is_none() || lent.is_some());
    must!(notification.bits == 0 || !could, "{first:?} doesn't hear {at:#x}");
    Ok(())
}

/// A thread uses the objects that it keeps.
fn keeps(world: &World, at: Ref<Thread>, thread: &Thread) -> Checked {
    let m = &world.machine;
    let kept = |place: Place| thread.slots[place as usize - 1].cap;
    let cap = kept(Place::Root);
    let root = match cap.kind() {
        Kind::Node => (cap.object, 1 << cap.bits),
        _ => (0, 0),
    };
    must!(root == (thread.root.at(), thread.root_slots), "{at:?} uses a node that it hasn't");
    let cap = kept(Place::Space);
    let space = if cap.is(Kind::Space) { m.physical(cap.object) } else { 0 };
    must!(thread.space == space, "{at:?} is in a space that it hasn't");
    must!(space != 0 || is(thread, State::Stopped), "{at:?} has no space and isn't stopped");
    let cap = kept(Place::Buffer);
    let buffer = u64::from(thread.buffer.at());
    let first = u64::from(cap.object) << 12;
    let within = cap.is(Kind::Frame) && buffer >= first && buffer + 512 <= first + (1 << cap.bits);
    must!(if buffer == 0 { cap == Cap::NULL } else { within }, "{at:?} has buffer {buffer:#x}");
    for place in [Place::Fault, Place::Timeout] {
        let cap = kept(place);
        let good = cap.is(Kind::Endpoint) && cap.rights().has(Rights::WRITE.and(Rights::CALL));
        must!(good || cap.is(Kind::Null), "{at:?} has {cap:?} as a handler");
    }
    Ok(())
}

fn thread(world: &World, at: Ref<Thread>, queued: &Queued) -> Checked {
    let m = &world.machine;
    let thread = m.get(at);
    keeps(world, at, thread)?;
    must!(thread.state <= State::Waiting as u8, "{at:?} is in state {}", thread.state);
    for (context, is_home) in [(thread.context, false), (thread.home, true)] {
        if let Some(context) = context.some() {
            let of = m.get(context);
            let back = if is_home { of.home } else { of.thread };
            must!(back == at, "{at:?} has {context:?} (its own: {is_home}), which has {back:?}");
        }
    }
    if let Some(bound) = thread.notification.some() {
        must!(m.get(bound).bound == at, "{at:?} is bound to {bound:?}, and that not to it");
    }
    let waits = [State::Sending, State::Receiving, State::Waiting].iter().any(|s| is(thread, *s));
    must!(queued.contains_key(&at) == waits, "{at:?} in state {} queued: {}", thread.state, !waits);
    let links = [thread.next, thread.previous, thread.higher, thread.lower];
    let free = links.iter().all(|link| link.is_none());
    must!(waits || free, "{at:?} is in no queue and has neighbours");
    let tells = is(thread, State::Sending) || is(thread, State::Calling);
    must!(tells || thread.flags & Thread::FAULTS == 0, "{at:?} tells of a fault and runs");
    match thread.reply.some() {
        Some(reply) => {
            let Reply { caller, receiver, .. } = *m.get(reply);
            let calls = is(thread, State::Calling) && (caller, receiver) == (at, Ref::NONE);
            let waits = is(thread, State::Receiving) && (caller, receiver) == (Ref::NONE, at);
            must!(calls || waits, "{at:?} in state {} has reply {reply:?}", thread.state);
        }
        None => must!(!is(thread, State::Calling), "{at:?} waits for nobody's answer"),
    }
    Ok(())
}

fn reply(world: &World, at: Ref<Reply>) -> Checked {
    let m = &world.machine;
    let Reply { caller, below, above, context, receiver, .. } = *m.get(at);
    for thread in [caller, receiver].into_iter().filter_map(Ref::some) {
        must!(m.get(thread).reply == at, "{at:?} has {thread:?}, which has not it");
    }
    must!(caller.is_none() || receiver.is_none(), "{at:?} has both ends");
    let stacked = !(below.is_none() && above.is_none() && context.is_none());
    must!(!stacked || !caller.is_none(), "{at:?} is in a stack and nobody waits");
    must!(above.is_none() || context.is_none(), "{at:?} has a context and isn't topmost");
    if let Some(below) = below.some() {
        must!(m.get(below).above == at, "{at:?} lies on {below:?}, which doesn't know");
    }
    if let Some(above) = above.some() {
        must!(m.get(above).below == at, "{at:?} lies under {above:?}, which doesn't know");
    }
    if let Some(context) = context.some() {
        must!(m.get(context).reply == at, "{at:?} is not the topmost one of {context:?}");
    }
    Ok(())
}

fn context(world: &World, at: Ref<Context>) -> Checked {
    let m = &world.machine;
    let Context { thread, home, notification, reply, is_set, time, .. } = *m.get(at);
    if let Some(thread) = thread.some() {
        must!(m.get(thread).context == at, "{at:?} is with {thread:?}, which doesn't have it");
    }
    if let Some(home) = home.some() {
        must!(m.get(home).home == at, "{at:?} is {home:?}'s own, which has another one");
        must!(!thread.is_none(), "{at:?} is lost to its owner {home:?}");
    }
    if let Some(notification) = notification.some() {
        must!(m.get(notification).context == at, "{at:?} is not that of {notification:?}");
    }
    must!(home.is_none() || notification.is_none(), "{at:?} belongs to two");
    let (mut next, mut bottom) = (reply, Ref::NONE);
    if let Some(reply) = reply.some() {
        must!(m.get(reply).context == at, "{at:?} came through {reply:?}, which has another one");
    }
    while let Some(reply) = next.some() {
        (bottom, next) = (m.get(reply).caller, m.get(reply).below);
        must!(m.get(bottom).context.is_none(), "{bottom:?} lent {at:?} and has another one");
    }
    let lent = !home.is_none() && thread != home;
    must!(
        !lent || bottom == home,
        "{at:?} of {home:?} is with {thread:?} and comes from {bottom:?}"
    );
    let runs = thread.some().is_some_and(|thread| is(m.get(thread), State::Running));
    let alarm = time.has_alarm();
    let wanted = time.is_wanted() && !time.is_alarmed();
    must!(wanted == (runs && is_set != 0), "{at:?} of {thread:?}: is wanted {wanted}, runs {runs}");
    if let Some(thread) = thread.some().filter(|_| wanted) {
        let (here, there) = (time.priority(), m.get(thread).priority);
        must!(here == there, "{at:?} is at priority {here}, and {thread:?} at {there}");
    }
    must!(is_set != 0 || !alarm, "{at:?} has an alarm and no time");
    if alarm || time.is_alarmed() {
        let waits = |t| [State::Receiving, State::Waiting].iter().any(|s| is(m.get(t), *s));
        let own = thread.some().is_some_and(|thread| thread == home && waits(thread));
        must!(own, "{at:?} has an alarm for {thread:?}");
    }
    Ok(())
}

/// The running thread is the first of those that can run.
fn first(world: &World) -> Checked {
    let m = &world.machine;
    let running = world.core.scheduler.running();
    let current = world.core.current;
    let Some(id) = running else {
        must!(current.is_none(), "{current:?} runs on nothing");
        return Ok(());
    };
    let on = Ref::<Context>::new(id.get().get());
    let Context { thread, time, .. } = *m.get(on);
    must!(thread == current && !current.is_none(), "{current:?} runs on {on:?} of {thread:?}");
    must!(is(m.get(current), State::Running), "{current:?} runs and may not");
    let pointer = m.get(current).pointer;
    must!(m.pointer == pointer, "{current:?} has the pointer {:#x}, not {pointer:#x}", m.pointer);
    let vectors = m.get(current).flags & Thread::VECTORS != 0;
    let area = vectors.then(|| bulkhead_kernel::vectors(current));
    must!(m.vectors == area, "{current:?} has the vector registers {:?}", m.vectors);
    let ahead = |at: u32| {
        let other = &m.get(Ref::<Context>::new(at)).time;
        let ready = other.is_wanted() && other.account().eligible() <= m.time;
        let below = world.core.scheduler.is_in_background();
        ready && (other.priority() > time.priority() || below) && at != on.at()
    };
    let mut contexts = m.objects().filter(|(_, kind)| *kind == Kind::Context);
    let passed = contexts.find(|(at, _)| m.timer > m.time && ahead(*at));
    must!(passed.is_none(), "{on:?} runs, and {passed:x?} should");
    Ok(())
}

/// Checks all of them.
pub fn check(world: &World) -> Checked {
    let queued = queues(world)?;
    let mut set = 0;
    for (at, kind) in world.machine.objects() {
        match kind {
            Kind::Thread => thread(world, Ref::new(at), &queued)?,
            Kind::Reply => reply(world, Ref::new(at))?,
            Kind::Context => {
                context(world, Ref::new(at))?;
                set += u64::from(world.machine.get(Ref::<Context>::new(at)).is_set);
            }
            _ => (),
        }
    }
    let reserved = world.core.scheduler.reserved();
    must!(reserved == set, "{reserved} places are taken, for {set} contexts");
    first(world)
}
