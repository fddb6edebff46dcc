//! The C side of an image that starts under a Linux: `linux/enable/layout.h` is written by `BLESS=1 cargo test -p
//! bulkhead-image`, and checked without it. Structures have their fields from the crates that define them. A field that
//! is in no list here leaves a gap, which fails.

use bulkhead_image::end::NAMED_AT;
use bulkhead_image::late::{Head, MAGIC, VERSION};
use bulkhead_layout::hypercall::{BUSY, NULL, OK, RELEASE};
use bulkhead_layout::image::{self, ConfigOp, HEADER_WORD, Header, Range, Sandbox};
use bulkhead_layout::info;
use bulkhead_layout::ivshmem::{IDS, NAME, PROTOCOL, PROVIDER};
use bulkhead_layout::x86::late::{CODE_WORD, CONFINE, ENTER, Late, PREPARE, RESTORE};
use bulkhead_layout::{MAX_CORES, MAX_SANDBOXES};
use std::any::type_name;
use std::fmt::Write;
use std::mem::offset_of;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../linux/enable/layout.h");

/// A structure in C.
struct Structure {
    name: &'static str,
    text: String,
    /// End of its fields so far.
    end: usize,
}

impl Structure {
    fn new(name: &'static str) -> Self {
        Self { name, text: format!("struct bh_{name} {{\n"), end: 0 }
    }

    /// A field, with the type that the getter has.
    fn field<T, F>(&mut self, name: &str, at: usize, _: fn(&T) -> &F) {
        assert_eq!(at, self.end, "{}: there is another field before `{name}`", self.name);
        let (kind, count) = c_type(type_name::<F>());
        writeln!(self.text, "\t{kind} {name}{count};").expect("a string takes all");
        self.end += size_of::<F>();
    }

    /// Its text, and that C has its size, too.
    fn end(self, size: usize) -> String {
        assert_eq!(self.end, size, "{}: there are more fields", self.name);
        let name = self.name;
        format!("{}}};\nstatic_assert(sizeof(struct bh_{name}) == {size});\n\n", self.text)
    }
}

/// A type's name in C, and what stands behind the field's name.
fn c_type(rust: &str) -> (String, String) {
    if let Some((of, count)) = rust.strip_prefix('[').and_then(|array| array.split_once("; ")) {
        let (kind, none) = c_type(of);
        assert_eq!(none, "", "an array of arrays");
        return (kind, format!("[{count}"));
    }
    match rust.rsplit("::").next() {
        Some("Range") => ("struct bh_range".into(), String::new()),
        Some(plain @ ("u8" | "u16" | "u32" | "u64")) => (plain.into(), String::new()),
        _ => panic!("C has no {rust}"),
    }
}

macro_rules! structure {
    ($name:literal, $type:ty: $($field:ident)*) => {{
        let mut structure = Structure::new($name);
        $(structure.field(stringify!($field), offset_of!($type, $field), |all: &$type| &all.$field);)*
        structure.end(size_of::<$type>())
    }};
}

fn header() -> String {
    let mut out = String::from(
        "/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */\
         \n/*\n * Layouts of crates/host/image and crates/abi/handover, from which a test derives this\
         \n * file: BLESS=1 cargo test -p bulkhead-image writes it anew.\n */\
         \n#ifndef BULKHEAD_ENABLE_LAYOUT_H\n#define BULKHEAD_ENABLE_LAYOUT_H\n\n\
         #include <linux/build_bug.h>\n#include <linux/types.h>\n\n",
    );
    let numbers = [
        ("FILE_MAGIC", MAGIC),
        ("FILE_VERSION", VERSION),
        ("HEADER_VERSION", u64::from(image::VERSION)),
        ("HEADER_WORD", HEADER_WORD),
        ("LATE_WORD", CODE_WORD),
        ("PREPARE", PREPARE),
        ("ENTER", ENTER),
        ("CONFINE", CONFINE),
        ("RESTORE", RESTORE),
        ("TAKE", ConfigOp::TAKE.into()),
        ("TAKE_PORTS", ConfigOp::TAKE_PORTS.into()),
        ("SANDBOXES", MAX_SANDBOXES as u64),
        ("CORES", MAX_CORES as u64),
        ("ENDS", IDS.into()),
        ("ENDS_SUBSYSTEM", u64::from(PROVIDER >> 16)),
        // A class that no specification has.
        ("ENDS_CLASS", u64::from(0xFF << 16 | PROTOCOL)),
        // Places in the configuration space.
        ("ENDS_NAME", (NAMED_AT + NAME) as u64),
        ("ENDS_NAME_LEN", info::NAME as u64),
        ("RELEASE", RELEASE),
        ("NULL", NULL),
        ("OK", OK),
        ("BUSY", BUSY),
    ];
    for (name, value) in numbers {
        let wide = if value > u64::from(u32::MAX) || name == "OK" { "ull" } else { "" };
        writeln!(out, "#define BH_{name} {value:#x}{wide}").expect("a string takes all");
    }
    out.push('\n');
    out += &structure!("range", Range: start len);
    out +=
        "/* Head of a file of `bulkhead build --under-linux`: image and relocations follow. */\n";
    out += &structure!("file", Head: magic version base image relocations block checksum reserved);
    out += "/* In the image: the architecture's own part follows, and then the sandboxes. */\n";
    out += &structure!("header", Header: magic checksum version sandboxes image sealed boot config_ops own launch
        monitors running block);
    out += &structure!("sandbox", Sandbox: memory monitor monitor_root entry_va spare_root spare_entry_va info_pa cores
        core_ids reserved);
    out += "/* Behind the sandboxes. */\n";
    out += &structure!("config_op", ConfigOp: bdf offset kind value);
    out += "/* Words between this Linux and the image's code. */\n";
    out += &structure!("late", Late: hz timer_hz zeros cores names functions function_count ioapics count len mute
        iommus boot_params says);
    out.push_str("#endif\n");
    out
}

#[test]
fn the_c_header_has_these_layouts() {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PATH, header()).expect("the header can be written");
    }
    let stored = std::fs::read_to_string(PATH).expect("there is a header");
    assert!(
        stored == header(),
        "{PATH} is old: BLESS=1 cargo test -p bulkhead-image writes it anew"
    );
}

#[test]
#[should_panic = "there is another field before `sandboxes`"]
fn a_field_that_is_left_out_is_found() {
    let _ = structure!("header", Header: magic checksum sandboxes);
}

#[test]
#[should_panic = "there are more fields"]
fn a_field_at_the_end_is_found() {
    let _ = structure!("range", Range: start);
}
