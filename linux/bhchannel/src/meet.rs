//! A party of channels made at run time, as tests have it (`crates/talk`): `ms=N STEP...`. Its mappings stay, also when
//! a slot is closed, so that tests see the consequences.

use bulkhead_channel::layout::Kind;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_layout::hypercall::{RESTART, SLOT};
use bulkhead_linux::devmem::Info;
use bulkhead_linux::link::{self, Link, Refused, Slot, State};
use bulkhead_linux::port;
use bulkhead_talk::meet::{MESSAGE, Meets, last, meet, watch};
use bulkhead_talk::{Host, Nobody};
use std::cell::RefCell;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

struct Here {
    begun: Instant,
    /// Milliseconds for each step.
    ms: &'static str,
    info: &'static Info,
    /// Its mappings, by slot.
    links: RefCell<Vec<Option<&'static Link>>>,
}

impl Here {
    fn read(ms: &'static str) -> io::Result<Self> {
        port::allow_calls()?;
        let info: &Info = Box::leak(Box::new(Info::read()?));
        let links = RefCell::new(vec![None; info.slots.len()]);
        Ok(Self { begun: Instant::now(), ms, info, links })
    }

    /// Keeps it mapped. Its place among the slots.
    fn keep(&self, link: Link) -> usize {
        let at = self.info.slots.iter().position(|slot| slot == link.slot()).unwrap_or_default();
        self.links.borrow_mut()[at] = Some(link.stay());
        at
    }

    fn link(&self, slot: usize) -> Option<&'static Link> {
        self.links.borrow()[slot]
    }
}

impl Host for Here {
    type Ring = Nobody;
    type Bed = Nobody;

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, nanos: u64) {
        std::thread::sleep(Duration::from_nanos(nanos.saturating_sub(self.now())));
    }

    fn say(&self, line: Arguments<'_>) {
        println!("bhchannel: {line}");
        // The next step can be the end of this sandbox.
        let _ = io::stdout().flush();
    }

    /// Monitors' words of slots outlive a Linux: one that has had a slot has lived before.
    fn life(&self) -> u64 {
        let had = |slot: &Slot| port::call(SLOT, slot.number.into(), 0) != 0;
        self.info.slots.iter().any(had).into()
    }

    fn arg(&self, key: &str) -> Option<&'static str> {
        (key == "ms").then_some(self.ms)
    }
}

impl Meets for Here {
    type Slot = usize;

    fn slots(&self) -> impl Iterator<Item = usize> {
        0..self.info.slots.len()
    }

    fn offers(&self) -> impl Iterator<Item = usize> {
        let offers = link::offers(self.info).unwrap_or_default();
        self.slots().filter(move |slot| offers.contains(&self.info.slots[*slot]))
    }

    fn which(&self, slot: usize) -> (u32, bool) {
        let slot = &self.info.slots[slot];
        (slot.number, slot.mine)
    }

    fn state(&self, slot: usize) -> State {
        let slot = &self.info.slots[slot];
        slot.state().unwrap_or(State::of(0, 0, slot.mine))
    }

    fn offer(&self, to: u32, tag: u16) -> Result<usize, Refused> {
        match link::offer(self.info, to as usize, tag) {
            Ok(link) => Ok(self.keep(link)),
            Err(why) if why.kind() == ErrorKind::ResourceBusy => Err(Refused::Busy),
            Err(why) if why.kind() == ErrorKind::PermissionDenied => Err(Refused::Denied),
            Err(_) => Err(Refused::Nothing),
        }
    }

    fn accept(&self, slot: usize, epoch: u32) -> bool {
        self.info.slots[slot].accept(epoch).map(|link| self.keep(link)).is_ok()
    }

    fn close(&self, slot: usize) -> bool {
        self.info.slots[slot].close().is_ok()
    }

    fn pair(&self, slot: usize) -> Option<Pair<'static>> {
        self.link(slot)?.pair(Kind::Queue, MESSAGE)
    }

    fn words(&self, slot: usize) -> Option<&'static [AtomicU64]> {
        self.link(slot).map(Link::words)
    }

    fn sandboxes(&self) -> [u32; 2] {
        [self.info.index as u32, self.info.sandboxes.len() as u32]
    }

    fn call(&self, number: u64, first: u64, second: u64) -> u64 {
        port::call(number, first, second)
    }

    fn aside(&self, slot: usize) -> bool {
        let Some(words) = last(self, slot) else { return false };
        std::thread::spawn(move || watch(words));
        true
    }

    fn restart(&self) {
        let _ = port::call(RESTART, 0, 0);
    }
}

pub fn run(words: &[&str]) -> ExitCode {
    let [ms, steps @ ..] = words else { return ExitCode::FAILURE };
    match Here::read(String::leak(ms.trim_start_matches("ms=").to_owned())) {
        Ok(here) => ExitCode::from(meet(&here, &steps.join(",")) as u8),
        Err(why) => {
            println!("bhchannel: {why}");
            ExitCode::FAILURE
        }
    }
}
