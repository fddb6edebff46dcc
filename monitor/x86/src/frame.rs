//! The frame of a core: where an entry shell keeps the guest's registers.

use bulkhead_monitor_abi::map::{CORE_CONTROL, CORE_STACK, CORE_STACK_SIZE, CORE_STRIDE, CORES_VA};
use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::from_ref;

/// Guest registers that a handler sees. RBP and R12 to R15 stay in the processor across a handler, as the ABI
/// promises. Only handlers of memory accesses have them saved, because those may need any register.
#[repr(C)]
pub struct Frame<S> {
    pub rcx: Cell<u64>,
    pub rdx: Cell<u64>,
    pub rsi: Cell<u64>,
    pub rdi: Cell<u64>,
    pub r8: Cell<u64>,
    pub r9_to_r11: [Cell<u64>; 3],
    pub rbx: Cell<u64>,
    /// RAX at an entry. VT-x: the guest's. SVM: physical address of this core's VMCB, which has the guest's RAX.
    pub rax: Cell<u64>,
    /// RBP and R12 to R15, for handlers of memory accesses only.
    pub others: [Cell<u64>; 5],
    /// Word of the shell's own.
    pub mark: Cell<u64>,
    shell: PhantomData<S>,
}

impl<S> Frame<S> {
    /// Returns the place of a register by its number in encodings, but for RAX and RSP.
    #[inline(always)]
    pub fn place(&self, number: u8) -> &Cell<u64> {
        // Registers of hot exits, in a match short enough to be inlined.
        match number {
            1 => &self.rcx,
            2 => &self.rdx,
            3 => &self.rbx,
            6 => &self.rsi,
            7 => &self.rdi,
            8 => &self.r8,
            _ => self.uncommon(number),
        }
    }

    #[inline(never)]
    fn uncommon(&self, number: u8) -> &Cell<u64> {
        match number {
            // Registers that few exits name, so that the match above stays short.
            5 => &self.others[0],
            9 => &self.r9_to_r11[0],
            10 => &self.r9_to_r11[1],
            11 => &self.r9_to_r11[2],
            12 => &self.others[1],
            13 => &self.others[2],
            14 => &self.others[3],
            _ => &self.others[4],
        }
    }

    /// Returns the frame of the core that has something on its stack.
    pub fn around<T>(on_stack: &T) -> &'static Self {
        // A stack is aligned to its size: each address on it leads to its ends.
        let base = from_ref(on_stack) as u64 & !(CORE_STACK_SIZE - 1);
        // SAFETY: the frame lies at the end of each core's stack as long as the machine runs. Its fields are cells,
        // which this core alone uses.
        unsafe { &*((base + CORE_STACK_SIZE - FRAME_FROM_TOP) as *const Self) }
    }

    /// Returns the base of this core's block.
    #[inline(always)]
    pub fn block(&self) -> u64 {
        from_ref(self) as u64 & !(CORE_STRIDE - 1)
    }

    /// Returns the address of this core's control block.
    #[inline(always)]
    pub fn control(&self) -> u64 {
        self.block() + CORE_CONTROL
    }

    /// Returns this core's number in the sandbox.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        ((self.block() - CORES_VA) / CORE_STRIDE) as u32
    }
}

const _: () = assert!(size_of::<Frame<()>>() == FRAME_FROM_TOP as usize);

/// Distance of a frame from the end of its core's stack.
pub const FRAME_FROM_TOP: u64 = 128;

const _: () = assert!(CORE_STACK % CORE_STACK_SIZE == 0 && CORE_STRIDE % CORE_STACK_SIZE == 0);
