//! Settings that must be alike in two Linuxes before their figures can be compared.

use crate::arch::{Architecture, This};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::personality::{self, Persona};
use nix::unistd::Pid;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Why a program could not go on.
pub type Failure = Box<dyn std::error::Error>;

/// Starts this program again without address randomisation: the number of page
/// tables that fork copies must not be a matter of luck.
pub fn fixed_addresses() -> Result<(), Failure> {
    let now = personality::get()?;
    if now.contains(Persona::ADDR_NO_RANDOMIZE) {
        return Ok(());
    }
    personality::set(now | Persona::ADDR_NO_RANDOMIZE)?;
    let mut again = Command::new("/proc/self/exe");
    Err(again.args(std::env::args_os().skip(1)).exec().into())
}

/// Brings the loopback interface up.
pub fn loopback() -> Result<(), Failure> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: SIOCSIFFLAGS takes a pointer to an ifreq, which lives on.
    let done =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw mut request) };
    nix::errno::Errno::result(done)?;
    Ok(())
}

/// Keeps this process, and those it forks, on one CPU.
pub fn pin(cpu: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Makes this process real-time, or with priority 0 an ordinary one again.
/// A real-time process's timers have no slack (`timer_slack_ns`).
pub fn realtime(priority: libc::c_int) -> Result<(), Failure> {
    let policy = match priority {
        0 => libc::SCHED_OTHER,
        _ => libc::SCHED_FIFO,
    };
    // SAFETY: the kernel reads one int, the priority, through the pointer. (musl's
    // own function only says that it is not implemented.)
    let done =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    nix::errno::Errno::result(done)?;
    Ok(())
}

const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Waits until the output has left the machine: a serial port would otherwise interrupt the row that is measured next.
pub fn drain() {
    // Output may be no terminal; there is then nothing to wait for.
    let _ = nix::sys::termios::tcdrain(std::io::stdout());
}

/// Waits for the end of the boot's own background work. Linux refines its counter's frequency for a second and changes
/// the clock source then. Kernel threads do the work that the boot has put off, for a third of a second after the first
/// program's start. That ends when all cores have been idle for a while; the limit is for a system in which something
/// else never ends.
pub fn settle() {
    const LONGEST: Duration = Duration::from_secs(10);
    const WHILE: Duration = Duration::from_millis(200);
    let start = Instant::now();
    let mut before = idle();
    loop {
        std::thread::sleep(WHILE);
        let now = idle();
        let quiet = now - before > 0.9 * WHILE.as_secs_f64();
        before = now;
        let clock = fs::read_to_string(CLOCK).unwrap_or_default();
        if quiet && Some(clock.trim()) != This::EARLY_CLOCK || start.elapsed() > LONGEST {
            return;
        }
    }
}

/// Seconds that a core was idle so far, in the mean of all.
fn idle() -> f64 {
    // The uptime and the sum of all cores' idle time (proc(5)).
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let sum = uptime.split_whitespace().nth(1).and_then(|text| text.parse().ok());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    sum.unwrap_or(0.0) / cores as f64
}

/// Prints the settings that the figures depend on.
pub fn describe() {
    const TIMER: &str = "/sys/devices/system/clockevents/clockevent0/current_device";
    const WEAKNESSES: &str = "/sys/devices/system/cpu/vulnerabilities";
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    println!("info kernel {}", read("/proc/sys/kernel/osrelease"));
    println!("info clocksource {}", read(CLOCK));
    println!("info clockevent {}", read(TIMER));
    let cpuinfo = read("/proc/cpuinfo");
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags"));
    println!("info flags {}", flags.unwrap_or_default().trim_start_matches([' ', '\t', ':']));
    let mut names: Vec<_> = fs::read_dir(WEAKNESSES)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    names.sort();
    for path in names {
        if let (Some(name), Some(text)) = (path.file_name(), path.to_str()) {
            println!("info mitigation {}: {}", name.to_string_lossy(), read(text));
        }
    }
}
