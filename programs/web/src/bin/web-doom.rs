//! A program that lets its whole sandbox fail, for tests, while that has the role `role=NAME`. It does so by an exit
//! code, or by a loop above all others. The times are [`web_programs::plan`]'s.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, now, println, wait_until};
use web_programs::plan::Plan;
use web_programs::stand_by;

bulkhead_program::entry!(doom);

/// Exit code of a failure.
const CODE: u32 = 7;

/// Kinds of failures.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Exit,
    Hang,
}

fn doom(program: Program) -> u32 {
    let pause = program.waits("pause");
    stand_by(program, pause, || {});
    let (at, _, kind) = Plan::of(program).next(now(), &[Kind::Exit, Kind::Hang]);
    while now() < at {
        let _ = wait_until(pause, at);
    }
    println!("{}: fault {kind:?} at {} us", program.name(), now() / 1_000);
    match kind {
        Kind::Exit => CODE,
        Kind::Hang => loop {
            core::hint::spin_loop();
        },
    }
}
