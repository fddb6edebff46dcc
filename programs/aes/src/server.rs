//! Encrypts pieces of a client's memory.

use crate::{CLIENTS, Table, cipher};
use bulkhead_program::{Message, Program};
use core::sync::atomic::Ordering;
use program_aes::WORDS;
use program_overrun::chain::{Chain, State};

/// Where each client has its text, and gets it encrypted.
const MEMORY: [[&str; 2]; CLIENTS] = [["a-plain", "a-secret"], ["b-plain", "b-secret"]];

/// Answers requests for pieces: the first one, how many. Its handler sees the complete pieces, too. The answer is as
/// the handler's: the client, and the number of pieces.
pub fn serve(program: Program) -> u32 {
    let (work, reply) = (program.serves("work"), program.reply("server"));
    let (table, chain) = (Table::of(program), Chain(program.memory("chain").words()));
    let memory = MEMORY.map(|names| names.map(|name| program.memory(name).words()));
    let cipher = cipher();
    chain.set(State::default());
    let mut received = work.receive(reply);
    loop {
        let request = received.expect("a request");
        let [first, pieces, ..] = request.message.words.map(|word| word as usize);
        let client = request.badge as usize - 1;
        let [plain, secret] = memory[client];
        let whole = plain.len().min(secret.len()) / WORDS;
        for (done, piece) in (first..whole).take(pieces).enumerate() {
            cipher.piece(piece, plain, secret);
            chain.set(State { count: done as u64 + 1, value: request.badge });
            table.done(client).fetch_add(1, Ordering::Relaxed);
        }
        let State { count, value } = chain.state();
        // The next client's request may end before it has begun: the state here then must not be this one's.
        chain.set(State::default());
        received = work.reply_receive(reply, Message::new(0, &[value, count]));
    }
}
