//! Devices of a Linux that runs: confined while all of its cores have stopped, and given back likewise. They go on
//! meanwhile, and no interrupt is lost. At most one comes twice.
//!
//! The monitor's own configuration and shadows are the source. They are found by the monitor's page tables.

use crate::iommu;
use crate::stop::Stop;
use crate::{apic, core_state};
use bulkhead_cpu_x86::rdtsc;
use bulkhead_handover::image::{ConfigOp, Sandbox};
use bulkhead_handover::x86::Header;
use bulkhead_handover::x86::late::Late;
use bulkhead_ioapic::{Entry, Lines, MASKED, MAX_LINES, Message, SELECT, Shadow, TABLE, WINDOW};
use bulkhead_launch::Op;
use bulkhead_monitor_abi::PAGE;
use bulkhead_monitor_abi::map::{CONFIG_VA, GUEST_VA, LINES_VA, MMIO_VA, SHADOW_VA};
use bulkhead_monitor_abi::monitor::{Ram, Slice};
use bulkhead_monitor_abi::pci::{Function, Register, Remapping, Reset};
use bulkhead_monitor_abi_x86::config::Config;
use bulkhead_monitor_abi_x86::{hpet, icr};
use bulkhead_pci::late::{begin, lead, note, of_msi, open, restore, translate};
use bulkhead_pci::x86::{self, Routes};
use bulkhead_pci::{Denied, Hardware};
use core::ptr::{read_volatile, write_volatile};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

const LACKS: Stop = Stop::Iommu("the image has no place for the Linux' devices");

/// The devices, by the configuration of a monitor: the Linux', or of a sandbox that gets some.
pub struct Devices<'a> {
    header: &'a Header,
    late: &'a Late,
    /// Root of the monitor's page tables.
    root: u64,
    config: &'a Config,
    config_pa: u64,
    shadow: u64,
    lines: u64,
}

impl<'a> Devices<'a> {
    /// Finds them; `None`: the image leaves devices to the Linux.
    ///
    /// # Errors
    /// The monitor's tables lack what it needs for them.
    pub fn new(header: &'a Header, root: &Sandbox, late: &'a Late) -> Result<Option<Self>, Stop> {
        if header.iommu.base == 0 {
            return Ok(None);
        }
        let find = |at| core_state::physical(root.monitor_root, at);
        let config_pa = find(CONFIG_VA).ok_or(LACKS)?;
        // A sandbox without devices has none.
        let [shadow, lines] = [SHADOW_VA, LINES_VA + PAGE].map(|at| find(at).unwrap_or(0));
        // SAFETY: verified: the image has the monitor's tables. The host put the configuration there, in one piece, and
        // nobody writes to it.
        let config = unsafe { &*(config_pa as *const Config) };
        Ok(Some(Self { header, late, root: root.monitor_root, config, config_pa, shadow, lines }))
    }

    fn slice<T>(&self, part: Slice) -> &[T] {
        let at = self.config_pa + u64::from(part.offset);
        // SAFETY: as for the configuration, of which it is a table.
        unsafe { core::slice::from_raw_parts(at as *const T, part.len as usize) }
    }

    /// Tells if the image keeps a guest that begins anew: then it has an argument, as its monitor sees it, too.
    pub fn begins_anew(&self) -> bool {
        self.config.start.argument != 0
    }

    /// Returns the steps that fill the guest's memory when it begins anew.
    pub fn launch(&self) -> &[Op] {
        self.slice(self.config.start.launch)
    }

    /// Returns the memory that the Linux had, the block among it.
    pub fn memory(&self) -> &[Ram] {
        self.slice(self.config.memory)
    }

    /// Tells if a core is the sandbox' own.
    pub fn has_core(&self, id: u32) -> bool {
        icr::contains(&self.config.own, id)
    }

    /// Returns where the image keeps what goes to an address of the guest's.
    pub fn pristine(&self, gpa: u64) -> Option<u64> {
        let to = |op: &&Op| op.kind == Op::COPY && op.dst == GUEST_VA + gpa;
        core_state::physical(self.root, self.launch().iter().find(to)?.src)
    }

    fn functions(&self) -> impl Iterator<Item = &Function> {
        // Channels' ends are no functions of the machine's.
        self.all().filter(|f| f.state == 0)
    }

    fn all(&self) -> impl Iterator<Item = &Function> {
        self.slice::<Function>(self.config.functions).iter()
    }

    /// Returns the place of an entry of a function's remapping table.
    fn slot(&self, function: &Function, slot: usize) -> Option<u64> {
        let Remapping::Table(table) = function.remapping() else { return None };
        Some(core_state::physical(self.root, table)? + slot as u64 * 4)
    }

    fn table(&self) -> Option<&Lines> {
        self.slice::<Lines>(self.config.lines).first()
    }

    /// Only for a monitor with lines.
    fn written(&self) -> &Shadow {
        // SAFETY: the page of the monitor's with the Linux' entries. All of it is atomic.
        unsafe { &*(self.lines as *const Shadow) }
    }

    /// Looks if the machine is the one that is described; changes nothing.
    ///
    /// # Errors
    /// See [`Stop`].
    pub fn check(&self, ops: &[ConfigOp]) -> Result<(), Stop> {
        if self.shadow == 0 || self.lines == 0 {
            return Err(LACKS);
        }
        if self.late.iommus > 1 {
            return Err(Stop::Iommu("there are several, and one is described"));
        }
        if self.late.ioapics > 1 {
            return Err(Stop::Lines("there are several IOAPICs, and one is described"));
        }
        if iommu::is_on(&self.header.iommu) {
            return Err(Stop::Iommu("this Linux uses it: boot it with amd_iommu=off"));
        }
        for op in ops.iter().filter(|op| op.kind == ConfigOp::EXPECT) {
            // SAFETY: a register in the configuration space, by the machine description; reading has no effect.
            let found = unsafe { read_volatile(self.register_of(op) as *const u32) };
            if found != op.value {
                return Err(match op.offset {
                    0 => Stop::Function(op.bdf, op.value, found),
                    offset => Stop::Register(op.bdf, offset),
                });
            }
        }
        self.check_timer()?;
        let count = self.late.function_count as usize;
        let unknown = |bdf: &&u16| !ops.iter().any(|op| op.bdf == **bdf);
        let found = self.late.functions.iter().take(count).find(unknown);
        found.map_or(Ok(()), |bdf| Err(Stop::Foreign(*bdf)))
    }

    /// Silences the functions that the Linux has given away: no DMA, no messages. They are where they are described.
    pub fn silence(&self, ops: &[ConfigOp]) {
        for op in ops.iter().filter(|op| op.kind == ConfigOp::TAKE) {
            // Neither the Linux nor a monitor uses the function now.
            set_word(self.register_of(op), op.value);
        }
    }

    /// Stops the functions, as their monitor does between two lives: a driver of the Linux may have left them in any
    /// state. Those with a function-level reset have had it from the kernel, which slept meanwhile.
    ///
    /// # Errors
    /// One that goes on.
    pub fn stop(&self) -> Result<(), Stop> {
        /// Milliseconds that such a reset is waited for, and nothing else.
        const FUNCTION_LEVEL: u32 = 100;
        let all = self.functions().map(|f| (f, self.slice::<Reset>(f.resets)));
        let slow = |step: &Reset| step.kind == Reset::CONFIG && step.wait >= FUNCTION_LEVEL;
        let all = all.filter(|(_, steps)| !steps.iter().any(slow));
        bulkhead_pci::stop_all(self, all).map_err(|at| {
            Stop::Unit(at & !(PAGE - 1), "a device that goes to another sandbox is not at rest")
        })
    }

    /// Switches on source validation of each port, with what keeps requests on their way to the IOMMU (PCIe 5.0,
    /// 7.7.8). No function can pass for another one then.
    ///
    /// # Errors
    /// A port that lacks it.
    pub fn validate(&self, ops: &[ConfigOp]) -> Result<(), Stop> {
        const ACS: u32 = 0x000D;
        const SOURCE_VALIDATION: u32 = 1;
        const ALL: u32 = 0b1_1111;
        for (op, kept) in ports(ops) {
            let wrong = Stop::Source(op.bdf);
            let Some(kept) = kept else { return Err(wrong) };
            let at = u64::from(op.value) + u64::from(op.offset);
            let (header, register) = (word(at), word(at + 4));
            if header & 0xFFFF != ACS || register & SOURCE_VALIDATION == 0 {
                return Err(wrong);
            }
            // Never 0: the lower half says what it can do, and ignores writes.
            kept.store(register, Relaxed);
            set_word(at + 4, (register & ALL) << 16);
            if word(at + 4) >> 16 & SOURCE_VALIDATION == 0 {
                return Err(wrong);
            }
        }
        Ok(())
    }

    /// Leaves the ports as the Linux had them.
    pub fn trust(&self, ops: &[ConfigOp]) {
        for (op, kept) in ports(ops) {
            let Some(value) = kept.map(|kept| kept.swap(0, Relaxed)).filter(|value| *value != 0)
            else {
                continue;
            };
            set_word(u64::from(op.value) + u64::from(op.offset) + 4, value);
        }
    }

    /// Returns the address of a step's register.
    fn register_of(&self, op: &ConfigOp) -> u64 {
        self.config.ecam + u64::from(op.bdf) * PAGE + u64::from(op.offset)
    }

    /// Looks if a comparator of the HPET sends messages already.
    fn check_timer(&self) -> Result<(), Stop> {
        let base = self.config.hpet;
        let sends = |n: u64| {
            let at = base + hpet::TIMER + n * hpet::STRIDE;
            // SAFETY: a register of the HPET's page, by the machine description; reading has no effect.
            u64::from(unsafe { read_volatile(at as *const u32) }) & hpet::MESSAGES != 0
        };
        match base != 0 && (0..hpet::MOST).any(sends) {
            true => Err(Stop::Unit(base, "it sends messages: boot this Linux with hpet=disable")),
            false => Ok(()),
        }
    }

    /// Confines them.
    ///
    /// # Errors
    /// See [`Stop`]. All is as before then.
    pub fn confine(&self) -> Result<(), Stop> {
        /// IOAPICVER: the number of lines, less one, is in bits 23:16.
        const VERSION: u32 = 1;
        let lines = self.table().map_or(0, |lines| lines.count);
        if (self.register(VERSION) >> 16 & 0xFF) + 1 != lines {
            return Err(Stop::Lines(
                "the IOAPIC has other lines than the machine description says",
            ));
        }
        for function in self.functions() {
            note(self, function).map_err(|at| Stop::Register(function.bdf as u16, at))?;
        }
        self.all().filter(|f| f.state != 0).for_each(|end| begin(self, end));
        self.note_lines();
        let done = self.switch();
        if done.is_err() {
            self.restore();
        }
        done
    }

    fn switch(&self) -> Result<(), Stop> {
        let each = |what: fn(&Self, &Function) -> Result<(), Denied>| {
            self.functions().try_for_each(|function| {
                what(self, function).map_err(|Denied| Stop::Message(function.bdf as u16))
            })
        };
        each(lead)?;
        self.each_line(|line| self.mediated(line).map(drop))?;
        iommu::confine(&self.header.iommu)?;
        each(translate)?;
        self.each_line(|line| {
            self.store_line(line, self.mediated(line)?);
            Ok(())
        })
    }

    /// Gives them back to the Linux as it wants them.
    pub fn restore(&self) {
        let again = |function| {
            let [_, _, slot] = x86::message(self, function, of_msi(self, function)?).ok()?;
            self.remap(function, slot as usize)
        };
        self.functions().for_each(|function| restore(self, function));
        iommu::release(&self.header.iommu, self.late.zeros);
        for function in self.functions() {
            open(self, function);
            if let Some(entry) = again(function) {
                interrupt(entry >> 8 & 0xFF, entry >> 16 & 0xFF);
            }
        }
        let _ = self.each_line(|line| {
            self.store_line(line, self.written().entry(line));
            Ok(())
        });
    }

    fn each_line(&self, mut what: impl FnMut(u32) -> Result<(), Stop>) -> Result<(), Stop> {
        let count = self.table().map_or(0, |lines| lines.count.min(MAX_LINES as u32));
        (0..count).try_for_each(&mut what)
    }

    /// Notes the entries of the interrupt lines.
    fn note_lines(&self) {
        let _ = self.each_line(|line| {
            let entry = [0, 1].map(|half| self.register(TABLE + 2 * line + half));
            let entry = [0, 1].iter().fold(entry, |e, &half| Lines::written(half, e, e[half]));
            self.written().set(line, entry);
            Ok(())
        });
    }

    /// Computes the entry that a monitor would write for the Linux' own one.
    fn mediated(&self, line: u32) -> Result<Entry, Stop> {
        let Some(lines) = self.table().filter(|lines| lines.owns(line)) else {
            // Another sandbox' line: what the Linux had there comes back when it is the Linux' again.
            return Ok(MASKED);
        };
        let (own, entry) = (&self.config.own, self.written().entry(line));
        let named = |names| self.named(names).map(|id| id as u8);
        let changed = lines.change(own, line, 0, entry, entry[0], named, |_| true);
        let entry = changed.and_then(|(new, m)| lines.hardware(own, line, m, &[], Some(new)));
        entry.map_err(|_| Stop::Line(line))
    }

    /// Writes an entry. An edge that comes while it is masked is lost, so such an interrupt is sent once more. The
    /// clock's is not: its driver complains of one that it did not expect.
    fn store_line(&self, line: u32, [low, high]: Entry) {
        const LEVEL: u32 = 1 << 15;
        const CLOCK: u32 = 8;
        let at = TABLE + 2 * line;
        // Delivery status and remote IRR are the hardware's.
        const STATUS: u32 = 1 << 12 | 1 << 14;
        let [now_low, now_high] = [at, at + 1].map(|at| self.register(at));
        if [now_low & !STATUS, now_high] == [low, high] {
            return;
        }
        // It keeps its vector and trigger mode: an interrupt of before may end yet.
        self.set_register(at, now_low | MASKED[0]);
        self.set_register(at + 1, high);
        self.set_register(at, low);
        let named = |names| self.named(names).map(|id| id as u8);
        let message = Message::of([low, high]).map(|message| message.to_one(named));
        if let Some(m) = message.filter(|m| low & LEVEL == 0 && !m.logical && line != CLOCK) {
            interrupt(m.core.into(), m.vector.into());
        }
    }

    /// Returns a register of the IOAPIC's.
    fn register(&self, index: u32) -> u32 {
        let at = self.select(index);
        // SAFETY: the IOAPIC's window, by the machine description. No other core runs.
        unsafe { read_volatile(at as *const u32) }
    }

    fn set_register(&self, index: u32, value: u32) {
        let at = self.select(index);
        // SAFETY: as for `register`; a value that a monitor would write, or that the Linux had there.
        unsafe { write_volatile(at as *mut u32, value) }
    }

    fn select(&self, index: u32) -> u64 {
        let at = self.table().map_or(0, |lines| lines.registers.wrapping_sub(MMIO_VA));
        // SAFETY: the IOAPIC's index. The Linux sets it anew before each access.
        unsafe { write_volatile((at + SELECT) as *mut u32, index) };
        at + WINDOW
    }
}

/// Access control registers of ports, as the Linux had them; 0: not touched.
static PORTS: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// Each port that validates its requesters' IDs, with a place to keep its register.
fn ports(ops: &[ConfigOp]) -> impl Iterator<Item = (&ConfigOp, Option<&'static AtomicU32>)> {
    let all = ops.iter().filter(|op| op.kind == ConfigOp::VALIDATE);
    all.enumerate().map(|(n, op)| (op, PORTS.get(n)))
}

/// Reads a register of the configuration space.
fn word(at: u64) -> u32 {
    let value;
    // SAFETY: in the memory-mapped configuration space, by the verified image; reading has no effect. By EAX, as AMD's
    // processors want it.
    unsafe {
        core::arch::asm!("mov eax, [{}]", in(reg) at, out("eax") value, options(nostack, readonly));
    }
    value
}

/// Writes one. The caller vouches for it: it is no register that anybody uses now.
fn set_word(at: u64, value: u32) {
    // SAFETY: likewise; the host decided on the register.
    unsafe { core::arch::asm!("mov [{}], eax", in(reg) at, in("eax") value, options(nostack)) };
}

/// Sends an interrupt that may have got lost.
fn interrupt(core: u32, vector: u32) {
    const ASSERT: u64 = 1 << 14;
    apic::send(u64::from(core) << 32 | ASSERT | u64::from(vector));
}

impl Hardware for Devices<'_> {
    fn registers(&self, function: &Function) -> &[Register] {
        self.slice(function.registers)
    }

    fn config(&self, function: &Function, offset: u16) -> u32 {
        word(function.config_va.wrapping_sub(MMIO_VA) + u64::from(offset & 0xFFC))
    }

    fn set_config(&self, function: &Function, offset: u16, value: u32) {
        set_word(function.config_va.wrapping_sub(MMIO_VA) + u64::from(offset & 0xFFC), value);
    }

    fn shadow(&self, word: u32) -> u32 {
        // SAFETY: a word of the monitor's shadow: the host has numbered it.
        unsafe { read_volatile((self.shadow + u64::from(word) * 4) as *const u32) }
    }

    fn set_shadow(&self, word: u32, value: u32) {
        // SAFETY: likewise; no monitor of this Linux runs.
        unsafe { write_volatile((self.shadow + u64::from(word) * 4) as *mut u32, value) }
    }

    fn page(&self, address: u64, size: u8) -> u64 {
        // SAFETY: a word of a table of MSI-X, or a register that resets a function, by the machine description. The
        // module has mapped it.
        unsafe {
            match size {
                1 => read_volatile(address as *const u8).into(),
                2 => read_volatile(address as *const u16).into(),
                4 => read_volatile(address as *const u32).into(),
                _ => read_volatile(address as *const u64),
            }
        }
    }

    fn set_page(&self, address: u64, size: u8, value: u64) {
        // SAFETY: likewise.
        unsafe {
            match size {
                1 => write_volatile(address as *mut u8, value as u8),
                2 => write_volatile(address as *mut u16, value as u16),
                4 => write_volatile(address as *mut u32, value as u32),
                _ => write_volatile(address as *mut u64, value),
            }
        }
    }

    fn wait(&self, milliseconds: u32, done: impl Fn() -> bool) -> bool {
        let (begin, ticks) = (rdtsc(), self.late.hz / 1000 * u64::from(milliseconds));
        while !done() {
            if rdtsc() - begin >= ticks {
                return false;
            }
            core::hint::spin_loop();
        }
        true
    }

    fn message(&self, function: &Function, wanted: [u32; 3]) -> Result<[u32; 3], Denied> {
        x86::message(self, function, wanted)
    }

    fn sends(&self, message: [u32; 3]) -> u64 {
        x86::sends(message)
    }

    fn ring(&self, _: u32) {}

    fn line(&self, _: u32) -> u64 {
        0
    }

    fn aim(&self, _: usize, _: u64) {}
}

impl Routes for Devices<'_> {
    fn owns_core(&self, id: u32) -> bool {
        icr::contains(&self.config.own, id)
    }

    fn named(&self, names: u8) -> Option<u32> {
        if !apic::in_page() {
            return None;
        }
        let cores = self.late.cores.iter().zip(&self.late.names).take(self.late.count as usize);
        let mut cores = cores.filter(|(id, own)| *own & names != 0 && self.owns_core(**id));
        let (id, own) = cores.next()?;
        (cores.next().is_none() && names & !own == 0).then_some(*id)
    }

    fn entry(&self, core: u32, vector: u8) -> u32 {
        icr::remapped(&self.config.own, core, vector)
    }

    fn remap(&self, function: &Function, slot: usize) -> Option<u32> {
        let at = self.slot(function, slot)?;
        // SAFETY: an entry of the function's remapping table, a page of the image.
        Some(unsafe { read_volatile(at as *const u32) })
    }

    fn set_remap(&self, function: &Function, slot: usize, entry: u32) -> bool {
        let Some(at) = self.slot(function, slot) else { return false };
        let free = self.remap(function, slot) == Some(0);
        if free {
            // SAFETY: likewise. No monitor writes to it now.
            unsafe { write_volatile(at as *mut u32, entry) };
        }
        free
    }
}
