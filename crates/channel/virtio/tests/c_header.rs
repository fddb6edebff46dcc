//! The numbers of the driver's side: `linux/module/layout.h` is written by `BLESS=1 cargo test -p bulkhead-virtio`,
//! and checked without it.

use bulkhead_channel::layout::Kind;
use bulkhead_layout::{ivshmem, marker, spin};
use bulkhead_virtio::layout::*;
use bulkhead_virtio::net::IP_END;
use std::fmt::Write;

/// Function that gives the offset of a queue's part.
type Place = fn(usize) -> usize;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../linux/module/layout.h");

fn header() -> String {
    let mut out = String::from(
        "/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */\
         \n/*\n * Numbers of crates/channel/virtio and of a channel's function, from which a test derives this\
         \n * file: BLESS=1 cargo test -p bulkhead-virtio writes it anew.\n */\
         \n#ifndef BULKHEAD_VIRTIO_LAYOUT_H\n#define BULKHEAD_VIRTIO_LAYOUT_H\n\n",
    );
    let class = 0xFF_0000 | (u64::from(ivshmem::PROTOCOL) + Kind::Virtio as u64);
    let numbers = [
        ("VENDOR", u64::from(ivshmem::IDS & 0xFFFF)),
        ("FUNCTION", u64::from(ivshmem::IDS >> 16)),
        ("CLASS", class),
        ("CAP_SECTION", ivshmem::SECTION_SIZE as u64),
        ("CAP_NOTIFY", CAP_NOTIFY),
        ("ID", ivshmem::ID),
        ("CONTROL", ivshmem::CONTROL),
        ("DOORBELL", ivshmem::DOORBELL),
        ("DEVICE_PEER", 1),
        ("EPOCHS", 0x3FFF_FFFF),
        ("HELLO", HELLO as u64),
        ("ARMED", ARMED as u64),
        ("DEVICE", DEVICE as u64),
        ("STATUS", STATUS as u64),
        ("OFFERED", OFFERED as u64),
        ("ACCEPTED", ACCEPTED as u64),
        ("CONFIG_WORD", CONFIG_WORD as u64),
        ("SIZES", SIZES as u64),
        ("CONFIG", CONFIG as u64),
        ("CONFIG_LEN", CONFIG_LEN as u64),
        ("QUEUES", QUEUES as u64),
        ("NUM", NUM as u64),
        ("POOL", POOL as u64),
        ("IP_END", u64::from(IP_END)),
        ("ADAPTIVE", 1 << 16),
        ("LINUX_SLEEP", spin::LINUX_SLEEP),
        ("LINUX_POLL", spin::LINUX_POLL),
    ];
    for (name, value) in numbers {
        writeln!(out, "#define BH_{name} {value:#x}").expect("a string takes all");
    }
    out.push('\n');
    let places: [(&str, Place); 3] = [("DESC", desc), ("AVAIL", avail), ("USED", used)];
    for (name, place) in places {
        let (first, stride) = (place(0), place(1) - place(0));
        assert!((0..QUEUES).all(|n| place(n) == first + n * stride));
        writeln!(out, "#define BH_{name}(queue) ({first:#x} + {stride:#x} * (queue))")
            .expect("a string takes all");
    }
    out.push('\n');
    for (name, kind) in [("BEGINS", marker::BEGIN), ("ENDS", marker::END)] {
        let bytes = marker::encode(kind | marker::id::IO_SPIN);
        let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
        writeln!(out, "#define BH_SPIN_{name} \".byte {}\"", bytes.join(","))
            .expect("a string takes all");
    }
    out.push_str("\n#endif\n");
    out
}

/// Place in a channel's capability that says how the receiver is woken.
const CAP_NOTIFY: u64 = 0x30;

#[test]
fn the_c_header_has_these_numbers() {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PATH, header()).expect("the header can be written");
    }
    let stored = std::fs::read_to_string(PATH).expect("there is a header");
    assert!(
        stored == header(),
        "{PATH} is old: BLESS=1 cargo test -p bulkhead-virtio writes it anew"
    );
}
