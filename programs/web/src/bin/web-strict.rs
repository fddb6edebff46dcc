//! The other driver of a web server's virtio card: slower and stricter ([`bulkhead_cards::strict`]). It looks for news
//! each 250 microseconds (`every=` in its arguments), and takes no interrupt. It needs what `web-nic` needs.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_cards::Configuration;
use bulkhead_cards::{StrictNet, Wrong, virtio_net};
use bulkhead_program::{Program, println};
use store_programs::function::{Function, Now, Queues};
use web_programs::nic::{News, drive};

bulkhead_program::entry!(strict);

fn strict(program: Program) -> u32 {
    let every = program.number("every").unwrap_or(250).max(10) * 1_000;
    match open(program) {
        Ok(card) => drive(program, card, News::Looks(every)),
        Err(wrong) => {
            println!("{}: {wrong}", program.name());
            panic!("it cannot drive its card")
        }
    }
}

type Net = StrictNet<bulkhead_program::Registers, Queues, Now>;

fn open(program: Program) -> Result<Net, Wrong> {
    let function = Function::find(program)?;
    let configuration = function.configuration()?;
    if configuration.read(0) != virtio_net::ID {
        return Err(Wrong::Lacks("driver that checks so much"));
    }
    let queues = Queues::find(program, "rings");
    StrictNet::new(&configuration, |n| function.bar(n), queues, Now)
}
