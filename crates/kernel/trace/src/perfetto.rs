//! A file that Perfetto opens: the messages of its `protos/perfetto/trace` that tracks and their events need.
//!
//! | track | shows |
//! |---|---|
//! | a process for each kernel, named as its sandbox | its threads, and: |
//! | `core` | which thread runs |
//! | `interrupts` | the timer's and devices' |
//! | a thread for each thread | when it runs, each slice named as the context that it runs on; calls, deadlines, faults |
//! | a track and a counter for each context | replenishments, ends of its budget; what is left of its refill |
//!
//! Arrows go from the donor to the place where the context runs on, and back.

use crate::proto::Message;
use crate::{Event, Item, Names, Timeline};
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::String;
use std::vec::Vec;

/// Numbers of fields, by message.
mod field {
    pub const PACKET: u64 = 1;
    pub mod packet {
        pub const TIMESTAMP: u64 = 8;
        pub const SEQUENCE: u64 = 10;
        pub const TRACK_EVENT: u64 = 11;
        pub const SEQUENCE_FLAGS: u64 = 13;
        pub const TRACK: u64 = 60;
    }
    pub mod track {
        pub const UUID: u64 = 1;
        pub const NAME: u64 = 2;
        pub const PROCESS: u64 = 3;
        pub const THREAD: u64 = 4;
        pub const PARENT: u64 = 5;
        pub const COUNTER: u64 = 8;
        pub const PROCESS_PID: u64 = 1;
        pub const PROCESS_NAME: u64 = 6;
        pub const THREAD_PID: u64 = 1;
        pub const THREAD_TID: u64 = 2;
        pub const THREAD_NAME: u64 = 5;
        pub const COUNTER_UNIT: u64 = 3;
    }
    pub mod event {
        pub const TYPE: u64 = 9;
        pub const TRACK: u64 = 11;
        pub const NAME: u64 = 23;
        pub const COUNTER_VALUE: u64 = 30;
        pub const FLOWS: u64 = 47;
        pub const ENDING_FLOWS: u64 = 48;
    }
}

/// `TrackEvent.Type`.
#[derive(Clone, Copy)]
enum Type {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// All packets are of one sequence.
const SEQUENCE: u64 = 1;
/// `TracePacket.SequenceFlags`: nothing before it counts.
const CLEARED: u64 = 1;
/// `CounterDescriptor.Unit`: nanoseconds.
const NANOSECONDS: u64 = 1;

/// A kernel's part of the file.
#[derive(Clone, Debug)]
pub struct Kernel<'a> {
    /// Its sandbox.
    pub name: &'a str,
    /// Its events.
    pub timeline: &'a Timeline,
    /// Names of threads and contexts.
    pub names: &'a Names,
}

/// Returns the file with the events of several kernels, which share a clock.
#[must_use]
pub fn perfetto(kernels: &[Kernel<'_>]) -> Vec<u8> {
    let mut file = File::default();
    for (n, kernel) in kernels.iter().enumerate() {
        let mut writer = Writer::new(&mut file, kernel, n as u32 + 1);
        writer.tracks();
        kernel.timeline.items.iter().for_each(|item| writer.item(item));
        writer.close();
    }
    file.bytes.0
}

#[derive(Default)]
struct File {
    bytes: Message,
    begun: bool,
    flows: u64,
}

impl File {
    fn packet(&mut self, packet: Message) {
        let mut packet = packet.number(field::packet::SEQUENCE, SEQUENCE);
        if !self.begun {
            packet = packet.number(field::packet::SEQUENCE_FLAGS, CLEARED);
            self.begun = true;
        }
        self.bytes = core::mem::take(&mut self.bytes).message(field::PACKET, packet);
    }

    fn event(&mut self, at: u64, event: Message) {
        let packet = Message::default().number(field::packet::TIMESTAMP, at);
        self.packet(packet.message(field::packet::TRACK_EVENT, event));
    }
}

/// A track of a kernel: the parts of its uuid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    Process,
    Core,
    Interrupts,
    Thread(u32),
    Context(u32),
    Left(u32),
}

struct Writer<'a, 'f> {
    file: &'f mut File,
    kernel: &'a Kernel<'a>,
    number: u32,
    known: BTreeSet<Track>,
    /// Running thread, and its context.
    runs: Option<(u32, u32)>,
    /// Arrows that end where a thread runs next.
    arrows: BTreeMap<u32, Vec<u64>>,
    now: u64,
}

impl<'a, 'f> Writer<'a, 'f> {
    fn new(file: &'f mut File, kernel: &'a Kernel<'a>, number: u32) -> Self {
        Self {
            file,
            kernel,
            number,
            known: BTreeSet::new(),
            runs: None,
            arrows: BTreeMap::new(),
            now: 0,
        }
    }

    fn uuid(&self, track: Track) -> u64 {
        let (kind, at) = match track {
            Track::Process => (1, 0),
            Track::Core => (2, 0),
            Track::Interrupts => (3, 0),
            Track::Thread(at) => (4, at),
            Track::Context(at) => (5, at),
            Track::Left(at) => (6, at),
        };
        u64::from(self.number) << 40 | kind << 32 | u64::from(at)
    }

    /// Those that the manifest names, in its order; others follow as they come.
    fn tracks(&mut self) {
        for track in [Track::Process, Track::Core, Track::Interrupts] {
            self.know(track);
        }
        let names = self.kernel.names;
        names.threads.keys().for_each(|at| self.know(Track::Thread(*at)));
        for at in names.contexts.keys() {
            self.know(Track::Context(*at));
            self.know(Track::Left(*at));
        }
    }

    fn know(&mut self, track: Track) {
        use field::track as f;
        if !self.known.insert(track) {
            return;
        }
        let names = self.kernel.names;
        let pid = u64::from(self.number);
        let own = Message::default().number(f::UUID, self.uuid(track));
        let child = |own: Message, name: &str| {
            own.number(f::PARENT, self.uuid(Track::Process)).text(f::NAME, name)
        };
        let described = match track {
            Track::Process => {
                let process = Message::default().number(f::PROCESS_PID, pid);
                own.message(f::PROCESS, process.text(f::PROCESS_NAME, self.kernel.name))
            }
            Track::Core => child(own, "core"),
            Track::Interrupts => child(own, "interrupts"),
            Track::Thread(at) => {
                // Numbers of threads are the whole file's.
                let tid = pid << 24 | u64::from(at) >> 8;
                let thread =
                    Message::default().number(f::THREAD_PID, pid).number(f::THREAD_TID, tid);
                own.message(f::THREAD, thread.text(f::THREAD_NAME, &names.thread(at)))
            }
            Track::Context(at) => child(own, &format!("context {}", names.context(at.into()))),
            Track::Left(at) => {
                let counter = Message::default().number(f::COUNTER_UNIT, NANOSECONDS);
                let name = format!("budget of {}", names.context(at.into()));
                child(own, &name).message(f::COUNTER, counter)
            }
        };
        self.file.packet(Message::default().message(field::packet::TRACK, described));
    }

    fn event(&mut self, track: Track, kind: Type, fill: impl FnOnce(Message) -> Message) {
        self.know(track);
        let event = Message::default()
            .number(field::event::TYPE, kind as u64)
            .number(field::event::TRACK, self.uuid(track));
        self.file.event(self.now, fill(event));
    }

    fn named(&mut self, track: Track, kind: Type, name: &str) {
        self.event(track, kind, |event| event.text(field::event::NAME, name));
    }

    fn left(&mut self, context: u32, rest: u64) {
        // A context that is never used up has more than a signed number holds.
        let rest = rest.min(i64::MAX as u64);
        self.event(Track::Left(context), Type::Counter, |event| {
            event.number(field::event::COUNTER_VALUE, rest)
        });
    }

    fn stop(&mut self) {
        if let Some((thread, _)) = self.runs.take() {
            self.event(Track::Thread(thread), Type::End, |event| event);
            self.event(Track::Core, Type::End, |event| event);
        }
    }

    fn run(&mut self, thread: u32, context: u32, rest: u64) {
        let same = self.runs.is_some_and(|(_, before)| before == context);
        self.stop();
        if thread == 0 {
            return;
        }
        let names = self.kernel.names;
        let arrows = self.arrows.remove(&thread).unwrap_or_default();
        self.event(Track::Thread(thread), Type::Begin, |event| {
            let event = event.text(field::event::NAME, &names.context(context.into()));
            arrows.iter().fold(event, |event, flow| event.fixed(field::event::ENDING_FLOWS, *flow))
        });
        self.named(Track::Core, Type::Begin, &names.thread(thread));
        if !same {
            self.left(context, rest);
        }
        self.runs = Some((thread, context));
    }

    /// An arrow from a thread to where another one runs next.
    fn arrow(&mut self, from: u32, to: u32, name: &str) {
        self.file.flows += 1;
        let flow = self.file.flows;
        self.event(Track::Thread(from), Type::Instant, |event| {
            event.text(field::event::NAME, name).fixed(field::event::FLOWS, flow)
        });
        self.arrows.entry(to).or_default().push(flow);
    }

    fn item(&mut self, item: &Item) {
        let told: String = match item {
            Item::Lost(n) => format!("{n} events lost"),
            Item::Restarted => "started anew".into(),
            Item::Record(record) => {
                self.now = self.kernel.timeline.nanoseconds(record.ticks);
                return self.record(&record.event);
            }
        };
        self.stop();
        self.arrows.clear();
        self.named(Track::Core, Type::Instant, &told);
    }

    fn record(&mut self, event: &Event) {
        let told = self.kernel.names.tell(event);
        match *event {
            Event::Run { thread, context, rest } => self.run(thread, context, rest),
            Event::Leave { context, rest, .. } => {
                self.stop();
                self.left(context, rest);
            }
            Event::Refill { context, rest, .. } => {
                self.named(Track::Context(context), Type::Instant, "refilled");
                self.left(context, rest);
            }
            Event::Over { thread, context, .. } => {
                self.named(Track::Context(context), Type::Instant, "used up");
                self.named(Track::Thread(thread), Type::Instant, &told);
            }
            Event::Donate { from, to, .. } => self.arrow(from, to, &told),
            Event::Return { from, to, .. } if from != 0 && to != 0 => self.arrow(from, to, &told),
            Event::Return { from: thread, .. }
            | Event::Lend { to: thread, .. }
            | Event::Deadline { thread, .. }
            | Event::Call { from: thread, .. }
            | Event::Fault { thread, .. } => {
                self.named(Track::Thread(thread), Type::Instant, &told)
            }
            Event::Timer { .. } | Event::Interrupt { .. } => {
                self.named(Track::Interrupts, Type::Instant, &told);
            }
        }
    }

    /// Nothing is open at the end.
    fn close(&mut self) {
        self.stop();
    }
}
