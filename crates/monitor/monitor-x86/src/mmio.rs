//! Registers of a page that sandboxes share: those in a range of the own sandbox ([`bulkhead_monitor_abi::mmio`]).

use crate::X86;
use crate::memory::{Access, Gpr, moved};
use bulkhead_monitor::Outcome;
use bulkhead_monitor::record::deny_register;
use bulkhead_monitor_abi::map::MMIO_VA;
use bulkhead_monitor_abi::mmio::{allows, on_page};
use bulkhead_monitor_abi::report::Cause;

/// Answers an access. `None`: the sandbox has no register in that page, or the instruction is no MOV.
pub fn answer<M: X86>(m: &M, access: Access) -> Option<Outcome> {
    let address = access.address;
    if !on_page(m.ranges(), address) {
        return None;
    }
    let found = moved(m, access)?;
    let mut registers = Gpr(m);
    let write = found.written(&registers);
    let allowed = allows(m.ranges(), address, found.size, write.is_some());
    let (value, outcome) = if allowed || !M::enforced("mmio-range") {
        let at = MMIO_VA + address;
        let value = match write {
            Some(value) => {
                m.store(at, found.size, value);
                0
            }
            None => m.load(at, found.size),
        };
        (value, Outcome::resume(Cause::Mmio))
    } else {
        // All ones, as from an absent device.
        (u64::MAX, deny_register(m, address, write, Outcome::resume(Cause::Denied)))
    };
    found.complete(&mut registers, value);
    m.jump(m.state().next_rip(found.length));
    Some(outcome)
}
