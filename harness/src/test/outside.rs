//! A network card behind a wall. A Linux has the card by its ordinary driver, and serves a client's stock `virtio_net`
//! over a channel. The world outside is this process: it sends the client a text over TCP, and takes that back.

use super::driver::{Bench, Job};
use super::system::Manifest;
use super::virtio::{NEWER, OLDER, driver, look, two};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// A card: its function, and the name of its driver in Linux.
type Card = [&'static str; 2];
/// Each of Debian's kernels has a driver for it.
const VIRTIO: Card = ["pci:00:05.0", "virtio_net"];
/// The stock kernels have a driver for it, and the cloud kernels have none.
const E1000E: Card = ["pci:01:00.0", "e1000e"];
/// Longest wait for more of a connection.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two looks for a connection.
const LOOK: Duration = Duration::from_millis(20);

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("channel/outside", 240, |bench| outside(bench, [NEWER, OLDER], VIRTIO)),
        Job::one("channel/outside-e1000e", 240, |bench| {
            outside(bench, [OLDER, "linux-6.12"], E1000E)
        }),
    ]
}

/// Numbers, a line each: a lost or torn packet shows.
pub(super) fn text() -> Vec<u8> {
    (0..100_000).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

/// The world: whoever asks for the text gets it, and it keeps the text of whoever sends one.
pub(super) struct World {
    listener: TcpListener,
    pub(super) text: Vec<u8>,
    got: Mutex<Vec<u8>>,
    over: AtomicBool,
}

impl World {
    pub(super) fn new() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let (text, got) = (text(), Mutex::default());
        Ok(Self { listener, text, got, over: AtomicBool::new(false) })
    }

    /// The port of this host at which it listens.
    pub(super) fn port(&self) -> Result<u16, String> {
        self.listener.local_addr().map(|at| at.port()).map_err(|why| why.to_string())
    }

    /// Returns the bytes that it was sent.
    pub(super) fn got(&self) -> Vec<u8> {
        self.got.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Ends [`World::serve`].
    pub(super) fn end(&self) {
        self.over.store(true, Relaxed);
    }

    /// Serves until the end.
    pub(super) fn serve(&self) {
        while !self.over.load(Relaxed) {
            match self.listener.accept() {
                // A connection that breaks shows in what its client says.
                Ok((client, _)) => drop(self.answer(client)),
                Err(why) if why.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
                Err(_) => return,
            }
        }
    }

    fn answer(&self, mut client: TcpStream) -> std::io::Result<()> {
        client.set_nonblocking(false)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        let mut some = [0; 4096];
        let len = client.read(&mut some)?;
        if some.starts_with(b"GET ") {
            let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", self.text.len());
            client.write_all(head.as_bytes())?;
            return client.write_all(&self.text);
        }
        let mut got = some[..len].to_vec();
        while got.len() < self.text.len() {
            let len = client.read(&mut some)?;
            if len == 0 {
                break;
            }
            got.extend_from_slice(&some[..len]);
        }
        *self.got.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = got;
        Ok(())
    }
}

/// The client has an address of the card's network. The card's Linux forwards, and answers for both sides when somebody
/// asks for the other's Ethernet address.
fn system(kernels: [&str; 2], [function, name]: Card, port: u16) -> Manifest {
    let script = |text: &str| text.replace(' ', "${IFS}");
    let client = format!(
        "sleep 3; ping -c 3 10.0.2.2; wget -qO /tmp/text http://10.0.2.2:{port}/text; wc -c /tmp/text; \
         nc 10.0.2.2 {port} </tmp/text; sleep 1"
    );
    let gate = "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv4/conf/all/proxy_arp; \
                ip route add 10.0.2.16/32 dev tap0; sleep 1000";
    let jobs = [
        format!("bhvirtio:card,10.0.2.16/24,sh,-c,{}", script(&client)),
        format!("bhvirtio:net,tap0,lan,10.0.2.17/32,sh,-c,{} bulkhead.net={name}", script(gate)),
    ];
    let mut manifest = two(kernels, [&jobs[0], &jobs[1]], "doorbell");
    manifest.0 = manifest.0.replace("[\"uart2\"]", &format!("[\"uart2\", \"{function}\"]"));
    if let (false, Some(at)) =
        (kernels[1].contains("-cloud"), manifest.0.rfind("artifact:virtio.cpio"))
    {
        manifest.0.insert_str(at + "artifact:virtio".len(), "-stock");
    }
    manifest
}

fn outside(bench: &Bench, kernels: [&str; 2], card: Card) -> Result<String, String> {
    let world = World::new().map_err(|why| format!("no port of this host: {why}"))?;
    let port = world.port()?;
    let seen = thread::scope(|scope| {
        scope.spawn(|| world.serve());
        let seen = look(&system(kernels, card, port), bench);
        world.end();
        seen
    })?;
    let said = driver(&seen)?;
    seen.ensure(said.contains("3 packets received"), "the world outside did not answer")?;
    let bytes = world.text.len();
    seen.ensure(said.contains(&format!("{bytes} /tmp/text")), "the text did not arrive")?;
    let got = world.got();
    seen.ensure(got == world.text, format!("{} of {bytes} bytes came back whole", got.len()))?;
    Ok(format!("{bytes} bytes there and back"))
}
