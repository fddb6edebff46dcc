//! An end of a channel as tests have it in every kind of guest.

use bulkhead_linux::channel::named;
use bulkhead_linux::guest::{Guest, Process};
use std::process::ExitCode;

pub fn run(words: &[&str]) -> ExitCode {
    let mut here = Process::new(words);
    let mut ends = Vec::new();
    for name in ["channel", "and"].into_iter().filter_map(|key| here.arg(key)) {
        match named(name) {
            Ok(more) => ends.extend(more),
            Err(why) => {
                println!("bhchannel: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    let opened = ends.into_iter().filter_map(|end| match end.open() {
        Ok(channel) => Some(channel.stay()),
        Err(why) => {
            println!("bhchannel: {}: {why}", end.name);
            None
        }
    });
    here.channels = opened.collect();
    let pairs = here.channels.iter().filter_map(|channel| channel.pair());
    ExitCode::from(bulkhead_scenarios::run(&here, pairs) as u8)
}
