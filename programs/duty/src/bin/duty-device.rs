//! Drives QEMU's educational device (QEMU, docs/specs/edu.rst) without an end, and checks it: for campaigns of faults
//! (`docs/inject.md`).
//!
//! Patterns go from the memory `buffer` into the device, and back: two copies of 100 ms. Meanwhile, each 5 ms, it looks
//! if the device's registers answer, and moves the word by which a guard sees that it goes on. A device that answers
//! wrongly, copies wrongly or not in time ends the sandbox with exit code 1, 2 or 3. A thread that begins anew waits
//! until the device is idle.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{
    Handler, Memory, Notification, Program, Registers, Sign, now, println, ready, sleep_until,
    wait_until,
};
use bulkhead_scenarios::edu::{
    ACKNOWLEDGE, BUFFER, CARRIED, COMMAND, COUNT, DESTINATION, IDENTITY, KIND, LIVENESS, SOURCE,
    START, STATUS, TELL, TO_RAM,
};
use core::sync::atomic::Ordering;

bulkhead_program::entry!(device);

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// Nanoseconds from a look to the next, and looks that a copy may take.
const LOOK: u64 = 5_000_000;
const LOOKS: u32 = 30;

/// Exit codes.
enum Wrong {
    Answer = 1,
    Copy = 2,
    Time = 3,
}

struct Edu {
    registers: Registers,
    came: Notification,
    handler: Handler,
    page: Memory,
    /// Where the device finds the page.
    physical: u64,
    sign: Option<Sign>,
}

fn device(program: Program) -> u32 {
    let (page, physical) = program.memory_for_device("buffer");
    let edu = Edu {
        registers: program.registers("pci:00:08.0:0"),
        came: program.waits("came"),
        handler: program.interrupt("came"),
        page,
        physical,
        sign: Sign::find(program, program.name()),
    };
    println!("device begins");
    ready();
    match edu.serve() {
        Ok(()) => 0,
        Err(wrong) => {
            let code = wrong as u32;
            println!("device: error {code}");
            code
        }
    }
}

impl Edu {
    fn serve(&self) -> Result<(), Wrong> {
        self.rest()?;
        for round in 1.. {
            self.through(round)?;
            println!("device: right");
        }
        Ok(())
    }

    /// The thread goes on.
    fn kick(&self) {
        if let Some(sign) = self.sign {
            sign.kick();
        }
    }

    /// Waits until no copy is under way: a life of this thread before may have begun one.
    fn rest(&self) -> Result<(), Wrong> {
        for _ in 0..LOOKS {
            self.kick();
            if self.registers.read64(COMMAND) & START == 0 {
                return Ok(());
            }
            let _ = sleep_until(self.came, now() + LOOK);
        }
        Err(Wrong::Time)
    }

    /// Patterns of a round go into the device and back.
    fn through(&self, round: u64) -> Result<(), Wrong> {
        let pattern = |n: usize| (round + n as u64).wrapping_mul(FACTOR);
        let words = self.page.words();
        let len = self.page.len as u64;
        words.iter().enumerate().for_each(|(n, word)| word.store(pattern(n), Ordering::Release));
        self.copy([self.physical, BUFFER, len], 0)?;
        words.iter().for_each(|word| word.store(0, Ordering::Release));
        self.copy([BUFFER, self.physical, len], TO_RAM)?;
        let mut all = words.iter().enumerate();
        match all.all(|(n, word)| word.load(Ordering::Acquire) == pattern(n)) {
            true => Ok(()),
            false => Err(Wrong::Copy),
        }
    }

    /// Lets the device copy; its address of one side, memory's of the other.
    fn copy(&self, [from, to, len]: [u64; 3], direction: u64) -> Result<(), Wrong> {
        self.registers.write64(SOURCE, from);
        self.registers.write64(DESTINATION, to);
        self.registers.write64(COUNT, len);
        self.registers.write64(COMMAND, START | TELL | direction);
        for look in 0..LOOKS {
            self.answers(look)?;
            self.kick();
            let came = wait_until(self.came, now() + LOOK).map_err(|_| Wrong::Time)?;
            if came.is_some() && self.interrupt()? {
                return Ok(());
            }
        }
        Err(Wrong::Time)
    }

    /// Takes an interrupt; tells if a copy has ended. One of a life before has another cause.
    fn interrupt(&self) -> Result<bool, Wrong> {
        let status = self.registers.read32(STATUS);
        self.registers.write32(ACKNOWLEDGE, status);
        self.handler.acknowledge().map_err(|_| Wrong::Time)?;
        match status & !CARRIED {
            0 => Ok(status == CARRIED),
            _ => Err(Wrong::Answer),
        }
    }

    /// Looks if the registers answer.
    fn answers(&self, look: u32) -> Result<(), Wrong> {
        self.registers.write32(LIVENESS, look);
        let alive = self.registers.read32(LIVENESS) == !look;
        match alive && self.registers.read32(IDENTITY) & 0xFF == KIND {
            true => Ok(()),
            false => Err(Wrong::Answer),
        }
    }
}
