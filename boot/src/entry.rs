//! The way from the loader's 32-bit protected mode into `boot`: 64-bit mode
//! with the first 4 GiB mapped to themselves.

use bulkhead_handover::image::HEADER_WORD;

core::arch::global_asm!(
    ".section .head, \"a\"",
    // A loader looks for the headers in the file's first 8 KiB (multiboot 1) and 32 KiB (multiboot 2).
    "   .skip {word}", // multiboot headers, written by the host
    "image_header:",
    "   .quad 0", // address of the compiled manifest, written by the host
    "   .skip 8",
    "   .skip 72", // BOOT_REPORT_PA
    ".section .text",
    ".code32",
    ".global boot_entry",
    "boot_entry:",
    // The loader hands over a machine without a usable stack, GDTR or IDTR (multiboot specification, 3.2).
    "   cli",
    "   cld",
    "   mov esp, offset boot_stack_end",
    "   mov esi, ebx", // loader's information
    "   mov edi, eax", // loader's magic
    // The time of the boot counts from here. EDX is free, EAX was saved above.
    "   rdtsc",
    "   mov [boot_tsc], eax",
    "   mov [boot_tsc + 4], edx",
    // Four directories of 2 MiB pages.
    // Pages of 2 MiB are in every processor with long mode. 1 GiB ones are not, and kernels without monitors need none.
    // 0x83: present, writable, a large page. The upper halves of the entries are 0, as the section is.
    "   mov ebx, offset boot_tables + 0x2000",
    "   mov eax, 0x83",
    "   mov ecx, 2048",
    "2: mov [ebx], eax",
    "   add eax, 0x200000",
    "   add ebx, 8",
    "   dec ecx",
    "   jnz 2b",
    // The root has one entry, for one table of four directories. 3: present, writable.
    "   mov eax, offset boot_tables + 0x1003",
    "   mov [boot_tables], eax",
    "   mov eax, offset boot_tables + 0x2003",
    "   mov ebx, offset boot_tables + 0x1000",
    "   mov ecx, 4",
    "3: mov [ebx], eax",
    "   add eax, 0x1000",
    "   add ebx, 8",
    "   dec ecx",
    "   jnz 3b",
    "   mov eax, offset boot_tables",
    "   mov cr3, eax",
    // This order switches long mode on: PAE, CR3, LME, then paging (APM volume 2, 14.6.1).
    "   mov eax, 0x20", // PAE
    "   mov cr4, eax",
    // NXE as well: a monitor's tables are entered from here, and have no-execute bits, which without it are reserved.
    "   mov ecx, 0xC0000080",
    "   rdmsr",
    "   or eax, 0x900", // LME, NXE
    "   wrmsr",
    // WP, so that a page without the right to write has none in ring 0 either: monitors keep CR0.
    "   mov eax, 0x80010033", // PG, WP, NE, ET, MP, PE
    "   mov cr0, eax",
    // Only a far transfer loads CS, and with it 64-bit mode.
    "   lgdt [boot_gdt_pointer]",
    "   push 0x18",
    "   mov eax, offset boot_entry64",
    "   push eax",
    "   retf",
    ".code64",
    "boot_entry64:",
    "   mov eax, 0x10",
    "   mov ds, eax",
    "   mov es, eax",
    "   mov ss, eax",
    "   xor eax, eax",
    "   mov fs, eax",
    "   mov gs, eax",
    // The upper halves of registers are undefined after 32-bit mode; a write of a lower half clears them.
    "   mov edi, edi",
    "   mov esi, esi",
    // The third and fourth argument of a C function; the loader's two are in EDI and ESI already.
    "   mov rdx, [image_header]",
    "   mov rcx, [boot_tsc]",
    "   call {boot}",
    // `boot` does not return.
    "5: hlt",
    "   jmp 5b",
    ".section .rodata",
    ".balign 8",
    // 0x08: code of 32 bits; 0x10: data; 0x18: code of 64 bits. All are flat.
    "boot_gdt:",
    "   .quad 0, 0x00CF9B000000FFFF, 0x00CF93000000FFFF, 0x00AF9B000000FFFF",
    "boot_gdt_pointer:",
    "   .word 31",
    "   .long boot_gdt",
    ".section .bss",
    ".balign 4096",
    "boot_tables:",
    "   .skip 0x6000",
    "boot_stack:",
    "   .skip 0x4000",
    "boot_stack_end:",
    "boot_tsc:",
    "   .skip 8",
    word = const HEADER_WORD,
    boot = sym crate::boot,
);
