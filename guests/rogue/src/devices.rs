//! Attacks by a sandbox that owns PCI functions, for the q35 description: `edu` at
//! 00:08.0 and the second of two virtio-rng functions, 00:09.1. The other sandbox has
//! the disk at 00:03.0. The last ones need the network card behind the port 00:02.0.

use crate::aim::Place::{self, *};
use crate::clock;
use crate::config::{self, *};
use crate::edu::{self, EDU, REGISTERS};
use crate::expect::{Expect, Got};
use crate::mov::{load, store};
use crate::{Act::Run, Aim, Attack, decoder};
use bulkhead_sdk::pci::Function;

type Doing = fn(&Aim) -> Got;

const fn attack(name: &'static str, guarantee: &'static str, act: Doing, expect: Expect) -> Attack {
    Attack::new(name, guarantee, Run(act), expect)
}

/// One that is denied as an access to this register.
const fn denied(name: &'static str, guarantee: &'static str, act: Doing, at: u64) -> Attack {
    attack(name, guarantee, act, Expect::Device(at))
}

/// One that gives this value, and nothing else comes of it.
const fn gives(name: &'static str, guarantee: &'static str, act: Doing, value: u64) -> Attack {
    attack(name, guarantee, act, Expect::Harmless(value))
}

const fn memory(
    name: &'static str,
    guarantee: &'static str,
    act: crate::Act,
    place: Place,
) -> Attack {
    Attack::new(name, guarantee, act, Expect::Memory(place))
}

/// An instruction that the monitor does not carry out at a trapped address.
const fn odd(name: &'static str, act: Doing) -> Attack {
    attack(name, "decoder-moves", act, Expect::Memory(At(decoder::TRAPPED)))
}

const fn dma(name: &'static str, act: Doing) -> Attack {
    gives(name, DMA, act, 0)
}

const fn absent(name: &'static str, act: Doing) -> Attack {
    gives(name, VISIBLE, act, ONES)
}

const ONES: u64 = 0xFFFF_FFFF;
const VISIBLE: &str = "pci-visible";
const CLOCK: &str = "clock-write";
const FORM: &str = "config-form";
const BAR: &str = "bar-fixed";
const COMMAND: &str = "command-bits";
const UNNAMED: &str = "config-unnamed";
const CORE: &str = "message-core";
const MESSAGE: &str = "message-form";
const VECTOR: &str = "message-vector";
const TRAP: &str = "msix-trap";
const MAP: &str = "nested-map";
const DMA: &str = "dma-map";
const TABLES: &str = "tables-unmapped";
/// The guarantee about messages by DMA.
pub const FORGED: &str = "dma-messages";
const V: u32 = edu::VECTOR as u32;
const VALID: u64 = edu::VECTOR as u64;

const fn edu_at(offset: u64) -> u64 {
    ecam(EDU, offset)
}

/// A register of CMOS memory, as a record names it.
const fn cmos(index: u64) -> u64 {
    bulkhead_sdk::cmos::ADDRESS + index
}

const fn of(function: Function, offset: u64) -> u64 {
    ecam(function, offset)
}

/// A message that names an entry of VT-d's interrupt table (VT-d specification, 5.1.2.2): the first function's of the
/// first sandbox, which is another one's.
const OTHERS_ENTRY: u64 = 0xFEE0_0010 | (256 + VALID) << 5;

/// Registers of the MSI capability.
const CONTROL: u64 = edu_at(MSI);

/// The attacks, in the order of the guest's lives.
pub static DEVICES: &[Attack] = &[
    // The real-time clock and the bytes behind it.
    gives("clock-same", CLOCK, clock::same, clock::AS_USUAL),
    denied("clock-write-memory", CLOCK, clock::write::<0x10, 0x5A>, cmos(0x10)),
    denied("clock-read-memory", CLOCK, clock::read::<0x10>, cmos(0x10)),
    denied("clock-set", CLOCK, clock::write::<0x09, 0x99>, cmos(0x09)),
    denied("clock-halt", CLOCK, clock::write::<0x0B, 0x82>, cmos(0x0B)),
    gives("clock-shutdown-status", CLOCK, clock::write::<0x0F, 0x0A>, 0),
    // Functions of others, functions without an owner, and absent ones: reads.
    absent("config-read-foreign", load::<4, { of(FOREIGN, 0) }>),
    absent("config-read-foreign-bar", load::<4, { of(FOREIGN, 0x20) }>),
    absent("config-read-nobodys", load::<4, { of(NOBODYS, 0) }>),
    absent("config-read-host-bridge", load::<4, { of(HOST, 0) }>),
    absent("config-read-iommu", load::<4, { of(IOMMU, 0) }>),
    absent("config-read-isa", load::<4, { of(ISA, 0) }>),
    absent("config-read-port", load::<4, { of(PORT, 0x18) }>),
    absent("config-read-empty", load::<4, { of(EMPTY, 0) }>),
    absent("config-read-far", load::<4, { of(FAR, 0) }>),
    absent("config-read-last", load::<4, { of(LAST, 0xFFC) }>),
    absent("config-read-end", load::<4, { of(LAST, 0xFFE) }>),
    absent("config-ports-foreign", port_load::<{ FOREIGN.0 }, 0>),
    absent("config-ports-iommu", port_load::<{ IOMMU.0 }, 0x44>),
    absent("config-ports-far", port_load::<{ FAR.0 }, 0>),
    absent("config-ports-not-enabled", not_enabled),
    // Writes.
    denied("config-write-foreign", VISIBLE, store::<4, { of(FOREIGN, 4) }, 0>, of(FOREIGN, 4)),
    denied("config-byte-foreign", VISIBLE, store::<1, { of(FOREIGN, 4) }, 0>, of(FOREIGN, 4)),
    denied("config-bar-foreign", VISIBLE, store::<4, { of(FOREIGN, 0x20) }, 0>, of(FOREIGN, 0x20)),
    denied("config-write-nobodys", VISIBLE, store::<4, { of(NOBODYS, 4) }, 6>, of(NOBODYS, 4)),
    // PCIEXBAR: where the machine's ECAM is.
    denied("config-write-host-bridge", VISIBLE, store::<4, { of(HOST, 0x60) }, 0>, of(HOST, 0x60)),
    denied("config-write-iommu", VISIBLE, store::<4, { of(IOMMU, 0x44) }, 0>, of(IOMMU, 0x44)),
    denied("config-write-isa", VISIBLE, store::<1, { of(ISA, 0x60) }, 0xB>, of(ISA, 0x60)),
    denied("config-write-port", VISIBLE, store::<4, { of(PORT, 0x18) }, 0>, of(PORT, 0x18)),
    denied("config-write-empty", VISIBLE, store::<4, { of(EMPTY, 4) }, 6>, of(EMPTY, 4)),
    denied("config-write-far", VISIBLE, store::<4, { of(FAR, 4) }, 6>, of(FAR, 4)),
    denied("config-write-last", VISIBLE, store::<4, { of(LAST, 0xFFC) }, 0>, of(LAST, 0xFFC)),
    denied("config-quad-foreign", VISIBLE, store::<8, { of(FOREIGN, 0x10) }, 0>, of(FOREIGN, 0x10)),
    denied("config-ports-write", VISIBLE, port_store::<{ FOREIGN.0 }, 4, 0>, of(FOREIGN, 4)),
    denied("config-ports-host", VISIBLE, port_store::<{ HOST.0 }, 0x60, 0>, of(HOST, 0x60)),
    denied("config-ports-write-far", VISIBLE, port_store::<{ FAR.0 }, 4, 6>, of(FAR, 4)),
    gives("placeholder-write", VISIBLE, changed::<4, { of(PLACEHOLDER, 4) }, 7>, 0),
    gives("placeholder-bar", VISIBLE, changed::<4, { of(PLACEHOLDER, 0x14) }, ONES>, 0),
    // Forms of access.
    denied("config-quad", FORM, load::<8, { edu_at(0) }>, edu_at(0)),
    denied("config-quad-bar", FORM, store::<8, { edu_at(0x10) }, 0x4000_0000>, edu_at(0x10)),
    denied("config-straddle", FORM, load::<4, { edu_at(2) }>, edu_at(2)),
    denied("config-straddle-write", FORM, store::<4, { edu_at(0xE) }, ONES>, edu_at(0xE)),
    denied("config-straddle-word", FORM, store::<2, { edu_at(0x13) }, ONES>, edu_at(0x13)),
    denied("config-straddle-functions", FORM, load::<4, { edu_at(0xFFE) }>, edu_at(0xFFE)),
    denied("config-straddle-end", VISIBLE, store::<4, { of(LAST, 0xFFE) }, 0>, of(LAST, 0xFFE)),
    denied("config-ports-straddle", FORM, window_dword::<0xCFD>, edu_at(1)),
    denied("config-ports-beyond", FORM, window_word::<0xCFF>, edu_at(7)),
    port("config-ports-across", window_dword::<0xCFA>, 0xCFA),
    port("config-ports-string", window_string, 0xCFC),
    Attack::new(
        "config-ports-byte-address",
        FORM,
        crate::Act::Out(0xCF8, 1, 0),
        Expect::Port(0xCF8),
    ),
    Attack::new("config-ports-reset", PORTS, crate::Act::Out(0xCF9, 1, 6), Expect::Port(0xCF9)),
    // Base addresses.
    denied(
        "bar-onto-victim",
        BAR,
        store_and_read::<4, { edu_at(0x10) }, 0x4000_0000>,
        edu_at(0x10),
    ),
    denied("bar-onto-lapic", BAR, store::<4, { edu_at(0x10) }, 0xFEE0_0000>, edu_at(0x10)),
    denied("bar-onto-foreign", BAR, store::<4, { edu_at(0x10) }, 0xFEB0_0000>, edu_at(0x10)),
    denied("bar-onto-ecam", BAR, store::<4, { edu_at(0x10) }, 0xB000_0000>, edu_at(0x10)),
    denied("bar-onto-low-memory", BAR, store::<4, { edu_at(0x10) }, 0x0010_0000>, edu_at(0x10)),
    denied("bar-top-byte", BAR, store::<1, { edu_at(0x13) }, 0x40>, edu_at(0x13)),
    denied("bar-top-word", BAR, store::<2, { edu_at(0x12) }, 0xFEE0>, edu_at(0x12)),
    denied("bar-low-half", BAR, store::<4, { of(RNG, 0x20) }, 0xFEE0_0000>, of(RNG, 0x20)),
    denied("bar-upper-half", BAR, store::<4, { of(RNG, 0x24) }, 1>, of(RNG, 0x24)),
    denied("bar-upper-byte", BAR, store::<1, { of(RNG, 0x24) }, 0xC1>, of(RNG, 0x24)),
    denied("bar-by-ports", BAR, port_store::<{ EDU.0 }, 0x10, 0x4000_0000>, edu_at(0x10)),
    gives("bar-size", BAR, still_there::<ONES>, edu::ID),
    gives("bar-zero", BAR, still_there::<0>, edu::ID),
    gives("bar-rom", BAR, store_and_read::<4, { edu_at(0x30) }, 0xFEE0_0001>, 0),
    gives("bar-unused", BAR, store_and_read::<4, { edu_at(0x14) }, 0xFEE0_0000>, 0),
    // Ports, memory, bus master; its line stays off.
    gives(COMMAND, COMMAND, all_commands, 0x407),
    gives("command-decode-off", COMMAND, decode_off, edu::ID),
    gives("command-line-on", COMMAND, line_on, 0x403),
    // All that has no name is read only.
    gives("config-cache-line", UNNAMED, changed::<1, { edu_at(0xC) }, 0x10>, 0),
    gives("config-identity", UNNAMED, changed::<4, { edu_at(0) }, 0>, 0),
    gives("config-class", UNNAMED, changed::<4, { edu_at(8) }, 0x0806_0000>, 0),
    gives("config-capability-pointer", UNNAMED, changed::<1, { edu_at(0x34) }, 0xFC>, 0),
    gives("config-capability-head", UNNAMED, changed::<2, { edu_at(MSI) }, 0x1105>, 0),
    gives("config-msix-size", UNNAMED, changed::<2, { of(RNG, 0x9A) }, 0x07FF>, 0),
    gives("config-msix-place", UNNAMED, changed::<4, { of(RNG, 0x9C) }, 4>, 0),
    gives("config-vendor-window", UNNAMED, changed::<4, { of(RNG, 0x94) }, ONES>, 0),
    gives("config-extended", UNNAMED, changed::<4, { edu_at(0x100) }, ONES>, 0),
    // Messages by MSI.
    gives("msi-own", MESSAGE, edu::own_message, 1),
    denied("msi-foreign-core", CORE, msi_foreign, CONTROL),
    denied("msi-broadcast", CORE, msi_broadcast, CONTROL),
    denied("msi-redirected", CORE, msi_redirected, edu_at(MSI + 4)),
    denied("msi-logical", MESSAGE, msi_own::<4, V>, CONTROL),
    denied("msi-redirection-hint", MESSAGE, msi_own::<8, V>, CONTROL),
    denied("msi-address-bit", MESSAGE, msi_own::<16, V>, CONTROL),
    denied("msi-smi", MESSAGE, msi_own::<0, { 0x200 | V }>, CONTROL),
    denied("msi-nmi", MESSAGE, msi_own::<0, { 0x400 | V }>, CONTROL),
    denied("msi-init", MESSAGE, msi_own::<0, { 0x500 | V }>, CONTROL),
    denied("msi-extint", MESSAGE, msi_own::<0, { 0x700 | V }>, CONTROL),
    denied("msi-reserved-mode", MESSAGE, msi_own::<0, { 0x300 | V }>, CONTROL),
    denied("msi-level", MESSAGE, msi_own::<0, { 0xC000 | V }>, CONTROL),
    denied("msi-data-upper-half", MESSAGE, msi_own::<0, { 0x1_0000 | V }>, CONTROL),
    denied("msi-to-memory", MESSAGE, msi_elsewhere::<0x4060_0000, 0>, CONTROL),
    denied("msi-to-iommu", MESSAGE, msi_elsewhere::<0xFED8_0018, 0>, CONTROL),
    denied("msi-index", MESSAGE, msi_elsewhere::<OTHERS_ENTRY, 0>, CONTROL),
    denied("msi-after-window", MESSAGE, msi_elsewhere::<0xFEF0_0000, 0>, CONTROL),
    denied("msi-upper-half", MESSAGE, msi_elsewhere::<0xFEE0_1000, 1>, CONTROL),
    denied("msi-then-nmi", MESSAGE, msi_then::<12, { 0x400 | VALID }>, edu_at(MSI + 12)),
    denied("msi-then-memory", MESSAGE, msi_then::<4, 0x4060_0000>, edu_at(MSI + 4)),
    denied("msi-low-vector", VECTOR, msi_own::<0, 15>, CONTROL),
    denied("msi-vector-0", VECTOR, msi_own::<0, 0>, CONTROL),
    gives("msi-several", MESSAGE, msi_several, 0),
    gives("msi-all-vectors", MESSAGE, msi_all_vectors, 240),
    gives("msi-storm", MESSAGE, edu::storm, edu::STORM),
    // Messages by MSI-X.
    denied("msix-foreign-core", CORE, msix_foreign, TABLE + 12),
    denied("msix-foreign-by-quads", CORE, msix_by_quads, TABLE + 8),
    denied("msix-redirected", CORE, msix_redirected, TABLE),
    denied("msix-logical", MESSAGE, msix_own::<4, 0, VALID>, TABLE + 12),
    denied("msix-smi", MESSAGE, msix_own::<0, 0, { 0x200 | VALID }>, TABLE + 12),
    denied("msix-nmi", MESSAGE, msix_own::<0, 0, { 0x400 | VALID }>, TABLE + 12),
    denied("msix-init", MESSAGE, msix_own::<0, 0, { 0x500 | VALID }>, TABLE + 12),
    denied("msix-upper-half", MESSAGE, msix_own::<0, 1, VALID>, TABLE + 12),
    denied("msix-to-memory", MESSAGE, msix_elsewhere::<0x4060_0000>, TABLE + 12),
    denied("msix-low-vector", VECTOR, msix_own::<0, 0, 15>, TABLE + 12),
    denied("msix-byte", "msix-form", store::<1, TABLE, 0>, TABLE),
    denied("msix-word", "msix-form", store::<2, TABLE, 0>, TABLE),
    denied("msix-read-byte", "msix-form", load::<1, { TABLE + 8 }>, TABLE + 8),
    denied("msix-unaligned", TRAP, store::<4, { TABLE + 2 }, ONES>, TABLE + 2),
    denied("msix-across-the-page", TRAP, store::<4, { TABLE + 0xFFE }, ONES>, TABLE + 0xFFE),
    gives("msix-beyond", TRAP, store::<8, { TABLE + 0x20 }, 0xFEE0_0000>, 0),
    gives("msix-pending-bits", TRAP, changed::<4, { TABLE + 0x800 }, ONES>, 0),
    // Registers of others.
    memory("bar-read-foreign", MAP, crate::Act::Read(FOREIGN_TABLE), FOREIGN_TABLE),
    memory("bar-write-foreign", MAP, crate::Act::Write(FOREIGN_QUEUES, 0), FOREIGN_QUEUES),
    memory("bar-read-nobodys", MAP, crate::Act::Read(NVME), NVME),
    memory("bar-write-nobodys", MAP, crate::Act::Write(AHCI, 1), AHCI),
    memory("bar-write-port", MAP, crate::Act::Write(PORT_BAR, 0), PORT_BAR),
    memory("bar-execute", "nested-rights", crate::Act::Execute(At(REGISTERS)), At(REGISTERS)),
    memory("ecam-of-the-machine", MAP, crate::Act::Write(ECAM, 0), ECAM),
    // The decoder.
    odd("decoder-rep-stos", decoder::rep_stos),
    odd("decoder-stos", decoder::stos),
    odd("decoder-lods", decoder::lods),
    odd("decoder-scas", decoder::scas),
    odd("decoder-cmps", decoder::cmps),
    odd("decoder-or", decoder::or),
    odd("decoder-lock", decoder::locked),
    odd("decoder-xchg", decoder::exchange),
    odd("decoder-cmpxchg", decoder::compare_exchange),
    odd("decoder-inc", decoder::increment),
    odd("decoder-test", decoder::test),
    odd("decoder-push", decoder::push),
    odd("decoder-pop", decoder::pop),
    odd("decoder-movnti", decoder::non_temporal),
    odd("decoder-movbe", decoder::swapped),
    odd("decoder-segment", decoder::segment),
    odd("decoder-call", decoder::call),
    odd("decoder-jmp", decoder::jump),
    odd("decoder-x87", decoder::x87),
    odd("decoder-fxsave", decoder::state),
    odd("decoder-sgdt", decoder::descriptor),
    odd("decoder-sse-store", decoder::sse_store),
    odd("decoder-sse-load", decoder::sse_load),
    memory("decoder-fetch", MOVES, crate::Act::Execute(At(edu_at(0))), At(edu_at(0))),
    memory("decoder-stack", MOVES, Run(decoder::stack), At(decoder::TRAPPED - 8)),
    memory("decoder-exception", MOVES, Run(decoder::exception_stack), At(decoder::TRAPPED - 8)),
    memory("decoder-page-tables", MOVES, Run(decoder::tables), At(edu_at(0))),
    memory("decoder-read-for-write", DIRECTION, Run(decoder::read_for_write), TRAPPED),
    memory("decoder-write-for-read", DIRECTION, Run(decoder::write_for_read), TRAPPED),
    memory("decoder-code-outside", RAM, Run(decoder::code_outside), TRAPPED),
    memory("decoder-code-after-ram", RAM, Run(decoder::code_after_ram), TRAPPED),
    memory("decoder-code-trapped", RAM, Run(decoder::code_in_trapped_page), TRAPPED),
    memory("decoder-code-absent", RAM, Run(decoder::code_absent), TRAPPED),
    // DMA. The first one is the comparison for the others.
    gives("dma-own", DMA, edu::own, 1),
    dma("dma-victim", edu::victim),
    dma("dma-image", edu::at::<0x100_0000>),
    dma("dma-monitor-text", edu::at_argument::<0>),
    dma("dma-monitor-config", edu::at_argument::<1>),
    gives("dma-monitor-tables", TABLES, edu::at_argument::<2>, 0),
    gives("dma-nested-tables", TABLES, edu::at_argument::<3>, 0),
    gives("dma-io-tables", TABLES, edu::at_argument::<4>, 0),
    gives("dma-device-table", TABLES, edu::at_argument::<5>, 0),
    gives("dma-remapping-table", TABLES, edu::at_argument::<6>, 0),
    dma("dma-foreign-monitor", edu::at_argument::<7>),
    dma("dma-firmware-memory", edu::at::<0x7F00_0000>),
    dma("dma-firmware-flash", edu::at::<0xFFFF_F000>),
    dma("dma-after-ram", edu::across_the_end),
    dma("dma-information-page", edu::at::<0xD000_0000>),
    dma("dma-virtual-ecam", edu::at::<{ edu_at(0) }>),
    dma("dma-ecam", edu::at::<{ 0xB000_0000 + 0x1_8000 }>),
    dma("dma-foreign-bar", edu::at::<0xFEB0_1000>),
    dma("dma-foreign-bar-high", edu::at::<0xC0_6000_0000>),
    dma("dma-own-bar", edu::at::<REGISTERS>),
    dma("dma-ioapic", edu::at::<0xFEC0_0000>),
    dma("dma-hpet", edu::at::<0xFED0_0000>),
    dma("dma-iommu", edu::at::<0xFED8_0000>),
    dma("dma-top-of-memory", edu::at::<0x2_0000_0000>),
    dma("dma-far", edu::at::<0x7F_FFFF_F000>),
    dma("dma-farther", edu::at::<0x8_0000_4060_0000>),
    gives("dma-own-text", "dma-rights", edu::own_text, 0),
    gives("dma-read-only-channel", "dma-rights", edu::read_only_channel, 0),
    // Messages that are forged by DMA.
    gives("dma-message-own", FORGED, edu::forge_own::<0>, 0),
    gives("dma-message-foreign", FORGED, edu::forge_foreign::<0>, 0),
    gives("dma-message-lowest", FORGED, edu::forge_foreign::<1>, 0),
    gives("dma-message-smi", FORGED, edu::forge_foreign::<2>, 0),
    gives("dma-message-nmi", FORGED, edu::forge_foreign::<4>, 0),
    gives("dma-message-own-nmi", FORGED, edu::forge_own::<4>, 0),
    gives("dma-message-init", FORGED, edu::forge_foreign::<5>, 0),
    gives("dma-message-startup", FORGED, edu::forge_foreign::<6>, 0),
    gives("dma-message-extint", FORGED, edu::forge_foreign::<7>, 0),
    gives("dma-message-logical", FORGED, edu::forge_all, 0),
    gives("dma-message-level", FORGED, edu::forge_level, 0),
    gives("dma-message-lines", FORGED, edu::forge_lines, 0),
    // A restart in the middle of DMA, and its trace in the next life.
    attack("restart-with-dma", "device-quiet", edu::restart, Expect::Restart),
    gives("after-restart-with-dma", "device-quiet", edu::after_restart, 0),
];

/// Those behind a bridge.
pub static BRIDGE: &[Attack] = &[
    bridge("bridge-secondary-bus", store::<4, { of(config::PORT, 0x18) }, 0>, 0x18),
    bridge("bridge-subordinate-bus", store::<1, { of(config::PORT, 0x1A) }, 0xFF>, 0x1A),
    bridge("bridge-reset", store::<4, { of(config::PORT, 0x3C) }, 0x40_0000>, 0x3C),
    bridge("bridge-reset-by-byte", store::<1, { of(config::PORT, 0x3E) }, 0x40>, 0x3E),
    gives("bridge-window", UNNAMED, changed::<4, { of(config::PORT, 0x20) }, 0xFFF0_0000>, 0),
    gives("bridge-prefetchable", UNNAMED, changed::<4, { of(config::PORT, 0x24) }, 0xFFF0_0000>, 0),
    gives("bridge-command", UNNAMED, changed::<2, { of(config::PORT, 4) }, 0>, 0),
    gives("bridge-reports", COMMAND, changed::<2, { of(config::PORT, 0x5C) }, 0xF>, 0),
    gives("bridge-reports-secondary", COMMAND, changed::<2, { of(config::PORT, 0x3E) }, 3>, 0),
    gives("reports-on", COMMAND, reports_on, 0),
    gives("bridge-bar", UNNAMED, changed::<4, { of(config::PORT, 0x10) }, ONES>, 0),
];

const MOVES: &str = "decoder-moves";
const DIRECTION: &str = "decoder-direction";
const RAM: &str = "decoder-ram";
const PORTS: &str = "ports";
const TRAPPED: Place = At(decoder::TRAPPED);
const FOREIGN_TABLE: Place = At(0xFEB0_1000);
const FOREIGN_QUEUES: Place = At(0xC0_6000_0000);
const NVME: Place = At(0xC0_0000_0000);
const AHCI: Place = At(0xFEB0_7000);
const PORT_BAR: Place = At(0xFEB0_0000);
const ECAM: Place = At(0xB001_8004);

const fn port(name: &'static str, act: Doing, number: u16) -> Attack {
    attack(name, FORM, act, Expect::Port(number))
}

const fn bridge(name: &'static str, act: Doing, offset: u64) -> Attack {
    denied(name, "bridge-fixed", act, of(config::PORT, offset))
}
