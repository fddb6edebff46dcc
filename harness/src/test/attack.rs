//! Attacks: the rogue guest makes one a life, beside a victim. Each has its own
//! verdict, from what the guest says and from the monitor's records.

use super::driver::Job;
use super::explained;
use super::pace::{self, PACED};
use super::system::{Manifest, Seen, run};
use bulkhead_layout::report::KIND_NAMES;
use rogue::{Attack, Expect, Set};
use std::time::Duration;

/// Where the victim's memory is, in the machine; its canaries from 4 MiB on.
pub const VICTIM_HPA: u64 = 1 << 30;
/// Its memory, in a manifest.
pub const VICTIM: &str = "{ size = \"8 MiB\", at = \"1 GiB\" }";
/// A canary in it, as an address of the machine.
pub const CANARY_HPA: u64 = VICTIM_HPA + (6 << 20);

pub fn jobs() -> Vec<Job> {
    let mut jobs = vec![all("attack", &[1], ""), all("attack-2-cores", &[1, 2], "core=1")];
    jobs.extend(rogue::ATTACKS.iter().filter(|a| a.endless).map(endless));
    jobs
}

/// A victim with a serial port and a channel, then a rogue that knows where to aim.
pub fn system(cores: &[u32], args: &str) -> Manifest {
    let args = format!("victim={CANARY_HPA:#x} foreign=0 sandbox=0 port=0x3f8 uart=0x2f8 {args}");
    let mut manifest = Manifest::new()
        .ends_with(&["rogue"])
        .bare("victim", "victim", "", &[0], VICTIM, "devices = [\"uart0\"]")
        .bare("rogue", "rogue", &args, cores, "4 MiB", "devices = [\"uart1\"]");
    manifest.0 +=
        "[[channel]]\nname = \"news\"\nfrom = \"victim\"\nto = [\"rogue\"]\nsize = \"4 KiB\"\n";
    manifest
}

/// All attacks that end by themselves, one life each.
fn all(group: &'static str, cores: &'static [u32], how: &'static str) -> Job {
    let name = move |attack: &str| format!("{group}/{attack}");
    let victim = format!("{group}/victim-unharmed");
    let explained = format!("{group}/explained");
    let tests = Set::Any.ending().map(move |a| name(a.name));
    let tests = tests.chain([victim.clone(), explained.clone()]);
    Job::new(group, tests, 240, move |bench| {
        let lives = Set::Any.ending().count();
        let args = format!("{how} lives={lives} {PACED}");
        let manifest = system(cores, &args).restarting("rogue");
        let seen = pace::run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(200));
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return bench.result(&victim, Err::<String, _>(error)),
        };
        for (life, attack) in Set::Any.ending().enumerate() {
            bench.result(&name(attack.name), judge(&seen, life as u32, attack));
        }
        bench.result(&victim, unharmed(&seen).map(|()| "no exit, no denial, canaries intact"));
        bench.result(&explained, explained::compare(group, &explained::all(&seen, Set::Any)));
    })
}

/// Finds the guest's words about an attack: `expected`, `got`.
fn said<'a>(seen: &'a Seen, name: &str, what: &str) -> Option<&'a str> {
    let start = format!("rogue: attack {name}: {what} ");
    // A line may begin with what an attack left on the console.
    let ends = |l: &'a str| Some(l.starts_with("[rogue]").then(|| l.split_once(&start))??.1);
    seen.console.lines().find_map(ends)
}

/// Finds the result of an attack, as the guest prints it.
pub fn got<'a>(seen: &'a Seen, name: &str) -> Option<&'a str> {
    said(seen, name, "got")
}

/// A denial's kind and address, as attacks name it.
pub fn denial(denied: &bulkhead_explain::Explained) -> String {
    let kind = KIND_NAMES.get(denied.record.kind as usize).unwrap_or(&"?");
    format!("{kind} {:#x}", denied.record.address)
}

/// Judges the result of an attack that was made in a life.
pub fn judge(seen: &Seen, life: u32, attack: &Attack) -> Result<String, String> {
    let expected = said(seen, attack.name, "expected");
    let expected = expected.ok_or_else(|| seen.wrong("it was not made"))?;
    let of_this =
        |d: &&bulkhead_explain::Explained| d.sandbox == "rogue" && d.record.incarnation == life;
    let denied: Vec<_> = seen.denials.iter().filter(of_this).map(denial).collect();
    let got = got(seen, attack.name);
    let right = match attack.expect {
        // An instruction that the processor lacks is as good as a denied one.
        Expect::Instruction(_) if denied.is_empty() => {
            got.is_some_and(|g| g.starts_with("exception 6"))
        }
        Expect::Harmless(_) | Expect::QuietLines if expected.starts_with("harmless") => {
            denied.is_empty() && got == Some(expected)
        }
        Expect::OneOf(_) => {
            let came: Vec<_> = denied.iter().map(String::as_str).chain(got).collect();
            matches!(came[..], [one] if expected.split(" or ").any(|e| e == one))
        }
        Expect::Restart => denied.is_empty() && got.is_none(),
        Expect::Exception(_) => denied.is_empty() && got.is_some_and(|g| g.starts_with(expected)),
        _ => denied == [expected] && got.is_none(),
    };
    let result = match (&denied[..], got) {
        ([], got) => got.unwrap_or("nothing").to_owned(),
        (denied, got) => format!(
            "{}{}",
            denied.join(", "),
            got.map(|g| format!(", then {g}")).unwrap_or_default()
        ),
    };
    if right { Ok(result) } else { Err(format!("expected {expected}\ngot {result}")) }
}

/// Tells if every canary of the victim is as it was.
pub fn intact(seen: &Seen) -> bool {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let Some(memory) = &seen.memory else {
        return false;
    };
    let right = |gpa: u64| memory.word(VICTIM_HPA + gpa) == gpa.wrapping_mul(FACTOR);
    (4 << 20..8 << 20).step_by(8).all(right)
}

/// The victim runs on, undisturbed, without an exit, its memory as it was.
pub fn unharmed(seen: &Seen) -> Result<(), String> {
    seen.undisturbed("victim", &["running"])?;
    let steady = &seen.sandbox("victim")?.exits.steady;
    seen.ensure(steady.is_empty(), format!("exits of the victim: {steady:?}"))?;
    seen.ensure(intact(seen), "a canary of the victim is changed")
}

/// One that never ends by itself: another sandbox restarts and stops it.
fn endless(attack: &'static Attack) -> Job {
    Job::one(format!("attack/{}", attack.name), 90, |bench| {
        let mut manifest = system(&[1], &format!("attack={}", attack.name)).bare(
            "warden",
            "warden",
            "target=1 do=wait,sleep,restart,sleep,stop",
            &[2],
            "4 MiB",
            "stop = [\"rogue\"]\nstart = [\"rogue\"]\nrestart = [\"rogue\"]",
        );
        manifest.0 = manifest.0.replace("ends_with = [\"rogue\"]", "ends_with = [\"warden\"]");
        let seen = run(&manifest, &bench.dir, |_| {})?;
        seen.exited("warden")?;
        let rogue = seen.sandbox("rogue")?;
        seen.ensure(
            rogue.state == "stopped" && rogue.restarts == 1,
            "it was not restarted and stopped",
        )?;
        // Nothing is denied, so there is nothing to explain.
        seen.ensure(rogue.denials == 0, format!("{} records", rogue.denials))?;
        unharmed(&seen)?;
        Ok("restarted and stopped from outside".into())
    })
}
