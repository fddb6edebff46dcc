//! A web server and the driver of its card, as programs of one kernel, and a Linux that asks for pages
//! (`systems/bench/web.toml`, docs/web.md). Debian's httperf asks, then our own client, which looks at each byte. The
//! driver fails in nine ways. It begins anew, then another one takes its place, and no connection notices. Nor does one
//! if the server itself fails.

use super::block::word;
use super::driver::{Bench, Job};
use super::peer::{deaf, struck_in};
use super::system::{Manifest, Seen, run_from};
use crate::build;
use crate::web::{CLIENT, Web, dooms};
use bulkhead_qemu::Time;
use std::path::Path;
use std::time::Duration;

/// Longest wait for the whole of a run.
const LIMIT: Duration = Duration::from_secs(400);
/// Ways in which the driver fails (`programs/web`).
const KINDS: [&str; 9] =
    ["Panic", "Wild", "Spin", "Sleep", "Mute", "Deaf", "Garbage", "Dma", "Queues"];
/// Milliseconds from one failure to the next, and microseconds without an answer, at most.
const EACH: u64 = 300;
const GAP: u64 = 30_000;
/// Microseconds of the slowest request.
const SLOWEST: u64 = 250_000;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("web/served", 450, served),
        Job::one("web/faults", 450, faults),
        Job::one("web/e1000e", 450, e1000e),
        Job::one("web/server", 450, server),
        Job::one("web/remote", 450, remote),
        Job::one("web/monitor", 450, monitor),
    ]
}

/// The system with a job for its client.
fn system(job: &str) -> Result<String, String> {
    of("web", job)
}

fn of(name: &str, job: &str) -> Result<String, String> {
    let path = build::root().join(format!("systems/bench/{name}.toml"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let job = format!("bulkhead.net=virtio_net bulkhead.run={job}");
    Ok(text.replace("../../machines/", "machines/").replace("bulkhead.net=virtio_net", &job))
}

fn options(options: &mut bulkhead_run::Options) {
    options.time = Time::coarse();
    options.limit = LIMIT;
    options.audit = true;
}

/// Runs it, and audits it.
fn look(text: String, dir: &Path) -> Result<Seen, String> {
    let seen = run_from(&Manifest(text), dir, options, |_| {}, |_, _| {})?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    Ok(seen)
}

/// A stock client, requests that are none, and a client that never ends its request.
fn served(bench: &Bench) -> Result<String, String> {
    const REPLIES: &str = "requests 240 replies 240";
    let ask = |text: &str| format!("printf '{text}' | nc 10.0.2.16 80 | head -n 1");
    // Spaces in quotes are written as numbers.
    let slow = r"printf 'GET\\040/\\040HT' >/tmp/half; tail -f /tmp/half | nc 10.0.2.16 80 &";
    let script = [
        slow.to_owned(),
        "httperf --server 10.0.2.16 --uri /page/x --rate 120 --num-conns 240 --timeout 5; true"
            .into(),
        ask(r"GET\\040/none\\040HTTP/1.0\\r\\n\\r\\n"),
        ask(r"PUT\\040/\\040HTTP/1.0\\r\\n\\r\\n"),
        ask(r"GET\\040/\\040HTTP/1.1\\r\\n\\r\\n"),
        ask(r"GET\\040/\\040HTTP/1.0\\r\\nContent-Length:9\\r\\n\\r\\n"),
        "bhweb 10.0.2.16 seconds=1".into(),
    ];
    let script = script.join("; ").replace("&;", "&");
    let seen = look(system(&format!("sh:-c,{}", word(&script)))?, &bench.dir)?;
    seen.undisturbed("web", &["running"])?;
    let said = seen.serial(1)?;
    for wanted in [
        REPLIES,
        "Reply status: 1xx=0 2xx=240 3xx=0 4xx=0 5xx=0",
        "content 17675.0",
        "Errors: total 0 ",
        "HTTP/1.1 404 Not Found",
        "HTTP/1.1 405 Method Not Allowed",
        "HTTP/1.1 400 Bad Request",
        "HTTP/1.1 413 Content Too Large",
        "bulkhead-init: exit code 0",
    ] {
        seen.ensure(said.contains(wanted), format!("the client says no `{wanted}`"))?;
    }
    let web = Web::read(seen.outcome()?, &seen.console)?;
    seen.ensure(web.wrong + web.lost == 0, format!("{} wrong, {} lost", web.wrong, web.lost))?;
    // The client's card goes with its power, which the server takes for a failure of its driver.
    let last = web.answers().last().copied().unwrap_or(0);
    let lives = web.begun.iter().filter(|at| **at < last).count();
    seen.ensure(lives == 1, format!("{lives} drivers beside requests"))?;
    let rate = said.lines().find_map(|line| line.trim().strip_prefix("Request rate: "));
    Ok(format!("httperf: {REPLIES}, {}; ours: {} answers", rate.unwrap_or(""), web.requests.len()))
}

/// Each kind of failure, and one more than the guard has restarts for: another driver takes the place.
fn faults(bench: &Bench) -> Result<String, String> {
    // Five of the kinds are found by the guard itself, three by the server, and one has no effect.
    let (seen, web) = failing(bench, 4, |text| text.replace("restarts=3", "restarts=5"))?;
    seen.ensure(web.replaced, "the other driver did not take the place")?;
    // It serves to the end.
    let last = web.faults.last().map_or(0, |fault| fault.at);
    let after = web.answers().iter().filter(|at| **at > last + EACH * 1_000).count();
    seen.ensure(after > 50, format!("{after} answers by the other driver"))?;
    Ok(format!("{}; then {after} answers by the other driver", told(&web, web.healed())))
}

/// Intel's card, for which there is no other driver.
fn e1000e(bench: &Bench) -> Result<String, String> {
    let change = |text: String| {
        let (before, rest) = text.split_once("# Another implementation.").unwrap_or((&text, ""));
        let (_, after) = rest.split_once("# Each question is due").unwrap_or(("", rest));
        let text = format!("{before}# Each question is due{after}")
            .replace(" alternative=nic:nic-strict:nic", "")
            .replace("\"thread:nic-strict\", ", "")
            .replace("restarts=3", "restarts=8");
        // Its messages have that number, too.
        text.replace("pci:00:05.0", "pci:01:00.0")
    };
    let (_, web) = failing(bench, 3, change)?;
    Ok(told(&web, web.healed()))
}

/// The server itself fails in the middle of a record, in each way twice and more. The next life has its connections.
fn server(bench: &Bench) -> Result<String, String> {
    const FILE: &str = "file = \"artifact:web-server\"\nargs = \"";
    let frail = format!(
        "file = \"artifact:web-frail\"\nargs = \"first=2800 every={EACH} count=10 then=100000 "
    );
    let text = system("bhweb:10.0.2.16,seconds=4")?.replace(FILE, &frail);
    let text = text.replace("restarts=3 within=10000", "restarts=8 within=1000");
    let seen = look(text, &bench.dir)?;
    seen.undisturbed("web", &["running"])?;
    let web = Web::read(seen.outcome()?, &seen.console)?;
    for kind in &KINDS[..4] {
        let planted = web.faults.iter().filter(|fault| fault.kind == *kind).count();
        seen.ensure(planted >= 2, format!("{planted} faults {kind} were planted"))?;
    }
    let outlived = web.outlived();
    seen.ensure(outlived >= web.faults.len(), format!("{outlived} failures outlived"))?;
    seen.ensure(web.broken == 0, format!("{} broken records", web.broken))?;
    right(&seen, &web, GAP)?;
    Ok(told(&web, outlived))
}

/// The driver fails in each way, and the whole sandbox by an exit code and a hang. The other one takes the card,
/// and goes on with the connections.
fn remote(bench: &Bench) -> Result<String, String> {
    const NIC: &str = "file = \"artifact:web-nic\"\nargs = \"role=website\"\n";
    let rogue =
        format!("file = \"artifact:web-rogue\"\nargs = \"role=website first=2800 every={EACH}\"\n");
    let text = of("web-remote", "bhweb:10.0.2.16,seconds=4")?.replace(NIC, &rogue);
    let text = text.replace(CLIENT, &dooms("first=2950 every=900"));
    let seen = look(text, &bench.dir)?;
    let web = Web::read(seen.outcome()?, &seen.console)?;
    for kind in KINDS.iter().chain(&["Exit", "Hang"]) {
        let planted = web.faults.iter().any(|fault| fault.kind == *kind);
        seen.ensure(planted, format!("no fault {kind} was planted"))?;
    }
    seen.ensure(web.broken == 0, format!("{} broken records", web.broken))?;
    // Forbidden memory alone may have no effect.
    let none = web.faults.iter().filter(|fault| fault.kind == "Dma").count();
    let outlived = web.outlived();
    seen.ensure(outlived + none >= web.faults.len(), format!("{outlived} failures outlived"))?;
    right(&seen, &web, GAP)?;
    Ok(told(&web, outlived))
}

/// The sandbox ends, and another one takes over. Then the monitor of that one stops: its peer takes its core,
/// and the spare monitor gives card and connections back.
fn monitor(bench: &Bench) -> Result<String, String> {
    const WEB: &str = "name = \"web\"\nguest = { kind = \"kernel\" }\ncores = [0]";
    let peers = [("web", "spare"), ("spare", "web")].map(|(by, of)| {
        let on = format!("[[health]]\nsandbox = \"{of}\"\non = \"monitor\"\nladder = [{{ action = \"failover\" }}]\n");
        format!("{on}[[peer]]\nsandbox = \"{by}\"\nwatches = \"{of}\"\nevery = \"2 ms\"\nfirst = \"200 ms\"\nmay = [\"init\"]\n\n")
    });
    // An INIT leads the core that boots to the firmware: so the client has that one.
    let text = of("web-remote", "bhweb:10.0.2.16,seconds=3")?
        .replace("cores = [1]", "cores = [0]")
        .replace(WEB, &WEB.replace("[0]", "[1]"))
        .replace(CLIENT, &(peers.concat() + &dooms("first=2950 every=1000000 kind=0")));
    let seen = struck_in(&Manifest(text), &bench.dir, ("web", 2), deaf(0), options)?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    let over = seen.denials.iter().filter(|denial| denial.condition == "monitor-hang").count();
    seen.ensure(over > 0, "no monitor was found")?;
    let web = Web::read(seen.outcome()?, &seen.console)?;
    seen.ensure(web.resumed.len() == 2, format!("{:?} resumed", web.resumed))?;
    seen.ensure(web.broken == 0, format!("{} broken records", web.broken))?;
    // The monitor stops before the sandbox has answered: two failures, one right behind the other.
    right(&seen, &web, 2 * GAP)?;
    Ok(told(&web, web.resumed.len()))
}

/// Runs it with a driver that fails in all ways, beside requests for so many seconds.
fn failing(
    bench: &Bench,
    seconds: u64,
    change: impl Fn(String) -> String,
) -> Result<(Seen, Web), String> {
    let times = format!("file = \"artifact:web-rogue\"\nargs = \"first=2800 every={EACH}\"\n");
    let text = system(&format!("bhweb:10.0.2.16,seconds={seconds}"))?;
    let text = change(text).replace("file = \"artifact:web-nic\"\n", &times);
    let seen = look(text, &bench.dir)?;
    seen.undisturbed("web", &["running"])?;
    let web = Web::read(seen.outcome()?, &seen.console)?;
    for kind in KINDS {
        let planted = web.faults.iter().any(|fault| fault.kind == kind);
        seen.ensure(planted, format!("no fault {kind} was planted"))?;
    }
    let [begins, ends] =
        [web.requests.first(), web.requests.last()].map(|one| one.map_or(0, |one| one.asked));
    let during = web.faults.iter().all(|fault| (begins..ends).contains(&fault.at));
    seen.ensure(during, "a fault came beside the requests")?;
    // Forbidden memory alone may have no effect.
    let healed = web.healed();
    let none = web.faults.iter().filter(|fault| fault.kind == "Dma").count();
    seen.ensure(healed + none >= web.faults.len(), format!("{healed} failures healed"))?;
    right(&seen, &web, GAP)?;
    Ok((seen, web))
}

/// Each answer is right, and came in time.
fn right(seen: &Seen, web: &Web, most: u64) -> Result<(), String> {
    seen.ensure(web.wrong + web.lost == 0, format!("{} wrong, {} lost", web.wrong, web.lost))?;
    let slowest = web.slowest().ok_or_else(|| seen.wrong("a request has no answer"))?;
    seen.ensure(slowest <= SLOWEST, format!("a request took {slowest} us"))?;
    let (gap, at) = web.gap();
    seen.ensure(gap <= most, format!("no answer for {gap} us from {at} us on"))
}

fn told(web: &Web, healed: usize) -> String {
    let (gap, at) = web.gap();
    let kind = web.before(at + gap).map_or("none", |fault| &fault.kind);
    format!(
        "{} failures, {} healed; {} answers, longest time without one {:.1} ms ({kind}), slowest {:.1} ms",
        web.faults.len(),
        healed,
        web.requests.len(),
        gap as f64 / 1e3,
        web.slowest().unwrap_or(0) as f64 / 1e3
    )
}
