//! Jobs that `make test` leaves to `make soak`, each with the reason: another one shows nearly as much in less time.
//! `--filter` finds them in both.

use super::driver::Job;

const KERNEL: &str =
    "the attack is on our program or on its peer: with 6.12 it is made in `make test`";
const TWICE: &str = "linux-io/* drives the same controller, or the same network card, with a load";
const ROWS: &str =
    "a row of `make bench`; exits.linux_load counts the same exits under a load of more kinds";
const BOCHS: &str = "a Linux takes a minute in Bochs; vmx/linux-6.12-cloud boots one, vmx/selftest-2-cores starts cores";
const VTX: &str =
    "vmx/linux-6.12-cloud, vmx-attack, vmx/selftest-2-cores and vmx/command run that code on VT-x";
const RACES: &str = "race-* runs this portable code under SVM; vmx-attack has every other attack";
const VTD: &str = "vtd/linux-two has two Linux with disk and network behind VT-d; the controllers are in linux-io/*";
const KINDS: &str = "records go the same way between two Linux in `make test`; other kinds between Linux and others";
const FILES: &str = "block/files has one combination of file system, read-ahead and device";

const ATTACKS: &str =
    "under/attack-write-ram and under/attack-write-tables are two of these attacks";
const UNDER: &str =
    "under/6.1 and under/xapic-6.1-cloud have other kernels in both modes, and under/rounds 6.12";
const ROUNDS: &str = "under/rounds has 50 of them";

/// Job, reason.
pub const LEFT: [(&str, &str); 97] = [
    ("bench/audit.seconds", "a row of `make bench`: it times the audit that `command/audit` makes"),
    ("bench/exits.linux_forkexec", ROWS),
    ("bench/exits.linux_smp_other", ROWS),
    ("block/faults-ahci", "block/faults-nvme has those kinds, and store/ahci that controller"),
    ("block/faults-soak", "1,000 faults take minutes; block/faults-* has 52 of the same kinds"),
    ("block/files-ahci", FILES),
    ("block/files-loop-0", FILES),
    ("block/files-loop-1", FILES),
    ("block/files-loop-2", FILES),
    ("block/files-loop-3", FILES),
    ("block/files-ram-0", FILES),
    ("block/files-ram-1", FILES),
    ("block/files-ram-2", FILES),
    ("block/files-ram-3", FILES),
    ("block/files-nvme", FILES),
    ("block/files-virtio", FILES),
    ("block/nbd-rogue", "block/ublk-rogue has the same program and the same liar"),
    ("block/restarts-6.1", KERNEL),
    ("block/rogue-6.1", KERNEL),
    ("block/stock-6.1", KERNEL),
    ("block/ublk-killed", "block/ublk-restarts and block/nbd-killed have each half of it"),
    ("channel/linux-linux-mailbox", KINDS),
    ("channel/linux-linux-queue", KINDS),
    ("channel/linux-network-lies-6.1", KERNEL),
    ("channel/run-time-linux-left-open-6.1", KERNEL),
    (
        "channel/run-time-linux-owner-restarts",
        "the other end restarts in `make test`; a model has both",
    ),
    ("channel/run-time-linux-taken-6.1", KERNEL),
    ("channel/virtio-console-6.1", KERNEL),
    ("channel/virtio-lies-6.1", KERNEL),
    ("channel/virtio-lies-driver-6.1", KERNEL),
    ("channel/virtio-sleeps-6.1", KERNEL),
    ("disk/ahci", TWICE),
    ("disk/e1000e", TWICE),
    ("disk/linux-6.1-cloud", "disk/linux-6.1 has more drivers of the same version"),
    ("disk/nvme", TWICE),
    ("linux-io/linux-6.1", "disk/linux-6.1 has the same devices and kernel"),
    ("linux-io/reboot", "linux-io/crash ends lives in the middle of transfers"),
    ("under/6.1-cloud", UNDER),
    ("under/6.12-cloud", UNDER),
    ("under/attack-read-apic", ATTACKS),
    ("under/attack-read-mailbox", ATTACKS),
    ("under/attack-read-monitor", ATTACKS),
    ("under/attack-read-ram", ATTACKS),
    ("under/attack-read-start-up", ATTACKS),
    ("under/attack-read-tables", ATTACKS),
    ("under/attack-write-apic", ATTACKS),
    ("under/attack-write-block-end", ATTACKS),
    ("under/attack-write-mailbox", ATTACKS),
    ("under/attack-write-monitor", ATTACKS),
    ("under/attack-write-start-up", ATTACKS),
    (
        "under/programs",
        "ten rounds under Debian's programs; under/rounds has fifty under loads of ours",
    ),
    ("under/rounds-2000", ROUNDS),
    ("under/xapic-6.12", UNDER),
    ("vmx/autostart-false", VTX),
    ("vmx/control", VTX),
    ("vmx/demo", BOCHS),
    ("vmx/hello", VTX),
    ("vmx/kernel-aes", VTX),
    ("vmx/kernel-c", VTX),
    ("vmx/kernel-edf", VTX),
    ("vmx/kernel-passive", VTX),
    ("vmx/kernel-vcpu", VTX),
    ("vmx/linux-6.1-cloud", BOCHS),
    ("vmx/linux-6.12-cloud-2-cores", BOCHS),
    ("vtd/linux-ahci-e1000e", VTD),
    ("vtd/linux-nvme", VTD),
    ("vtd/probe", "the reader of DMAR has tests on the host; probe/qemu-q35 boots that Linux"),
    ("vmx/selftest", "vmx/selftest-2-cores makes the same checks on each of two cores"),
    ("vmx/selftest-3-restarts", "each life of vmx-attack begins with a restart"),
    ("vmx/kernel-hello", "vmx/command runs the same system"),
    ("vmx/kernel-mixed", VTX),
    ("vmx/kernel-storm", VTX),
    ("vmx/kernel-overrun", VTX),
    ("vmx/flight", VTX),
    ("vmx/autostart-false-stays", VTX),
    ("vmx/nothing-stays", VTX),
    ("vmx/control-2-cores", VTX),
    ("ring/state-refused", "ring/host-refused has an entry that the processor refuses, too"),
    ("channel/virtio-net-6.1", KERNEL),
    ("block/nbd-6.1", "block/nbd is this on 6.12, and 6.1 differs in no call that it makes"),
    ("block/nbd-restarts", "block/ublk-restarts has that side of the channel"),
    ("block/ublk-gone", "block/nbd-gone has that side of the channel"),
    ("guest/two-linux", "linux-io/two and line/two-linux have two Linux with devices"),
    (
        "channel/linux-network-large",
        "channel/linux-network has that network; frames of this size are in the host's tests",
    ),
    (
        "channel/run-time-linux-other-restarts",
        "channel/run-time-linux-owns and -taken have a party that ends; a model has every step",
    ),
    ("channel/virtio-rogue-polled", "channel/virtio-rogue-device makes these attacks by doorbell"),
    (
        "linux-io/two",
        "vtd/linux-two has the same two Linux; linux-io/crash and others load devices behind AMD's IOMMU",
    ),
    ("linux-io/two-cores", "guest/linux-6.1-2-cores has two cores; linux-io/nvme has the devices"),
    ("vmx/kernel-hostile", VTX),
    (
        "linux-io/stopped-under-load",
        "drive/ahci-held and nvme-held-stopped stop a device in mid-transfer, and linux-io/crash ends a Linux under load",
    ),
    ("block/spins-6.1", KERNEL),
    ("gate/restarts-e1000e", "gate/restarts has ten restarts, and gate/e1000e has the card"),
    ("vmx/race", RACES),
    ("vmx/race-of-the-second-core", RACES),
    ("vmx/race-of-three-cores", RACES),
    ("web/monitor", "standby/monitor has that failure, and web/remote those connections"),
    ("web/e1000e", "web/faults has those failures, and gate/e1000e that card"),
];

/// Tells if this is a run of `make soak`.
pub fn soaks() -> bool {
    std::env::var_os("SOAK").is_some()
}

/// Tells if a job is left to `make soak`.
pub fn left(job: &Job) -> bool {
    LEFT.iter().any(|(name, _)| *name == job.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_a_job() {
        let jobs = super::super::jobs();
        let lost: Vec<_> =
            LEFT.iter().filter(|(name, _)| !jobs.iter().any(|j| j.name == *name)).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }
}
