//! Faults in devices that have memory, and in what devices write. QEMU's plugin interface has no word for either, so
//! these call QEMU's own functions. Debian's QEMU exports them for its modules; one that does not is refused.
//!
//! * A range of the machine's memory with registers gets a region before it, which answers reads wrongly as long as the
//!   fault lasts. All else goes on to what lies behind it.
//! * A device reaches memory through an address space of its own, behind its IOMMU. There a region is put before the
//!   pages that it may write. One of its writes has a wrong bit, and all go on through the IOMMU.
//!
//! A stopped machine is the only one that gets regions: their place in the run depends on the count of instructions.
//! State of faults has a lock of its own, which nobody holds where QEMU's lock is taken: devices work under that one.

use crate::strike::{Answers, Device, Memory, Written};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::sync::{Mutex, OnceLock, PoisonError};

unsafe extern "C" {
    // From the C library that QEMU is linked with.
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// An object of QEMU's, by its address.
type Object = *mut c_void;

/// `MemTxAttrs`: at most 8 bytes, which go through as they are.
type Attributes = u64;

/// `MemoryRegionSection` (include/exec/memory.h), with room behind it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Section {
    size: u128,
    region: Object,
    view: Object,
    in_region: u64,
    in_space: u64,
    rest: [u64; 8],
}

/// Sizes of accesses, in `MemoryRegionOps`.
#[repr(C)]
struct Valid {
    min: c_uint,
    max: c_uint,
    unaligned: bool,
    accepts: usize,
}

#[repr(C)]
struct Own {
    min: c_uint,
    max: c_uint,
    unaligned: bool,
}

/// `MemoryRegionOps`. The zero of `endianness` is the target's own order.
#[repr(C)]
struct Operations {
    read: usize,
    write: usize,
    read_with_attributes: extern "C" fn(Object, u64, *mut u64, c_uint, Attributes) -> u32,
    write_with_attributes: extern "C" fn(Object, u64, u64, c_uint, Attributes) -> u32,
    endianness: c_int,
    valid: Valid,
    own: Own,
}

const fn operations(
    read: extern "C" fn(Object, u64, *mut u64, c_uint, Attributes) -> u32,
    write: extern "C" fn(Object, u64, u64, c_uint, Attributes) -> u32,
) -> Operations {
    Operations {
        read: 0,
        write: 0,
        read_with_attributes: read,
        write_with_attributes: write,
        endianness: 0,
        valid: Valid { min: 1, max: 8, unaligned: true, accepts: 0 },
        own: Own { min: 1, max: 8, unaligned: true },
    }
}

static REGISTERS: Operations = operations(read_register, write_register);
static TRANSFERS: Operations = operations(read_memory, write_memory);

/// Functions of QEMU's.
struct Qemu {
    lock: extern "C" fn(*const c_char, c_int),
    unlock: extern "C" fn(),
    is_locked: extern "C" fn() -> bool,
    system: extern "C" fn() -> Object,
    find: extern "C" fn(Object, u64, u64) -> Section,
    init: extern "C" fn(Object, Object, *const Operations, Object, *const c_char, u64),
    put: extern "C" fn(Object, u64, Object, c_int),
    read: extern "C" fn(Object, u64, *mut u64, c_uint, Attributes) -> u32,
    write: extern "C" fn(Object, u64, u64, c_uint, Attributes) -> u32,
    space: extern "C" fn(Object, Object, *const c_char),
    access: extern "C" fn(Object, u64, Attributes, *mut c_void, u64, bool) -> u32,
    object: extern "C" fn(*const c_char, *mut bool) -> Object,
    device: extern "C" fn(Object, c_int, u8) -> Object,
    space_of: extern "C" fn(Object) -> Object,
}

impl Qemu {
    fn get() -> Result<&'static Self, String> {
        static FOUND: OnceLock<Result<Qemu, String>> = OnceLock::new();
        FOUND.get_or_init(Self::find_all).as_ref().map_err(Clone::clone)
    }

    fn find_all() -> Result<Self, String> {
        // SAFETY: each has the type that QEMU 10.0 declares (include/exec/memory.h, include/hw/pci/pci.h,
        // include/qemu/main-loop.h, include/qom/object.h).
        let qemu = unsafe {
            Self {
                lock: function(c"bql_lock_impl")?,
                unlock: function(c"bql_unlock")?,
                is_locked: function(c"bql_locked")?,
                system: function(c"get_system_memory")?,
                find: function(c"memory_region_find")?,
                init: function(c"memory_region_init_io")?,
                put: function(c"memory_region_add_subregion_overlap")?,
                read: function(c"memory_region_dispatch_read")?,
                write: function(c"memory_region_dispatch_write")?,
                space: function(c"address_space_init")?,
                access: function(c"address_space_rw")?,
                object: function(c"object_resolve_path")?,
                device: function(c"pci_find_device")?,
                space_of: function(c"pci_device_iommu_address_space")?,
            }
        };
        // SAFETY: the address space of the cores.
        let memory: Object = unsafe { function(c"address_space_memory")? };
        match root(memory) == (qemu.system)() {
            true => Ok(qemu),
            false => Err("address spaces of this QEMU look otherwise".into()),
        }
    }

    /// Does something under QEMU's lock.
    fn locked<T>(&self, act: impl FnOnce() -> T) -> T {
        let own = !(self.is_locked)();
        if own {
            (self.lock)(c"bulkhead plugin".as_ptr(), 0);
        }
        let done = act();
        if own {
            (self.unlock)();
        }
        done
    }

    /// Puts a region before others.
    fn cover(&self, root: Object, own: &Range, operations: &'static Operations, at: Object) {
        /// Above the priorities of all of QEMU's regions.
        const FIRST: c_int = 1 << 20;
        let region = room();
        let (none, name) = (std::ptr::null_mut(), c"fault".as_ptr());
        (self.init)(region, none, operations, at, name, own.end - own.start);
        (self.put)(root, own.start, region, FIRST);
    }
}

/// Looks a name of QEMU's up.
///
/// # Safety
/// `T` is a pointer, to what has that name.
unsafe fn function<T>(name: &CStr) -> Result<T, String> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    // SAFETY: a null handle searches the program and its libraries; the name is a C string.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    match found.is_null() {
        true => {
            Err(format!("this QEMU has no {}: it is built without modules", name.to_string_lossy()))
        }
        // SAFETY: of one size, and the caller says of one type.
        false => Ok(unsafe { transmute_copy(&found) }),
    }
}

/// `AddressSpace::root`, behind `rcu` and `name`. [`Qemu::find_all`] compares that of the machine's memory.
fn root(space: Object) -> Object {
    // SAFETY: an address space of QEMU's, which is longer than that.
    unsafe { space.cast::<Object>().add(3).read() }
}

/// Zeroed memory for an object of QEMU's, which stays. The largest one has some 300 bytes.
fn room() -> Object {
    Box::leak(Box::new([0u128; 256])).as_mut_ptr().cast()
}

/// Addresses.
struct Range {
    start: u64,
    end: u64,
}

/// A device's region, or an address space, that lies behind a region of ours.
struct Behind {
    region: Object,
    at: u64,
}

/// Faults that are struck.
#[derive(Default)]
struct State {
    answers: Option<Answers>,
    written: Option<Written>,
}

static STATE: Mutex<State> = Mutex::new(State { answers: None, written: None });

fn state() -> std::sync::MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads of a device's memory have other answers.
pub fn spoil(memory: &Memory) -> Result<(), String> {
    let qemu = Qemu::get()?;
    let mut left = Range { start: memory.start, end: memory.end };
    qemu.locked(|| {
        let system = (qemu.system)();
        while left.start < left.end {
            let section = (qemu.find)(system, left.start, left.end - left.start);
            if section.region.is_null() {
                return Err("no device has its memory there".to_owned());
            }
            let start = section.in_space;
            let own = Range { start, end: start + section.size as u64 };
            let behind = Behind { region: section.region, at: section.in_region };
            left.start = own.end;
            qemu.cover(system, &own, &REGISTERS, Box::into_raw(Box::new(behind)).cast());
        }
        Ok(())
    })?;
    state().answers = Some(memory.answers);
    Ok(())
}

/// One of a device's next writes has a wrong bit.
pub fn miswrite(device: &Device) -> Result<(), String> {
    /// The root bus of a q35.
    const BUS: &CStr = c"/machine/q35/pcie.0";
    let qemu = Qemu::get()?;
    qemu.locked(|| {
        let bus = (qemu.object)(BUS.as_ptr(), std::ptr::null_mut());
        if bus.is_null() {
            return Err("the machine has no q35's PCI bus");
        }
        let found = (qemu.device)(bus, c_int::from(device.bus), device.function);
        if found.is_null() {
            return Err("there is no such PCI function");
        }
        let outer = root((qemu.space_of)(found));
        let section = (qemu.find)(outer, device.start, device.end - device.start);
        if section.region.is_null() {
            return Err("that PCI function reaches no memory there");
        }
        let behind = room();
        (qemu.space)(behind, section.region, c"behind a fault".as_ptr());
        // Addresses in the region in front begin with 0.
        let at = section.in_region + device.start - section.in_space;
        let behind = Box::into_raw(Box::new(Behind { region: behind, at }));
        let own = Range { start: device.start, end: device.end };
        qemu.cover(outer, &own, &TRANSFERS, behind.cast());
        Ok(())
    })?;
    state().written = Some(device.written);
    Ok(())
}

/// Finds what lies behind a region of ours.
fn behind(opaque: Object) -> &'static Behind {
    // SAFETY: such a region has a leaked one of these.
    unsafe { &*opaque.cast::<Behind>() }
}

/// `MEMTX_ERROR`: cannot happen, since nothing comes here before [`Qemu::get`] has succeeded.
const REFUSED: u32 = 1;

extern "C" fn read_register(
    opaque: Object,
    address: u64,
    value: *mut u64,
    size: c_uint,
    attributes: Attributes,
) -> u32 {
    let Ok(qemu) = Qemu::get() else { return REFUSED };
    let behind = behind(opaque);
    // A read may change the device, so it is read first.
    let result = (qemu.read)(behind.region, behind.at + address, value, order(size), attributes);
    let answer = state().answers.as_mut().and_then(Answers::instead);
    if let Some(answer) = answer {
        // SAFETY: QEMU's place for the value.
        unsafe { value.write(answer & (u64::MAX >> (64 - 8 * size.clamp(1, 8)))) };
    }
    result
}

extern "C" fn write_register(
    opaque: Object,
    address: u64,
    value: u64,
    size: c_uint,
    attributes: Attributes,
) -> u32 {
    let Ok(qemu) = Qemu::get() else { return REFUSED };
    let behind = behind(opaque);
    (qemu.write)(behind.region, behind.at + address, value, order(size), attributes)
}

extern "C" fn read_memory(
    opaque: Object,
    address: u64,
    value: *mut u64,
    size: c_uint,
    attributes: Attributes,
) -> u32 {
    let Ok(qemu) = Qemu::get() else { return REFUSED };
    let behind = behind(opaque);
    let mut bytes = [0u8; 8];
    let (place, len) = (bytes.as_mut_ptr().cast(), size.into());
    let at = behind.at + address;
    let result = (qemu.access)(behind.region, at, attributes, place, len, false);
    // SAFETY: QEMU's place for the value.
    unsafe { value.write(u64::from_le_bytes(bytes)) };
    result
}

extern "C" fn write_memory(
    opaque: Object,
    address: u64,
    value: u64,
    size: c_uint,
    attributes: Attributes,
) -> u32 {
    let Ok(qemu) = Qemu::get() else { return REFUSED };
    let behind = behind(opaque);
    let wrong = state().written.as_mut().map_or(0, |written| written.wrong(size));
    let mut bytes = (value ^ wrong).to_le_bytes();
    let (place, len) = (bytes.as_mut_ptr().cast(), size.into());
    (qemu.access)(behind.region, behind.at + address, attributes, place, len, true)
}

/// `MemOp` of an access of so many bytes, in the target's order.
fn order(size: c_uint) -> c_uint {
    size.trailing_zeros()
}
