//! `bhbench` measures a Linux and loads it. One static program, so that a sandbox, the bare machine and KVM run equal
//! bytes.
//!
//! | arguments | does |
//! |---|---|
//! | `all` (the default), or names of rows | measures: `getpid`, `page_touch`, `sigsegv`, `fork`, `fork_exec`, `pipe`, `udp_64`, `udp_1472`, `primes`, `timer` |
//! | `idle MS` | sleeps |
//! | `forkexec MS` | runs fork and exec in a loop |
//! | `load MS` | UDP, a pipe and timers together |
//! | `smp MS` | that load on CPUs 0 and 1, which wake one another |
//! | `apart` | has the plugin write down what it has counted, and begin anew |
//!
//! Each operation lies between two markers, from which the measuring plugin
//! counts its instructions; without the plugin the time stamp counter tells.
//! Printed: `info KEY VALUE`, `row NAME VALUE UNIT` and, at the end,
//! `bhbench: done`.

mod load;
mod rows;

use bulkhead_linux::{mark, marker, setup, setup::Failure};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => {
            println!("bhbench: done");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("bhbench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), Failure> {
    setup::fixed_addresses()?;
    setup::loopback()?;
    match args {
        [apart] if apart == "apart" => {
            mark::<{ marker::DUMP }>(0);
            mark::<{ marker::RESET }>(0);
            Ok(())
        }
        [kind, duration] if load::KINDS.contains(&kind.as_str()) => {
            let duration = std::time::Duration::from_millis(duration.parse()?);
            setup::settle();
            // Where the load begins, it ends, so that both markers count one core.
            setup::pin(0)?;
            println!("load {kind} begins");
            setup::drain();
            mark::<{ marker::EVENT | marker::id::START }>(0);
            let rounds = load::run(kind, duration)?;
            mark::<{ marker::EVENT | marker::id::FINISH }>(0);
            println!("load {kind} ends after {rounds} rounds");
            Ok(())
        }
        [] => measure(&rows::NAMES),
        [all] if all == "all" => measure(&rows::NAMES),
        names => measure(&names.iter().map(String::as_str).collect::<Vec<_>>()),
    }
}

fn measure(names: &[&str]) -> Result<(), Failure> {
    setup::settle();
    setup::describe();
    setup::pin(0)?;
    mark::<{ marker::EVENT | marker::id::START }>(0);
    for name in names {
        setup::drain();
        rows::run(name)?;
    }
    mark::<{ marker::EVENT | marker::id::FINISH }>(0);
    Ok(())
}
