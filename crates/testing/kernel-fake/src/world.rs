use bulkhead_arch::{Memory, PageFormat, Rights as PageRights};
use bulkhead_arch_fake::FakeFormat;
use bulkhead_kernel::abi::{Address, Code, Info, Kind, Op, Policy, Rights, Status, at, label};
use bulkhead_kernel::host::{Host, Odd, PAGE, memory};
use bulkhead_kernel::{
    Cap, Context, Core, Interrupt, Kernel, Layout, Machine as _, PageTable, Ref, Root, Slot, State,
    Time, plant,
};
use bulkhead_sched::Scheduler;
use zerocopy::IntoBytes;

/// Bytes of memory, with an odd processor and odd page tables.
pub type Machine = Host<Odd, FakeFormat>;

/// First address that is not a program's.
pub const USER_END: u64 = <Odd as Layout>::USER_END;

/// Where the kernel's bitmap of spaces lies.
const SPACES: u32 = PAGE;
const INTERRUPT: u32 = 2 * PAGE;
const LINE: u32 = INTERRUPT + 64;
/// Two links, side by side, and the tables that map them.
const LINKS: u32 = 3 * PAGE;
const LINK_TABLES: u32 = 4 * PAGE;
/// Where the root node lies, and how many slots it has, as a power of two.
const NODE: u32 = 0x1_0000;
const NODE_BITS: u8 = 9;
/// Physical address of the first byte.
const BASE: u64 = 0x4000_0000;
/// Number of the interrupt: too large for a processor with 256 of them.
pub const NUMBER: u32 = 0x2041;

/// A system: memory, a core, and a first capability space that can make everything.
#[derive(Clone)]
pub struct World {
    /// The machine.
    pub machine: Machine,
    /// The core.
    pub core: Box<Core>,
    /// True if calls, the timer and interrupts may take the short ways.
    pub fast: bool,
    /// Untyped memory that objects are made of.
    pub memory: Address,
    next: Address,
}

/// A thread of a [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Where its capability lies.
    pub cap: Address,
    /// Where it lies.
    pub at: Ref<bulkhead_kernel::Thread>,
    /// Where the capability of the context lies that it was given, or 0.
    pub context: Address,
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// How it ended.
    pub status: Status,
    /// Badge of the sender.
    pub badge: u64,
    /// The message's description.
    pub info: Info,
    /// Its first words.
    pub words: [u64; 4],
}

impl World {
    /// The first thread's memory: an untyped capability.
    pub const UNTYPED: Address = 2;
    /// A core's time.
    pub const CONTROL: Address = 3;
    /// Registers 0x60 to 0x6F, which only instructions reach.
    pub const PORTS: Address = 4;
    /// The sandbox itself.
    pub const SANDBOX: Address = 5;
    /// An interrupt.
    pub const INTERRUPT: Address = 6;
    /// The root node itself.
    pub const NODE: Address = 7;
    /// The first space.
    pub const SPACE: Address = 8;

    /// One with a space and nothing else.
    #[must_use]
    pub fn new() -> Self {
        Self::of(20)
    }

    /// One with 2^`bits` bytes to make objects of.
    ///
    /// # Panics
    /// If that doesn't leave room for the kernel's own.
    #[must_use]
    pub fn of(bits: u8) -> Self {
        // One half for the kernel.
        let bytes = 2u32 << bits;
        let mut machine =
            Machine::checked(bytes, BASE).with_kernel_entry(0xA5A5_0000_0000_F5AD, 300);
        assert!(bytes / 2 >= 2 * NODE, "room for the root node");
        machine.time = 1_000;
        machine.reserve_words(SPACES, PAGE);
        machine.note(NODE, 32 << NODE_BITS, Some(Kind::Node));
        let core = Core {
            current: Ref::NONE,
            vectors_of: Ref::NONE,
            space: machine.physical(0),
            own_space: machine.physical(0),
            now: 0,
            timer: Time::MAX,
            spaces: SPACES,
            pages: bytes / PAGE,
            undecided: 0,
            cost: 0,
            links: Ref::NONE,
            link_count: 0,
            scheduler: Scheduler::new(1_000),
        };
        let core = Box::new(core);
        let mut world =
            Self { machine, core, fast: true, memory: Self::UNTYPED, next: Self::SPACE };
        let interrupt = world.kernel().make_interrupt(INTERRUPT, NUMBER, [1, 2], false);
        let node = Cap { flags: 0, ..Cap::original(Kind::Node, NODE, NODE_BITS) };
        let untyped = memory(bytes / 2, bits);
        let ports = Cap::original(Kind::Ports, 0x60 << 16 | 0x10, 0);
        let plain = |kind| Cap::original(kind, 0, 0);
        let (control, sandbox) = (plain(Kind::Control), plain(Kind::Sandbox));
        for (address, cap) in [
            (Self::UNTYPED, untyped),
            (Self::CONTROL, control),
            (Self::PORTS, ports),
            (Self::SANDBOX, sandbox),
            (Self::INTERRUPT, interrupt),
            (Self::NODE, node),
        ] {
            let slot = world.slot(address);
            plant(&mut world.machine, slot, cap);
        }
        assert_eq!(world.make(Kind::Space, 0), Self::SPACE);
        world
    }

    /// The kernel.
    pub fn kernel(&mut self) -> Kernel<'_, Machine> {
        Kernel { machine: &mut self.machine, core: &mut self.core }
    }

    /// The first capability space.
    #[must_use]
    pub const fn root(&self) -> Root {
        Root { first: Ref::new(NODE), slots: 1 << NODE_BITS }
    }

    /// A slot of the root node.
    #[must_use]
    pub const fn slot(&self, address: Address) -> Ref<Slot> {
        Ref::<Slot>::new(NODE).nth(address)
    }

    /// The capability at an address of the first capability space.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub fn cap(&self, address: Address) -> Cap {
        let slot = self.root().slot(&self.machine, address.into(), 0).expect("a slot");
        self.machine.get(slot).cap
    }

    /// A slot of the root node that was not used before.
    pub fn free(&mut self) -> Address {
        self.next += 1;
        self.next - 1
    }

    /// Calls a method from outside, with all of the world's authority. It acts as one call of a thread that is repeated
    /// until it is over.
    ///
    /// # Errors
    /// The method's.
    pub fn invoke(
        &mut self,
        address: Address,
        method: u64,
        words: [u64; 4],
    ) -> Result<[u64; 4], Status> {
        let root = self.root();
        loop {
            let slot = root.slot(&self.machine, address.into(), 0)?;
            let answer = self.kernel().invoke(root, slot, method, &words);
            self.kernel().decide();
            if let Some(answer) = answer? {
                return Ok(answer);
            }
        }
    }

    /// Calls a method where it has to work.
    ///
    /// # Panics
    /// If it does not.
    pub fn does(&mut self, address: Address, method: u64, words: [u64; 4]) -> [u64; 4] {
        match self.invoke(address, method, words) {
            Ok(answer) => answer,
            Err(status) => {
                let (code, argument) = (status.code(), status.argument());
                panic!(
                    "method {method} of {address}: {code:?}, argument {argument}, {:#x}",
                    status.detail()
                )
            }
        }
    }

    /// Makes an object out of [`World::memory`].
    pub fn make(&mut self, kind: Kind, bits: u8) -> Address {
        let at = self.free();
        let what = kind as u64 | u64::from(bits) << 8 | 1 << 16;
        self.does(self.memory, label::RETYPE, [what, Self::NODE.into(), at.into(), 0]);
        at
    }

    /// Does something with a part of the memory, of which all is made meanwhile; that part's capability too.
    pub fn apart<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> (T, Address) {
        const BITS: u8 = 16;
        let before = self.memory;
        let part = self.make(Kind::Untyped, BITS);
        self.memory = part;
        let done = work(self);
        self.memory = before;
        (done, part)
    }

    /// Derives a capability with rights and a badge.
    pub fn copy(&mut self, from: Address, rights: Rights, badge: u64) -> Address {
        let at = self.free();
        self.does(Self::NODE, label::COPY, [at.into(), from.into(), rights.0.into(), badge]);
        at
    }

    /// Deletes the capability in a slot of the root node.
    pub fn delete(&mut self, address: Address) {
        self.does(Self::NODE, label::DELETE, [address.into(), 0, 0, 0]);
    }

    /// Deletes the capabilities derived from it.
    pub fn revoke(&mut self, address: Address) {
        self.does(Self::NODE, label::REVOKE, [address.into(), 0, 0, 0]);
    }

    /// A context with a budget in a period, ns.
    pub fn context(&mut self, policy: Policy, budget: Time, period: Time) -> Address {
        let at = self.make(Kind::Context, 9);
        let what = u64::from(at) | (policy as u64) << 32;
        self.does(Self::CONTROL, label::SET_CONTEXT, [what, budget, period, u64::from(at)]);
        at
    }

    /// A thread that is stopped, without a context.
    pub fn passive(&mut self, priority: u8) -> Thread {
        let cap = self.make(Kind::Thread, 0);
        let at = self.cap(cap).at();
        self.machine.get_mut::<bulkhead_kernel::Thread>(at).max_priority = 255;
        self.machine.get_mut(at).number = cap;
        self.does(cap, label::CONFIGURE, [Self::NODE.into(), Self::SPACE.into(), 0, 0]);
        self.does(cap, label::SET_PRIORITY, [priority.into(), 255, cap.into(), 0]);
        self.does(cap, label::WRITE_REGISTERS, [0x1000 * u64::from(cap), 0x8000, 0, 0]);
        Thread { cap, at, context: 0 }
    }

    /// A thread that is ready, with a context of slices of a millisecond for ever.
    pub fn thread(&mut self, priority: u8) -> Thread {
        self.thread_of(priority, Policy::Full, 0, 1_000_000)
    }

    /// A thread that is ready, with a context of its own.
    pub fn thread_of(
        &mut self,
        priority: u8,
        policy: Policy,
        budget: Time,
        period: Time,
    ) -> Thread {
        let thread = self.passive(priority);
        let context = self.context(policy, budget, period);
        self.does(context, label::BIND, [thread.cap.into(), 0, 0, 0]);
        self.resume(thread);
        Thread { context, ..thread }
    }

    /// A thread that waits without a context at an endpoint, with a reply object.
    ///
    /// # Panics
    /// If it doesn't come to that.
    pub fn server(&mut self, priority: u8, endpoint: Address) -> (Thread, Address) {
        let (mut server, reply) = (self.thread(255), self.make(Kind::Reply, 0));
        self.recv(server, endpoint, reply, Time::MAX);
        self.does(server.context, label::UNBIND, [0; 4]);
        self.delete(server.context);
        server.context = 0;
        self.does(server.cap, label::SET_PRIORITY, [priority.into(), 255, server.cap.into(), 0]);
        assert_eq!(self.state(server), State::Receiving);
        (server, reply)
    }

    /// Says how long a call of an endpoint takes at most, ns; 0: any time.
    pub fn limit(&mut self, endpoint: Address, longest: Time) {
        let at: Ref<bulkhead_kernel::Endpoint> = self.cap(endpoint).at();
        self.machine.get_mut(at).longest = longest;
    }

    /// Gives a thread a buffer in a frame of its own.
    pub fn buffer(&mut self, thread: Thread) -> Ref<bulkhead_kernel::abi::Buffer> {
        let frame = self.make(Kind::Frame, 12);
        let words = [Self::NODE, Self::SPACE, frame, 0].map(u64::from);
        self.does(thread.cap, label::CONFIGURE, words);
        self.machine.get(thread.at).buffer
    }

    /// Lets a thread go on.
    pub fn resume(&mut self, thread: Thread) {
        self.does(thread.cap, label::RESUME, [0; 4]);
    }

    /// A thread's activity.
    #[must_use]
    pub fn state(&self, thread: Thread) -> State {
        const STATES: [State; 6] = [
            State::Stopped,
            State::Running,
            State::Sending,
            State::Receiving,
            State::Calling,
            State::Waiting,
        ];
        STATES[usize::from(self.machine.get(thread.at).state)]
    }

    /// Tells if a thread is the one that runs.
    #[must_use]
    pub fn runs(&self, thread: Thread) -> bool {
        self.core.current == thread.at
    }

    /// Result of a thread's last call.
    #[must_use]
    pub fn came(&self, thread: Thread) -> Came {
        let registers = &self.machine.get(thread.at).registers;
        Came {
            status: Status(registers.op::<Odd>()),
            badge: registers.named::<Odd>(),
            info: Info(registers.info::<Odd>()),
            words: registers.words::<Odd>(),
        }
    }

    /// The thread that runs makes a call.
    ///
    /// # Panics
    /// If that thread does not run. Or, like a processor, if the thread that runs afterwards isn't in its own space.
    pub fn syscall(&mut self, thread: Thread, op: u64, named: u64, info: u64, words: [u64; 4]) {
        assert!(self.runs(thread), "{thread:?} does not run, but {:?}", self.core.current);
        let registers = &mut self.machine.get_mut(thread.at).registers;
        registers.0[<Odd as bulkhead_kernel::Layout>::IP] +=
            <Odd as bulkhead_kernel::Layout>::CALL_LEN;
        registers.answer::<Odd>(op, named, info);
        for (n, word) in words.into_iter().enumerate() {
            registers.set_word::<Odd>(n, word);
        }
        self.enter();
    }

    /// The running thread enters the kernel, with the call in its registers.
    fn enter(&mut self) {
        let before = self.core.current;
        self.machine.left = before.at();
        match self.fast {
            true => self.kernel().call(),
            false => self.kernel().call_slowly(),
        }
        if let Some(current) = self.core.current.some() {
            let Machine { space, pointer, left, .. } = self.machine;
            let of = self.machine.get(current);
            assert_eq!((of.space, of.pointer), (space, pointer), "in another's space");
            assert!(current == before || left == 0, "it finds what {before:?} has left");
        }
    }

    /// A call that it makes again as long as the kernel wants that; then how it ended.
    pub fn method(
        &mut self,
        thread: Thread,
        address: Address,
        method: u64,
        words: [u64; 4],
    ) -> Result<[u64; 4], Code> {
        loop {
            let before = self.machine.get(thread.at).registers.ip::<Odd>();
            self.call(thread, address, method, words);
            if self.machine.get(thread.at).registers.ip::<Odd>() != before {
                break;
            }
        }
        let Came { status, words, .. } = self.came(thread);
        match status.code() {
            Some(Code::Ok) => Ok(words),
            code => Err(code.expect("a status")),
        }
    }

    /// `Call`.
    pub fn call(&mut self, thread: Thread, address: Address, what: u64, words: [u64; 4]) {
        self.syscall(thread, Op::Call as u64, address.into(), Info::new(what, 4).0, words);
    }

    /// `Send`.
    pub fn send(&mut self, thread: Thread, address: Address, what: u64, words: [u64; 4]) {
        self.syscall(thread, Op::Send as u64, address.into(), Info::new(what, 4).0, words);
    }

    /// `NbSend`.
    pub fn try_send(&mut self, thread: Thread, address: Address, what: u64, words: [u64; 4]) {
        self.syscall(thread, Op::NbSend as u64, address.into(), Info::new(what, 4).0, words);
    }

    /// `Recv`.
    pub fn recv(&mut self, thread: Thread, address: Address, reply: Address, until: Time) {
        let op = Op::Recv as u64 | u64::from(reply) << 32;
        self.syscall(thread, op, address.into(), until, [0; 4]);
    }

    /// `Wait`.
    pub fn wait(&mut self, thread: Thread, address: Address, until: Time) {
        self.syscall(thread, Op::Wait as u64, address.into(), until, [0; 4]);
    }

    /// `Reply`.
    pub fn reply(&mut self, thread: Thread, reply: Address, what: u64, words: [u64; 4]) {
        let op = Op::Reply as u64 | u64::from(reply) << 32;
        self.syscall(thread, op, 0, Info::new(what, 4).0, words);
    }

    /// `ReplyRecv`.
    pub fn reply_recv(
        &mut self,
        thread: Thread,
        address: Address,
        reply: Address,
        what: u64,
        words: [u64; 4],
    ) {
        let op = Op::ReplyRecv as u64 | u64::from(reply) << 32;
        self.syscall(thread, op, address.into(), Info::new(what, 4).0, words);
    }

    /// `Yield`.
    pub fn yields(&mut self, thread: Thread) {
        self.syscall(thread, Op::Yield as u64, 0, 0, [0; 4]);
    }

    /// Time passes; the timer fires whenever it is due.
    pub fn pass(&mut self, until: Time) {
        while self.machine.timer <= until {
            self.machine.time = self.machine.timer.max(self.machine.time);
            self.machine.timer = Time::MAX;
            match self.fast {
                true => self.kernel().timer(),
                false => self.kernel().timer_slowly(),
            }
        }
        self.machine.time = until.max(self.machine.time);
    }

    /// The timer's time comes.
    ///
    /// # Panics
    /// If it is not set.
    pub fn next(&mut self) {
        assert!(self.machine.timer < Time::MAX, "no timer is set");
        self.pass(self.machine.timer);
    }

    /// From now on the interrupt is a level-triggered line's: its mask is nothing to be played, and `2` ends it.
    pub fn hold_interrupt(&mut self) {
        let interrupt = self.machine.get_mut(Ref::<Interrupt>::new(INTERRUPT));
        (interrupt.mask, interrupt.rests, interrupt.state) = (0, Interrupt::CAME, Interrupt::CAME);
    }

    /// Where the interrupt's object lies, and that of [`World::line`].
    pub const INTERRUPTS: [u32; 2] = [INTERRUPT, LINE];

    /// The interrupt comes.
    pub fn interrupt(&mut self) {
        self.raise(INTERRUPT);
    }

    /// Raises the interrupt with its object there.
    pub fn raise(&mut self, at: u32) {
        match self.fast {
            true => self.kernel().interrupt(Ref::new(at)),
            false => self.kernel().interrupt_slowly(Ref::new(at)),
        }
    }

    /// A level-triggered line, too: its interrupt's capability.
    pub fn line(&mut self) -> Address {
        let line = self.kernel().make_interrupt(LINE, NUMBER + 1, [0, 3], true);
        let address = self.free();
        let slot = self.slot(address);
        plant(&mut self.machine, slot, line);
        address
    }

    /// Makes two links, seen in the first space. The capabilities are of link 0, which may be offered to
    /// [`World::OFFERED_TO`], and of link 1, which is another sandbox's.
    ///
    /// # Panics
    /// If it is asked for more than once.
    pub fn links(&mut self) -> [Address; 2] {
        let all = self.links_of(2);
        [all[0], all[1]]
    }

    /// So many, of which all but link 0 are another sandbox's.
    ///
    /// # Panics
    /// If it is asked for more than once.
    pub fn links_of(&mut self, count: u32) -> Vec<Address> {
        let space = u64::from(Self::SPACE);
        loop {
            let table = self.make(Kind::Table, 0);
            if self.invoke(table, label::MAP_TABLE, [space, at::LINKS, 0, 0]).is_err() {
                break;
            }
        }
        let link = |n: u32| {
            // All the others have one memory.
            let table = LINK_TABLES + n.min(1) * PAGE;
            if n < 2 {
                self.machine.note(table, PAGE, Some(Kind::Table));
                let entries = &mut self.machine.get_mut::<PageTable>(Ref::new(table)).0;
                entries.fill(FakeFormat::empty());
                for (page, entry) in entries.iter_mut().take(3).enumerate() {
                    let rights = PageRights { write: page == 2, execute: false };
                    *entry = FakeFormat::page(
                        Self::LINK_MEMORY + page as u64 * 4096,
                        rights,
                        Memory::Normal,
                        0,
                    );
                }
            }
            let (at, slot) = (LINKS + 64 * n, self.slot(Self::SPACE));
            let to = if n == 0 { Self::OFFERED_TO } else { 0 };
            let link = self.kernel().make_link(at, [n, to], table, slot);
            let address = self.free();
            let slot = self.slot(address);
            plant(&mut self.machine, slot, link);
            address
        };
        (0..count).map(link).collect()
    }

    /// Sandboxes that link 0 of [`World::links`] may be offered to, as a set.
    pub const OFFERED_TO: u32 = 0b1010;
    /// Where the memory of links lies, which is none of the machine's own.
    pub const LINK_MEMORY: u64 = 0xDC00_0000;

    /// A notification is signalled, by the interrupt.
    pub fn signal(&mut self, notification: Address) {
        self.does(Self::INTERRUPT, label::SET_NOTIFICATION, [notification.into(), 0, 0, 0]);
        self.interrupt();
    }

    /// Decides anew which thread runs, so that work left for later is done.
    pub fn settle(&mut self) {
        self.core.undecided = 1;
        self.kernel().decide();
    }

    /// Where another one differs first, memory of which something was made and nothing is any more apart.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Option<usize> {
        let (this, other) = (self.image(), other.image());
        let len = self.machine.bytes().len();
        let gone = |at| (len / 2..len).contains(&at) && self.machine.kind_at(at as u32).is_none();
        (0..this.len()).find(|at| this[*at] != other[*at] && !gone(*at))
    }

    /// All that is remembered: memory and the core. It leaves out the scheduler's hints, places in queues that were
    /// left, and the rest of faults that were told. The short ways tell of such faults without writing them down.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        type Object = bulkhead_kernel::Thread;
        let mut all = self.machine.bytes().to_vec();
        for (at, _) in self.machine.objects().filter(|(_, kind)| *kind == Kind::Thread) {
            let thread: &Object = self.machine.get(Ref::new(at));
            if thread.state != State::Sending as u8 {
                let fault = at as usize + core::mem::offset_of!(Object, fault);
                all[fault..][..size_of_val(&thread.fault)].fill(0);
            }
        }
        for (at, _) in self.machine.objects().filter(|(_, kind)| *kind == Kind::Context) {
            let mut context: Context = *self.machine.get(Ref::new(at));
            context.time.forget_place();
            all[at as usize..][..size_of::<Context>()].copy_from_slice(context.as_bytes());
        }
        let scheduler = self.core.scheduler.without_hints();
        all.extend_from_slice(Core { scheduler, ..(*self.core).clone() }.as_bytes());
        all
    }
}

/// Lets a test run twice, with the short ways of calls and without: both must leave equal memory.
///
/// # Panics
/// With what the test panics, what is not as it has to be afterwards, and where the two differ.
pub fn both(test: impl Fn(&mut World)) {
    let [short, long] = [true, false].map(|fast| {
        let mut world = World { fast, ..World::new() };
        test(&mut world);
        world.audit();
        world.settle();
        world.audit();
        world
    });
    let what = short.differs(&long).map(|at| (at, short.machine.kind_at(at as u32)));
    assert!(what.is_none(), "the short way leaves another byte at {what:x?}");
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}
