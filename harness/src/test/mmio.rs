//! Registers that two sandboxes share: whole pages without an exit, and ranges by their monitors, against guests that
//! try for more.

use super::driver::{Bench, Job};
use super::mutate;
use super::system::{Manifest, Seen, run, run_audited};
use bulkhead_explain::Explained;

/// Pages that QEMU keeps as they are written (`machines/qemu-q35.toml`).
const PAGES: [&str; 2] = ["0xfed1d000", "0xfed1e000"];

/// The test of a monitor that looks at no range.
pub const MUTANT: &str = "mmio/mutant";

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("mmio/pages", 90, |bench| pages(&run_audited(&whole(""), &bench.dir, 60)?)),
        Job::one("mmio/read-only", 60, |bench| {
            read_only(&run(&whole(",w:4:10:bad,r:4:10:5"), &bench.dir, |_| {})?)
        }),
        Job::one(MUTANT, 400, mutant),
        Job::one("mmio/ranges", 90, |bench| {
            let system = ranges(OWN, TWO);
            audited(&run_audited(&system, &bench.dir, 60)?)
        }),
    ]
}

fn guests(one: &str, two: &str) -> Manifest {
    let args = |at: usize, steps: &str| format!("at={} do={steps}", PAGES[at]);
    Manifest::new().bare("one", "registers", &args(0, one), &[0], "4 MiB", "").bare(
        "two",
        "registers",
        &args(0, two),
        &[1],
        "4 MiB",
        "",
    )
}

/// `one` writes a page, and `two` reads it.
fn whole(more: &str) -> Manifest {
    let mut system = guests(
        "w:8:0:123456789abcdef0,w:4:10:5,w:1:20:7f,w:2:22:beef,r:2:22:beef",
        &format!("u:1:20:7f,r:8:0:123456789abcdef0,r:4:4:12345678,u:4:10:5{more}"),
    );
    system.0 += &format!(
        "[[shared_mmio]]\nname = \"panel\"\naddress = \"{}\"\n\
         parts = [{{ sandbox = \"one\", access = \"rw\" }}, {{ sandbox = \"two\", access = \"r\" }}]\n",
        PAGES[0]
    );
    system
}

/// Both see the page, and no access is an exit.
fn pages(seen: &Seen) -> Result<String, String> {
    for name in ["one", "two"] {
        seen.exited(name)?;
        let s = seen.sandbox(name)?;
        let asked = s.exits.boot.get("mmio").or(s.exits.steady.get("mmio"));
        seen.ensure(s.denials == 0 && asked.is_none(), format!("{name}: {asked:?}"))?;
    }
    Ok("written by one, read by the other, without an exit".into())
}

/// The one that reads cannot write.
fn read_only(seen: &Seen) -> Result<String, String> {
    seen.exited("one")?;
    let two = seen.sandbox("two")?;
    seen.ensure(two.state == "stopped", format!("two is {}", two.state))?;
    let [denial] = &seen.denials[..] else { return Err(seen.wrong("not one denial")) };
    told(
        seen,
        denial,
        "write to guest-physical 0xfed1d010",
        "its own, without that right",
        "nested-rights",
    )?;
    Ok(denial.to_string())
}

fn told(
    seen: &Seen,
    denial: &Explained,
    access: &str,
    owner: &str,
    guarantee: &str,
) -> Result<(), String> {
    let right = denial.access.contains(access)
        && denial.owner.contains(owner)
        && denial.guarantee == guarantee
        && denial.allow.contains("system.toml:");
    seen.ensure(right, format!("{access}, {owner}: {denial}"))
}

/// Accesses of `one` to its own registers, in each size.
const OWN: &str = "w:8:8:1122334455667788,r:8:8:1122334455667788,r:4:c:11223344,r:2:a:5566,r:1:f:11,w:2:0:abcd,\
                   w:1:3:ee,r:2:0:abcd,r:1:3:ee,w:4:3c:5,r:4:3c:5";
/// Accesses of `two`: it reads a register of its own that it may not write, and writes others. The rest it has not:
/// registers of `one` and of nobody, halves of its own, and its own with a write.
const TWO: &str = "w:8:48:aa55,u:8:48:aa55,r:4:40:0,r:4:3c:ffffffff,w:4:3c:bad,r:8:40:ffffffffffffffff,\
                   w:4:40:bad,r:4:40:0,r:2:4b:ffff,r:4:ffc:ffffffff,r:8:48:aa55";

/// Each has its registers in one page.
fn ranges(one: &str, two: &str) -> Manifest {
    let mut system = guests(one, two);
    system.0 += &format!(
        "[[shared_mmio]]\nname = \"dials\"\naddress = \"{}\"\nparts = [\n\
         {{ sandbox = \"one\", access = \"rw\", offset = 0, size = 0x40 }},\n\
         {{ sandbox = \"two\", access = \"r\", offset = 0x40, size = 4 }},\n\
         {{ sandbox = \"two\", access = \"rw\", offset = 0x48, size = 8 }},\n]\n",
        PAGES[0]
    );
    system
}

/// A monitor that does not look gives away registers of another sandbox.
fn mutant(bench: &Bench) -> Result<String, String> {
    mutate::build_mutants()?;
    let folder = mutate::monitor_without("mmio-range")?;
    let seen = run(&ranges(OWN, "u:4:3c:5,w:4:3c:bad,r:4:3c:bad"), &bench.dir, |o| {
        o.artifacts = folder;
    })?;
    seen.exited("two")?;
    let denials = seen.sandbox("two")?.denials;
    seen.ensure(denials == 0, "a monitor that does not look has denied something")?;
    Ok("a monitor that does not look lets it".into())
}

/// All came as it should, each with its record.
fn audited(seen: &Seen) -> Result<String, String> {
    seen.exited("one")?;
    seen.exited("two")?;
    seen.ensure(seen.sandbox("one")?.denials == 0, "denials of one")?;
    let count = |name: &str| -> Result<u64, String> {
        let exits = &seen.sandbox(name)?.exits;
        Ok([&exits.boot, &exits.steady].iter().filter_map(|phase| phase.get("mmio")).sum())
    };
    let counts = [count("one")?, count("two")?];
    seen.ensure(counts[0] == 11 && counts[1] >= 5, format!("{counts:?} exits"))?;
    let expected = [
        ("read of shared register 0xfed1d03c", "one's"),
        ("write of 0xbad to shared register 0xfed1d03c", "one's"),
        ("read of shared register 0xfed1d040", "two's"),
        ("write of 0xbad to shared register 0xfed1d040", "two's"),
        ("read of shared register 0xfed1d04b", "two's"),
        ("read of shared register 0xfed1dffc", "nobody's"),
    ];
    let got = seen.denials.len();
    seen.ensure(got == expected.len(), format!("{got} denials"))?;
    for (denial, (access, owner)) in seen.denials.iter().zip(expected) {
        told(seen, denial, access, owner, "mmio-range")?;
    }
    Ok(format!("{counts:?} exits, and {got} denials"))
}
