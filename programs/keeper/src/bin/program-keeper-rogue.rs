//! The keeper without a rule of the snapshots: `omits=RULE` in its arguments. Tests have to notice that.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::Program;
use keeper_programs::Rules;

bulkhead_program::entry!(keeper);

#[derive(Clone, Copy)]
struct Without(&'static str);

impl Rules for Without {
    fn enforced(self, rule: &str) -> bool {
        self.0 != rule
    }
}

fn keeper(program: Program) -> u32 {
    keeper_programs::serve(program, Without(program.arg("omits").unwrap_or_default()))
}
