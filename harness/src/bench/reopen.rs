//! Instructions of a driver that begins anew (table IV of the Quest-V article): the card, then the way to its server.

use super::Found;
use super::figure::{Figure, Must};
use super::system::System;
use bulkhead_layout::marker::id;

/// When the driver fails, in milliseconds since the processors' start, and how often.
const TIMES: &str = "first=2800 every=200 count=12 kind=0";
const LIMIT: &str = "restarts=30 within=10000";
/// Openings without which the figure is none: the first one, and those after failures.
const OPENINGS: u64 = 8;

/// A driver of virtio's card fails again and again.
pub fn driver() -> Found {
    let rogue = format!("file = \"artifact:web-rogue\"\nargs = \"{TIMES}\"\n");
    let ran = System::new("web", "reopen")
        .changed("file = \"artifact:web-nic\"\n", rogue)
        .changed("restarts=3 within=10000", LIMIT)
        .with("client", "bulkhead.run=bhweb:10.0.2.16,rate=120,seconds=6".to_owned())
        .coarse()
        .run()?;
    let longest = |of: u16| {
        let found = ran.counts.span(of).filter(|spans| spans.n >= OPENINGS);
        found.ok_or_else(|| {
            format!("{:?} of span {of:#x}", ran.counts.span(of).map(|spans| spans.n))
        })
    };
    let (driver, interface) = (longest(id::RECOVER_DRIVER)?, longest(id::RECOVER_INTERFACE)?);
    let row = |name: &'static str, of: u64| crate::rows::Row::new(name, "instructions", of as f64);
    Ok(vec![
        Figure::new(row("recover.driver", driver.max)).note(format!(
            "reset, features, queues of virtio's card, the longest of {}; the card answers at once, so no waiting is in it; Quest-V: 14.5 million cycles",
            driver.n
        )),
        Figure::new(row("recover.interface", interface.max)).must(Must::AtMost(78_351.0)).note(format!(
            "from there until it has joined its server and can move frames, the longest of {}; frames of the last 60 ms go again behind that; Quest-V: 78,351 cycles",
            interface.n
        )),
    ])
}
