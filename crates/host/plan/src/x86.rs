//! Facts of x86-64, and classes of devices that only its machines have.

use crate::facts::{Doorbells, Facts, GuestMap};
use crate::{Ports, Span};
use bulkhead_layout::bell::MAX_BELLS;
use bulkhead_layout::x86::port::{BELL_PORT, CALL_PORT, POWER_PORT};
use bulkhead_layout::x86::{MONITORS_SVM, MONITORS_VMX, TRAMPOLINE_PA};
use bulkhead_layout::{PAGE, map};

/// Class of the 8254. The boot code fires its line once.
pub const PIT: &str = "pit";
/// Class of the real-time clock. Its owner has a part of the access to it (`bulkhead_monitor_abi_x86::cmos`).
pub const RTC: &str = "rtc";

const fn one(port: u16) -> Ports {
    Ports { first: port, last: port }
}

/// Facts of x86-64 with AMD's SVM.
pub const SVM: Facts = Facts {
    name: "x86-64-svm",
    // System V ABI for x86-64, 4.1.
    elf: ("x86-64", 62),
    monitors: MONITORS_SVM,
    files: "",
    pc: true,
    ram: 0,
    page: PAGE,
    large: 2 << 20,
    huge: 1 << 30,
    // PCI Express 5.0, 7.2.2.
    function: 4096,
    image: map::IMAGE_PA,
    ticks_beside: true,
    debugger: true,
    start_code: Some(TRAMPOLINE_PA),
    lowest: 1 << 20,
    boot_sees: 1 << 32,
    // Monitors keep their cores as a set of 256 bits.
    last_core: 255,
    core: "x2APIC ID",
    answered: &[
        (one(POWER_PORT), "through which every sandbox is switched off"),
        (
            Ports { first: BELL_PORT, last: BELL_PORT + (MAX_BELLS as u16 - 1) },
            "a doorbell of channels",
        ),
        (one(CALL_PORT), "by which programs make hypercalls"),
    ],
    guest: GuestMap {
        ram: [
            Span { start: 0, len: map::GUEST_LOW_END },
            Span { start: map::GUEST_HIGH, len: u64::MAX - map::GUEST_HIGH },
        ],
        info: map::INFO_GPA,
        progress: map::PROGRESS_GPA,
        roles: map::ROLES_GPA,
        snapshots: map::SNAPSHOTS_GPA,
        reports: map::REPORTS_GPA,
        report_stride: map::REPORT_STRIDE,
        configuration: map::ECAM_GPA,
        functions: map::FUNCTIONS_GPA,
        channels: Span { start: map::CHANNELS_GPA, len: map::CHANNELS_END - map::CHANNELS_GPA },
        role_stride: map::ROLE_STRIDE,
        links: Span { start: map::LINKS_GPA, len: map::LINKS_END - map::LINKS_GPA },
        link_stride: map::LINK_STRIDE,
    },
    // A kernel has its devices' vectors from the other end on.
    doorbells: Doorbells { first: 0x5D, step: -1, ring: BELL_PORT },
};

/// Facts of x86-64 with Intel's VT-x.
pub const VMX: Facts = Facts {
    name: "x86-64-vmx",
    monitors: MONITORS_VMX,
    files: "vmx-",
    ticks_beside: false,
    debugger: false,
    ..SVM
};
