//! Harm to itself: from none of it does it come back by itself.

use super::Attack;
use super::calls::status;
use bulkhead_program::abi::{label, slot};
use bulkhead_program::{Message, invoke};

pub const ALL: [Attack; 7] = [
    |program| status(program.context("attacker").unbind()),
    |program| status(program.manages("attacker").suspend()),
    |program| status(program.endpoint("back").call(Message::default())),
    |program| status(program.endpoint("there").call(Message::new(1, &[]))),
    |program| status(program.waits("never").wait()),
    |_| status(delete(slot::SPACE)),
    |_| (1..64).map(|at| status(delete(at))).max().unwrap_or(0),
];

fn delete(at: u32) -> Result<(), bulkhead_program::Error> {
    invoke(slot::NODE, label::DELETE, [at.into(), 0, 0, 0]).map(drop)
}
