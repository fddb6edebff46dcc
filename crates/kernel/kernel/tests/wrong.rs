//! Every method with every wrong argument, one at a time. A capability is replaced by each kind, set of rights and
//! address; a number by each at and beyond an end. The error names the wrong argument, and nothing has changed.
//! [`METHODS`] lists the methods; one without a row here fails.

use bulkhead_kernel_fake::USER_END;
use bulkhead_kernel_fake::World;
use bulkhead_kernel_fake::kernel::MAX_PERIOD;
use bulkhead_kernel_fake::kernel::abi::{
    Address, Code, Kind, Label, METHODS, Policy, Rights, Status, label,
};

/// Type of a method's word.
#[derive(Clone, Copy)]
enum Word {
    /// Not looked at, or right with any value.
    Any,
    /// The address of a capability of one of these kinds, with these rights.
    Cap(&'static [Kind], Rights),
    /// The address of such a capability, or 0 for nothing.
    CapOrNone(&'static [Kind], Rights),
    /// The address of such a capability in the lower 32 bits; the upper bits have another meaning.
    LowCap(&'static [Kind]),
    /// A number up to this one.
    UpTo(u64),
    /// A priority up to an authority's.
    Priority(u64),
    /// A sandbox of [`World::OFFERED_TO`].
    Other,
    /// A slot of a node with [`SLOTS`].
    Slot,
    /// Numbers and their errors: a detail, of [`Code::OutOfRange`], or nothing.
    Numbers(&'static [(u64, Option<u64>)]),
}

use Word::{Any, CapOrNone, LowCap, Numbers, Slot, UpTo};

const SLOTS: u64 = 16;
const NONE: Rights = Rights::NONE;
const RW: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);
const CALLS: Rights = Rights(Rights::CALL.0 | Rights::WRITE.0);

/// A method, its arguments, and a call that is accepted.
struct Row {
    /// Its capability.
    on: Address,
    /// The rights that needs.
    rights: Rights,
    words: [Word; 4],
    good: [u64; 4],
}

/// A system in which each method has something to do.
struct Things {
    world: World,
    of: [Address; 16],
    free: Address,
    pibs: Address,
    running: Address,
    empty: Address,
}

impl Things {
    fn new(cost: u32) -> Self {
        let mut world = World::of(18);
        world.core.cost = cost;
        let mut of = [0; 16];
        for (kind, bits) in [
            (Kind::Untyped, 13),
            (Kind::Node, 4),
            (Kind::Space, 0),
            (Kind::Table, 0),
            (Kind::Frame, 12),
            (Kind::Endpoint, 0),
            (Kind::Notification, 0),
            (Kind::Reply, 0),
            (Kind::Context, 9),
        ] {
            of[kind as usize] = world.make(kind, bits);
        }
        of[Kind::Thread as usize] = world.passive(10).cap;
        (of[Kind::Control as usize], of[Kind::Ports as usize]) = (World::CONTROL, World::PORTS);
        (of[Kind::Interrupt as usize], of[Kind::Sandbox as usize]) =
            (World::INTERRUPT, World::SANDBOX);
        for _ in 0..3 {
            let table = world.make(Kind::Table, 0);
            world.does(table, label::MAP_TABLE, [World::SPACE.into(), 0, 0, 0]);
        }
        of[Kind::Link as usize] = world.links()[0];
        let free = world.make(Kind::Context, 9);
        let pibs = world.context(Policy::Pibs, 100_000, 1_000_000);
        let running = world.thread(20).context;
        let empty = world.free();
        of[Kind::Null as usize] = empty;
        Self { world, of, free, pibs, running, empty }
    }

    fn at(&self, kind: Kind) -> u64 {
        self.of[kind as usize].into()
    }

    /// Arguments of a method.
    fn row(&self, method: Label) -> Row {
        use Kind::{Context, Control, Endpoint, Frame, Interrupt, Node, Notification, Ports};
        use Kind::{Link, Sandbox, Space, Table, Thread, Untyped};
        let cap = |kinds, rights| Word::Cap(kinds, rights);
        let space = u64::from(World::SPACE);
        let (on, words, good) = match method {
            label::RETYPE => (
                Untyped,
                [Numbers(MADE), cap(&[Node], NONE), Slot, Any],
                [7 | 1 << 16, self.at(Node), 1, 0],
            ),
            label::COPY => {
                (Node, [Slot, cap(DERIVABLE, NONE), UpTo(255), Any], [1, self.at(Endpoint), 31, 9])
            }
            label::MOVE => (Node, [Slot, cap(ALL, NONE), Any, Any], [1, self.at(Endpoint), 0, 0]),
            label::DELETE | label::REVOKE => (Node, [Slot, Any, Any, Any], [1, 0, 0, 0]),
            label::CONFIGURE => (
                Thread,
                [
                    cap(&[Node], NONE),
                    cap(&[Space], NONE),
                    CapOrNone(&[Frame], RW),
                    Numbers(BUFFERS),
                ],
                [World::NODE.into(), space, self.at(Frame), 512],
            ),
            label::SET_PRIORITY => (
                Thread,
                [Word::Priority(255), Word::Priority(255), cap(&[Thread], NONE), Any],
                [1, 2, self.at(Thread), 0],
            ),
            label::SET_FAULT | label::SET_TIMEOUT => (
                Thread,
                [CapOrNone(&[Endpoint], CALLS), Any, Any, Any],
                [self.at(Endpoint), 0, 0, 0],
            ),
            label::WRITE_REGISTERS | label::START => {
                (Thread, [UpTo(USER_END - 1), UpTo(USER_END - 1), Any, Any], [0x1000, 0x2000, 0, 0])
            }
            label::READ_REGISTERS | label::RESUME | label::SUSPEND => (Thread, [Any; 4], [0; 4]),
            label::BIND_NOTIFICATION => (
                Thread,
                [CapOrNone(&[Notification], Rights::READ), Any, Any, Any],
                [self.at(Notification), 0, 0, 0],
            ),
            label::SET_POINTER => (Thread, [UpTo(USER_END - 1), Any, Any, Any], [0x1000, 0, 0, 0]),
            label::SET_FPU => (Thread, [UpTo(1), Any, Any, Any], [1, 0, 0, 0]),
            label::MAP_TABLE => {
                (Table, [cap(&[Space], NONE), Numbers(TABLES), Any, Any], [space, 1 << 40, 0, 0])
            }
            label::UNMAP_TABLE => (Table, [Any; 4], [0; 4]),
            label::MAP => (
                Frame,
                [cap(&[Space], NONE), Numbers(PAGES), Numbers(MAPPED), Any],
                [space, 0x1000, 1, 0],
            ),
            label::UNMAP | label::PHYSICAL => (Frame, [Any; 4], [0; 4]),
            label::BIND => (
                Context,
                [cap(&[Thread, Notification], NONE), UpTo(2), Any, Any],
                [self.at(Thread), 0, 0, 0],
            ),
            label::UNBIND | label::CONSUMED | label::YIELD_TO => (Context, [Any; 4], [0; 4]),
            label::SERVE => {
                (Context, [cap(&[Context], NONE), Any, Any, Any], [self.running.into(), 0, 0, 0])
            }
            label::SET_CONTEXT => (
                Control,
                [LowCap(&[Context]), Numbers(BUDGETS), Numbers(PERIODS), Any],
                [self.free.into(), 5_000, 20_000, 0],
            ),
            label::SET_NOTIFICATION => (
                Interrupt,
                [CapOrNone(&[Notification], Rights::WRITE), Any, Any, Any],
                [self.at(Notification), 0, 0, 0],
            ),
            label::ACKNOWLEDGE => (Interrupt, [Any; 4], [0; 4]),
            label::IN => (Ports, [Numbers(REACHED), Any, Any, Any], [0x60, 0, 0, 0]),
            label::OUT => (Ports, [Numbers(REACHED), Any, UpTo(0xFFF), Any], [0x60, 0, 9, 0]),
            label::PRINT => (Sandbox, [Any; 4], [0x41; 4]),
            label::READY => (Sandbox, [Any; 4], [0; 4]),
            label::LOOK => (Link, [UpTo(1), Any, Any, Any], [1, 0, 0, 0]),
            label::OFFER => (Link, [Word::Other, UpTo(0xFFFF), Any, Any], [1, 7, 0, 0]),
            label::ACCEPT => (Link, [UpTo((1 << 32) - 1), Any, Any, Any], [3, 0, 0, 0]),
            label::CLOSE => (Link, [Any; 4], [0; 4]),
            label::RESTART => (Sandbox, [Any; 4], [0; 4]),
            label::EXIT => (Sandbox, [UpTo((1 << 32) - 1), Any, Any, Any], [7, 0, 0, 0]),
            _ => panic!("method {method} has no row"),
        };
        let rights = match method {
            label::SET_NOTIFICATION | label::PRINT => Rights::WRITE,
            label::LOOK => Rights::READ,
            label::OFFER | label::ACCEPT | label::CLOSE => Rights::WRITE,
            label::READY | label::EXIT | label::RESTART => Rights::EXECUTE,
            _ => NONE,
        };
        let on = match method {
            label::YIELD_TO => self.running,
            label::SERVE => self.pibs,
            _ => self.of[on as usize],
        };
        Row { on, rights, words, good }
    }

    /// A call in a system like this one.
    fn tried(&self, on: Address, method: Label, words: [u64; 4]) -> Result<(), Status> {
        let mut world = self.world.clone();
        let before = world.image();
        let came = world.invoke(on, method, words);
        assert!(
            came.is_ok() || world.image() == before,
            "{method} with {words:x?} changed something"
        );
        came.map(drop)
    }

    /// That it says so. The detail of a missing capability is its address, but for a capability that a slot should have
    /// held.
    fn says(&self, on: Address, method: Label, words: [u64; 4], why: Result<(), Status>) {
        let came = self.tried(on, method, words);
        let nothing = |status: &Status| status.code() == Some(Code::NoCapability);
        let same = match (came, why) {
            (Err(came), Err(why)) if nothing(&why) => {
                nothing(&came) && came.argument() == why.argument()
            }
            (came, why) => came == why,
        };
        assert!(same, "method {method} of {on} with {words:x?}: {came:x?}, not {why:x?}");
    }
}

const ALL: &[Kind] = &Kind::ALL;
/// All but free memory and tables, which have one capability only.
const DERIVABLE: &[Kind] = &[
    Kind::Node,
    Kind::Thread,
    Kind::Space,
    Kind::Frame,
    Kind::Endpoint,
    Kind::Notification,
    Kind::Reply,
    Kind::Context,
    Kind::Control,
    Kind::Interrupt,
    Kind::Ports,
    Kind::Sandbox,
    Kind::Link,
];

const fn made(kind: u64, bits: u64, count: u64) -> u64 {
    kind | bits << 8 | count << 16
}

const MADE: &[(u64, Option<u64>)] = &[
    (made(0, 0, 1), Some(0)),
    (made(11, 0, 1), Some(0)),
    (made(12, 0, 1), Some(0)),
    (made(13, 0, 1), Some(0)),
    (made(14, 0, 1), Some(0)),
    (made(15, 0, 1), Some(0)),
    (made(16, 0, 1), Some(0)),
    (made(255, 0, 1), Some(0)),
    (made(1, 5, 1), None),
    (made(1, 4, 1), Some(30)),
    (made(1, 31, 1), Some(30)),
    (made(1, 255, 1), Some(30)),
    (made(2, 1, 1), None),
    (made(2, 0, 1), Some(16)),
    (made(2, 17, 1), Some(16)),
    (made(3, 0, 1), None),
    (made(3, 1, 1), Some(0)),
    (made(4, 1, 1), Some(0)),
    (made(5, 1, 1), Some(0)),
    (made(6, 12, 1), None),
    (made(6, 13, 1), Some(21)),
    (made(6, 22, 1), Some(21)),
    (made(7, 1, 1), Some(0)),
    (made(8, 1, 1), Some(0)),
    (made(9, 1, 1), Some(0)),
    (made(10, 9, 1), None),
    (made(10, 8, 1), Some(12)),
    (made(10, 13, 1), Some(12)),
    (made(7, 0, 15), None),
    (made(7, 0, 0), Some(256)),
    (made(7, 0, 257), Some(256)),
    (u64::MAX, Some(0)),
    (u64::MAX << 16 | made(7, 0, 0), Some(256)),
];
const BUFFERS: &[(u64, Option<u64>)] = &[
    (0, None),
    (3_584, None),
    (8, Some(3_584)),
    (3_585, Some(3_584)),
    (4_096, Some(3_584)),
    ((1 << 21) - 512, Some(3_584)),
    (1 << 21, Some((1 << 21) - 1)),
    (u64::MAX, Some((1 << 21) - 1)),
];
const TABLES: &[(u64, Option<u64>)] = &[
    (USER_END - 1, None),
    (USER_END, Some(USER_END - 1)),
    (1 << 63, Some(USER_END - 1)),
    (u64::MAX, Some(USER_END - 1)),
];
const PAGES: &[(u64, Option<u64>)] = &[
    (0, None),
    (0x1F_F000, None),
    (1, Some(USER_END - 4_096)),
    (0xFFF, Some(USER_END - 4_096)),
    (USER_END, Some(USER_END - 4_096)),
    (1 << 63, Some(USER_END - 4_096)),
    (u64::MAX << 12, Some(USER_END - 4_096)),
    (u64::MAX, Some(USER_END - 4_096)),
];
/// All but to be written, which excludes to be executed.
const MAPPED: &[(u64, Option<u64>)] =
    &[(0xFD, None), (256, Some(255)), (1 << 63, Some(255)), (u64::MAX, Some(255))];
const BUDGETS: &[(u64, Option<u64>)] = &[
    (20_000, None),
    (0, Some(20_000)),
    (20_001, Some(20_000)),
    (1 << 63, Some(20_000)),
    (u64::MAX, Some(20_000)),
];
const PERIODS: &[(u64, Option<u64>)] = &[
    (10_000, None),
    (MAX_PERIOD, None),
    (0, Some(MAX_PERIOD)),
    (9_999, Some(MAX_PERIOD)),
    (MAX_PERIOD + 1, Some(MAX_PERIOD)),
    (u64::MAX, Some(MAX_PERIOD)),
];
const REACHED: &[(u64, Option<u64>)] = &[
    (0x60, None),
    (0x6F, None),
    (0, Some(0x6F)),
    (0x5F, Some(0x6F)),
    (0x70, Some(0x6F)),
    (0x1_0060, Some(0x6F)),
    (u64::MAX, Some(0x6F)),
];
/// The kernel's own methods: the kernel calls handlers with the others.
fn methods() -> impl Iterator<Item = (Kind, Label)> {
    let objects = METHODS.iter().filter(|(name, _)| *name != "Handler");
    objects.flat_map(|(name, methods)| {
        let kind = Kind::DESCRIBED.iter().find(|kind| kind.name == *name);
        let kind = kind.and_then(|kind| Kind::new(kind.number as u8)).expect("a kind");
        methods.iter().map(move |method| (kind, method.number))
    })
}

fn with(good: [u64; 4], n: usize, word: u64) -> [u64; 4] {
    let mut words = good;
    words[n] = word;
    words
}

/// Addresses without a capability: the word that names it, and true if 32 bits hold that.
fn nowhere(things: &Things) -> Vec<u64> {
    let (node, thread) = (things.at(Kind::Node), things.at(Kind::Thread));
    vec![
        things.empty.into(),
        u64::from(things.world.root().slots),
        0xFFFF,
        node << 16,
        node << 16 | 1,
        node << 16 | SLOTS,
        node << 16 | 0xFFFF,
        thread << 16 | 1,
        u64::from(things.empty) << 16 | 1,
        0xFFFF_FFFF,
        1 << 32,
        1 << 32 | thread,
        1 << 63 | thread,
        u64::MAX,
    ]
}

/// A method's word, in place of the good one: everything that is not.
fn try_word(things: &Things, method: Label, row: &Row, n: usize) -> u32 {
    let (argument, mut tried) = (n as u8 + 1, 0);
    let mut says = |word, why| {
        things.says(row.on, method, with(row.good, n, word), why);
        tried += 1;
    };
    let beyond = |code, detail| Err(Status::new(code, argument, detail));
    let (kinds, rights, none, low) = match row.words[n] {
        Any => {
            for word in [1 << 63, u64::MAX] {
                says(word, Ok(()));
            }
            return tried;
        }
        UpTo(most) | Word::Priority(most) => {
            let code = match row.words[n] {
                UpTo(_) => Code::OutOfRange,
                _ => Code::NoAuthority,
            };
            says(most, Ok(()));
            for word in [most + 1, 1 << 63, u64::MAX] {
                says(word, beyond(code, most));
            }
            return tried;
        }
        Word::Other => {
            says(3, Ok(()));
            for word in [0, 2, 31, 32, 33, 64 + 1, 1 << 32 | 1, u64::MAX] {
                says(word, beyond(Code::NoAuthority, World::OFFERED_TO.into()));
            }
            return tried;
        }
        Slot => {
            says(SLOTS - 1, Ok(()));
            for word in [0, SLOTS, 0xFFFF, 1 << 32 | 1, u64::MAX] {
                says(word, beyond(Code::OutOfRange, SLOTS - 1));
            }
            return tried;
        }
        Numbers(numbers) => {
            for (word, detail) in numbers {
                says(*word, detail.map_or(Ok(()), |detail| beyond(Code::OutOfRange, detail)));
            }
            return tried;
        }
        Word::Cap(kinds, rights) => (kinds, rights, false, false),
        CapOrNone(kinds, rights) => (kinds, rights, true, false),
        LowCap(kinds) => (kinds, NONE, false, true),
    };
    for kind in Kind::ALL.into_iter().filter(|kind| !kinds.contains(kind) && *kind != Kind::Null) {
        says(things.at(kind), beyond(Code::WrongKind, kind as u64));
    }
    says(0, if none { Ok(()) } else { beyond(Code::NoCapability, 0) });
    for address in nowhere(things).into_iter().filter(|address| !low || address >> 32 == 0) {
        says(address, beyond(Code::NoCapability, address));
    }
    for given in 0..=Rights::ALL.0 {
        let mut things = Things { world: things.world.clone(), ..*things };
        let copy = things.world.copy(row.good[n] as Address, Rights(given), 0);
        let why = match Rights(given).has(rights) {
            true => Ok(()),
            false => beyond(Code::NoRight, rights.0.into()),
        };
        things.says(row.on, method, with(row.good, n, copy.into()), why);
        tried += 1;
    }
    tried
}

#[test]
fn every_method_says_which_argument_is_wrong_and_changes_nothing() {
    let mut tried = 0;
    for (n, (kind, method)) in methods().enumerate() {
        // In half of them an activation costs something.
        let things = Things::new([0, 500][n % 2]);
        let row = things.row(method);
        assert_eq!(things.world.cap(row.on).kind(), kind, "of {method}");
        assert_eq!(things.tried(row.on, method, row.good), Ok(()), "the good call of {method}");
        tried += (0..4).map(|n| try_word(&things, method, &row, n)).sum::<u32>();
    }
    assert!(tried > 1_000, "{tried}");
}

/// Rights count where the reference says so, and nowhere else.
#[test]
fn every_method_with_each_set_of_rights_of_its_own_capability() {
    for (kind, method) in methods().filter(|(kind, _)| DERIVABLE.contains(kind)) {
        let things = Things::new(0);
        let row = things.row(method);
        for given in 0..=Rights::ALL.0 {
            let mut things = Things { world: things.world.clone(), ..things };
            let on = things.world.copy(row.on, Rights(given), 0);
            // A frame's rights say how it can be mapped.
            let reads = method != label::MAP || Rights(given).has(Rights::READ);
            let why = match (Rights(given).has(row.rights), reads) {
                (true, true) => Ok(()),
                (true, false) => Err(Status::new(Code::NoRight, 3, Rights::READ.0.into())),
                _ => Err(Status::new(Code::NoRight, 0, row.rights.0.into())),
            };
            let came = things.tried(on, method, row.good);
            assert_eq!(came, why, "{method} of {kind:?} with rights {given:#x}");
        }
    }
}

#[test]
fn every_kind_has_its_methods_and_no_others() {
    let mut things = Things::new(0);
    // Numbers at which there are methods, those beside them, and some that are far off.
    let numbers = (0..130).chain([1 << 32 | 1, 1 << 40, (1 << 55) - 1, u64::MAX]);
    for kind in Kind::ALL {
        let (on, before) = (things.of[kind as usize], things.world.image());
        for method in numbers.clone().filter(|method| !methods().any(|m| m == (kind, *method))) {
            let came = things.world.invoke(on, method, [1, 0, 0, 0]);
            assert_eq!(came, Err(Status::new(Code::NoCall, 0, 0)), "{method} of {kind:?}");
        }
        assert!(things.world.image() == before, "{kind:?}");
    }
}
