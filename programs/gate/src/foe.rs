//! A client that means harm, for tests. It sends to all as fast as it can, in its own name and in another's. It takes
//! no frame at all: it never reads its wire, and the virtio card that it has besides gets no room to receive into.
//!
//! Arguments: `to=CHANNEL from=CHANNEL` its wire, `mac=N` its address 02:00:00:00:00:N, `deaf=CHANNEL` of the virtio
//! card.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_net::Wire;
use bulkhead_program::{Guest, Program, println, ready};
use bulkhead_virtio::driver::Driver;
use bulkhead_virtio::net::DEVICE;

bulkhead_program::entry!(foe);

/// Bytes of a frame, and of an Ethernet header.
const LEN: usize = 60;

fn foe(program: Program) -> u32 {
    let name = |key| program.arg(key).unwrap_or_default();
    let (tx, rx, deaf) =
        (program.pair(name("to")), program.pair(name("from")), program.pair(name("deaf")));
    let ends = tx.send_records().ok().zip(rx.receive_records().ok());
    let section = deaf.shape().tx_bytes().unwrap_or(0);
    let driver = Driver::open(*deaf.tx(), *deaf.rx(), section, DEVICE, 0);
    let (Some((sender, receiver)), Ok(mut driver)) = (ends, driver) else {
        println!("{}: its channels are others", program.name());
        return 1;
    };
    let mut wire = Wire::new((sender, program.caller(&tx)), (receiver, None));
    let own = [2, 0, 0, 0, 0, program.number("mac").unwrap_or(0) as u8];
    let frame = |from: [u8; 6]| {
        let mut frame = [0xFF; LEN];
        frame[6..12].copy_from_slice(&from);
        frame
    };
    // The second one is the gateway's in QEMU's network.
    let frames = [frame(own), frame([0x52, 0x55, 10, 0, 2, 2])];
    ready();
    for n in 1u64.. {
        driver.attend();
        let sent = wire.counts().sent;
        wire.send(&frames[usize::from(n % 8 == 0)]);
        if n % 64 == 0 {
            wire.arm();
        }
        if sent != wire.counts().sent && wire.counts().sent.is_power_of_two() {
            println!("{}: {} frames sent", program.name(), wire.counts().sent);
        }
    }
    0
}
