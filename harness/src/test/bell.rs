//! Doorbells of channels: what a ring costs each side, one who rings for ever, and an end that ends while the other one
//! sleeps.

use super::driver::Job;
use super::soak::soaks;
use super::system::{Manifest, Seen, run};
use bulkhead_qemu::Time;
use std::fmt::Write as _;
use std::time::Duration;

/// The kind of guest that receives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Receiver {
    Bare,
    Kernel,
}

const BOTH: [(Receiver, &str); 2] = [(Receiver::Bare, "bare"), (Receiver::Kernel, "kernel")];

pub fn jobs() -> Vec<Job> {
    let each = |(receiver, name): (Receiver, &'static str)| {
        [
            Job::one(format!("channel/doorbell-exits-{name}"), 60, move |bench| {
                let mut both = ends(receiver, EXITS);
                // The sender's exits are judged too, so the run ends with it as well.
                both.0 = both.0.replace(r#"ends_with = ["two"]"#, r#"ends_with = ["one", "two"]"#);
                exits(receiver, &run(&both, &bench.dir, |_| {})?)
            }),
            Job::one(
                format!("channel/flood-{name}"),
                if soaks() { 1_800 } else { 120 },
                move |bench| {
                    // Timers in time, for deadlines of a millisecond.
                    let precise = |o: &mut bulkhead_run::Options| {
                        (o.limit, o.time) = (
                            Duration::from_secs(if soaks() { 1_500 } else { 100 }),
                            Time::virtual_time(),
                        );
                    };
                    flood(
                        receiver,
                        &run(
                            &ends(receiver, if soaks() { LONG_FLOOD } else { FLOOD }),
                            &bench.dir,
                            precise,
                        )?,
                    )
                },
            ),
            Job::one(format!("channel/left-{name}"), 60, move |bench| {
                left(&run(&ends(receiver, LEFT), &bench.dir, |_| {})?, "exited")
            }),
            Job::one(format!("channel/died-{name}"), 60, move |bench| {
                left(&run(&ends(receiver, DIED), &bench.dir, |_| {})?, "stopped")
            }),
        ]
    };
    BOTH.into_iter().flat_map(each).collect()
}

/// Messages, and what sender and receiver do.
const COUNT: u32 = 200;
const EXITS: [&str; 2] = ["role=measure-send count=200 gap=300", "role=measure-receive count=200"];
const FLOOD: [&str; 2] = ["role=flood ms=60", "role=woken ms=55"];
/// Roles for `make soak`: an exit is slow where it is emulated.
const LONG_FLOOD: [&str; 2] = ["role=flood ms=2000", "role=woken ms=1900"];
/// The receiver has much more time than the run: only news of the sender ends it.
const LEFT: [&str; 2] = ["role=send count=100 gap=200", "role=woken ms=1000000"];
const DIED: [&str; 2] = ["role=send count=100 gap=200 poke=1", "role=woken ms=1000000"];

/// `one` sends to `two`, which in a kernel is a program of a context with half of the time, below a thread that has
/// deadlines.
fn ends(receiver: Receiver, [sends, receives]: [&str; 2]) -> Manifest {
    let mut manifest = Manifest::new().ends_with(&["two"]).bare(
        "one",
        "talk",
        &format!("{sends} channel=news"),
        &[0],
        "4 MiB",
        "",
    );
    let receives = format!("{receives} channel=news");
    manifest = match receiver {
        Receiver::Bare => manifest.bare("two", "talk", &receives, &[1], "4 MiB", ""),
        Receiver::Kernel => kernel(manifest, &receives),
    };
    let _ = writeln!(
        manifest.0,
        "[[channel]]\nname = \"news\"\nfrom = \"one\"\nto = [\"two\"]\nsize = \"4 KiB\"\nkind = \"queue\"\nmessage = 64\nnotify = \"doorbell\""
    );
    manifest
}

fn kernel(mut manifest: Manifest, receives: &str) -> Manifest {
    let program = |name: &str, args: &str, more: &str| {
        format!(
            "[[program]]\nname = \"{name}\"\nsandbox = \"two\"\nfile = \"artifact:program-talk\"\nargs = \"{args}\"\n{more}\n"
        )
    };
    let thread = |name: &str, priority: u8, budget: &str| {
        format!(
            "[[context]]\nname = \"{name}\"\nsandbox = \"two\"\nbudget = \"{budget}\"\nperiod = \"1 ms\"\n[[thread]]\nname = \"{name}\"\nprogram = \"{name}\"\npriority = {priority}\ncontext = \"{name}\"\nstack = \"16 KiB\"\n"
        )
    };
    let notification =
        |name: &str| format!("[[notification]]\nname = \"{name}\"\nsandbox = \"two\"\n");
    let news = "ends_sandbox = true\nchannels = [{ channel = \"news\", notification = \"news\" }]\nwaits = [\"news\"]";
    let parts = [
        "[[sandbox]]\nname = \"two\"\nguest = { kind = \"kernel\" }\ncores = [1]\nmemory = \"16 MiB\"\n".into(),
        program("reader", receives, news),
        program("keeper", "role=keep count=40", "signals = [\"pause\"]\nwaits = [\"pause\"]"),
        thread("reader", 100, "300 us"),
        thread("keeper", 110, "500 us"),
        notification("news"),
        notification("pause"),
    ];
    manifest.0.extend(parts);
    manifest
}

/// At most one exit of the sender for each message, and none of the receiver but for its console. A receiver
/// that was out of budget is not rung for.
fn exits(receiver: Receiver, seen: &Seen) -> Result<String, String> {
    seen.undisturbed("one", &["exited"])?;
    seen.undisturbed("two", &["exited"])?;
    seen.exited("two")?;
    let steady = |name| -> Result<_, String> { Ok(&seen.sandbox(name)?.exits.steady) };
    let (sender, receives) = (steady("one")?, steady("two")?);
    let rang = sender.get("ring").copied().unwrap_or(0);
    let expected = u64::from(COUNT) * 3 / 4..=u64::from(COUNT);
    seen.ensure(expected.contains(&rang), format!("{rang} rings for {COUNT} messages"))?;
    let quiet = receives.keys().all(|cause| *cause == "hypercall");
    seen.ensure(quiet, format!("exits of the receiver {receiver:?}: {receives:?}"))?;
    Ok(format!("{rang} exits of the sender for {COUNT} messages, of the receiver {receives:?}"))
}

/// At most one interrupt for each time that the receiver asked, and its deadlines kept.
fn flood(receiver: Receiver, seen: &Seen) -> Result<String, String> {
    seen.exited("two")?;
    seen.undisturbed("two", &["exited"])?;
    let number = |what: &str| -> Result<u64, String> {
        let line = seen.console.lines().find(|line| line.contains("armings"));
        let mut words = line.unwrap_or_default().split(' ').collect::<Vec<_>>().into_iter().rev();
        words.find(|word| word.starts_with(what));
        let word = words.next().and_then(|word| word.parse().ok());
        word.ok_or_else(|| seen.wrong(format!("the receiver does not say how many {what}")))
    };
    let (interrupts, armings, messages) =
        (number("interrupts")?, number("armings")?, number("messages")?);
    seen.ensure(interrupts <= armings, format!("{interrupts} interrupts for {armings} armings"))?;
    seen.ensure(messages > 20, format!("{messages} messages"))?;
    if receiver == Receiver::Kernel {
        seen.ensure(seen.console.contains("missed 0 of 40"), "the keeper missed a deadline")?;
    }
    Ok(format!("{interrupts} interrupts for {armings} armings, {messages} messages"))
}

/// The sender ended, and the receiver, which slept, was told.
fn left(seen: &Seen, state: &str) -> Result<String, String> {
    seen.exited("two")?;
    let one = seen.sandbox("one")?;
    seen.ensure(one.state == state, format!("one is {}, not {state}", one.state))?;
    seen.ensure(seen.console.contains("woken: Left"), "the receiver was not told")?;
    let all = seen.console.contains("100 messages");
    seen.ensure(all, "a message was lost")?;
    Ok("told after 100 messages".into())
}
