//! The register itself.

use super::Guarantee;
use super::Keeper::{Boot, Monitor, Processor, Tables};

/// The invariants of the design, in its order.
pub const INVARIANTS: [&str; 10] = [
    "Two sandboxes reach a frame only if a channel in the manifest names it",
    "No sandbox reads or writes a monitor, the IOMMU, or a table that confines it",
    "An interrupt arrives only at cores of the sandbox that owns it",
    "In steady state a guest runs without exits, but for a closed list of causes",
    "A fault in a guest leaves every other sandbox's memory, devices and timing as they were",
    "A thread that the analysis calls in time is in time",
    "A value that a guest passes in is a claim: copied once, checked, then used",
    "Every grant is visible in the manifest, and nothing is granted by default",
    "The image confines what the manifest says, and an independent auditor compares the two",
    "A register of the machine without a natural owner has an owner and a protocol",
];

const BAKED: &str = "the host writes it before a guest runs, and no guest reaches it";
const IN_MONITOR: &str = "a guest would have to run code in its monitor first";
const LESS: &str = "a guest gains nothing by it";

macro_rules! register {
    ($($id:literal ($invariant:literal, $keeper:ident) $sentence:literal $($with:ident $value:expr),*;)*) => {
        /// All guarantees, in the order of the page.
        pub const REGISTER: &[Guarantee] =
            &[$(Guarantee::new($id, $invariant, $keeper, $sentence)$(.$with($value))*),*];
    };
}

// An entry: id, number of the invariant, keeper, sentence; then what else is said of it.
register! {
    // Memory.
    "nested-map" (1, Tables) "a guest reaches the memory that the manifest gives it, and nothing else"
        rests_on &["memory-overlap", "memory-outside", "channel-to", "observe-known", "pci-page"];
    "nested-rights" (1, Tables) "a guest reaches its memory with the rights that the manifest gives"
        rests_on &["channel-from", "program-segments"];
    "nested-missing" (9, Tables) "a guest reaches all of the memory that the manifest gives it"
        no_attack LESS;
    "page-sizes" (9, Tables) "a guest's memory is mapped by the largest pages that fit"
        no_attack LESS;
    "encoding" (9, Tables) "an entry of a page table has no bit set that is reserved or needless"
        no_attack BAKED;
    "shared-frames" (1, Tables) "two parties reach a frame only where a channel or `observe` says so"
        rests_on &["memory-overlap", "channel-from", "channel-to", "observe-known"],
        no_attack "attacks on `nested-map` and `dma-map` try the ways to a frame of another";
    "frames" (9, Tables) "every frame of the machine's memory has an owner"
        rests_on &["machine-ram", "machine-reserved"],
        no_attack "a guest cannot add memory to the machine";
    "links" (1, Monitor) "a guest reaches of a link what its monitor has written down"
        no_attack "attacks on `link-right` try the calls that change a link";
    "tables-unmapped" (2, Tables) "no party reaches a table that confines another party";
    "boot-code-unmapped" (2, Tables) "no party reaches a frame that only the boot code used"
        no_attack "attacks on `nested-map` read and run the image, where the boot code lies";

    // Monitors.
    "monitor-map" (5, Tables) "a monitor reaches its own parts, its sandbox's memory and its devices' registers"
        no_attack IN_MONITOR;
    "monitor-rights" (5, Tables) "a monitor reaches its parts with the rights that the memory layout gives"
        no_attack IN_MONITOR;
    "monitor-text" (9, Tables) "a monitor's text is the program that was built"
        no_attack IN_MONITOR;
    "write-xor-execute" (5, Tables) "no frame of a monitor can be both written and executed"
        no_attack IN_MONITOR;
    "host-state" (2, Boot) "behind every guest stands the monitor of its own sandbox"
        no_attack BAKED;
    "core-state" (5, Boot) "every core runs in the sandbox that owns it, and spare cores sleep"
        rests_on &["core-twice", "core-unknown"],
        no_attack BAKED;

    // Processors.
    "control-block" (2, Tables) "a guest's control block confines it";
    "instructions" (2, Tables) "no guest runs an instruction for virtualization, system management or monitoring memory"
        part_of "control-block";
    "cache-instructions" (5, Tables) "a guest's instruction for whole caches has no effect on the machine"
        part_of "control-block";
    "exceptions" (5, Tables) "a guest that raises exceptions without end still takes exits"
        part_of "control-block";
    "shutdown" (5, Tables) "a guest that shuts its processor down is ended, and no other is"
        part_of "control-block",
        rests_on &["health-known", "health-ignore"],
        no_mutant "QEMU leaves the guest at a shutdown, intercepted or not";
    "doorbell" (5, Tables) "a guest that never exits can be stopped by its monitor"
        part_of "control-block";
    "doorbell-window" (5, Monitor) "a doorbell is heard that rings between a monitor's last look and its guest"
        no_attack "no guest chooses the instant; a test rings at each instruction";
    "watchdog" (5, Monitor) "a core that no longer moves its progress word is found, whatever its guest does"
        rests_on &["alive-time", "health-hang", "watchdog-time", "watchdog-timer"],
        no_attack "no access is denied; the tests `watchdog/` stop a core in twelve ways";
    "sweep" (5, Monitor) "memory that nothing may change is as it was built, or its sandbox ends"
        rests_on &["health-corruption", "sweep-time"],
        no_attack "no guest can change it; the tests `sweep/` flip bits from outside";
    "peer" (5, Monitor) "a monitor that has stopped is found by its peer, which does what the manifest allows"
        rests_on &["health-monitor", "peer-core", "peer-time", "peer-twice", "peer-watchdog"],
        no_attack "no guest holds its monitor's ticks off; the tests `peer/` stop monitors from outside";
    "ladder" (5, Monitor) "a failure takes the rung that its ladder stands on, and a rung gives way at its limit"
        rests_on &["alternative-guest", "health-action", "health-ladder", "health-limit"],
        no_attack "no access is denied; the tests `ladder/` fail in four ways, and begin anew between their failures";
    "snapshot-whole" (5, Monitor) "a life begins with a snapshot that was whole, or with none"
        rests_on &["health-warm", "snapshot-guest", "snapshot-size"],
        no_attack "a guest writes no snapshot; the tests `warm/` flip bits of one from outside";
    "role-given" (1, Monitor) "a sandbox reaches a role's memory while it has the role, and no other holder does then"
        rests_on &["health-failover", "role-channel", "role-count", "role-holders", "role-size"],
        no_attack "the test `standby/early` reads it without having the role";
    "role-function" (8, Monitor) "a sandbox sees a role's functions, and stops them, while it has the role"
        rests_on &["role-device", "role-dma"],
        no_attack "the tests `standby/card-early` and `standby/card-write` try without having the role";
    "role-message" (3, Monitor) "a role's function is not told where to send a message"
        no_attack "the test `standby/card-message` tells it";
    "own-state" (5, Processor) "control, debug and extended state of a guest stays on its own core"
        no_mutant "the processor checks these registers by itself";
    "ports" (8, Tables) "a guest reaches the ports of its devices, and no others"
        rests_on &["device-twice", "port-twice", "port-emulated", "device-nobody"];
    "registers" (8, Tables) "a guest reaches the processor's registers that are on the allow-list, and no others";
    "virtualization-switch" (2, Monitor) "a guest does not change the processor's switch for virtualization";
    "local-interrupts" (3, Monitor) "a core's local interrupts are fixed ones, and come to that core";

    // Interrupts between cores.
    "ipi-destination" (3, Monitor) "an interrupt between cores goes to cores of the sender's own sandbox"
        rests_on &["core-twice"];
    "ipi-form" (3, Monitor) "an interrupt between cores has a form that its monitor can check";

    // Interrupt lines.
    "interrupt-lines" (3, Monitor) "a guest programs the lines of its devices, for its own cores"
        rests_on &["irq-twice", "line-forged", "line-level", "line-none"];
    "line-owner" (3, Monitor) "a line is programmed by its owner only, and a line without an owner is masked"
        part_of "interrupt-lines";
    "line-access" (7, Monitor) "an access to the registers of lines has 32 bits"
        part_of "interrupt-lines";
    "line-mode" (3, Monitor) "the interrupt of a line is a fixed one, with the trigger of its wiring"
        part_of "interrupt-lines";
    "line-core" (3, Monitor) "the interrupt of a line goes to a core of its owner, by a physical destination"
        part_of "interrupt-lines";
    "line-vector" (3, Monitor) "the interrupt of a line has a vector from 16 on"
        part_of "interrupt-lines";
    "line-level-vector" (3, Monitor) "a level-triggered line has a vector that no line of another sandbox has"
        part_of "interrupt-lines",
        rests_on &["line-level"];

    // PCI functions.
    "pci-functions" (8, Monitor) "a guest programs the PCI functions that it owns, within what they were given"
        rests_on &["pci-twice", "pci-nobody", "pci-group"];
    "pci-visible" (8, Tables) "a guest sees the functions that it owns and bridges above them, and writes its own only"
        part_of "pci-functions",
        rests_on &["pci-twice", "pci-nobody"];
    "config-form" (7, Monitor) "an access to configuration space lies within one register of 32 bits"
        part_of "pci-functions";
    "config-unnamed" (8, Monitor) "a register of configuration space that the host does not name is read-only"
        part_of "pci-functions";
    "bar-fixed" (1, Tables) "a base address stays where the machine description has it"
        part_of "pci-functions",
        rests_on &["pci-window"];
    "command-bits" (8, Tables) "a guest changes only those command bits that concern its own function"
        part_of "pci-functions";
    "bridge-fixed" (10, Monitor) "a bridge that is shown keeps its buses, and resets nothing"
        part_of "pci-functions";
    "device-quiet" (5, Monitor) "a sandbox begins a new life only when its functions are at rest";

    // Messages.
    "messages" (3, Monitor) "a function's message goes to a core of its sandbox: fixed, by an edge, from vector 16 on"
        rests_on &["pci-source"];
    "message-core" (3, Monitor) "a function's message goes to a core of its sandbox"
        part_of "messages";
    "message-form" (3, Monitor) "a function's message is fixed or of lowest priority, by an edge, to one core"
        part_of "messages";
    "message-vector" (3, Monitor) "a function's message has a vector from 16 on"
        part_of "messages";
    "msix-form" (7, Monitor) "an access to an MSI-X table has 32 or 64 bits"
        part_of "messages";
    "msix-trap" (3, Tables) "the page of an MSI-X table takes aligned accesses, through the monitor only"
        part_of "messages";
    "dma-messages" (3, Tables) "a message that a function forges by DMA is blocked, or remapped as its own are"
        part_of "messages";

    // DMA.
    "dma-map" (1, Tables) "a function reaches the memory of its sandbox, and nothing else"
        rests_on &["pci-dma", "pci-group", "program-dma"];
    "dma-rights" (1, Tables) "a function reaches the memory of its sandbox with the sandbox's rights";
    "dma-missing" (9, Tables) "a function reaches all of the memory of its sandbox"
        no_attack LESS;
    "iommu-control" (2, Boot) "the IOMMU translates, from its own tables, without exceptions"
        no_attack "attacks on `nested-map`, `pci-visible` and `dma-map` try to reach the IOMMU";
    "device-table" (2, Tables) "every function's entry in the IOMMU's table confines it"
        no_attack BAKED;

    // Devices without a natural owner.
    "clock-write" (10, Monitor) "the clock's owner reads date, time and status, and writes nothing";

    // Trapped instructions.
    "decoder-moves" (7, Monitor) "a monitor carries out plain moves at registers that it answers for"
        no_mutant "a monitor decodes no other instruction, so there is nothing to carry out";
    "decoder-direction" (7, Monitor) "a monitor carries out an instruction only in the direction that was trapped"
        part_of "decoder-moves";
    "decoder-ram" (7, Monitor) "a monitor reads instructions and page tables from its sandbox's memory only"
        part_of "decoder-moves";

    // Calls.
    "hypercall-cpl" (7, Monitor) "only a guest's most privileged mode makes hypercalls";
    "hypercall-number" (7, Monitor) "a number that is no hypercall changes nothing";
    "hypercall-length" (7, Monitor) "a call that writes to the console has no more bytes than its registers hold";
    "control-right" (8, Monitor) "a sandbox stops, starts and restarts those that the manifest names"
        rests_on &["right-known"];
    "control-change" (8, Monitor) "a request that changes nothing rings no doorbell"
        part_of "control-right";
    "control-rate" (8, Monitor) "a right is used no more often than the manifest says"
        part_of "control-right",
        rests_on &["right-every"];
    "mmio-range" (8, Monitor) "a guest reaches those shared registers that are in a range of its own"
        rests_on &["shared-mmio-part", "shared-mmio-overlap"],
        no_attack "the test `mmio/ranges` tries registers of others and accesses that are half its own";
    "lock" (8, Monitor) "a sandbox that has locked itself is ended by no other one"
        part_of "control-right";
    "release-last" (8, Monitor) "a Linux that ran before has the machine back only when all other sandboxes have ended"
        no_attack "the test `under/attack` asks for it as such a Linux' kernel";
    "link-right" (8, Monitor) "a sandbox makes channels at run time with those that the manifest names"
        rests_on &["link-known", "link-count", "link-size"];
    "snapshot-range" (7, Monitor) "a snapshot has pages of the guest's own memory, and no others"
        no_attack "the test `warm/attacks` names memory in twelve wrong ways";
    "snapshot-room" (7, Monitor) "a snapshot has no more pages than the manifest gives room for"
        rests_on &["snapshot-size"],
        no_attack "the test `warm/attacks` names more pages, at once and one by one";
    "load-head" (7, Monitor) "a program is loaded only if its head fits the memory that waits for it";
    "load-sum" (7, Monitor) "a program is loaded only if its sum is right";
}
