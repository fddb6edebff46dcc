//! Calls of passive servers that a guard can cut off.
//!
//! A passive server works on its caller's time. A thread that manages the caller can stop it, and takes that time back
//! in the middle of a call. Then the server waits for ever, and with it all who call it.

use crate::kernel::{Kernel, Managed, Thread};

/// A call that can be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Severed<'a> {
    /// The passive thread that answers.
    pub server: &'a Thread,
    /// A thread that calls it.
    pub caller: &'a Thread,
    /// A thread that can stop the caller.
    pub manager: &'a Thread,
    /// The endpoint of the call has a `longest`. Where the server's priority is above the manager's too, no call is
    /// cut off.
    pub longest: bool,
}

impl Kernel {
    /// Finds the calls that can be cut off. Each passive server and each of its callers can have one, by the manager
    /// with the highest priority. The server's priority has to be above it, or it comes in the middle of a call. A
    /// call that may run out of budget lets it come, too. A manager of both can mend what it does.
    pub fn severed(&self) -> impl Iterator<Item = Severed<'_>> {
        let passive = self.threads.iter().filter(|thread| thread.context.is_none());
        let calls = passive.flat_map(|server| {
            let callers = self.threads.iter().filter(|caller| caller.program != server.program);
            callers.map(move |caller| (server, caller))
        });
        calls.filter_map(|(server, caller)| {
            let served = &self.programs.get(server.program)?.serves;
            let calls = &self.programs.get(caller.program)?.calls;
            let mut called = calls.iter().filter(|call| served.contains(&call.endpoint)).peekable();
            called.peek()?;
            let limited = |endpoint: usize| {
                self.endpoints.get(endpoint).is_some_and(|endpoint| endpoint.longest.is_some())
            };
            let longest = called.all(|call| limited(call.endpoint));
            let mends = |by: &Thread| self.managers(server).any(|own| own.program == by.program);
            let others = |by: &&Thread| by.program != server.program && *by != caller && !mends(by);
            let manager = self.managers(caller).filter(others);
            let manager = manager.max_by_key(|manager| manager.priority)?;
            let cuts = !longest || manager.priority >= server.priority;
            cuts.then_some(Severed { server, caller, manager, longest })
        })
    }

    /// Threads of programs that manage a thread.
    fn managers(&self, thread: &Thread) -> impl Iterator<Item = &Thread> {
        let is = move |managed: &Managed| matches!(managed, Managed::Thread(n) if self.threads.get(*n).is_some_and(|t| t == thread));
        self.threads.iter().filter(move |by| {
            let program = self.programs.get(by.program);
            program.is_some_and(|program| program.manages.iter().any(is))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::kernel::{Call, Endpoint, Program};

    const SERVER: usize = 0;
    const WARD: usize = 1;
    const GUARD: usize = 2;

    fn thread(program: usize, priority: u8, context: Option<usize>) -> Thread {
        let name = format!("thread{program}");
        let place = Place::default();
        let (entry, fault, timeout) = (None, None, None);
        let (max_priority, stack, fpu) = (priority, 4096, false);
        Thread {
            name,
            place,
            program,
            entry,
            priority,
            max_priority,
            context,
            stack,
            fpu,
            fault,
            timeout,
        }
    }

    /// A server with a priority, a ward and a guard, which manages the ward.
    fn kernel(server: u8, longest: Option<u64>) -> Kernel {
        let call = Call { endpoint: 0, badge: 1, grant: false };
        let program = Program::default;
        Kernel {
            programs: vec![
                Program { serves: vec![0], ..program() },
                Program { calls: vec![call], ..program() },
                Program { manages: vec![Managed::Thread(WARD)], ..program() },
            ],
            threads: vec![
                thread(SERVER, server, None),
                thread(WARD, 10, Some(0)),
                thread(GUARD, 100, Some(1)),
            ],
            endpoints: vec![Endpoint { name: "calls".into(), place: Place::default(), longest }],
            ..Kernel::default()
        }
    }

    fn names(kernel: &Kernel) -> Vec<[String; 3]> {
        let names = |s: Severed| [s.server, s.caller, s.manager].map(|thread| thread.name.clone());
        kernel.severed().map(names).collect()
    }

    #[test]
    fn a_guard_above_the_server_cuts_its_calls_off() {
        let all = [SERVER, WARD, GUARD].map(|n| format!("thread{n}"));
        assert_eq!(names(&kernel(100, Some(1_000))), std::slice::from_ref(&all));
        assert_eq!(names(&kernel(101, None)), [all]);
        assert!(names(&kernel(101, Some(1_000))).is_empty());
    }

    #[test]
    fn one_that_is_not_managed_or_not_passive_is_left_alone() {
        let mut kernel = kernel(50, None);
        kernel.threads[SERVER].context = Some(2);
        assert!(names(&kernel).is_empty());
        kernel.threads[SERVER].context = None;
        kernel.programs[GUARD].manages = vec![Managed::Thread(GUARD), Managed::Context(0)];
        assert!(names(&kernel).is_empty());
        kernel.programs[GUARD].manages = vec![Managed::Thread(WARD), Managed::Thread(SERVER)];
        assert!(names(&kernel).is_empty());
        kernel.programs[GUARD].manages.truncate(1);
        assert_eq!(names(&kernel).len(), 1);
        kernel.programs[WARD].calls.clear();
        assert!(names(&kernel).is_empty());
    }
}
