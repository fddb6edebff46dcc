//! Load for a Linux, under which the exits and the jitter of its neighbours are measured.

use crate::rows::{exec, exec_one, fork_and_wait};
use bulkhead_linux::setup::{self, Failure};
use nix::sys::time::TimeSpec;
use nix::sys::wait::waitpid;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::{ForkResult, fork};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Kinds of load.
pub const KINDS: [&str; 4] = ["idle", "forkexec", "load", "smp"];

/// Applies a kind of load for a while; returns how many rounds of it were done.
pub fn run(kind: &str, duration: Duration) -> Result<u64, Failure> {
    let end = Instant::now() + duration;
    match kind {
        "idle" => {
            std::thread::sleep(duration);
            Ok(1)
        }
        "forkexec" => {
            let mut rounds = 0;
            while Instant::now() < end {
                fork_and_wait(exec)?;
                fork_and_wait(debians)?;
                rounds += 1;
            }
            Ok(rounds)
        }
        "load" => traffic(end, [0, 0]),
        "smp" => traffic(end, [0, 1]),
        other => Err(format!("no load {other}; there are {}", KINDS.join(", ")).into()),
    }
}

/// Executes a program of Debian's. Its C library (glibc) begins with some twenty CPUID instructions; ours (musl) has
/// none.
fn debians() {
    exec_one(&[&[c"/bin/busybox", c"true"], &[c"/bin/true"]]);
}

/// Two processes, each on its CPU, that pass datagrams and bytes of a pipe to
/// and fro, with a short timer in between.
fn traffic(end: Instant, cpus: [usize; 2]) -> Result<u64, Failure> {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    near.set_read_timeout(Some(Duration::from_secs(2)))?;
    far.set_read_timeout(Some(Duration::from_millis(200)))?;
    let (there_out, there_in) = nix::unistd::pipe()?;
    let (back_out, back_in) = nix::unistd::pipe()?;
    let mut buffer = [0; 1024];
    // SAFETY: this program has one thread, so the child may do anything.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop((there_in, back_out));
            let _ = setup::pin(cpus[1]);
            // Ends when the parent closes its pipe.
            let mut byte = [0];
            while let Ok(1) = nix::unistd::read(&there_out, &mut byte) {
                if let Ok(length) = far.recv(&mut buffer) {
                    let _ = far.send(&buffer[..length]);
                }
                let _ = nix::unistd::write(&back_in, &byte);
            }
            // SAFETY: ends the child without running exit handlers.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop((there_out, back_in));
            setup::pin(cpus[0])?;
            let mut rounds = 0;
            let mut byte = [0];
            while Instant::now() < end {
                near.send(&buffer[..512])?;
                nix::unistd::write(&there_in, &byte)?;
                match near.recv(&mut buffer) {
                    Err(why) if why.kind() != ErrorKind::WouldBlock => return Err(why.into()),
                    _ => {}
                }
                nix::unistd::read(&back_out, &mut byte)?;
                rounds += 1;
                if rounds % 16 == 0 {
                    let pause = TimeSpec::from(Duration::from_micros(100));
                    let flags = ClockNanosleepFlags::empty();
                    clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &pause)?;
                }
            }
            drop(there_in);
            waitpid(child, None)?;
            Ok(rounds)
        }
    }
}
