//! Commands that a stopped machine gets over the control socket. The injector of faults sends them, a line each.

/// Registers of a core that a fault strikes, in QEMU's order: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
pub const REGISTERS: usize = 16;

/// Where the machine stops next: at the first instruction that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Number of the instruction at the earliest, counted over all cores from the machine's start.
    pub at: u64,
    /// The core; `None`: any.
    pub core: Option<u32>,
    /// Physical addresses `[start, end)` of the instruction.
    pub text: (u64, u64),
    /// From this number on any instruction fits.
    pub latest: u64,
    /// Privilege level; `None`: any.
    pub ring: Option<u8>,
    /// Instructions that fit and are let go by.
    pub skip: u64,
}

impl Stop {
    /// Tells if the machine stops at an instruction. `ring` is asked where all else fits.
    #[must_use]
    pub fn fits(&mut self, number: u64, core: u32, pa: u64, ring: impl FnOnce() -> u8) -> bool {
        let own =
            self.core.is_none_or(|own| own == core) && (self.text.0..self.text.1).contains(&pa);
        if number < self.at || number >= self.latest || !own {
            return number >= self.latest.max(self.at);
        }
        let fits = self.ring.is_none_or(|own| own == ring());
        let now = fits && self.skip == 0;
        self.skip -= u64::from(fits && !now);
        now
    }
}

/// Fault in the next arming of a core's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// The core.
    pub core: u32,
    /// Ticks that it is late; `None`: it never fires.
    pub late: Option<u64>,
}

impl Timer {
    /// The value that is written in place of another one. 0 disarms a timer and stays.
    #[must_use]
    pub fn instead_of(&self, register: u32, value: u64) -> u64 {
        match self.late {
            None => 0,
            Some(late) if register == INITIAL_COUNT => (value + late).min(u32::MAX.into()),
            Some(late) => value.saturating_add(late),
        }
    }
}

/// Registers that arm a local timer (SDM volume 3, 11.5.4).
const INITIAL_COUNT: u32 = 0x838;
const DEADLINE: u32 = 0x6E0;

/// Register with the interrupt of the local timer (x2APIC).
pub const LVT_TIMER: u32 = 0x832;

/// Tells if a register arms a local timer.
#[must_use]
pub const fn arms_timer(register: u32) -> bool {
    register == INITIAL_COUNT || register == DEADLINE
}

/// Wrong answers of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Seed of nonsense; `None`: no answer, which reads as all ones.
    pub seed: Option<u64>,
    /// Reads that are left.
    pub reads: u64,
}

impl Answers {
    /// Next answer; `None`: the device's own.
    pub fn instead(&mut self) -> Option<u64> {
        self.reads = self.reads.checked_sub(1)?;
        let Some(seed) = &mut self.seed else { return Some(u64::MAX) };
        // splitmix64: the last step of it is enough for nonsense.
        *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Some(mixed ^ mixed >> 27)
    }
}

/// Fault in a device: reads of its ports have other answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The core that reads.
    pub core: u32,
    /// First and last port.
    pub ports: (u16, u16),
    /// The answers.
    pub answers: Answers,
}

/// Fault in a device: reads of its memory have other answers, whoever reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Physical address where it begins.
    pub start: u64,
    /// And where it ends.
    pub end: u64,
    /// The answers.
    pub answers: Answers,
}

/// A wrong bit in one of the next writes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Writes before that.
    pub left: u64,
    /// The bit; it counts round in a write that has fewer.
    pub bit: u32,
}

impl Written {
    /// The bits that are wrong in the next write, of so many bytes.
    pub fn wrong(&mut self, size: u32) -> u64 {
        let now = self.left == 0;
        self.left = self.left.wrapping_sub(1);
        // Behind it, writes are left for longer than any run.
        if now { 1 << (self.bit % (8 * size.clamp(1, 8))) } else { 0 }
    }
}

/// Fault in a device that writes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its bus.
    pub bus: u8,
    /// Its device and function on that bus.
    pub function: u8,
    /// First address, as the device sees it, of memory that it writes.
    pub start: u64,
    /// And the end of that.
    pub end: u64,
    /// The write.
    pub written: Written,
}

/// Width in bytes of an `IN`, and its port where the instruction has it.
#[must_use]
pub fn reads_port(text: &[u8]) -> Option<(u32, Option<u16>)> {
    let (wide, text) = match text {
        [0x66, rest @ ..] => (2, rest),
        _ => (4, text),
    };
    match text {
        [0xEC] => Some((1, None)),
        [0xED] => Some((wide, None)),
        [0xE4, port] => Some((1, Some((*port).into()))),
        [0xE5, port] => Some((wide, Some((*port).into()))),
        _ => None,
    }
}

/// WRMSR.
#[must_use]
pub fn writes_register(text: &[u8]) -> bool {
    matches!(text, [0x0F, 0x30])
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The machine goes on.
    Go,
    /// It stops again there.
    Stop(Stop),
    /// Bits of a core's register change.
    Register {
        /// The core.
        core: u32,
        /// Below [`REGISTERS`].
        number: usize,
        /// The bits.
        bits: u64,
    },
    /// See [`Timer`].
    Timer(Timer),
    /// See [`Ports`].
    Ports(Ports),
    /// See [`Memory`].
    Memory(Memory),
    /// See [`Device`].
    Device(Device),
    /// Asks for the pages of text between two physical addresses that were executed.
    Pages(u64, u64),
    /// Asks for the interrupt of a core's timer, as it was last written to its local vector table.
    Vector(u32),
}

impl Command {
    /// Reads a line.
    ///
    /// # Errors
    /// It is no command.
    pub fn parse(line: &str) -> Result<Self, String> {
        let bad = || format!("{line:?} is no command");
        let mut words = line.split_whitespace();
        let name = words.next().ok_or_else(bad)?;
        let numbers: Option<Vec<u64>> = words
            .map(|word| match word.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None if word == "any" => Some(u64::MAX),
                None => word.parse().ok(),
            })
            .collect();
        let given = |n: u64| (n != u64::MAX).then_some(n);
        let core = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let answers = |seed, reads| Answers { seed: given(seed), reads };
        match (name, &numbers.ok_or_else(bad)?[..]) {
            ("go", []) => Ok(Self::Go),
            ("stop", &[at, of, start, end, latest, ring, skip]) => {
                let (core, text, ring) = (given(of).map(core), (start, end), given(ring));
                let ring = ring.map(|ring| u8::try_from(ring).unwrap_or(u8::MAX));
                Ok(Self::Stop(Stop { at, core, text, latest, ring, skip }))
            }
            ("register", &[of, number, bits]) if number < REGISTERS as u64 => {
                Ok(Self::Register { core: core(of), number: number as usize, bits })
            }
            ("timer", &[of, late]) => Ok(Self::Timer(Timer { core: core(of), late: given(late) })),
            ("ports", &[of, first, last, seed, reads]) if first <= last && last <= 0xFFFF => {
                let (ports, answers) = ((first as u16, last as u16), answers(seed, reads));
                Ok(Self::Ports(Ports { core: core(of), ports, answers }))
            }
            ("memory", &[start, end, seed, reads]) if start < end => {
                Ok(Self::Memory(Memory { start, end, answers: answers(seed, reads) }))
            }
            ("device", &[id, start, end, left, bit]) if id <= 0xFFFF && start < end && bit < 64 => {
                let (bus, function) = ((id >> 8) as u8, id as u8);
                let written = Written { left, bit: bit as u32 };
                Ok(Self::Device(Device { bus, function, start, end, written }))
            }
            ("vector", &[of]) => Ok(Self::Vector(core(of))),
            ("pages", &[start, end]) => Ok(Self::Pages(start, end)),
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_and_others_are_refused() {
        let text = (0x1000, 0x2000);
        let stop = Stop { at: 100, core: Some(2), text, latest: 900, ring: Some(3), skip: 7 };
        assert_eq!(Command::parse("stop 100 2 0x1000 0x2000 900 3 7"), Ok(Command::Stop(stop)));
        let any = Stop { core: None, ring: None, ..stop };
        assert_eq!(Command::parse("stop 100 any 0x1000 0x2000 900 any 7"), Ok(Command::Stop(any)));
        let register = Command::Register { core: 1, number: 15, bits: 1 << 63 };
        assert_eq!(Command::parse("register 1 15 0x8000000000000000"), Ok(register));
        let lost = Command::Timer(Timer { core: 1, late: None });
        assert_eq!(Command::parse("timer 1 any"), Ok(lost));
        let answers = Answers { seed: None, reads: 3 };
        let memory = Command::Memory(Memory { start: 0x1000, end: 0x2000, answers });
        assert_eq!(Command::parse("memory 0x1000 0x2000 any 3"), Ok(memory));
        let written = Written { left: 5, bit: 63 };
        let device = Device { bus: 1, function: 0x40, start: 0, end: 4096, written };
        assert_eq!(Command::parse("device 0x140 0 0x1000 5 63"), Ok(Command::Device(device)));
        for bad in [
            "",
            "go 1",
            "stop 1 2 3",
            "register 1 16 1",
            "ports 0 2 1 any 9",
            "stop x 1 1 1",
            "memory 2 1 any 1",
            "device 0x10000 0 1 0 0",
            "device 0 0 1 0 64",
        ] {
            assert!(Command::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_stop_fits_its_core_and_text_from_its_number_on() {
        let text = (0x1000, 0x2000);
        let mut stop = Stop { at: 100, core: Some(2), text, latest: 900, ring: None, skip: 0 };
        let mut fits = |number, core, pa| stop.fits(number, core, pa, || 0);
        assert!(fits(900, 1, 0) && !fits(899, 1, 0));
        assert!(fits(100, 2, 0x1000) && fits(150, 2, 0x1FFF));
        assert!(!fits(99, 2, 0x1000) && !fits(100, 1, 0x1000) && !fits(100, 2, 0x2000));
    }

    #[test]
    fn a_stop_lets_instructions_of_its_ring_go_by() {
        let text = (0, u64::MAX);
        let mut stop = Stop { at: 1, core: None, text, latest: 900, ring: Some(3), skip: 2 };
        let seen = [3, 0, 3, 0, 3].map(|ring| stop.fits(5, 0, 0, || ring));
        assert_eq!(seen, [false, false, false, false, true]);
        assert!(stop.fits(900, 0, 0, || 0));
    }

    #[test]
    fn a_timer_is_lost_or_late() {
        let late = Timer { core: 0, late: Some(10) };
        assert_eq!(late.instead_of(DEADLINE, 5), 15);
        assert_eq!(late.instead_of(INITIAL_COUNT, u32::MAX.into()), u64::from(u32::MAX));
        assert_eq!(Timer { late: None, ..late }.instead_of(DEADLINE, 5), 0);
        assert!(arms_timer(0x838) && arms_timer(0x6E0) && !arms_timer(0x830));
    }

    #[test]
    fn one_bit_of_one_write_is_wrong() {
        let mut written = Written { left: 2, bit: 35 };
        assert_eq!([8, 8, 8, 8].map(|size| written.wrong(size)), [0, 0, 1 << 35, 0]);
        assert_eq!(Written { left: 0, bit: 35 }.wrong(2), 1 << 3);
    }

    #[test]
    fn answers_of_a_device_end() {
        let mut silent = Answers { seed: None, reads: 1 };
        assert_eq!(
            [silent.instead(), silent.instead(), silent.instead()],
            [Some(u64::MAX), None, None]
        );
        let mut wild = Answers { seed: Some(1), reads: 2 };
        assert_ne!(wild.instead(), wild.instead());
        assert_eq!(reads_port(&[0xEC]), Some((1, None)));
        assert_eq!(reads_port(&[0x66, 0xE5, 0x60]), Some((2, Some(0x60))));
        assert_eq!(reads_port(&[0xEE]), None);
        assert!(writes_register(&[0x0F, 0x30]) && !writes_register(&[0x0F, 0x32]));
    }
}
