//! C's numbers are this crate's: `sdk/include/bulkhead-number.h` is written by
//! `BLESS=1 cargo test -p bulkhead-channel-memory`, and checked without it.

use bulkhead_channel_memory::number::ALL;
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../sdk/include/bulkhead-number.h");

fn header() -> String {
    let mut out = String::from(
        "/* Results below 0 of ends of channels, in a bare guest and in a Linux. A test of \
         crates/channel/channel-memory\
         \n * derives this file from there (BLESS=1 cargo test -p bulkhead-channel-memory writes it anew).\
         \n * SPDX-License-Identifier: Apache-2.0 OR MIT */\
         \n#ifndef BULKHEAD_NUMBER_H\n#define BULKHEAD_NUMBER_H\n\n",
    );
    for (name, number, meaning) in ALL {
        writeln!(out, "/*{meaning} */\n#define BULKHEAD_{name} ({number})").expect("a string");
    }
    out.push_str("\n#endif\n");
    out
}

#[test]
fn the_c_header_has_these_numbers() {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PATH, header()).expect("header is writable");
    }
    let found = std::fs::read_to_string(PATH).expect("header exists");
    assert_eq!(found, header());
}

#[test]
fn each_is_another_one() {
    for (n, (name, number, _)) in ALL.iter().enumerate() {
        assert_eq!(*number, -1 - n as i32, "{name}");
    }
}
