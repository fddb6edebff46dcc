//! A terminal of a kernel sandbox: answers lines that come through a channel of records on the sandbox's console. A
//! Linux that observes the sandbox shows that and sends the lines (`bulkheadctl console`).
//!
//! Arguments: `keys=CHANNEL`. Waits at the notification `news`.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::channel::{Stop, records};
use bulkhead_program::typed::Mapping;
use bulkhead_program::{Guest, Program, exit, now, println, ready, text, wait_until};

bulkhead_program::entry!(shell);

/// Bytes of the longest line; a longer one is cut.
const LINE: usize = 128;
/// Nanoseconds between looks, if it is not woken.
const LOOK: u64 = 10_000_000;

struct Keys {
    program: Program,
    from: records::Receiver<Mapping<'static>>,
    line: [u8; LINE],
    len: usize,
}

fn shell(program: Program) -> u32 {
    let name = program.arg("keys").unwrap_or_default();
    let pair = program.pair(name);
    let Ok(from) = pair.receive_records() else {
        println!("{}: {name} is no channel of records to receive", program.name());
        return 1;
    };
    let news = program.waits("news");
    let mut sleeper = program.sleeper(&pair);
    let mut keys = Keys { program, from, line: [0; LINE], len: 0 };
    println!("{}: help tells what it knows", program.name());
    ready();
    loop {
        let done = match &mut sleeper {
            Some(sleeper) => sleeper.wait(|| keys.take()),
            None => keys.take(),
        };
        match done {
            Ok(()) => {}
            // Without a doorbell it looks; a thread without time of its own looks at once.
            Err(Stop::Wait | Stop::Apart) => _ = wait_until(news, now() + LOOK),
            Err(Stop::Corrupted | Stop::Closed) => keys.from.reset(),
            // Text typed before the sender went is part of another line.
            Err(_) => keys.len = 0,
        }
    }
}

impl Keys {
    /// Takes a message: lines, and parts of them.
    fn take(&mut self) -> Result<(), Stop> {
        let mut bytes = [0; LINE];
        let len = match self.from.receive(&mut bytes) {
            Err(Stop::Size) => {
                self.from.peek()?.release();
                println!("{}: more than {LINE} bytes at once", self.program.name());
                return Ok(());
            }
            received => received?,
        };
        for byte in &bytes[..len] {
            match byte {
                b'\n' | b'\r' => self.answer(),
                _ if self.len < LINE => {
                    self.line[self.len] = *byte;
                    self.len += 1;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Answers a line.
    fn answer(&mut self) {
        let len = core::mem::take(&mut self.len);
        let Ok(line) = core::str::from_utf8(&self.line[..len]) else {
            println!("{}: that is no UTF-8", self.program.name());
            return;
        };
        let (command, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match command {
            "" => {}
            "help" => println!("echo TEXT | exit CODE | names | uptime"),
            "echo" => println!("{rest}"),
            "uptime" => println!("{} ms since the processor's start", now() / 1_000_000),
            "names" => {
                self.program.names().for_each(|given| println!("{}", text::of(&given.name)));
            }
            "exit" => exit(rest.parse().unwrap_or(0)),
            other => {
                println!("{}: no command {other}; help tells which there are", self.program.name())
            }
        }
    }
}
