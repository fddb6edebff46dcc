//! The interface of attacker, guard and victim: a page of words, each with one writer, and the names of the attacks.
#![cfg_attr(target_os = "none", no_std)]

/// Offsets of the shared page's words, 8 bytes each.
pub mod board {
    /// Which attack is to be run: the guard writes it.
    pub const ATTACK: u64 = 0;
    /// 1 + the number of the attack that came back: the attacker's.
    pub const BACK: u64 = 8;
    /// Its result: the status of its call, or [`super::HARMLESS`].
    pub const STATUS: u64 = 16;
}

/// Offsets of the victim's page's words.
pub mod book {
    /// Releases so far.
    pub const RELEASES: u64 = 0;
    /// Those that were missed.
    pub const MISSED: u64 = 8;
    /// Words of its memory, selectors and bases that were not as they had been.
    pub const CHANGED: u64 = 16;
    /// Longest time from a release to its end, ns.
    pub const LONGEST: u64 = 24;
}

/// An attack that nothing refuses, and that reaches no other program.
pub const HARMLESS: u64 = u64::MAX;

/// Attacks by their aim, in the order in which they are run.
pub const ATTACKS: [&str; COUNT] = names();

macro_rules! attacks {
    ($($name:literal)*) => {
        /// How many there are.
        pub const COUNT: usize = [$($name),*].len();
        const fn names() -> [&'static str; COUNT] {
            [$($name),*]
        }
    };
}

attacks! {
    // Instructions of the kernel's. SGDT is refused where the processor has UMIP; QEMU lets WBINVD pass (to a
    // monitor, which passes over it), a processor raises exception 13.
    "cli" "hlt" "in" "out" "lgdt" "sgdt" "ltr" "mov cr3" "mov dr7" "wrmsr" "rdmsr" "swapgs" "invlpg" "wbinvd" "clts" "xsetbv"
    "vmrun" "vmmcall" "sysenter" "sysret" "int 0x80" "int3" "icebp" "kernel's code selector" "iret to the kernel"
    "divide by 0" "x87" "sse" "fxsave" "mxcsr" "avx" "mmx" "wait" "movnti and xgetbv" "rdpmc" "rdpru" "split lock"
    "interrupts off by popf"
    // Registers that no thread keeps: values left in them reach no other thread.
    "base of FS" "base of GS" "read the base of GS" "selectors"
    // Memory that is not its own, or not so.
    "read the kernel" "write the kernel" "run the kernel" "read at 0" "write own code" "run own stack" "write the clock"
    "write beyond canonical" "jump beyond canonical" "stack overflow" "stack in the kernel" "stack beyond canonical"
    // Ways into the kernel.
    "call, stack in the kernel" "call, backwards" "call, single steps" "call, nested task" "call, alignment" "call, no stack"
    // Calls.
    "no such call" "no capability" "end of the sandbox" "ready of the sandbox" "own priority" "time without control"
    "more rights" "receive where it may call" "own registers" "map over the kernel" "map what is no memory" "more memory than it has"
    // Time.
    "spin" "refused calls" "yield" "signals" "objects" "alarms"
    // Attacks on its own parts.
    "give own time away" "stop itself" "call itself" "call in a circle" "wait for ever" "delete its address space" "delete its capabilities"
}
