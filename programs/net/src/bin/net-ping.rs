//! Asks a station for echoes at a pace of its own, and marks when it asked and when an answer came.
//!
//! Arguments:
//!
//! * `to=CHANNEL from=CHANNEL`: records, one each way, that carry IP packets;
//! * `address=10.9.0.1 other=10.9.0.2`;
//! * `every=N` milliseconds and `count=N`, after which it ends the sandbox. It fails unless the last one was answered.
//!
//! Waits at the notification `news`.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_net::{FRAME, Pinger};
use bulkhead_program::marker::{EVENT, id};
use bulkhead_program::{Program, exit, mark, now, println, ready};
use core::net::Ipv4Addr;
use net_programs::{Line, line, serve};

bulkhead_program::entry!(ping);

const MILLI: u64 = 1_000_000;
/// Frames taken before it looks at the clock: a fast sender does not keep it from asking.
const TURN: usize = 16;

struct Net {
    line: Line,
    pinger: Pinger,
    every: u64,
    count: u64,
    /// When the next one is asked for.
    due: u64,
    asked: u64,
    answered: u64,
    /// The last request has not been answered.
    waits: bool,
}

fn ping(program: Program) -> u32 {
    let name = |key| program.arg(key).unwrap_or_default();
    let address = |key| name(key).parse::<Ipv4Addr>().ok();
    let (Some(own), Some(other)) = (address("address"), address("other")) else {
        println!("{}: address= or other= is missing, or no IPv4 address", program.name());
        return 1;
    };
    let numbers = (program.number("every"), program.number("count").map(u16::try_from));
    let (Some(every), Some(Ok(count))) = numbers else {
        println!("{}: every= or count= is missing, or too large", program.name());
        return 1;
    };
    ready();
    let mut net = Net {
        line: line(program, name("to"), name("from")),
        pinger: Pinger::new(own, other, 1),
        every: MILLI * every,
        count: count.into(),
        due: now() + MILLI * every,
        asked: 0,
        answered: 0,
        waits: false,
    };
    serve(&mut net, program.waits("news"), |net, each| each(&mut net.line), |net| net.turn(program))
}

/// A request's number with the time.
fn stamped(number: u64) -> u64 {
    let millis = now() / MILLI;
    millis << 16 | number
}

impl Net {
    /// Takes answers, and asks if it is time to; when it is the next time.
    fn turn(&mut self, program: Program) -> u64 {
        let mut buffer = [0; FRAME];
        for _ in 0..TURN {
            let Some(packet) = self.line.receive(&mut buffer) else { break };
            // One answer to the last request: others may come late, twice, or be made up.
            let last = self.pinger.answered(packet).filter(|n| u64::from(*n) == self.asked);
            if let Some(number) = last.filter(|_| self.waits) {
                (self.answered, self.waits) = (self.answered + 1, false);
                mark!(EVENT | id::CHANNEL_ECHOED, stamped(number.into()));
            }
        }
        if now() >= self.due {
            self.ask(program, &mut buffer);
        }
        self.due
    }

    fn ask(&mut self, program: Program, buffer: &mut [u8; FRAME]) {
        if self.asked == self.count {
            println!("{}: {} of {} echoes", program.name(), self.answered, self.count);
            exit(u32::from(self.waits));
        }
        self.asked += 1;
        self.due += self.every;
        self.waits = true;
        // The count fits, so its numbers do.
        self.line.send(self.pinger.request(self.asked as u16, buffer));
        mark!(EVENT | id::CHANNEL_ASKED, stamped(self.asked));
    }
}
