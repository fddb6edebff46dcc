//! Another program for a sandbox. It is written into the channel that the manifest gives for it. At the next start that
//! sandbox's monitor takes it from there, and checks it.

use crate::Wrong;
use crate::ask::{Other, granted};
use crate::machine::{Machine, Status};
use crate::why::Reader;
use bulkhead_layout::load::{HEAD, LABEL, MAGIC};
use bulkhead_layout::map::GUEST_LOW_END;
use bulkhead_linux::devmem::Registers;
use bulkhead_manifest::rules::names::not_plain;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The result, in words.
type Answer = Result<String, Wrong>;

/// Writes a program, and restarts the sandbox with it.
pub fn load(
    machine: &Machine,
    name: &str,
    file: &str,
    wait: Duration,
    why: &Result<Reader, Wrong>,
) -> Answer {
    let (other, channel, room) = target(machine, name, wait)?;
    let bytes = std::fs::read(file).map_err(|why| format!("{file}: {why}"))?;
    let packed = match bytes.starts_with(&MAGIC.to_le_bytes()) {
        true => bytes,
        false => {
            // Without a manifest it may be as much as any sandbox can have.
            let end = why.as_ref().ok().and_then(|why| why.memory(other.index));
            bulkhead_image::pack(file, &bytes, end.unwrap_or(GUEST_LOW_END))
                .map_err(|why| why.to_string())?
        }
    };
    let now = run(&other, &channel, room, (file, &packed), why)?;
    Ok(other.is(now))
}

/// Writes what was packed from a file, and restarts the sandbox with it.
pub fn run(
    other: &Other,
    channel: &Registers,
    room: u64,
    (file, packed): (&str, &[u8]),
    why: &Result<Reader, Wrong>,
) -> Result<Status, Wrong> {
    let (len, name) = (packed.len() as u64, other.name);
    // The end of the channel is for a name.
    if !(HEAD..=room.saturating_sub(LABEL)).contains(&len) {
        let room = room.saturating_sub(LABEL);
        return Err(format!("{file} takes {len} bytes; the channel for `{name}` has {room}"));
    }
    write(channel, packed)?;
    let now = again(other, why)?;
    if now.loaded {
        return Ok(now);
    }
    let is = other.is(now);
    let is = is.trim_end();
    Err(format!("{is}; its monitor did not take {file}: it is not whole, or was changed meanwhile"))
}

/// Takes a program away, and restarts the sandbox with the image's.
pub fn unload(
    machine: &Machine,
    name: &str,
    wait: Duration,
    why: &Result<Reader, Wrong>,
) -> Answer {
    let (other, channel, room) = target(machine, name, wait)?;
    clear(&other, &channel, room, why).map(|now| other.is(now))
}

/// Takes what was loaded away, with its name.
pub fn clear(
    other: &Other,
    channel: &Registers,
    room: u64,
    why: &Result<Reader, Wrong>,
) -> Result<Status, Wrong> {
    // Nothing is lost if it cannot be ended.
    let name = label(channel, room);
    let before = u64::from(channel.get32(0)) | u64::from(channel.get32(4)) << 32;
    wipe(channel, room);
    again(other, why).inspect_err(|_| {
        channel.set64(0, before);
        set_label(channel, room, name.as_deref().unwrap_or_default());
    })
}

/// Leaves neither program nor name.
pub fn wipe(channel: &Registers, room: u64) {
    channel.set64(0, 0);
    set_label(channel, room, "");
}

/// Offset of the name in a channel of so many bytes.
fn label_at(room: u64) -> usize {
    (room - LABEL) as usize
}

/// Leaves the name of what is created.
pub fn set_label(channel: &Registers, room: u64, name: &str) {
    let mut bytes = [0; LABEL as usize];
    let len = name.len().min(bytes.len() - 1);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    let words = bytes.chunks(8).map(word).enumerate();
    words.for_each(|(n, word)| channel.set64(label_at(room) + n * 8, word));
}

/// The name that was left: a claim of whoever wrote it, so what is no name is none.
pub fn label(channel: &Registers, room: u64) -> Option<String> {
    let words = (0..LABEL as usize / 4).map(|n| channel.get32(label_at(room) + n * 4));
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).take_while(|byte| *byte != 0).collect();
    String::from_utf8(bytes).ok().filter(|name| not_plain(name).is_none())
}

/// The sandbox, the channel for its program, and how many bytes that has.
pub fn target<'a>(
    machine: &'a Machine,
    name: &'a str,
    wait: Duration,
) -> Result<(Other<'a>, Registers, u64), Wrong> {
    let index = machine.index(name)?;
    let Some((channel, gpa, room)) = machine.loads(index) else {
        return Err(format!(
            "`{0}` may not load `{name}`; a [[channel]] with kind = \"program\", from = \"{0}\", to = [\"{name}\"] in the manifest would let it",
            machine.info.name
        ));
    };
    // By its address: not every Linux that ran first has PCI functions for channels.
    let open = Registers::memory(gpa, room);
    let open = open.map_err(|why| format!("channel {channel}: {why}"))?;
    Ok((Other { machine, index, name, wait }, open, room))
}

/// Restarts it. The first life is the image's whatever was loaded, so one that has not lived yet begins twice.
fn again(other: &Other, why: &Result<Reader, Wrong>) -> Result<Status, Wrong> {
    let begin = || other.anew().map_err(|e| granted(e, "restart", (other.index, other.name), why));
    let now = begin()?;
    if now.restarts == 0 { begin() } else { Ok(now) }
}

/// Writes it, its first word last, so that it is never taken for whole before it is; and reads it back.
fn write(memory: &Registers, packed: &[u8]) -> Result<(), Wrong> {
    let words: Vec<u64> = packed.chunks(8).map(word).collect();
    memory.set64(0, 0);
    fence(Ordering::SeqCst);
    let rest = || words.iter().enumerate().skip(1);
    rest().for_each(|(n, word)| memory.set64(n * 8, *word));
    fence(Ordering::SeqCst);
    let half = |at: usize| u64::from(memory.get32(at));
    let read = |n: usize| half(n * 8) | half(n * 8 + 4) << 32;
    if let Some((n, _)) = rest().find(|(n, word)| read(*n) != **word) {
        return Err(format!("byte {:#x} did not stay as it was written", n * 8));
    }
    memory.set64(0, words.first().copied().unwrap_or(0));
    fence(Ordering::SeqCst);
    Ok(())
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
