//! A Linux's ways with incoming packets, for tests. Programs wait for them, and it sends them on through two devices.
//! One device's reader wants each packet finished and small; the other's takes large ones as they are.

use bulkhead_linux::run::done;
use bulkhead_linux::tun;
use bulkhead_virtio::net::HEADER;
use nix::poll::{PollFd, PollFlags, poll};
use std::fs;
use std::io::{self, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;

/// Addresses of this Linux's, then of a neighbour behind each device.
pub const TARGETS: [(&str, &str); 3] =
    [("10.8.0.1", "fd00:8::1"), ("10.8.0.2", "fd00:8::2"), ("10.7.0.2", "fd00:7::2")];
/// Where programs wait.
pub const PORT: u16 = 7;

/// Name, MTU, whether it takes large packets, addresses.
const DEVICES: [(&str, &str, bool, [&str; 2]); 2] = [
    ("small", "1280", false, ["10.8.0.1/24", "fd00:8::1/64"]),
    ("large", "1500", true, ["10.7.0.1/24", "fd00:7::1/64"]),
];

/// Milliseconds between looks whether there is another card.
const LOOK: u8 = 10;

/// The address that a device side's tap gets.
pub const CARD: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Brings up a card that has come, and gives a tap an address that others know.
fn raise() {
    const UP: u32 = 1;
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let flags = text("/sys/class/net/eth0/flags");
    match u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16) {
        // One that goes meanwhile is none.
        Ok(flags) if flags & UP == 0 => {
            let _ = fs::write("/sys/class/net/eth0/flags", format!("{:#x}", flags | UP));
        }
        Ok(_) | Err(_) => {}
    }
    let own = CARD.map(|byte| format!("{byte:02x}")).join(":");
    let address = text("/sys/class/net/tap0/address");
    if !address.is_empty() && address.trim() != own {
        let _ = Command::new("ip").args(["link", "set", "tap0", "address", &own]).status();
    }
}

/// Sends on, and takes what comes, for ever; says how many came where.
pub fn run() -> io::Result<()> {
    // Built in, or there already: then this fails, and nothing is wrong.
    let _ = Command::new("modprobe").args(["-q", "tun"]).status();
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
    let mut devices = Vec::new();
    for (name, mtu, large, addresses) in DEVICES {
        let device = tun::open(name, HEADER)?;
        tun::offload(&device, large)?;
        for address in addresses {
            done(Command::new("ip").args(["addr", "add", address, "dev", name]))?;
        }
        done(Command::new("ip").args(["link", "set", name, "mtu", mtu, "up"]))?;
        devices.push(device);
    }
    let listener = TcpListener::bind(("::", PORT))?;
    let socket = UdpSocket::bind(("::", PORT))?;
    listener.set_nonblocking(true)?;
    socket.set_nonblocking(true)?;
    println!("bhvirtio: the gate is open");
    let mut counts = [0u64; 3];
    let mut packet = vec![0; HEADER + 65_536];
    loop {
        let files = [devices[0].as_fd(), devices[1].as_fd(), socket.as_fd()];
        match poll(&mut files.map(|file| PollFd::new(file, PollFlags::POLLIN)), LOOK) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(why) => return Err(why.into()),
        }
        raise();
        for (n, count) in counts.iter_mut().enumerate() {
            let name = DEVICES.get(n).map_or("program", |device| device.0);
            let mut read = || match devices.get_mut(n) {
                Some(device) => device.read(&mut packet).is_ok(),
                None => socket.recv(&mut packet).is_ok(),
            };
            while read() {
                *count += 1;
                if count.is_power_of_two() && *count >= 32 {
                    println!("bhvirtio: gate {name}: {count}");
                }
            }
        }
    }
}
