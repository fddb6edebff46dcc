//! Portable code names nothing that only x86 has. So a second architecture adds modules and crates beside x86's, and
//! changes no portable file.

use crate::root;
use std::path::Path;

/// Portable folders, each with the words that it may have nevertheless. Manifests, reports and tables have those words
/// in public. Their comments say the meaning on any architecture.
const PORTABLE: &[(&str, &[&str])] = &[
    ("crates/abi/handover/src", &[]),
    ("crates/abi/kernel-abi/src", &[]),
    ("crates/abi/layout/src", &["cpuid", "lvt", "msr", "icr"]),
    ("crates/abi/monitor-abi/src", &["cpuid", "lvt", "msr"]),
    ("crates/arch/arch/src", &[]),
    ("crates/arch/guest/src", &[]),
    ("crates/channel/channel/src", &[]),
    ("crates/channel/channel-memory/src", &[]),
    ("crates/channel/net/src", &[]),
    ("crates/channel/virtio/src", &[]),
    ("crates/driver/disks/src", &[]),
    ("crates/driver/store/src", &[]),
    // The audit's report lists registers under this name.
    ("crates/host/audit/src", &["msrs"]),
    // A denial's address is `rip` in reports, and `explain` takes a `gsi`.
    ("crates/host/explain/src", &["gsi", "msr", "rip"]),
    ("crates/host/image/src", &[]),
    // Keys of machine descriptions, and a kind of denials.
    ("crates/host/manifest/src", &["gsi", "ioapic", "msr"]),
    // Kinds of machines, controllers and units, as a machine description names them.
    ("crates/host/plan/src", &["amd", "intel", "ioapic", "svm", "vmx", "x86"]),
    // Causes of exits, as reports name them.
    ("crates/host/run/src", &["cpuid", "lvt", "msr"]),
    ("crates/kernel/edf/src", &[]),
    ("crates/kernel/kernel/src", &[]),
    ("crates/kernel/quest-vcpu/src", &[]),
    ("crates/kernel/sched/src", &[]),
    ("crates/kernel/trace/src", &[]),
    ("crates/monitor/launch/src", &[]),
    ("crates/monitor/monitor/src", &[]),
    ("crates/monitor/pci/src", &[]),
    ("crates/testing/flight/src", &[]),
    ("crates/testing/kernel-fake/src", &[]),
    ("crates/testing/scenarios/src", &[]),
    ("linux/support/src", &[]),
    ("program/c", &[]),
    ("program/include", &[]),
    ("program/src", &[]),
    ("sdk/c", &[]),
    ("sdk/include", &["icr"]),
    ("sdk/src", &[]),
];

/// Words of x86: registers, instructions, its interrupt controllers, its virtualisation, its vendors and manuals.
const WORDS: &str = "\
    8254 8259 acpi amd amd64 apic apm asid cmos com1 com2 com3 com4 cpuid cr0 cr2 cr3 cr4 cr8 e820 eax ebx ecx \
    edx efer eflags ept epyc exitinfo1 exitinfo2 fxsave gdt gif gsi hsave icr idt idtr intel invd invlpg \
    ioapic iopm iret iretq lapic lvt mfence msr msrpm msrs mxcsr nmi nmis npt q35 rax rbp rbx rcx rdi rdmsr \
    rdtsc rdx rflags rip rsi rsp sdm sipi smbios smm svm swapgs sysret tsc tss vmcall vmcb vmcs vmmcall vmx \
    vmxon wbinvd wrmsr x2apic x86 xchg xcr0 xmm0 xrstor xsave";

/// Lines of code that pick an architecture's module, and use what it offers beyond its contract.
fn picks(line: &str) -> bool {
    let code = line.trim_start();
    let picks = [
        "#if defined(",
        "#include \"",
        "#[cfg",
        "#![cfg",
        "mod x86;",
        "pub mod x86;",
        "use x86::",
        "pub use x86::",
        "pub(crate) use x86::",
    ];
    picks.iter().any(|pick| code.starts_with(pick))
        || code.contains("::x86::")
        || code.contains("_x86::")
        || code.contains("x86_64-unknown-none")
}

/// Splits `VmcbField`, `VMCB_FIELD` and `vmcb_field` alike.
fn words(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut before = ' ';
    for letter in line.chars() {
        let begins = letter.is_ascii_uppercase() && before.is_ascii_lowercase();
        if (begins || !letter.is_ascii_alphanumeric())
            && all.last().is_some_and(|word| !word.is_empty())
        {
            all.push(String::new());
        }
        if let (true, Some(word)) = (letter.is_ascii_alphanumeric(), all.last_mut()) {
            word.push(letter.to_ascii_lowercase());
        }
        before = letter;
    }
    all
}

/// Findings of a file: line, word.
fn findings(text: &str, allowed: &[&str]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !picks(line)) {
        let named = |word: &String| {
            WORDS.split(' ').any(|named| named == word) && !allowed.contains(&word.as_str())
        };
        found.extend(words(line).into_iter().filter(named).map(|word| (n + 1, word)));
    }
    found
}

/// Reads the sources of a folder in Rust, C and assembler, without the modules of x86.
fn sources(folder: &Path, visit: &mut impl FnMut(&Path, &str)) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if stem == "x86" || stem.starts_with("x86-") {
            continue;
        }
        if path.is_dir() {
            sources(&path, visit);
        } else if path.extension().is_some_and(|e| ["rs", "c", "h", "S"].iter().any(|x| e == *x)) {
            visit(&path, &std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

#[test]
fn portable_code_names_nothing_of_x86() {
    let mut all = Vec::new();
    for (folder, allowed) in PORTABLE {
        let mut files = 0;
        sources(&root().join(folder), &mut |path, text| {
            files += 1;
            let path = path.strip_prefix(root()).unwrap_or(path).display().to_string();
            all.extend(
                findings(text, allowed).iter().map(|(n, word)| format!("{path}:{n}: {word}")),
            );
        });
        assert!(files > 0, "{folder} has no sources");
    }
    assert!(all.is_empty(), "{} words of x86 in portable code:\n{}", all.len(), all.join("\n"));
}

#[test]
fn words_are_found_in_names_and_comments() {
    let found =
        |line: &str| findings(line, &[]).into_iter().map(|(_, word)| word).collect::<Vec<_>>();
    assert_eq!(
        found("fn read_msr(vmcbField: u64) {} // RAX, and x86-64"),
        ["msr", "vmcb", "rax", "x86"]
    );
    assert_eq!(found("    pub idtr: [u16; 8],"), ["idtr"]);
    assert_eq!(found("const CR3_MASK: u64 = TscHz;"), ["cr3", "tsc"]);
    assert!(found("scripts, transport, ripple, tsctsc, msrx").is_empty());
    assert!(found("#[cfg(target_arch = \"x86_64\")]").is_empty());
    assert!(found("#include \"bulkhead/arch/x86.h\"").is_empty());
    assert!(found("pub use arch::x86::{apic, cpu};").is_empty());
    assert!(findings("/// CPUID.", &["cpuid"]).is_empty());
}
