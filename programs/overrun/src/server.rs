//! Takes the chain from a value by as many steps as it is asked for.

use bulkhead_program::marker::{END, id};
use bulkhead_program::{Message, Program, mark};
use program_overrun::chain::{Chain, State, step};

/// Answers with the state reached: value, steps.
pub fn serve(program: Program) -> u32 {
    let (work, reply) = (program.serves("work"), program.reply("server"));
    let chain = Chain(program.memory("chain").words());
    chain.set(State::default());
    let mut received = work.receive(reply);
    loop {
        mark!(END | id::KERNEL_ROLLBACK);
        mark!(END | id::KERNEL_KILL);
        let [value, steps, ..] = received.expect("a request").message.words;
        chain.set(State { count: 0, value });
        while chain.state().count < steps {
            let State { count, value } = chain.state();
            let value = step(value, going_on);
            chain.set(State { count: count + 1, value });
        }
        let State { count, value } = chain.state();
        // The next client's request may end before it has begun: the state here then must not be this one's.
        chain.set(State::default());
        received = work.reply_receive(reply, Message::new(0, &[value, count]));
    }
}

/// Where it goes on after the end of a budget.
fn going_on() {
    mark!(END | id::KERNEL_EMERGENCY_WHOLE);
    mark!(END | id::KERNEL_EXTEND_WHOLE);
}
