//! Windows into physical memory, read-only ([`Window`]) or not ([`Registers`]), through `/dev/mem`. Debian's kernels
//! have `STRICT_DEVMEM`. They refuse RAM, but not addresses that no driver has claimed, such as the pages that a
//! monitor shows a guest.

use crate::link::Link;
use bulkhead_guest::{text, windows};
use bulkhead_layout::map::INFO_GPA;
use bulkhead_layout::{PAGE, info};
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fs::OpenOptions;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, IntoBytes};

const DEVMEM: &str = "/dev/mem";
/// For `/dev/mem`: memory that is not RAM is mapped uncached, as registers want it. Without it memory is cached where
/// the MTRRs say so.
const UNCACHED: i32 = OFlag::O_SYNC.bits();

/// A mapped range of physical memory that others write, so it is words to be
/// loaded, never plain data.
#[derive(Debug)]
pub struct Window {
    base: NonNull<c_void>,
    length: usize,
}

impl Window {
    /// Maps `length` bytes at the page-aligned physical address `gpa`.
    ///
    /// # Errors
    /// If there is no `/dev/mem`, or the kernel refuses the range.
    pub fn open(gpa: u64, length: u64) -> io::Result<Self> {
        Self::map(DEVMEM, gpa, length.next_multiple_of(PAGE), false, UNCACHED)
    }

    /// Maps a part of a file that is opened with these flags.
    fn map(path: &str, at: u64, length: u64, write: bool, flags: i32) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let size = usize::try_from(length).ok().and_then(NonZeroUsize::new).ok_or_else(invalid)?;
        let at = i64::try_from(at).map_err(|_| invalid())?;
        let file = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)?;
        let mut rights = ProtFlags::PROT_READ;
        rights.set(ProtFlags::PROT_WRITE, write);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing
        // else refers to it.
        let base = unsafe { mmap(None, size, rights, MapFlags::MAP_SHARED, &file, at) }?;
        Ok(Self { base, length: size.get() })
    }

    /// The words of the window. Another core may write them at any time.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, `length` bytes long and lives as
        // long as `self`; atomic loads allow for others' writes. (A store would
        // fault: the window is read-only.)
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.length / 8) }
    }

    /// The 64-bit word at the 8-aligned byte `offset`; `None` past the end.
    #[must_use]
    pub fn word(&self, offset: usize) -> Option<u64> {
        debug_assert!(offset.is_multiple_of(8));
        Some(self.words().get(offset / 8)?.load(Ordering::Acquire))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`, not used afterwards.
        let _ = unsafe { munmap(self.base, self.length) };
    }
}

/// A page of device registers, or of this program's own, that others write, too.
#[derive(Debug)]
pub struct Registers(Window);

impl Registers {
    /// Maps `length` bytes of a file such as `/dev/mem` at a page-aligned offset.
    ///
    /// # Errors
    /// If there is no such file, or the kernel refuses the range.
    pub fn map(path: &str, offset: u64, length: usize) -> io::Result<Self> {
        Window::map(path, offset, length as u64, true, UNCACHED).map(Self)
    }

    /// Maps `length` bytes at the page-aligned physical address `gpa` that are memory: cached, where the MTRRs say so.
    ///
    /// # Errors
    /// If there is no `/dev/mem`, or the kernel refuses the range.
    pub fn memory(gpa: u64, length: u64) -> io::Result<Self> {
        Window::map(DEVMEM, gpa, length, true, 0).map(Self)
    }

    /// A page of memory that stays where it is.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn own_page() -> io::Result<Self> {
        let size = NonZeroUsize::new(PAGE as usize).ok_or(io::ErrorKind::InvalidInput)?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_LOCKED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping of nothing.
        let base = unsafe { mmap_anonymous(None, size, rights, flags) }?;
        Ok(Self(Window { base, length: PAGE as usize }))
    }

    /// Bytes of it.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Its 64-bit words. Others may write them at any time.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    /// Where it is in this program.
    #[must_use]
    pub fn address(&self) -> usize {
        self.0.base.as_ptr() as usize
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        let size = size_of::<T>();
        assert!(offset.is_multiple_of(size) && offset + size <= self.0.length, "outside");
        self.0.base.as_ptr().wrapping_byte_add(offset).cast()
    }

    /// Reads 32 bits at an aligned offset within the mapping.
    #[must_use]
    pub fn get32(&self, offset: usize) -> u32 {
        // SAFETY: `at` says that it is within the mapping; volatile, as others write it.
        unsafe { self.at::<u32>(offset).read_volatile() }
    }

    /// Writes 8 bits.
    pub fn set8(&self, offset: usize, value: u8) {
        // SAFETY: as in `get32`; no reference to it exists.
        unsafe { self.at::<u8>(offset).write_volatile(value) }
    }

    /// Writes 16 bits.
    pub fn set16(&self, offset: usize, value: u16) {
        // SAFETY: as in `get32`; no reference to it exists.
        unsafe { self.at::<u16>(offset).write_volatile(value) }
    }

    /// Writes 32 bits.
    pub fn set32(&self, offset: usize, value: u32) {
        // SAFETY: as in `get32`; no reference to it exists.
        unsafe { self.at::<u32>(offset).write_volatile(value) }
    }

    /// Writes 64 bits.
    pub fn set64(&self, offset: usize, value: u64) {
        // SAFETY: as in `get32`; no reference to it exists.
        unsafe { self.at::<u64>(offset).write_volatile(value) }
    }
}

/// The information page's entry for one channel or observed sandbox.
#[derive(Clone, Debug)]
pub struct Named {
    /// Name of the channel, or of the observed sandbox.
    pub name: String,
    /// True for an observed sandbox's report.
    pub report: bool,
    /// Where it lies.
    pub gpa: u64,
    /// Its size in bytes.
    pub size: u64,
    /// In a channel for a program that this sandbox may load: the sandbox that takes it, by index.
    pub loads: Option<usize>,
}

/// The information page, for a Linux program.
#[derive(Clone, Debug)]
pub struct Info {
    /// Name of this sandbox.
    pub name: String,
    /// Its index.
    pub index: usize,
    /// Sandboxes that it may stop, start or restart, as a set.
    pub control: u32,
    /// Those that it may stop, start and restart, as sets.
    pub rights: [u32; 3],
    /// Those that are ended when it takes the machine back, as a set.
    pub released: u32,
    /// All sandboxes' names, by index.
    pub sandboxes: Vec<String>,
    /// Bytes of the image.
    pub image: u64,
    /// Ticks of the monitors' clock in a second.
    pub hz: u64,
    /// Microseconds within which each core is to move its progress word; 0: nobody looks.
    pub alive: u64,
    /// Channels and observed reports.
    pub windows: Vec<Named>,
    /// Links: channels made at run time.
    pub links: Vec<Link>,
}

impl Info {
    /// Reads the info page of this sandbox.
    ///
    /// # Errors
    /// If it cannot be mapped, or there is none: Linux then runs on a bare machine.
    pub fn read() -> io::Result<Self> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "no info page: not in a sandbox");
        let page = Window::open(INFO_GPA, PAGE)?;
        let words: Vec<_> = page.words().iter().map(|word| word.load(Ordering::Acquire)).collect();
        let page = info::Info::read_from_bytes(words.as_bytes()).map_err(|_| gone())?;
        if page.magic != info::MAGIC || page.version != info::VERSION {
            return Err(gone());
        }
        let text = |bytes: &[u8; info::NAME]| text::of(bytes).to_owned();
        let fixed = windows(&page).filter(|(window, _)| window.kind != info::LINK);
        let named = |(window, _): (&info::Window, u32)| Named {
            name: text(&window.name),
            report: window.kind == 1,
            gpa: window.gpa,
            size: window.size,
            loads: (window.writable == 1 && window.messages == info::PROGRAM)
                .then_some(window.message as usize),
        };
        let [stop, start, restart, released] = page.rights;
        Ok(Self {
            name: text(&page.name),
            index: page.sandbox as usize,
            control: page.control,
            rights: [stop, start, restart],
            released,
            sandboxes: page.names.iter().take(page.sandboxes as usize).map(text).collect(),
            image: page.image,
            hz: page.clock.hz,
            alive: page.alive,
            windows: fixed.map(named).collect(),
            links: Link::all(&page).collect(),
        })
    }

    /// A sandbox's index.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn sandbox(&self, name: &str) -> io::Result<usize> {
        let found = self.sandboxes.iter().position(|one| one == name);
        found.ok_or_else(|| {
            let all = self.sandboxes.join(", ");
            let text = format!("there is no sandbox `{name}`; there is {all}");
            io::Error::new(io::ErrorKind::NotFound, text)
        })
    }

    /// Maps the channel or report of that name.
    ///
    /// # Errors
    /// If this sandbox has none of that name, or it cannot be mapped.
    pub fn window(&self, name: &str, report: bool) -> io::Result<Window> {
        let found = self
            .windows
            .iter()
            .find(|window| window.name == name && window.report == report)
            .ok_or_else(|| {
                let kind = if report { "report" } else { "channel" };
                let text = format!("the manifest gives sandbox {} no {kind} {name}", self.name);
                io::Error::new(io::ErrorKind::NotFound, text)
            })?;
        Window::open(found.gpa, found.size)
    }
}
