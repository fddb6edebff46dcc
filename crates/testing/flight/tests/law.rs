//! The copy in C computes as the copies in Rust do, to the bit: along a flight, and from states that no flight has.

use bulkhead_flight::copies::{Input, STATE, State, fresh, step};
use bulkhead_flight::math::Quat;
use bulkhead_flight::profile;
use bulkhead_flight::words::to_motors;
use bulkhead_flight::world::World;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const STEPS: u32 = 20_000;

fn compiled() -> PathBuf {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("law");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/law.c");
    let mut cc = Command::new("gcc");
    // As guests/copy-c/build.sh has them.
    cc.args(["-m64", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", source, "-o"]).arg(&out);
    assert!(cc.status().expect("a compiler").success());
    out
}

/// Inputs along a flight; every tenth state is shaken, so that limits are met, too.
fn cases() -> Vec<(State, Input)> {
    let (mut world, mut state, mut all) = (World::new(5, Quat::IDENTITY), fresh(), Vec::new());
    for n in 0..STEPS {
        let mut input = Input::new(&world.sense(), &profile::at(n));
        let mut from = state;
        if n % 10 == 0 {
            let word = n as usize / 10 % STATE;
            // The exponent's lower bits and the sign: finite numbers of other sizes.
            from[word] ^= u64::from(n) << 23 & 0x8380_0000_8380_0000;
            input.setpoint[0] ^= u64::from(n) << 20 & 0x8030_0000;
        }
        all.push((from, input));
        let (motors, next) = step(&state, &all[n as usize].1);
        (state, _) = (next, world.fly(&to_motors(motors), 1));
    }
    all
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight"))).collect()
}

#[test]
fn c_and_rust_agree_to_the_bit() {
    let mut child = Command::new(compiled())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program just compiled");
    let (all, mut stdin) = (cases(), child.stdin.take().expect("piped"));
    let sent = all.clone();
    let writer = std::thread::spawn(move || {
        for (state, input) in sent {
            let words = state.iter().chain(&input.sensors).chain(&input.setpoint);
            let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
            stdin.write_all(&bytes).expect("it reads");
        }
    });
    let mut out = Vec::new();
    child.stdout.take().expect("piped").read_to_end(&mut out).expect("it writes");
    writer.join().expect("it wrote");
    assert!(child.wait().expect("it ends").success());
    let out = words(&out);
    assert_eq!(out[..STATE], fresh());
    let made: Vec<_> = out[STATE..].chunks_exact(2 + STATE).collect();
    assert_eq!(made.len(), all.len());
    for (n, ((state, input), made)) in all.iter().zip(made).enumerate() {
        let (motors, next) = step(state, input);
        assert_eq!((&motors[..], &next[..]), made.split_at(2), "step {n}");
    }
}
