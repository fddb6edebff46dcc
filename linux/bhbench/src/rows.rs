//! The rows: each an operation repeated, every time between two markers.

use bulkhead_linux::setup::{self, Failure};
use bulkhead_linux::{mark, marker, ticks};
use marker::id;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::time::TimeSpec;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use nix::unistd::{ForkResult, execve, fork, pipe, read, write};
use std::ffi::{CStr, c_int, c_void};
use std::hint::black_box;
use std::net::UdpSocket;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::time::Duration;

/// Every row, in the order of measuring.
pub const NAMES: [&str; 10] = [
    "getpid",
    "page_touch",
    "sigsegv",
    "fork",
    "fork_exec",
    "pipe",
    "udp_64",
    "udp_1472",
    "primes",
    "timer",
];

/// The program that the row `fork_exec` executes.
pub const PROGRAM: &CStr = c"/bin/bhtrue";

const PAGE: usize = 4096;

/// Measures one row and prints it.
pub fn run(name: &str) -> Result<(), Failure> {
    match name {
        "getpid" => getpid(),
        "page_touch" => page_touch(),
        "sigsegv" => sigsegv(),
        "fork" => forks(),
        "fork_exec" => fork_execs(),
        "pipe" => pipe_round_trip(),
        "udp_64" => udp::<{ id::LINUX_UDP_64 }, 64>("linux.udp_64"),
        "udp_1472" => udp::<{ id::LINUX_UDP_1472 }, 1472>("linux.udp_1472"),
        "primes" => primes(),
        "timer" => timer(),
        other => Err(format!("no row {other}; there are {}", NAMES.join(", ")).into()),
    }
}

/// Runs `operation` a few times to warm up, then `count` times between markers,
/// and prints the median and the mean of its ticks.
fn repeat<const ID: u16>(
    name: &str,
    count: usize,
    mut operation: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    for _ in 0..3 {
        operation()?;
    }
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = ticks();
        bulkhead_linux::begin::<ID>();
        let result = operation();
        bulkhead_linux::end::<ID>();
        samples.push(ticks() - begin);
        result?;
    }
    print(name, "ticks", &mut samples);
    Ok(())
}

fn print(name: &str, unit: &str, samples: &mut [u64]) {
    samples.sort_unstable();
    let mean = samples.iter().sum::<u64>() as f64 / samples.len() as f64;
    println!("row {name} {} {unit}", samples[samples.len() / 2]);
    println!("row {name}_mean {mean:.1} {unit}");
}

fn getpid() -> Result<(), Failure> {
    repeat::<{ id::LINUX_GETPID }>("linux.getpid", 2000, || {
        black_box(nix::unistd::getpid());
        Ok(())
    })
}

/// An anonymous mapping, gone at the end of its life.
struct Mapping {
    base: NonNull<c_void>,
    length: NonZeroUsize,
}

impl Mapping {
    fn new(pages: usize) -> Result<Self, Failure> {
        let length = NonZeroUsize::new(pages * PAGE).ok_or("no pages")?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(None, length, rights, MapFlags::MAP_PRIVATE) }?;
        // SAFETY: only advice, for the mapping just made.
        unsafe { madvise(base, length.get(), MmapAdvise::MADV_NOHUGEPAGE) }?;
        Ok(Self { base, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; no reference to it exists.
        let _ = unsafe { munmap(self.base, self.length.get()) };
    }
}

fn page_touch() -> Result<(), Failure> {
    const PAGES: usize = 1024;
    let mapping = Mapping::new(PAGES + 3)?;
    let mut offset = 0;
    repeat::<{ id::LINUX_PAGE_TOUCH }>("linux.page_touch", PAGES, || {
        // SAFETY: inside the mapping: one page for each call.
        unsafe { mapping.base.byte_add(offset).cast::<u8>().write_volatile(1) };
        offset += PAGE;
        Ok(())
    })
}

/// Bytes of the load in [`read_at`].
const LOAD: i64 = 2;

/// Skips the load that faulted.
extern "C" fn skip(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes the interrupted context, which
    // is the handler's to change.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_RIP as usize] += LOAD;
}

/// Loads a byte with an instruction of known length.
fn read_at(address: *const u8) {
    // SAFETY: a load that may fault; `skip` then goes on behind it, and its value is thrown away.
    unsafe {
        core::arch::asm!(".byte 0x8a, 0x07", in("rdi") address, out("al") _, options(nostack));
    }
}

fn sigsegv() -> Result<(), Failure> {
    let page = Mapping::new(1)?;
    // SAFETY: no reference to the mapping exists.
    unsafe { mprotect(page.base, PAGE, ProtFlags::PROT_NONE) }?;
    let action = SigAction::new(SigHandler::SigAction(skip), SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler only changes the interrupted context.
    let old = unsafe { sigaction(Signal::SIGSEGV, &action) }?;
    let result = repeat::<{ id::LINUX_SIGSEGV }>("linux.sigsegv", 500, || {
        read_at(page.base.as_ptr().cast());
        Ok(())
    });
    // SAFETY: the former handler.
    unsafe { sigaction(Signal::SIGSEGV, &old) }?;
    result
}

/// Forks, lets the child do `then` and end, and waits for it.
pub fn fork_and_wait(then: impl FnOnce()) -> Result<(), Failure> {
    // SAFETY: this program has one thread, so the child may do anything.
    match unsafe { fork() }? {
        ForkResult::Child => {
            then();
            // SAFETY: ends the child without running this program's exit handlers.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            other => Err(format!("child: {other:?}").into()),
        },
    }
}

/// Replaces this process by [`PROGRAM`], or ends it.
pub fn exec() {
    exec_one(&[&[PROGRAM], &[c"/run/bulkhead/bhtrue"]]);
}

/// Replaces this process by the first of these programs that there is, or ends it.
/// A root file system on a disk has other places than an initramfs.
pub fn exec_one(candidates: &[&[&CStr]]) {
    let none: [&CStr; 0] = [];
    for arguments in candidates {
        let Err(_) = execve(arguments[0], arguments, &none);
    }
    // SAFETY: ends the child, which must not go on as a second bench.
    unsafe { libc::_exit(1) }
}

fn forks() -> Result<(), Failure> {
    repeat::<{ id::LINUX_FORK }>("linux.fork", 100, || fork_and_wait(|| {}))
}

fn fork_execs() -> Result<(), Failure> {
    repeat::<{ id::LINUX_FORK_EXEC }>("linux.fork_exec", 100, || fork_and_wait(exec))
}

fn pipe_round_trip() -> Result<(), Failure> {
    let (there_out, there_in) = pipe()?;
    let (back_out, back_in) = pipe()?;
    // SAFETY: this program has one thread, so the child may do anything.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop((there_in, back_out));
            let mut byte = [0];
            while let Ok(1) = read(&there_out, &mut byte) {
                let _ = write(&back_in, &byte);
            }
            // SAFETY: ends the child without running exit handlers.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop((there_out, back_in));
            let mut byte = [0];
            let result = repeat::<{ id::LINUX_PIPE }>("linux.pipe", 1000, || {
                write(&there_in, &byte)?;
                match read(&back_out, &mut byte)? {
                    1 => Ok(()),
                    _ => Err("the pipe's other end is gone".into()),
                }
            });
            drop(there_in);
            waitpid(child, None)?;
            result
        }
    }
}

/// A datagram of `SIZE` bytes from one socket to another and back out.
fn udp<const ID: u16, const SIZE: usize>(name: &str) -> Result<(), Failure> {
    let from = UdpSocket::bind("127.0.0.1:0")?;
    let to = UdpSocket::bind("127.0.0.1:0")?;
    from.connect(to.local_addr()?)?;
    to.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (sent, mut received) = ([0x55; SIZE], [0; SIZE]);
    repeat::<ID>(name, 500, || {
        from.send(&sent)?;
        match to.recv(&mut received)? {
            length if length == SIZE => Ok(()),
            other => Err(format!("{other} of {SIZE} bytes arrived").into()),
        }
    })
}

/// Counts the primes below a million with a sieve.
fn primes() -> Result<(), Failure> {
    const LIMIT: usize = 1_000_000;
    let mut sieve = vec![false; LIMIT];
    repeat::<{ id::LINUX_PRIMES }>("linux.primes", 5, || {
        sieve.fill(true);
        sieve[..2].fill(false);
        for n in 2..1000 {
            if sieve[n] {
                sieve[n * n..].iter_mut().step_by(n).for_each(|multiple| *multiple = false);
            }
        }
        match black_box(&sieve).iter().filter(|prime| **prime).count() {
            78_498 => Ok(()),
            other => Err(format!("{other} primes below {LIMIT}, not 78498").into()),
        }
    })
}

/// Lateness of a periodic task: 1 ms, absolute, so that errors don't add up.
fn timer() -> Result<(), Failure> {
    const PERIOD: Duration = Duration::from_millis(1);
    const SAMPLES: usize = 600;
    setup::realtime(50)?;
    let clock = ClockId::CLOCK_MONOTONIC;
    let mut due = Duration::from(clock_gettime(clock)?) + 2 * PERIOD;
    let mut late = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        clock_nanosleep(clock, ClockNanosleepFlags::TIMER_ABSTIME, &TimeSpec::from(due))?;
        let lateness = Duration::from(clock_gettime(clock)?).saturating_sub(due);
        let nanoseconds = u64::try_from(lateness.as_nanos())?;
        mark::<{ marker::VALUE | id::LINUX_TIMER }>(nanoseconds);
        late.push(nanoseconds);
        due += PERIOD;
    }
    setup::realtime(0)?;
    late.sort_unstable();
    println!("row linux.timer_median {} ns", late[SAMPLES / 2]);
    println!("row linux.timer_worst {} ns", late[SAMPLES - 1]);
    Ok(())
}
