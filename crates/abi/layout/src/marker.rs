//! Markers: instructions that mean nothing to a processor and something to the measuring plugin. A marker has a code.
//! It reads no memory, changes no register or flag, and takes no exit, at any privilege level. So it works in a Linux
//! program, a bare guest, a monitor, the boot code, and on a real machine.
//!
//! A program that executes one writes the bytes of [`encode`] (`sdk/include/bulkhead-marker.h` is the C form, checked
//! against this module by a test). A register has the marker's value where the code has one.
//! The architecture's module has the instruction, and [`crate::mark`], which executes it.

#[cfg(target_arch = "x86_64")]
pub use crate::x86::marker::{LENGTH, OPCODE, SIGNATURE, decode, encode};

/// Line of a Linux' console from which on it is under load. An observer counts its exits between this and
/// [`LOAD_ENDS`], without the plugin.
pub const LOAD_BEGINS: &str = "demo: load begins";
/// Line at the load's end.
pub const LOAD_ENDS: &str = "demo: load ends";

/// Bits of a code that say which measurement it belongs to.
pub const ID_MASK: u16 = 0x0FFF;
/// Bits of a code that select the action.
pub const KIND_MASK: u16 = 0xF000;

/// Write what has been gathered to the plugin's file now.
pub const DUMP: u16 = 0x0001;
/// Forget what has been gathered (the counters go on).
pub const RESET: u16 = 0x0002;
/// `EVENT | id`: keep core, counters and value, each time.
pub const EVENT: u16 = 0x1000;
/// `BEGIN | id`: a span starts on this core.
pub const BEGIN: u16 = 0x2000;
/// `END | id`: the span ends; the instructions strictly between the two markers count.
pub const END: u16 = 0x3000;
/// `VALUE | id`: the value joins the statistics of `id`.
pub const VALUE: u16 = 0x4000;
/// `LAP | id`: the instructions since this core's last `LAP | id`, this one included.
pub const LAP: u16 = 0x5000;

/// Declares ids once, with their names for files and tables.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $id:literal $text:literal;)*) => {
        /// Measurements: the low 12 bits of a code.
        pub mod id {
            $($(#[$doc])* pub const $name: u16 = $id;)*
        }
        /// Every id and its name; figures of `make bench` carry the name of their row.
        pub const NAMES: &[(u16, &str)] = &[$(($id, $text)),*];
    };
}

ids! {
    /// First instruction of a kernel, or the loader's jump to it.
    ENTRY = 0x001 "entry";
    /// User space of a Linux runs.
    USER = 0x002 "user";
    /// The program's measurements begin.
    START = 0x003 "start";
    /// The program's measurements are over.
    FINISH = 0x004 "finish";
    /// First VMRUN of a core; the plugin makes this event by itself.
    LAUNCH = 0x005 "launch";
    /// The root file system on the disk is mounted, the network is up.
    ROOT = 0x006 "root";
    /// Self-test: a loop of known length.
    SELFTEST_LOOP = 0x010 "selftest.loop";
    /// Self-test: lateness of a timer in ticks of the clock, other cores idle.
    SELFTEST_IDLE = 0x011 "selftest.timer_idle";
    /// Self-test: lateness of a timer in ticks of the clock, other cores busy.
    SELFTEST_BUSY = 0x012 "selftest.timer_busy";
    /// A system call.
    LINUX_GETPID = 0x020 "linux.getpid";
    /// First touch of a page.
    LINUX_PAGE_TOUCH = 0x021 "linux.page_touch";
    /// A signal for a bad access.
    LINUX_SIGSEGV = 0x022 "linux.sigsegv";
    /// fork and wait.
    LINUX_FORK = 0x023 "linux.fork";
    /// fork, exec and wait.
    LINUX_FORK_EXEC = 0x024 "linux.fork_exec";
    /// A byte through a pipe and back.
    LINUX_PIPE = 0x025 "linux.pipe";
    /// UDP over loopback, 64 bytes.
    LINUX_UDP_64 = 0x026 "linux.udp_64";
    /// UDP over loopback, 1472 bytes.
    LINUX_UDP_1472 = 0x027 "linux.udp_1472";
    /// Computing without system calls.
    LINUX_PRIMES = 0x028 "linux.primes";
    /// Lateness of a timer.
    LINUX_TIMER = 0x029 "linux.timer";
    /// Release jitter of the flight controller.
    FLIGHT_JITTER = 0x030 "flight.jitter";
    /// Computing of one release of the flight controller.
    FLIGHT_RELEASE = 0x031 "flight.release";
    /// A random read of 4 KiB from a disk, past the page cache.
    IO_BLK_RAND4K = 0x038 "io.blk_rand4k";
    /// A sequential read of 1 MiB.
    IO_BLK_SEQ1M = 0x039 "io.blk_seq1m";
    /// A sequential write of 1 MiB.
    IO_BLK_WRITE1M = 0x03A "io.blk_write1m";
    /// A datagram of 1,472 bytes to the host and back.
    IO_NET_UDP = 0x03B "io.net_udp";
    /// 64 KiB to the host by TCP.
    IO_NET_TCP = 0x03C "io.net_tcp";
    /// 64 KiB from the host by TCP.
    IO_NET_TCP_FROM = 0x03D "io.net_tcp_from";
    /// A run of `sysbench fileio`.
    IO_SYSBENCH = 0x03E "io.sysbench";
    /// A run of `iperf3`.
    IO_IPERF3 = 0x03F "io.iperf3";
    /// A null hypercall.
    HYPERCALL = 0x040 "monitor.hypercall";
    /// An IPI inside a sandbox.
    ICR = 0x041 "monitor.icr";
    /// A violation, up to the first instruction of the next incarnation.
    RESTART = 0x042 "monitor.restart";
    /// Boot code.
    BOOT = 0x043 "boot.instructions";
    /// Another sandbox's ring, which takes a channel away.
    DOORBELL = 0x044 "monitor.doorbell";
    /// A request to another sandbox's monitor, up to the guest's next instruction.
    REMOTE_IPI = 0x045 "recover.remote_ipi";
    /// A tick of the watchdog, from the guest's last instruction to its next.
    TICK = 0x04E "recover.tick";
    /// Requests of a number of threads begin or end: `ends << 63 | threads << 32 | requests`.
    IO_REQUESTS = 0x04F "io.requests";
    /// An end of a disk's channel looks for the other's work.
    IO_SPIN = 0x053 "io.spin";
    /// A role comes to a sandbox, from its guest's last instruction without it to its first one with it.
    TAKEOVER = 0x054 "recover.takeover";
    /// A driver opens its network card anew, until it can give it frames.
    RECOVER_DRIVER = 0x055 "recover.driver";
    /// From there until it has joined the server, and can move frames both ways.
    RECOVER_INTERFACE = 0x056 "recover.interface";
    /// A run of `stress-ng`.
    IO_STRESS = 0x050 "io.stress_ng";
    /// A run of `cyclictest`.
    IO_CYCLIC = 0x051 "io.cyclictest";
    /// From a device's interrupt to its handler.
    IO_IRQ = 0x052 "io.irq_to_handler";
    /// A message of 64 bytes is sent through a channel.
    CHANNEL_SEND = 0x058 "channel.send_64";
    /// It is received.
    CHANNEL_RECEIVE = 0x059 "channel.receive_64";
    /// A channel's doorbell is rung.
    CHANNEL_RING = 0x05A "channel.ring";
    /// Its receiver sleeps, and is woken.
    CHANNEL_WAKE = 0x05B "channel.wake";
    /// How many pieces of messages of a size went through in a window of time.
    CHANNEL_EXCHANGE = 0x05C "channel.exchange";
    /// When a receiver looked, ms, and how many messages there were: `ms << 16 | messages`.
    CHANNEL_HEARD = 0x05D "channel.heard";
    /// When an echo was asked for, ms, and its number: `ms << 16 | number`.
    CHANNEL_ASKED = 0x05E "channel.asked";
    /// When its answer came, ms, and its number: `ms << 16 | number`.
    CHANNEL_ECHOED = 0x05F "channel.echoed";
    /// A run of iperf3 begins or ends: `server << 63 | number << 56 | ends << 55 | bytes`, these when the
    /// client's ends.
    CHANNEL_STREAM = 0x057 "channel.stream";
    /// The scheduler: a higher priority wakes and preempts.
    SCHED_WAKE = 0x060 "sched.wake";
    /// The running context blocks; the next one runs.
    SCHED_BLOCK = 0x061 "sched.block";
    /// A refill of a higher priority is due.
    SCHED_REFILL = 0x062 "sched.refill";
    /// A budget is used up; the next one runs.
    SCHED_EXPIRE = 0x063 "sched.expire";
    /// A PIBS context wakes and preempts.
    SCHED_PIBS = 0x064 "sched.pibs_wake";
    /// A PIBS context's work is done.
    SCHED_PIBS_BLOCK = 0x065 "sched.pibs_block";
    /// The running context goes on at another priority.
    SCHED_DONATE = 0x066 "sched.donate";
    /// An alarm of a higher priority is due.
    SCHED_ALARM = 0x067 "sched.alarm";
    /// As `sched.wake`, and the timer has to be searched for.
    SCHED_SEARCH = 0x068 "sched.wake_search";
    /// Kernel: a call to a server without a context, in another address space.
    KERNEL_CALL = 0x070 "kernel.call";
    /// Kernel: its answer, up to the caller.
    KERNEL_REPLY = 0x071 "kernel.reply_recv";
    /// Kernel: a call with a message beyond registers.
    KERNEL_CALL_SLOW = 0x072 "kernel.call_slow";
    /// Kernel: its answer, as long.
    KERNEL_REPLY_SLOW = 0x073 "kernel.reply_recv_slow";
    /// Kernel: a call with a capability.
    KERNEL_CALL_CAP = 0x074 "kernel.call_cap";
    /// Kernel: its answer, with one, too.
    KERNEL_REPLY_CAP = 0x075 "kernel.reply_recv_cap";
    /// Kernel: a call between threads with vector registers.
    KERNEL_CALL_FPU = 0x076 "kernel.call_fpu";
    /// Kernel: its answer.
    KERNEL_REPLY_FPU = 0x077 "kernel.reply_recv_fpu";
    /// Kernel: a signal that wakes no thread.
    KERNEL_SIGNAL = 0x078 "kernel.signal";
    /// Kernel: a wait for a signal that is there.
    KERNEL_WAIT = 0x079 "kernel.wait";
    /// Kernel: a signal, up to the thread of a higher priority that it wakes.
    KERNEL_SCHEDULE = 0x07A "kernel.schedule";
    /// Kernel: a refill is due, up to the thread that has it.
    KERNEL_REPLENISH = 0x07B "kernel.replenish";
    /// Kernel: a budget's end, up to the handler.
    KERNEL_TIMEOUT = 0x07C "kernel.timeout_to_handler";
    /// Kernel: a device's interrupt, up to the thread that handles it.
    KERNEL_IRQ = 0x0A0 "kernel.irq_to_thread";
    /// A timeout handler: from its first instruction until the server, taken back to its last state, waits.
    KERNEL_ROLLBACK = 0x080 "kernel.timeout_rollback";
    /// A timeout handler: until it answers the server, which has an emergency budget.
    KERNEL_EMERGENCY = 0x081 "kernel.timeout_emergency";
    /// A timeout handler: until it answers the server for a client with a larger budget.
    KERNEL_EXTEND = 0x082 "kernel.timeout_extend";
    /// A timeout handler: until the client is stopped and the server waits.
    KERNEL_KILL = 0x083 "kernel.timeout_kill";
    /// Kernel: share that a driver under a storm of interrupts took of its core, in millionths.
    STORM_SHARE = 0x0A1 "kernel.storm_share";
    /// Kernel: a request's way to a thread below a hog and back, at all phases of the hog's budget.
    HOG_PHASES = 0x0A3 "kernel.hog_phases";
    /// Kernel: a request's way to a thread below a hog and back, around the phase where it takes longest.
    HOG_WORST = 0x0A4 "kernel.hog_worst";
    /// Kernel: interrupts a second that it handled.
    STORM_RATE = 0x0A2 "kernel.storm_rate";
    /// A passive server that encrypts: a request with no other thread on the processor, ns.
    AES_ALONE = 0x0A5 "kernel.aes_alone";
    /// Speed that its first client gets, in millionths of the speed alone.
    AES_A = 0x0A6 "kernel.aes_a";
    /// Speed that its second client gets, in millionths of the speed alone.
    AES_B = 0x0A7 "kernel.aes_b";
    /// Three workloads under switches of criticality: one of them in a stage; jobs, missed deadlines, longest time.
    MIXED = 0x0A8 "kernel.mixed";
    /// A fault is planted in a disk's driver; the clock's ticks.
    BLOCK_FAULT = 0x0B0 "block.fault";
    /// Its next life has its disk, and has said nothing to a client yet; ticks.
    BLOCK_DISK = 0x0B1 "block.disk";
    /// A client's request was answered that had waited for long; ticks.
    BLOCK_ANSWER = 0x0B2 "block.answer";
    /// A switch of criticality at user level, of 1 thread.
    KERNEL_CRITICALITY_1 = 0x088 "kernel.criticality_1";
    /// A switch of criticality at user level, of 2 threads.
    KERNEL_CRITICALITY_2 = 0x089 "kernel.criticality_2";
    /// A switch of criticality at user level, of 3 threads.
    KERNEL_CRITICALITY_3 = 0x08A "kernel.criticality_3";
    /// A switch of criticality at user level, of 4 threads.
    KERNEL_CRITICALITY_4 = 0x08B "kernel.criticality_4";
    /// A switch of criticality at user level, of 5 threads.
    KERNEL_CRITICALITY_5 = 0x08C "kernel.criticality_5";
    /// A switch of criticality at user level, of 6 threads.
    KERNEL_CRITICALITY_6 = 0x08D "kernel.criticality_6";
    /// A switch of criticality at user level, of 7 threads.
    KERNEL_CRITICALITY_7 = 0x08E "kernel.criticality_7";
    /// A switch of criticality at user level, of 8 threads.
    KERNEL_CRITICALITY_8 = 0x08F "kernel.criticality_8";
    /// A scheduler that is a program: from the last instruction of one thread to the first one of the next.
    KERNEL_EDF = 0x090 "kernel.edf";
    /// `KERNEL_EMERGENCY` and the answer: until the server goes on.
    KERNEL_EMERGENCY_WHOLE = 0x091 "kernel.timeout_emergency_whole";
    /// `KERNEL_EXTEND` and the answer: until the server goes on.
    KERNEL_EXTEND_WHOLE = 0x092 "kernel.timeout_extend_whole";
    /// Kernel: from where it is entered, with interrupts off, to where it goes back to a program or waits for an
    /// interrupt.
    KERNEL_ENTRY = 0x093 "kernel.entry";
    /// Kernel: a device's interrupt, or a channel's, was taken.
    KERNEL_INTERRUPT = 0x094 "kernel.interrupt";
    /// `KERNEL_ENTRY`, of such an interrupt. Other entries end it, too, where none has begun.
    KERNEL_DEVICE = 0x095 "kernel.interrupt_entry";
    /// A program's snapshot, from its call of its keeper to the answer.
    KERNEL_SNAPSHOT = 0x096 "kernel.snapshot_64k";
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::{format, string::String};

    #[test]
    fn markers_decode_to_what_was_encoded() {
        for code in [DUMP, RESET, BEGIN | id::HYPERCALL, u16::MAX] {
            assert_eq!(decode(&encode(code)), Some(code));
        }
        assert_eq!(decode(&[0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0]), None);
        assert_eq!(decode(&[0x90]), None);
    }

    #[test]
    fn ids_are_unique() {
        for (n, (id, name)) in NAMES.iter().enumerate() {
            assert_eq!(id & KIND_MASK, 0, "{name}");
            assert!(NAMES[..n].iter().all(|(other, text)| other != id && text != name));
        }
    }

    /// Returns the C header, as it must be.
    fn header() -> String {
        let mut text = String::from(
            "/* Markers for the measuring plugin: see crates/abi/layout/src/marker.rs, from which a\
             \n * test derives this file (BLESS=1 cargo test -p bulkhead-layout writes it anew).\
             \n * SPDX-License-Identifier: Apache-2.0 OR MIT */\
             \n#ifndef BULKHEAD_MARKER_H\n#define BULKHEAD_MARKER_H\n\n",
        );
        for (name, kind) in [
            ("DUMP", DUMP),
            ("RESET", RESET),
            ("EVENT", EVENT),
            ("BEGIN", BEGIN),
            ("END", END),
            ("VALUE", VALUE),
            ("LAP", LAP),
        ] {
            text += &format!("#define BULKHEAD_MARK_{name} 0x{kind:04x}\n");
        }
        text += "\n";
        for (id, name) in NAMES {
            let name = name.replace('.', "_").to_uppercase();
            text += &format!("#define BULKHEAD_ID_{name} 0x{id:03x}\n");
        }
        let [a, b, c, d] = OPCODE;
        text += &format!(
            "\n/* A marker; CODE is a constant, e.g. BULKHEAD_MARK_BEGIN | BULKHEAD_ID_LINUX_GETPID. */\n#define BULKHEAD_MARK(CODE) \\\n    __asm__ volatile(\".byte 0x{a:02x},0x{b:02x},0x{c:02x},0x{d:02x}\\n\\t.word %c0,0x{SIGNATURE:04x}\" : : \"i\"(CODE) : \"memory\")\n\n/* A marker with a 64-bit value. */\n#define BULKHEAD_MARK_WITH(CODE, V) \\\n    __asm__ volatile(\".byte 0x{a:02x},0x{b:02x},0x{c:02x},0x{d:02x}\\n\\t.word %c0,0x{SIGNATURE:04x}\" : : \"i\"(CODE), \"a\"((unsigned long)(V)) : \"memory\")\n\n#endif\n"
        );
        text
    }

    #[test]
    fn the_c_header_says_the_same() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../sdk/include/bulkhead-marker.h");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, header()).expect("header is writable");
        }
        let found = std::fs::read_to_string(path).expect("header exists");
        assert_eq!(found, header());
    }
}
