//! Claims of a program for another sandbox that are false. For one that has a channel of kind `program` to another
//! (`sandbox=INDEX`), and the right to restart that.

use crate::expect::{Expect, Got};
use crate::{Act::Run, Aim, Attack};
use bulkhead_sdk::layout::hypercall::{CONTROL, CONTROL_RESTART};
use bulkhead_sdk::layout::load::{HEAD, Head, MAGIC, PROGRAM_GPA};
use bulkhead_sdk::{hypercall, window};
use core::sync::atomic::Ordering;

/// UD2 (APM volume 3): a guest that runs this program does not get far.
const PROGRAM: u64 = 0x0B0F;
/// Bytes of it.
const LEN: u64 = 4096;

/// Leaves a head and the program, and restarts the sandbox that shall run it; the call's answer.
fn leave(aim: &Aim, head: Head) -> Got {
    let channel = window::all(aim.context).find(|window| !window.report && window.writable);
    let Some(channel) = channel else { return Ok(u64::MAX) };
    let words = channel.words().iter();
    let program = [PROGRAM].into_iter().chain((8..LEN).step_by(8).map(|_| 0));
    let all = [head.magic, head.len, head.entry, head.sum].into_iter().chain(program);
    words.zip(all).for_each(|(word, value)| word.store(value, Ordering::Release));
    Ok(hypercall::raw(CONTROL, u64::from(aim.sandbox), CONTROL_RESTART, 0, 0))
}

/// More than the channel has, by far: memory behind it is not for its reader's monitor.
fn too_long(aim: &Aim) -> Got {
    leave(aim, Head { magic: MAGIC, len: 1 << 40, entry: PROGRAM_GPA, sum: 0 })
}

/// As if its writer had died on the way.
fn torn(aim: &Aim) -> Got {
    leave(aim, Head { magic: MAGIC, len: LEN, entry: PROGRAM_GPA, sum: 0 })
}

/// They are taken for none, without a record: the sandbox runs the image's program.
const fn load(name: &'static str, guarantee: &'static str, act: fn(&Aim) -> Got) -> Attack {
    Attack::new(name, guarantee, Run(act), Expect::Harmless(0))
}

/// See the module.
pub static LOADS: &[Attack] =
    &[load("load-too-long", "load-head", too_long), load("load-torn", "load-sum", torn)];

const _: () = assert!(HEAD == 32, "four words");
