//! Calls that nest.

use crate::{Thread, World};
use bulkhead_kernel::abi::{Address, Kind, Policy};
use bulkhead_kernel::{Machine as _, Time};

/// A client that called a passive server, which called another one, which runs now.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// The thread of priority 10; all of it runs on this thread's context.
    pub client: Thread,
    /// The first server, of priority 50.
    pub middle: Thread,
    /// The second one, of priority 60.
    pub last: Thread,
    /// The reply objects at which the client and the middle server wait.
    pub replies: [Address; 2],
    /// Endpoints of the two servers.
    pub endpoints: [Address; 2],
    /// Memory that each server is made of, with its endpoint and reply object.
    pub memory: [Address; 2],
}

impl Chain {
    /// With a client that has all the time.
    #[must_use]
    pub fn new(world: &mut World) -> Self {
        Self::of(world, Policy::Full, 0, 1_000_000)
    }

    /// With a client that has a context of this kind.
    ///
    /// # Panics
    /// If it does not come to that, because of an error of the kernel's.
    #[must_use]
    pub fn of(world: &mut World, policy: Policy, budget: Time, period: Time) -> Self {
        let server = |world: &mut World, priority| {
            let endpoint = world.make(Kind::Endpoint, 0);
            let (server, reply) = world.server(priority, endpoint);
            (server, reply, endpoint)
        };
        let ((middle, first, of_middle), memory) = world.apart(|world| server(world, 50));
        let ((last, second, of_last), other) = world.apart(|world| server(world, 60));
        let client = world.thread_of(10, policy, budget, period);
        let (replies, endpoints) = ([first, second], [of_middle, of_last]);
        let chain = Self { client, middle, last, replies, endpoints, memory: [memory, other] };
        chain.call(world);
        chain
    }

    /// The client calls, and the middle server.
    ///
    /// # Panics
    /// As [`Chain::of`].
    pub fn call(&self, world: &mut World) {
        world.call(self.client, self.endpoints[0], 7, [1, 2, 3, 4]);
        assert!(world.runs(self.middle));
        world.audit();
        world.call(self.middle, self.endpoints[1], 8, [1, 2, 3, 4]);
        assert!(world.runs(self.last));
        world.audit();
    }

    /// Both answer.
    ///
    /// # Panics
    /// As [`Chain::of`].
    pub fn answer(&self, world: &mut World) {
        world.reply_recv(self.last, self.endpoints[1], self.replies[1], 1, [4, 3, 2, 1]);
        assert!(world.runs(self.middle));
        world.audit();
        world.reply_recv(self.middle, self.endpoints[0], self.replies[0], 2, [4, 3, 2, 1]);
        world.audit();
    }

    /// The thread that has the client's context.
    #[must_use]
    pub fn holder(&self, world: &World) -> Option<Thread> {
        let context = world.machine.get(self.client.at).home;
        let thread = world.machine.get(context).thread;
        [self.client, self.middle, self.last].into_iter().find(|t| t.at == thread)
    }
}
