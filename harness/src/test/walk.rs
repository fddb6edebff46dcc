//! An auditor of its own: it reads the tables out of the memory of a machine that
//! ran a system of several sandboxes, and compares what they confine with what the
//! manifest says (design, invariants 1, 2 and 9). It shares no table code with the
//! builder, and no layout but where roots are. Then errors are planted, one of each
//! kind, and it has to find them.

mod audit;
mod given;
mod plant;
mod regime;
mod schema;

pub use schema::check as schema;

use super::driver::{Bench, Job};
use super::system::{Manifest, Memory, Seen, artifacts, run};
use audit::{Audit, Looked, RULES};
use bulkhead_image::Baked;
use given::PAGE;
use plant::{Hand, PLANTS, Planted};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

pub fn jobs() -> Vec<Job> {
    let tests = RULES.iter().map(|r| format!("walk/{r}"));
    let planted = PLANTS.iter().map(|p| format!("walk/finds-{}", p.0));
    let walk = Job::new("walk", tests.chain(planted).collect::<Vec<_>>(), 180, |bench| {
        if let Err(error) = walk(bench) {
            bench.result("walk/nested-map", Err::<String, _>(error));
        }
    });
    vec![walk, schema::job()]
}

/// A channel, rights to observe and control, two cores, all page sizes, RAM above
/// 4 GiB, and a Linux. The big one takes longest to be launched and ends the run; then
/// all others have been in their guests.
fn system() -> Manifest {
    let mut manifest = Manifest::new()
        .ends_with(&["warden", "big"])
        .bare(
            "warden",
            "warden",
            "do=sleep,sleep,wait,sleep,sleep",
            &[0],
            "4 MiB",
            "devices = [\"pit\", \"pmtimer\"]\ncontrol = [\"rogue\"]\nobserve = [\"rogue\", \"big\"]",
        )
        .bare(
            "rogue",
            "rogue",
            "attack=spin-for-ever core=1",
            &[1, 2],
            "8 MiB",
            "devices = [\"uart1\"]\nobserve = [\"big\"]",
        )
        .bare(
            "big",
            "hello",
            "",
            &[3],
            "{ size = \"1050628 KiB\", at = \"5 GiB\" }",
            "",
        )
        .linux("linux", "linux-6.12-cloud", "boot", &[4], "256 MiB", 2);
    // The big one without its segments' rights, so that a gibibyte is one page.
    manifest.0 = manifest.0.replace("hello\", args = \"\"", "hello\", access = \"rwx\"");
    manifest.0 +=
        "[[channel]]\nname = \"orders\"\nfrom = \"warden\"\nto = [\"rogue\"]\nsize = \"64 KiB\"\n";
    manifest.0 += "[[channel]]\nname = \"state\"\nfrom = \"linux\"\nto = [\"warden\", \"big\"]\nsize = \"2 MiB\"\n";
    manifest
}

fn walk(bench: &Bench) -> Result<(), String> {
    let seen = run(&system(), &bench.dir, |o| o.limit = Duration::from_secs(60))?;
    seen.exited("warden")?;
    seen.exited("big")?;
    let baked = &seen.outcome()?.baked;
    let memory = seen.memory.as_ref().ok_or("the machine's memory cannot be read")?;
    let monitor = artifacts().join("monitor");
    let pages = Pages { memory, read: RefCell::default() };
    let right = look(&pages, baked, &monitor, |_| {});
    for rule in RULES {
        let found: Vec<_> =
            right.findings.iter().filter(|f| f.0 == rule).map(|f| f.1.as_str()).collect();
        let result = match (rule, &found[..]) {
            ("page-sizes", []) if right.pages.len() != 3 => {
                Err(format!("the system was to have all page sizes: {:x?}", right.pages))
            }
            (_, []) => Ok(remark(rule, &right, &seen)),
            (_, found) => Err(format!(
                "{} findings:\n{}",
                found.len(),
                found[..found.len().min(8)].join("\n")
            )),
        };
        bench.result(&format!("walk/{rule}"), result);
    }
    for (name, rule, plant) in PLANTS {
        let looked = look(&pages, baked, &monitor, plant);
        let found = looked.findings.iter().find(|f| f.0 == *rule);
        let old = |f: &&(&str, String)| right.findings.contains(f);
        let result = match found.filter(|f| !old(f)) {
            Some((_, text)) => Ok(text.clone()),
            None => Err(format!("no new finding by {rule}: {:?}", looked.findings)),
        };
        bench.result(&format!("walk/finds-{name}"), result);
    }
    Ok(())
}

fn remark(rule: &str, looked: &Looked, seen: &Seen) -> String {
    match rule {
        "page-sizes" => {
            let pages = looked.pages.iter().map(|(size, n)| format!("{n} of {} KiB", size >> 10));
            pages.collect::<Vec<_>>().join(", ")
        }
        "tables-unmapped" => format!("{} tables", looked.tables),
        "host-state" => {
            let cores = seen
                .outcome()
                .map(|o| o.baked.plan.sandboxes.iter().map(|s| s.cores.len()).sum::<usize>());
            format!("{} cores", cores.unwrap_or(0))
        }
        _ => String::new(),
    }
}

/// A machine's memory, each page read once.
struct Pages<'a> {
    memory: &'a Memory,
    read: RefCell<HashMap<u64, [u8; PAGE as usize]>>,
}

impl Pages<'_> {
    fn word(&self, at: u64) -> u64 {
        let mut read = self.read.borrow_mut();
        let page = read.entry(at / PAGE).or_insert_with(|| {
            let mut bytes = [0; PAGE as usize];
            self.memory.read(at / PAGE * PAGE, &mut bytes);
            bytes
        });
        let word = page[(at % PAGE) as usize..].iter().take(8);
        word.rev().fold(0, |v, b| v << 8 | u64::from(*b))
    }
}

/// Looks at a memory in which something was planted.
fn look(pages: &Pages, baked: &Baked, monitor: &Path, plant: impl Fn(&Hand)) -> Looked {
    let base = |at| pages.word(at);
    let planted = Planted { base: &base, changes: RefCell::default() };
    let words = |at| planted.word(at);
    let audit = Audit { words: &words, baked, monitor };
    plant(&Hand { audit: &audit, memory: &planted });
    audit.run()
}
