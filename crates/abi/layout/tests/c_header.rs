//! Numbers in the headers for C are this crate's: `sdk/include/bulkhead-layout.h`, and x86's own in
//! `sdk/include/bulkhead/arch/x86-layout.h`. `BLESS=1 cargo test -p bulkhead-layout` writes them, and the test checks
//! them without it.

use bulkhead_layout::info::{self, Info, Window};
use bulkhead_layout::snapshot::{Buffer, Head};
use bulkhead_layout::x86::{self, port};
use bulkhead_layout::{MAX_CORES, PAGE, bell, hypercall, link, map, telemetry};
use std::fmt::Write;
use std::mem::offset_of;

const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../sdk/include");

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

/// Beginning of a header with these numbers, by the name of its guard.
fn begin(what: &str, guard: &str) -> String {
    format!(
        "/* {what}: see crates/abi/layout, from which a test derives\
         \n * this file (BLESS=1 cargo test -p bulkhead-layout writes it anew).\
         \n * SPDX-License-Identifier: Apache-2.0 OR MIT */\
         \n#ifndef {guard}\n#define {guard}\n\n"
    )
}

fn portable() -> String {
    let mut out = begin("Numbers of the guest's interface", "BULKHEAD_LAYOUT_H");
    numbers!(out, "HYPERCALL_", hypercall: NULL CONSOLE EXIT READY RESTART CONTROL STATUS OFFER ACCEPT CLOSE LOOK KEEP SNAPSHOT GIVE LOCK);
    numbers!(out, "", hypercall: CONTROL_STOP CONTROL_START CONTROL_RESTART);
    numbers!(out, "", hypercall: OK NO_CALL BAD_ARGUMENT DENIED BUSY);
    numbers!(out, "", map: INFO_GPA PROGRESS_GPA SNAPSHOTS_GPA REPORTS_GPA REPORT_STRIDE CHANNELS_GPA CHANNELS_END ECAM_GPA);
    numbers!(out, "INFO_", info: MAGIC VERSION MAX_CHANNELS NAME LINK ROLE);
    numbers!(out, "LINK_", link: IDLE GONE BUSY OPEN LEAVING LOSING);
    offsets!(out: version sandbox name clock.hz clock.timer_hz memory cores windows core_ids window args lines level_lines level_vectors bells sandboxes control image names monitors alive snapshot);
    define(&mut out, "INFO_WINDOW_SIZE", size_of::<Window>() as u64);
    define(&mut out, "INFO_ARGS_SIZE", 256);
    define(&mut out, "ARGS_MARK", bulkhead_layout::load::ARGS_MARK[0]);
    define(&mut out, "ARGS_MARK_END", bulkhead_layout::load::ARGS_MARK[1]);
    define(&mut out, "MAX_CORES", MAX_CORES as u64);
    define(&mut out, "PAGE", PAGE);
    for (name, at) in [
        ("OFFERED", offset_of!(Head, offered)),
        ("BUFFER", offset_of!(Head, buffer)),
        ("PAGES", offset_of!(Head, buffers) + offset_of!(Buffer, pages)),
        ("HEADER", size_of::<Buffer>()),
    ] {
        define(&mut out, &format!("SNAPSHOT_{name}"), at as u64);
    }
    define(&mut out, "MAX_BELLS", bell::MAX_BELLS as u64);
    out.push('\n');
    numbers!(out, "TELEMETRY_", telemetry: MAGIC VERSION SLOTS SLOT_WORDS HEADER_WORDS BUCKETS);
    out.push_str("#endif\n");
    out
}

fn x86() -> String {
    let mut out = begin("Numbers of the guest's interface on x86-64", "BULKHEAD_X86_LAYOUT_H");
    numbers!(out, "", port: POWER_PORT POWER_RESTART POWER_OFF BELL_PORT CALL_PORT);
    numbers!(out, "", x86: MONITORS_SVM MONITORS_VMX);
    out.push_str("#endif\n");
    out
}

#[test]
fn the_c_headers_have_these_numbers() {
    for (name, header) in [("bulkhead-layout.h", portable()), ("bulkhead/arch/x86-layout.h", x86())]
    {
        let path = format!("{INCLUDE}/{name}");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &header).expect("header is writable");
        }
        let found = std::fs::read_to_string(&path).expect("header exists");
        assert_eq!(found, header);
    }
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
