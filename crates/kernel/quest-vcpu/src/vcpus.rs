//! The list of a program's VCPUs, and the functions.

use crate::given::{Given, THREADS};
use crate::{Error, Param, SCHED_PIBS};
use bulkhead_kernel_abi::{Address, Code, Kind, Label, Status, label, slot};
use bulkhead_sched::share::Share;

/// Most VCPUs of a program.
pub const MOST: usize = 64;

/// The kernel, as a program calls it.
pub trait Calls {
    /// Calls a method of a kernel object.
    ///
    /// # Errors
    /// The status, if it is not OK.
    fn invoke(&mut self, on: Address, method: Label, words: [u64; 4]) -> Result<[u64; 4], Status>;
}

#[derive(Clone, Copy, Debug)]
struct Vcpu {
    context: Address,
    param: Param,
    /// The program's thread that runs on it.
    thread: Option<usize>,
    /// It is no more: its context is for the next one.
    spare: bool,
}

/// The last duty of a caller that destroys its own VCPU. It unbinds this context, and suspends this thread whenever
/// another context is given to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// The caller.
    pub thread: Address,
    /// Context that it runs on.
    pub context: Address,
}

/// The VCPUs of a program.
#[derive(Debug)]
pub struct Vcpus {
    given: Given,
    /// By identifier, from 1.
    vcpus: [Option<Vcpu>; MOST],
    /// Where each thread is in its walk.
    walks: [u8; THREADS],
    /// Share of the core's contexts that are not in the list.
    others: Share,
    servers: u32,
    /// Thread that is the authority over priorities, and the highest that it may give.
    authority: (Address, u64),
    slots: u32,
}

impl Vcpus {
    /// Returns the manifest's VCPUs, from a [page](Given::vcpus).
    #[must_use]
    pub fn new(
        given: Given,
        contexts: impl Iterator<Item = (Address, Param, Option<usize>)>,
        calls: &mut impl Calls,
    ) -> Self {
        let mut all = Self {
            given,
            vcpus: [None; MOST],
            walks: [0; THREADS],
            others: Share(given.load.share),
            servers: given.load.servers,
            authority: authority(&given, calls),
            slots: 0,
        };
        for (n, (context, param, thread)) in contexts.take(MOST).enumerate() {
            // The page's times are rounded, so that this is not more than the sum has for it.
            let own = param.share(given.load.overhead);
            all.others = all.others.above(own);
            all.servers -= u32::from(param.policy != SCHED_PIBS).min(all.servers);
            let param = Param { vcpuid: n as i32 + 1, ..param };
            all.vcpus[n] = Some(Vcpu { context, param, thread, spare: false });
        }
        all
    }

    /// `vcpu_create`: a new VCPU, with [`Param::DEFAULT`] if there are no parameters; its identifier. The parameter
    /// `vcpuid` is ignored.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NotAdmitted`], [`Error::NoMemory`], [`Error::Permission`]: there is none.
    pub fn create(&mut self, calls: &mut impl Calls, param: Option<Param>) -> Result<i32, Error> {
        let param = param.unwrap_or(Param::DEFAULT);
        let n = self.place()?;
        let param = Param { vcpuid: n as i32 + 1, ..param };
        self.admit(n, &param)?;
        let context = match self.vcpus[n] {
            Some(spare) => spare.context,
            None => self.context(calls)?,
        };
        // Whatever comes of it, the context can be used again.
        self.vcpus[n] = Some(Vcpu { context, param, thread: None, spare: true });
        // A thread that destroyed its own VCPU may not have reached this call.
        calls.invoke(context, label::UNBIND, [0; 4]).map_err(Error::of)?;
        self.set(calls, context, &param)?;
        self.vcpus[n] = Some(Vcpu { context, param, thread: None, spare: false });
        self.rank(calls).inspect_err(|_| {
            self.vcpus[n] = Some(Vcpu { context, param, thread: None, spare: true });
            let _ = self.rank(calls);
        })?;
        Ok(param.vcpuid)
    }

    /// `vcpu_destroy`: a VCPU is no more. With `force` its thread is terminated. It is stopped and has no context, so
    /// that it goes on only with a new one. If it is the caller, that is [left to it](Last).
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Busy`]: a thread is associated with it, and `force` is not set;
    /// [`Error::Permission`]: the program does not manage that thread.
    pub fn destroy(
        &mut self,
        calls: &mut impl Calls,
        caller: usize,
        id: i32,
        force: bool,
    ) -> Result<Option<Last>, Error> {
        let n = self.index(id)?;
        let vcpu = self.vcpus[n].as_mut().ok_or(Error::NotFound)?;
        let thread = vcpu.thread.map(|thread| (thread, address(&self.given, thread)));
        if thread.is_some() && !force {
            return Err(Error::Busy);
        }
        let mut last = None;
        match thread {
            Some((_, 0)) => return Err(Error::Permission),
            Some((n, thread)) if n == caller => {
                last = Some(Last { thread, context: vcpu.context });
            }
            Some((_, thread)) => {
                calls.invoke(thread, label::SUSPEND, [0; 4]).map_err(Error::of)?;
            }
            None if !force && is_bound(vcpu.context, calls) => return Err(Error::Busy),
            None => (),
        }
        if last.is_none() {
            calls.invoke(vcpu.context, label::UNBIND, [0; 4]).map_err(Error::of)?;
        }
        (vcpu.thread, vcpu.spare) = (None, true);
        // Where that is refused the others have the order that they had.
        let _ = self.rank(calls);
        Ok(last)
    }

    /// `vcpu_setparam`: new parameters for the VCPU that they name.
    ///
    /// # Errors
    /// As [`Vcpus::create`], and [`Error::NotFound`]: it keeps those that it has.
    pub fn set_param(&mut self, calls: &mut impl Calls, param: &Param) -> Result<(), Error> {
        let n = self.index(param.vcpuid)?;
        self.admit(n, param)?;
        let Some(vcpu) = self.vcpus[n] else { return Err(Error::NotFound) };
        self.set(calls, vcpu.context, param)?;
        self.vcpus[n] = Some(Vcpu { param: *param, ..vcpu });
        self.rank(calls).inspect_err(|_| {
            self.vcpus[n] = Some(vcpu);
            let _ = self.set(calls, vcpu.context, &vcpu.param);
            let _ = self.rank(calls);
        })
    }

    /// `vcpu_getparam`: the parameters of the next VCPU in the caller's walk over the list, which begins at its head,
    /// and there again behind its end.
    ///
    /// # Errors
    /// [`Error::NotFound`]: the list is empty.
    pub fn get_param(&mut self, caller: usize) -> Result<Param, Error> {
        let walk = self.walks.get_mut(caller).ok_or(Error::Permission)?;
        let next = usize::from(*walk);
        let all = (next..MOST).chain(0..next.min(MOST));
        let mut there = all.filter_map(|n| Some((n, self.vcpus[n].filter(|v| !v.spare)?)));
        let (n, vcpu) = there.next().ok_or(Error::NotFound)?;
        *walk = n as u8 + 1;
        Ok(vcpu.param)
    }

    /// `vcpu_bind_task`: the caller goes on with a VCPU, instead of its former one.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Busy`]: another thread is bound to it, or the caller runs on another thread's
    /// time; [`Error::Permission`]: the program does not manage the thread.
    pub fn bind(&mut self, calls: &mut impl Calls, caller: usize, id: i32) -> Result<(), Error> {
        let n = self.index(id)?;
        let thread = address(&self.given, caller);
        if thread == 0 {
            return Err(Error::Permission);
        }
        let vcpu = self.vcpus[n].ok_or(Error::NotFound)?;
        match vcpu.thread {
            Some(other) if other == caller => return Ok(()),
            Some(_) => return Err(Error::Busy),
            None => (),
        }
        const INSTEAD: u64 = 2;
        let words = [thread.into(), INSTEAD, 0, 0];
        let before = self.vcpus.iter().position(|v| v.is_some_and(|v| v.thread == Some(caller)));
        self.associate(before, n, caller);
        let ranked = self.rank(calls);
        let bound =
            ranked.and_then(|()| calls.invoke(vcpu.context, label::BIND, words).map_err(Error::of));
        bound.map(drop).inspect_err(|_| {
            self.vcpus[n] = Some(vcpu);
            if let Some(before) = before {
                self.associate(None, before, caller);
            }
            let _ = self.rank(calls);
        })
    }

    /// A thread has a VCPU, instead of another one.
    fn associate(&mut self, before: Option<usize>, now: usize, thread: usize) {
        for (n, thread) in [(before, None), (Some(now), Some(thread))] {
            if let Some(vcpu) = n.and_then(|n| self.vcpus[n].as_mut()) {
                vcpu.thread = thread;
            }
        }
    }

    /// Returns the index of a VCPU that is there.
    fn index(&self, id: i32) -> Result<usize, Error> {
        let n = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        let there = |n: &usize| self.vcpus.get(*n).copied().flatten().is_some_and(|v| !v.spare);
        n.filter(there).ok_or(Error::NotFound)
    }

    /// Finds where a new one goes: a spare one's place, or an empty one.
    fn place(&self) -> Result<usize, Error> {
        let spare = self.vcpus.iter().position(|v| v.is_some_and(|v| v.spare));
        let place = spare.or_else(|| self.vcpus.iter().position(Option::is_none));
        place.ok_or(Error::NoMemory)
    }

    /// Checks the article's condition, with a VCPU of these parameters at index `n`. The sum over all contexts of C/T,
    /// and of (2-U)·U of the I/O VCPUs, is at most n·(2^(1/n) - 1) for the n that are none.
    fn admit(&self, n: usize, param: &Param) -> Result<(), Error> {
        param.check()?;
        let (mut sum, mut servers) = (self.others, u64::from(self.servers));
        for param in self.others_than(n).chain([*param]) {
            sum = sum.plus(param.share(self.given.load.overhead));
            servers += u64::from(param.policy != SCHED_PIBS);
        }
        if sum > Share::bound(servers) {
            return Err(Error::NotAdmitted);
        }
        // A level for each period.
        let periods = self.others_than(n).map(|other| other.t);
        let others = distinct(periods.filter(|t| *t != param.t));
        if others > self.authority.1 { Err(Error::Permission) } else { Ok(()) }
    }

    /// Parameters of the VCPUs that are there, but for one.
    fn others_than(&self, n: usize) -> impl Iterator<Item = Param> + Clone {
        let there = self.vcpus.iter().enumerate().filter(move |(k, _)| *k != n);
        there.filter_map(|(_, v)| v.filter(|v| !v.spare)).map(|v| v.param)
    }

    fn context(&mut self, calls: &mut impl Calls) -> Result<Address, Error> {
        // The smallest that there is.
        const SIZE: u64 = 9;
        let [first, end] = self.given.free;
        let at = end.checked_sub(self.slots + 1).filter(|at| *at >= first);
        let at = at.ok_or(Error::NoMemory)?;
        let what = Kind::Context as u64 | SIZE << 8 | 1 << 16;
        let words = [what, slot::NODE.into(), at.into(), 0];
        calls.invoke(slot::MEMORY, label::RETYPE, words).map_err(Error::of)?;
        self.slots += 1;
        Ok(at)
    }

    fn set(&self, calls: &mut impl Calls, context: Address, param: &Param) -> Result<(), Error> {
        let (policy, budget, period) = param.times(self.given.load.overhead);
        let first = u64::from(context) | (policy as u64) << 32;
        let words = [first, budget, period, param.vcpuid as u64];
        calls.invoke(slot::CONTROL, label::SET_CONTEXT, words).map(drop).map_err(Error::of)
    }

    /// Gives the threads their levels: the shorter the period, the higher.
    fn rank(&self, calls: &mut impl Calls) -> Result<(), Error> {
        let there = self.vcpus.iter().flatten().filter(|v| !v.spare);
        for vcpu in there.clone() {
            let cap = vcpu.thread.map_or(0, |thread| address(&self.given, thread));
            if cap == 0 {
                continue;
            }
            let periods = there.clone().map(|v| v.param.t);
            let shorter = distinct(periods.filter(|t| *t < vcpu.param.t));
            let (authority, most) = self.authority;
            let words = [most.saturating_sub(shorter), most, authority.into(), 0];
            calls.invoke(cap, label::SET_PRIORITY, words).map_err(Error::of)?;
        }
        Ok(())
    }
}

/// Returns how many different ones there are.
fn distinct(all: impl Iterator<Item = i32> + Clone) -> u64 {
    let last = |(n, one): &(usize, i32)| !all.clone().skip(n + 1).any(|later| later == *one);
    all.clone().enumerate().filter(last).count() as u64
}

fn address(given: &Given, thread: usize) -> Address {
    given.threads.get(thread).copied().unwrap_or(0)
}

/// Tells if an unknown thread has a context, such as a thread of another program. The kernel is asked for an impossible
/// bind: it says which of both is wrong, and changes nothing.
fn is_bound(context: Address, calls: &mut impl Calls) -> bool {
    let refused = calls.invoke(context, label::BIND, [context.into(), 0, 0, 0]);
    refused.is_err_and(|status| status.code() == Some(Code::Occupied))
}

/// Finds the thread that may give the highest priority, and that priority. Asked for more than there is, the kernel
/// says so, and changes nothing.
fn authority(given: &Given, calls: &mut impl Calls) -> (Address, u64) {
    const BEYOND: u64 = u8::MAX as u64 + 1;
    let most = |thread: &Address| {
        let words = [BEYOND, 0, (*thread).into(), 0];
        let refused = calls.invoke(*thread, label::SET_PRIORITY, words).err()?;
        let says = refused.code() == Some(Code::NoAuthority);
        says.then(|| (*thread, refused.detail()))
    };
    let threads = given.threads.iter().filter(|thread| **thread != 0);
    threads.filter_map(most).max_by_key(|(_, most)| *most).unwrap_or((0, 0))
}
