//! The keeper ([`keeper_programs`]).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::Program;
use keeper_programs::Rules;

bulkhead_program::entry!(keeper);

#[derive(Clone, Copy)]
struct All;

impl Rules for All {
    #[inline(always)]
    fn enforced(self, _: &str) -> bool {
        true
    }
}

fn keeper(program: Program) -> u32 {
    keeper_programs::serve(program, All)
}
