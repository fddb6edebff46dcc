//! Waits through calls: which endpoints a call reaches, at which priorities it runs
//! there, and where a caller can be kept without time.

use crate::kernel::{Kernel, Policy};

/// A kernel's calls, by endpoint.
pub(super) struct Calls {
    /// Priorities of the passive threads that serve it.
    passive: Vec<Option<(u8, u8)>>,
    /// True if a thread with a context of its own serves it.
    active: Vec<bool>,
    /// Endpoints that a call reaches through passive servers, itself first.
    trees: Vec<Vec<usize>>,
    /// Its server can be in a call without time, and keep its other callers waiting.
    held: Vec<bool>,
}

impl Calls {
    /// Looks at a kernel. `called`: the endpoints that may be called on each context.
    pub fn new(kernel: &Kernel, called: &[Vec<usize>]) -> Self {
        let count = kernel.endpoints.len();
        let (mut passive, mut active) = (vec![None; count], vec![false; count]);
        let mut servers = vec![Vec::new(); count];
        for thread in &kernel.threads {
            for endpoint in kernel.programs[thread.program].serves.iter().copied() {
                match thread.context {
                    Some(_) => active[endpoint] = true,
                    None => {
                        let (low, high) = passive[endpoint].unwrap_or((u8::MAX, 0));
                        let both = (low.min(thread.priority), high.max(thread.priority));
                        passive[endpoint] = Some(both);
                        servers[endpoint].push(thread.program);
                    }
                }
            }
        }
        let tree = |endpoint| tree(kernel, &servers, endpoint);
        let trees = (0..count).map(tree).collect();
        let mut calls = Self { passive, active, trees, held: Vec::new() };
        calls.held = calls.held(kernel, called);
        calls
    }

    fn held(&self, kernel: &Kernel, called: &[Vec<usize>]) -> Vec<bool> {
        let waits = |endpoint: usize| self.waits(endpoint).is_some();
        let mut held: Vec<bool> = (0..self.trees.len()).map(waits).collect();
        for (context, endpoints) in called.iter().enumerate() {
            for endpoint in endpoints.iter().filter(|n| !keeps(kernel, context, **n)) {
                // Its budget can end in the call, wherever that is then.
                self.trees[*endpoint].iter().for_each(|inside| held[*inside] = true);
            }
        }
        held
    }

    /// Priorities of the passive threads that a call can reach, the lowest and the highest.
    pub fn reach(&self, endpoint: usize) -> Option<(u8, u8)> {
        let all = self.trees[endpoint].iter().filter_map(|inside| self.passive[*inside]);
        all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Returns an endpoint at which a passive server that a call reaches can wait for a thread with its own context.
    fn waits(&self, endpoint: usize) -> Option<usize> {
        self.passive[endpoint]?;
        self.trees[endpoint][1..].iter().copied().find(|inside| self.active[*inside])
    }

    /// The endpoint at which a call waits for somebody with a context of their own, if there is one.
    pub fn waits_for(&self, endpoint: usize) -> Option<usize> {
        self.trees[endpoint].iter().copied().find(|inside| self.active[*inside])
    }

    /// Endpoints of the passive servers, in the way of a call, that can be occupied without time.
    pub fn occupied(&self, endpoint: usize) -> impl Iterator<Item = usize> {
        let passive = |inside: &usize| self.passive[*inside].is_some() && self.held[*inside];
        self.trees[endpoint].iter().copied().filter(passive)
    }

    /// Endpoints of the passive servers in the way of a call, and their lowest priorities.
    pub fn passive(&self, endpoint: usize) -> impl Iterator<Item = (usize, u8)> {
        let of = |inside: &usize| Some((*inside, self.passive[*inside]?.0));
        self.trees[endpoint].iter().filter_map(of)
    }

    /// Highest priorities of the passive servers from which a call of one endpoint can come to another one.
    pub fn on_the_way(&self, endpoint: usize, to: usize) -> impl Iterator<Item = u8> {
        let from = move |n: &&usize| **n != to && self.reaches(**n, to);
        self.trees[endpoint].iter().filter(from).filter_map(|n| Some(self.passive[*n]?.1))
    }

    /// True if a call of one endpoint can reach another one.
    pub fn reaches(&self, endpoint: usize, other: usize) -> bool {
        self.trees[endpoint].contains(&other)
    }
}

/// Tells if no budget of a context ends in a call of an endpoint, or the call ends first. The kernel makes sure of it
/// if it knows the longest call. It cannot for PIBS contexts: their budget depends on the thread that asked.
pub(super) fn keeps(kernel: &Kernel, context: usize, endpoint: usize) -> bool {
    let pibs = matches!(kernel.contexts[context].policy, Policy::Pibs { .. });
    !pibs && kernel.endpoints[endpoint].longest.is_some()
}

fn tree(kernel: &Kernel, servers: &[Vec<usize>], endpoint: usize) -> Vec<usize> {
    let mut seen = vec![false; servers.len()];
    let (mut tree, mut next) = (vec![endpoint], 0);
    seen[endpoint] = true;
    while let Some(endpoint) = tree.get(next) {
        next += 1;
        let programs = servers[*endpoint].iter();
        let calls: Vec<usize> =
            programs.flat_map(|n| kernel.programs[*n].calls.iter().map(|c| c.endpoint)).collect();
        for endpoint in calls {
            if !std::mem::replace(&mut seen[endpoint], true) {
                tree.push(endpoint);
            }
        }
    }
    tree
}

/// Finds for each thread the call that comes back to it, directly or through other calls, if there is one. Each of
/// the calls has one thread only that could take it.
pub(super) fn circles(kernel: &Kernel) -> Vec<Option<usize>> {
    let count = kernel.threads.len();
    let mut of_program = vec![Vec::new(); kernel.programs.len()];
    for (n, thread) in kernel.threads.iter().enumerate() {
        of_program[thread.program].push(n);
    }
    // The one thread that serves an endpoint, if it is one.
    let mut sole = vec![(0, 0); kernel.endpoints.len()];
    for (program, threads) in kernel.programs.iter().zip(&of_program) {
        for endpoint in &program.serves {
            let (servers, one) = &mut sole[*endpoint];
            *servers += threads.len();
            *one = threads.first().copied().unwrap_or(*one);
        }
    }
    let next = |thread: usize| {
        let calls = kernel.programs[kernel.threads[thread].program].calls.iter();
        let sole = calls.map(|call| (call.endpoint, sole[call.endpoint]));
        sole.filter(|(_, (servers, _))| *servers == 1).map(|(endpoint, (_, to))| (endpoint, to))
    };
    let comes_back = |from: usize| {
        next(from).find_map(|(endpoint, first)| {
            let mut seen = vec![false; count];
            let mut open = vec![first];
            while let Some(thread) = open.pop() {
                if thread == from {
                    return Some(endpoint);
                }
                if !std::mem::replace(&mut seen[thread], true) {
                    open.extend(next(thread).map(|(_, to)| to));
                }
            }
            None
        })
    };
    (0..count).map(comes_back).collect()
}
