//! The attacks.

use crate::act::Act::{self, *};
use crate::aim::Place::{self, *};
use crate::expect::Expect;
use crate::lines::{SELECT, WINDOW};
use crate::mov::{clear, load};
use crate::{Attack, lines, special};
use bulkhead_sdk::apic::{TMCCT, TSC_DEADLINE};
use bulkhead_sdk::fault::{GP, UD};
use bulkhead_sdk::layout::hypercall::{
    ACCEPT, BAD_ARGUMENT, CLOSE, CONSOLE, CONTROL, CONTROL_RESTART, CONTROL_START, CONTROL_STOP,
    LOOK, NO_CALL, OFFER, STATUS,
};
use bulkhead_sdk::layout::x86::port::POWER_PORT;

const fn attack(name: &'static str, guarantee: &'static str, act: Act, expect: Expect) -> Attack {
    Attack::new(name, guarantee, act, expect)
}

const fn endless(name: &'static str, act: fn(&crate::Aim) -> crate::Got) -> Attack {
    Attack { endless: true, ..attack(name, "doorbell", Run(act), Expect::Endless) }
}

const MAP: &str = "nested-map";
const RIGHTS: &str = "nested-rights";
const PORTS: &str = "ports";
const MSRS: &str = "registers";
const DESTINATION: &str = "ipi-destination";
const FORM: &str = "ipi-form";
const LINE: &str = "line-owner";
const CORE: &str = "line-core";
const INSTRUCTIONS: &str = "instructions";

const fn read(name: &'static str, place: Place) -> Attack {
    attack(name, MAP, Read(place), Expect::Memory(place))
}

const fn write(name: &'static str, guarantee: &'static str, place: Place, value: u64) -> Attack {
    attack(name, guarantee, Write(place, value), Expect::Memory(place))
}

/// One through the IOAPIC.
const fn line(
    name: &'static str,
    guarantee: &'static str,
    act: fn(&crate::Aim) -> crate::Got,
    expect: Expect,
) -> Attack {
    attack(name, guarantee, Run(act), expect)
}

/// Other than 32 bits at one of the IOAPIC's two registers.
const fn odd(name: &'static str, act: fn(&crate::Aim) -> crate::Got, at: u64) -> Attack {
    line(name, "line-access", act, Expect::Register(at))
}

const fn execute(name: &'static str, guarantee: &'static str, place: Place) -> Attack {
    attack(name, guarantee, Execute(place), Expect::Memory(place))
}

const fn out(name: &'static str, port: u16, bytes: u8, value: u32) -> Attack {
    attack(name, PORTS, Out(port, bytes, value), Expect::Port(port))
}

const fn input(name: &'static str, port: u16, bytes: u8) -> Attack {
    attack(name, PORTS, In(port, bytes), Expect::Port(port))
}

const fn rdmsr(name: &'static str, msr: u32) -> Attack {
    attack(name, MSRS, Rdmsr(msr), Expect::Msr(msr))
}

const fn wrmsr(name: &'static str, msr: u32, value: u64) -> Attack {
    attack(name, MSRS, Wrmsr(msr, value), Expect::Msr(msr))
}

/// A write that is dropped, as if the register had no effect.
const fn dropped(name: &'static str, guarantee: &'static str, act: Act) -> Attack {
    attack(name, guarantee, act, Expect::Harmless(0))
}

const fn foreign(name: &'static str, guarantee: &'static str, low: u32) -> Attack {
    attack(name, guarantee, IcrForeign(low), Expect::ForeignIpi(low))
}

const fn instruction(
    name: &'static str,
    act: fn(&crate::Aim) -> crate::Got,
    exit_code: u64,
) -> Attack {
    attack(name, INSTRUCTIONS, Run(act), Expect::Instruction(exit_code))
}

const fn harmless(
    name: &'static str,
    guarantee: &'static str,
    act: fn(&crate::Aim) -> crate::Got,
) -> Attack {
    attack(name, guarantee, Run(act), Expect::Harmless(0))
}

const fn exception(
    name: &'static str,
    guarantee: &'static str,
    act: fn(&crate::Aim) -> crate::Got,
    vector: u8,
) -> Attack {
    attack(name, guarantee, Run(act), Expect::Exception(vector))
}

/// Start of a forged interrupt by memory access: physical, fixed, vector 0x40.
const LAPIC_ICR: u64 = 0xFEE0_0300;
const BASE: u64 = 0xC001_0000;
const SVME: u64 = 1 << 12;
/// Level asserted.
const ASSERT: u32 = 1 << 14;

const fn amd(n: u32) -> u32 {
    BASE as u32 + n
}

/// All attacks, in the order of the guest's lives.
pub static ATTACKS: &[Attack] = &[
    // Memory that is not the sandbox's.
    read("read-victim", Victim),
    write("write-victim", MAP, Victim, 0xBAD),
    execute("execute-victim", MAP, Victim),
    read("read-after-ram", AfterRam),
    write("write-after-ram", MAP, AfterRam, 0xBAD),
    read("read-image", Image),
    write("write-image", MAP, Image, 0xBAD),
    execute("execute-image", MAP, Image),
    read("read-after-windows", AfterWindows),
    write("write-lapic-icr", MAP, At(LAPIC_ICR), 0x40),
    read("read-lapic", At(0xFEE0_0020)),
    write("write-hpet", MAP, At(0xFED0_0010), 1),
    write("write-iommu", MAP, At(0xFED8_0018), 0),
    read("read-pci-config", At(0xB000_0000)),
    read("read-firmware", At(0xFFFF_FFF0)),
    read("read-far", At(0x7F_FFFF_F000)),
    attack("page-tables-outside", MAP, Run(special::tables_outside), Expect::Memory(AfterRam)),
    attack("event-outside", MAP, Run(special::event_outside), Expect::Memory(AfterRam)),
    // Rights to what is.
    write("write-info-page", RIGHTS, Info(8), 0),
    write("write-info-frequency", RIGHTS, Info(48), 1),
    write("write-read-only-channel", RIGHTS, ReadOnlyChannel, 0xBAD),
    write("write-text", RIGHTS, Text, 0),
    execute("execute-data", RIGHTS, Data),
    execute("execute-info-page", RIGHTS, Info(0)),
    // Ports.
    attack("foreign-uart", PORTS, OutForeign(b'!'), Expect::ForeignPort),
    out("pic-mask", 0x21, 1, 0),
    out("pic-init", 0x20, 1, 0x11),
    out("pit", 0x43, 1, 0x34),
    out("keyboard-reset", 0x64, 1, 0xFE),
    out("fast-reset", 0x92, 1, 1),
    out("reset-control", 0xCF9, 1, 6),
    out("pci-address", 0xCF8, 4, 0x8000_0000),
    input("pci-data", 0xCFC, 4),
    out("smi-command", 0xB2, 1, 0),
    out("debug-exit", 0xF4, 1, 0),
    out("bochs-shutdown", 0x8900, 1, b'S' as u32),
    out("firmware-config-dma", 0x514, 4, 0),
    input("firmware-config", 0x511, 1),
    out("dma-controller", 0x0A, 1, 0),
    out("power-port-nonsense", POWER_PORT, 1, 0x7F),
    attack("string-out", PORTS, Run(special::outs), Expect::Port(0x64)),
    attack("string-in", PORTS, Run(special::ins), Expect::Port(0x60)),
    // Model-specific registers.
    attack(
        "efer-set-svme",
        "virtualization-switch",
        SetMsr(0xC000_0080, SVME),
        Expect::Msr(0xC000_0080),
    ),
    dropped("efer-clear-svme", "virtualization-switch", ClearMsr(0xC000_0080, SVME)),
    attack(
        "efer-reserved",
        "virtualization-switch",
        Wrmsr(0xC000_0080, 1 << 40),
        Expect::Msr(0xC000_0080),
    ),
    wrmsr("vm-cr", amd(0x114), 1 << 4),
    rdmsr("vm-cr-read", amd(0x114)),
    wrmsr("vm-hsave-pa", amd(0x117), 0x1000),
    wrmsr("vm-ignne", amd(0x115), 1),
    wrmsr("apic-base-off", 0x1B, 0),
    wrmsr("apic-base-moved", 0x1B, 0x8_0000 | 0xD00),
    wrmsr("tsc", 0x10, 0),
    wrmsr("tsc-adjust", 0x3B, 1),
    wrmsr("smm-base", amd(0x111), 0),
    wrmsr("smm-address", amd(0x112), 0),
    wrmsr("mtrr", 0x200, 6),
    wrmsr("machine-check-control", 0x400, 0),
    wrmsr("machine-check-global", 0x17B, 0),
    wrmsr("system-configuration", amd(0x10), 0),
    wrmsr("top-of-memory", amd(0x1A), 0),
    wrmsr("io-range", amd(0x16), 0),
    wrmsr("microcode", amd(0x20), 0),
    wrmsr("debug-control-osvw", amd(0x141), 0),
    rdmsr("unknown-low", 0x1FFF),
    rdmsr("unknown-outside-of-map", 0x1234_5678),
    wrmsr("unknown-write", 0x4B56_4D00, 1),
    dropped("pat", MSRS, SetMsr(0x277, 0)),
    dropped("deadline-in-the-past", MSRS, Wrmsr(TSC_DEADLINE, 0)),
    dropped("timer-current-count", MSRS, Rdmsr(TMCCT)),
    harmless("lvt-smi", "local-interrupts", special::lvt_smi),
    harmless("lvt-nmi", "local-interrupts", special::lvt_nmi),
    harmless("lvt-init", "local-interrupts", special::lvt_init),
    harmless("lvt-extint", "local-interrupts", special::lvt_extint),
    // Instructions.
    instruction("vmrun", special::vmrun, 0x80),
    instruction("vmload", special::vmload, 0x82),
    instruction("vmsave", special::vmsave, 0x83),
    instruction("stgi", special::stgi, 0x84),
    instruction("clgi", special::clgi, 0x85),
    instruction("skinit", special::skinit, 0x86),
    instruction("invlpga", special::invlpga, 0x7A),
    instruction("invlpgb", special::invlpgb, 0xA0),
    instruction("rsm", special::rsm, 0x73),
    instruction("monitor", special::monitor, 0x8A),
    instruction("mwait", special::mwait, 0x8B),
    harmless("invd", "cache-instructions", special::invd),
    harmless("wbinvd", "cache-instructions", special::wbinvd),
    exception("vmcall", INSTRUCTIONS, special::vmcall, UD),
    exception("getsec", INSTRUCTIONS, special::getsec, UD),
    // Interrupts to others.
    foreign("ipi-fixed", DESTINATION, 0x40),
    foreign("ipi-lowest-priority", FORM, 0x140),
    foreign("ipi-smi", FORM, 0x200),
    foreign("ipi-nmi", DESTINATION, 0x400),
    foreign("ipi-init", DESTINATION, 0x500 | ASSERT),
    foreign("ipi-startup", DESTINATION, 0x610 | ASSERT),
    foreign("ipi-extint", FORM, 0x700),
    attack("ipi-logical", DESTINATION, IcrForeignLogical(0x840), Expect::ForeignLogicalIpi(0x840)),
    attack("ipi-logical-nmi", FORM, IcrForeignLogical(0xC00), Expect::ForeignLogicalIpi(0xC00)),
    dropped("ipi-logical-broadcast", DESTINATION, Icr(0xFFFF_FFFF_0000_0840)),
    attack(
        "ipi-broadcast-nmi",
        DESTINATION,
        Icr(0xFFFF_FFFF_0000_0400),
        Expect::Ipi(0xFFFF_FFFF_0000_0400),
    ),
    attack("ipi-init-all", FORM, Icr(0xC_4500), Expect::Ipi(0xC_4500)),
    attack("ipi-startup-all", FORM, Icr(0xC_4610), Expect::Ipi(0xC_4610)),
    attack("ipi-smi-all", FORM, Icr(0x8_0200), Expect::Ipi(0x8_0200)),
    dropped("ipi-nmi-others", DESTINATION, Icr(0xC_0400)),
    attack("ipi-all", DESTINATION, Run(special::ipi_all), Expect::Harmless(1)),
    harmless("ipi-others", DESTINATION, special::ipi_others),
    attack("ipi-broadcast", DESTINATION, Run(special::ipi_broadcast), Expect::Harmless(1)),
    attack("ipi-level-triggered", FORM, IcrSelf(0xC040), Expect::OwnIpi(0xC040)),
    dropped("ipi-deassert", DESTINATION, Icr(0xC_8500)),
    harmless("ipi-self-flood", DESTINATION, special::self_flood),
    // Interrupt lines.
    odd("ioapic-index-byte", clear::<1, SELECT>, SELECT),
    odd("ioapic-index-word", clear::<2, SELECT>, SELECT),
    odd("ioapic-index-quad", clear::<8, SELECT>, SELECT),
    odd("ioapic-window-byte", clear::<1, WINDOW>, WINDOW),
    odd("ioapic-window-quad", clear::<8, WINDOW>, WINDOW),
    odd("ioapic-read-byte", load::<1, WINDOW>, WINDOW),
    odd("ioapic-read-word", load::<2, SELECT>, SELECT),
    odd("ioapic-read-quad", load::<8, SELECT>, SELECT),
    odd("ioapic-eoi-register", clear::<4, { SELECT + 0x40 }>, SELECT + 0x40),
    odd("ioapic-beside-window", load::<4, { WINDOW + 4 }>, WINDOW + 4),
    odd("ioapic-far-in-the-page", clear::<4, { SELECT + 0xFFC }>, SELECT + 0xFFC),
    line("ioapic-foreign-line", LINE, lines::foreign_line::<4>, Expect::Line(lines::low(4))),
    line("ioapic-nobodys-line", LINE, lines::foreign_line::<1>, Expect::Line(lines::low(1))),
    line("ioapic-timer-line", LINE, lines::foreign_line::<2>, Expect::Line(lines::low(2))),
    line("ioapic-pci-line", LINE, lines::foreign_line::<23>, Expect::Line(lines::low(23))),
    line("ioapic-line-beyond", LINE, lines::foreign_line::<24>, Expect::QuietLines),
    line("ioapic-mask-all", LINE, lines::mask_all, Expect::QuietLines),
    line("ioapic-read-all", LINE, lines::read_all, Expect::QuietLines),
    line("ioapic-storm", LINE, lines::storm, Expect::QuietLines),
    line("ioapic-smi", "line-mode", lines::mode::<2>, Expect::OwnLine(0)),
    line("ioapic-nmi", "line-mode", lines::mode::<4>, Expect::OwnLine(0)),
    line("ioapic-init", "line-mode", lines::mode::<5>, Expect::OwnLine(0)),
    line("ioapic-extint", "line-mode", lines::mode::<7>, Expect::OwnLine(0)),
    line("ioapic-foreign-core", CORE, lines::foreign_core, Expect::OwnLine(0)),
    line("ioapic-broadcast", CORE, lines::broadcast, Expect::OwnLine(0)),
    line("ioapic-logical", CORE, lines::logical, Expect::OwnLine(0)),
    line("ioapic-redirected", CORE, lines::redirected, Expect::OwnLine(1)),
    line("ioapic-low-vector", "line-vector", lines::low_vector, Expect::OwnLine(0)),
    line("ioapic-level-vector", "line-level-vector", lines::level_vector, Expect::LevelLine),
    // Hypercalls.
    attack(
        "control-stop",
        "control-right",
        CallForeign(CONTROL, CONTROL_STOP),
        Expect::Hypercall(CONTROL),
    ),
    attack(
        "control-start",
        "control-right",
        CallForeign(CONTROL, CONTROL_START),
        Expect::Hypercall(CONTROL),
    ),
    attack(
        "control-restart",
        "control-right",
        CallForeign(CONTROL, CONTROL_RESTART),
        Expect::Hypercall(CONTROL),
    ),
    attack(
        "control-far",
        "control-right",
        Call(CONTROL, u64::MAX, CONTROL_STOP),
        Expect::Hypercall(CONTROL),
    ),
    attack(
        "control-by-port",
        "control-right",
        PortForeign(CONTROL, CONTROL_RESTART),
        Expect::Hypercall(CONTROL),
    ),
    attack(
        "start-flood",
        "control-change",
        Run(special::flood::<CONTROL_START>),
        Expect::Hypercall(CONTROL),
    ),
    attack(
        "restart-flood",
        "control-rate",
        Run(special::flood::<CONTROL_RESTART>),
        Expect::Hypercall(CONTROL),
    ),
    attack(
        "restart-locked",
        "lock",
        Run(special::flood::<CONTROL_RESTART>),
        Expect::Hypercall(CONTROL),
    ),
    attack("status-foreign", "control-right", CallForeign(STATUS, 0), Expect::Hypercall(STATUS)),
    attack("offer-foreign", "link-right", CallForeign(OFFER, 0), Expect::Hypercall(OFFER)),
    attack("offer-far", "link-right", Call(OFFER, u64::MAX, 0), Expect::Hypercall(OFFER)),
    attack("accept-foreign", "link-right", Call(ACCEPT, 0, 1), Expect::Hypercall(ACCEPT)),
    attack("close-foreign", "link-right", Call(CLOSE, 0, 0), Expect::Hypercall(CLOSE)),
    attack("link-far", "link-right", Call(LOOK, 1 << 32, 1), Expect::Hypercall(LOOK)),
    attack("call-unknown", "hypercall-number", Call(0x4248_FFFF, 0, 0), Expect::Harmless(NO_CALL)),
    attack(
        "call-huge",
        "hypercall-number",
        Call(u64::MAX, u64::MAX, u64::MAX),
        Expect::Harmless(NO_CALL),
    ),
    attack(
        "console-too-long",
        "hypercall-length",
        Call(CONSOLE, 25, 0),
        Expect::Harmless(BAD_ARGUMENT),
    ),
    attack(
        "console-huge",
        "hypercall-length",
        Call(CONSOLE, u64::MAX, 0),
        Expect::Harmless(BAD_ARGUMENT),
    ),
    attack(
        "call-from-user",
        "hypercall-cpl",
        Run(special::call_from_user),
        Expect::Harmless(NO_CALL),
    ),
    attack(
        "exit-from-user",
        "hypercall-cpl",
        Run(special::exit_from_user),
        Expect::Harmless(NO_CALL),
    ),
    // Control, debug and extended state: this core's own.
    exception("xcr0-empty", "own-state", special::xcr0, GP),
    exception("xcr7", "own-state", special::xcr7, GP),
    harmless("control-bits", "own-state", special::control_bits),
    harmless("counters", "own-state", special::counters),
    harmless("split-lock", "own-state", special::split_lock),
    exception("debug-registers", "own-state", special::debug_registers, 1),
    harmless("debug-storm", "exceptions", special::debug_storm),
    harmless("alignment-storm", "exceptions", special::alignment_storm),
    attack("triple-fault", "shutdown", Run(special::triple_fault), Expect::Shutdown),
    // Attacks that only another sandbox can end.
    endless("spin-for-ever", special::spin_for_ever),
    endless("halt-for-ever", special::halt_for_ever),
    endless("call-for-ever", special::call_for_ever),
    endless("fault-for-ever", special::fault_for_ever),
];
