//! Asks for all of its memory to be encrypted, again and again.

use crate::{CLIENTS, Table, cipher};
use bulkhead_program::{Memory, Message, Program, ready};
use core::sync::atomic::Ordering;
use program_aes::{BLOCKS, Cipher, WORDS};

struct Client {
    number: usize,
    cipher: Cipher,
    plain: Memory,
    secret: Memory,
    table: Table,
}

impl Client {
    /// Tells if a block of the answer is right.
    fn right(&self, block: usize) -> bool {
        let word = |memory: Memory, n: usize| memory.words()[2 * block + n].load(Ordering::Relaxed);
        let stream = self.cipher.stream(block);
        (0..2).all(|n| word(self.secret, n) == word(self.plain, n) ^ stream[n])
    }

    /// Looks at both ends of some pieces, where it would show that the server was taken back.
    fn check(&self, first: usize, count: usize) {
        let (begin, end) = (first * BLOCKS, (first + count) * BLOCKS);
        let right = self.right(begin) && self.right(end - 1);
        assert!(right, "pieces {first} to {}: wrong", first + count);
        self.table.checked(self.number).fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Fills `from`, asks for it in `to`.
pub fn ask(program: Program) -> u32 {
    let memory = |name| program.memory(program.arg(name).expect("a name of memory"));
    let number = program.number("number").unwrap_or(0) as usize % CLIENTS;
    let (plain, secret) = (memory("from"), memory("to"));
    let client = Client { number, cipher: cipher(), plain, secret, table: Table::of(program) };
    for (n, word) in plain.words().iter().enumerate() {
        word.store((n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15), Ordering::Relaxed);
    }
    let (work, pieces) = (program.endpoint("work"), plain.words().len() / WORDS);
    program.signals("filled").signal();
    ready();
    program.waits("go").wait().expect("a signal");
    loop {
        let mut done = 0;
        while done < pieces {
            let request = Message::new(0, &[done as u64, (pieces - done) as u64]);
            let count = work.call(request).expect("an answer").words[1] as usize;
            assert!(count <= pieces - done, "{count} pieces instead of {}", pieces - done);
            if count > 0 {
                client.check(done, count);
            }
            done += count;
        }
    }
}
