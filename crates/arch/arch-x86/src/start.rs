//! The state of a guest's core at its start, as stores into its VMCB. The host
//! bakes them into launch records.

use crate::vmcb::*;

/// Physical addresses that a VMCB refers to.
#[derive(Clone, Copy, Debug)]
pub struct Confinement {
    /// I/O permission map, 12 KiB.
    pub iopm: u64,
    /// MSR permission map, 8 KiB.
    pub msrpm: u64,
    /// Nested root.
    pub n_cr3: u64,
    /// Address space ID, from 1.
    pub asid: u32,
    /// An INIT from another monitor takes the core from its guest, too. No guest can send one.
    pub init: bool,
    /// The guest is a Linux that ran before: see [`running`].
    pub running: bool,
    /// A debugger is let in: its breakpoints leave the guest.
    pub debug: bool,
}

/// Intercepts of a Linux that runs already, beside those of all guests that are left out. It has looked at CPUID, and
/// idles by MWAIT where the processor has it.
const LEFT_RUNNING: u64 =
    intercept::CPUID | intercept::MONITOR | intercept::MWAIT | intercept::MWAIT_ARMED;

/// 64-bit entry of a first core.
#[derive(Clone, Copy, Debug)]
pub struct Entry64 {
    /// First instruction.
    pub rip: u64,
    /// Stack.
    pub rsp: u64,
    /// Page tables.
    pub cr3: u64,
    /// Descriptor table with a code segment at 0x10 and a data segment at 0x18.
    pub gdt: u64,
}

/// Code and data segment for [`Entry64::gdt`], after two null entries.
pub const GDT: [u64; 4] = [0, 0, 0x00AF_9B00_0000_FFFF, 0x00CF_9300_0000_FFFF];

const DATA: u64 = 0x0C93;
const CODE64: u64 = 0x0A9B;
/// PAT after a reset, on both vendors' processors.
pub const PAT_AT_RESET: u64 = 0x0007_0406_0007_0406;

fn segment(
    out: &mut impl FnMut(u16, u64),
    at: u16,
    selector: u64,
    attributes: u64,
    limit: u64,
    base: u64,
) {
    out(at, selector | attributes << 16 | limit << 32);
    out(at + 8, base);
}

/// The part of a control block that confines its guest, whatever the guest's state.
fn confined(c: &Confinement, out: &mut impl FnMut(u16, u64)) {
    let init = if c.init { intercept::INIT } else { 0 };
    let debug = if c.debug { intercept::INT1 } else { 0 };
    let all = INTERCEPT_ALL & !init & !if c.running { LEFT_RUNNING } else { 0 } | debug;
    out(INTERCEPT_LOW, EXCEPTION_BITS | all << 32);
    out(INTERCEPT_HIGH, all >> 32 | INTERCEPT_BROADCAST << 32);
    out(IOPM, c.iopm);
    out(MSRPM, c.msrpm);
    out(ASID, u64::from(c.asid) | TLB_FLUSH_ALL);
    out(NP_ENABLE, 1);
    out(N_CR3, c.n_cr3);
}

/// A core of a Linux that runs already: its confinement, without any state. The code that puts the monitor below it
/// fills the state in, as it finds it.
pub fn running(c: &Confinement, out: &mut impl FnMut(u16, u64)) {
    confined(&Confinement { running: true, ..*c }, out);
}

fn common(c: &Confinement, out: &mut impl FnMut(u16, u64)) {
    confined(c, out);
    out(G_PAT, PAT_AT_RESET);
    out(DR6, 0xFFFF_0FF0);
    out(DR7, 0x400);
    out(RFLAGS, 2);
    segment(out, LDTR, 0, 0x82, 0xFFFF, 0);
    segment(out, TR, 0, 0x8B, 0xFFFF, 0);
}

/// A first core, in long mode.
pub fn long_mode(c: &Confinement, entry: &Entry64, out: &mut impl FnMut(u16, u64)) {
    common(c, out);
    segment(out, CS, 0x10, CODE64, 0xFFFF_FFFF, 0);
    for at in [ES, SS, DS, FS, GS] {
        segment(out, at, 0x18, DATA, 0xFFFF_FFFF, 0);
    }
    segment(out, GDTR, 0, 0, size_of_val(&GDT) as u64 - 1, entry.gdt);
    segment(out, IDTR, 0, 0, 0, 0);
    out(EFER, EFER_SVME | EFER_LME | EFER_LMA | 1 << 11);
    out(CR0, 0x8001_0033);
    out(CR3, entry.cr3);
    // PAE, OSFXSR, OSXMMEXCPT: a 64-bit program may use SSE from its first instruction.
    out(CR4, 0x620);
    out(RIP, entry.rip);
    out(RSP, entry.rsp);
}

/// A core after a SIPI with vector 0: real mode (APM, table 14-1 and 16.7.6). The
/// monitor adds the vector to CS. Caching stays on: CR0.CD and NW are clear.
pub fn real_mode(c: &Confinement, out: &mut impl FnMut(u16, u64)) {
    common(c, out);
    segment(out, CS, 0, 0x9B, 0xFFFF, 0);
    for at in [ES, SS, DS, FS, GS] {
        segment(out, at, 0, 0x93, 0xFFFF, 0);
    }
    segment(out, GDTR, 0, 0, 0xFFFF, 0);
    segment(out, IDTR, 0, 0, 0xFFFF, 0);
    out(EFER, EFER_SVME);
    out(CR0, 0x10);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intercepts of instructions and events that docs/limits.md leaves to guests (APM volume 2, appendix B): word,
    /// by its offset, bit, name.
    const LEFT_TO_GUESTS: [(u16, u32, &str); 3] =
        [(0x00C, 15, "RDPMC"), (0x010, 14, "RDPRU"), (0x014, 5, "bus lock threshold")];

    #[test]
    fn what_limits_say_of_counters_and_bus_locks_is_in_the_control_block() {
        let confinement = Confinement {
            iopm: 0x1000,
            msrpm: 0x4000,
            n_cr3: 0x6000,
            asid: 1,
            init: false,
            running: false,
            debug: false,
        };
        let entry = Entry64 { rip: 0x20_0000, rsp: 0x30_0000, cr3: 0x1000, gdt: 0x2000 };
        let mut blocks = [[0u32; 0x1000 / 4]; 2];
        let write = |words: &mut [u32], at: u16, value: u64| {
            let at = usize::from(at) / 4;
            (words[at], words[at + 1]) = (value as u32, (value >> 32) as u32);
        };
        long_mode(&confinement, &entry, &mut |at, value| write(&mut blocks[0], at, value));
        real_mode(&confinement, &mut |at, value| write(&mut blocks[1], at, value));
        for words in &blocks {
            for (word, bit, name) in LEFT_TO_GUESTS {
                assert_eq!(words[usize::from(word) / 4] >> bit & 1, 0, "{name}");
            }
            // SVM's own instructions, in the word of RDPRU; INVLPGB, in that of bus locks: the places are right.
            assert_eq!(words[0x010 / 4] & 0x7F, 0x7F);
            assert_eq!(words[0x014 / 4] & 1, 1);
        }
    }

    #[test]
    fn a_linux_that_runs_keeps_cpuid_and_mwait_and_its_state() {
        let confinement = Confinement {
            iopm: 0x1000,
            msrpm: 0x4000,
            n_cr3: 0x6000,
            asid: 1,
            init: false,
            running: false,
            debug: false,
        };
        let mut block = [None; 0x1000 / 4];
        running(&confinement, &mut |at, value| block[usize::from(at) / 4] = Some(value));
        let field = |at: u16| block[usize::from(at) / 4];
        let (low, high) = (field(INTERCEPT_LOW).unwrap(), field(INTERCEPT_HIGH).unwrap());
        let all = low >> 32 | high << 32;
        assert_eq!(all & INTERCEPT_ALL, INTERCEPT_ALL & !LEFT_RUNNING);
        assert_ne!(all & intercept::INIT, 0);
        assert_eq!((field(N_CR3), field(NP_ENABLE)), (Some(0x6000), Some(1)));
        assert!([RIP, CR0, CR3, EFER, G_PAT, RFLAGS, CS].iter().all(|at| field(*at).is_none()));
        // A core that is started again stays as free, and has a state.
        let mut started = [None; 0x1000 / 4];
        let again = Confinement { running: true, ..confinement };
        real_mode(&again, &mut |at, value| started[usize::from(at) / 4] = Some(value));
        let kept = block.iter().zip(&started).all(|(own, again)| own.is_none() || own == again);
        assert!(kept && started[usize::from(CR0) / 4] == Some(0x10));
    }
}
