//! The host's end of a guest's network.
//!
//! A guest on QEMU's user network reaches the host's loopback at 10.0.2.2. So a server there can be reached from
//! inside, and from nowhere outside of this machine. QEMU's `guestfwd` would give the guest a fixed address instead,
//! but it takes one connection at a time and no datagrams, and iperf3 wants two. So
//! ports are free ones, and guests are told.
//!
//! In virtual time the guest's clock jumps while it waits, and the peer's doesn't. An answer takes real microseconds,
//! so a guest that waits for it may see its timers run out first. Nothing is lost, but sending again costs
//! instructions.

use crate::Error;
use crate::running::text;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The host, as a guest sees it.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// A connection on which nothing moves for so long is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long iperf3 may take to listen.
const START: Duration = Duration::from_secs(10);
/// How often to look for a free port: another process may take it in between.
const TRIES: usize = 5;

/// A server on loopback, as long as it lives:
///
/// * UDP: every datagram goes back;
/// * TCP: the client sends `>` or `<` and a number of bytes, 64 bits,
///   little-endian. After `>` it sends as many, and is told how many arrived;
///   after `<` it is sent as many.
///
/// linux/bhio speaks this. With [`Peer::iperf3`] there is an iperf3 as well.
#[derive(Debug)]
pub struct Peer {
    port: u16,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    iperf3: Option<(Child, u16)>,
}

impl Peer {
    /// Starts the server on a free port, one for both protocols.
    ///
    /// # Errors
    /// If there are no sockets or threads to be had.
    pub fn start() -> Result<Self, Error> {
        let failed = |error| Error::Start("a server on loopback".into(), error);
        let (listener, socket) = bind().map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let over = Arc::new(AtomicBool::new(false));
        let (tcp, udp) = (Arc::clone(&over), Arc::clone(&over));
        let threads = vec![
            std::thread::spawn(move || accept(&listener, &tcp)),
            std::thread::spawn(move || echo(&socket, &udp)),
        ];
        Ok(Self { port, over, threads, iperf3: None })
    }

    /// Starts iperf3's server too, its output in `iperf3.log` in this folder, and
    /// returns its port. It ends with this value, or with the thread that started it.
    ///
    /// # Errors
    /// If there is no iperf3, or it does not listen within 10 s.
    pub fn iperf3(&mut self, dir: &Path) -> Result<u16, Error> {
        std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
        let log = dir.join("iperf3.log");
        let mut last = Ok(0);
        for _ in 0..TRIES {
            last = start_iperf3(&log).map(|server| self.iperf3.insert(server).1);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// Returns the server's port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Arguments of `bhio` that say where everything is.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut words = vec![format!("peer={HOST}:{}", self.port)];
        words.extend(self.iperf3.iter().map(|(_, port)| format!("iperf={port}")));
        words
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // Both threads wait for somebody; a failure means that they have gone.
        let _ = TcpStream::connect(local(self.port));
        let _ = UdpSocket::bind(local(0)).and_then(|s| s.send_to(&[], local(self.port)));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some((mut child, _)) = self.iperf3.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn local(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

fn bind() -> std::io::Result<(TcpListener, UdpSocket)> {
    let mut last = Err(std::io::ErrorKind::AddrInUse.into());
    for _ in 0..TRIES {
        let listener = TcpListener::bind(local(0))?;
        let port = listener.local_addr()?.port();
        last = UdpSocket::bind(local(port)).map(|socket| (listener, socket));
        if last.is_ok() {
            break;
        }
    }
    last
}

fn echo(socket: &UdpSocket, over: &AtomicBool) {
    let mut buffer = [0; 0x1_0000];
    loop {
        let received = socket.recv_from(&mut buffer);
        if over.load(Ordering::Acquire) {
            return;
        }
        // An error is news of an earlier datagram that nobody waited for.
        if let Ok((length, from)) = received {
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

fn accept(listener: &TcpListener, over: &AtomicBool) {
    loop {
        let accepted = listener.accept();
        if over.load(Ordering::Acquire) {
            return;
        }
        if let Ok((stream, _)) = accepted {
            // Ends when its client does, at the latest after PATIENCE.
            std::thread::spawn(move || serve(stream));
        }
    }
}

/// The guest notices whatever goes wrong.
fn serve(mut stream: TcpStream) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let (mut direction, mut wanted) = ([0], [0; 8]);
    stream.read_exact(&mut direction).ok()?;
    stream.read_exact(&mut wanted).ok()?;
    let wanted = u64::from_le_bytes(wanted);
    if direction == *b"<" {
        std::io::copy(&mut std::io::repeat(0x55).take(wanted), &mut stream).ok()?;
    } else {
        let arrived = std::io::copy(&mut (&mut stream).take(wanted), &mut std::io::sink()).ok()?;
        stream.write_all(&arrived.to_le_bytes()).ok()?;
    }
    Some(())
}

fn start_iperf3(log: &Path) -> Result<(Child, u16), Error> {
    const PROGRAM: &str = "iperf3";
    let failed = |error| Error::Start(PROGRAM.into(), error);
    let free = TcpListener::bind(local(0)).and_then(|listener| listener.local_addr());
    let port = free.map_err(failed)?.port();
    let output = std::fs::File::create(log).map_err(Error::io(log))?;
    let errors = output.try_clone().map_err(Error::io(log))?;
    // setpriv becomes iperf3; should we be killed, the kernel kills it as well.
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", PROGRAM, "--server", "--forceflush", "--bind", "127.0.0.1"])
        .args(["--port", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(failed)?;
    match listens(&mut child, log) {
        Ok(()) => Ok((child, port)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn listens(child: &mut Child, log: &Path) -> Result<(), Error> {
    let what = || "iperf3 to listen".to_owned();
    let deadline = Instant::now() + START;
    loop {
        let said = text(log);
        if said.contains("Server listening on") {
            return Ok(());
        }
        if let Some(status) = child.try_wait().map_err(Error::io(log))? {
            return Err(Error::Ended {
                what: what(),
                status: status.to_string(),
                tail: said.text(),
            });
        }
        if Instant::now() > deadline {
            return Err(Error::TimedOut { what: what(), limit: START, tail: said.text() });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(peer: &Peer, direction: u8, bytes: u64) -> TcpStream {
        let mut stream = TcpStream::connect(local(peer.port())).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
        stream.write_all(&[direction]).expect("sent");
        stream.write_all(&bytes.to_le_bytes()).expect("sent");
        stream
    }

    #[test]
    fn datagrams_come_back_and_streams_are_counted() {
        let peer = Peer::start().expect("loopback");
        let socket = UdpSocket::bind(local(0)).expect("loopback");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
        socket.send_to(b"there and back", local(peer.port())).expect("sent");
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).expect("an answer");
        assert_eq!(&buffer[..length], b"there and back");

        let mut to = connect(&peer, b'>', 100_000);
        to.write_all(&[1; 100_000]).expect("sent");
        let mut arrived = [0; 8];
        to.read_exact(&mut arrived).expect("an answer");
        assert_eq!(u64::from_le_bytes(arrived), 100_000);
        let mut from = Vec::new();
        connect(&peer, b'<', 100_000).read_to_end(&mut from).expect("a stream");
        assert_eq!(from.len(), 100_000);
    }

    #[test]
    fn nobody_listens_after_its_end() {
        let dir = std::env::temp_dir().join(format!("bulkhead-peer-{}", std::process::id()));
        let mut peer = Peer::start().expect("loopback");
        let iperf3 = peer.iperf3(&dir).expect("iperf3 is installed");
        let client = Command::new("iperf3")
            .args(["--client", "127.0.0.1", "--port", &iperf3.to_string(), "--bytes", "1M"])
            .output()
            .expect("iperf3 is installed");
        assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
        let ports = [peer.port(), iperf3];
        let [first, second] = [format!("peer=10.0.2.2:{}", ports[0]), format!("iperf={iperf3}")];
        assert_eq!(peer.arguments(), [first, second]);
        drop(peer);
        for port in ports {
            assert!(TcpStream::connect(local(port)).is_err(), "{port} is still open");
        }
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
