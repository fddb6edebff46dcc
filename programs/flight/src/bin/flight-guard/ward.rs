//! Threads that the guard manages, and their ladders.

use bulkhead_program::abi::at;
use bulkhead_program::layout::ladder::{Climb, Ladder, Rung, TIMES};
use bulkhead_program::{Context, Program, Thread, now};
use core::fmt::Arguments;

/// Threads that it can keep.
pub const MOST: usize = 8;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A thread's place: its number in the list. The alternative of a thread has the place of that.
pub type Place = usize;

/// A thread, with its place in the list, from 1, as its badge.
struct Ward {
    name: &'static str,
    thread: Thread,
    /// Where it begins.
    begin: [u64; 4],
    climb: Climb,
    /// Where complaints about it stand.
    complaints: Climb,
    overruns: u64,
}

/// The thread that takes another one's place, if it has to.
struct Alternative {
    of: Place,
    by: Place,
    context: Context,
    /// It has.
    runs: bool,
}

/// All of them.
pub struct Wards {
    all: [Option<Ward>; MOST],
    alternative: Option<Alternative>,
    /// So many in so many milliseconds.
    restarts: u8,
    within: u32,
}

impl Wards {
    /// Finds the threads that the manifest gives the program.
    pub fn find(program: Program) -> Self {
        let mut all = [const { None }; MOST];
        for (ward, (name, thread)) in all.iter_mut().zip(program.threads()) {
            // No thread of them has run so far: the guard's priority is above theirs.
            let begin = thread.registers().map_or([0; 4], |[ip, sp, ..]| [ip, sp, at::PAGE, 0]);
            let [climb, complaints] = [(); 2].map(|()| Climb::default());
            *ward = Some(Ward { name, thread, begin, climb, complaints, overruns: 0 });
        }
        let number = |name, default| program.number(name).unwrap_or(default);
        let restarts = number("restarts", 3).min(TIMES as u64) as u8;
        let within = number("within", 10_000).min(u64::from(u32::MAX)) as u32;
        let mut wards = Self { all, alternative: None, restarts, within };
        wards.alternative = program.arg("alternative").map(|text| wards.named(program, text));
        wards
    }

    /// `THREAD:OTHER:CONTEXT`.
    fn named(&self, program: Program, text: &str) -> Alternative {
        let mut names = text.split(':');
        let mut next = || names.next().unwrap_or_default();
        let (of, by, context) = (self.place(next()), self.place(next()), next());
        let (Some(of), Some(by)) = (of, by) else { panic!("it does not manage both of {text}") };
        Alternative { of, by, context: program.context(context), runs: false }
    }

    /// Returns the place of a thread by its name.
    pub fn place(&self, name: &str) -> Option<Place> {
        self.all.iter().position(|ward| ward.as_ref().is_some_and(|ward| ward.name == name))
    }

    /// Returns the place that the thread with this number has.
    pub fn of(&self, number: usize) -> Option<Place> {
        self.all.get(number)?.as_ref()?;
        let stands_in = self.alternative.as_ref().filter(|one| one.by == number);
        Some(stands_in.map_or(number, |one| one.of))
    }

    fn runs(&self, place: Place) -> Option<&Ward> {
        self.all.get(self.number(place))?.as_ref()
    }

    /// Lists the names of all threads, by number.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.all.iter().flatten().map(|ward| ward.name)
    }

    /// Returns the number of the thread that runs at a place.
    pub fn number(&self, place: Place) -> usize {
        let by = self.alternative.as_ref().filter(|one| one.of == place && one.runs);
        by.map_or(place, |one| one.by)
    }

    /// Returns the name of the thread that runs at a place.
    pub fn name(&self, place: Place) -> &'static str {
        self.runs(place).map_or("", |ward| ward.name)
    }

    /// Counts the end of a budget.
    pub fn overran(&mut self, place: Place, every: u64) {
        let Some(Some(ward)) = self.all.get_mut(place) else { return };
        if ward.overruns % every == 0 {
            log::info!("{} takes all of its budget", ward.name);
        }
        ward.overruns += 1;
    }

    /// Takes a rung for what runs at a place, and tells why. Returns true if a thread is to begin there.
    pub fn fail(&mut self, place: Place, complaint: bool, why: Arguments<'_>) -> bool {
        let other = self.alternative.as_ref().filter(|one| one.of == place);
        let ladder = self.ladder(other.is_some(), complaint);
        let Some(Some(ward)) = self.all.get(place) else { return false };
        let climb = if complaint { &ward.complaints } else { &ward.climb };
        let rung = climb.take(&ladder, now(), SECOND).and_then(|rung| ladder.rungs.get(rung));
        let action = rung.map_or(Rung::STOP, |rung| rung.action);
        let replaced = action == Rung::ALTERNATIVE && other.is_some_and(|one| !one.runs);
        let what = match action {
            Rung::STOP => "it stays stopped",
            _ if replaced => "another one takes its place",
            _ => "it begins anew",
        };
        log::warn!("{}: {why}; {what}", self.name(place));
        if action == Rung::STOP {
            // It may be one that hangs. The manifest has given it, so it is there.
            let _ = self.runs(place).map(|ward| ward.thread.suspend());
        } else if replaced {
            self.replace();
        }
        action != Rung::STOP
    }

    /// So many restarts, so many of the alternative if there is one, then a stop. A complaint stops nothing.
    fn ladder(&self, other: bool, complaint: bool) -> Ladder {
        let rung = |action, times| Rung { action, times, guest: 0, within: self.within };
        let limited = |action| rung(action, self.restarts);
        let next = if other { Rung::ALTERNATIVE } else { Rung::RESTART };
        let rungs = match (complaint, other) {
            (true, _) => [limited(Rung::RESTART), rung(next, 0), Rung::default()],
            (false, true) => [limited(Rung::RESTART), limited(next), rung(Rung::STOP, 0)],
            (false, false) => [limited(Rung::RESTART), rung(Rung::STOP, 0), Rung::default()],
        };
        // A rung without times has no limit: none means none here.
        let stays = self.restarts > 0;
        let rungs =
            rungs.into_iter().filter(|one| stays || one.times > 0 || one.action == Rung::STOP);
        let mut ladder = Ladder::default();
        ladder.rungs.iter_mut().zip(rungs).for_each(|(to, rung)| *to = rung);
        ladder
    }

    /// Gives the other thread its place and time.
    fn replace(&mut self) {
        let Some(one) = self.alternative.as_mut().filter(|one| !one.runs) else { return };
        let ward = |at: Place| self.all.get(at)?.as_ref();
        let (Some(of), Some(by)) = (ward(one.of), ward(one.by)) else { return };
        let moved = of.thread.suspend().and_then(|()| one.context.unbind());
        match moved.and_then(|()| one.context.bind(by.thread)) {
            Ok(()) => one.runs = true,
            Err(error) => log::error!("{} cannot take the place: {error}", by.name),
        }
    }

    /// Lets what runs at a place begin anew.
    pub fn begin(&self, place: Place) {
        let Some(ward) = self.runs(place) else { return };
        if let Err(error) = ward.thread.start(ward.begin) {
            log::error!("{} cannot begin: {error}", ward.name);
        }
    }
}
