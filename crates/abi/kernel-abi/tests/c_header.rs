//! The C header of programs has this crate's numbers: `program/include/bulkhead-kernel.h` is written by
//! `BLESS=1 cargo test -p bulkhead-kernel-abi`, and compared without it.

use bulkhead_kernel_abi::{
    ARGS, BUFFER_WORDS, Buffer, Clock, Code, Described, Grant, Info, Kind, Load, MAGIC, MAX_NAMES,
    MAX_WORDS, METHODS, NAME, Name, Op, Page, Payload, Policy, REGISTER_WORDS, Rights, TAGGED, at,
    slot,
};
use std::fmt::Write as _;
use std::mem::offset_of;

const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../program/include/");

/// `NbSendRecv` as `NB_SEND_RECV`.
fn upper(name: &str) -> String {
    let mut out = String::new();
    for (n, letter) in name.char_indices() {
        let begins = letter.is_uppercase() && name[..n].ends_with(char::is_lowercase);
        out.extend(begins.then_some('_'));
        out.push(letter.to_ascii_uppercase());
    }
    out
}

fn define(out: &mut String, name: &str, value: u64) {
    let _ = writeln!(out, "#define BULKHEAD_{name} {value:#x}ul");
}

/// Writes numbers, each with the source's text as a comment above it.
fn described(out: &mut String, prefix: &str, rows: &[Described]) {
    for row in rows {
        let _ = writeln!(out, "/* {} */", comment(row.text));
        define(out, &format!("{prefix}{}", upper(row.name)), row.number);
    }
    out.push('\n');
}

/// A text of the source's documentation, as the lines of a comment.
fn comment(text: &str) -> String {
    let lines = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let text = lines.replace("[`", "").replace("`]", "").replace('`', "");
    let text = text.replace("crate::", "").replace("super::", "").replace("Op::", "");
    wrapped(text.trim())
}

/// A payload as a structure, which the compiler has to lay out as the source does.
fn structure(out: &mut String, payload: &Payload) {
    let name = payload.name.to_lowercase();
    let _ = writeln!(out, "/* {} */", comment(payload.text));
    define(out, &format!("NAME_{}", upper(payload.name)), payload.tag.into());
    let _ = writeln!(out, "struct bulkhead_name_{name} {{\n    uint8_t tag;");
    for (field, c, _, text) in payload.fields {
        let _ = writeln!(out, "    /* {} */\n    {c} {field};", comment(text));
    }
    out.push_str("};\n");
    for (n, (field, ..)) in payload.fields.iter().enumerate() {
        let at = payload.offset(n);
        let _ = writeln!(
            out,
            "_Static_assert(offsetof(struct bulkhead_name_{name}, {field}) == {at}, \"{field}\");"
        );
    }
    out.push('\n');
}

/// A name of the program: what it is, and one structure of those that its tag tells.
fn name_structure(out: &mut String) {
    out.push_str("/* Grants behind the names of a program, by their tags. */\n");
    Grant::PAYLOADS.iter().for_each(|payload| structure(out, payload));
    out.push_str("/* A name of the manifest, with its grant: the tag tells which. */\n");
    out.push_str("struct bulkhead_name {\n    char name[BULKHEAD_PAGE_NAME];\n    union {\n");
    out.push_str("        uint8_t tag;\n");
    for payload in Grant::PAYLOADS {
        let name = payload.name.to_lowercase();
        let _ = writeln!(out, "        struct bulkhead_name_{name} {name};");
    }
    let _ = writeln!(out, "        uint64_t words[{}];\n    }};\n}};", TAGGED / 8);
    let size = size_of::<Name>();
    let _ = writeln!(out, "_Static_assert(sizeof(struct bulkhead_name) == {size}, \"name\");\n");
}

/// Lines of at most 100 letters, as the lines of a comment.
fn wrapped(text: &str) -> String {
    let (mut out, mut len) = (String::new(), 0);
    for word in text.split_whitespace() {
        if len > 0 && len + word.len() > 100 {
            out.push_str("\n * ");
            len = 0;
        } else if len > 0 {
            out.push(' ');
        }
        out.push_str(word);
        len += word.len() + 1;
    }
    out
}

macro_rules! numbers {
    ($out:ident, $prefix:literal, $($name:ident = $value:expr),* $(,)?) => {
        $(define(&mut $out, concat!($prefix, stringify!($name)), $value as u64);)*
        $out.push('\n');
    };
}

macro_rules! offsets {
    ($out:ident, $type:ident, $($field:ident)*) => {{
        let name = upper(stringify!($type));
        define(&mut $out, &format!("{name}_SIZE"), size_of::<$type>() as u64);
        $(define(
            &mut $out,
            &format!("{name}_OFFSET_{}", stringify!($field).to_uppercase()),
            offset_of!($type, $field) as u64,
        );)*
        $out.push('\n');
    }};
}

fn header() -> String {
    let mut out = String::from(
        "/* Numbers of the kernel's interface: see crates/abi/kernel-abi, from which a test derives\
         \n * this file (BLESS=1 cargo test -p bulkhead-kernel-abi writes it anew).\
         \n * SPDX-License-Identifier: Apache-2.0 OR MIT */\
         \n#ifndef BULKHEAD_KERNEL_H\n#define BULKHEAD_KERNEL_H\
         \n\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\
         \n\n/* Calls: the low byte of the operation. */\n",
    );
    described(&mut out, "OP_", Op::DESCRIBED);
    out.push_str("/* Kinds of capabilities. */\n");
    described(&mut out, "KIND_", Kind::DESCRIBED);
    out.push_str("/* What a capability allows, as a set. */\n");
    numbers!(
        out,
        "RIGHT_",
        READ = Rights::READ.0,
        WRITE = Rights::WRITE.0,
        CALL = Rights::CALL.0,
        GRANT = Rights::GRANT.0,
        EXECUTE = Rights::EXECUTE.0,
        ALL = Rights::ALL.0
    );
    for (kind, rows) in METHODS {
        let _ = writeln!(out, "/* Methods: {kind}. Words are numbered from 1. */");
        described(&mut out, &format!("{}_", upper(kind)), rows);
    }
    out.push_str("/* Policies of contexts. */\n");
    described(&mut out, "POLICY_", Policy::DESCRIBED);
    out.push_str("/* Bits 0 to 7 of a status. */\n");
    described(&mut out, "", Code::DESCRIBED);
    out.push_str("/* Messages: bits 0 to 6 their words, then this, then the label. */\n");
    numbers!(
        out,
        "INFO_",
        CAP = Info::new(0, 0).with_cap().0,
        NOTIFIED = Info::NOTIFIED.0,
        LABEL_SHIFT = Info::new(1, 0).0.trailing_zeros()
    );
    numbers!(
        out,
        "",
        REGISTER_WORDS = REGISTER_WORDS,
        BUFFER_WORDS = BUFFER_WORDS,
        MAX_WORDS = MAX_WORDS
    );
    out.push_str("/* Slots of a program's root node. */\n");
    numbers!(
        out,
        "SLOT_",
        NODE = slot::NODE,
        SPACE = slot::SPACE,
        SANDBOX = slot::SANDBOX,
        CONTROL = slot::CONTROL,
        MEMORY = slot::MEMORY,
        FIRST = slot::FIRST
    );
    out.push_str("/* Where things lie in every program. */\n");
    numbers!(
        out,
        "AT_",
        PAGE = at::PAGE,
        CLOCK = at::CLOCK,
        BUFFERS = at::BUFFERS,
        STACKS = at::STACKS,
        PROGRAM = at::PROGRAM,
        HEAP = at::HEAP,
        SHARED = at::SHARED,
        CHANNELS = at::CHANNELS,
        DEVICES = at::DEVICES
    );
    out.push_str("/* The program's page. */\n");
    numbers!(out, "PAGE_", MAGIC = MAGIC, NAME = NAME, MAX_NAMES = MAX_NAMES, ARGS = ARGS);
    offsets!(out, Page, magic name clock buffers heap heap_len free names args name_of load progress alive);
    offsets!(out, Load, share servers overhead);
    name_structure(&mut out);
    offsets!(out, Clock, nanos hz);
    offsets!(out, Buffer, words cap receive);
    out.push_str("#endif\n");
    out
}

#[test]
fn the_header_has_these_numbers() {
    let path = format!("{INCLUDE}bulkhead-kernel.h");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, header()).expect("the header is writable");
    }
    let found = std::fs::read_to_string(&path).expect("the header exists");
    assert_eq!(found, header(), "BLESS=1 writes it");
}

/// The structures in `bulkhead-program.h` are checked by the C compiler itself.
#[test]
fn the_structures_have_this_layout() {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "gcc".into());
    let arguments = ["-std=c11", "-ffreestanding", "-fsyntax-only", "-Wall", "-Werror", "-x", "c"];
    let status = std::process::Command::new(&compiler)
        .args(arguments)
        .arg(format!("{INCLUDE}bulkhead-program.h"))
        .status()
        .unwrap_or_else(|error| panic!("{compiler} is needed for programs in C: {error}"));
    assert!(status.success(), "bulkhead-program.h and crates/abi/kernel-abi differ");
}
