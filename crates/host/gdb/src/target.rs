//! The guest as `gdbstub` sees it.

use crate::{Error, Guest, Wire};
use bulkhead_layout::debug::{BROKE, COUNT, STEPPED};
use bulkhead_layout::x86::debug::{
    CR0, CR2, CR3, CR4, EFER, FS_BASE, GS_BASE, RFLAGS, RIP, SELECTORS,
};
use gdbstub::common::Signal;
use gdbstub::conn::{Connection, ConnectionExt};
use gdbstub::outputln;
use gdbstub::stub::SingleThreadStopReason;
use gdbstub::stub::run_blocking::{BlockingEventLoop, Event, WaitForStopReasonError};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::singlethread::{
    SingleThreadBase, SingleThreadResume, SingleThreadResumeOps, SingleThreadSingleStep,
    SingleThreadSingleStepOps,
};
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, SwBreakpoint, SwBreakpointOps,
};
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, MonitorCmdOps};
use gdbstub::target::{Target, TargetError, TargetResult};
use gdbstub_arch::x86::X86_64_SSE;
use gdbstub_arch::x86::reg::X86_64CoreRegs;
use std::io;
use std::marker::PhantomData;
use std::time::Duration;

/// GDB's general registers by their numbers in encodings: RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8 to R15.
const GENERAL: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
/// Between two looks at a guest that runs.
const LOOK: Duration = Duration::from_millis(1);

impl<W: Wire> Target for Guest<W> {
    type Arch = X86_64_SSE;
    type Error = Error;

    fn base_ops(&mut self) -> BaseOps<'_, X86_64_SSE, Error> {
        BaseOps::SingleThread(self)
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }
}

impl<W: Wire> SingleThreadBase for Guest<W> {
    fn read_registers(&mut self, to: &mut X86_64CoreRegs) -> TargetResult<(), Self> {
        let all = *self.registers();
        to.regs = GENERAL.map(|n| all[n]);
        (to.rip, to.eflags) = (all[RIP], all[RFLAGS] as u32);
        let [cs, ss, ds, es, fs, gs] = std::array::from_fn(|n| all[SELECTORS + n] as u32);
        to.segments = gdbstub_arch::x86::reg::X86SegmentRegs { cs, ss, ds, es, fs, gs };
        // As FXSAVE lays them out (APM volume 2, 11.4.4).
        let mut area = [0; 512];
        for (n, bytes) in area.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.fpu(n).map_err(TargetError::Fatal)?.to_le_bytes());
        }
        let half = |at: usize| u32::from(u16::from_le_bytes([area[at], area[at + 1]]));
        (to.fpu.fctrl, to.fpu.fstat, to.fpu.ftag) = (half(0), half(2), half(4) & 0xFF);
        to.fpu.fop = half(6);
        for (n, st) in to.st.iter_mut().enumerate() {
            st.copy_from_slice(&area[32 + n * 16..][..10]);
        }
        for (n, xmm) in to.xmm.iter_mut().enumerate() {
            let bytes = area[160 + n * 16..][..16].try_into().unwrap_or_default();
            *xmm = u128::from_le_bytes(bytes);
        }
        to.mxcsr = half(24) | half(26) << 16;
        Ok(())
    }

    fn write_registers(&mut self, from: &X86_64CoreRegs) -> TargetResult<(), Self> {
        GENERAL.iter().zip(from.regs).for_each(|(n, value)| self.change(*n, value));
        self.change(RIP, from.rip);
        let high = self.registers()[RFLAGS] & !0xFFFF_FFFF;
        self.change(RFLAGS, high | u64::from(from.eflags));
        Ok(())
    }

    fn read_addrs(&mut self, start: u64, bytes: &mut [u8]) -> TargetResult<usize, Self> {
        match self.read(start, bytes).map_err(TargetError::Fatal)? {
            0 if !bytes.is_empty() => Err(TargetError::NonFatal),
            some => Ok(some),
        }
    }

    fn write_addrs(&mut self, start: u64, bytes: &[u8]) -> TargetResult<(), Self> {
        match self.write(start, bytes).map_err(TargetError::Fatal)? {
            true => Ok(()),
            false => Err(TargetError::NonFatal),
        }
    }

    fn support_resume(&mut self) -> Option<SingleThreadResumeOps<'_, Self>> {
        Some(self)
    }
}

impl<W: Wire> SingleThreadResume for Guest<W> {
    fn resume(&mut self, _: Option<Signal>) -> Result<(), Error> {
        Self::resume(self, false)
    }

    fn support_single_step(&mut self) -> Option<SingleThreadSingleStepOps<'_, Self>> {
        Some(self)
    }
}

impl<W: Wire> SingleThreadSingleStep for Guest<W> {
    fn step(&mut self, _: Option<Signal>) -> Result<(), Error> {
        Self::resume(self, true)
    }
}

impl<W: Wire> Breakpoints for Guest<W> {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }
}

impl<W: Wire> SwBreakpoint for Guest<W> {
    fn add_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        self.set_breakpoint(address).map_err(TargetError::Fatal)
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        self.clear_breakpoint(address).map_err(TargetError::Fatal)
    }
}

impl<W: Wire> MonitorCmd for Guest<W> {
    fn handle_monitor_cmd(&mut self, line: &[u8], mut out: ConsoleOutput<'_>) -> Result<(), Error> {
        const SYSTEM: [(&str, usize); 7] = [
            ("cr0", CR0),
            ("cr2", CR2),
            ("cr3", CR3),
            ("cr4", CR4),
            ("efer", EFER),
            ("fs_base", FS_BASE),
            ("gs_base", GS_BASE),
        ];
        let registers: &[u64; COUNT] = self.registers();
        match line {
            b"registers" => {
                SYSTEM.iter().for_each(|(name, n)| outputln!(out, "{name:8} {:#x}", registers[*n]));
            }
            _ => outputln!(out, "monitor registers: control registers, EFER and segments' bases"),
        }
        Ok(())
    }
}

/// Waits for the guest, and for what GDB says meanwhile.
pub struct Loop<W, C>(PhantomData<(W, C)>);

impl<W: Wire, C: ConnectionExt<Error = io::Error>> BlockingEventLoop for Loop<W, C> {
    type Target = Guest<W>;
    type Connection = C;
    type StopReason = SingleThreadStopReason<u64>;

    fn wait_for_stop_reason(
        guest: &mut Guest<W>,
        connection: &mut C,
    ) -> Result<
        Event<SingleThreadStopReason<u64>>,
        WaitForStopReasonError<Error, <C as Connection>::Error>,
    > {
        loop {
            if let Some(why) = guest.has_stopped().map_err(WaitForStopReasonError::Target)? {
                return Ok(Event::TargetStopped(match why {
                    BROKE => SingleThreadStopReason::SwBreak(()),
                    STEPPED => SingleThreadStopReason::DoneStep,
                    _ => SingleThreadStopReason::Signal(Signal::SIGINT),
                }));
            }
            if let Some(code) = guest.ended().map_err(WaitForStopReasonError::Target)? {
                return Ok(Event::TargetStopped(SingleThreadStopReason::Exited(code)));
            }
            if connection.peek().map_err(WaitForStopReasonError::Connection)?.is_some() {
                let byte = connection.read().map_err(WaitForStopReasonError::Connection)?;
                return Ok(Event::IncomingData(byte));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn on_interrupt(guest: &mut Guest<W>) -> Result<Option<SingleThreadStopReason<u64>>, Error> {
        guest.stop()?;
        Ok(Some(SingleThreadStopReason::Signal(Signal::SIGINT)))
    }
}
