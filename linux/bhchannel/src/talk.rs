//! An end of a channel as tests have it in every kind of guest.

use bulkhead_linux::guest::Process;
use std::process::ExitCode;

pub fn run(words: &[&str]) -> ExitCode {
    ExitCode::from(bulkhead_scenarios::run(&Process::new(words)) as u8)
}
