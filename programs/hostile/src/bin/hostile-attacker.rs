//! Runs the attack that the guard asks for, and then raises an exception, if the attack itself did not.
#![cfg_attr(target_os = "none", no_std, no_main)]

mod attacks;

use attacks::{Attack, calls, instructions, itself, time};
use bulkhead_program::{Message, Program, Registers, abi::Status, stop};
use hostile_programs::{COUNT, board};

bulkhead_program::entry!(attacker);
bulkhead_program::thread!(accomplice, accomplice_thread);

/// In the order of [`hostile_programs::ATTACKS`], one slice for each group.
const GROUPS: [&[Attack]; 6] = [
    &instructions::KERNELS,
    &instructions::MEMORY,
    &instructions::ENTRIES,
    &calls::ALL,
    &time::ALL,
    &itself::ALL,
];

const _: () = {
    let (mut sum, mut n) = (0, 0);
    while n < GROUPS.len() {
        sum += GROUPS[n].len();
        n += 1;
    }
    assert!(sum == COUNT, "each name has its attack");
};

fn attacker(program: Program) -> u32 {
    let page: Registers = program.registers("board");
    let number = page.read64(board::ATTACK);
    let attack = GROUPS.iter().flat_map(|group| group.iter()).nth(number as usize);
    let status = attack.map_or(Status::OK.0, |attack| attack(program));
    page.write64(board::STATUS, status);
    page.write64(board::BACK, number + 1);
    stop()
}

/// Answers calls of label 0; to others it answers after it has called back.
fn accomplice_thread(program: Program) -> u32 {
    let (from, reply) = (program.serves("there"), program.reply("accomplice"));
    loop {
        let Ok(received) = from.receive(reply) else { continue };
        if received.message.label() != 0 {
            let _ = program.endpoint("back").call(Message::default());
        }
        let _ = reply.answer(Message::default());
    }
}
