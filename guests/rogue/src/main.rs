//! Makes one attack a life: see the library of this crate.
//!
//! Arguments beside the library's: `attack=NAME` makes that one in every life;
//! `once` exits with code 0 after an attack instead of restarting, `pause=N`
//! waits N milliseconds before each attack.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, hypercall, mark, marker, paging, println, time};
use rogue::expect::Outcome;
use rogue::{Aim, Attack, by_name, of_life};

bulkhead_sdk::entry!(guest);

fn guest(context: Context) -> u32 {
    let attack: &Attack = match context.arg("attack") {
        None => of_life(context.incarnation()),
        Some(name) => match by_name(name) {
            Some(attack) => attack,
            None => {
                println!("rogue: no attack {name}");
                return 2;
            }
        },
    };
    if let Some(pause) = context.arg_u64("pause") {
        time::sleep(pause * 1_000_000);
    }
    // Without this the own page tables would be in the way, not the monitor.
    paging::map_everything();
    let aim = Aim::new(context);
    println!(
        "rogue: attack {}: expected {}",
        attack.name,
        attack.expect.text(&aim)
    );
    mark!(marker::BEGIN | marker::id::RESTART);
    let got = attack.act.run(&aim);
    println!("rogue: attack {}: got {}", attack.name, Outcome(got));
    if context.arg("once").is_some() {
        return 0;
    }
    hypercall::restart()
}
