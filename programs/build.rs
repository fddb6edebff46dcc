//! Shared by all programs: links them with the SDK's script, as `bulkhead_build::program` does outside this tree.

#[path = "../sdk/build/src/link.rs"]
mod link;

fn main() {
    link::with(include_str!("../program/program.ld"));
}
