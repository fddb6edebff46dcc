//! A network device of the kernel's, point to point, with packets that go through two channels of records.
//!
//! Between two of these programs a packet has the form of the kernel's driver: up to 64 KiB of TCP in one piece. The
//! Linux that sends it out of the machine fills in its checksum; virtio's header before it says so (virtio 1.2, 5.1.6).
//! It is copied by the kernel alone, between its own buffers and the ring. A receiver that takes such packets says so
//! by its end's state ([`LARGE`]). All others get IP packets, finished and none larger than the device's MTU; and data
//! that begins as an IP packet does is one. The kernel checks a peer's header, as that of any virtual machine.

use bulkhead_channel::Stop;
use bulkhead_linux::message::{Pause, Receiver, Sender};
use bulkhead_linux::run::done;
use bulkhead_linux::tun;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

/// State of a receiver that takes packets with headers.
const LARGE: u32 = u32::from_le_bytes(*b"NETL");
/// Bytes of a header without the number of buffers.
const HEADER: usize = 10;
/// The largest packet that such a device gives, whatever is set as its MTU, with its header.
const LARGEST: usize = HEADER + 65_536;
/// Milliseconds between looks for a peer that takes large packets, as long as none does.
const ASIDE: u16 = 200;
/// Packets that are read between looks for a new peer.
const ROUND: usize = 64;

/// Makes the device. With an address (`10.9.0.1/24`) it is brought up, and with a program it lasts as long as that
/// runs.
pub fn run(device: &str, to: &str, from: &str, more: &[&str]) -> io::Result<()> {
    // Built in, or there already: then this fails, and nothing is wrong.
    let _ = Command::new("modprobe").args(["-q", "tun"]).status();
    let tun = tun::open(device, HEADER)?;
    let [address, program @ ..] = more else { return carry(to, from, tun) };
    done(Command::new("ip").args(["addr", "add", address, "dev", device]))?;
    done(Command::new("ip").args(["link", "set", device, "up"]))?;
    println!("bhchannel: {device} is {address}");
    let [program, arguments @ ..] = program else { return carry(to, from, tun) };
    let [to, from] = [to.to_owned(), from.to_owned()];
    thread::spawn(move || {
        println!("bhchannel: the network has ended: {:?}", carry(&to, &from, tun));
    });
    done(Command::new(program).args(arguments))
}

/// Both ways, until one of them fails.
fn carry(to: &str, from: &str, tun: File) -> io::Result<()> {
    let receiver = Receiver::open(from)?;
    // Before the session: a sender that is in one knows.
    receiver.say(LARGE);
    let sender = Sender::open(to, 0)?;
    let (done, end) = channel();
    let (other, reads) = (done.clone(), tun.try_clone()?);
    thread::spawn(move || done.send(into(&reads, sender)));
    thread::spawn(move || other.send(out_of(receiver, &tun)));
    end.recv().unwrap_or(Ok(()))
}

fn tell(stop: Stop) {
    eprintln!("bhchannel: {stop:?}");
}

/// The error for a way's end.
fn stopped(stop: Stop) -> io::Error {
    io::Error::other(format!("the channel: {stop:?}"))
}

/// Packets of the device go into the channel.
fn into(tun: &File, mut to: Sender) -> io::Result<()> {
    let (mut large, mut pause) = (false, Pause::default());
    let mut packet = vec![0; LARGEST];
    loop {
        let can = to.peer() == LARGE && to.longest() >= LARGEST;
        if can != large {
            tun::offload(tun, can)?;
            large = can;
        }
        let some =
            if large { many(tun, &mut to, &mut pause)? } else { one(tun, &mut to, &mut packet)? };
        if !some {
            let mut files = [PollFd::new(tun.as_fd(), PollFlags::POLLIN)];
            // A peer that is told late gets in small packets the rest of those that were begun before.
            match poll(&mut files, if large { PollTimeout::NONE } else { ASIDE.into() }) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }
}

/// Some, straight into the ring. Returns true if there may be more.
fn many(tun: &File, to: &mut Sender, pause: &mut Pause) -> io::Result<bool> {
    for _ in 0..ROUND {
        match to.send_from(tun, LARGEST) {
            Ok(Ok(())) => *pause = Pause::default(),
            // The peer is away, or is a new one, which may take packets in another way.
            Ok(Err(Stop::Apart)) => {
                pause.wait(None);
                return Ok(true);
            }
            Ok(Err(Stop::Wait)) => pause.wait(None),
            Ok(Err(stop @ (Stop::Lost | Stop::Left))) => tell(stop),
            Ok(Err(stop)) => return Err(stopped(stop)),
            Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(true)
}

/// One, without its header. Returns true if there was one.
fn one(mut tun: &File, to: &mut Sender, packet: &mut [u8]) -> io::Result<bool> {
    let len = match tun.read(packet) {
        Ok(len) => len,
        Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(false),
        Err(why) if why.kind() == ErrorKind::Interrupted => return Ok(true),
        Err(why) => return Err(why),
    };
    let (header, packet) = packet[..len].split_at(HEADER.min(len));
    // Such a packet lacks its checksum, or is to be cut up. It was made for a peer that takes it so, and is gone.
    let unfinished = header.iter().zip([1, 0xFF]).any(|(byte, bits)| byte & bits != 0);
    if !unfinished {
        to.send_all(packet, tell).map_err(stopped)?;
    }
    Ok(true)
}

/// Packets out of the channel go to the device.
fn out_of(mut from: Receiver, tun: &File) -> io::Result<()> {
    let mut finished = Vec::new();
    loop {
        let mut device = tun;
        let done = from.receive_to(tun, headed, |packet| {
            finished.clear();
            finished.resize(HEADER, 0);
            finished.extend_from_slice(packet);
            // As with a header: packets that the kernel does not take are lost.
            let _ = device.write(&finished);
        });
        match done {
            Ok(()) => {}
            Err(Stop::Size) => return Err(stopped(Stop::Size)),
            Err(stop) => {
                tell(stop);
                if stop == Stop::Corrupted {
                    from.reset();
                }
                // A peer that spoils it again and again does not get all of this core.
                thread::sleep(Pause::FIRST);
            }
        }
    }
}

/// A header's first byte has three flags; an IP packet's begins with its version.
fn headed(first: u8) -> bool {
    first >> 4 == 0
}
