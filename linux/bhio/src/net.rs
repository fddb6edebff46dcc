//! Rows of the network: the host's end is `bulkhead_qemu::Peer`.

use crate::repeat;
use bulkhead_linux::marker::id;
use bulkhead_linux::setup::Failure;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Fits an Ethernet frame.
const DATAGRAM: usize = 1472;
const CHUNK: usize = 64 << 10;
const CHUNKS_PER_MIB: usize = (1 << 20) / CHUNK;
/// Longest wait for the peer. Virtual time may run ahead of the host's while
/// nothing else happens, so it is long.
const PATIENCE: Duration = Duration::from_secs(600);
/// Datagrams may get lost; asked for again after so long.
const AGAIN: Duration = Duration::from_secs(5);

/// Round trips.
pub fn udp(peer: SocketAddr, count: usize) -> Result<(), Failure> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(peer)?;
    socket.set_read_timeout(Some(AGAIN))?;
    let mut lost = 0u64;
    let (mut number, mut sent, mut back) = (0u64, [0x55; DATAGRAM], [0; DATAGRAM]);
    repeat::<{ id::IO_NET_UDP }>("io.net_udp", (3, count), || {
        number += 1;
        sent[..8].copy_from_slice(&number.to_le_bytes());
        socket.send(&sent)?;
        loop {
            match socket.recv(&mut back) {
                Ok(_) if back == sent => return Ok(()),
                // An answer to one that was given up.
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock && lost < 100 => {
                    lost += 1;
                    socket.send(&sent)?;
                }
                Err(why) => return Err(why.into()),
            }
        }
    })?;
    println!("info udp lost {lost}");
    Ok(())
}

/// To the peer, which says how much has arrived.
pub fn tcp(peer: SocketAddr, mib: usize) -> Result<(), Failure> {
    let mut stream = connect(peer, b'>', mib)?;
    let chunk = vec![0x55; CHUNK];
    let chunks = mib * CHUNKS_PER_MIB;
    repeat::<{ id::IO_NET_TCP }>("io.net_tcp", (0, chunks), || Ok(stream.write_all(&chunk)?))?;
    let mut said = [0; 8];
    stream.read_exact(&mut said)?;
    match u64::from_le_bytes(said) {
        arrived if arrived == (chunks * CHUNK) as u64 => Ok(()),
        other => Err(format!("{other} bytes arrived").into()),
    }
}

/// From the peer.
pub fn tcp_from(peer: SocketAddr, mib: usize) -> Result<(), Failure> {
    let mut stream = connect(peer, b'<', mib)?;
    let mut chunk = vec![0; CHUNK];
    repeat::<{ id::IO_NET_TCP_FROM }>("io.net_tcp_from", (0, mib * CHUNKS_PER_MIB), || {
        Ok(stream.read_exact(&mut chunk)?)
    })
}

/// Says what is wanted: a direction and a number of bytes.
fn connect(peer: SocketAddr, direction: u8, mib: usize) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(peer)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut wish = [direction; 9];
    wish[1..].copy_from_slice(&((mib as u64) << 20).to_le_bytes());
    stream.write_all(&wish)?;
    Ok(stream)
}
