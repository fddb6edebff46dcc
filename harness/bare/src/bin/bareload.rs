//! To be written.
#![cfg_attr(target_os = "none", no_std, no_main)]
#[cfg(target_os = "none")]
fn main(_: harness_bare::start::Boot) -> ! {
    harness_bare::cpu::power_off()
}
harness_bare::entry!(main);
