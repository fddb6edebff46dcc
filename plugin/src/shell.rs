//! The shell around the plugin: QEMU's interface, and all of the `unsafe`.
//!
//! QEMU 10.0 hands plugins the wrong core when several cores take turns in one thread, which is the meaning of
//! `-icount`. `gen_cpu_index` (accel/tcg/plugin-gen.c) takes "not parallel" for "one core". It bakes the index of the
//! core that *translated* a block into the block, for callbacks and for inline operations. The latter even multiply
//! that constant in place, which changes other constants of the block, and so the guest. Hence:
//!
//! * No inline operations. Callbacks count in a global array (one thread runs all cores). Whenever another core goes
//!   on, the counts are credited to the core before it ([`crate::cores`]).
//! * The running core is told by the host register in which generated code keeps its CPU state. It is preserved across
//!   calls, so a callback finds it there.
//! * That pointer's index comes from a memory callback out of a helper function, where QEMU passes the true one. Such
//!   helpers load descriptors, which every core does on its way into protected mode.

use crate::batch;
use crate::control::{self, Control};
use crate::cores::Cores;
use crate::gather::{CLASSES, Counters, Facts, Gathered};
use crate::options::Options;
use bulkhead_layout::marker;
use qemu_plugin_sys as sys;
use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("which host register holds the CPU state is known for x86-64 hosts only");

/// Tells QEMU which interface the plugin was built for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = sys::QEMU_PLUGIN_VERSION as c_int;

unsafe extern "C" {
    // From the GLib that QEMU is linked with.
    fn g_byte_array_new() -> *mut sys::GByteArray;
    fn g_byte_array_free(array: *mut sys::GByteArray, free_segment: c_int) -> *mut u8;
    fn g_array_free(array: *mut sys::GArray, free_segment: c_int) -> *mut c_char;
}

/// Instructions by class since the machine started, whichever core ran them.
static COUNTS: [AtomicU64; CLASSES] = [const { AtomicU64::new(0) }; CLASSES];
/// CPU state of the core that runs.
static CURRENT: AtomicUsize = AtomicUsize::new(0);

/// Opaque handle of a register.
#[derive(Clone, Copy)]
struct Handle(*mut sys::qemu_plugin_register);
// SAFETY: an opaque number for QEMU, used on vCPU threads only.
unsafe impl Send for Handle {}
// SAFETY: an opaque number for QEMU, used on vCPU threads only.
unsafe impl Sync for Handle {}

/// The plugin.
pub struct Plugin {
    options: Options,
    /// RAX, CR3 and CS.
    registers: OnceLock<[Handle; 3]>,
    /// Where the machine is stopped.
    pub control: Option<Control>,
    /// Files of [`Options::cover`].
    covered: Vec<Option<File>>,
    /// Where QEMU has mapped the RAM file: virtual range, file offset.
    ram: OnceLock<Vec<(u64, u64, u64)>>,
    state: Mutex<State>,
    /// How often the file was written at a marker.
    dumps: AtomicUsize,
}

/// State that callbacks change.
struct State {
    cores: Cores,
    gathered: Gathered,
}

pub static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// Counts a batch: instructions in the upper bits of the user data, the class's
/// offset in `COUNTS` in the low byte.
#[unsafe(naked)]
extern "C" fn count(_: c_uint, _: *mut c_void) {
    naked_asm!(
        "movzx eax, sil",
        "shr rsi, 8",
        "lea rdx, [rip + {counts}]",
        "add [rdx + rax], rsi",
        "ret",
        counts = sym COUNTS,
    )
}

/// Counts at the start of a block, where another core may have taken over. RBP is TCG_AREG0 (tcg/i386/tcg-target.h).
#[unsafe(naked)]
extern "C" fn count_first(_: c_uint, _: *mut c_void) {
    naked_asm!(
        "cmp rbp, [rip + {current}]",
        "jne 2f",
        "movzx eax, sil",
        "shr rsi, 8",
        "lea rdx, [rip + {counts}]",
        "add [rdx + rax], rsi",
        "ret",
        "2: push rsi",
        "mov rdi, rbp",
        "call {switch}",
        "pop rsi",
        "jmp {count}",
        current = sym CURRENT,
        counts = sym COUNTS,
        switch = sym switch,
        count = sym count,
    )
}

/// Another core goes on.
extern "C" fn switch(cpu: usize) {
    if let Some(plugin) = PLUGIN.get() {
        let new = plugin.state().cores.switch(cpu, counts());
        if let Some(frequencies) = plugin.options.clocks.filter(|_| new) {
            tell_clocks(cpu, frequencies);
        }
    }
    CURRENT.store(cpu, Relaxed);
}

/// Fills in the timer frequency that TCG leaves 0 in a core's state. So QEMU's VMware port answers a kernel on the bare
/// machine as a monitor answers one in a sandbox. `CPUX86State` (target/i386/cpu.h) has `tsc_khz`, `user_tsc_khz`,
/// `apic_bus_freq` in a row; `tsc-frequency` sets the first two.
fn tell_clocks(cpu: usize, (tsc_khz, timer_hz): (u64, u64)) {
    /// Words of the state that are searched: it is larger than that.
    const WORDS: usize = 2048;
    let state = cpu as *mut u64;
    for n in 0..WORDS - 2 {
        // SAFETY: the state of a live core, at least `WORDS` long; the thread
        // that runs the core is this one.
        unsafe {
            let at = |k: usize| state.add(n + k);
            if *at(0) == tsc_khz && *at(1) == tsc_khz && *at(2) == 0 {
                *at(2) = timer_hz;
                return;
            }
        }
    }
    eprintln!("bulkhead plugin: no clock frequencies in a core's state; is tsc-frequency set?");
}

/// A helper function touched memory: here `vcpu` is the core that runs.
extern "C" fn on_helper(vcpu: c_uint, _: sys::qemu_plugin_meminfo_t, _: u64, _: *mut c_void) {
    if let Some(plugin) = PLUGIN.get() {
        plugin.state().cores.identify(vcpu);
    }
}

fn counts() -> [u64; CLASSES] {
    std::array::from_fn(|class| COUNTS[class].load(Relaxed))
}

impl State {
    /// The running core's index and counters.
    fn running(&mut self) -> (u32, Counters) {
        self.cores.credit(counts());
        self.cores.running()
    }
}

impl Plugin {
    /// RAX of the core that is executing a callback with register access.
    pub fn rax(&self) -> u64 {
        self.register(0)
    }

    /// Its CR3.
    pub fn cr3(&self) -> u64 {
        self.register(1)
    }

    /// Its privilege level, which is the low bits of its CS (SDM volume 3, 6.5).
    pub fn ring(&self) -> u8 {
        self.register(2) as u8 & 3
    }

    fn register(&self, which: usize) -> u64 {
        let Some(handle) = self.registers.get().map(|all| all[which]) else {
            return 0;
        };
        if handle.0.is_null() {
            return 0;
        }
        // SAFETY: a fresh GByteArray is handed in and freed here; the callback was
        // registered with QEMU_PLUGIN_CB_R_REGS; `data` has `len` bytes.
        unsafe {
            let array = g_byte_array_new();
            sys::qemu_plugin_read_register(handle.0, array);
            let bytes = std::slice::from_raw_parts((*array).data, (*array).len as usize);
            // CS has 4 bytes, the others 8.
            let value = bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
            g_byte_array_free(array, 1);
            value
        }
    }

    /// Where the RAM file is mapped.
    fn ram(&self) -> Option<&[(u64, u64, u64)]> {
        let path = self.options.ram.as_deref()?;
        Some(self.ram.get_or_init(|| mappings(path)))
    }

    /// The words that events carry; one outside the RAM reads 0.
    fn words(&self) -> Vec<u64> {
        let words = self.options.words.iter();
        words.map(|&pa| self.word(pa).unwrap_or(0)).collect()
    }

    fn word(&self, pa: u64) -> Option<u64> {
        // SAFETY: inside a mapping of the RAM that QEMU keeps as long as it runs;
        // guests write there, but on this thread.
        Some(unsafe { std::ptr::read_volatile(self.place(pa)?) })
    }

    /// Where a word of RAM is mapped.
    fn place(&self, pa: u64) -> Option<*const u64> {
        let split = self.options.split;
        let at = if pa < split { pa } else { pa.checked_sub(1 << 32)? + split };
        let inside = |&&(start, end, offset): &&(u64, u64, u64)| {
            offset <= at && at + 8 <= offset + (end - start)
        };
        let (start, _, offset) = self.ram()?.iter().find(inside)?;
        Some((start + at - offset) as *const u64)
    }

    /// Physical address of an instruction, from where it lies in QEMU.
    fn physical(&self, host: u64) -> Option<u64> {
        let ram = self.ram()?;
        let (start, _, offset) =
            ram.iter().find(|(start, end, _)| (*start..*end).contains(&host))?;
        let at = host - start + offset;
        let split = self.options.split;
        Some(if at < split { at } else { at - split + (1 << 32) })
    }

    /// Notes that an instruction is translated, which is when it is about to run for the first time, or again after
    /// it was forgotten. The first one counts, and is told to the machine.
    fn cover(&self, pa: u64, len: usize) {
        for (cover, file) in self.options.cover.iter().zip(&self.covered) {
            let (true, Some(file)) = ((cover.text.0..cover.text.1).contains(&pa), file) else {
                continue;
            };
            let at = pa - cover.text.0;
            let mut byte = [0];
            if file.read_exact_at(&mut byte, at).is_ok() && byte != [0] {
                continue;
            }
            if file.write_all_at(&vec![1; len], at).is_err() {
                eprintln!("bulkhead plugin: {}: cannot be written", cover.file);
            }
            if let Some(news) = self.place(cover.news) {
                // SAFETY: 8 aligned bytes of RAM that QEMU keeps mapped, writable; all accesses there are atomic.
                unsafe { AtomicU64::from_ptr(news.cast_mut()) }.fetch_add(1, Relaxed);
            }
        }
    }

    /// Writes the file; at a marker, also as the one with its number.
    fn write(&self, dump: Option<usize>) {
        let mut state = self.state();
        state.cores.credit(counts());
        let text = state.gathered.lines(&state.cores.all());
        drop(state);
        let out = &self.options.out;
        let new = format!("{out}.new");
        let own = dump.map_or(Ok(()), |dump| std::fs::write(format!("{out}.{dump}"), &text));
        // Renamed, so that a program that waits for the file sees all of it or none.
        let done = own.and_then(|()| std::fs::write(&new, text));
        if let Err(error) = done.and_then(|()| std::fs::rename(&new, out)) {
            eprintln!("bulkhead plugin: {out}: {error}");
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where this process has mapped a file: virtual start and end, file offset.
fn mappings(path: &str) -> Vec<(u64, u64, u64)> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let path = path.to_string_lossy();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let found: Vec<_> = maps
        .lines()
        .filter(|line| line.split_whitespace().nth(5) == Some(&*path))
        .filter_map(mapping)
        .collect();
    if found.is_empty() {
        eprintln!("bulkhead plugin: {path} is not mapped; ranges will count nothing");
    }
    found
}

/// `start-end perms offset device inode path`.
fn mapping(line: &str) -> Option<(u64, u64, u64)> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    Some((hex(start)?, hex(end)?, hex(words.nth(1)?)?))
}

extern "C" fn on_vcpu(_: sys::qemu_plugin_id_t, _: c_uint) {
    let Some(plugin) = PLUGIN.get() else { return };
    plugin.registers.get_or_init(|| {
        // SAFETY: called from a vCPU's init callback as QEMU asks; the array has
        // `len` descriptors, and their handles outlive it.
        unsafe {
            let array = sys::qemu_plugin_get_registers();
            let descriptors = std::slice::from_raw_parts(
                (*array).data.cast::<sys::qemu_plugin_reg_descriptor>(),
                (*array).len as usize,
            );
            let named = |name: &CStr| {
                let found = descriptors.iter().find(|d| CStr::from_ptr(d.name) == name);
                Handle(found.map_or(std::ptr::null_mut(), |d| d.handle))
            };
            let handles = [named(c"rax"), named(c"cr3"), named(c"cs")];
            g_array_free(array, 1);
            handles
        }
    });
}

/// An instruction, as far as it matters here.
struct Instruction {
    handle: *mut sys::qemu_plugin_insn,
    bytes: [u8; 16],
    len: usize,
    physical: Option<u64>,
}

impl Instruction {
    fn of(plugin: &Plugin, handle: *mut sys::qemu_plugin_insn) -> Self {
        let mut bytes = [0; 16];
        // SAFETY: `handle` is valid during translation, the buffer has the length given.
        let (len, host) = unsafe {
            (
                sys::qemu_plugin_insn_data(handle, bytes.as_mut_ptr().cast(), bytes.len()),
                sys::qemu_plugin_insn_haddr(handle) as u64,
            )
        };
        let physical = plugin.physical(host);
        Self { handle, bytes, len, physical }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// True if its execution leaves something behind beyond a count.
    fn is_watched(&self, plugin: &Plugin) -> bool {
        let physical = |(_, at): &(u16, u64)| self.physical == Some(*at);
        marker::decode(self.text()).is_some() || plugin.options.watch.iter().any(physical)
    }

    /// Calls back when the instruction is about to run. The user data is a
    /// number, never a pointer.
    fn call(&self, callback: extern "C" fn(c_uint, *mut c_void), registers: bool, data: usize) {
        let flags = if registers {
            sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_R_REGS
        } else {
            sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS
        };
        let data = std::ptr::without_provenance_mut(data);
        // SAFETY: `handle` is valid during translation.
        unsafe {
            sys::qemu_plugin_register_vcpu_insn_exec_cb(self.handle, Some(callback), flags, data);
        }
    }
}

extern "C" fn on_translate(_: sys::qemu_plugin_id_t, tb: *mut sys::qemu_plugin_tb) {
    let Some(plugin) = PLUGIN.get() else { return };
    // SAFETY: `tb` is valid during this callback.
    let count = unsafe { sys::qemu_plugin_tb_n_insns(tb) };
    let block: Vec<Instruction> = (0..count)
        // SAFETY: `n` is below the number of instructions.
        .map(|n| Instruction::of(plugin, unsafe { sys::qemu_plugin_tb_get_insn(tb, n) }))
        .collect();
    if let Some(control) = &plugin.control {
        let block: Vec<_> = block
            .iter()
            .map(|i| control::Instruction { handle: i.handle, text: i.text(), pa: i.physical })
            .collect();
        return control::translate(control, &block);
    }
    if !plugin.options.cover.is_empty() {
        let placed = block.iter().filter_map(|insn| Some((insn.physical?, insn.len)));
        placed.for_each(|(pa, len)| plugin.cover(pa, len));
        return;
    }
    let classes = block.iter().map(|insn| {
        let class = insn.physical.map_or(0, |pa| plugin.options.class(pa));
        // A marker closes its batch, so that it sees nothing counted ahead.
        (class, batch::ends(insn.text()) || insn.is_watched(plugin))
    });
    for (first, len, class) in batch::batches(classes) {
        let shim = if first == 0 { count_first } else { self::count };
        block[first].call(shim, false, (len << 8) | (class * size_of::<u64>()));
    }
    // Registered after the counters: a callback sees its own instruction counted.
    block.iter().for_each(|insn| watch(plugin, insn));
}

/// Callbacks of instructions that mean something.
fn watch(plugin: &Plugin, insn: &Instruction) {
    if insn.text() == batch::VMRUN {
        insn.call(on_vmrun, false, 0);
    }
    if let Some(code) = marker::decode(insn.text()) {
        insn.call(on_marker, true, code.into());
    }
    for (id, address) in &plugin.options.watch {
        if insn.physical == Some(*address) {
            insn.call(on_marker, true, (marker::EVENT | id).into());
        }
    }
    if batch::loads_descriptor(insn.text()) {
        // SAFETY: the handle is valid during translation; no user data.
        unsafe {
            sys::qemu_plugin_register_vcpu_mem_cb(
                insn.handle,
                Some(on_helper),
                sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS,
                sys::qemu_plugin_mem_rw::QEMU_PLUGIN_MEM_RW,
                std::ptr::null_mut(),
            );
        }
    }
}

extern "C" fn on_marker(_: c_uint, code: *mut c_void) {
    let Some(plugin) = PLUGIN.get() else { return };
    let value = plugin.rax();
    let mut guard = plugin.state();
    let state = &mut *guard;
    let (vcpu, at) = state.running();
    let cores = &state.cores;
    let facts = || Facts { words: plugin.words(), cores: cores.totals() };
    let write = state.gathered.mark(code.addr() as u16, vcpu, at, value, facts);
    drop(guard);
    if write {
        let dump = plugin.dumps.fetch_add(1, Relaxed);
        plugin.write(Some(dump));
    }
}

extern "C" fn on_vmrun(_: c_uint, _: *mut c_void) {
    let Some(plugin) = PLUGIN.get() else { return };
    let mut state = plugin.state();
    state.cores.vmrun();
    let (vcpu, at) = state.running();
    state.gathered.entry(vcpu, at);
}

extern "C" fn on_exit(_: sys::qemu_plugin_id_t, _: *mut c_void) {
    // The cores' progress while QEMU stops differs from run to run, so the state at a DUMP marker is the one to keep.
    if let Some(plugin) = PLUGIN.get()
        && plugin.options.cover.is_empty()
        && plugin.control.is_none()
        && plugin.dumps.load(Relaxed) == 0
    {
        plugin.write(None);
    }
}

/// Called by QEMU once, before the machine runs.
///
/// # Safety
/// `argv` points to `argc` C strings, as QEMU promises.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: sys::qemu_plugin_id_t,
    _: *const sys::qemu_info_t,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let arguments = (0..argc.cast_unsigned() as usize).map(|n| {
        // SAFETY: `n` is below `argc`, see above; QEMU keeps the strings.
        unsafe { CStr::from_ptr(*argv.add(n)) }.to_str().unwrap_or("")
    });
    match Options::parse(arguments).and_then(|options| install(id, options)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("bulkhead plugin: {error}");
            1
        }
    }
}

/// A file of a text's coverage, all zero.
fn empty(path: &str) -> Option<File> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    file.map_err(|error| eprintln!("bulkhead plugin: {path}: {error}")).ok()
}

fn install(id: sys::qemu_plugin_id_t, options: Options) -> Result<(), String> {
    let connect = |path: &String| Control::new(path).map_err(|error| format!("{path}: {error}"));
    let control = options.control.as_ref().map(connect).transpose()?;
    let state = State { cores: Cores::default(), gathered: Gathered::new(options.names.clone()) };
    let _ = PLUGIN.set(Plugin {
        covered: options.cover.iter().map(|cover| empty(&cover.file)).collect(),
        options,
        registers: OnceLock::new(),
        control,
        ram: OnceLock::new(),
        state: Mutex::new(state),
        dumps: AtomicUsize::new(0),
    });
    // SAFETY: `id` is ours, the callbacks have the types that QEMU asks for.
    unsafe {
        sys::qemu_plugin_register_vcpu_init_cb(id, Some(on_vcpu));
        sys::qemu_plugin_register_vcpu_tb_trans_cb(id, Some(on_translate));
        sys::qemu_plugin_register_atexit_cb(id, Some(on_exit), std::ptr::null_mut());
    }
    Ok(())
}
