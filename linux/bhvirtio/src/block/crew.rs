//! Threads that serve a disk. One of them leads: it looks at the queues, and takes requests in turn. It carries out at
//! once each request that need not wait for a device, so such a request costs no switch to another thread.
//!
//! With a request that may wait it ceases to lead. The next thread leads while this one waits. So the thread that takes
//! a request always carries it out. As many requests are under way as there are threads, and answers come in any order.
//!
//! A request of a session that is over can still reach the sections. So the driver's next session is answered only when
//! all of them have ended.

use super::disk::{Answer, Disk};
use crate::side::{Rest, Side};
use bulkhead_virtio::block::*;
use bulkhead_virtio::{Chain, Corrupted, News};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

/// Requests that wait for a device at a time, at most.
const THREADS: usize = 16;
/// Requests before the leader looks for news of the driver.
const ROUND: usize = 32;
/// How often the leader looks if the last session's requests have ended.
const DRAINED: Duration = Duration::from_millis(1);

/// A request, and the queue that it came by.
struct Job {
    queue: usize,
    chain: Chain,
    asked: Asked,
}

struct Crew {
    disk: Disk,
    desk: Mutex<Desk>,
    /// Lead over all queues: the thread that holds it serves them.
    lead: Mutex<Rest>,
}

/// State that all threads use, each for a moment.
struct Desk {
    side: Side,
    queues: usize,
    /// The queue that has the next turn.
    next: usize,
    threads: usize,
    /// Requests that others than the leader carry out.
    under_way: usize,
    /// The session is over, and `under_way` are of it.
    draining: bool,
}

/// Serves a disk for ever.
pub fn run(disk: Disk, mut side: Side, queues: usize) -> io::Result<()> {
    let lead = Mutex::new(side.take_rest().polls());
    let desk = Desk { side, queues, next: 0, threads: 1, under_way: 0, draining: false };
    let crew = Crew { disk, desk: Mutex::new(desk), lead };
    thread::scope(|scope| crew.work(scope))
}

impl Crew {
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> ! {
        loop {
            match self.lead(scope) {
                Ok(job) => {
                    let answer = self.disk.at_last(&job.asked);
                    let mut desk = self.desk();
                    desk.under_way -= 1;
                    desk.answer(&job, answer);
                    desk.side.ring();
                }
                Err(why) => {
                    println!("bhvirtio: {why}");
                    std::process::exit(1);
                }
            }
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leads until there is a request that may have to wait.
    fn lead<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> io::Result<Job> {
        let mut rest = self.lead.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut worked = self.desk().attend();
            for _ in 0..ROUND {
                let Some(job) = self.desk().take() else { break };
                worked = true;
                rest.found();
                let Some(answer) = self.disk.at_once(&job.asked) else {
                    rest.worked();
                    if self.desk().goes() {
                        thread::Builder::new().spawn_scoped(scope, || self.work(scope))?;
                    }
                    return Ok(job);
                };
                self.desk().answer(&job, answer);
            }
            let mut desk = self.desk();
            desk.side.ring();
            let most = desk.draining.then_some(DRAINED);
            drop(desk);
            rest.after(worked, None, most)?;
        }
    }
}

impl Desk {
    /// Looks for news of the driver; true if there are some.
    fn attend(&mut self) -> bool {
        if self.draining && self.under_way > 0 {
            return false;
        }
        let news = self.side.attend();
        self.draining = matches!(news, Some(News::Lost | News::Corrupted));
        news.is_some()
    }

    /// Counts a request more that may have to wait; true if no thread is left to lead, and another one is allowed.
    fn goes(&mut self) -> bool {
        self.under_way += 1;
        let lacks = self.under_way == self.threads && self.threads < THREADS;
        self.threads += usize::from(lacks);
        lacks
    }

    /// Takes a request. Queues have turns.
    fn take(&mut self) -> Option<Job> {
        for n in 0..self.queues {
            let number = (self.next + n) % self.queues;
            match self.take_from(number) {
                Ok(None) => {}
                Ok(Some(job)) => {
                    self.next = number + 1;
                    return Some(job);
                }
                Err(Corrupted) => {
                    self.side.spoilt();
                    self.draining = true;
                    return None;
                }
            }
        }
        None
    }

    fn take_from(&mut self, number: usize) -> Result<Option<Job>, Corrupted> {
        let Some(queue) = self.side.device.queue(number) else { return Ok(None) };
        let Some(chain) = queue.take()? else { return Ok(None) };
        let mut header = [0; HEADER];
        let there =
            chain.reads.len >= HEADER && read(&self.side.theirs, chain.reads.at, &mut header);
        let asked = Asked::of(&chain, header).filter(|_| there).ok_or(Corrupted)?;
        Ok(Some(Job { queue: number, chain, asked }))
    }

    /// Answers a request, if its session goes on.
    fn answer(&mut self, job: &Job, (status, written): Answer) {
        write(&self.side.mine, job.asked.status, &[status]);
        if let Some(queue) = self.side.device.queue(job.queue) {
            queue.used(&job.chain, written + 1);
            queue.tell();
        }
    }
}
