//! `bhchannel` shows a Linux sandbox's channels on the command line.
//!
//! | arguments | does |
//! |---|---|
//! | `list` | one line for each end: name, function, what it carries, which side, the peers' states; for each link what there is of it |
//! | `state NAME NUMBER [MS]` | sets the own state, which peers see in the state table, and waits so many milliseconds |
//! | `send NAME` | sends each line of its input |
//! | `receive NAME [COUNT]` | prints messages, each as a line; without a count for ever |
//! | `serve OUT IN [PROGRAM ...]` | a program, by default a shell, on a terminal at the other end of two channels |
//! | `attach OUT IN` | this terminal at the other end's |
//! | `ask OUT IN LINE ANSWER` | types a line at the other end's terminal, until the answer comes |
//! | `net DEVICE OUT IN [ADDRESS [PROGRAM ...]]` | a network device, point to point; with an address up, for as long as a program runs |
//! | `offer SANDBOX TAG` | makes a channel with a sandbox, sends each line of its input, and ends with the other end |
//! | `accept SANDBOX TAG [COUNT]` | accepts a channel of a sandbox and prints messages, until the other end leaves |
//! | `close LINK` | closes a link that a process has left open |
//! | `until NAME PEER NUMBER...` | waits until a peer's state has been each of these, one after the other |
//! | `attack NAME...` | root's attacks with ends on the others: expected and got, as `bhattack` prints them |
//! | `talk channel=NAME role=ROLE ...`, `meet ms=N STEP...` | the scenarios of `crates/testing/scenarios`, in tests |
#![forbid(unsafe_code)]

mod attack;
mod links;
mod meet;
mod network;
mod stream;
mod talk;

use bulkhead_linux::channel::{Channel, all, named};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["list"] => list(),
        ["state", name, state] => set_state(name, state, "0"),
        ["state", name, state, millis] => set_state(name, state, millis),
        ["send", name] => stream::send(name),
        ["receive", name] => stream::receive(name, usize::MAX),
        ["receive", name, count] => number(count).and_then(|n| stream::receive(name, n as usize)),
        ["serve", to, from, ref command @ ..] => stream::serve(to, from, command),
        ["attach", to, from] => stream::attach(to, from),
        ["ask", to, from, line, answer] => stream::ask(to, from, line, answer),
        ["net", device, to, from, ref more @ ..] => network::run(device, to, from, more),
        ["until", name, peer, ref states @ ..] => until(name, peer, states),
        ["offer", to, tag] => word(tag).and_then(|tag| links::offer(to, tag)),
        ["accept", from, tag] => word(tag).and_then(|tag| links::accept(from, tag, usize::MAX)),
        ["accept", from, tag, count] => {
            word(tag).and_then(|tag| links::accept(from, tag, number(count)? as usize))
        }
        ["close", link] => number(link).and_then(links::close),
        ["attack", ref names @ ..] => attack::all(names),
        ["talk", ref words @ ..] => return talk::run(words),
        ["meet", ref words @ ..] => return meet::run(words),
        _ => Err(io::Error::other(
            "usage: bhchannel list | send NAME | receive NAME [COUNT] | serve OUT IN [PROGRAM ...] | attach OUT IN | ask OUT IN LINE ANSWER | net DEVICE OUT IN [ADDRESS [PROGRAM ...]] | state NAME NUMBER [MS] | until NAME PEER NUMBER... | offer SANDBOX TAG | accept SANDBOX TAG [COUNT] | close LINK | attack NAME... | talk ... | meet ...",
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("bhchannel: {why}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> io::Result<()> {
    for end in all()? {
        let carries = end.kind.map_or("pages".into(), |kind| format!("{kind:?}").to_lowercase());
        let (name, address, bytes) = (&end.name, end.address(), end.section);
        let channel = match (end.open(), end.driver()) {
            (Ok(channel), _) => channel,
            // It keeps the function to itself.
            (Err(_), Some(driver)) => {
                println!("{name} {address} {carries} {bytes} bytes, of driver {driver}");
                continue;
            }
            (Err(why), None) => return Err(why),
        };
        let side = if channel.id() == 0 { "sends" } else { "receives" };
        let states = states(&channel);
        println!("{name} {address} {carries} {side} {bytes} bytes, states {states}");
    }
    links::list()
}

/// The states of all peers, the own one in brackets.
fn states(channel: &Channel) -> String {
    let one = |peer: u32| match peer == channel.id() {
        true => format!("[{}]", channel.state()),
        false => channel.state_of(peer).to_string(),
    };
    (0..channel.peers()).map(one).collect::<Vec<_>>().join(" ")
}

fn number(text: &str) -> io::Result<u32> {
    text.parse().map_err(|_| io::Error::other(format!("`{text}` is no number")))
}

/// The word that names a channel made at run time for both ends.
fn word(text: &str) -> io::Result<u16> {
    text.parse().map_err(|_| io::Error::other(format!("`{text}` is no tag from 0 to 65535")))
}

fn set_state(name: &str, state: &str, millis: &str) -> io::Result<()> {
    let (state, millis) = (number(state)?, number(millis)?);
    for end in named(name)? {
        end.open()?.set_state(state);
    }
    std::thread::sleep(Duration::from_millis(millis.into()));
    Ok(())
}

fn until(name: &str, peer: &str, states: &[&str]) -> io::Result<()> {
    let (ends, peer) = (named(name)?, number(peer)?);
    let [end] = &ends[..] else { return Err(io::Error::other("it has several receivers")) };
    let channel = end.open()?;
    for state in states {
        let state = number(state)?;
        while channel.state_of(peer) != state {
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("bhchannel: peer {peer} of {name} is {state}");
    }
    Ok(())
}
