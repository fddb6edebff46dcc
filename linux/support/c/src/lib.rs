//! Channels of a Linux sandbox for C (`include/bulkhead_channel.h`) and for what calls C (`python/`). A thin shell
//! around [`bulkhead_linux::message`]: errors are numbers below 0, and no panic passes the boundary.

use bulkhead_channel::Stop;
use bulkhead_channel_memory::number;
use bulkhead_linux::message::{Receiver, Sender};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::time::Duration;

pub use bulkhead_channel_memory::number::*;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Why the last call of this thread that gave [`OPEN`] did. It stays as long as no other one does.
#[unsafe(no_mangle)]
pub extern "C" fn bulkhead_channel_error() -> *const c_char {
    ERROR.try_with(|error| error.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn failed(why: &std::io::Error) -> c_int {
    let text = CString::new(why.to_string().replace('\0', " ")).unwrap_or_default();
    ERROR.with(|error| *error.borrow_mut() = text);
    OPEN
}

/// Does something without a panic that passes to C.
fn shielded(work: impl FnOnce() -> Result<i64, c_int>) -> i64 {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(FAULT)).unwrap_or_else(i64::from)
}

/// As [`shielded`], of what gives no more than an int.
fn short(work: impl FnOnce() -> Result<i64, c_int>) -> c_int {
    c_int::try_from(shielded(work)).unwrap_or(FAULT)
}

/// # Safety
/// `name` is null or a string of C's.
unsafe fn named<'a>(name: *const c_char) -> Result<&'a str, c_int> {
    if name.is_null() {
        return Err(ARGUMENT);
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| ARGUMENT)
}

/// # Safety
/// `end` is null, or from an open and not closed, and nobody else uses it during `'a`.
unsafe fn end<'a, T>(end: *mut T) -> Result<&'a mut T, c_int> {
    // SAFETY: the caller's.
    unsafe { end.as_mut() }.ok_or(ARGUMENT)
}

/// Hands an end out.
///
/// # Safety
/// `out` is null or can be written.
unsafe fn give<T>(out: *mut *mut T, open: impl FnOnce() -> std::io::Result<T>) -> c_int {
    short(|| {
        if out.is_null() {
            return Err(ARGUMENT);
        }
        // SAFETY: the caller's.
        unsafe { out.write(null_mut()) };
        let opened = open().map_err(|why| failed(&why))?;
        // SAFETY: the caller's.
        unsafe { out.write(Box::into_raw(Box::new(opened))) };
        Ok(0)
    })
}

/// Milliseconds as C has them: below 0 is for ever.
fn limit(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// Opens the sending end of a channel; of several receivers the `nth`, from 0.
///
/// # Safety
/// `name` is a string of C's, `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_sender_open(
    name: *const c_char,
    nth: u32,
    out: *mut *mut Sender,
) -> c_int {
    // SAFETY: the caller's.
    match unsafe { named(name) } {
        // SAFETY: the caller's.
        Ok(name) => unsafe { give(out, || Sender::open(name, nth as usize)) },
        Err(why) => why,
    }
}

/// Sends a message, with no more than `millis` milliseconds of waiting for room; 0 doesn't wait, below 0 is for ever.
///
/// # Safety
/// `sender` is from an open, not closed, and used by no other thread now; `message` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_send(
    sender: *mut Sender,
    message: *const c_void,
    len: usize,
    millis: i64,
) -> c_int {
    short(|| {
        // SAFETY: the caller's.
        let sender = unsafe { end(sender) }?;
        if message.is_null() && len != 0 || len > isize::MAX as usize {
            return Err(ARGUMENT);
        }
        let message: &[u8] = match len {
            0 => &[],
            // SAFETY: the caller's.
            _ => unsafe { std::slice::from_raw_parts(message.cast(), len) },
        };
        const LONG: Duration = Duration::from_secs(3600);
        loop {
            let sent = sender.send_within(message, limit(millis).unwrap_or(LONG));
            match sent {
                Ok(()) => return Ok(0),
                Err(Stop::Wait | Stop::Apart) if millis < 0 => {}
                Err(stop) => return Err(number::of(stop)),
            }
        }
    })
}

/// Bytes of the longest message; 0 for a null pointer.
///
/// # Safety
/// As [`bulkhead_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_sender_longest(sender: *const Sender) -> usize {
    // SAFETY: the caller's.
    unsafe { sender.as_ref() }.map_or(0, Sender::longest)
}

/// Leaves: the receiver reads what was sent, then is told.
///
/// # Safety
/// As [`bulkhead_send`]; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_sender_close(sender: *mut Sender) {
    if !sender.is_null() {
        // SAFETY: from `give`, and the caller's.
        let sender = unsafe { Box::from_raw(sender) };
        shielded(|| {
            sender.close();
            Ok(0)
        });
    }
}

/// Opens the receiving end of a channel.
///
/// # Safety
/// As [`bulkhead_sender_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_open(
    name: *const c_char,
    out: *mut *mut Receiver,
) -> c_int {
    // SAFETY: the caller's.
    match unsafe { named(name) } {
        // SAFETY: the caller's.
        Ok(name) => unsafe { give(out, || Receiver::open(name)) },
        Err(why) => why,
    }
}

/// Receives a message into a buffer, with no more than `millis` milliseconds of waiting; 0 doesn't wait, below 0 is for
/// ever. The number of its bytes. The buffer has room for the longest message.
///
/// # Safety
/// `receiver` is from an open, not closed, and used by no other thread now; `buffer` has `len` bytes, initialised or
/// not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receive(
    receiver: *mut Receiver,
    buffer: *mut c_void,
    len: usize,
    millis: i64,
) -> i64 {
    shielded(|| {
        // SAFETY: the caller's.
        let receiver = unsafe { end(receiver) }?;
        if buffer.is_null() {
            return Err(ARGUMENT);
        }
        let longest = receiver.longest();
        if len < longest {
            return Err(SIZE);
        }
        // SAFETY: the caller's; zeros first, as what C has not written is nothing that Rust may look at.
        let buffer: &mut [u8] = unsafe {
            buffer.cast::<u8>().write_bytes(0, longest);
            std::slice::from_raw_parts_mut(buffer.cast(), longest)
        };
        receiver.receive_within(buffer, limit(millis)).map(|len| len as i64).map_err(|stop| {
            if stop == Stop::Corrupted {
                receiver.reset();
            }
            number::of(stop)
        })
    })
}

/// Bytes of the longest message; 0 for a null pointer.
///
/// # Safety
/// As [`bulkhead_receive`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_longest(receiver: *const Receiver) -> usize {
    // SAFETY: the caller's.
    unsafe { receiver.as_ref() }.map_or(0, Receiver::longest)
}

/// The file descriptor that can be read when the receiver is to look again, after [`bulkhead_receiver_arm`]; [`WAIT`]
/// where it is not woken. It stays the receiver's.
///
/// # Safety
/// As [`bulkhead_receive`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_fd(receiver: *mut Receiver) -> c_int {
    short(|| {
        // SAFETY: the caller's.
        let receiver = unsafe { end(receiver) }?;
        receiver.fd().map(|fd| i64::from(fd.as_raw_fd())).ok_or(WAIT)
    })
}

/// Asks to be woken, before a loop of the caller's own sleeps on the file descriptor. 1: it may sleep; 0: there is
/// something to be received. The next receive asks no longer.
///
/// # Safety
/// As [`bulkhead_receive`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_arm(receiver: *mut Receiver) -> c_int {
    short(|| {
        // SAFETY: the caller's.
        let receiver = unsafe { end(receiver) }?;
        Ok(receiver.arm().into())
    })
}

/// Leaves, and the sender is told.
///
/// # Safety
/// As [`bulkhead_receive`]; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bulkhead_receiver_close(receiver: *mut Receiver) {
    if !receiver.is_null() {
        // SAFETY: from `give`, and the caller's.
        let receiver = unsafe { Box::from_raw(receiver) };
        shielded(|| {
            receiver.close();
            Ok(0)
        });
    }
}
