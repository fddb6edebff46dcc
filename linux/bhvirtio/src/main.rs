//! `bhvirtio` is the device side of a virtio device; its driver is in another sandbox, at the other end of a channel of
//! kind `virtio`. For guests without udev it also sets the driver's side up.
//!
//! | arguments | does |
//! |---|---|
//! | `net DEVICE CHANNEL [ADDRESS [PROGRAM ...]]` | a network card for the driver, with its cable to DEVICE (a tap); with an address it is brought up, with a program it lasts as long as that |
//! | `console CHANNEL` | a console for the driver, on this terminal |
//! | `ask CHANNEL LINE ANSWER` | a console for scripts: types a line until the answer comes |
//! | `block CHANNEL FILE [--read-only] [--serial NAME] [--queues N] [--offset BYTES] [--length BYTES]` | a disk for the driver: a file, a whole device, or a part of either |
//! | `card ADDRESS [PROGRAM ...]` | driver's side: loads the drivers, gives the card its address, and runs a program |
//! | `attach CHANNEL [--nbd \| --ublk] [--limit SECONDS] [PROGRAM ...]` | driver's side without a module of ours: a disk of this kernel's, by its driver `nbd` or `ublk`; with a program it lasts as long as that |
//! | `disk [PROGRAM ...]` | driver's side: loads the drivers, waits for a disk, and runs a program |
//! | `terminal` | driver's side: a shell on the console |
//! | `reach ADDRESS` | for tests: waits until an address answers, then until it does not, then until it does again |
//! | `deaf CHANNEL MS PROGRAM ...` | for tests: a console that takes nothing that the driver prints, then a program in its place |
//! | `rogue CHANNEL MS [PROGRAM ...]` | for tests: writes garbage into the own section, then runs a program |
//! | `lie CHANNEL MS [PROGRAM ...]` | for tests: as a network card, or a sender of records, packets with headers that lie, then a program in its place |
//! | `exercise PATH MS` | for tests: writes and reads a file, a device, or the disk of this name, for so long, and looks that all is as it was written |
//! | `meanwhile PATH` | for tests: reads a disk while a write to it waits |
//! | `integrity PATH NAME` | for tests: makes `/dev/mapper/NAME`, which has a checksum of each sector of a disk |
//! | `refuses PATH` | for tests: a disk, or the disk of this name, must refuse to be written |
//! | `again TIMES MS PROGRAM ...` | for tests: kills a program after about so long and starts it again, so many times; then lets it be |
//! | `each TIMES MS PROGRAM ...` | for tests: runs a program to its end so many times, with pauses of about so long |
//! | `mislead CHANNEL MS PROGRAM ...` | for tests: a disk that lies, then a program in its place |
//! | `poke MS` | for tests: reads and writes all disks, whatever comes of it |
//! | `answers PATH MS` | for measurements: one request of a disk after the other, with a marker at the answer of each slow one |
//! | `gate` | for tests: sends packets on, and takes them |
#![forbid(unsafe_code)]

mod again;
mod answers;
mod attach;
mod block;
mod console;
mod driver;
mod exercise;
mod gate;
mod integrity;
mod lie;
mod mislead;
mod net;
mod rogue;
mod side;

use bulkhead_linux::run::done;
use std::io;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["net", device, channel, ref more @ ..] => net::serve(device, channel, more),
        ["console", channel] => console::attach(channel),
        ["ask", channel, line, answer] => console::ask(channel, line, answer),
        ["card", address, ref program @ ..] => driver::card(address, program),
        ["block", channel, file, ref options @ ..] => {
            block::Terms::of(options).and_then(|terms| block::serve(channel, file, &terms))
        }
        ["attach", channel, ref options @ ..] => attach::run(channel, options),
        ["disk", ref program @ ..] => driver::disk(program),
        ["exercise", path, millis] if path.starts_with('/') => exercise::run(path, millis),
        ["exercise", name, millis] => {
            driver::named(name).and_then(|path| exercise::run(&path.to_string_lossy(), millis))
        }
        ["meanwhile", path] => exercise::meanwhile(path),
        ["integrity", path, name] => integrity::make(path, name),
        ["refuses", name] => driver::refuses(name),
        ["each", times, millis, program, ref more @ ..] => {
            again::each(times, millis, Command::new(program).args(more))
        }
        ["again", times, millis, program, ref more @ ..] => {
            again::run(times, millis, Command::new(program).args(more))
        }
        ["terminal"] => driver::terminal(),
        ["reach", address] => driver::reach(address),
        ["deaf", channel, millis, program, ref more @ ..] => {
            console::deaf(channel, millis).and_then(|()| done(Command::new(program).args(more)))
        }
        ["rogue", channel, millis] => rogue::run(channel, millis),
        ["rogue", channel, millis, program, ref more @ ..] => {
            rogue::run(channel, millis).and_then(|()| done(Command::new(program).args(more)))
        }
        ["lie", channel, millis] => lie::run(channel, millis),
        ["lie", channel, millis, program, ref more @ ..] => {
            lie::run(channel, millis).and_then(|()| done(Command::new(program).args(more)))
        }
        ["mislead", channel, millis, program, ref more @ ..] => {
            mislead::run(channel, millis).and_then(|()| done(Command::new(program).args(more)))
        }
        ["poke", millis] => mislead::poke(millis),
        ["answers", path, millis] => answers::run(path, millis),
        ["gate"] => gate::run(),
        _ => Err(io::Error::other(
            "usage: bhvirtio net DEVICE CHANNEL [ADDRESS [PROGRAM ...]] | console CHANNEL | ask CHANNEL LINE ANSWER | block CHANNEL FILE [--read-only] [--serial NAME] [--queues N] [--offset BYTES] [--length BYTES] | card ADDRESS [PROGRAM ...] | attach CHANNEL [--nbd | --ublk] [--limit SECONDS] [PROGRAM ...] | disk [PROGRAM ...] | terminal | exercise PATH MS | meanwhile PATH | refuses PATH | again TIMES MS PROGRAM ... | each TIMES MS PROGRAM ... | reach ADDRESS | deaf CHANNEL MS PROGRAM ... | rogue CHANNEL MS [PROGRAM ...] | lie CHANNEL MS [PROGRAM ...] | mislead CHANNEL MS PROGRAM ... | poke MS | answers PATH MS | integrity PATH NAME | gate",
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("bhvirtio: {why}");
            ExitCode::FAILURE
        }
    }
}
