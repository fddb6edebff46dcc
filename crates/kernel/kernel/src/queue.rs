//! Threads that wait somewhere: by priority, and within one in the order in which they came.
//!
//! The last thread of each priority knows the last ones of the next higher and the next lower priority. So a thread
//! finds its place in a step for each priority that waits, 255 at most, however many threads do.

use crate::{Machine, Queue, Ref, Thread};

/// Puts a thread into a queue.
pub fn enter<M: Machine>(m: &mut M, queue: &mut Queue, thread: Ref<Thread>) {
    let priority = m.get(thread).priority;
    let (mut before, mut lower) = (queue.last, Ref::NONE);
    while let Some(other) = before.some().filter(|other| m.get(*other).priority < priority) {
        (before, lower) = (m.get(other).higher, other);
    }
    let after = match before.some() {
        Some(before) => core::mem::replace(&mut m.get_mut(before).next, thread),
        None => core::mem::replace(&mut queue.first, thread),
    };
    match after.some() {
        Some(after) => m.get_mut(after).previous = thread,
        None => queue.last = thread,
    }
    let mut higher = before;
    if let Some(same) = before.some().filter(|before| m.get(*before).priority == priority) {
        let same = m.get_mut(same);
        higher = same.higher;
        (same.higher, same.lower) = (Ref::NONE, Ref::NONE);
    }
    join(m, higher, thread, lower);
    let entered = m.get_mut(thread);
    (entered.previous, entered.next) = (before, after);
}

/// Takes a thread out of the queue in which it is, whatever its priority is now.
pub fn quit<M: Machine>(m: &mut M, queue: &mut Queue, thread: Ref<Thread>) {
    let gone = m.get_mut(thread);
    let (before, after, higher, lower) = (gone.previous, gone.next, gone.higher, gone.lower);
    (gone.previous, gone.next) = (Ref::NONE, Ref::NONE);
    (gone.higher, gone.lower) = (Ref::NONE, Ref::NONE);
    let last_of_its_priority = thread == queue.last || !higher.is_none() || !lower.is_none();
    match before.some() {
        Some(before) => m.get_mut(before).next = after,
        None => queue.first = after,
    }
    match after.some() {
        Some(after) => m.get_mut(after).previous = before,
        None => queue.last = before,
    }
    if !last_of_its_priority {
        return;
    }
    // The thread before it has its priority, or is the last one of the next higher.
    match before.some().filter(|before| *before != higher) {
        Some(same) => join(m, higher, same, lower),
        None => link(m, higher, lower),
    }
}

/// The last ones of three priorities side by side.
fn join<M: Machine>(m: &mut M, higher: Ref<Thread>, this: Ref<Thread>, lower: Ref<Thread>) {
    link(m, higher, this);
    link(m, this, lower);
}

/// The last ones of two priorities.
fn link<M: Machine>(m: &mut M, higher: Ref<Thread>, lower: Ref<Thread>) {
    if let Some(higher) = higher.some() {
        m.get_mut(higher).lower = lower;
    }
    if let Some(lower) = lower.some() {
        m.get_mut(lower).higher = higher;
    }
}
