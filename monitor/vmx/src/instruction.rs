//! The VMX instructions, a function each. One that fails where it must not is followed by UD2, so that the monitor's
//! own fault record names the place.

use core::arch::asm;

/// Reads a field of the current VMCS.
#[inline(always)]
pub fn read(field: u16) -> u64 {
    let value;
    // SAFETY: handlers run with a current VMCS, and name fields that each processor with EPT has. Reading changes
    // nothing but flags. [`write`] counts as a change of memory, so that no read moves across it.
    unsafe {
        asm!("vmread {}, {}", out(reg) value, in(reg) u64::from(field), options(pure, readonly, nostack))
    };
    value
}

/// Writes a field of the current VMCS, which each processor with EPT has.
#[inline(always)]
pub fn write(field: u16, value: u64) {
    // SAFETY: as for `read`; the caller's value is the guest's own, or one that was decided on.
    unsafe { asm!("vmwrite {}, {}", in(reg) u64::from(field), in(reg) value, options(nostack)) };
}

/// Writes a field of the current VMCS as a launch record says.
pub fn write_baked(field: u16, value: u64) {
    // SAFETY: as for `write`; the value is the host's.
    unsafe {
        asm!("vmwrite {}, {}", "ja 2f", "ud2", "2:", in(reg) u64::from(field), in(reg) value, options(nostack))
    };
}

/// VMXON with the region at a physical address.
///
/// # Safety
/// VMX is enabled on this core and not on; the region is set aside for it and has the revision.
pub unsafe fn on(region: u64) {
    // SAFETY: by the caller.
    unsafe {
        asm!("vmxon [{}]", "ja 2f", "ud2", "2:", in(reg) &raw const region, options(nostack))
    };
}

/// VMCLEAR: the region at a physical address is nobody's, and its memory is up to date.
///
/// # Safety
/// VMX is on; the region is this core's.
pub unsafe fn clear(region: u64) {
    // SAFETY: by the caller.
    unsafe {
        asm!("vmclear [{}]", "ja 2f", "ud2", "2:", in(reg) &raw const region, options(nostack))
    };
}

/// VMPTRLD: the region at a physical address is current.
///
/// # Safety
/// As for [`clear`]; the region has the revision.
pub unsafe fn load(region: u64) {
    // SAFETY: by the caller.
    unsafe {
        asm!("vmptrld [{}]", "ja 2f", "ud2", "2:", in(reg) &raw const region, options(nostack))
    };
}

/// INVEPT of a kind, for an EPT pointer.
pub fn invept(kind: u64, pointer: u64) {
    let descriptor = [pointer, 0];
    // SAFETY: VMX is on; translations are only forgotten.
    unsafe {
        asm!("invept {}, [{}]", "ja 2f", "ud2", "2:", in(reg) kind, in(reg) &raw const descriptor, options(nostack))
    };
}

/// INVVPID of a kind, for a VPID.
pub fn invvpid(kind: u64, vpid: u64) {
    let descriptor = [vpid, 0];
    // SAFETY: as for `invept`.
    unsafe {
        asm!("invvpid {}, [{}]", "ja 2f", "ud2", "2:", in(reg) kind, in(reg) &raw const descriptor, options(nostack))
    };
}
