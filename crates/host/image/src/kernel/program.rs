//! A program: its address space, its capability space, and the page that tells it about them.

use super::build::{Build, Place};
use super::objects::{millionths, number};
use super::space::at;
use super::target::{Kernels, Placed};
use crate::elf::Program as Elf;
use bulkhead_kernel::Cap;
use bulkhead_kernel::abi::name::{self, Capability};
use bulkhead_kernel::abi::{
    ARGS, Grant, Kind, Load, MAGIC, MAX_NAMES, NAME, Name, Page, Rights, slot,
};
use bulkhead_layout::PAGE;
use bulkhead_plan::Span;
use bulkhead_plan::kernel::{Context, Kernel, Policy, Program};
use zerocopy::{FromZeros, IntoBytes};

/// A program in the making.
pub struct Made {
    /// Its capability space.
    pub node: Place,
    /// Its address space.
    pub space: Place,
    /// Frame of its page: offset in memory.
    page_at: u32,
    page: Box<Page>,
    next_slot: u32,
    slots: u32,
    next_stack: u64,
    /// Where the next device's registers go.
    pub next_device: u64,
    buffers: Place,
}

/// Number of threads with buffers in one frame.
const BUFFERS: u64 = PAGE / 512;

impl Made {
    /// Its spaces, with its file's segments, heap and page.
    pub fn new<K: Kernels>(
        build: &mut Build<K>,
        program: &Program,
        elf: &Elf,
        threads: usize,
    ) -> Result<Self, String> {
        let wrong = |what: String| format!("program {}: {what}", program.name);
        let node = build.make(Kind::Node, program.slots.trailing_zeros() as u8, 1)?;
        let space = build.make(Kind::Space, 0, 1)?;
        for segment in &elf.segments {
            let pages = Span { start: segment.address, len: segment.size }.pages();
            let (first, end) = (pages.start, pages.end());
            if first < at::PROGRAM || end > at::HEAP {
                return Err(wrong(format!(
                    "it has to be linked between {:#x} and {:#x}, not at {first:#x}",
                    at::PROGRAM,
                    at::HEAP
                )));
            }
            let (frames, offset) = build.frames(pages.len)?;
            let start = offset as usize + (segment.address - first) as usize;
            build.machine().bytes_mut()[start..start + segment.bytes.len()]
                .copy_from_slice(&segment.bytes);
            let mut rights = Rights::READ;
            rights = if segment.rights.write { rights.and(Rights::WRITE) } else { rights };
            rights = if segment.rights.execute { rights.and(Rights::EXECUTE) } else { rights };
            let count = (pages.len / PAGE) as u32;
            build.map(space, frames, count, first, rights).map_err(wrong)?;
            if !segment.rights.write {
                build.fixed.push((offset, offset + pages.len as u32));
            }
        }
        let (page, page_at) = build.frames(PAGE)?;
        build.map(space, page, 1, at::PAGE, Rights::READ)?;
        let clock = build.clock_frame()?;
        build.map(space, clock, 1, at::CLOCK, Rights::READ)?;
        let read_write = Rights::READ.and(Rights::WRITE);
        if program.heap > 0 {
            let (heap, _) = build.frames(program.heap)?;
            build.map(space, heap, (program.heap / PAGE) as u32, at::HEAP, read_write)?;
        }
        let buffers = (threads as u64).div_ceil(BUFFERS).max(1) * PAGE;
        let (frames, _) = build.frames(buffers)?;
        build.map(space, frames, (buffers / PAGE) as u32, at::BUFFERS, read_write)?;
        let mut made = Self {
            node,
            space,
            page_at,
            page: Box::new(Page::new_zeroed()),
            next_slot: slot::FIRST,
            slots: program.slots,
            next_stack: at::STACKS,
            next_device: super::devices::FIRST,
            buffers: frames,
        };
        made.describe(program);
        build.give(node, slot::NODE, node, Rights::ALL, 0)?;
        build.give(node, slot::SPACE, space, Rights::ALL, 0)?;
        Ok(made)
    }

    fn describe(&mut self, program: &Program) {
        let page = &mut *self.page;
        page.magic = MAGIC;
        (page.clock, page.buffers) = (at::CLOCK, at::BUFFERS);
        put(&mut page.name, &program.name);
        let args = program.args.as_bytes();
        let len = args.len().min(ARGS - 1);
        page.args[..len].copy_from_slice(&args[..len]);
        if program.heap > 0 {
            (page.heap, page.heap_len) = (at::HEAP, program.heap);
        }
    }

    /// A stack of so many bytes: one past its end; and the thread pointer. The thread's own data lies behind the stack
    /// ([`Kernels::local`]).
    pub fn stack<K: Kernels>(
        &mut self,
        build: &mut Build<K>,
        bytes: u64,
        elf: &Elf,
    ) -> Result<(u64, u64), String> {
        let Some(local) = &elf.local else {
            return Ok((self.memory_for_stack(build, bytes)?.0, 0));
        };
        let Placed { len, pointer, data, holds_itself } = K::local(local);
        let own = len.next_multiple_of(PAGE);
        let (end, at) = self.memory_for_stack(build, bytes + own)?;
        let place = |below: u64| at as usize + (bytes + own - below) as usize;
        let memory = build.machine().bytes_mut();
        memory[place(data)..][..local.bytes.len()].copy_from_slice(&local.bytes);
        let below = pointer;
        let pointer = end - below;
        if holds_itself {
            memory[place(below)..][..8].copy_from_slice(&pointer.to_le_bytes());
        }
        // Its stack has all the bytes that it was promised.
        Ok((end - own, pointer))
    }

    fn memory_for_stack<K: Kernels>(
        &mut self,
        build: &mut Build<K>,
        bytes: u64,
    ) -> Result<(u64, u32), String> {
        let start = self.next_stack + PAGE;
        let end = start + bytes;
        if end > at::PROGRAM {
            return Err(format!(
                "its threads' stacks need more than {:#x} bytes",
                at::PROGRAM - at::STACKS
            ));
        }
        let (frames, at) = build.frames(bytes)?;
        let rights = Rights::READ.and(Rights::WRITE);
        build.map(self.space, frames, (bytes / PAGE) as u32, start, rights)?;
        self.next_stack = end;
        Ok((end, at))
    }

    /// The frame of the `n`th thread's buffer, and where in it.
    pub fn buffer(&self, n: u64) -> (Place, u64) {
        (self.buffers + (n / BUFFERS) as u32, n % BUFFERS * 512)
    }

    /// Gives it a capability under a name.
    pub fn give<K: Kernels>(
        &mut self,
        build: &mut Build<K>,
        from: Place,
        name: &str,
        rights: Rights,
        badge: u64,
    ) -> Result<(), String> {
        let address = self.take(build, from, rights, badge)?;
        let cap = build.cap(from);
        let kind = Kind::new(cap.kind).unwrap_or(Kind::Null);
        let rights = cap.rights().masked(rights);
        self.tell(name, Grant::Capability(Capability { kind, rights, priority: 0, address }))
    }

    /// Gives it a thread, with its priority in the manifest.
    pub fn give_thread<K: Kernels>(
        &mut self,
        build: &mut Build<K>,
        from: Place,
        (name, priority): (&str, u8),
    ) -> Result<(), String> {
        let (kind, rights) = (Kind::Thread, Rights::ALL);
        let address = self.take(build, from, rights, 0)?;
        self.tell(name, Grant::Capability(Capability { kind, rights, priority, address }))
    }

    /// Takes a capability without a name.
    pub fn take<K: Kernels>(
        &mut self,
        build: &mut Build<K>,
        from: Place,
        rights: Rights,
        badge: u64,
    ) -> Result<u32, String> {
        let address = self.next_slot;
        if address >= self.slots {
            return Err(format!("its {} slots do not suffice: give it more", self.slots));
        }
        build.give(self.node, address, from, rights, badge)?;
        self.next_slot += 1;
        Ok(address)
    }

    /// Tells it of a grant.
    pub fn tell(&mut self, name: &str, grant: Grant) -> Result<(), String> {
        let page = &mut *self.page;
        if page.names as usize == MAX_NAMES {
            return Err(format!("it is to know more than {MAX_NAMES} names"));
        }
        page.name_of[page.names as usize] = Name::new(name, grant);
        page.names += 1;
        Ok(())
    }

    /// Tells it which of so many sandboxes it is in.
    pub fn tell_sandbox(&mut self, index: usize, count: usize) {
        self.page.sandbox = [index, count].map(|n| n as u32);
    }

    /// Lets it move the progress word of its core, which is the sandbox's first.
    pub fn watched<K: Kernels>(
        &mut self,
        build: &mut Build<K>,
        words: u64,
        alive: u64,
    ) -> Result<(), String> {
        let rights = Rights::READ.and(Rights::WRITE);
        let mut cap = Cap::original(Kind::Frame, (words / PAGE) as u32, 12);
        cap.flags |= Cap::DEVICE;
        cap.rights = rights.0;
        let frame = build.put(cap)?;
        build.map(self.space, frame, 1, at::PROGRESS, rights)?;
        (self.page.progress, self.page.alive) = (at::PROGRESS, alive);
        Ok(())
    }

    /// Shows it the words of its sandbox' roles, which the monitor writes.
    pub fn sees_roles<K: Kernels>(
        &mut self,
        build: &mut Build<K>,
        words: u64,
    ) -> Result<(), String> {
        let mut cap = Cap::original(Kind::Frame, (words / PAGE) as u32, 12);
        cap.flags |= Cap::DEVICE;
        cap.rights = Rights::READ.0;
        let frame = build.put(cap)?;
        build.map(self.space, frame, 1, at::ROLES, Rights::READ)
    }

    /// Tells it of a role that it sees.
    pub fn tell_role(&mut self, number: usize, name: &str) -> Result<(), String> {
        self.tell(name, Grant::Role(name::Role { word: at::ROLES + number as u64 * 8 }))
    }

    /// Tells it what its core's contexts take.
    pub fn tell_load(&mut self, kernel: &Kernel) {
        let servers = (0..kernel.contexts.len()).filter(|n| kernel.is_server(*n)).count();
        let share = kernel.sum().0;
        self.page.load = Load { share, servers: servers as u32, ..self.page.load };
    }

    /// Tells it what its contexts are charged for each activation.
    pub fn tell_overhead(&mut self, kernel: &Kernel) {
        self.page.load.overhead = kernel.overhead as u32;
    }

    /// Writes its page.
    pub fn finish<K: Kernels>(mut self, build: &mut Build<K>) {
        self.page.free = [self.next_slot, self.slots];
        let at = self.page_at as usize;
        build.machine().bytes_mut()[at..at + PAGE as usize].copy_from_slice(self.page.as_bytes());
    }
}

/// Describes a context at an address, which the program's thread of that number has.
pub fn context(context: &Context, thread: Option<usize>, address: u32) -> Grant {
    const MICRO: u64 = 1_000;
    let micros = |nanos: u64| u32::try_from(nanos).unwrap_or(u32::MAX);
    let budget = match context.policy {
        Policy::Sporadic(server) | Policy::Strict(server) => server.budget / MICRO,
        Policy::Pibs { utilization, .. } => millionths(utilization),
        Policy::Full { slice } => slice / MICRO,
    };
    Grant::Context(name::Context {
        policy: number(context.policy),
        thread: thread.map_or(0, |n| n as u8 + 1),
        address,
        budget: micros(budget),
        period: micros(context.period().div_ceil(MICRO)),
    })
}

fn put(to: &mut [u8; NAME], name: &str) {
    let len = name.len().min(NAME - 1);
    to[..len].copy_from_slice(&name.as_bytes()[..len]);
}

impl<K: Kernels> Build<K> {
    /// A capability of the clock's page, to be mapped once.
    fn clock_frame(&mut self) -> Result<Place, String> {
        let mut cap = Cap::original(Kind::Frame, self.clock() >> 12, 12);
        cap.rights = Rights::READ.0;
        self.put(cap)
    }
}

/// The first thread of a program has its file's entry; others a symbol.
pub fn entry(kernel: &Kernel, thread: usize, elf: &Elf) -> Result<u64, String> {
    let thread = &kernel.threads[thread];
    match &thread.entry {
        None => Ok(elf.entry),
        Some(symbol) => elf.symbol(symbol).map_err(|e| format!("thread {}: {e}", thread.name)),
    }
}
