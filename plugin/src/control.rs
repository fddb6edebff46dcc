//! A machine that stops at an instruction, on the word of a process at the other end of a socket. While it stands, that
//! process reads and writes its RAM and strikes its registers; then it goes on. Stops depend on the count of
//! instructions alone, so a run with equal commands is an equal run.
//!
//! The thread that runs all cores waits in a callback. QEMU's own lock is free meanwhile, so its other thread answers
//! (`-qtest`).
//!
//! * Callbacks of the system's text are registered as ones that change registers. Then QEMU has all registers in the
//!   core's state before the call, and reads them anew behind it (`TCGHelperInfo::flags`, accel/tcg/plugin-gen.c).
//! * `CPUX86State` begins with the general registers (target/i386/cpu.h). The plugin compares the first one with the
//!   register that QEMU's interface reads, and refuses to strike where they differ.
//! * Text below 1 MiB, or in no RAM, is the firmware's. It is counted by blocks: faster, and no fault strikes there.

use crate::cores::Cores;
use crate::gather::CLASSES;
use crate::overlay;
use crate::shell::{PLUGIN, Plugin};
use crate::strike::{self, Command, Ports, Stop, Timer};
use qemu_plugin_sys as sys;
use std::arch::naked_asm;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of the instruction that runs, or is about to.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// From this number on each instruction is looked at.
static TARGET: AtomicU64 = AtomicU64::new(u64::MAX);
/// CPU state of the core that runs.
static CURRENT: AtomicUsize = AtomicUsize::new(0);
/// 1: reads of ports are looked at.
static ARMED: AtomicU64 = AtomicU64::new(0);

const SYSTEM: u64 = 1 << 20;

unsafe extern "C" {
    // From the C library that QEMU is linked with.
    fn _exit(status: c_int) -> !;
    fn prctl(option: c_int, value: c_ulong) -> c_int;
}

/// PR_SET_PDEATHSIG, SIGKILL (prctl(2), signal(7)).
const WHEN_PARENT_DIES: c_int = 1;
const KILL: c_ulong = 9;

/// See the module.
pub struct Control(Mutex<State>);

struct State {
    socket: BufReader<UnixStream>,
    cores: Cores,
    stop: Option<Stop>,
    timer: Option<Timer>,
    ports: Option<Ports>,
    /// Interrupt of each core's timer.
    vectors: BTreeMap<u32, u8>,
    /// Registers that get these values behind the instruction that runs: core's state, number, value.
    later: Vec<(usize, usize, u64)>,
    /// Pages with text that was translated.
    pages: BTreeSet<u64>,
}

impl Control {
    /// Connects, and takes the first commands.
    ///
    /// # Errors
    /// There is nobody.
    pub fn new(path: &str) -> std::io::Result<Self> {
        // A machine with all cores asleep would never notice that its starter is gone.
        // SAFETY: sets a number of this process.
        unsafe { prctl(WHEN_PARENT_DIES, KILL) };
        let socket = BufReader::new(UnixStream::connect(path)?);
        let mut state = State {
            socket,
            cores: Cores::default(),
            stop: None,
            timer: None,
            ports: None,
            vectors: BTreeMap::new(),
            later: Vec::new(),
            pages: BTreeSet::new(),
        };
        state.obey(|| Ok(()));
        Ok(Self(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// General registers of a core, by the address of its state.
fn register(cpu: usize, number: usize) -> *mut u64 {
    (cpu as *mut u64).wrapping_add(number)
}

fn read(cpu: usize, number: usize) -> u64 {
    // SAFETY: the state of a live core begins with its registers; the thread that runs all cores is this one.
    unsafe { register(cpu, number).read_volatile() }
}

fn write(cpu: usize, number: usize, value: u64) {
    // SAFETY: as in `read`; the callback is registered as one that changes registers.
    unsafe { register(cpu, number).write_volatile(value) }
}

impl State {
    /// Carries out commands until the machine goes on. `sound` says if registers may be struck.
    fn obey(&mut self, sound: impl Fn() -> Result<(), String>) {
        self.stop = None;
        loop {
            let mut line = String::new();
            if !self.socket.read_line(&mut line).is_ok_and(|read| read > 0) {
                // Its starter is gone, and has not ended it. QEMU's own way to its end would wait for this thread.
                // SAFETY: ends this process, which nobody waits for.
                unsafe { _exit(1) }
            }
            let done = Command::parse(&line).and_then(|command| self.carry_out(command, &sound));
            match done {
                Ok(None) => break,
                Ok(Some(answer)) => self.say(&answer),
                Err(error) => self.say(&format!("error {error}")),
            }
        }
        self.look();
    }

    fn carry_out(
        &mut self,
        command: Command,
        sound: impl Fn() -> Result<(), String>,
    ) -> Result<Option<String>, String> {
        match command {
            Command::Go => return Ok(None),
            Command::Stop(stop) => self.stop = Some(stop),
            Command::Register { core, number, bits } => {
                sound()?;
                let cpu = self.cores.state_of(core).ok_or("that core has not run")?;
                write(cpu, number, read(cpu, number) ^ bits);
            }
            Command::Timer(timer) => self.timer = Some(timer),
            Command::Ports(ports) => self.ports = Some(ports),
            Command::Memory(memory) => overlay::spoil(&memory)?,
            Command::Device(device) => overlay::miswrite(&device)?,
            Command::Vector(core) => {
                let vector = self.vectors.get(&core).copied().unwrap_or(0);
                return Ok(Some(format!("vector {vector}")));
            }
            Command::Pages(start, end) => {
                let pages = self.pages.range(start >> 12..end.div_ceil(4096));
                let pages = pages.map(|page| format!(" {:#x}", page << 12));
                return Ok(Some(format!("pages{}", pages.collect::<String>())));
            }
        }
        Ok(Some("ok".into()))
    }

    fn say(&mut self, line: &str) {
        // A reader that is gone is noticed at the next read.
        let _ = writeln!(self.socket.get_mut(), "{line}");
    }

    /// Sets from when on instructions are looked at.
    fn look(&self) {
        let at = self.stop.map_or(u64::MAX, |stop| stop.at);
        TARGET.store(if self.later.is_empty() { at } else { 0 }, Relaxed);
        ARMED.store(u64::from(self.ports.is_some()), Relaxed);
    }

    fn switch(&mut self, cpu: usize) {
        if cpu != CURRENT.load(Relaxed) {
            let mut counts = [0; CLASSES];
            counts[0] = COUNT.load(Relaxed);
            self.cores.switch(cpu, counts);
            CURRENT.store(cpu, Relaxed);
        }
    }

    /// Sets registers that were to be set behind the last instruction of this core.
    fn settle(&mut self, cpu: usize) {
        let before = self.later.len();
        self.later.retain(|&(own, number, value)| {
            if own == cpu {
                write(cpu, number, value);
            }
            own != cpu
        });
        if self.later.len() != before {
            self.look();
        }
    }
}

/// Counts an instruction of the system; the user data is its physical address. RBP is TCG_AREG0.
#[unsafe(naked)]
extern "C" fn step(_: c_uint, _: *mut c_void) {
    naked_asm!(
        "mov rax, [rip + {count}]",
        "inc rax",
        "mov [rip + {count}], rax",
        "cmp rax, [rip + {target}]",
        "jae 2f",
        "cmp rbp, [rip + {current}]",
        "jne 2f",
        "ret",
        "2: push rsi",
        "mov rdi, rbp",
        "call {slow}",
        "pop rsi",
        "ret",
        count = sym COUNT,
        target = sym TARGET,
        current = sym CURRENT,
        slow = sym slow,
    )
}

/// Counts a block of the firmware; the user data is its length.
#[unsafe(naked)]
extern "C" fn block(_: c_uint, _: *mut c_void) {
    naked_asm!(
        "add [rip + {count}], rsi",
        "cmp rbp, [rip + {current}]",
        "jne 2f",
        "ret",
        "2: push rsi",
        "mov rdi, rbp",
        "xor esi, esi",
        "call {slow}",
        "pop rsi",
        "ret",
        count = sym COUNT,
        current = sym CURRENT,
        slow = sym slow,
    )
}

/// An instruction that writes a register; there are few.
#[unsafe(naked)]
extern "C" fn writes(_: c_uint, _: *mut c_void) {
    naked_asm!(
        "push rsi",
        "mov rdi, rbp",
        "call {struck}",
        "pop rsi",
        "ret",
        struck = sym struck,
    )
}

/// An instruction that reads a port; the user data says which.
#[unsafe(naked)]
extern "C" fn reads(_: c_uint, _: *mut c_void) {
    naked_asm!(
        "cmp qword ptr [rip + {armed}], 0",
        "jne 2f",
        "ret",
        "2: push rsi",
        "mov rdi, rbp",
        "call {struck}",
        "pop rsi",
        "ret",
        armed = sym ARMED,
        struck = sym struck,
    )
}

fn control() -> Option<(&'static Plugin, &'static Control)> {
    let plugin = PLUGIN.get()?;
    Some((plugin, plugin.control.as_ref()?))
}

extern "C" fn slow(cpu: usize, pa: u64) {
    let Some((plugin, control)) = control() else { return };
    let mut state = control.state();
    state.switch(cpu);
    state.settle(cpu);
    let number = COUNT.load(Relaxed);
    let (core, _) = state.cores.running();
    if state.stop.as_mut().is_some_and(|stop| stop.fits(number, core, pa, || plugin.ring())) {
        state.say(&format!("at {number} {core} {pa:#x} {:#x}", plugin.cr3()));
        state.obey(|| match plugin.rax() == read(cpu, 0) {
            true => Ok(()),
            false => Err("registers of this QEMU are elsewhere".into()),
        });
    }
}

/// User data: WRMSR, or an IN of a width with a port, 0x1_0000 where DX has it.
const WRMSR: usize = 1 << 32;
const IN_DX: usize = 1 << 16;

extern "C" fn struck(cpu: usize, what: usize) {
    let Some((_, control)) = control() else { return };
    let mut state = control.state();
    let (core, _) = state.cores.running();
    let (rax, rcx, rdx) = (read(cpu, 0), read(cpu, 1), read(cpu, 2));
    if what == WRMSR {
        if rcx as u32 == strike::LVT_TIMER {
            state.vectors.insert(core, rax as u8);
        }
        let value = rdx << 32 | rax & u64::from(u32::MAX);
        let own = state.timer.filter(|t| t.core == core && strike::arms_timer(rcx as u32));
        let Some(timer) = own.filter(|_| value != 0) else { return };
        let instead = timer.instead_of(rcx as u32, value);
        write(cpu, 0, instead & u64::from(u32::MAX));
        write(cpu, 2, instead >> 32);
        state.timer = None;
        // The program gets back what it had.
        state.later.extend([(cpu, 0, rax), (cpu, 2, rdx)]);
    } else {
        let port = if what & IN_DX != 0 { rdx as u16 } else { what as u16 };
        let width = what >> 20;
        let Some(ports) = &mut state.ports else { return };
        if ports.core != core || !(ports.ports.0..=ports.ports.1).contains(&port) {
            return;
        }
        let answer = ports.answers.instead();
        if ports.answers.reads == 0 {
            state.ports = None;
        }
        let Some(answer) = answer else { return };
        let mask = if width == 4 { u64::MAX } else { (1 << (8 * width)) - 1 };
        let kept = if width == 4 { 0 } else { rax & !mask };
        let mask = if width == 4 { u64::from(u32::MAX) } else { mask };
        state.later.push((cpu, 0, kept | answer & mask));
    }
    state.look();
}

/// A helper function touched memory: here `vcpu` is the core that runs.
extern "C" fn on_helper(vcpu: c_uint, _: sys::qemu_plugin_meminfo_t, _: u64, _: *mut c_void) {
    if let Some((_, control)) = control() {
        control.state().cores.identify(vcpu);
    }
}

/// An instruction of a block: its handle, its bytes, its physical address.
pub struct Instruction<'a> {
    pub handle: *mut sys::qemu_plugin_insn,
    pub text: &'a [u8],
    pub pa: Option<u64>,
}

/// Registers the callbacks of a block.
pub fn translate(control: &Control, instructions: &[Instruction]) {
    let is_system = |pa: u64| pa >= SYSTEM;
    let first = instructions.first().and_then(|i| i.pa);
    let system = first.is_some_and(is_system);
    if system {
        let mut state = control.state();
        state.pages.extend(instructions.iter().filter_map(|i| Some(i.pa? >> 12)));
    }
    for (n, instruction) in instructions.iter().enumerate() {
        match (system, n) {
            (true, _) => call(instruction, step, instruction.pa.unwrap_or(0) as usize, true),
            (false, 0) => call(instruction, block, instructions.len(), false),
            _ => {}
        }
        if system && strike::writes_register(instruction.text) {
            call(instruction, writes, WRMSR, true);
        }
        if let Some((width, port)) = strike::reads_port(instruction.text).filter(|_| system) {
            let port = port.map_or(IN_DX, usize::from);
            call(instruction, reads, (width as usize) << 20 | port, true);
        }
        if crate::batch::loads_descriptor(instruction.text) {
            // SAFETY: the handle is valid during translation; no user data.
            unsafe {
                sys::qemu_plugin_register_vcpu_mem_cb(
                    instruction.handle,
                    Some(on_helper),
                    sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS,
                    sys::qemu_plugin_mem_rw::QEMU_PLUGIN_MEM_RW,
                    std::ptr::null_mut(),
                );
            }
        }
    }
}

fn call(
    instruction: &Instruction,
    callback: extern "C" fn(c_uint, *mut c_void),
    data: usize,
    registers: bool,
) {
    let flags = match registers {
        true => sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_RW_REGS,
        false => sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS,
    };
    let data = std::ptr::without_provenance_mut(data);
    // SAFETY: the handle is valid during translation; the user data is a number.
    unsafe {
        sys::qemu_plugin_register_vcpu_insn_exec_cb(
            instruction.handle,
            Some(callback),
            flags,
            data,
        );
    }
}
