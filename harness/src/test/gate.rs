//! A driver sandbox of the kernel has a network card, and bridges it to clients in other sandboxes
//! (`tests/gate/virtio.toml`, docs/networks.md). A Linux has a stock `virtio_net`, a program of the kernel `smoltcp`. The
//! world outside is this process.

use super::block::word;
use super::driver::{Bench, Job};
use super::outside::World;
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
const LIMIT: Duration = Duration::from_secs(100);
/// Longest wait for an answer on a connection.
const ANSWER: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const LOOK: Duration = Duration::from_millis(200);

/// Places in the card's network that the world outside reaches: the Linux' echo, the word that it may end, the station's
/// echo and page.
const PLACES: [(&str, u16); 4] =
    [("10.0.2.16", 7), ("10.0.2.16", 9), ("10.0.2.18", 7), ("10.0.2.18", 80)];
const ECHO: usize = 0;
const END: usize = 1;
const STATION: usize = 2;
const PAGE: usize = 3;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("gate/virtio", 150, |bench| served(bench, |text| text)),
        Job::one("gate/e1000e", 150, |bench| served(bench, e1000e)),
    ]
}

/// The system with Intel's card, whose messages have the same number.
fn e1000e(text: String) -> String {
    text.replace("pci:00:05.0", "pci:01:00.0")
}

/// The system, with a card's network that the world outside reaches by these ports of the host.
pub fn system(
    dir: &Path,
    ports: [u16; 4],
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
    // What a network is called is the beginning of its options.
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
fn free() -> Result<[u16; 4], String> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let all = PLACES.map(bind).map(|one| one.and_then(|one| one.local_addr()).map(|at| at.port()));
    let [a, b, c, d] = all;
    let error = |why: std::io::Error| format!("no port of this host: {why}");
    Ok([a.map_err(error)?, b.map_err(error)?, c.map_err(error)?, d.map_err(error)?])
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
            // What is not sent does not come back.
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
        "(nc -ll -p 7 -e cat &); ping -c 3 10.0.2.2; ping -c 3 10.0.2.18; \
         wget -qO /tmp/text http://10.0.2.2:{port}/text; wc -c /tmp/text; \
         nc 10.0.2.2 {port} </tmp/text; nc -l -p 9 </dev/null; echo the world has ended this"
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
            // A Linux that listens ends then.
            let _ = until(&over, "an end", || {
                connect(ports[END]).and_then(|mut end| end.read(&mut [0])).ok()
            });
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
    let said = client(&seen)?;
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

/// Reaches both clients from outside. Returns the station's page.
fn meet(ports: [u16; 4], text: &[u8], over: &AtomicBool) -> Result<String, String> {
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

/// What the client's Linux said; it ended well.
fn client(seen: &Seen) -> Result<&str, String> {
    let said = seen.serial(1)?;
    seen.ensure(said.contains("bulkhead-init: exit code 0"), "the client failed")?;
    seen.ensure(sound(said), "its kernel complains")?;
    Ok(said)
}
