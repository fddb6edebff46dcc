//! Shared by all bare guests: links them with the SDK's script, as `bulkhead_build::guest` does outside this tree. The
//! file is taken here without that package, so that no guest has to name it.

#[path = "../sdk/build/src/link.rs"]
mod link;

fn main() {
    link::with(include_str!("../sdk/guest.ld"));
}
