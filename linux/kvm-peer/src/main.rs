//! `kvm-peer BZIMAGE INITRD MIB CMDLINE...` boots a Linux under KVM, with KVM's own interrupt controllers and timers
//! and one serial port, and nothing else. It is the peer that sandboxes are compared with: one kernel and one set of
//! programs, on Debian's own hypervisor.
//!
//! It loads KVM's modules from `/lib/modules` if `/dev/kvm` is not there. The
//! guest ends by a reboot through a triple fault (`reboot=t`), as there is no
//! ACPI.
//!
//! Devices are modelled as little as Linux needs: see [`serial`]; an absent port
//! reads all ones.

mod acpi;
mod boot;
mod memory;

mod serial;

use kvm_bindings::{
    KVM_MAX_CPUID_ENTRIES, KVM_PIT_SPEAKER_DUMMY, kvm_pit_config, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuExit, VmFd};
use memory::Memory;
use serial::Serial;
use std::process::{Command, ExitCode};

/// Why the guest could not be run.
type Failure = Box<dyn std::error::Error>;

/// KVM's modules for AMD in the order of their needs.
const MODULES: [&str; 4] = ["irqbypass", "ccp", "kvm", "kvm-amd"];

/// CPUID leaf 1, ECX.
const HYPERVISOR: u32 = 1 << 31;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => {
            println!("kvm-peer: the guest ended");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("kvm-peer: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), Failure> {
    let [kernel, initrd, mib, cmdline @ ..] = args else {
        return Err("usage: kvm-peer BZIMAGE INITRD MIB CMDLINE...".into());
    };
    load_modules()?;
    let memory = Memory::new(mib.parse::<usize>()? << 20)?;
    let guest = boot::Guest {
        kernel: &std::fs::read(kernel)?,
        initrd: &std::fs::read(initrd)?,
        cmdline: &cmdline.join(" "),
    };
    let entry = boot::load(&memory, &guest)?;

    let kvm = Kvm::new()?;
    let vm = kvm.create_vm()?;
    vm.set_tss_address(0xFFFB_D000)?;
    vm.create_irq_chip()?;
    // With the gate in port 0x61, against which Linux measures the TSC.
    vm.create_pit2(kvm_pit_config { flags: KVM_PIT_SPEAKER_DUMMY, ..kvm_pit_config::default() })?;
    let region = kvm_userspace_memory_region {
        memory_size: memory.len() as u64,
        userspace_addr: memory.address(),
        ..kvm_userspace_memory_region::default()
    };
    // SAFETY: the memory outlives the machine, and this process only touches it
    // through raw pointers.
    unsafe { vm.set_user_memory_region(region) }?;
    let mut core = vm.create_vcpu(0)?;
    let mut features = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
    for leaf in features.as_mut_slice() {
        if leaf.function == 1 {
            // KVM leaves it to us to say that there is a hypervisor.
            leaf.ecx |= HYPERVISOR;
        }
    }
    core.set_cpuid2(&features)?;
    let mut special = core.get_sregs()?;
    boot::special_registers(&mut special);
    core.set_sregs(&special)?;
    core.set_regs(&boot::registers(entry))?;
    attend(&vm, &mut core)
}

fn load_modules() -> Result<(), Failure> {
    if std::path::Path::new("/dev/kvm").exists() {
        return Ok(());
    }
    for module in MODULES {
        let file = format!("/lib/modules/{module}.ko");
        let status = Command::new("/bin/insmod").arg(&file).status()?;
        if !status.success() {
            return Err(format!("insmod {file}: {status}").into());
        }
    }
    Ok(())
}

/// Runs the core until the guest ends.
fn attend(vm: &VmFd, core: &mut kvm_ioctls::VcpuFd) -> Result<(), Failure> {
    let mut serial = Serial::default();
    loop {
        match core.run() {
            Ok(VcpuExit::IoOut(port, data)) => {
                for byte in data {
                    serial.write(port, *byte);
                }
            }
            Ok(VcpuExit::IoIn(port, data)) => data.fill(serial.read(port)),
            Ok(VcpuExit::MmioRead(_, data)) => data.fill(0xFF),
            Ok(VcpuExit::MmioWrite(..)) => {}
            Ok(VcpuExit::Shutdown) => return Ok(()),
            Ok(other) => return Err(format!("the guest stopped: {other:?}").into()),
            Err(why) if why.errno() == nix::errno::Errno::EINTR as i32 => {}
            Err(why) => return Err(why.into()),
        }
        if serial.take_interrupt() {
            // An edge on the legacy line of the first serial port.
            vm.set_irq_line(4, true)?;
            vm.set_irq_line(4, false)?;
        }
    }
}
