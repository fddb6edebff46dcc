//! A party of channels made at run time, as tests have it (`crates/testing/scenarios`): `ms=N STEP...`.

use bulkhead_linux::call;
use bulkhead_linux::devmem::Info;
use bulkhead_linux::guest::Process;
use bulkhead_linux::link::Link;
use bulkhead_scenarios::meet::{last, meet, watch};
use std::io;
use std::process::ExitCode;

fn info() -> io::Result<&'static Info> {
    call::allow()?;
    Ok(Box::leak(Box::new(Info::read()?)))
}

pub fn run(words: &[&str]) -> ExitCode {
    let [ms, steps @ ..] = words else { return ExitCode::FAILURE };
    let mut here = Process::new(&[ms]);
    match info() {
        Ok(info) => here.info = Some(info),
        Err(why) => {
            println!("bhchannel: {why}");
            return ExitCode::FAILURE;
        }
    }
    let aside = |link: &Link| {
        let words = last(&here, link);
        words.map(|words| std::thread::spawn(move || watch(words))).is_some()
    };
    ExitCode::from(meet(&here, &steps.join(","), aside) as u8)
}
