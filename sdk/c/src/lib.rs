//! Ends of channels for bare guests in C: `sdk/include/bulkhead-channel.h` declares them. A thin shell around [`end`].
//! C's arguments become slices and references here, and news become numbers below 0, as in a Linux (`linux/support/c`).
//!
//! An end lies in memory of the caller's, since a bare guest has no allocator. It begins with a mark made of its
//! address. So an end that was never opened, or was copied elsewhere, is refused instead of used.
#![cfg_attr(target_os = "none", no_std)]

pub mod bell;
pub mod end;
mod machine;

use bell::{Bed, Call};
use bulkhead_channel::Stop;
use bulkhead_channel_memory::number;
use bulkhead_channel_memory::typed::{Doorbell, Pair};
use bulkhead_layout::info::{Info, Window};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use end::{Limit, Receiver, Sender};

pub use bulkhead_channel_memory::number::*;

/// Bytes of an end in C's memory.
pub const SENDER_BYTES: usize = 384;
/// Bytes of a receiver in C's memory.
pub const RECEIVER_BYTES: usize = 384;

const _: () = assert!(size_of::<Handle<Sender>>() <= SENDER_BYTES);
const _: () = assert!(size_of::<Handle<Receiver>>() <= RECEIVER_BYTES);
const _: () = assert!(align_of::<Handle<Sender>>() == 8 && align_of::<Handle<Receiver>>() == 8);

/// 0, or why not.
fn done(result: Result<(), Stop>) -> c_int {
    result.map_or_else(number::of, |()| 0)
}

/// Arguments of a guest's entry: `struct bulkhead_context`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Context {
    /// How often the sandbox has been launched before.
    pub incarnation: u64,
    /// The information page.
    pub info: *const Info,
}

/// An end in C's memory, until it is closed.
#[derive(Debug)]
#[repr(C)]
pub struct Handle<T> {
    mark: u64,
    end: MaybeUninit<Option<T>>,
}

/// The first word of an end that was opened at this address.
fn mark<T>(at: *const Handle<T>) -> u64 {
    u64::from_le_bytes(*b"BHCH end") ^ at.addr() as u64
}

/// Checks that an end fits there.
fn there<T>(at: *const Handle<T>) -> Result<(), c_int> {
    if at.is_null() || !at.is_aligned() { Err(ARGUMENT) } else { Ok(()) }
}

/// The end of a handle, if it was opened; `None` once it is closed.
///
/// # Safety
/// `at` is null or points to a handle's memory, which no other code uses during `'a`.
unsafe fn opened<'a, T>(at: *mut Handle<T>) -> Result<&'a mut Option<T>, c_int> {
    there(at)?;
    // SAFETY: a word of memory that the caller vouches for.
    if unsafe { (&raw const (*at).mark).read() } != mark(at) {
        return Err(ARGUMENT);
    }
    // SAFETY: only `give` leaves this mark at this address, behind an end that it has written there.
    Ok(unsafe { (*at).end.assume_init_mut() })
}

/// The end of a handle.
///
/// # Safety
/// As for [`opened`].
unsafe fn end<'a, T>(at: *mut Handle<T>) -> Result<&'a mut T, c_int> {
    // SAFETY: the caller's.
    unsafe { opened(at) }?.as_mut().ok_or(CLOSED)
}

/// Opens an end there.
///
/// # Safety
/// As for [`opened`].
unsafe fn give<T>(out: *mut Handle<T>, open: impl FnOnce() -> Result<T, c_int>) -> c_int {
    if let Err(why) = there(out) {
        return why;
    }
    // SAFETY: the caller's memory. Whatever was there is no end any more: ends own nothing that would have to be freed.
    unsafe { (&raw mut (*out).mark).write(0) };
    match open() {
        Ok(end) => {
            let handle = Handle { mark: mark(out), end: MaybeUninit::new(Some(end)) };
            // SAFETY: `there` has checked the address, and the caller vouches for the memory.
            unsafe { out.write(handle) };
            0
        }
        Err(why) => why,
    }
}

/// The `nth` window of a channel with this name.
fn window(info: &Info, name: &[u8], nth: u32) -> Option<(Window, u32)> {
    let windows = info.window.iter().zip(info.bells).take(info.windows as usize);
    let mut named = windows.filter(|(w, _)| w.kind == 0 && padded(&w.name) == name);
    named.nth(nth as usize).map(|(w, bell)| (*w, bell))
}

/// A name without the zeros behind it.
fn padded(name: &[u8]) -> &[u8] {
    name.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Both regions of a channel.
///
/// # Safety
/// `context` is the guest's own, `name` null or a string of C's.
unsafe fn pair(context: Context, name: *const c_char, nth: u32) -> Result<Pair<'static>, c_int> {
    // SAFETY: the information page, which is read-only and stays.
    let info = unsafe { context.info.as_ref() }.ok_or(ARGUMENT)?;
    if name.is_null() {
        return Err(ARGUMENT);
    }
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) };
    let (w, bell) = window(info, name.to_bytes(), nth).ok_or(OPEN)?;
    let base = NonNull::new(w.gpa as *mut u8).ok_or(OPEN)?;
    let kind = u8::try_from(w.messages).map_err(|_| MISFIT)?;
    // SAFETY: by the monitor's word in the information page, the sender's region and the receiver's behind it are
    // mapped while the sandbox runs. It also says by `writable` which one may be written.
    let pair = unsafe { Pair::new(base, w.size as usize, (kind, w.message), w.writable != 0) };
    Ok(pair.ok_or(MISFIT)?.with(Doorbell::told(bell, 0)))
}

/// Opens the sending end of a channel; of several receivers the `nth`, from 0.
///
/// # Safety
/// `context` is the guest's own, `name` null or a string of C's. `out` is null, or memory of an end that no other code
/// uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_sender_open(
    context: Context,
    name: *const c_char,
    nth: u32,
    out: *mut Handle<Sender>,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { give(out, || Sender::open(&pair(context, name, nth)?, Call::of).map_err(|_| MISFIT)) }
}

/// Sends a message, with no more than `millis` milliseconds of waiting for room; 0 doesn't wait, below 0 is for ever.
///
/// # Safety
/// `sender` is null or memory of an end, which no other code uses meanwhile; `message` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_send(
    sender: *mut Handle<Sender>,
    message: *const c_void,
    len: usize,
    millis: i64,
) -> c_int {
    // SAFETY: the caller's.
    let sender = match unsafe { end(sender) } {
        Ok(sender) => sender,
        Err(why) => return why,
    };
    if len > sender.longest() {
        return SIZE;
    }
    if message.is_null() && len != 0 {
        return ARGUMENT;
    }
    let message: &[u8] = match len {
        0 => &[],
        // SAFETY: the caller's; a channel's length is that of no more than memory has.
        _ => unsafe { core::slice::from_raw_parts(message.cast(), len) },
    };
    done(sender.send_within(message, &mut Limit::of(millis)))
}

/// Bytes of the longest message; 0 if this is no open end.
///
/// # Safety
/// As for [`bulkhead_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_sender_longest(sender: *const Handle<Sender>) -> usize {
    // SAFETY: the caller's; nothing is written.
    unsafe { end(sender.cast_mut()) }.map_or(0, |sender| sender.longest())
}

/// Goes on with the agreement: 0 if there is a session, else the reason why not, or news of the receiver.
///
/// # Safety
/// As for [`bulkhead_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_sender_attend(sender: *mut Handle<Sender>) -> c_int {
    // SAFETY: the caller's.
    unsafe { end(sender) }.map_or_else(|why| why, |sender| done(sender.attend()))
}

/// Leaves the session, if there is one, and offers another.
///
/// # Safety
/// As for [`bulkhead_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_sender_reset(sender: *mut Handle<Sender>) {
    // SAFETY: the caller's.
    if let Ok(sender) = unsafe { end(sender) } {
        sender.reset();
    }
}

/// Leaves: the receiver reads the sent messages, then is told.
///
/// # Safety
/// As for [`bulkhead_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_sender_close(sender: *mut Handle<Sender>) {
    // SAFETY: the caller's.
    if let Some(sender) = unsafe { opened(sender) }.ok().and_then(Option::take) {
        sender.close();
    }
}

/// Opens the receiving end of a channel. Where a doorbell wakes it, the handler of its vector is set.
///
/// # Safety
/// As for [`bulkhead_sender_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_open(
    context: Context,
    name: *const c_char,
    out: *mut Handle<Receiver>,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        give(out, || {
            Receiver::open(&pair(context, name, 0)?, Bed::cost(), Bed::new).map_err(|_| MISFIT)
        })
    }
}

/// Receives a message into a buffer, with no more than `millis` milliseconds of waiting; 0 doesn't wait, below 0 is for
/// ever. The number of its bytes. The buffer has room for the longest message.
///
/// # Safety
/// `receiver` is null or memory of an end, which no other code uses meanwhile; `buffer` is null or has `len` bytes that
/// can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receive(
    receiver: *mut Handle<Receiver>,
    buffer: *mut c_void,
    len: usize,
    millis: i64,
) -> i64 {
    // SAFETY: the caller's.
    let receiver = match unsafe { end(receiver) } {
        Ok(receiver) => receiver,
        Err(why) => return why.into(),
    };
    let longest = receiver.longest();
    if buffer.is_null() {
        return ARGUMENT.into();
    }
    if len < longest {
        return SIZE.into();
    }
    // SAFETY: the caller's. Bytes that C has not written there yet are not looked at: ends only write to them.
    let buffer = unsafe { core::slice::from_raw_parts_mut(buffer.cast(), longest) };
    let received = receiver.within(&mut Limit::of(millis), |end| end.receive(buffer));
    if received == Err(Stop::Corrupted) {
        receiver.reset();
    }
    match received {
        // A ring has less than 2^32 bytes.
        Ok(len) => len as i64,
        Err(stop) => number::of(stop).into(),
    }
}

/// Bytes of the longest message; 0 if this is no open end.
///
/// # Safety
/// As for [`bulkhead_receive`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_longest(receiver: *const Handle<Receiver>) -> usize {
    // SAFETY: the caller's; nothing is written.
    unsafe { end(receiver.cast_mut()) }.map_or(0, |receiver| receiver.longest())
}

/// Asks to be woken, and looks once more. 1: the caller may sleep; 0: there is something to be received; [`WAIT`]: it
/// is not woken there.
///
/// # Safety
/// As for [`bulkhead_receive`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_arm(receiver: *mut Handle<Receiver>) -> c_int {
    // SAFETY: the caller's.
    let receiver = match unsafe { end(receiver) } {
        Ok(receiver) => receiver,
        Err(why) => return why,
    };
    match receiver.sleeper() {
        Some(_) => receiver.arm().into(),
        None => number::of(Stop::Wait),
    }
}

/// How many interrupts have come for it since the guest began; 0 where it is not woken.
///
/// # Safety
/// As for [`bulkhead_receive`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_interrupts(receiver: *const Handle<Receiver>) -> u64 {
    // SAFETY: the caller's; nothing is written.
    unsafe { end(receiver.cast_mut()) }
        .map_or(0, |receiver| receiver.sleeper().map_or(0, |sleeper| sleeper.bed().interrupts()))
}

/// As [`bulkhead_sender_attend`].
///
/// # Safety
/// As for [`bulkhead_receive`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_attend(receiver: *mut Handle<Receiver>) -> c_int {
    // SAFETY: the caller's.
    unsafe { end(receiver) }.map_or_else(|why| why, |receiver| done(receiver.attend()))
}

/// As [`bulkhead_sender_reset`].
///
/// # Safety
/// As for [`bulkhead_receive`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_reset(receiver: *mut Handle<Receiver>) {
    // SAFETY: the caller's.
    if let Ok(receiver) = unsafe { end(receiver) } {
        receiver.reset();
    }
}

/// Leaves, and the sender is told.
///
/// # Safety
/// As for [`bulkhead_receive`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_close(receiver: *mut Handle<Receiver>) {
    // SAFETY: the caller's.
    if let Some(receiver) = unsafe { opened(receiver) }.ok().and_then(Option::take) {
        receiver.close();
    }
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    machine::give_up()
}
