//! A driver sandbox of the kernel has a network card, and bridges it to clients in other sandboxes
//! (`tests/gate/virtio.toml`, docs/networks.md). A Linux has a stock `virtio_net`, a program of the kernel `smoltcp`.
//! The world outside is this process.

use super::block::word;
use super::driver::{Bench, Job};
use super::outside::{World, text as bulk};
use super::system::{Manifest, Seen, run_from};
use super::virtio::sound;
use crate::build;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the whole of a run.
const LIMIT: Duration = Duration::from_secs(200);
/// Longest wait for an answer on a connection.
const ANSWER: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const LOOK: Duration = Duration::from_millis(200);

/// Places in the card's network that the world outside reaches: the Linux' echo and its word to the world, the
/// station's echo and page.
const PLACES: [(&str, u16); 5] =
    [("10.0.2.16", 7), ("10.0.2.16", 9), ("10.0.2.18", 7), ("10.0.2.18", 80), ("10.0.2.16", 10)];
const ECHO: usize = 0;
const WORD: usize = 1;
const STATION: usize = 2;
const PAGE: usize = 3;
const FAREWELL: usize = 4;
/// Ports of the host for them.
type Ports = [u16; 5];

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("gate/virtio", 250, |bench| served(bench, |text| text)),
        Job::one("gate/e1000e", 250, |bench| served(bench, e1000e)),
        Job::one("gate/restarts", 250, |bench| restarts(bench, |text| text)),
        Job::one("gate/restarts-e1000e", 250, |bench| restarts(bench, e1000e)),
        Job::one("gate/faults", 250, faults),
        Job::one("gate/storm", 250, storm),
    ]
}

/// The system with Intel's card. Its messages have that number, too.
fn e1000e(text: String) -> String {
    text.replace("pci:00:05.0", "pci:01:00.0")
}

/// The system, with a card's network that the world outside reaches by these ports of the host.
pub fn system(
    dir: &Path,
    ports: Ports,
    client: &str,
    change: impl Fn(String) -> String,
) -> Result<Manifest, String> {
    let read = |path: &str| {
        let path = build::root().join(path);
        std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let forward = |((address, inside), outside): (&(&str, u16), u16)| {
        format!(",hostfwd=tcp:127.0.0.1:{outside}-{address}:{inside}")
    };
    let forwards: String = PLACES.iter().zip(ports).map(forward).collect();
    let mut machine = read("machines/qemu-q35.toml")?;
    let text = change(read("tests/gate/virtio.toml")?);
    // A network's options begin with its name.
    let card = if text.contains("01:00.0") { "net2" } else { "net0" };
    let (before, networks) = machine.split_once("networks = ").ok_or("it has no networks")?;
    let networks = networks.replace(&format!("\"{card}\""), &format!("\"{card}{forwards}\""));
    machine = format!("{before}networks = {networks}");
    let machines = dir.join("machines");
    let written = std::fs::create_dir_all(&machines)
        .and_then(|()| std::fs::write(machines.join("gate.toml"), machine));
    written.map_err(|e| format!("{}: {e}", machines.display()))?;
    let job = format!("console=ttyS1,115200 bulkhead.run={client}");
    Ok(Manifest(
        text.replace("machines/qemu-q35.toml", "machines/gate.toml")
            .replace("console=ttyS1,115200", &job),
    ))
}

/// Ports of this host that are free.
fn free() -> Result<Ports, String> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let all = PLACES.map(bind).map(|one| one.and_then(|one| one.local_addr()).map(|at| at.port()));
    let [a, b, c, d, e] = all;
    let error = |why: std::io::Error| format!("no port of this host: {why}");
    Ok([
        a.map_err(error)?,
        b.map_err(error)?,
        c.map_err(error)?,
        d.map_err(error)?,
        e.map_err(error)?,
    ])
}

/// A connection from outside.
fn connect(port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    Ok(stream)
}

/// Sends a text to an echo, and compares what comes back.
fn echoed(port: u16, text: &[u8]) -> std::io::Result<bool> {
    let stream = connect(port)?;
    let mut back = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = &stream;
            // Bytes that are not sent do not come back.
            let _ = stream.write_all(text).and_then(|()| stream.shutdown(Shutdown::Write));
        });
        let mut some = [0; 4096];
        let mut stream = &stream;
        while back.len() < text.len() {
            let len = stream.read(&mut some)?;
            if len == 0 {
                break;
            }
            back.extend_from_slice(&some[..len]);
        }
        Ok(back == text)
    })
}

/// Asks a station for its page.
fn page(port: u16) -> std::io::Result<String> {
    let mut stream = connect(port)?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Tries until it works, for as long as the machine runs.
fn until<T>(over: &AtomicBool, what: &str, ask: impl Fn() -> Option<T>) -> Result<T, String> {
    let begun = Instant::now();
    while !over.load(Relaxed) && begun.elapsed() < LIMIT {
        if let Some(found) = ask() {
            return Ok(found);
        }
        thread::sleep(LOOK);
    }
    Err(format!("the world outside never had {what}"))
}

/// A client's Linux: it asks the world, then waits for that.
fn asks(port: u16) -> String {
    let script = format!(
        "{SERVES} ping -c 3 10.0.2.2; ping -c 3 10.0.2.18; \
         wget -qO /tmp/text http://10.0.2.2:{port}/text; wc -c /tmp/text; \
         nc 10.0.2.2 {port} </tmp/text; {DONE}"
    );
    format!("bhvirtio:card,10.0.2.16/24,sh,-c,{}", word(&script))
}

/// The world outside meets both clients, and they meet it and each other.
fn served(bench: &Bench, change: fn(String) -> String) -> Result<String, String> {
    let world = World::new().map_err(|why| format!("no port of this host: {why}"))?;
    let (ports, text) = (free()?, world.text.clone());
    let manifest = system(&bench.dir, ports, &asks(world.port()?), change)?;
    let over = AtomicBool::new(false);
    let (seen, met) = thread::scope(|scope| {
        scope.spawn(|| world.serve());
        let meets = scope.spawn(|| {
            let met = meet(ports, &text, &over);
            let met = said(ports, &over, "done").and(met);
            farewell(ports, &over);
            met
        });
        let seen = look(&manifest, &bench.dir);
        over.store(true, Relaxed);
        world.end();
        (seen, meets.join())
    });
    let seen = seen?;
    let met = met.map_err(|_| "the world has panicked")?;
    let met = met.map_err(|why| seen.wrong(why))?;
    let said = client_of(&seen)?;
    let pings = said.matches("3 packets received").count();
    seen.ensure(pings == 2, format!("{pings} of two answered all pings"))?;
    let bytes = text.len();
    seen.ensure(said.contains(&format!("{bytes} /tmp/text")), "the text did not arrive")?;
    let got = world.got();
    seen.ensure(got == text, format!("{} of {bytes} bytes came back whole", got.len()))?;
    for name in ["gate", "web"] {
        seen.undisturbed(name, &["running"])?;
    }
    Ok(format!("{bytes} bytes each way with both; {}", met.trim_end()))
}

/// Waits for a word of a Linux to the world.
fn said(ports: Ports, over: &AtomicBool, wanted: &str) -> Result<(), String> {
    // Until there is a word, a connection ends without a byte.
    let word = || {
        let mut text = String::new();
        connect(ports[WORD]).and_then(|mut word| word.read_to_string(&mut text)).ok()?;
        text.contains(wanted).then_some(())
    };
    until(over, &format!("the Linux' word `{wanted}`"), word)
}

/// Takes leave of the Linux, which then ends: until the run is over, because it may not listen yet.
fn farewell(ports: Ports, over: &AtomicBool) {
    while !over.load(Relaxed) {
        let _ = connect(ports[FAREWELL]).and_then(|end| end.shutdown(Shutdown::Both));
        thread::sleep(LOOK);
    }
}

/// Before all else a Linux does: an echo, and its word to the world. No subshell: what stands for a space is a word
/// before its bracket.
const SERVES: &str = "nc -ll -p 7 -e cat & nc -ll -p 9 -e cat /tmp/word &";
/// Its last deed: it waits for the world's farewell.
const DONE: &str = "echo done >/tmp/word; nc -l -p 10; true";

/// Reaches both clients from outside. Returns the station's page.
fn meet(ports: Ports, text: &[u8], over: &AtomicBool) -> Result<String, String> {
    // The first attempts come before there is anybody.
    let first = &text[..1000];
    until(over, "the station's echo", || echoed(ports[STATION], first).ok()?.then_some(()))?;
    until(over, "the Linux' echo", || echoed(ports[ECHO], first).ok()?.then_some(()))?;
    for place in [STATION, ECHO] {
        match echoed(ports[place], text) {
            Ok(true) => {}
            Ok(false) => return Err(format!("{:?} sent other bytes back", PLACES[place])),
            Err(why) => return Err(format!("{:?} did not send all back: {why}", PLACES[place])),
        }
    }
    let page = page(ports[PAGE]).map_err(|why| format!("no page: {why}"))?;
    let line = page.lines().find(|line| line.starts_with("web: page"));
    line.map(str::to_owned).ok_or_else(|| format!("the page is {page:?}"))
}

/// Runs it, in real time as the world outside has it, and audits it.
fn look(manifest: &Manifest, dir: &Path) -> Result<Seen, String> {
    let change = |options: &mut bulkhead_run::Options| {
        options.time = bulkhead_qemu::Time::Live;
        options.limit = LIMIT;
        options.audit = true;
    };
    let seen = run_from(manifest, dir, change, |_| {}, |_, _| {})?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    Ok(seen)
}

/// Returns the text of the client's Linux. It ended well, and its kernel has no complaint.
fn client_of(seen: &Seen) -> Result<&str, String> {
    let said = seen.serial(1)?;
    seen.ensure(said.contains("eth0 is 10.0.2.16/24"), "the client has no card")?;
    seen.ensure(said.contains("bulkhead-init: exit code 0"), "the client failed")?;
    seen.ensure(sound(said), "its kernel complains")?;
    Ok(said)
}

/// A stream to an echo and back, until there is a word that all is done.
struct Stream {
    bytes: u64,
    /// Longest time in which nothing came back.
    pause: Duration,
}

/// Byte number `n` of a stream: a piece that is lost, or comes twice, shows.
fn byte(n: u64) -> u8 {
    (n ^ n >> 8 ^ n >> 16) as u8
}

fn stream(port: u16, done: &AtomicBool) -> std::io::Result<Stream> {
    /// Longest pause that is no failure: both ends' patience with a lost packet doubles each time. Fifteen seconds were
    /// seen on a machine with nothing else to do, thirty on a slow one.
    const PATIENCE: Duration = Duration::from_secs(90);
    /// Bytes that are sent at once.
    const PIECE: u64 = 1460;
    let stream = connect(port)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let sent = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = &stream;
            for at in (0..).step_by(PIECE as usize) {
                let piece: Vec<u8> = (at..at + PIECE).map(byte).collect();
                if done.load(Relaxed) || stream.write_all(&piece).is_err() {
                    break;
                }
                sent.store(at + PIECE, Relaxed);
            }
            let _ = stream.shutdown(Shutdown::Write);
        });
        let (mut bytes, mut some, mut pause) = (0, [0; 4096], Duration::ZERO);
        let mut stream = &stream;
        loop {
            let begun = Instant::now();
            let len = stream.read(&mut some)?;
            if bytes > 0 {
                pause = pause.max(begun.elapsed());
            }
            let right = some[..len].iter().zip(bytes..).all(|(have, n)| *have == byte(n));
            bytes += len as u64;
            if !right {
                return Err(std::io::Error::other(format!("other bytes before {bytes}")));
            }
            if len == 0 {
                let all = sent.load(Relaxed);
                let whole = bytes == all;
                let lost = || std::io::Error::other(format!("{bytes} of {all} bytes"));
                return if whole { Ok(Stream { bytes, pause }) } else { Err(lost()) };
            }
        }
    })
}

/// The driver's sandbox begins anew again and again, while a connection to each client has a stream each way.
fn restarts(bench: &Bench, change: fn(String) -> String) -> Result<String, String> {
    const TIMES: u64 = 10;
    /// Milliseconds from one to the next.
    const EACH: u64 = 1500;
    let script = format!("bhvirtio each {TIMES} {EACH} bulkheadctl restart gate; sleep 1");
    // The manifest's last sandbox is the Linux.
    let change = |text| change(text) + "restart = [\"gate\"]\n";
    let (seen, streams) = streams(bench, &script, change)?;
    let gate = seen.sandbox("gate")?;
    seen.ensure(gate.restarts == TIMES, format!("{} restarts", gate.restarts))?;
    seen.ensure(gate.denials == 0, format!("{} denials of the gate", gate.denials))?;
    Ok(format!("{TIMES} restarts; {streams}"))
}

/// A driver that fails after each few frames, in six ways by turns. The guard finds each failure, or the next one.
fn faults(bench: &Bench) -> Result<String, String> {
    const KINDS: [&str; 6] = ["Panic", "Spin", "Sleep", "Dma", "Rings", "Index"];
    /// Seconds of work. A kind has its turn for two and a half.
    const SECONDS: u64 = 40;
    let change = |text: String| {
        text.replace("artifact:program-gate", "artifact:gate-rogue")
            .replace("card=lan", "after=600 until=600000 card=lan")
    };
    let (seen, streams) = streams(bench, &format!("sleep {SECONDS}"), change)?;
    let _ = std::fs::write(bench.dir.join("seen.log"), &seen.console);
    let gate = seen.sandbox("gate")?;
    seen.ensure(gate.state == "running", format!("the gate's sandbox is {}", gate.state))?;
    let planted = KINDS.map(|kind| seen.console.matches(&format!("gate: fault {kind}")).count());
    let all = KINDS.iter().zip(planted).map(|(kind, count)| format!("{count} {kind}"));
    let all = all.collect::<Vec<_>>().join(", ");
    seen.ensure(planted.iter().all(|count| *count > 0), format!("only {all}"))?;
    seen.ensure(gate.restarts >= 8, format!("{} restarts for {all}", gate.restarts))?;
    Ok(format!("{all}; {} restarts; {streams}", gate.restarts))
}

/// A connection to each client has a stream each way, while the Linux does what a script says.
fn streams(
    bench: &Bench,
    script: &str,
    change: impl Fn(String) -> String,
) -> Result<(Seen, String), String> {
    let ports = free()?;
    let script = format!("{SERVES} ping -c 3 10.0.2.2; echo ready >/tmp/word; {script}; {DONE}");
    let client = format!("bhvirtio:card,10.0.2.16/24,sh,-c,{}", word(&script));
    let manifest = system(&bench.dir, ports, &client, change)?;
    let (over, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let (seen, streams) = thread::scope(|scope| {
        let streams = scope.spawn(|| {
            let met = begun(ports, &over).and_then(|()| both(ports, &over, &done));
            farewell(ports, &over);
            met
        });
        let seen = look(&manifest, &bench.dir);
        over.store(true, Relaxed);
        (seen, streams.join())
    });
    let seen = seen?;
    let streams: Result<[Stream; 2], String> = streams.map_err(|_| "the world has panicked")?;
    let streams = streams.map_err(|why| seen.wrong(why))?;
    let said = client_of(&seen)?;
    seen.ensure(!said.contains("the device is gone"), "the Linux lost its card")?;
    seen.ensure(said.contains("the device is back"), "its driver saw no restart")?;
    for name in ["one", "web"] {
        seen.undisturbed(name, &["running", "exited", "stopped"])?;
    }
    let each = streams
        .map(|one| format!("{} KiB, longest pause {} ms", one.bytes >> 10, one.pause.as_millis()));
    Ok((seen, format!("the station {}; the Linux {}", each[0], each[1])))
}

/// Waits until both clients can be reached, and the Linux says that it begins.
fn begun(ports: Ports, over: &AtomicBool) -> Result<(), String> {
    let reached = |n: usize| echoed(ports[n], &[7; 100]).ok()?.then_some(());
    until(over, "the station's echo", || reached(STATION))?;
    until(over, "the Linux' echo", || reached(ECHO))?;
    said(ports, over, "ready")
}

/// Both streams, until the Linux says that all is done.
fn both(ports: Ports, over: &AtomicBool, done: &AtomicBool) -> Result<[Stream; 2], String> {
    thread::scope(|scope| {
        let all = [STATION, ECHO].map(|n| scope.spawn(move || stream(ports[n], done)));
        let told = said(ports, over, "done");
        done.store(true, Relaxed);
        let all = all.map(|one| one.join().map_err(|_| "a stream has panicked".to_owned()));
        told?;
        let [station, linux] = all;
        let of = |n: usize, one: std::io::Result<Stream>| {
            one.map_err(|why| format!("the stream to {}: {why}", PLACES[n].0))
        };
        Ok([of(STATION, station?)?, of(ECHO, linux?)?])
    })
}

/// A client that sends to all as fast as it can, and never takes a frame. The others are served, and get no more of its
/// frames than a client may send to all.
fn storm(bench: &Bench) -> Result<String, String> {
    /// Frames to all that a client may send in a second, and at once.
    const RATE: u32 = 100;
    const BURST: u32 = 64;
    const COUNT: &str = "echo frames $(cat /proc/uptime /sys/class/net/eth0/statistics/rx_packets)";
    let ports = free()?;
    let script = format!(
        "sleep 2; {COUNT}; sleep 5; {COUNT}; {SERVES} ping -c 5 10.0.2.2; ping -c 5 10.0.2.18; {DONE}"
    );
    let client = format!("bhvirtio:card,10.0.2.16/24,sh,-c,{}", word(&script));
    let manifest = system(&bench.dir, ports, &client, |text| beside_a_foe(&text, RATE, BURST))?;
    let text = bulk();
    let over = AtomicBool::new(false);
    let (seen, met) = thread::scope(|scope| {
        let meets = scope.spawn(|| {
            let met = meet(ports, &text, &over);
            let met = said(ports, &over, "done").and(met);
            farewell(ports, &over);
            met
        });
        let seen = look(&manifest, &bench.dir);
        over.store(true, Relaxed);
        (seen, meets.join())
    });
    let seen = seen?;
    let met = met.map_err(|_| "the world has panicked")?;
    met.map_err(|why| seen.wrong(why))?;
    let said = client_of(&seen)?;
    let pings = said.matches("5 packets received").count();
    seen.ensure(pings == 2, format!("{pings} of two answered all pings"))?;
    // Seconds and frames, before and after a time in which nobody sends to it but in the storm.
    let counts = said.lines().filter_map(|line| {
        let mut words = line.trim().strip_prefix("frames ")?.split_whitespace();
        let seconds: f64 = words.next()?.parse().ok()?;
        Some((seconds, words.nth(1)?.parse::<f64>().ok()?))
    });
    let &[(begun, before), (ended, after)] = &counts.collect::<Vec<_>>()[..] else {
        return Err(seen.wrong("the Linux did not count its frames"));
    };
    let (seconds, frames) = (ended - begun, after - before);
    // The station's echo and page are other frames, to the station.
    let most = seconds * f64::from(RATE) * 1.2 + f64::from(BURST);
    let least = seconds * f64::from(RATE) / 4.0;
    seen.ensure(frames <= most, format!("{frames} frames of the storm in {seconds:.1} s"))?;
    seen.ensure(frames >= least, format!("{frames} frames in {seconds:.1} s: too tame"))?;
    for name in ["gate", "web", "foe"] {
        seen.undisturbed(name, &["running"])?;
    }
    let sent = seen.console.lines().rev().find_map(|line| line.split_once("foe: "));
    let sent = sent.map_or("", |(_, said)| said.trim_end());
    Ok(format!("{sent}; {frames} came to a client in {seconds:.1} s"))
}

/// The system with a third client that means harm.
fn beside_a_foe(text: &str, rate: u32, burst: u32) -> String {
    let channel = |name: &str, [from, to]: [&str; 2], kind: &str, size: &str| {
        format!(
            "[[channel]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = [\"{to}\"]\nsize = \"{size}\"\n\
             kind = \"{kind}\"\nnotify = \"doorbell\"\n\n"
        )
    };
    let foe = format!(
        r#"[[sandbox]]
name = "foe"
guest = {{ kind = "kernel" }}
cores = [3]
memory = "16 MiB"

[[program]]
name = "foe"
sandbox = "foe"
file = "artifact:gate-foe"
args = "to=foe-in from=foe-out mac=102 deaf=deaf"
waits = ["news"]
channels = ["foe-in", {{ channel = "foe-out", notification = "news" }}, {{ channel = "deaf", notification = "news" }}]

[[notification]]
name = "news"
sandbox = "foe"

[[context]]
name = "foe"
sandbox = "foe"
budget = "300 us"
period = "1 ms"

[[thread]]
name = "foe"
program = "foe"
priority = 100
context = "foe"
stack = "32 KiB"

{}{}{}"#,
        channel("foe-in", ["foe", "gate"], "records", "64 KiB"),
        channel("foe-out", ["gate", "foe"], "records", "64 KiB"),
        channel("deaf", ["foe", "gate"], "virtio", "256 KiB"),
    );
    let args =
        format!("rate={rate} burst={burst} card=lan wire=foe-in:foe-out:020000000066 card=deaf");
    let channels = "    { channel = \"foe-in\", notification = \"work\", bits = 8 },\n    \"foe-out\",\n    \
                    { channel = \"deaf\", notification = \"work\", bits = 16 },\n    \"web-out\",\n";
    text.replace("card=lan", &args)
        .replace("    \"web-out\",\n", channels)
        .replace("dma = [\"rings\", \"lan\"]", "dma = [\"rings\", \"lan\", \"deaf\"]")
        .replace("# A Linux has a virtio network card.\n", &foe)
}
