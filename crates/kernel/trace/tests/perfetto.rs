//! The file for Perfetto, decoded by another implementation of protocol buffers, from the fields' numbers in
//! Perfetto's `trace_packet.proto`, `track_descriptor.proto` and `track_event.proto`.

use bulkhead_trace::ring::{HEAD, MAGIC, RECORD};
use bulkhead_trace::{EVENTS, Event, Item, Kernel, Names, Reader, Record, Timeline, perfetto};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    sequence: Option<u32>,
    #[prost(message, optional, tag = "11")]
    event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
struct Track {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<Process>,
    #[prost(message, optional, tag = "4")]
    thread: Option<Thread>,
    #[prost(uint64, optional, tag = "5")]
    parent: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<Counter>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Thread {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Counter {
    #[prost(int32, optional, tag = "3")]
    unit: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track: Option<u64>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flows: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    ending_flows: Vec<u64>,
}

const CLIENT: u32 = 0x1000;
const SERVER: u32 = 0x1800;
const CONTEXT: u32 = 0x2000;
const NOTIFICATION: u32 = 0x3000;

fn names() -> Names {
    let named = |at: u32, name: &str| (at, name.to_owned());
    Names {
        threads: [named(CLIENT, "client"), named(SERVER, "server")].into(),
        contexts: [named(CONTEXT, "time")].into(),
        notifications: [named(NOTIFICATION, "came")].into(),
    }
}

/// A call and its answer, and one of everything else, with a gap.
fn timeline() -> Timeline {
    let (client, server, context) = (CLIENT, SERVER, u64::from(CONTEXT));
    let run = |thread, rest| Event::Run { thread, context: CONTEXT, rest };
    let events = [
        run(client, 900),
        Event::Donate { from: client, to: server, context },
        run(server, 900),
        Event::Interrupt { number: 32, notification: NOTIFICATION, again: 0 },
        Event::Return { from: server, to: client, context },
        run(client, 900),
        Event::Timer { thread: client, due: 7 },
        Event::Leave { thread: client, context: CONTEXT, rest: 0 },
        Event::Over { thread: client, context: CONTEXT, handled: 0 },
        Event::Run { thread: 0, context: 0, rest: 0 },
        Event::Refill { thread: client, context: CONTEXT, rest: 500 },
        run(client, u64::MAX),
        Event::Fault { thread: client, number: 14, address: 0x10 },
        Event::Call { from: client, to: 0x7700 },
        Event::Deadline { thread: 0x7700, context: 0x8800 },
        Event::Lend { notification: NOTIFICATION, to: server, context: 0x8800 },
        Event::Return { from: server, to: 0, context: 0x8800 },
        // And on at the end.
        run(client, 10),
    ];
    let record = |(n, event)| Item::Record(Record { ticks: 2_000 + 20 * n as u64, event });
    let mut items: Vec<_> = events.into_iter().enumerate().map(record).collect();
    items.insert(12, Item::Lost(3));
    Timeline { items, hz: 2_000_000_000 }
}

fn decoded() -> (Vec<u8>, Trace) {
    let (timeline, names) = (timeline(), names());
    let kernel = Kernel { name: "rt", timeline: &timeline, names: &names };
    let other = Kernel { name: "other", ..kernel.clone() };
    let bytes = perfetto(&[kernel, other]);
    let trace = Trace::decode(&bytes[..]).expect("it is well-formed");
    (bytes, trace)
}

fn tracks(trace: &Trace) -> BTreeMap<u64, &Track> {
    let tracks = trace.packet.iter().filter_map(|packet| packet.track.as_ref());
    tracks.map(|track| (track.uuid.expect("a track has a uuid"), track)).collect()
}

#[test]
fn nothing_is_there_that_perfetto_does_not_know() {
    let (bytes, trace) = decoded();
    // The decoder drops fields that it does not know.
    assert_eq!(trace.encoded_len(), bytes.len());
    assert_eq!(trace.packet[0].sequence_flags, Some(1));
    assert!(trace.packet.iter().all(|packet| packet.sequence == Some(1)));
}

#[test]
fn tracks_are_named_once_and_belong_to_their_kernel() {
    let (_, trace) = decoded();
    let tracks = tracks(&trace);
    let described = trace.packet.iter().filter(|packet| packet.track.is_some()).count();
    assert_eq!(described, tracks.len(), "a uuid of two tracks");
    let processes: Vec<_> =
        tracks.values().filter_map(|t| t.process.as_ref()?.name.clone()).collect();
    assert_eq!(processes, ["rt", "other"]);
    let mut tids = BTreeSet::new();
    for track in tracks.values() {
        let thread = track.thread.as_ref();
        assert!(thread.is_none_or(|thread| tids.insert(thread.tid)), "a number of two threads");
        let parent = track.parent.map(|parent| tracks[&parent].process.is_some());
        assert_eq!(parent, (track.process.is_none() && thread.is_none()).then_some(true));
    }
    let named: BTreeSet<_> = tracks.values().filter_map(|t| t.name.as_deref()).collect();
    assert!(named.is_superset(&["core", "interrupts", "context time", "budget of time"].into()));
}

#[test]
fn slices_end_and_arrows_have_two_ends() {
    let (_, trace) = decoded();
    let tracks = tracks(&trace);
    let (mut open, mut began, mut ended) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    let mut names = Vec::new();
    for packet in &trace.packet {
        let Some(event) = &packet.event else { continue };
        let track = event.track.filter(|track| tracks.contains_key(track)).expect("a known track");
        assert!(packet.timestamp.is_some());
        let depth: &mut i32 = open.entry(track).or_default();
        *depth += match event.kind {
            Some(1) => 1,
            Some(2) => -1,
            Some(3) => 0,
            Some(4) => {
                assert!(event.value.is_some_and(|value| value >= 0));
                assert_eq!(tracks[&track].counter.as_ref().and_then(|c| c.unit), Some(1));
                0
            }
            other => panic!("an event of type {other:?}"),
        };
        assert!((0..=1).contains(depth), "{event:?}");
        assert!(event.flows.iter().all(|flow| began.insert(*flow)));
        assert!(event.ending_flows.iter().all(|flow| began.contains(flow) && ended.insert(*flow)));
        names.extend(event.name.clone());
    }
    assert!(open.values().all(|depth| *depth == 0));
    assert_eq!((began.len(), &began), (4, &ended));
    for wanted in ["client calls server with time", "used up", "refilled", "3 events lost", "timer"]
    {
        assert!(names.iter().any(|name| name == wanted), "{wanted}: {names:?}");
    }
}

#[test]
fn a_server_runs_in_the_name_of_its_client() {
    let (_, trace) = decoded();
    let tracks = tracks(&trace);
    let thread = |uuid: u64| tracks[&uuid].thread.as_ref().and_then(|thread| thread.name.clone());
    let begins =
        trace.packet.iter().filter(|p| p.event.as_ref().is_some_and(|e| e.kind == Some(1)));
    let slices: Vec<_> = begins
        .filter_map(|packet| {
            let event = packet.event.as_ref()?;
            Some((packet.timestamp?, thread(event.track?)?, event.name.clone()?))
        })
        .take(3)
        .collect();
    let slice = |at: u64, thread: &str| (at, thread.to_owned(), "time".to_owned());
    assert_eq!(slices, [slice(1_000, "client"), slice(1_020, "server"), slice(1_050, "client")]);
}

/// Bytes that a terminal or a viewer would take for more than letters, and letters that would be another's words.
const TEXTS: [&[u8; 8]; 6] = [
    b"\x1b]0;own\x07",
    b"\r\x1b[2Kfor",
    b"\xc2\x9b31mfor",
    b"<script>",
    b"\xe2\x80\xaefor\x00\n",
    b"forged\"\n",
];

/// A guest's ring, as bytes: one record of each kind for each text, its words that text, and head words of its choice.
fn forged(head: [u64; 5]) -> Vec<u8> {
    let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(HEAD as usize, b'\x1b');
    // The first one is never believed in a full ring: it is none.
    let kinds = [0].into_iter().chain(EVENTS.iter().map(|event| event.number)).chain([0xFF]);
    for (n, (text, kind)) in
        TEXTS.iter().flat_map(|text| kinds.clone().map(move |kind| (text, kind))).enumerate()
    {
        bytes.extend(((n as u64 + 1) | (kind << 32)).to_le_bytes());
        { 0..3 }.for_each(|_| bytes.extend(*text));
    }
    bytes
}

fn read(bytes: &[u8], records: u64) -> Timeline {
    let mut reader = Reader::new(0, records);
    let ram = |at: u64, to: &mut [u8]| {
        let from = bytes.get(at as usize..).and_then(|from| from.get(..to.len()));
        from.map(|from| to.copy_from_slice(from)).is_some()
    };
    assert!(reader.read(&ram));
    reader.timeline
}

#[test]
fn no_text_of_a_guest_gets_into_the_file() {
    let records = (forged([0; 5]).len() as u64 - HEAD) / RECORD;
    let text = u64::from_le_bytes(*TEXTS[0]);
    let timeline = read(&forged([MAGIC, records, records, text, text]), records);
    let known = EVENTS.len() * TEXTS.len();
    assert_eq!((timeline.records().count(), timeline.lost()), (known, records - known as u64));
    let names = names();
    let bytes = perfetto(&[Kernel { name: "rt", timeline: &timeline, names: &names }]);
    let trace = Trace::decode(&bytes[..]).expect("it is well-formed");
    let tracks = trace.packet.iter().filter_map(|packet| packet.track.as_ref());
    let named = tracks.flat_map(|track| {
        let thread = track.thread.as_ref().and_then(|thread| thread.name.clone());
        [track.name.clone(), track.process.as_ref().and_then(|p| p.name.clone()), thread]
    });
    let told = trace.packet.iter().filter_map(|packet| packet.event.as_ref()?.name.clone());
    let all: Vec<String> = named.flatten().chain(told).collect();
    assert!(all.len() > known, "{}", all.len());
    for text in &all {
        assert!(text.chars().all(|c| matches!(c, ' '..='~')), "{text:?}");
        assert!(
            !["own", "2K", "31m", "script", "forged"].iter().any(|part| text.contains(part)),
            "{text:?}"
        );
    }
}

#[test]
fn a_count_that_is_a_lie_takes_no_time() {
    let records = (forged([0; 5]).len() as u64 - HEAD) / RECORD;
    let timeline = read(&forged([MAGIC, u64::MAX, records, 1, 1]), records);
    assert_eq!((timeline.records().count(), timeline.lost()), (0, u64::MAX));
}
