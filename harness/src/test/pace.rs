//! A pace for the rogue: it makes no attack before the lines of those before it were read.
//!
//! A console and the records of denials are rings, and no guest of the product ever waits for their reader. A rogue
//! that makes an attack in each of its lives fills them within a second. A busy host that looks too late would miss
//! some, and no virtual time holds the rogue back. So a test that judges every life tells in a channel how many it has
//! read.

use super::system::{Manifest, Seen, run_from};
use bulkhead_run::{Event, Options};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::rc::Rc;

/// Word of the rogue's command line.
pub const PACED: &str = "paced=1";

/// The lives that were read, for the rogue.
struct Pace {
    ram: File,
    pa: u64,
    lives: u64,
}

impl Pace {
    fn read(&mut self, text: &str) {
        self.lives += text.matches(": expected ").count() as u64;
        self.ram.write_all_at(&self.lives.to_le_bytes(), self.pa).expect("the machine's memory");
    }
}

/// Runs a system of which the rogue has [`PACED`] on its command line.
pub fn run(
    manifest: &Manifest,
    dir: &Path,
    change: impl FnOnce(&mut Options),
) -> Result<Seen, String> {
    let place = Rc::new(Cell::new(None));
    let (told, mut pace) = (Rc::clone(&place), None);
    let change = |options: &mut Options| {
        change(options);
        options.spoil = Some(Box::new(move |_, baked| {
            let news = baked.plan.channels.iter().find(|channel| channel.name == rogue::PACE);
            told.set(news.map(|news| news.hpa + rogue::PACE_AT as u64));
        }));
    };
    run_from(
        manifest,
        dir,
        change,
        |event| match event {
            Event::Started(running) => {
                let ram = File::options().write(true).open(running.ram().path());
                // Below 2 GiB a file of QEMU's is as the machine's memory.
                pace = ram.ok().zip(place.get()).map(|(ram, pa)| Pace { ram, pa, lives: 0 });
            }
            Event::Console("rogue", text) => {
                pace.iter_mut().for_each(|pace| pace.read(&text.text()))
            }
            _ => {}
        },
        |_, _| {},
    )
}
