//! Begins one attack after another, hears how each ends, and says so. It stops an attack that does not end in 20 ms. In
//! the end it says how the victim fared.
//!
//! Arguments: `from=N`, `to=N`: only these attacks.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::abi::{Code, at, label};
use bulkhead_program::{
    Context, Endpoint, Error, Message, Program, Received, Registers, Reply, Thread, now, println,
    ready,
};
use core::fmt;
use hostile_programs::{ATTACKS, HARMLESS, board, book};

bulkhead_program::entry!(guard);

const MILLI: u64 = 1_000_000;
/// How long an attack lasts at most.
const LONGEST: u64 = 20 * MILLI;

/// A thread of the attacker's, and the context that gives it time.
struct Ward {
    thread: Thread,
    context: Context,
    begin: [u64; 4],
}

struct Guard {
    board: Registers,
    book: Registers,
    trouble: Endpoint,
    reply: Reply,
    wards: [Ward; 2],
}

/// How an attack ended.
enum End {
    /// By an exception.
    Exception(u64),
    /// The call was refused, or did something: its status.
    Status(u64),
    /// Nothing was heard of it.
    Silent,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exception(number) => write!(f, "exception {number}"),
            Self::Status(HARMLESS) => write!(f, "harmless"),
            Self::Status(0) => write!(f, "done"),
            Self::Status(status) => write!(f, "{}", Error(bulkhead_program::abi::Status(status))),
            Self::Silent => write!(f, "silent"),
        }
    }
}

impl Ward {
    fn new(program: Program, name: &str, number: u64) -> Result<Self, Error> {
        let (thread, context) = (program.manages(name), program.context(name));
        let [ip, sp, ..] = thread.registers()?;
        Ok(Self { thread, context, begin: [ip, sp, at::PAGE, number] })
    }

    /// It begins anew, on time of its own, whatever it has done.
    fn begin(&self) -> Result<(), Error> {
        self.thread.suspend()?;
        self.context.unbind()?;
        self.context.bind(self.thread)?;
        self.thread.start(self.begin)
    }
}

impl Guard {
    /// Runs an attack until its end; returns true if it took all of its time.
    fn attack(&self, number: u64) -> Result<(End, bool), Error> {
        self.board.write64(board::ATTACK, number);
        for ward in &self.wards {
            ward.begin()?;
        }
        let until = now() + LONGEST;
        let mut overran = false;
        loop {
            match self.trouble.receive_until(self.reply, until) {
                Ok(Received { message, .. }) if message.label() == label::TIMEOUT => {
                    overran = true;
                    self.reply.answer(Message::default())?;
                }
                Ok(Received { message, .. }) => {
                    self.reply.answer(Message::new(1, &[]))?;
                    let back = self.board.read64(board::BACK) == number + 1;
                    let status = self.board.read64(board::STATUS);
                    let exception = message.words[0] & 0xFF;
                    let end = if back { End::Status(status) } else { End::Exception(exception) };
                    return Ok((end, overran));
                }
                Err(error) if error.code() == Some(Code::TimedOut) => {
                    return Ok((End::Silent, overran));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn attacks(&self, from: u64, to: u64) -> Result<(), Error> {
        for (number, name) in (0..).zip(ATTACKS).skip(from as usize) {
            if number > to {
                break;
            }
            let before = self.book.read64(book::MISSED);
            let (end, overran) = self.attack(number)?;
            let missed = self.book.read64(book::MISSED) - before;
            if missed > 0 {
                println!("victim: {missed} releases missed by {name}");
            }
            println!("{name}: {end}{}", if overran { ", all of its time" } else { "" });
        }
        Ok(())
    }
}

fn guard(program: Program) -> u32 {
    ready();
    let (began, book) = (now(), program.registers("book"));
    let wards = Ward::new(program, "attacker", 0)
        .and_then(|first| Ok([first, Ward::new(program, "accomplice", 1)?]));
    let attacked = wards.and_then(|wards| {
        let guard = Guard {
            board: program.registers("board"),
            book,
            trouble: program.serves("trouble"),
            reply: program.reply("guard"),
            wards,
        };
        let all = (program.number("from").unwrap_or(0), program.number("to").unwrap_or(u64::MAX));
        guard.attacks(all.0, all.1)
    });
    if let Err(error) = attacked {
        println!("guard: {error}");
        return 1;
    }
    let (releases, missed) = (book.read64(book::RELEASES), book.read64(book::MISSED));
    let changed = book.read64(book::CHANGED);
    println!("victim: {missed} releases missed, {changed} words changed");
    if book.read64(book::LONGEST) > MILLI {
        println!("victim: took {} us", book.read64(book::LONGEST) / 1_000);
    }
    // The first one is a period after the beginning, and the last one may not be over.
    let wanted = ((now() - began) / MILLI).saturating_sub(2);
    if releases < wanted {
        println!("victim: {releases} releases of {wanted}");
    }
    u32::from(releases < wanted || missed + changed > 0)
}
