//! A gate with nothing around its card: see [`gate_programs::serve`].
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::Program;

bulkhead_program::entry!(gate);

fn gate(program: Program) -> u32 {
    gate_programs::serve::gate(program, |card, _| card)
}
