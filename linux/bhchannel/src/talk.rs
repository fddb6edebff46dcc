//! An end of a channel as tests have it in every kind of guest.

use bulkhead_linux::channel::named;
use bulkhead_talk::{Host, Nobody};
use std::fmt::Arguments;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

struct Here {
    begun: Instant,
    args: Vec<&'static str>,
}

impl Host for Here {
    type Ring = Nobody;
    type Bed = Nobody;

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, nanos: u64) {
        std::thread::sleep(Duration::from_nanos(nanos.saturating_sub(self.now())));
    }

    fn say(&self, line: Arguments<'_>) {
        println!("bhchannel: {line}");
        // What comes next can be the end of this sandbox.
        let _ = std::io::stdout().flush();
    }

    fn arg(&self, key: &str) -> Option<&'static str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(key)?.strip_prefix('='))
    }
}

pub fn run(words: &[&str]) -> ExitCode {
    let args = words.iter().map(|word| &*String::leak((*word).to_owned())).collect();
    let here = Here { begun: Instant::now(), args };
    let ends = here.arg("channel").unwrap_or_default();
    let ends = match named(ends) {
        Ok(ends) => ends,
        Err(why) => {
            println!("bhchannel: {why}");
            return ExitCode::FAILURE;
        }
    };
    let pairs = ends.into_iter().filter_map(|end| match end.open() {
        Ok(channel) => channel.pair(),
        Err(why) => {
            println!("bhchannel: {}: {why}", end.name);
            None
        }
    });
    ExitCode::from(bulkhead_talk::run(&here, pairs) as u8)
}
