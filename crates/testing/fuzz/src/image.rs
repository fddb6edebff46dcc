//! The boot code's check of a compiled manifest: what it accepts keeps the rules.

use crate::{Input, Seen};
use bulkhead_arch::{BootMachine, CoreStart};
use bulkhead_launch::{Image, start_cores, verify, words};
use bulkhead_layout::image::{Range, Sandbox, checksum};
use bulkhead_layout::map::IMAGE_PA;
use bulkhead_layout::x86::{Header, TRAMPOLINE_PA};
use bulkhead_manifest::source::Source;
use bulkhead_manifest::{Options, load_text, render};
use bulkhead_pci_fake::Words;
use std::sync::{Arc, LazyLock};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Makes some changes of one compiled manifest.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    static SAMPLE: LazyLock<Result<Sample, String>> = LazyLock::new(sample);
    let sample = SAMPLE.as_ref().map_err(Clone::clone)?;
    let mut seen = Seen::default();
    seen.add(sample.mutated(&mut Input::new(bytes))?);
    Ok(seen)
}

/// A compiled manifest as the boot code finds it.
struct Sample {
    sealed: Vec<u64>,
    machine: Machine,
}

/// That of the demo, with a guest that needs no kernel in Linux's place.
fn sample() -> Result<Sample, String> {
    let text = "version = 1\n[system]\nname = \"fuzz\"\nmachine = \"machines/qemu-q35.toml\"\n".to_owned()
        + &["a", "b", "c"].iter().enumerate().fold(String::new(), |text, (n, name)| {
            let at = if n == 1 { "{ size = \"8 MiB\", at = \"4 GiB\" }" } else { "\"4 MiB\"" };
            text + &format!("[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"bare\", program = \"artifact:hello\" }}\ncores = [{}, {}]\nmemory = {at}\n", 2 * n, 2 * n + 1)
        });
    let artifacts = crate::artifacts();
    let source = Source::new(crate::root().join("fuzz.toml"), text);
    let options =
        Options { artifacts: Some(artifacts.clone()), skip_files: false, ..Options::default() };
    let checked = load_text(&Arc::new(source), &options).map_err(|d| render::human(&d, false))?;
    let baked = bulkhead_run::build(&checked, &artifacts).map_err(|e| e.to_string())?;
    let at = (baked.map.header - IMAGE_PA) as usize;
    let words = baked.bytes[at..].chunks_exact(8);
    let plan = &baked.plan.machine;
    Ok(Sample {
        sealed: words.map(|w| w.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))).collect(),
        machine: Machine {
            ram: plan.ram.iter().map(|r| (r.start, r.len)).collect(),
            cores: plan.core_ids.clone(),
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

    fn start_core(&mut self, id: u32, _: CoreStart, _: Option<CoreStart>) {
        self.started.push(id);
    }

    fn wait_for(&mut self, _: u32) -> bool {
        true
    }
}

impl Sample {
    /// Changes some of it, with the checksum made right most times, and checks it as
    /// the boot code does; whether it was accepted.
    fn mutated(&self, input: &mut Input) -> Result<bool, String> {
        // The rest of the sealed part is not looked into: a few words stand for it.
        let described = (size_of::<Header>() + 3 * size_of::<Sandbox>()) / 8;
        let mut words_of = self.sealed[..described + 16].to_vec();
        for _ in 0..input.below(4) {
            let at = input.below(described);
            let old = words_of[at];
            words_of[at] = match input.below(8) {
                0 => old ^ 1 << input.below(64),
                1 => input.next(),
                2 => u64::MAX - input.below(8192) as u64,
                3 => words_of[input.below(described)],
                4 => old.wrapping_add(4096),
                5 => old.wrapping_sub(4096),
                6 => input.next() >> input.below(64) << 12,
                _ => 0,
            };
        }
        let mut header = Header::new_zeroed();
        header.as_mut_bytes().copy_from_slice(&bytes(&words_of)[..size_of::<Header>()]);
        if input.below(8) > 0 {
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
        let image = Image {
            at: IMAGE_PA,
            header: &header,
            sandboxes: &sandboxes,
            config_ops: &[],
            launch: &[],
        };
        if verify(&image, &words_of, &self.machine).is_err() {
            return Ok(false);
        }
        let mut machine = self.machine.clone();
        start_cores(&sandboxes, &mut machine).map_err(|id| format!("core {id} did not arrive"))?;
        keeps_the_rules(&header, &sandboxes, &self.machine)?;
        Ok(true)
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Judges an accepted compiled manifest in another way than the check does.
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
        for id in s.core_ids.iter().take(s.cores as usize) {
            if cores.contains(id) || !machine.cores.contains(id) {
                return Err(format!("core {id} is given twice or is not there"));
            }
            cores.push(*id);
        }
    }
    Ok(())
}
