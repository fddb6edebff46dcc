//! A kernel that fails: its sandbox ends with a record, a code and a line on its console. In the image the kernel is
//! changed where a program's first call enters. The change is an invalid instruction, or a jump to a failing assertion,
//! if the linker left any.

use super::driver::{Bench, Job};
use super::spoil::Spoil;
use super::system::{Manifest, artifacts, run};
use crate::build;
use crate::program::Program as _;
use bulkhead_image::Baked;
use std::path::Path;
use std::process::Command;

/// Exit code of a sandbox after its kernel failed.
const FAILED: u32 = 102;
/// The function that calls enter.
const ENTERED: &str = "bulkhead_kernel_image::entry::called";
const UD2: [u8; 2] = [0x0F, 0x0B];
/// `xor esp, esp`, `push rax` and `int 18`.
const NO_STACK: &[u8] = &[0x31, 0xE4];
const PUSH: &[u8] = &[0x50];
const INT_18: &[u8] = &[0xCD, 18];
const JMP: u8 = 0xE9;
const CALL: u8 = 0xE8;
/// MOV of a constant to a register of 64 bits: first bytes, and all of it.
const MOV: ([u8; 2], usize) = ([0x48, 0xC7], 7);

/// Bytes of the function by which it is found in the image.
const FOUND_BY: usize = 48;

/// New bytes for the function's beginning; none if there is no way to make it fail so.
type Change = fn(&Elf) -> Result<Option<Vec<u8>>, String>;

/// Name, change, and what the console says.
const FAILURES: [(&str, Change, &str); 4] = [
    // It has no error code.
    ("exception", Elf::raise, "kernel: exception 6 (0x0) at "),
    ("panic", Elf::panic, "kernel: panicked at "),
    // Each has a stack of its own, so that it is told although RSP is nowhere.
    ("double-fault", |_| Ok(Some([NO_STACK, PUSH].concat())), "kernel: exception 8 (0x0) at "),
    ("machine-check", |_| Ok(Some([NO_STACK, INT_18].concat())), "kernel: exception 18 (0x0) at "),
];

pub fn jobs() -> Vec<Job> {
    let job = |(name, change, line): (_, Change, &'static str)| {
        Job::one(format!("kernel/fails-by-{name}"), 60, move |bench| fails(bench, change, line))
    };
    FAILURES.into_iter().map(job).collect()
}

/// First bytes of a function of the kernel.
pub fn code(function: &str) -> Result<Vec<u8>, String> {
    let kernel = Elf::read(&artifacts().join("kernel"))?;
    let (_, place) = kernel.function(function)?;
    Ok(kernel.bytes[place..place + FOUND_BY].to_vec())
}

fn fails(bench: &Bench, change: Change, line: &str) -> Result<String, String> {
    let hello = build::root().join("tests/kernel/hello.toml");
    let hello = std::fs::read_to_string(&hello).map_err(|e| e.to_string())?;
    let kernel = Elf::read(&artifacts().join("kernel"))?;
    let Some(change) = change(&kernel)? else {
        return Ok("nothing in the kernel can panic".into());
    };
    let code = code(ENTERED)?;
    let seen = run(&Manifest(hello), &bench.dir, |options| {
        options.time = bulkhead_qemu::Time::one_core();
        options.spoil = Some(Box::new(move |bytes: &mut Vec<u8>, baked: &Baked| {
            let places = (0..bytes.len() - FOUND_BY).filter(|at| bytes[*at..].starts_with(&code));
            for place in places.collect::<Vec<_>>() {
                bytes[place..place + change.len()].copy_from_slice(&change);
            }
            Spoil::new(bytes, baked).seal();
        }));
    })?;
    let sandbox = seen.sandbox("rt")?;
    let ended = sandbox.state == "exited" && sandbox.exit_code == Some(FAILED);
    seen.ensure(ended, format!("it is {}, with {:?}", sandbox.state, sandbox.exit_code))?;
    let said = seen.console.lines().find(|said| said.contains(line));
    Ok(said.ok_or_else(|| seen.wrong(format!("nobody said {line:?}")))?.to_owned())
}

/// A linked file, with the addresses of its functions.
struct Elf {
    bytes: Vec<u8>,
    /// Address and name.
    symbols: Vec<(u64, String)>,
}

impl Elf {
    fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let out = Command::new("nm").arg("-C").arg(path).printed()?;
        let symbol = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let at = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((at, words.nth(1)?.to_owned()))
        };
        let symbols = String::from_utf8_lossy(&out.stdout).lines().filter_map(symbol).collect();
        Ok(Self { bytes, symbols })
    }

    fn number(&self, at: usize, len: usize) -> u64 {
        let bytes = self.bytes.get(at..at + len).unwrap_or(&[]);
        bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The parts that are loaded: address, place in the file, and length.
    fn parts(&self) -> Vec<(u64, usize, usize)> {
        let (first, size) = (self.number(32, 8) as usize, self.number(54, 2) as usize);
        let headers = (0..self.number(56, 2) as usize).map(|n| first + n * size);
        let loaded = headers.filter(|at| self.number(*at, 4) == 1);
        let part = |at| {
            (
                self.number(at + 16, 8),
                self.number(at + 8, 8) as usize,
                self.number(at + 32, 8) as usize,
            )
        };
        loaded.map(part).collect()
    }

    /// Where in the file an address lies.
    fn place(&self, address: u64) -> Result<usize, String> {
        let mut parts = self.parts().into_iter();
        let part = parts.find(|(at, _, len)| (*at..at + *len as u64).contains(&address));
        part.map(|(at, place, _)| place + (address - at) as usize).ok_or("not in the file".into())
    }

    /// Address and place of a function.
    fn function(&self, name: &str) -> Result<(u64, usize), String> {
        let symbol = self.symbols.iter().find(|(_, symbol)| symbol == name);
        let (address, _) = symbol.ok_or_else(|| format!("there is no {name}"))?;
        Ok((*address, self.place(*address)?))
    }

    fn raise(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(UD2.to_vec()))
    }

    /// Where an assertion has failed: the address at which its place in the source is passed on.
    fn assertion(&self) -> Option<u64> {
        let panics: Vec<u64> = self
            .symbols
            .iter()
            .filter(|(_, name)| name.starts_with("core::panicking::panic_"))
            .map(|(at, _)| *at)
            .collect();
        let sites = self.parts().into_iter().flat_map(|(at, place, len)| {
            (MOV.1..len.saturating_sub(5)).map(move |n| (at + n as u64, place + n))
        });
        let fails = |(at, place): &(u64, usize)| {
            let to = (at + 5).wrapping_add_signed(i64::from(self.number(place + 1, 4) as i32));
            self.bytes[*place] == CALL && panics.contains(&to)
        };
        // The argument is constant, so the function itself may set it.
        let told = |place: usize| self.bytes[place - MOV.1..place].starts_with(&MOV.0);
        let site = |(at, place)| if told(place) { at - MOV.1 as u64 } else { at };
        sites.into_iter().find(fails).map(site)
    }

    fn panic(&self) -> Result<Option<Vec<u8>>, String> {
        if self.symbols.iter().all(|(_, name)| !name.contains("panicking")) {
            return Ok(None);
        }
        let (address, _) = self.function(ENTERED)?;
        let to = self.assertion().ok_or("no assertion is found in the kernel")?;
        let by = (to as i64 - (address as i64 + 5)) as i32;
        Ok(Some([&[JMP][..], &by.to_le_bytes()].concat()))
    }
}
