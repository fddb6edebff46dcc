//! `bhdemo` plays the demo's scenario in its Linux.
//!
//! With `bulkhead.scenario=ci` on the kernel's command line it logs the telemetry for `bulkhead.seconds=N` (3 without
//! it). In the middle third of that it loads its own core, and the disk that `bulkhead.root=DEVICE` names, which must
//! disturb no other sandbox. It says when that begins and ends. Then it has the disk's driver fail in the middle of a
//! write, and the last line is `demo: done`. Otherwise it shows the live view until `q`.
//!
//! `bhdemo fault KIND` has the disk's driver fail, in the shell ([`fault`]).
#![forbid(unsafe_code)]

mod fault;

use bulkhead_layout::marker::{LOAD_BEGINS, LOAD_ENDS};
use std::io::{Error, Result};
use std::net::UdpSocket;
use std::process::{Child, Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if !args.is_empty() {
        let result = match args[..] {
            ["fault", kind] => fault::plant(kind),
            _ => Err(Error::other(format!("usage: bhdemo fault {}", fault::kinds()))),
        };
        return ended(result, "");
    }
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let result = match parameter(&line, "bulkhead.scenario") {
        Some("ci") => scripted(&line),
        _ => start("bhview", &["live"]).and_then(|view| end("bhview", view)),
    };
    ended(result, "demo: done\n")
}

fn ended(result: Result<()>, last: &str) -> ExitCode {
    match result {
        Ok(()) => {
            print!("{last}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("demo: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Value of `name=value` on the kernel's command line; the last one counts.
fn parameter<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn scripted(line: &str) -> Result<()> {
    let seconds = parameter(line, "bulkhead.seconds").unwrap_or("3");
    let total: u32 = seconds
        .parse()
        .map_err(|_| Error::other(format!("bulkhead.seconds={seconds} is no number")))?;
    let third = Duration::from_secs(total.into()) / 3;
    let half = (third.as_millis() / 2).to_string();
    let view = start("bhview", &["log", seconds])?;
    if parameter(line, "bulkhead.net").is_some() {
        warm_up();
    }
    sleep(third);
    println!("{LOAD_BEGINS}");
    for load in ["load", "forkexec"] {
        end("bhbench", start("bhbench", &[load, &half])?)?;
    }
    // Past the page cache, so that the disk has to come up with it.
    if let Some(disk) = parameter(line, "bulkhead.root") {
        end("bhio", start("bhio", &[&format!("disk={disk}"), "rand4k=200", "seq1m=8"])?)?;
    }
    println!("{LOAD_ENDS}");
    if parameter(line, "bulkhead.root").is_some() {
        fault::plant("crash")?;
    }
    end("bhview", view)
}

/// Has each queue of the network card signal once. At its first interrupt Linux moves it to its place, which takes some
/// writes to the MSI-X table. A load's first packet would else be part of the load.
fn warm_up() {
    // QEMU's user network, at a port without a listener: it answers that, too.
    let sent = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        (0..8).try_for_each(|_| {
            // The answer to an earlier one is an error of the next.
            let _ = socket.send_to(b"hello", "10.0.2.2:9");
            sleep(Duration::from_millis(5));
            Ok(())
        })
    });
    if let Err(why) = sent {
        println!("demo: no network to warm up: {why}");
    }
}

fn start(name: &str, args: &[&str]) -> Result<Child> {
    // On the disk's root, the initramfs' files are in the first one.
    let places = [format!("/run/bulkhead/{name}"), format!("/bin/{name}")];
    let program = places.iter().find(|p| std::path::Path::new(p).exists()).unwrap_or(&places[1]);
    Command::new(program)
        .args(args)
        .spawn()
        .map_err(|why| Error::other(format!("{program}: {why}")))
}

fn end(name: &str, mut child: Child) -> Result<()> {
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    Err(Error::other(format!("{name}: {status}")))
}
