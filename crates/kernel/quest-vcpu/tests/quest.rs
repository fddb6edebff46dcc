//! The functions on the kernel itself, on the host: two threads of a program, the first one of which has a context of
//! the manifest's.

use bulkhead_kernel_fake::kernel::abi::name::{Capability, Context};
use bulkhead_kernel_fake::kernel::abi::{
    Address, Grant, Kind, Label, Load, Name, Page, Policy, Rights, Status, label, slot,
};
use bulkhead_kernel_fake::kernel::{Machine as _, State, Time};
use bulkhead_kernel_fake::{Came, Thread, World};
use bulkhead_quest_vcpu::{Calls, Error, Given, Last, Param, SCHED_PIBS, SCHED_SPORADIC, Vcpus};
use zerocopy::FromZeros;

const MS: Time = 1_000_000;
const MAIN: usize = 0;
const OTHER: usize = 1;
/// The highest priority that the program may give.
const TOP: u8 = 100;
/// Load of the manifest's contexts beside the program's own: 10 %. %.
const OTHERS: u64 = (1 << 40) / 10;

struct System {
    world: World,
    threads: [Thread; 2],
    vcpus: Vcpus,
}

/// Calls of a thread that runs; a program's own slots lie elsewhere in a [`World`].
struct By<'a>(&'a mut World, Thread);

impl Calls for By<'_> {
    fn invoke(
        &mut self,
        on: Address,
        method: Label,
        mut words: [u64; 4],
    ) -> Result<[u64; 4], Status> {
        let Self(world, thread) = self;
        let on = match on {
            slot::NODE => World::NODE,
            slot::CONTROL => World::CONTROL,
            slot::MEMORY => World::UNTYPED,
            other => other,
        };
        if method == label::RETYPE {
            words[1] = World::NODE.into();
        }
        assert!(world.runs(*thread));
        let answer = world.method(*thread, on, method, words);
        let Came { status, .. } = world.came(*thread);
        answer.map_err(|_| status)
    }
}

fn named(name: &str, kind: Kind, address: Address) -> Name {
    Name::new(
        name,
        Grant::Capability(Capability { kind, rights: Rights::ALL, priority: 0, address }),
    )
}

impl System {
    /// With a memory of 2^`bits` bytes.
    fn of(bits: u8) -> Self {
        let mut world = World::of(bits);
        let main = world.thread_of(TOP, Policy::Sporadic, 2 * MS, 10 * MS);
        let other = world.thread_of(50, Policy::Full, 0, MS);
        for thread in [main, other] {
            world.machine.get_mut(thread.at).max_priority = TOP;
        }
        let time = Grant::Context(Context {
            policy: Policy::Sporadic,
            thread: 1,
            address: main.context,
            budget: 2_000,
            period: 10_000,
        });
        let entries = [
            named("main", Kind::Reply, 90),
            named("other", Kind::Reply, 91),
            named("other", Kind::Thread, other.cap),
            Name::new("main", time),
            named("main", Kind::Thread, main.cap),
        ];
        let mut page = Page::new_zeroed();
        page.names = entries.len() as u64;
        page.name_of[..entries.len()].copy_from_slice(&entries);
        page.free = [400, 500];
        // 20 % are the main thread's.
        page.load = Load { share: OTHERS + (1 << 40) / 5 + 1, servers: 2, overhead: 0 };
        let calls = &mut By(&mut world, main);
        let vcpus = Vcpus::new(Given::of(&page), Given::vcpus(&page), calls);
        Self { world, threads: [main, other], vcpus }
    }

    fn new() -> Self {
        Self::of(20)
    }

    fn with<T>(&mut self, caller: usize, work: impl FnOnce(&mut Vcpus, &mut By<'_>) -> T) -> T {
        let result = work(&mut self.vcpus, &mut By(&mut self.world, self.threads[caller]));
        self.world.audit();
        result
    }

    fn create(&mut self, param: Param) -> Result<i32, Error> {
        self.with(MAIN, |vcpus, by| vcpus.create(by, Some(param)))
    }

    fn bind(&mut self, caller: usize, id: i32) -> Result<(), Error> {
        self.with(caller, |vcpus, by| vcpus.bind(by, caller, id))
    }

    fn destroy(&mut self, id: i32, force: bool) -> Result<Option<Last>, Error> {
        self.with(MAIN, |vcpus, by| vcpus.destroy(by, MAIN, id, force))
    }

    fn walk(&mut self, caller: usize) -> Param {
        self.vcpus.get_param(caller).expect("a list that is not empty")
    }

    fn priority(&self, thread: usize) -> u8 {
        self.world.machine.get(self.threads[thread].at).priority
    }

    /// The other thread has run: the main one waits for the end of its budget.
    fn let_the_other_run(&mut self) {
        while !self.world.runs(self.threads[OTHER]) {
            self.world.next();
        }
    }

    fn let_main_run(&mut self) {
        while !self.world.runs(self.threads[MAIN]) {
            self.world.next();
        }
    }
}

const fn main_vcpu(c: i32, t: i32) -> Param {
    Param { vcpuid: 0, policy: SCHED_SPORADIC, mask: 1, c, t }
}

const fn io_vcpu(c: i32, t: i32) -> Param {
    Param { policy: SCHED_PIBS, ..main_vcpu(c, t) }
}

#[test]
fn a_walk_begins_at_the_head_and_there_again_behind_the_end() {
    let mut system = System::new();
    let first = Param { vcpuid: 1, ..main_vcpu(2_000, 10_000) };
    assert_eq!([0; 2].map(|_| system.walk(MAIN)), [first; 2], "the manifest's one is the list");
    assert_eq!(system.create(main_vcpu(1_000, 20_000)), Ok(2));
    assert_eq!(system.create(io_vcpu(1, 50)), Ok(3));
    let created = system.with(MAIN, |vcpus, by| vcpus.create(by, None));
    assert_eq!(created, Ok(4));
    let walk = [0; 5].map(|_| system.walk(MAIN).vcpuid);
    assert_eq!(walk, [2, 3, 4, 1, 2]);
    // Each thread has its own place, and what is gone is passed over.
    assert_eq!([0; 2].map(|_| system.walk(OTHER).vcpuid), [1, 2]);
    assert_eq!(system.destroy(3, false), Ok(None));
    assert_eq!(system.walk(MAIN), Param { vcpuid: 4, ..Param::DEFAULT });
    assert_eq!(system.walk(OTHER).vcpuid, 4);
}

#[test]
fn a_thread_that_binds_itself_runs_on_the_new_vcpu() {
    let mut system = System::new();
    system.create(main_vcpu(1_000, 5_000)).unwrap();
    system.bind(MAIN, 2).unwrap();
    assert_eq!(system.bind(MAIN, 2), Ok(()), "it is bound already");
    let start = system.world.machine.time;
    system.world.pass(start + MS);
    assert!(system.world.runs(system.threads[OTHER]), "1 ms is all that it has");
    system.let_main_run();
    assert_eq!(system.world.machine.time, start + 5 * MS);
    // No thread is on the first one now.
    assert_eq!(system.bind(MAIN, 1), Ok(()));
    assert!(system.world.runs(system.threads[MAIN]));
}

#[test]
fn priorities_are_inversely_proportional_to_periods() {
    let mut system = System::new();
    for t in [40_000, 10_000, 20_000] {
        system.create(main_vcpu(100, t)).unwrap();
    }
    assert_eq!(system.priority(MAIN), TOP, "10 ms are the shortest");
    system.bind(MAIN, 2).unwrap();
    assert_eq!(system.priority(MAIN), TOP - 2);
    let param = Param { vcpuid: 4, ..main_vcpu(100, 10_000) };
    system.with(MAIN, |vcpus, by| vcpus.set_param(by, &param)).unwrap();
    assert_eq!(system.priority(MAIN), TOP - 1, "20 ms are no more");
}

/// The article's sum, with what others on the core have: 10 % + 20 % for two, and what is new.
#[test]
fn admission_refuses_what_is_above_the_bound() {
    let mut system = System::new();
    // 3 (2^(1/3) - 1) = 77.976 %.
    assert_eq!(system.create(main_vcpu(4_798, 10_000)), Err(Error::NotAdmitted));
    assert_eq!(system.create(main_vcpu(4_797, 10_000)), Ok(2));
    // (2 - U) U = 1.99 %; for the default one 1 % and the bound for four, 75.682 %.
    assert_eq!(system.create(io_vcpu(1, 100)), Err(Error::NotAdmitted));
    let param = Param { vcpuid: 2, ..main_vcpu(4_000, 10_000) };
    let set = |system: &mut System, param| system.with(MAIN, |v, by| v.set_param(by, &param));
    assert_eq!(set(&mut system, param), Ok(()));
    assert_eq!(system.create(io_vcpu(1, 100)), Ok(3));
    // 10 + 20 + 40 % and (2 - U) U = 7.84 % fit below 77.976 %, 9.75 % do not.
    let refused = Param { vcpuid: 3, ..io_vcpu(5, 100) };
    assert_eq!(set(&mut system, refused), Err(Error::NotAdmitted));
    let walk = [0; 3].map(|_| system.walk(MAIN));
    assert_eq!(walk[2], Param { vcpuid: 3, ..io_vcpu(1, 100) }, "it keeps what it has");
    assert_eq!(system.destroy(2, false), Ok(None));
    assert_eq!(set(&mut system, refused), Ok(()), "its share is free");
}

#[test]
fn destroying_needs_force_where_there_is_a_thread() {
    let mut system = System::new();
    system.create(main_vcpu(1_000, 10_000)).unwrap();
    system.let_the_other_run();
    system.bind(OTHER, 2).unwrap();
    system.let_main_run();
    assert_eq!(system.bind(MAIN, 2), Err(Error::Busy), "one thread at a time");
    assert_eq!(system.destroy(2, false), Err(Error::Busy));
    assert_eq!(system.destroy(1, false), Err(Error::Busy));
    assert_eq!(system.destroy(2, true), Ok(None));
    assert_eq!(system.world.state(system.threads[OTHER]), State::Stopped);
    assert_eq!(system.destroy(2, true), Err(Error::NotFound));
}

/// Admission does not count it any more, so that it must not run.
#[test]
fn who_is_destroyed_does_not_run_when_somebody_resumes_it() {
    let mut system = System::new();
    system.create(main_vcpu(1_000, 10_000)).unwrap();
    system.let_the_other_run();
    system.bind(OTHER, 2).unwrap();
    system.let_main_run();
    assert_eq!(system.destroy(2, true), Ok(None));
    let [main, other] = system.threads;
    system.with(MAIN, |_, by| by.invoke(other.cap, label::RESUME, [0; 4])).unwrap();
    let end = system.world.machine.time + 100 * MS;
    while system.world.machine.time < end {
        assert!(!system.world.runs(other));
        system.world.next();
    }
    // Its own VCPU is destroyed so, too: the rest is left to the caller.
    system.let_main_run();
    let last = Last { thread: main.cap, context: main.context };
    assert_eq!(system.destroy(1, true), Ok(Some(last)));
    system.world.method(main, last.context, label::UNBIND, [0; 4]).expect("it is its own");
    system.world.audit();
    system.world.pass(system.world.machine.time + 100 * MS);
    assert!(system.world.core.current.is_none(), "nobody has time any more");
}

/// A context that the program manages may belong to a thread that it does not know.
#[test]
fn what_an_unknown_thread_has_is_destroyed_by_force_alone() {
    let mut system = System::new();
    assert_eq!(system.create(main_vcpu(1_000, 10_000)), Ok(2));
    let context = Address::from(499u16);
    let other = system.threads[OTHER];
    let bind = |by: &mut By<'_>| {
        by.invoke(other.context, label::UNBIND, [0; 4])?;
        by.invoke(context, label::BIND, [other.cap.into(), 0, 0, 0])
    };
    system.with(MAIN, |_, by| bind(by)).expect("it is empty");
    assert_eq!(system.destroy(2, false), Err(Error::Busy));
    assert_eq!(system.destroy(2, true), Ok(None));
    assert_eq!(system.create(main_vcpu(1_000, 10_000)), Ok(2));
    assert_eq!(system.destroy(2, false), Ok(None), "nobody has it");
}

/// The program's authority over priorities can be taken away behind its back.
#[test]
fn who_may_not_have_its_priority_changes_nothing() {
    let mut system = System::new();
    system.create(main_vcpu(100, 20_000)).unwrap();
    let all = [0; 2].map(|_| system.walk(MAIN));
    let authority = |system: &mut System, most| {
        for thread in system.threads {
            system.world.machine.get_mut(thread.at).max_priority = most;
        }
    };
    authority(&mut system, TOP - 1);
    assert_eq!(system.create(main_vcpu(100, 5_000)), Err(Error::Permission));
    let param = Param { vcpuid: 1, ..main_vcpu(100, 30_000) };
    let set = system.with(MAIN, |vcpus, by| vcpus.set_param(by, &param));
    assert_eq!(set, Err(Error::Permission));
    assert_eq!(system.bind(MAIN, 2), Err(Error::Permission));
    assert_eq!(system.destroy(2, false), Ok(None), "for which that does not matter");
    authority(&mut system, TOP);
    // A VCPU that was not created is nowhere, and its context is used again.
    for (id, t) in [(2, 20_000), (3, 5_000)] {
        assert_eq!(system.create(main_vcpu(100, t)), Ok(id));
    }
    assert_eq!(system.walk(MAIN).vcpuid, 3);
    assert_eq!([0; 2].map(|_| system.walk(MAIN)), all);
    assert_eq!(system.destroy(1, false), Err(Error::Busy), "it has its thread");
    let start = system.world.machine.time;
    system.world.pass(start + MS);
    assert!(system.world.runs(system.threads[MAIN]), "and 2 ms of 10, not 100 us of 30");
}

#[test]
fn what_is_destroyed_is_used_again() {
    let mut system = System::of(18);
    for _ in 0..2_000 {
        assert_eq!(system.create(main_vcpu(1_000, 20_000)), Ok(2));
        system.bind(MAIN, 2).unwrap();
        system.bind(MAIN, 1).unwrap();
        assert_eq!(system.destroy(2, false), Ok(None));
    }
}

#[test]
fn what_cannot_be_says_why() {
    let mut system = System::new();
    assert_eq!(system.create(main_vcpu(5, 4)), Err(Error::Invalid));
    assert_eq!(system.create(main_vcpu(1, 5)), Err(Error::Invalid), "the kernel refuses 5 us");
    assert_eq!(system.create(Param { mask: 2, ..main_vcpu(1, 100) }), Err(Error::Invalid));
    for id in [i32::MIN, -1, 0, 2, 65, i32::MAX] {
        assert_eq!(system.bind(MAIN, id), Err(Error::NotFound), "{id}");
        assert_eq!(system.destroy(id, true), Err(Error::NotFound), "{id}");
    }
    let many = (2..).map(|_| system.create(io_vcpu(1, 100_000)));
    let last = many.take_while(Result::is_ok).last();
    assert_eq!(last, Some(Ok(64)), "the list is full");
    assert_eq!(system.create(io_vcpu(1, 100_000)), Err(Error::NoMemory));
}

/// Random calls: what is admitted stays below the bound in floating point, too, and the list is what a model says.
#[test]
fn random_calls_keep_the_list_and_the_bound() {
    let mut seed = 1u64;
    let mut below = move |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let mut system = System::new();
    let mut model = vec![Param { vcpuid: 1, ..main_vcpu(2_000, 10_000) }];
    let mut refused = 0;
    for _ in 0..3_000 {
        let (c, t) = (1 + below(3_000) as i32, 4_000 * (1 + below(5) as i32));
        let param = Param { policy: below(2) as i32, ..main_vcpu(c, t) };
        let id = 1 + below(12) as i32;
        match below(4) {
            0 => match system.create(param) {
                Ok(id) => model.push(Param { vcpuid: id, ..param }),
                Err(error) => {
                    assert_eq!(error, Error::NotAdmitted);
                    refused += 1;
                }
            },
            1 => {
                let param = Param { vcpuid: id, ..param };
                let known = model.iter_mut().find(|known| known.vcpuid == id);
                let set = system.with(MAIN, |vcpus, by| vcpus.set_param(by, &param));
                assert_eq!(set == Err(Error::NotFound), known.is_none());
                if let (Ok(()), Some(known)) = (set, known) {
                    *known = param;
                }
            }
            2 => {
                if let Ok(None) = system.destroy(id, false) {
                    model.retain(|known| known.vcpuid != id);
                }
            }
            _ => _ = system.bind(MAIN, id),
        }
        model.sort_by_key(|known| known.vcpuid);
        let mut walk: Vec<_> = model.iter().map(|_| system.walk(MAIN)).collect();
        walk.sort_by_key(|known| known.vcpuid);
        assert_eq!(walk, model);
        let share = |p: &Param| {
            let u = f64::from(p.c) / f64::from(p.t);
            if p.policy == SCHED_PIBS { (2.0 - u) * u } else { u }
        };
        let n = 1.0 + model.iter().filter(|p| p.policy == SCHED_SPORADIC).count() as f64;
        let sum = 0.1 + model.iter().map(share).sum::<f64>();
        assert!(sum <= n * (2f64.powf(1.0 / n) - 1.0) + 1e-9, "{sum} for {n}");
        system.let_main_run();
    }
    assert!(refused > 100, "{refused}");
}
