//! An Ethernet switch between sandboxes: each port is two channels of records, one each way.
//!
//! Arguments: `ports=NAME,NAME,...` (at most 8): the channels of a port are `NAME-in`, which the station sends, and
//! `NAME-out`. A frame is copied once, then looked at. Each port has its turn, one frame at a time, so that no station
//! keeps the others from theirs. A frame that finds no room at its port is dropped. Waits at the notification `news`.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

use alloc::format;
use alloc::vec::Vec;
use bulkhead_net::{FRAME, Switch};
use bulkhead_program::{FOREVER, Program, now, println, ready};
use net_programs::{Line, line, serve};

bulkhead_program::entry!(switch);

const PORTS: usize = 8;
/// Addresses at a port.
const MACS: usize = 16;

struct Net {
    lines: Vec<Line>,
    cut: [u32; PORTS],
    switch: Switch<PORTS, MACS>,
    refused: u32,
}

fn switch(program: Program) -> u32 {
    program.heap();
    let names = program.arg("ports").unwrap_or_default().split(',').filter(|name| !name.is_empty());
    let lines: Vec<Line> =
        names.map(|name| line(program, &format!("{name}-out"), &format!("{name}-in"))).collect();
    if !(2..=PORTS).contains(&lines.len()) {
        println!(
            "{}: {} ports; 2 to {PORTS} have to be named in ports=",
            program.name(),
            lines.len()
        );
        return 1;
    }
    println!("{}: {} ports", program.name(), lines.len());
    ready();
    let mut net = Net { lines, cut: [0; PORTS], switch: Switch::new(), refused: 0 };
    serve(
        &mut net,
        program.waits("news"),
        |net, each| net.lines.iter_mut().for_each(each),
        |net| if net.turn(program) { now() } else { FOREVER },
    )
}

impl Net {
    /// A frame of each port; returns true if there was one.
    fn turn(&mut self, program: Program) -> bool {
        let mut buffer = [0; FRAME];
        let mut any = false;
        for from in 0..self.lines.len() {
            let Some(frame) = self.lines[from].receive(&mut buffer) else {
                self.heed(from);
                continue;
            };
            any = true;
            match self.switch.route(from, frame, now()) {
                Ok(ports) => {
                    for (port, line) in self.lines.iter_mut().enumerate() {
                        if ports & 1 << port != 0 {
                            line.send(frame);
                        }
                    }
                }
                Err(why) => {
                    // Once for each doubling: a hostile station shall not fill the console.
                    self.refused = self.refused.wrapping_add(1);
                    if self.refused.is_power_of_two() {
                        println!(
                            "{}: port {from}: {why:?} ({} so far)",
                            program.name(),
                            self.refused
                        );
                    }
                }
            }
        }
        any
    }

    /// A station that has gone takes its addresses along.
    fn heed(&mut self, port: usize) {
        let cut = self.lines[port].counts().cut;
        if cut != self.cut[port] {
            self.cut[port] = cut;
            self.switch.forget(port);
        }
    }
}
