//! Inputs for the guest that makes random exits: steps, each a few instructions and the registers that they find. They
//! are made from what a monitor is asked for, near it, or anything; and from steps that reached something new.

use bulkhead_fuzz::drive::Random;
use bulkhead_ioapic::GPA as IOAPIC;
use bulkhead_layout::hypercall as call;
use bulkhead_layout::map::ECAM_GPA;
use bulkhead_plan::Plan;
use fuzz_guest::{BACK, OPEN, OPS_MOST, Op, RETURN, SNIPPET, SNIPPETS_MOST, USER};
use std::collections::HashMap;

/// Numbers of registers in [`Op::registers`].
pub const RAX: usize = 0;
pub const RCX: usize = 1;
pub const RDX: usize = 2;
pub const RBX: usize = 3;
pub const RSI: usize = 4;
pub const RDI: usize = 5;
const R8: usize = 7;

/// A few instructions, and how they are to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Without what ends them.
    pub code: Vec<u8>,
    /// [`USER`], [`OPEN`].
    pub flags: u64,
    pub registers: [u64; 14],
}

const RDMSR: &[u8] = &[0x0F, 0x32];
const WRMSR: &[u8] = &[0x0F, 0x30];
const CPUID: &[u8] = &[0x0F, 0xA2];
const VMMCALL: &[u8] = &[0x0F, 0x01, 0xD9];
const IN: [&[u8]; 3] = [&[0xEC], &[0x66, 0xED], &[0xED]];
const OUT: [&[u8]; 3] = [&[0xEE], &[0x66, 0xEF], &[0xEF]];
/// INS and OUTS, also repeated.
const STRINGS: [&[u8]; 8] = [
    &[0x6C],
    &[0x66, 0x6D],
    &[0x6D],
    &[0x6E],
    &[0x66, 0x6F],
    &[0x6F],
    &[0xF3, 0x6C],
    &[0xF3, 0x6E],
];
/// MOVs that read [RBX], in all widths, with other registers, prefixes and ways to say the same address.
const LOADS: [&[u8]; 18] = [
    &[0x8A, 0x03],
    &[0x66, 0x8B, 0x03],
    &[0x8B, 0x03],
    &[0x48, 0x8B, 0x03],
    &[0x8A, 0x23],
    &[0x44, 0x8A, 0x03],
    &[0x44, 0x8B, 0x03],
    &[0x4C, 0x8B, 0x2B],
    &[0x66, 0x44, 0x8B, 0x33],
    &[0x8B, 0x6B, 0x00],
    &[0x8B, 0x8B, 0, 0, 0, 0],
    &[0x8B, 0x14, 0x23],
    &[0x3E, 0x8B, 0x33],
    &[0x48, 0x8B, 0x3B],
    &[0x0F, 0xB6, 0x03],
    &[0x0F, 0xB7, 0x03],
    &[0x67, 0x8B, 0x03],
    &[0x66, 0x48, 0x8B, 0x03],
];
/// The same that write.
const STORES: [&[u8]; 15] = [
    &[0x88, 0x03],
    &[0x66, 0x89, 0x03],
    &[0x89, 0x03],
    &[0x48, 0x89, 0x03],
    &[0x88, 0x23],
    &[0x44, 0x89, 0x03],
    &[0x4C, 0x89, 0x2B],
    &[0x89, 0x6B, 0x00],
    &[0xC6, 0x03, 0x55],
    &[0x66, 0xC7, 0x03, 0x34, 0x12],
    &[0xC7, 0x03, 0x07, 0x00, 0x00, 0x00],
    &[0x48, 0xC7, 0x03, 0xFF, 0xFF, 0xFF, 0xFF],
    &[0x89, 0x23],
    &[0x44, 0x88, 0x33],
    &[0x67, 0x89, 0x03],
];
/// Accesses to [RBX] that are no MOV: a guest that makes one has to begin anew.
const NO_MOVES: [&[u8]; 11] = [
    &[0x48, 0x63, 0x03],
    &[0x01, 0x03],
    &[0x87, 0x03],
    &[0xF0, 0x09, 0x03],
    &[0xFF, 0x33],
    &[0x0F, 0x10, 0x03],
    &[0x0F, 0x11, 0x03],
    &[0x0F, 0xC7, 0x0B],
    &[0x80, 0x0B, 1],
    &[0xFF, 0x13],
    &[0x0F, 0xBA, 0x2B, 2],
];
/// Instructions that no guest may run, that are looked at, or that are near them.
const OTHERS: [&[u8]; 28] = [
    &[0x0F, 0x01, 0xD8],
    &[0x0F, 0x01, 0xDA],
    &[0x0F, 0x01, 0xDB],
    &[0x0F, 0x01, 0xDC],
    &[0x0F, 0x01, 0xDD],
    &[0x0F, 0x01, 0xDE],
    &[0x0F, 0x01, 0xDF],
    &[0x0F, 0x01, 0xC8],
    &[0x0F, 0x01, 0xC9],
    &[0x0F, 0x01, 0xD1],
    &[0x0F, 0x01, 0xF9],
    &[0x0F, 0x01, 0xFD],
    &[0x0F, 0x01, 0xC1],
    &[0x0F, 0x33],
    &[0x0F, 0x08],
    &[0x0F, 0x09],
    &[0x0F, 0xAA],
    &[0xF1],
    &[0xCC],
    &[0x0F, 0x0B],
    // CR8.
    &[0x44, 0x0F, 0x22, 0xC0],
    &[0x44, 0x0F, 0x20, 0xC0],
    // DR0.
    &[0x0F, 0x23, 0xC0],
    // CR0.AM.
    &[0x0F, 0x20, 0xC0, 0x0D, 0x00, 0x00, 0x04, 0x00, 0x0F, 0x22, 0xC0],
    // A trap after each instruction.
    &[0x9C, 0x81, 0x0C, 0x24, 0x00, 0x01, 0x00, 0x00, 0x9D, 0x90],
    // CLTS, SMSW, INVLPG.
    &[0x0F, 0x06],
    &[0x0F, 0x01, 0xE0],
    &[0x0F, 0x01, 0x3B],
];
/// At CPL 3 with alignment checks, a load that isn't aligned.
const UNALIGNED: &[u8] = &[0x9C, 0x81, 0x0C, 0x24, 0, 0, 0x04, 0, 0x9D, 0x8B, 0x43, 0x01];

/// The current count of the APIC's timer.
const TIMER_COUNT: u64 = 0x839;

/// Asks for a slot's word, and accepts the offer that it tells of.
const ACCEPT_IT: &[u8] = &[
    0x0F, 0x01, 0xD9, 0x48, 0x89, 0xC6, 0x48, 0xC1, 0xEE, 0x20, 0xB8, 0x08, 0x00, 0x48, 0x42, 0x0F,
    0x01, 0xD9,
];

/// Of so many steps that would end their sandbox one is made.
const RARE: usize = 300;

/// Something in the guest's own memory that may be written.
const SCRATCH: u64 = 0x3C_0000;

/// What an input is made from.
pub struct Maker {
    pub random: Random,
    /// x2APIC IDs of the own cores.
    own: Vec<u32>,
    /// Where there is something to configure: functions in the configuration space.
    functions: Vec<u64>,
    /// Pages that monitors answer for, and what is beside them.
    pages: Vec<u64>,
    sandboxes: u32,
    /// Steps that reached something new, each with the steps before it.
    pub corpus: Vec<Vec<Step>>,
}

impl Maker {
    /// For a sandbox of a plan.
    pub fn new(plan: &Plan, sandbox: usize, seed: u64) -> Self {
        let own = &plan.sandboxes[sandbox];
        let granted = own.functions.iter().map(|granted| &granted.function);
        let space = |bdf: u16| ECAM_GPA + (u64::from(bdf) << 12);
        // The own ones twice, the host bridge, the victim's disk, nobody's.
        let mut functions: Vec<_> = granted.clone().map(|f| space(f.bdf.0)).collect();
        functions.extend(functions.clone());
        functions.extend([0, 0x18, 0x100].map(space));
        let mut pages = vec![IOAPIC; 3];
        for function in granted {
            pages.extend(function.msix.iter().flat_map(|msix| [msix.table; 4]));
        }
        // Where it says that it wants to be woken, among other things.
        pages.extend(plan.channels.iter().filter(|c| c.from == sandbox).map(|c| c.gpa));
        Self {
            random: Random::new(seed),
            own: own.apic_ids.clone(),
            functions,
            pages,
            sandboxes: plan.sandboxes.len() as u32,
            corpus: Vec::new(),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A value that means something to some register, or anything.
    fn value(&mut self) -> u64 {
        match self.below(8) {
            0 => self.random.next(),
            1 => u64::from(self.random.next() as u32),
            2 => 1 << self.below(64),
            3 => u64::MAX << self.below(64),
            4 => self.random.next() & self.random.next() & 0xFFFF,
            5 => self.pick(&[0, 1, 2, 0xFF, 0x100, 0xFFFF, 0x8000_0000, 0xFEE0_0000, 0xFFFF_FFFF]),
            _ => self.random.next() & 0xFF,
        }
    }

    /// Steps for an input.
    pub fn steps(&mut self, count: usize) -> Vec<Step> {
        let mut steps = Vec::with_capacity(count + 16);
        while steps.len() < count.min(OPS_MOST as usize) {
            if self.corpus.is_empty() || self.one_in(2) {
                steps.push(self.fresh());
            } else {
                let n = self.below(self.corpus.len());
                let chosen = self.corpus[n].clone();
                steps.extend(chosen.into_iter().map(|step| self.mutated(step)));
            }
        }
        steps.truncate(count);
        steps
    }

    /// A step from a corpus, changed or not. Nothing there ends the sandbox: that would come too often.
    fn mutated(&mut self, mut step: Step) -> Step {
        let page = step.registers[RBX] & !0xFFF;
        match self.below(8) {
            0 => step.registers[self.below(14)] = self.value(),
            1 => step.registers[self.below(6)] ^= 1 << self.below(64),
            2 => step.registers[self.below(6)] ^= 1 << self.below(16),
            3 => {
                let n = self.below(6);
                step.registers[n] =
                    step.registers[n].wrapping_add(self.below(9) as u64).wrapping_sub(4);
            }
            4 => step.flags ^= OPEN,
            _ => {}
        }
        // Beyond its page an access ends the sandbox.
        if LOADS.contains(&&step.code[..]) || STORES.contains(&&step.code[..]) {
            step.registers[RBX] = page | step.registers[RBX] & 0xFFF;
        }
        self.kept(step)
    }

    /// A step, or another one: those that end a sandbox are few, and those that end the emulator are none.
    fn kept(&mut self, step: Step) -> Step {
        let never = step.code == RDMSR && step.registers[RCX] as u32 as u64 == TIMER_COUNT;
        if never || ends(&step) && !self.one_in(RARE) { self.fresh() } else { step }
    }

    /// A step from nothing.
    pub fn fresh(&mut self) -> Step {
        let mut registers = [0; 14];
        registers.iter_mut().for_each(|register| *register = self.value());
        let mut step = Step { code: Vec::new(), flags: 0, registers };
        if self.one_in(4) {
            step.flags |= OPEN;
        }
        match self.below(100) {
            0..20 => self.msr(&mut step),
            20..32 => self.icr(&mut step),
            32..48 => self.port(&mut step),
            48..74 => self.memory(&mut step),
            74..92 => self.call(&mut step),
            92..95 => {
                step.code = CPUID.to_vec();
                step.registers[RAX] = self.pick(&[
                    0,
                    1,
                    7,
                    0xB,
                    0xD,
                    0x8000_0001,
                    0x8000_0008,
                    0x8000_000A,
                    0x4000_0000,
                ]);
            }
            _ => self.other(&mut step),
        }
        if self.one_in(12) && !ends(&step) {
            step.flags |= USER;
        }
        self.kept(step)
    }

    fn msr(&mut self, step: &mut Step) {
        let apic = 0x800 + self.below(0x100) as u64;
        // What the rest of the program lives by is left alone: FS and GS bases, SYSCALL, page attributes.
        let known = [
            0x1B,
            0x832,
            0x833,
            0x834,
            0x835,
            0x836,
            0x837,
            0x838,
            0x83E,
            0x83F,
            0x80B,
            0x808,
            0xC000_0080,
            0x10,
            0x3B,
            0x48,
            0x49,
            0x8B,
            0xC001_0114,
            0xC001_0117,
            0x6E0,
            0x1A0,
            0x2FF,
            0xCE,
            0xC001_0015,
            0xC000_0103,
            0x17,
            0xC1,
        ];
        let register = match self.below(8) {
            0..3 => apic,
            3..7 => self.pick(&known),
            _ => {
                let any = self.random.next() & 0x1FFF;
                any | self.pick(&[0, 0, 0xC000_2000, 0xC001_0000, 0x8000_0000])
            }
        };
        step.code = if self.one_in(3) { RDMSR } else { WRMSR }.to_vec();
        step.registers[RCX] = register;
        let mut value = self.value();
        // Read in virtual time, the timer's count ends the emulator.
        if register == TIMER_COUNT {
            step.code = WRMSR.to_vec();
        }
        if register == 0xC000_0080 {
            // LME, LMA and NXE as they are, mostly: without them this program is no more.
            value = 0xD01
                ^ self.pick(&[
                    0,
                    1 << 12,
                    1 << 13,
                    1 << 14,
                    1 << 15,
                    1 << 21,
                    1 << 8,
                    1 << 10,
                    1 << 40,
                ]);
        } else if (0x832..=0x837).contains(&register) {
            value = self.vector() | self.random.next() & 0xFFF_FF00;
        }
        (step.registers[RAX], step.registers[RDX]) = (value & 0xFFFF_FFFF, value >> 32);
    }

    fn vector(&mut self) -> u64 {
        if self.one_in(20) { self.below(32) as u64 } else { 32 + self.below(0x4E) as u64 }
    }

    fn icr(&mut self, step: &mut Step) {
        let id = self.pick(&self.own.clone());
        let destination = match self.below(8) {
            0 => self.random.next() as u32,
            1 => u32::MAX,
            2 => self.below(16) as u32,
            3 => id >> 4 << 16 | 1 << (id & 15),
            4 => self.below(0x100) as u32,
            _ => id,
        };
        // INIT and start-up send cores away, so there are few.
        let mode = match self.below(64) {
            0 => 5,
            1 => 6,
            2..8 => self.below(8) as u64,
            8..20 => 4,
            _ => 0,
        };
        let bits = self.random.next() & self.random.next();
        let low = self.vector()
            | mode << 8
            | (bits & 0xF) << 11
            | (bits >> 4 & 3) << 14
            | (bits >> 6 & 3) << 18;
        let low = if self.one_in(8) { low ^ 1 << self.below(32) } else { low };
        step.code = WRMSR.to_vec();
        step.registers[RCX] = 0x830;
        (step.registers[RAX], step.registers[RDX]) = (low & 0xFFFF_FFFF, destination.into());
    }

    fn port(&mut self, step: &mut Step) {
        let port = match self.below(16) {
            0 | 1 => 0xCF8,
            2..5 => 0xCFC + self.below(4) as u64,
            5 | 6 => u64::from(call::BELL_PORT) + self.below(12) as u64,
            7 | 8 => u64::from(call::CALL_PORT),
            9 => 0x5658,
            10 => 0x2F8 + self.below(8) as u64,
            11 => self.pick(&[
                0x20, 0x21, 0x40, 0x43, 0x60, 0x61, 0x64, 0x70, 0x71, 0x80, 0xB2, 0xCF9, 0xE9,
                0xF4, 0x3F8,
            ]),
            12 if self.one_in(200) => u64::from(call::POWER_PORT),
            _ => self.below(0x1_0000) as u64,
        };
        // The emulator's own way out, if a manifest should ever give it.
        let port =
            if port == u64::from(call::POWER_PORT) && !self.one_in(50) { port + 1 } else { port };
        step.registers[RDX] = port;
        let read = self.one_in(2);
        let width = if self.one_in(2) { 2 } else { self.below(3) };
        step.code = match (self.below(12), read) {
            (0, _) => self.pick(&STRINGS),
            (_, true) => IN[width],
            _ => OUT[width],
        }
        .to_vec();
        (step.registers[RSI], step.registers[RDI]) = (SCRATCH, SCRATCH + 0x1000);
        step.registers[RCX] = 1 + self.below(4) as u64;
        match port {
            0xCF8 => {
                let function = self.pick(&self.functions.clone()) - ECAM_GPA;
                step.registers[RAX] = 1 << 31 | function >> 4 | (self.below(64) as u64 * 4);
            }
            0x5658 => {
                step.code = IN[2].to_vec();
                step.registers[RAX] = 0x564D_5868;
                step.registers[RCX] = self.pick(&[10, 45, 68, 1]);
            }
            _ if port == u64::from(call::CALL_PORT) => {
                step.code = IN[2].to_vec();
                self.arguments(step);
            }
            _ => {}
        }
    }

    fn memory(&mut self, step: &mut Step) {
        let at = match self.below(8) {
            0..4 => {
                let function = self.pick(&self.functions.clone());
                let known = [
                    0, 4, 6, 0xC, 0x10, 0x14, 0x24, 0x30, 0x34, 0x3C, 0x40, 0x44, 0x48, 0x4C, 0x50,
                    0x60, 0x70, 0x90,
                ];
                function
                    + match self.below(4) {
                        0 => self.below(0x1000) as u64,
                        1 => self.below(0x100) as u64,
                        _ => self.pick(&known) + self.pick(&[0, 0, 0, 1, 2, 3]),
                    }
            }
            _ => {
                let page = self.pick(&self.pages.clone());
                let ioapic = page == IOAPIC;
                page + match self.below(4) {
                    0 => self.below(0x1000) as u64,
                    1 => self.below(16) as u64 * 4,
                    _ if ioapic => self.pick(&[0, 0x10, 0x10, 0x40]),
                    _ => self.below(0x40) as u64 * 4,
                }
            }
        };
        step.registers[RBX] = at;
        let store = self.one_in(2);
        step.code = match store {
            true => self.pick(&STORES),
            false => self.pick(&LOADS),
        }
        .to_vec();
        if self.one_in(20) {
            step.code = self.pick(&NO_MOVES).to_vec();
        }
        // The address in the instruction itself.
        if self.one_in(10) {
            let opcode = 0xA0 + self.below(4) as u8;
            let prefix: &[u8] = self.pick(&[&[][..], &[0x66], &[0x48]]);
            step.code = [prefix, &[opcode], &at.to_le_bytes()].concat();
        }
        if at & !0xFFF == IOAPIC && at & 0xFFF == 0 && self.one_in(2) {
            step.registers[RAX] = self.below(0x40) as u64;
        }
        // What messages and table entries look like.
        match self.below(6) {
            0 => step.registers[RAX] = 0xFEE0_0000 | u64::from(self.pick(&self.own.clone())) << 12,
            1 => step.registers[RAX] = self.vector(),
            2 => step.registers[RAX] = u64::from(self.pick(&self.own.clone())) << 24,
            _ => {}
        }
    }

    fn call(&mut self, step: &mut Step) {
        step.code = VMMCALL.to_vec();
        self.arguments(step);
        if step.registers[RAX] == call::ACCEPT && self.one_in(2) {
            step.code = ACCEPT_IT.to_vec();
            (step.registers[RAX], step.registers[RSI]) = (call::SLOT, 1);
        }
    }

    /// A call's registers, half of them valid.
    fn arguments(&mut self, step: &mut Step) {
        let number = match self.below(16) {
            0 => self.random.next(),
            1 => call::NULL + self.below(16) as u64,
            2 => call::CONSOLE,
            3 | 4 => self.pick(&[call::CONTROL, call::STATUS]),
            5..8 => call::OFFER,
            8..10 => call::ACCEPT,
            10..12 => call::CLOSE,
            12..14 => call::SLOT,
            _ => self.pick(&[call::NULL, call::READY]),
        };
        step.registers[RAX] = number;
        let sandbox = self.below(self.sandboxes as usize + 1) as u64;
        let slot = self.below(3) as u64;
        if self.one_in(8) {
            return;
        }
        let (first, second) = match number {
            call::CONSOLE => (self.below(27) as u64, self.random.next()),
            call::CONTROL => (sandbox, self.below(5) as u64),
            call::OFFER => (sandbox, slot | (self.random.next() & 0xFFFF) << 16),
            // Epochs count from 1.
            call::ACCEPT => (slot, 1 + self.below(40) as u64),
            call::CLOSE | call::SLOT => (slot, self.below(3) as u64),
            _ => (sandbox, self.value()),
        };
        (step.registers[RDI], step.registers[RSI]) = (first, second);
        step.registers[R8] = self.random.next();
    }

    fn other(&mut self, step: &mut Step) {
        step.code = self.pick(&OTHERS).to_vec();
        if self.one_in(12) {
            step.code = UNALIGNED.to_vec();
            step.registers[RBX] = SCRATCH;
            step.flags |= USER;
        }
        // Descriptors and addresses that must not be what they are for a host.
        (step.registers[RAX], step.registers[RCX]) = (SCRATCH, self.below(4) as u64);
        step.registers[RBX] = SCRATCH;
    }
}

/// Whether a step is likely to end its sandbox.
fn ends(step: &Step) -> bool {
    let [rax, rcx, rdx] = [RAX, RCX, RDX].map(|n| step.registers[n]);
    let controls =
        rax == call::CONTROL && step.registers[RDI] < 4 && (1..=3).contains(&step.registers[RSI]);
    let calls = step.code == VMMCALL || rdx as u16 == call::CALL_PORT && step.code == IN[2];
    let icr = step.code == WRMSR && rcx as u32 == 0x830;
    let efer = step.code == WRMSR && rcx as u32 == 0xC000_0080;
    calls && (controls || matches!(rax, call::EXIT | call::RESTART))
        || icr && matches!(rax >> 8 & 7, 5)
        || efer && rax & 0xD00 != 0xD00
        || rdx as u16 == call::POWER_PORT
            && OUT.contains(&&step.code[..])
            && matches!(rax as u8, 1 | 0x34)
        || NO_MOVES.contains(&&step.code[..])
}

/// An input as the guest takes it: snippets and operations.
pub struct Input {
    pub stage: Vec<u8>,
    pub ops: Vec<Op>,
}

impl Input {
    /// Snippets that are the same share a place; those for which there is none do nothing.
    pub fn of(steps: &[Step]) -> Self {
        let mut places: HashMap<Vec<u8>, u64> = HashMap::new();
        let mut stage = vec![0x90; (SNIPPET * SNIPPETS_MOST) as usize];
        stage[..1].copy_from_slice(RETURN);
        let mut ops = Vec::new();
        for step in steps {
            let end = if step.flags & USER != 0 { BACK } else { RETURN };
            let code = [&step.code[..], end].concat();
            let next = places.len() as u64 + 1;
            let place = match places.get(&code) {
                Some(place) => *place,
                None if next < SNIPPETS_MOST && code.len() as u64 <= SNIPPET => {
                    let at = (next * SNIPPET) as usize;
                    stage[at..at + code.len()].copy_from_slice(&code);
                    places.insert(code, next);
                    next
                }
                None => 0,
            };
            let flags = if place == 0 { 0 } else { step.flags };
            ops.push(Op { how: place | flags, registers: step.registers, target: 0 });
        }
        Self { stage, ops }
    }

    /// The operations' bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let words = |op: &Op| {
            [op.how].into_iter().chain(op.registers).chain([0]).flat_map(u64::to_le_bytes)
        };
        self.ops.iter().flat_map(|op| words(op).collect::<Vec<_>>()).collect()
    }
}
