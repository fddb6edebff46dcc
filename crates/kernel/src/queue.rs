//! Threads that wait somewhere: by priority, and within one in the order in which they came.

use crate::{Machine, Queue, Ref, Thread};

/// Puts a thread into a queue. Takes a step for each thread of a lower priority in it.
pub fn enter<M: Machine>(m: &mut M, queue: &mut Queue, thread: Ref<Thread>) {
    let priority = m.get(thread).priority;
    let mut before = queue.last;
    while let Some(other) = before.some().filter(|other| m.get(*other).priority < priority) {
        before = m.get(other).previous;
    }
    let after = match before.some() {
        Some(before) => core::mem::replace(&mut m.get_mut(before).next, thread),
        None => core::mem::replace(&mut queue.first, thread),
    };
    match after.some() {
        Some(after) => m.get_mut(after).previous = thread,
        None => queue.last = thread,
    }
    let thread = m.get_mut(thread);
    (thread.previous, thread.next) = (before, after);
}

/// Takes a thread out of the queue in which it is.
#[inline]
pub fn quit<M: Machine>(m: &mut M, queue: &mut Queue, thread: Ref<Thread>) {
    let gone = m.get_mut(thread);
    let (before, after) = (gone.previous, gone.next);
    (gone.previous, gone.next) = (Ref::NONE, Ref::NONE);
    match before.some() {
        Some(before) => m.get_mut(before).next = after,
        None => queue.first = after,
    }
    match after.some() {
        Some(after) => m.get_mut(after).previous = before,
        None => queue.last = before,
    }
}
