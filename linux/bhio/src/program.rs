//! Debian's own programs, each with a fixed amount of work.

use bulkhead_linux::marker::id;
use bulkhead_linux::setup::Failure;
use bulkhead_linux::ticks;
use std::net::SocketAddr;
use std::process::Command;

/// Where `sysbench` has its files.
const FOLDER: &str = "/var/tmp/bhio";

/// Reads and writes 16 KiB at random places of 64 MiB, three to two, past the page cache, by one thread. The files are
/// made before the row begins.
pub fn sysbench(requests: usize) -> Result<(), Failure> {
    std::fs::create_dir_all(FOLDER)?;
    let command = |what: &str| {
        let mut command = Command::new("sysbench");
        command
            .current_dir(FOLDER)
            .args(["fileio", "--file-num=4", "--file-total-size=64M", "--file-test-mode=rndrw"])
            .args(["--file-extra-flags=direct", "--file-fsync-freq=0", "--threads=1", "--time=0"])
            .args(["--rand-seed=1", &format!("--events={requests}"), what]);
        command
    };
    succeed(command("prepare"))?;
    row::<{ id::IO_SYSBENCH }>("io.sysbench", [command("run")])?;
    succeed(command("cleanup"))
}

/// One stream to the host.
pub fn iperf3(server: SocketAddr, mib: usize) -> Result<(), Failure> {
    let mut command = Command::new("iperf3");
    command
        .args(["--client", &server.ip().to_string(), "--port", &server.port().to_string()])
        .args(["--bytes", &format!("{mib}M"), "--format", "k"]);
    row::<{ id::IO_IPERF3 }>("io.iperf3", [command])
}

/// Stressors, operations of each in a round, and options that bound an operation: by default they take seconds each, or
/// a timer with a megahertz.
const STRESSORS: [(&str, usize, &str); 6] = [
    ("cpu", 1, "--cpu-method int64"),
    ("vm", 1, "--vm-bytes 8m --vm-method flip"),
    ("fork", 1, ""),
    ("pipe", 100, ""),
    ("timer", 10, "--timer-freq 1000"),
    ("hdd", 1, "--hdd-bytes 8m"),
];

/// One process of each kind, one after the other: side by side, the first to
/// reach its number ends all others before theirs.
pub fn stress(rounds: usize) -> Result<(), Failure> {
    let commands = STRESSORS.map(|(kind, operations, options)| {
        let mut command = Command::new("stress-ng");
        command.args("--temp-path /var/tmp --metrics-brief --no-rand-seed --timeout 0".split(' '));
        command.args([&format!("--{kind}"), "1", &format!("--{kind}-ops")]);
        command.arg((rounds * operations).to_string()).args(options.split_whitespace());
        command
    });
    row::<{ id::IO_STRESS }>("io.stress_ng", commands)
}

/// A real-time thread that wakes each millisecond.
pub fn cyclic(periods: usize) -> Result<(), Failure> {
    let mut command = Command::new("cyclictest");
    command.args(["--quiet", "--mlockall", "--priority=80", "--interval=1000"]);
    command.arg(format!("--loops={periods}"));
    row::<{ id::IO_CYCLIC }>("io.cyclictest", [command])
}

fn row<const ID: u16>(
    name: &str,
    commands: impl IntoIterator<Item = Command>,
) -> Result<(), Failure> {
    let begin = ticks();
    bulkhead_linux::begin::<ID>();
    let result = commands.into_iter().try_for_each(succeed);
    bulkhead_linux::end::<ID>();
    result?;
    println!("row {name} {} ticks", ticks() - begin);
    Ok(())
}

fn succeed(mut command: Command) -> Result<(), Failure> {
    let status = command.status();
    let status = status.map_err(|why| format!("{:?}: {why}", command.get_program()))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{:?}: {status}", command.get_program()).into())
}
