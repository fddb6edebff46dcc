//! Instructions by their bytes (AMD64 APM volume 3, appendix A), only as far as
//! counting needs it.

/// VMRUN.
pub const VMRUN: [u8; 3] = [0x0F, 0x01, 0xD8];

/// Groups a block's instructions, given as class and "may end the block early",
/// into batches `(first, length, class)` of which either all instructions
/// start or none. So a batch can be counted in one go, at its first instruction.
pub fn batches(block: impl Iterator<Item = (usize, bool)>) -> Vec<(usize, usize, usize)> {
    let mut batches: Vec<(usize, usize, usize)> = Vec::new();
    let mut closed = true;
    for (n, (class, ends)) in block.enumerate() {
        match batches.last_mut() {
            Some((_, len, same)) if !closed && *same == class => *len += 1,
            _ => batches.push((n, 1, class)),
        }
        closed = ends;
    }
    batches
}

/// True unless the instruction is one of the common ones that cannot fault:
/// work on registers, constants and addresses, direct jumps, long NOPs.
#[must_use]
pub fn ends(text: &[u8]) -> bool {
    let text = match text {
        [0x40..=0x4F | 0x66, rest @ ..] => rest,
        _ => text,
    };
    let register = |modrm: u8| modrm >= 0xC0;
    let harmless = match text {
        [0x0F, 0x1F | 0x80..=0x8F, ..] => true,
        [0x0F, 0x40..=0x4F | 0x90..=0x9F | 0xA3 | 0xAF | 0xB6 | 0xB7 | 0xBE | 0xBF, modrm, ..] => {
            register(*modrm)
        }
        // Arithmetic: register forms, then AL/eAX with a constant.
        [0x00..=0x3F, modrm, ..] if text[0] & 7 < 4 => register(*modrm),
        [0x00..=0x3F, ..] => matches!(text[0] & 7, 4 | 5),
        [0x70..=0x7F | 0x90 | 0x98 | 0x99 | 0xA8 | 0xA9 | 0xB0..=0xBF | 0xE9 | 0xEB, ..] => true,
        [0x63 | 0x80 | 0x81 | 0x83..=0x8B | 0xC0 | 0xC1 | 0xC6 | 0xC7 | 0xD0..=0xD3, modrm, ..] => {
            register(*modrm)
        }
        [0x8D, ..] => true,
        // TEST, NOT, NEG, MUL, but no division; INC, DEC.
        [0xF6 | 0xF7, modrm, ..] => register(*modrm) && modrm >> 3 & 7 < 6,
        [0xFE | 0xFF, modrm, ..] => register(*modrm) && modrm >> 3 & 7 < 2,
        _ => false,
    };
    !harmless
}

/// Instructions with memory accesses that QEMU's helper functions make: far jump with a constant, IRET, segment and
/// task register loads from a register.
#[must_use]
pub fn loads_descriptor(text: &[u8]) -> bool {
    let text = match text {
        [0x66 | 0x48, rest @ ..] => rest,
        _ => text,
    };
    match text {
        [0xEA, ..] | [0xCF] => true,
        [0x8E, modrm] => *modrm >= 0xC0,
        [0x0F, 0x00, modrm] => *modrm >= 0xC0 && matches!(modrm >> 3 & 7, 2 | 3),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_with_what_may_fault_and_holds_one_class() {
        let block = [(0, false), (0, true), (0, false), (1, false), (1, true), (1, true)];
        assert_eq!(batches(block.into_iter()), [(0, 2, 0), (2, 1, 0), (3, 2, 1), (5, 1, 1)]);
    }

    #[test]
    fn register_work_cannot_fault_and_memory_can() {
        for harmless in [
            &[0x48, 0x89, 0xC3][..],   // mov rbx, rax
            &[0x48, 0x83, 0xC0, 1],    // add rax, 1
            &[0x3C, 5],                // cmp al, 5
            &[0x74, 0x10],             // jz
            &[0x0F, 0x85, 0, 0, 0, 0], // jnz
            &[0x48, 0x8D, 0x04, 0x25], // lea
            &[0xFF, 0xC1],             // inc ecx
            &[0x0F, 0x1F, 0x84, 0x00], // nop
        ] {
            assert!(!ends(harmless), "{harmless:x?}");
        }
        for other in [
            &[0x48, 0x89, 0x03][..], // mov [rbx], rax
            &[0x00, 0x00],           // add [rax], al
            &[0xF7, 0xF1],           // div ecx
            &[0xFF, 0xE0],           // jmp rax: may be non-canonical
            &[0xC3],                 // ret
            &[0x06],                 // push es
            &[0x0F, 0x05],           // syscall
            &[0x0F, 0x01, 0xD8],     // vmrun
            &[0xF3, 0x90],           // pause
            &[0x66, 0x66, 0x90],     // several prefixes
        ] {
            assert!(ends(other), "{other:x?}");
        }
    }
}
