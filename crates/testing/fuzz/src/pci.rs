//! Owners of PCI functions: any access to the configuration space and to the MSI-X
//! table, resets and restarts between them. The function that is not there watches
//! each write for what must not be.

use crate::{Input, Seen};
use bulkhead_pci_fake::{End, Fake, all, bridge};

/// One owner of one function, of any kind, with or without remapping; or a bridge; or a channel's end.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let kinds = all();
    let which = usize::from(input.byte());
    if which >= 0xF0 {
        return end(which, input);
    }
    let function = match kinds.get(which / 2 % (kinds.len() + 1)) {
        Some(kind) => Fake::new(kind, which % 2 == 0),
        None => Fake::shown(bridge()),
    };
    let mut seen = Seen::default();
    while !input.is_empty() {
        let access = function.imagine(&mut input);
        let done = function.access(access);
        function.wrong().map_err(|why| format!("function {which}, {access:x?}: {why}"))?;
        seen.add(done.is_ok());
    }
    Ok(seen)
}

fn end(which: usize, mut input: Input) -> Result<Seen, String> {
    let end = End::new(which as u32 & 1, which & 2 == 0, which & 4 == 0);
    let mut seen = Seen::default();
    while !input.is_empty() {
        let access = end.imagine(&mut input);
        let done = end.access(access);
        end.wrong().map_err(|why| format!("end {which:#x}, {access:x?}: {why}"))?;
        seen.add(done.is_ok());
    }
    Ok(seen)
}
