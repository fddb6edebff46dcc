//! PID 1 of the Linux guests. It mounts what programs expect, then does what the
//! kernel command line says:
//!
//! | parameter | meaning |
//! |---|---|
//! | `bulkhead.root=DEVICE` | go on in the ext4 file system on `/dev/NAME`, `LABEL=...` or `UUID=...` ([`root`]) |
//! | `bulkhead.net=DRIVER` | give the network card of this driver QEMU's usual address ([`net`]) |
//! | `bulkhead.run=shell` | a shell on the console, again and again (the default) |
//! | `bulkhead.run=NAME[:ARG,ARG...]` | run the program NAME with its arguments, say how it ended, power off |
//! | `bulkhead.run=boot` | say that user space is reached, power off |
//! | `bulkhead.run=reboot` | say that user space is reached, reboot |
//! | `bulkhead.then=shell` or `reboot` | the last act after NAME instead of powering off; `bulkhead.scenario=ci` overrides it |
//!
//! As busybox's init does, it powers off at SIGUSR2 and reboots at SIGTERM, so
//! that plain `poweroff` and `reboot` work in the shell.
#![forbid(unsafe_code)]

mod devices;
mod net;
mod root;

use bulkhead_linux::{mark, marker};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::process::Command;

/// Where programs are looked for: what came with the initramfs, then the disk's, then what busybox has besides.
const PATH: &str = "/run/bulkhead:/bin:/sbin:/usr/bin:/usr/sbin:/run/busybox";

/// Source, target, file system.
const MOUNTS: [(&str, &str, &str); 5] = [
    ("proc", "/proc", "proc"),
    ("sysfs", "/sys", "sysfs"),
    ("devtmpfs", "/dev", "devtmpfs"),
    ("devpts", "/dev/pts", "devpts"),
    ("tmpfs", "/tmp", "tmpfs"),
];

fn main() {
    // Before anything else: whoever measures the boot ends it here.
    mark::<{ marker::EVENT | marker::id::USER }>(0);
    println!("bulkhead-init: user space");
    cpuid_everywhere();
    mount_all();
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTERM] {
        signals.add(signal);
    }
    if let Err(why) = signals.thread_block() {
        println!("bulkhead-init: cannot block signals: {why}");
    }

    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let then = match parameter(&line, "bulkhead.scenario") {
        // No user is there to type.
        Some("ci") => "poweroff",
        _ => parameter(&line, "bulkhead.then").unwrap_or("poweroff"),
    };
    if let Err(why) = prepare(&line) {
        println!("bulkhead-init: {why}");
        finish("poweroff");
    }
    match parameter(&line, "bulkhead.run").unwrap_or("shell") {
        "boot" => {}
        "reboot" => finish("reboot"),
        "shell" => shell(&signals),
        job => {
            let (name, args) = job.split_once(':').unwrap_or((job, ""));
            let args = args.split(',').filter(|arg| !arg.is_empty());
            run(Command::new(find(name)).args(args), &signals);
        }
    }
    if then == "shell" {
        shell(&signals);
    }
    finish(then);
}

/// Root file system and network, if the command line asks for them.
fn prepare(line: &str) -> Result<(), String> {
    let (disk, card) = (parameter(line, "bulkhead.root"), parameter(line, "bulkhead.net"));
    // Drivers are in the initramfs, so `enter` has those of all devices loaded.
    if let Some(name) = disk {
        root::enter(name)?;
    }
    if let Some(driver) = card {
        net::up(driver)?;
    }
    if disk.or(card).is_some() {
        mark::<{ marker::EVENT | marker::id::ROOT }>(0);
        println!("bulkhead-init: devices are ready");
    }
    Ok(())
}

/// Where a program is; if it is nowhere, its bare name, for the message.
fn find(name: &str) -> String {
    let candidates = PATH.split(':').map(|folder| format!("{folder}/{name}"));
    candidates.into_iter().find(|path| fs::exists(path).unwrap_or(false)).unwrap_or(name.into())
}

/// Makes the calls that a C library makes when a program starts, on every core. By CPUID in user mode a monitor knows
/// that the kernel has booted.
fn cpuid_everywhere() {
    let this = Pid::from_raw(0);
    let Ok(all) = sched_getaffinity(this) else {
        return;
    };
    for core in (0..CpuSet::count()).filter(|&core| all.is_set(core) == Ok(true)) {
        let mut one = CpuSet::new();
        if one.set(core).is_ok() && sched_setaffinity(this, &one).is_ok() {
            std::hint::black_box(std::arch::x86_64::__cpuid(0));
        }
    }
    // The next program may run on all of them again.
    let _ = sched_setaffinity(this, &all);
}

/// Value of `name=value` on the kernel's command line; the last one counts.
fn parameter<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn mount_all() {
    for (source, target, kind) in MOUNTS {
        // /dev/pts does not exist before /dev is mounted.
        let _ = fs::create_dir_all(target);
        let none: Option<&str> = None;
        match mount(Some(source), target, Some(kind), MsFlags::empty(), none) {
            // The kernel may have mounted /dev itself.
            Ok(()) | Err(Errno::EBUSY) => {}
            Err(why) => println!("bulkhead-init: {target}: {why}"),
        }
    }
}

/// An interactive shell that owns the console's terminal, so that Ctrl-C works.
/// A new one starts when it ends.
fn shell(signals: &SigSet) -> ! {
    let console = fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
    let terminal = console.split_whitespace().last().unwrap_or("console");
    println!("bulkhead-init: shell on {terminal}; `poweroff` ends this sandbox");
    loop {
        let script = format!("exec setsid -c sh -i </dev/{terminal} >/dev/{terminal} 2>&1");
        run(Command::new("/bin/sh").args(["-c", &script]).env("HOME", "/"), signals);
    }
}

/// Runs a program to its end, reaping orphans and obeying signals meanwhile.
fn run(command: &mut Command, signals: &SigSet) {
    command.env("PATH", PATH);
    // A program inherits what is blocked, and could not be killed. One that comes meanwhile is lost: the kernel
    // spares PID 1 those that it does not handle.
    let _ = signals.thread_unblock();
    let child = command.spawn();
    let _ = signals.thread_block();
    let child = match child {
        Ok(child) => Pid::from_raw(child.id().cast_signed()),
        Err(why) => {
            println!("bulkhead-init: {:?}: {why}", command.get_program());
            return;
        }
    };
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => {
                println!("bulkhead-init: exit code {code}");
                return;
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                println!("bulkhead-init: killed by {signal}");
                return;
            }
            Ok(WaitStatus::StillAlive) => obey(signals),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(why) => {
                println!("bulkhead-init: lost its child: {why}");
                return;
            }
        }
    }
}

/// Waits for a signal and does what it asks for.
fn obey(signals: &SigSet) {
    match signals.wait() {
        Ok(Signal::SIGUSR1 | Signal::SIGUSR2) => finish("poweroff"),
        Ok(Signal::SIGTERM) => finish("reboot"),
        _ => {}
    }
}

fn finish(how: &str) -> ! {
    println!("bulkhead-init: {how}");
    // A serial port sends what programs wrote by and by; the kernel won't wait for it.
    let _ = nix::sys::termios::tcdrain(std::io::stdout());
    nix::unistd::sync();
    let mode = match how {
        "reboot" => RebootMode::RB_AUTOBOOT,
        _ => RebootMode::RB_POWER_OFF,
    };
    let Err(why) = reboot(mode);
    println!("bulkhead-init: cannot {how}: {why}");
    loop {
        std::thread::park();
    }
}
