//! The shell around the plugin: QEMU's interface, and all of the `unsafe`.

use crate::gather::{CLASSES, Counters, Gathered};
use crate::options::Options;
use bulkhead_layout::marker;
use qemu_plugin_sys as sys;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Tells QEMU which interface the plugin was built for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = sys::QEMU_PLUGIN_VERSION as c_int;

/// VMRUN (AMD64 APM volume 3).
const VMRUN: [u8; 3] = [0x0F, 0x01, 0xD8];

unsafe extern "C" {
    // From the GLib that QEMU is linked with.
    fn g_byte_array_new() -> *mut sys::GByteArray;
    fn g_byte_array_free(array: *mut sys::GByteArray, free_segment: c_int) -> *mut u8;
    fn g_array_free(array: *mut sys::GArray, free_segment: c_int) -> *mut c_char;
}

/// Pointers that QEMU hands out and that any of its threads may use.
#[derive(Clone, Copy)]
struct Handle<T>(*mut T);
// SAFETY: QEMU's scoreboards and register handles are opaque to the plugin, and
// its functions that take them may be called from every vCPU thread.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// The plugin.
struct Plugin {
    options: Options,
    board: Handle<sys::qemu_plugin_scoreboard>,
    rax: OnceLock<Handle<sys::qemu_plugin_register>>,
    /// Where QEMU has mapped the RAM file: virtual range, file offset.
    ram: OnceLock<Vec<(u64, u64, u64)>>,
    gathered: Mutex<Gathered>,
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

impl Plugin {
    fn counters(&self, vcpu: c_uint) -> Counters {
        // SAFETY: the scoreboard's elements are `Counters` (see `install`), `vcpu`
        // exists because it calls us or is below qemu_plugin_num_vcpus, and the
        // value is copied out before QEMU could resize the board.
        unsafe { *sys::qemu_plugin_scoreboard_find(self.board.0, vcpu).cast::<Counters>() }
    }

    /// One of a core's counters, for inline operations.
    fn counter(&self, offset: usize) -> sys::qemu_plugin_u64 {
        sys::qemu_plugin_u64 {
            score: self.board.0,
            offset,
        }
    }

    /// RAX of the core that is executing a callback with register access.
    fn rax(&self) -> u64 {
        let Some(handle) = self.rax.get() else {
            return 0;
        };
        // SAFETY: a fresh GByteArray is handed in and freed here; the callback was
        // registered with QEMU_PLUGIN_CB_R_REGS; `data` has `len` bytes.
        unsafe {
            let array = g_byte_array_new();
            sys::qemu_plugin_read_register(handle.0, array);
            let bytes = std::slice::from_raw_parts((*array).data, (*array).len as usize);
            let value = bytes.try_into().map_or(0, u64::from_le_bytes);
            g_byte_array_free(array, 1);
            value
        }
    }

    /// Physical address of an instruction, from where it lies in QEMU.
    fn physical(&self, host: u64) -> Option<u64> {
        let path = self.options.ram.as_deref()?;
        let ram = self.ram.get_or_init(|| mappings(path));
        let (start, _, offset) = ram
            .iter()
            .find(|(start, end, _)| (*start..*end).contains(&host))?;
        let at = host - start + offset;
        let split = self.options.split;
        Some(if at < split {
            at
        } else {
            at - split + (1 << 32)
        })
    }

    fn write(&self) {
        // SAFETY: takes no argument, reads a counter of QEMU's.
        let vcpus = unsafe { sys::qemu_plugin_num_vcpus() };
        let vcpus: Vec<Counters> = (0..vcpus.cast_unsigned())
            .map(|n| self.counters(n))
            .collect();
        let text = self.gathered().lines(&vcpus);
        let out = &self.options.out;
        let new = format!("{out}.new");
        // Renamed, so that whoever waits for the file sees all of it or none.
        let done = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, out));
        if let Err(error) = done {
            eprintln!("bulkhead plugin: {out}: {error}");
        }
    }

    fn gathered(&self) -> std::sync::MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
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
    plugin.rax.get_or_init(|| {
        // SAFETY: called from a vCPU's init callback as QEMU asks; the array has
        // `len` descriptors, and their handles outlive it.
        unsafe {
            let array = sys::qemu_plugin_get_registers();
            let descriptors = std::slice::from_raw_parts(
                (*array).data.cast::<sys::qemu_plugin_reg_descriptor>(),
                (*array).len as usize,
            );
            let rax = descriptors
                .iter()
                .find(|d| CStr::from_ptr(d.name) == c"rax");
            let handle = rax.map_or(std::ptr::null_mut(), |d| d.handle);
            g_array_free(array, 1);
            Handle(handle)
        }
    });
}

extern "C" fn on_translate(_: sys::qemu_plugin_id_t, tb: *mut sys::qemu_plugin_tb) {
    let Some(plugin) = PLUGIN.get() else { return };
    // SAFETY: `tb` is valid during this callback.
    let count = unsafe { sys::qemu_plugin_tb_n_insns(tb) };
    for n in 0..count {
        // SAFETY: `n` is below the number of instructions.
        instrument(plugin, unsafe { sys::qemu_plugin_tb_get_insn(tb, n) });
    }
}

fn instrument(plugin: &Plugin, insn: *mut sys::qemu_plugin_insn) {
    let mut bytes = [0u8; 16];
    // SAFETY: `insn` is valid during translation, the buffer has the length given.
    let (len, host) = unsafe {
        (
            sys::qemu_plugin_insn_data(insn, bytes.as_mut_ptr().cast(), bytes.len()),
            sys::qemu_plugin_insn_haddr(insn) as u64,
        )
    };
    let physical = plugin.physical(host);
    let class = physical.map_or(0, |pa| plugin.options.class(pa));
    // The counter comes first: callbacks see their own instruction counted.
    count(insn, plugin.counter(class * size_of::<u64>()));
    let text = &bytes[..len];
    if text == VMRUN {
        count(insn, plugin.counter(CLASSES * size_of::<u64>()));
        call(insn, on_vmrun, 0);
    }
    if let Some(code) = marker::decode(text) {
        call(insn, on_marker, code);
    }
    for (id, address) in &plugin.options.watch {
        if physical == Some(*address) {
            call(insn, on_marker, marker::EVENT | id);
        }
    }
}

fn count(insn: *mut sys::qemu_plugin_insn, counter: sys::qemu_plugin_u64) {
    // SAFETY: `insn` is valid during translation, the counter lies in a board that is never freed.
    unsafe {
        sys::qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
            insn,
            sys::qemu_plugin_op::QEMU_PLUGIN_INLINE_ADD_U64,
            counter,
            1,
        );
    }
}

fn call(insn: *mut sys::qemu_plugin_insn, callback: extern "C" fn(c_uint, *mut c_void), code: u16) {
    // SAFETY: `insn` is valid during translation; the user data is a number, never a pointer.
    unsafe {
        sys::qemu_plugin_register_vcpu_insn_exec_cb(
            insn,
            Some(callback),
            sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_R_REGS,
            std::ptr::without_provenance_mut(code.into()),
        );
    }
}

extern "C" fn on_marker(vcpu: c_uint, code: *mut c_void) {
    let Some(plugin) = PLUGIN.get() else { return };
    let (at, value) = (plugin.counters(vcpu), plugin.rax());
    let write = plugin.gathered().mark(code.addr() as u16, vcpu, at, value);
    if write {
        plugin.write();
    }
}

extern "C" fn on_vmrun(vcpu: c_uint, _: *mut c_void) {
    let Some(plugin) = PLUGIN.get() else { return };
    plugin.gathered().entry(vcpu, plugin.counters(vcpu));
}

extern "C" fn on_exit(_: sys::qemu_plugin_id_t, _: *mut c_void) {
    if let Some(plugin) = PLUGIN.get() {
        plugin.write();
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
        unsafe { CStr::from_ptr(*argv.add(n)) }
            .to_str()
            .unwrap_or("")
    });
    match Options::parse(arguments) {
        Ok(options) => {
            install(id, options);
            0
        }
        Err(error) => {
            eprintln!("bulkhead plugin: {error}");
            1
        }
    }
}

fn install(id: sys::qemu_plugin_id_t, options: Options) {
    // SAFETY: a size is handed in, a handle that is never freed comes back. The
    // elements start as zeros, which is a valid `Counters`.
    let board = unsafe { sys::qemu_plugin_scoreboard_new(size_of::<Counters>()) };
    let gathered = Gathered::new(options.names.clone());
    let _ = PLUGIN.set(Plugin {
        options,
        board: Handle(board),
        rax: OnceLock::new(),
        ram: OnceLock::new(),
        gathered: Mutex::new(gathered),
    });
    // SAFETY: `id` is ours, the callbacks have the types that QEMU asks for.
    unsafe {
        sys::qemu_plugin_register_vcpu_init_cb(id, Some(on_vcpu));
        sys::qemu_plugin_register_vcpu_tb_trans_cb(id, Some(on_translate));
        sys::qemu_plugin_register_atexit_cb(id, Some(on_exit), std::ptr::null_mut());
    }
}
