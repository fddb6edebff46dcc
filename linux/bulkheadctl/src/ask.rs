//! Requests of other sandboxes. A monitor takes one when it comes to it, so each ends with waiting for what
//! was asked for; every wait has a limit.

use crate::Wrong;
use crate::machine::{Machine, REFUSED, Status};
use crate::why::Reader;
use bulkhead_explain::state as name_of;
use bulkhead_layout::hypercall::{
    BUSY, CONTROL_RESTART, CONTROL_START, CONTROL_STOP, LOCKED, NOT_RUNNING, OK,
};
use bulkhead_layout::report::State;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// One sandbox that is asked.
pub struct Other<'a> {
    pub machine: &'a Machine,
    pub index: usize,
    pub name: &'a str,
    pub wait: Duration,
}

/// `stop`, `start` or `restart`; what came of it.
pub fn ask(
    machine: &Machine,
    request: &str,
    name: &str,
    wait: Duration,
    why: &Result<Reader, Wrong>,
) -> Result<String, Wrong> {
    let other = Other { machine, index: machine.index(name)?, name, wait };
    let done = match request {
        "stop" => other.stop(),
        "start" => other.start(),
        _ => other.restart(),
    };
    done.map_err(|wrong| granted(wrong, request, (other.index, name), why))
}

/// Locks this sandbox, or unlocks it.
pub fn lock(machine: &Machine, locked: bool) -> Result<String, Wrong> {
    let name = &machine.info.name;
    match machine.lock(locked)? {
        OK if locked => Ok(format!("{name} is locked\n")),
        OK => Ok(format!("{name} is not locked\n")),
        answer => Err(format!("the monitors answered {answer:#x}")),
    }
}

/// A refusal, with what would grant it.
pub fn granted(
    wrong: Wrong,
    key: &str,
    other: (usize, &str),
    why: &Result<Reader, Wrong>,
) -> Wrong {
    let name = other.1;
    match (wrong == REFUSED, why) {
        (true, Ok(why)) => format!("{REFUSED}: not granted on `{name}`; {}", why.grant(key, other)),
        (true, Err(why)) => format!("{REFUSED}: not granted on `{name}`; {why}"),
        (false, _) => wrong,
    }
}

impl Other<'_> {
    fn status(&self) -> Result<Status, Wrong> {
        self.machine.status(self.index)
    }

    pub fn stop(&self) -> Result<String, Wrong> {
        let before = self.status()?;
        if !lives(before.state) {
            return Ok(format!("{} is {} already\n", self.name, name_of(before.state)));
        }
        self.request(CONTROL_STOP)?;
        let now = self.until("that it stops", |now| !lives(now.state))?;
        Ok(self.is(now))
    }

    fn start(&self) -> Result<String, Wrong> {
        let before = self.status()?;
        if before.state == State::Running {
            return Ok(format!("{} is running already\n", self.name));
        }
        if before.state == State::Launching {
            return Ok(self.is(self.until("that it runs", |now| now.state != State::Launching)?));
        }
        self.request(CONTROL_START)?;
        Ok(self.is(self.begun(before)?))
    }

    fn restart(&self) -> Result<String, Wrong> {
        self.anew().map(|now| self.is(now))
    }

    /// Restarts it, or starts it if it does not live.
    pub fn anew(&self) -> Result<Status, Wrong> {
        let before = self.status()?;
        self.request(CONTROL_RESTART)?;
        self.begun(before)
    }

    /// Until a life has begun that was not there before; it may have ended again.
    fn begun(&self, before: Status) -> Result<Status, Wrong> {
        let first = before.restarts == 0 && !lives(before.state);
        self.until("that it runs", |now| match now.state {
            State::Running => first || now.restarts > before.restarts,
            State::Exited | State::Failed => {
                first && now.state != before.state || now.restarts > before.restarts
            }
            // A denied access has ended it already.
            State::Stopped => now.restarts > before.restarts,
            State::Absent | State::Launching => false,
        })
    }

    pub fn is(&self, now: Status) -> String {
        let what = if now.loaded { ", with a loaded program" } else { "" };
        let locked = if now.locked { ", locked" } else { "" };
        let (state, restarts) = (name_of(now.state), now.restarts);
        format!("{} is {state}{locked}, {restarts} restarts{what}\n", self.name)
    }

    /// Posts a request, after those that it has not taken yet, and no sooner than the manifest lets.
    fn request(&self, request: u64) -> Result<(), Wrong> {
        let begin = Instant::now();
        loop {
            match self.machine.control(self.index, request)? {
                OK => return Ok(()),
                BUSY if begin.elapsed() < self.wait => std::thread::sleep(PAUSE),
                BUSY => return Err(self.late("that its monitor takes a request")),
                NOT_RUNNING => {
                    return Err(format!(
                        "`{0}` does not run, and to start it takes `start = [\"{0}\"]` in the manifest",
                        self.name
                    ));
                }
                LOCKED => {
                    return Err(format!("`{}` is locked: nobody but itself ends it", self.name));
                }
                answer => return Err(format!("the monitors answered {answer:#x}")),
            }
        }
    }

    pub fn until(&self, what: &str, done: impl Fn(Status) -> bool) -> Result<Status, Wrong> {
        let begin = Instant::now();
        loop {
            let now = self.status()?;
            if done(now) {
                return Ok(now);
            }
            if begin.elapsed() >= self.wait {
                return Err(self.late(what));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn late(&self, what: &str) -> Wrong {
        let now = self.status();
        if now.as_ref().is_ok_and(|now| now.locked) {
            return format!("`{}` has locked itself meanwhile", self.name);
        }
        let now = now.map_or("unknown", |now| name_of(now.state));
        format!("waited {} s for `{}`, {what}: it is {now}", self.wait.as_secs(), self.name)
    }
}

pub fn lives(state: State) -> bool {
    matches!(state, State::Launching | State::Running)
}
