//! The C header's numbers are this crate's: `sdk/include/bulkhead-layout.h` is
//! written by `BLESS=1 cargo test -p bulkhead-layout`, and checked without it.

use bulkhead_layout::info::{self, Info, Window};
use bulkhead_layout::{MAX_CORES, hypercall, image, link, map, telemetry};
use std::fmt::Write;
use std::mem::offset_of;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../sdk/include/bulkhead-layout.h");

macro_rules! numbers {
    ($out:ident, $prefix:literal, $module:path: $($name:ident)*) => {{
        use $module as module;
        $(define(&mut $out, concat!($prefix, stringify!($name)), module::$name as u64);)*
        $out.push('\n');
    }};
}

macro_rules! offsets {
    ($out:ident: $($($field:ident).+)*) => {{
        $(define(
            &mut $out,
            &format!("INFO_OFFSET_{}", last(&[$(stringify!($field)),+]).to_uppercase()),
            offset_of!(Info, $($field).+) as u64,
        );)*
        $out.push('\n');
    }};
}

/// A field's own name, without what it lies in.
fn last(path: &[&'static str]) -> &'static str {
    path[path.len() - 1]
}

fn define(out: &mut String, name: &str, value: u64) {
    writeln!(out, "#define BULKHEAD_{name} 0x{value:x}ul").expect("a string takes all");
}

fn header() -> String {
    let mut out = String::from(
        "/* Numbers of the guest's interface: see crates/abi/layout, from which a test derives\
         \n * this file (BLESS=1 cargo test -p bulkhead-layout writes it anew).\
         \n * SPDX-License-Identifier: Apache-2.0 OR MIT */\
         \n#ifndef BULKHEAD_LAYOUT_H\n#define BULKHEAD_LAYOUT_H\n\n",
    );
    numbers!(out, "HYPERCALL_", hypercall: NULL CONSOLE EXIT READY RESTART CONTROL STATUS OFFER ACCEPT CLOSE LOOK);
    numbers!(out, "", hypercall: CONTROL_STOP CONTROL_START CONTROL_RESTART);
    numbers!(out, "", hypercall: OK NO_CALL BAD_ARGUMENT DENIED BUSY);
    numbers!(out, "", hypercall: POWER_PORT POWER_RESTART POWER_OFF BELL_PORT CALL_PORT);
    numbers!(out, "", map: INFO_GPA REPORTS_GPA REPORT_STRIDE CHANNELS_GPA CHANNELS_END ECAM_GPA);
    numbers!(out, "INFO_", info: MAGIC VERSION MAX_CHANNELS NAME LINK);
    numbers!(out, "LINK_", link: IDLE GONE BUSY OPEN LEAVING LOSING);
    offsets!(out: version sandbox name clock.hz clock.timer_hz memory cores windows core_ids window args lines level_lines level_vectors bells sandboxes control image names monitors);
    numbers!(out, "", image: MONITORS_SVM MONITORS_VMX);
    define(&mut out, "INFO_WINDOW_SIZE", size_of::<Window>() as u64);
    define(&mut out, "INFO_ARGS_SIZE", 256);
    define(&mut out, "MAX_CORES", MAX_CORES as u64);
    out.push('\n');
    numbers!(out, "TELEMETRY_", telemetry: MAGIC VERSION SLOTS SLOT_WORDS HEADER_WORDS BUCKETS);
    out.push_str("#endif\n");
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
fn args_have_the_size_that_the_header_says() {
    fn size<const N: usize>(_: impl FnOnce(Info) -> [u8; N]) -> usize {
        N
    }
    assert_eq!(size(|info| info.args), 256);
}

/// The structures in `bulkhead.h` are checked by the C compiler itself.
#[test]
fn the_c_structures_have_this_layout() {
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../sdk/include/bulkhead.h");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "gcc".into());
    let arguments = ["-std=c11", "-ffreestanding", "-fsyntax-only", "-Wall", "-Werror", "-x", "c"];
    let status = std::process::Command::new(&compiler)
        .args(arguments)
        .arg(header)
        .status()
        .unwrap_or_else(|error| panic!("{compiler} is needed for guests in C: {error}"));
    assert!(status.success(), "bulkhead.h and crates/abi/layout differ");
}
