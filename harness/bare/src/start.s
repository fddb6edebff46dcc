# Entry by multiboot 1 (QEMU -kernel, GRUB) or 2 (GRUB), and of secondary cores
# by SIPI, into 64-bit mode with the first 4 GiB identity-mapped.

.section .multiboot, "a"
.balign 8
mb1:
    .long 0x1BADB002, 0x00010003, -(0x1BADB002 + 0x00010003)
    .long mb1, __load_start, __load_end, __end, _start
.balign 8
mb2:
    .long 0xE85250D6, 0, mb2_end - mb2, -(0xE85250D6 + (mb2_end - mb2))
    # No address tags: GRUB loads the ELF file by its program headers.
    .short 0, 0
    .long 8
mb2_end:

.section .text.start, "ax"
.code32
.global _start
_start:
    cli
    cld
    mov edi, eax
    mov esi, ebx
    # A program that is loaded as ELF or by the header has .bss cleared, but for
    # loaders that differ it is cleared once more.
    mov ebp, edi
    lea edi, [bss_start]
    lea ecx, [__end]
    sub ecx, edi
    shr ecx, 2
    xor eax, eax
    rep stosd
    mov edi, ebp
    # Page tables: 2 MiB pages.
    lea eax, [pdpt + 3]
    mov [pml4], eax
    lea eax, [pd + 3]
    xor ecx, ecx
1:  mov [pdpt + ecx * 8], eax
    add eax, 4096
    inc ecx
    cmp ecx, 4
    jne 1b
    mov eax, 0x83
    xor ecx, ecx
2:  mov [pd + ecx * 8], eax
    add eax, 0x200000
    inc ecx
    cmp ecx, 2048
    jne 2b
    lea esp, [stacks + 16384]
    xor ebx, ebx
    jmp long_mode

# In: ebx = 0 on the first core, edi, esi = its arguments; esp.
long_mode:
    lgdt [gdt_pointer]
    mov eax, 0x6A0                  # CR4: PAE, PGE, OSFXSR, OSXMMEXCPT
    and eax, 0x6A0
    mov cr4, eax
    lea eax, [pml4]
    mov cr3, eax
    mov ebp, edx
    mov ecx, 0xC0000080             # EFER: LME, NXE
    rdmsr
    or eax, 0x900
    wrmsr
    mov edx, ebp
    mov eax, 0x80000033             # CR0: PG, NE, ET, MP, PE
    mov cr0, eax
    ljmp 0x10, offset in_64
.code64
in_64:
    mov eax, 0x18
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    lidt [rip + idt_pointer]
    mov esp, esp
    test ebx, ebx
    jnz 1f
    mov edi, edi
    mov esi, esi
    call bare_main
1:  call bare_core
2:  hlt
    jmp 2b

# Copied to 0x8000, where a SIPI starts secondary cores.
.code16
.balign 32
.global trampoline
trampoline:
    cli
    cld
    xor ax, ax
    mov ds, ax
    lgdtd [0x8020]                  # trampoline_gdt
    mov eax, 0x33
    mov cr0, eax
    .byte 0x66, 0xEA                # ljmp 8:core_32
    .long core_32
    .short 8
.balign 32
trampoline_gdt:
    .short gdt_end - gdt - 1
    .long gdt
.global trampoline_end
trampoline_end:

.code32
core_32:
    mov eax, 0x18
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov ebx, 1
    lock xadd [cores_started], ebx
    inc ebx                         # this core's number, from 1
    mov ecx, ebx
    inc ecx
    shl ecx, 14
    lea esp, [stacks + ecx]
    jmp long_mode

# The timer's interrupt: TSC into the first word of the core's stack block.
.code64
.global timer_entry
timer_entry:
    push rax
    push rcx
    push rdx
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov rcx, rsp
    and rcx, -16384
    mov [rcx], rax
    mov ecx, 0x80B                  # x2APIC EOI
    xor eax, eax
    xor edx, edx
    wrmsr
    pop rdx
    pop rcx
    pop rax
    iretq

# An NMI: nothing but the fact that it came.
.global nmi_entry
nmi_entry:
    iretq

# Any exception: its address and the one it struck.
.global fault_entry
fault_entry:
    mov rdi, [rsp]
    mov rsi, [rsp + 8]
    mov rdx, [rsp + 16]
    and rsp, -16
    call bare_fault

.section .rodata, "a"
.balign 8
gdt:
    .quad 0
    .quad 0x00CF9B000000FFFF        # 08: 32-bit code
    .quad 0x00AF9B000000FFFF        # 10: 64-bit code
    .quad 0x00CF93000000FFFF        # 18: data
gdt_end:
gdt_pointer:
    .short gdt_end - gdt - 1
    .quad gdt
idt_pointer:
    .short 4095
    .quad idt

.section .bss.tables, "aw", @nobits
.balign 4096
bss_start:
.global stacks
stacks: .skip 16384 * 16
pml4: .skip 4096
pdpt: .skip 4096
pd: .skip 16384
.global idt
idt: .skip 4096
.global cores_started
cores_started: .skip 4
