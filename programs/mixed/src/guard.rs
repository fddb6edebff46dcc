//! Raises the criticality of the system when the most critical workload needs more than its budget for the present one.
//! It is the fifth way to settle the end of a budget (the scheduling-context paper, section 3.4.2), as in adaptive
//! mixed criticality.

use crate::manager::switch;
use crate::work::{APPS, STAGES, Table};
use bulkhead_program::abi::{Policy, label};
use bulkhead_program::{Message, Program};
use core::sync::atomic::Ordering;

/// Time that the most critical workload may take of its period at each criticality, ns.
const BUDGETS: [u64; STAGES] = [280_000, 550_000, 1_500_000];
/// Its priority from the first time on: above all workloads, because the job that needed more has waited for others
/// already.
const ABOVE: u8 = 190;

bulkhead_program::thread!(guard, guard_budgets);

/// Handles the ends of budgets for ever: all of them are foreseen.
fn guard_budgets(program: Program) -> u32 {
    let (endpoint, reply) = (program.serves("overruns"), program.reply("guard"));
    let (table, time) = (Table::of(program), program.context(APPS[0]));
    let mut told = endpoint.receive(reply);
    loop {
        let message = told.expect("the end of a budget").message;
        assert!(message.label() == label::TIMEOUT, "{message:?}");
        let criticality = 1 + table.raised().fetch_add(1, Ordering::Relaxed) as usize;
        let budget =
            *BUDGETS.get(criticality).expect("a workload that keeps within its last budget");
        let period = table.row(0, 0)[3].load(Ordering::Relaxed);
        time.configure(Policy::Sporadic, budget, period, message.words[0])
            .and_then(|()| switch(program, criticality))
            .and_then(|()| {
                program.manages(APPS[0]).set_priority(ABOVE, 0, program.manages("manager"))
            })
            .expect("what the manifest allows");
        told = endpoint.reply_receive(reply, Message::default());
    }
}
