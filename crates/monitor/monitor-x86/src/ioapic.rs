//! Interrupt lines: entries that the guest writes to its IOAPIC, and their part in the machine's table. All monitors
//! with lines share that (docs/decisions/0016-interrupt-lines.md).

use crate::{X86, xapic};
use bulkhead_ioapic::{
    Aim, Entry, GPA, Lines, MASK, MASKED, Message, SELECT, Shadow, TABLE, WINDOW, Wrong,
};
use bulkhead_monitor::contract::{alone, pace};
use bulkhead_monitor_abi::{PAGE, need};
use core::sync::atomic::AtomicU32;

/// Offset of the register that ends level-triggered interrupts by their vector, in version 0x20 and later. A guest that
/// starts in its sandbox is shown an older one.
const END: u64 = 0x40;

/// The sandbox's part of the IOAPIC.
struct Own<'a, M> {
    m: &'a M,
    lines: &'a Lines,
    shadow: &'a Shadow,
    table: &'a [AtomicU32],
}

/// Finds the sandbox's part, if it has a line.
fn own<M: X86>(m: &M) -> Option<Own<'_, M>> {
    let lines = m.lines()?;
    let table = match lines.table {
        0 => &[],
        table => m.remapping(table).slots(),
    };
    Some(Own { m, lines, shadow: m.line_shadow(), table })
}

/// Tells if an address is one of the sandbox's IOAPIC.
pub fn answers<M: X86>(m: &M, address: u64) -> bool {
    m.x86().lines.len != 0 && address & !(PAGE - 1) == GPA
}

/// Makes an access of `size` bytes to the IOAPIC's page; the value of a read. `None`: the turn has not come, nothing is
/// done.
///
/// # Errors
/// The address to be recorded: of an entry the page's plus the register's index.
pub fn access<M: X86>(
    m: &M,
    address: u64,
    size: u8,
    written: Option<u64>,
) -> Option<Result<u64, u64>> {
    let Some(own) = own(m) else { return Some(Err(address)) };
    let offset = address & (PAGE - 1);
    if let (true, END, 4, Some(vector)) = (M::has(need::RUNNING), offset, size, written) {
        // All lines are this guest's, so all that a vector ends is its own.
        m.store(own.lines.registers + END, 4, vector);
        return Some(Ok(0));
    }
    // A read has the guest's own entry. The machine's may hold the number of a slot in place of the vector.
    let result = match written {
        None => own.lines.read(own.shadow, offset, size).map(u64::from),
        Some(value) => own.write(offset, size, value as u32)?.map(|()| 0),
    };
    Some(result.map_err(|wrong| match wrong {
        Wrong::Access => address,
        _ => GPA + u64::from(own.shadow.select()),
    }))
}

impl<M: X86> Own<'_, M> {
    fn write(&self, offset: u64, size: u8, value: u32) -> Option<Result<(), Wrong>> {
        match self.lines.write(self.shadow, offset, size, value, holds::<M>) {
            Ok(Aim::Nothing) => Some(Ok(())),
            Ok(Aim::Entry { line, half }) => alone(self.m, || self.change(line, half, value))?,
            Err(wrong) => Some(Err(wrong)),
        }
    }

    /// Changes an entry. Cores come one after the other, as for all that decides on an aim, so that halves of two cores
    /// are looked at together. `None` as for [`access`].
    fn change(&self, line: u32, half: usize, value: u32) -> Option<Result<(), Wrong>> {
        let (lines, old) = (self.lines, self.shadow.entry(line));
        let own = &self.m.x86().own;
        let (new, message) = match lines.change(
            own,
            line,
            half,
            old,
            value,
            |n| xapic::one(self.m, n),
            holds::<M>,
        ) {
            Ok(changed) => changed,
            Err(wrong) => return Some(Err(wrong)),
        };
        let channel = lines.is_channel(line);
        let was_masked = Message::of(old).is_none();
        if !channel && (message.is_some() || !was_masked) {
            match lines.hardware(
                own,
                line,
                message,
                self.table,
                M::has(need::RUNNING).then_some(new),
            ) {
                Ok(entry) => self.store(line, entry)?,
                Err(wrong) => return Some(Err(wrong)),
            }
        }
        // After the hardware: a turn that does not come leaves both as they were, and the write comes again.
        self.shadow.set(line, new);
        // A pin of channels' ends, which no hardware has. The upper half counts with the next write of the
        // lower one, which comes last. So no core gets an interrupt but by the old entry or the new one.
        if channel && half == 0 {
            crate::pci::aim(self.m, line);
        }
        Some(Ok(()))
    }

    /// Writes an entry of the machine's table; by the core that has its sandbox's. `None` as for [`access`].
    fn store(&self, line: u32, [low, high]: Entry) -> Option<()> {
        let m = self.m;
        let registers = self.lines.registers;
        let at = TABLE.wrapping_add(2 * line);
        let work = || {
            // The upper half first: the lower one opens the entry, which then aims at the right core already. An entry
            // that closes keeps its upper half, since until then it is open and aims where that says.
            let open = low & MASK == 0;
            for (register, value) in
                [(at.wrapping_add(1), high), (at, low)].into_iter().skip(usize::from(!open))
            {
                m.store(registers + SELECT, 4, u64::from(register));
                late(m);
                m.store(registers + WINDOW, 4, u64::from(value));
            }
        };
        // The index register is one for all monitors. Another's write between index and window would change a foreign
        // entry.
        m.line_lock().with(m.config().sandbox, pace::<M>(), || m.now(), work)
    }
}

/// Finds where the guest's table sends a pin of channels' ends, as an ICR takes it; 0: nowhere.
pub fn sends<M: X86>(m: &M, line: u32) -> u64 {
    let message = own(m).and_then(|own| Message::of(own.shadow.entry(line)));
    message.map_or(0, |m| u64::from(m.core) << 32 | u64::from(m.vector))
}

/// Tells if a rule is enforced.
fn holds<M: X86>(rule: Wrong) -> bool {
    match rule {
        Wrong::Access => M::enforced("line-access"),
        Wrong::Line => M::enforced("line-owner"),
        Wrong::Mode => M::enforced("line-mode"),
        Wrong::Destination => M::enforced("line-core"),
        Wrong::Vector => M::enforced("line-vector"),
        Wrong::LevelVector => M::enforced("line-level-vector"),
        Wrong::Slots => true,
    }
}

/// Keeps the core in the middle of a write, in a monitor that the tests have made late: others then wait for it. A
/// monitor that ships has nothing of it: its rules are all enforced.
#[inline(always)]
fn late<M: X86>(m: &M) {
    if M::enforced("line-prompt") {
        return;
    }
    // Several times the patience of a waiting core.
    let (begin, late) = (m.now(), 5000 * M::MICROSECOND);
    while m.now().wrapping_sub(begin) < late {}
}

/// Gives back the locks of a core that will never go on. Its writes are whole or half, and the next one sets the index
/// anew. Half an entry sends to its own core, or to the one before, of this sandbox.
pub fn leave<M: X86>(m: &M) {
    // Only if this core had the sandbox' turn: else the lock is another core's, which still works.
    if own(m).is_some() && m.shared(0).own.has(m.index()) {
        m.line_lock().leave(m.config().sandbox);
    }
}

/// Masks the sandbox's lines, as after a reset; no guest runs. Another sandbox' core may be late, so that the turn
/// of a line does not come. The line then stays as it is in both tables, and its interrupts stay with this sandbox.
pub fn silence<M: X86>(m: &M) {
    /// Each a [`pace`]: a second or so.
    const TURNS: u32 = 1000;
    let Some(own) = own(m) else { return };
    own.shadow.reset(|line| {
        let open = own.shadow.entry(line) != MASKED && !own.lines.is_channel(line);
        // A masked line is left alone, since each write costs others a turn.
        open && (0..TURNS).all(|_| own.store(line, MASKED).is_none())
    });
}
