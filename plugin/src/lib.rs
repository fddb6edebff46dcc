//! QEMU plugin that counts executed instructions, exactly and for each core,
//! and writes the counts down at markers ([`bulkhead_layout::marker`]).
//!
//! An instruction counts when it starts: one that faults counts again when it is repeated, and each round of a `REP`
//! counts. QEMU's virtual time (`-icount`) counts so, too. Ranges of physical memory (a monitor's text) have counters
//! of their own, so that instructions of monitors and of guests are told apart. VMRUN instructions are counted as
//! entries.
//!
//! Arguments:
//!
//! * `out=FILE`: JSON lines, written at each [`bulkhead_layout::marker::DUMP`], and then also to `FILE.0`, `FILE.1` and
//!   so on; without such a marker, when QEMU ends;
//! * `ram=FILE`: the file that backs the machine's RAM;
//! * `split=BYTES`: RAM below 4 GiB;
//! * `range=NAME:START-END`, repeated: physical addresses;
//! * `watch=ID@ADDRESS`, repeated: an event each time the instruction at this physical address runs;
//! * `words=ADDRESS:COUNT`, repeated: 64-bit words of RAM that every event carries as they are then;
//! * `clocks=TSC_KHZ:TIMER_HZ`: see `shell::tell_clocks`; for baselines.
//!
//! With `cover=START-END@NEWS:FILE`, repeated, it counts nothing, and cores may run in parallel. It notes which
//! instructions at these physical addresses QEMU has translated: QEMU does so before they first run. The file holds a
//! byte for each byte of the text, 1 if it was. The 64-bit word of RAM at NEWS grows by 1 with each new instruction. So
//! a guest can tell which of its operations reached it. A block is translated whole, so instructions behind one that
//! faults count, too: monitors don't fault.
//!
//! With `control=SOCKET` it counts for stops only. It connects to the socket and stops the machine at instructions that
//! the other end names. `control` has the reasons, `strike` the commands, `overlay` what is done to devices. After
//! `at NUMBER CORE ADDRESS CR3` the machine stands until `go`.
//!
//! Lines, by `kind`:
//!
//! * `vcpu`: the counters at the time of writing;
//! * `event`;
//! * `span`: instructions strictly between `BEGIN` and `END` on one core; `privileged` and `vmruns` are sums over all
//!   spans;
//! * `lap`, `value`;
//! * `exits`: instructions in named ranges between two VMRUNs of a core;
//! * `end`.

pub mod batch;
#[cfg(not(test))]
mod control;
pub mod cores;
pub mod gather;
pub mod options;
#[cfg(not(test))]
mod overlay;
// QEMU's functions exist in QEMU only, so unit tests are linked without them.
#[cfg(not(test))]
mod shell;
pub mod stats;
pub mod strike;
