//! Is told of the end of a client's budget in the server, and settles it.

use bulkhead_program::abi::{Policy as Time, at, label};
use bulkhead_program::marker::{BEGIN, END, id};
use bulkhead_program::{
    Context, Error, FOREVER, Maker, Message, Program, Received, Reply, Thread, mark, now, println,
};
use program_overrun::chain::{Chain, State};

/// Context that the server runs on without a client: budget and period, ns. It serves to begin anew, and to end a
/// request.
const SPARE: [u64; 2] = [200_000, 1_000_000];
/// By how much a client's budget grows, ns.
const MORE: u64 = 16_000;
/// Most clients.
const MOST: usize = 8;

/// How the end of a client's budget is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Rollback,
    Emergency,
    Extend,
    Kill,
}

impl Policy {
    fn named(name: &str) -> Option<Self> {
        match name.split('-').next()? {
            "rollback" => Some(Self::Rollback),
            "emergency" => Some(Self::Emergency),
            "extend" => Some(Self::Extend),
            "kill" => Some(Self::Kill),
            _ => None,
        }
    }

    /// The handler's first instruction for it.
    fn begin(self) {
        match self {
            Self::Rollback => mark!(BEGIN | id::KERNEL_ROLLBACK),
            Self::Emergency => {
                mark!(BEGIN | id::KERNEL_EMERGENCY_WHOLE);
                mark!(BEGIN | id::KERNEL_EMERGENCY);
            }
            Self::Extend => {
                mark!(BEGIN | id::KERNEL_EXTEND_WHOLE);
                mark!(BEGIN | id::KERNEL_EXTEND);
            }
            Self::Kill => mark!(BEGIN | id::KERNEL_KILL),
        }
    }
}

/// A client, with its place in the list, from 1, as its context's badge.
#[derive(Clone, Copy)]
struct Client {
    name: &'static str,
    policy: Policy,
    thread: Thread,
    begin: [u64; 4],
    time: Context,
    /// Budget and period, ns.
    budget: [u64; 2],
}

struct Handler {
    chain: Chain,
    server: Thread,
    begin: [u64; 4],
    /// The object through which the server answers.
    answers: Reply,
    spare: Context,
    clients: [Option<Client>; MOST],
    /// How long a stopped client stays so, ns, 0: for good. Which one begins anew, and when.
    pause: u64,
    stopped: Option<(usize, u64)>,
}

/// The number at a place between commas, or the last one.
fn of(numbers: &str, place: usize) -> u64 {
    let mut all = numbers.split(',');
    let number = all.clone().nth(place).or_else(|| all.next_back());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Where a thread begins that has not run so far.
fn beginning(thread: Thread) -> Result<[u64; 4], Error> {
    thread.registers().map(|[ip, sp, ..]| [ip, sp, at::PAGE, 0])
}

impl Handler {
    /// `budget=` and `period=` are the clients', ns, budgets of several with commas between them; `only=NAME`: the
    /// others never run; `pause=`, ns.
    fn new(program: Program) -> Result<Self, Error> {
        let number = |name| program.number(name).unwrap_or(0);
        let (budgets, period) = (program.arg("budget").unwrap_or_default(), number("period"));
        let mut maker: Maker = program.maker();
        let spare = maker.context()?;
        spare.configure(Time::Sporadic, SPARE[0], SPARE[1], 0)?;
        let only = program.arg("only");
        let mut clients = [None; MOST];
        let managed =
            program.threads().filter_map(|(name, t)| Some((name, t, Policy::named(name)?)));
        for (n, (name, thread, policy)) in managed.enumerate().take(MOST) {
            if only.is_some_and(|only| only != name) {
                thread.suspend()?;
                continue;
            }
            let (time, begin) = (program.context(name), beginning(thread)?);
            let budget = [of(budgets, n), period];
            time.configure(Time::Sporadic, budget[0], budget[1], n as u64 + 1)?;
            clients[n] = Some(Client { name, policy, thread, begin, time, budget });
        }
        let server = program.manages("server");
        Ok(Self {
            chain: Chain(program.memory("chain").words()),
            server,
            begin: beginning(server)?,
            answers: program.reply("server"),
            spare,
            clients,
            pause: number("pause"),
            stopped: None,
        })
    }

    fn client(&mut self, badge: u64) -> Option<&mut Client> {
        self.clients.get_mut((badge as usize).checked_sub(1)?)?.as_mut()
    }

    /// Settles the end of a client's budget; returns true if the server goes on where it was.
    fn settle(&mut self, badge: u64) -> Result<bool, Error> {
        let (spare, server, pause) = (self.spare, self.server, self.pause);
        let Some(client) = self.client(badge) else {
            // Not even the spare budget was enough for a request.
            spare.unbind()?;
            return self.roll_back();
        };
        let [budget, period] = &mut client.budget;
        let policy = match client.policy {
            Policy::Extend if *budget + MORE > *period / 2 => Policy::Rollback,
            policy => policy,
        };
        policy.begin();
        match policy {
            Policy::Rollback => self.roll_back(),
            Policy::Emergency => {
                // The client keeps its own time, for when it is answered.
                client.time.unbind()?;
                client.time.bind(client.thread)?;
                spare.lend(server)?;
                Ok(true)
            }
            Policy::Extend => {
                *budget += MORE;
                client.time.configure(Time::Sporadic, *budget, *period, badge)?;
                Ok(true)
            }
            Policy::Kill => {
                client.thread.suspend()?;
                if pause == 0 {
                    println!("handler: {} is stopped", client.name);
                } else {
                    self.stopped = Some((badge as usize - 1, now() + pause));
                }
                self.restart()
            }
        }
    }

    /// The client is answered with the finished steps.
    fn roll_back(&self) -> Result<bool, Error> {
        let State { count, value } = self.chain.state();
        self.answers.answer(Message::new(0, &[value, count]))?;
        self.restart()
    }

    /// The server begins anew, on time that it keeps until it waits.
    fn restart(&self) -> Result<bool, Error> {
        self.spare.lend(self.server)?;
        self.server.start(self.begin)?;
        Ok(false)
    }

    fn revive(&mut self) -> Result<(), Error> {
        let Some((n, _)) = self.stopped.take() else { return Ok(()) };
        let client = self.clients[n].as_ref().expect("a client that was stopped");
        client.thread.start(client.begin)
    }
}

/// Handles the ends of budgets for ever.
pub fn handle(program: Program) -> u32 {
    let mut handler = Handler::new(program).expect("the manifest's rights");
    let (endpoint, reply) = (program.serves("overruns"), program.reply("handler"));
    let mut told = endpoint.receive(reply);
    loop {
        let Ok(Received { message, .. }) = told else {
            handler.revive().expect("a client to begin anew");
            told = endpoint.receive(reply);
            continue;
        };
        assert!(message.label() == label::TIMEOUT, "{message:?}");
        told = match handler.settle(message.words[0]).expect("what the manifest allows") {
            true => {
                mark!(END | id::KERNEL_EMERGENCY);
                mark!(END | id::KERNEL_EXTEND);
                endpoint.reply_receive(reply, Message::default())
            }
            false => endpoint.receive_until(reply, handler.stopped.map_or(FOREVER, |(_, at)| at)),
        };
    }
}
