//! Random and mutated input for whoever reads what others made: the manifest's
//! loader, the boot code's check of a compiled manifest, the monitor's decoder of
//! trapped accesses, its IOAPIC and its PCI functions. Nothing may panic; what is
//! accepted must keep the rules that the check stands for. A seed makes a run repeatable.

mod ioapic;
mod mmio;
mod pci;

use crate::{Failure, build};
use bulkhead_arch::{BootMachine, CoreStart};
use bulkhead_launch::{Image, start_cores, verify, words};
use bulkhead_layout::image::{Header, Range, Sandbox, checksum};
use bulkhead_layout::map::{IMAGE_PA, TRAMPOLINE_PA};
use bulkhead_manifest::source::Source;
use bulkhead_manifest::{Options, load_text, render};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Numbers that are the same for the same seed (SplitMix64).
pub struct Random(u64);

impl Random {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// What a run has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Manifests.
    pub manifests: u64,
    /// Of them, accepted.
    pub accepted: u64,
    /// Compiled manifests.
    pub images: u64,
    /// Of them, accepted.
    pub passed: u64,
    /// Trapped accesses, and instructions alone.
    pub traps: u64,
    /// Of them, decoded.
    pub decoded: u64,
    /// Accesses to the IOAPIC.
    pub accesses: u64,
    /// Of them, writes to the machine's.
    pub programmed: u64,
    /// Accesses to PCI functions.
    pub configured: u64,
    /// Of them, allowed.
    pub allowed: u64,
}

/// Feeds all until the time is up or so many rounds are made.
///
/// # Errors
/// Files that cannot be read; a compiled manifest that was accepted and breaks a rule;
/// a trapped access with a read or an effect that it must not have.
pub fn run(seed: u64, time: Duration, rounds: u64) -> Result<Done, Failure> {
    let manifests = corpus()?;
    let image = sample()?;
    let mut random = Random::new(seed);
    let mut guest = mmio::Guest::new(random.next());
    let mut machines = [false, true].map(ioapic::Machine::new);
    let mut functions = pci::Functions::new();
    let mut done = Done::default();
    let end = Instant::now() + time;
    while Instant::now() < end && done.manifests < rounds {
        done.manifests += 1;
        done.accepted += u64::from(manifest(&mut random, &manifests));
        // A compiled manifest is checked much faster than a manifest.
        for _ in 0..20 {
            let round = random.0;
            done.images += 1;
            let passed = image.mutated(&mut random);
            done.passed += u64::from(passed.map_err(|why| format!("{why} (round {round:#x})"))?);
        }
        for _ in 0..500 {
            let (next, trapped) = guest.trap()?;
            guest = next;
            done.traps += 2;
            done.decoded += u64::from(trapped) + u64::from(mmio::code(&mut random)?);
        }
        // Remapping entries stay for good: now and then with empty ones.
        if done.manifests % 100 == 0 {
            functions = pci::Functions::new();
        }
        for _ in 0..500 {
            done.configured += 1;
            done.allowed += u64::from(functions.access(&mut random)?);
        }
        for machine in &mut machines {
            for _ in 0..500 {
                done.accesses += 1;
                done.programmed += u64::from(machine.access(&mut random)?);
            }
        }
    }
    Ok(done)
}

/// Every manifest and machine description of ours, good and bad.
fn corpus() -> Result<Vec<Vec<u8>>, Failure> {
    let mut all = Vec::new();
    for folder in ["systems", "systems/bench", "tests/manifests", "tests/manifests/bad", "machines"]
    {
        let mut files: Vec<_> =
            std::fs::read_dir(build::root().join(folder))?.flatten().map(|f| f.path()).collect();
        files.sort();
        for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "toml")) {
            all.push(std::fs::read(file)?);
        }
    }
    Ok(all)
}

const PIECES: [&str; 16] = [
    "[[sandbox]]\n",
    "[[channel]]\n",
    "cores = [0]\n",
    "= ",
    "\"",
    "[",
    "}",
    "-1",
    "0xFFFFFFFFFFFFFFFF",
    "9223372036854775807",
    "\"16777216 TiB\"",
    "at = \"4 GiB\"",
    "true",
    "\u{0}",
    "\u{1F980}",
    "memory = { size = \"0 B\" }\n",
];

/// Changes one of them and loads it; whether it was accepted.
fn manifest(random: &mut Random, corpus: &[Vec<u8>]) -> bool {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let len = random.below(16).min(bytes.len() - at);
        let with = match random.below(4) {
            0 => PIECES[random.below(PIECES.len())].as_bytes().to_vec(),
            1 => (0..random.below(8)).map(|_| random.next() as u8).collect(),
            2 => Vec::new(),
            _ => {
                // A piece of another one.
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len());
                other[from..(from + random.below(80)).min(other.len())].to_vec()
            }
        };
        bytes.splice(at..at + len, with);
    }
    let source = Source {
        path: build::root().join("tests/manifests/fuzzed.toml"),
        text: String::from_utf8_lossy(&bytes).into_owned(),
    };
    let options = Options { artifacts: Some(build::target().join("artifacts")), skip_files: true };
    match load_text(&Arc::new(source), &options) {
        Ok(checked) => {
            let _ = checked.plan(checked.image_estimate);
            true
        }
        Err(findings) => {
            let _ =
                (render::human(&findings, true), render::json(&findings), render::sarif(&findings));
            false
        }
    }
}

/// A compiled manifest as the boot code finds it.
pub struct Sample {
    sealed: Vec<u64>,
    machine: Machine,
}

/// That of the demo, with a guest that needs no kernel in Linux's place.
fn sample() -> Result<Sample, Failure> {
    let text = "version = 1\n[system]\nname = \"fuzz\"\nmachine = \"machines/qemu-q35.toml\"\n".to_owned()
        + &["a", "b", "c"].iter().enumerate().fold(String::new(), |text, (n, name)| {
            let at = if n == 1 { "{ size = \"8 MiB\", at = \"4 GiB\" }" } else { "\"4 MiB\"" };
            text + &format!("[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"bare\", program = \"artifact:hello\" }}\ncores = [{}, {}]\nmemory = {at}\n", 2 * n, 2 * n + 1)
        });
    let artifacts = build::target().join("artifacts");
    let source = Source { path: build::root().join("fuzz.toml"), text };
    let options = Options { artifacts: Some(artifacts.clone()), skip_files: false };
    let checked = load_text(&Arc::new(source), &options).map_err(|d| render::human(&d, false))?;
    let baked = bulkhead_run::build(&checked, &artifacts)?;
    let at = (baked.map.header - IMAGE_PA) as usize;
    let words = baked.bytes[at..].chunks_exact(8);
    let plan = &baked.plan.machine;
    Ok(Sample {
        sealed: words.map(|w| w.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))).collect(),
        machine: Machine {
            ram: plan.ram.iter().map(|r| (r.start, r.len)).collect(),
            cores: plan.apic_ids.clone(),
            started: Vec::new(),
        },
    })
}

/// The machine that it was built for.
#[derive(Clone)]
struct Machine {
    ram: Vec<(u64, u64)>,
    cores: Vec<u32>,
    started: Vec<u32>,
}

impl BootMachine for Machine {
    fn is_ram(&self, start: u64, len: u64) -> bool {
        let end = u128::from(start) + u128::from(len);
        self.ram.iter().any(|&(s, l)| start >= s && end <= u128::from(s) + u128::from(l))
    }

    fn has_core(&self, id: u32) -> bool {
        self.cores.contains(&id)
    }

    fn this_core(&self) -> u32 {
        0
    }

    fn start_core(&mut self, id: u32, _: CoreStart) {
        self.started.push(id);
    }

    fn wait_for(&mut self, _: u32) -> bool {
        true
    }
}

impl Sample {
    /// Changes some of it, with the checksum made right most times, and checks it as
    /// the boot code does; whether it was accepted.
    fn mutated(&self, random: &mut Random) -> Result<bool, String> {
        // The rest of the sealed part is not looked into: a few words stand for it.
        let described = (size_of::<Header>() + 3 * size_of::<Sandbox>()) / 8;
        let mut words_of = self.sealed[..described + 16].to_vec();
        for _ in 0..random.below(4) {
            let at = random.below(described);
            let old = words_of[at];
            words_of[at] = match random.below(8) {
                0 => old ^ 1 << random.below(64),
                1 => random.next(),
                2 => u64::MAX - random.below(8192) as u64,
                3 => words_of[random.below(described)],
                4 => old.wrapping_add(4096),
                5 => old.wrapping_sub(4096),
                6 => random.next() >> random.below(64) << 12,
                _ => 0,
            };
        }
        let mut header = Header::new_zeroed();
        header.as_mut_bytes().copy_from_slice(&bytes(&words_of)[..size_of::<Header>()]);
        if random.below(8) > 0 {
            header.sealed = words_of.len() as u64 * 8;
            header.checksum = checksum(words(&words_of));
        }
        // As many sandboxes as the boot code would take from there.
        let count = (header.sandboxes as usize).min(3);
        let mut sandboxes = vec![Sandbox::default(); count];
        for (n, sandbox) in sandboxes.iter_mut().enumerate() {
            let at = size_of::<Header>() + n * size_of::<Sandbox>();
            let part = &bytes(&words_of)[at..at + size_of::<Sandbox>()];
            *sandbox = Sandbox::read_from_bytes(part).map_err(|_| "a sandbox's size")?;
        }
        let image = Image { header: &header, sandboxes: &sandboxes, config_ops: &[] };
        if verify(image, &words_of, &self.machine).is_err() {
            return Ok(false);
        }
        let mut machine = self.machine.clone();
        start_cores(image, &mut machine).map_err(|id| format!("core {id} did not arrive"))?;
        keeps_the_rules(&header, &sandboxes, &self.machine)?;
        Ok(true)
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// What an accepted compiled manifest must be, said another way than the check does.
fn keeps_the_rules(
    header: &Header,
    sandboxes: &[Sandbox],
    machine: &Machine,
) -> Result<(), String> {
    let wide = |r: Range| (u128::from(r.start), u128::from(r.start) + u128::from(r.len));
    let mut taken =
        vec![wide(header.image), (TRAMPOLINE_PA.into(), u128::from(TRAMPOLINE_PA) + 4096)];
    let mut cores = Vec::new();
    let mut monitors: Vec<_> = [header.boot].into_iter().filter(|r| r.len > 0).map(wide).collect();
    for s in sandboxes {
        for r in s.memory.iter().filter(|r| r.len > 0) {
            let (start, end) = wide(*r);
            if taken.iter().any(|t| start < t.1 && t.0 < end) {
                return Err(format!("memory at {start:#x} is given twice"));
            }
            if !machine.is_ram(r.start, r.len) {
                return Err(format!("memory at {start:#x} is no RAM"));
            }
            taken.push((start, end));
        }
        let (start, end) = wide(s.monitor);
        let image = wide(header.image);
        if start < image.0 || end > image.1 || monitors.iter().any(|m| start < m.1 && m.0 < end) {
            return Err(format!("the monitor at {start:#x} is not its own"));
        }
        monitors.push((start, end));
        for id in s.apic_ids.iter().take(s.cores as usize) {
            if cores.contains(id) || !machine.cores.contains(id) {
                return Err(format!("core {id} is given twice or is not there"));
            }
            cores.push(*id);
        }
    }
    Ok(())
}
