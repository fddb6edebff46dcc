//! An end of a channel as tests have it in every kind of guest.

use bulkhead_channel::adaptive::Sleeper;
use bulkhead_channel::bell::{Caller, Ring};
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_linux::bell::Bed;
use bulkhead_linux::channel::{Channel, named};
use bulkhead_linux::port;
use bulkhead_talk::Host;
use std::fmt::Arguments;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

struct Here {
    begun: Instant,
    args: Vec<&'static str>,
    channels: Vec<&'static Channel>,
}

/// The library rings by the register: here it is the port, so that tests see both.
struct Port(u16);

impl Ring for Port {
    fn ring(&mut self) {
        port::write8(self.0, 0);
    }
}

impl Host for Here {
    type Ring = Port;
    type Bed = Bed;

    fn caller(&self, pair: &Pair<'static>) -> Option<Caller<Mapping<'static>, Port>> {
        let doorbell = pair.doorbell().filter(|_| pair.sends())?;
        port::allow_all().ok()?;
        Some(Caller::new(pair.bell().ok()?, Port(doorbell.at)))
    }

    fn sleeper(&self, pair: &Pair<'static>) -> Option<Sleeper<Mapping<'static>, Bed>> {
        let doorbell = pair.doorbell().filter(|_| !pair.sends())?;
        let arm = pair.arm().ok()?;
        // No role sleeps for more than one channel.
        let wakes = |pair: Pair<'_>| pair.doorbell().is_some() && !pair.sends();
        let channel = self.channels.iter().find(|channel| channel.pair().is_some_and(wakes));
        let bed = Bed::open(channel?);
        let bed = bed.map_err(|why| self.say(format_args!("it cannot sleep: {why}"))).ok()?;
        Some(Sleeper::new(arm, Bed::spin(doorbell), bed))
    }

    fn interrupts(&self, bed: &Bed) -> u64 {
        bed.interrupts().into()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, nanos: u64) {
        std::thread::sleep(Duration::from_nanos(nanos.saturating_sub(self.now())));
    }

    fn say(&self, line: Arguments<'_>) {
        println!("bhchannel: {line}");
        // The next step can be the end of this sandbox.
        let _ = std::io::stdout().flush();
    }

    fn arg(&self, key: &str) -> Option<&'static str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(key)?.strip_prefix('='))
    }
}

pub fn run(words: &[&str]) -> ExitCode {
    let args = words.iter().map(|word| &*String::leak((*word).to_owned())).collect();
    let mut here = Here { begun: Instant::now(), args, channels: Vec::new() };
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
    ExitCode::from(bulkhead_talk::run(&here, pairs) as u8)
}
