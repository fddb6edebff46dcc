/* Entry, interrupt entries, fault capture and start-up of further cores for C
 * guests. sdk/src/arch/x86/{start,idt,fault,cores}.rs argue each part.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
    .section .text.start, "ax"
    .global _start
_start:
    cld
    lea bulkhead_stack_top(%rip), %rsp
    xor %ebp, %ebp
    call bulkhead_start
    ud2

    .text
    .balign 16
    .global bulkhead_vectors
bulkhead_vectors:
    .set i, 0
    .rept 256
    .balign 16
    .if !(i == 8 || (i >= 10 && i <= 14) || i == 17 || i == 21 || i == 29 || i == 30)
    pushq $0
    .endif
    pushq $i
    jmp common
    .set i, i + 1
    .endr

common:
    push %rax
    push %rbx
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %rbp
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
    cld
    mov %rsp, %rdi
    mov %rsp, %rbx
    and $-16, %rsp
    call bulkhead_dispatch
    mov %rbx, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rbp
    pop %rdi
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rbx
    pop %rax
    add $16, %rsp
    iretq

/* int bulkhead_catch_raw(f, data, uint64_t *armed) */
    .global bulkhead_catch_raw, bulkhead_recover
bulkhead_catch_raw:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    push %rdx
    mov %rsp, (%rdx)
    mov %rdi, %rax
    mov %rsi, %rdi
    call *%rax
    xor %eax, %eax
    jmp 1f
bulkhead_recover:
    mov $1, %eax
1:  pop %rdx
    movq $0, (%rdx)
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

/* void bulkhead_load_gdt(const void *pointer): code 0x08, data 0x10 */
    .global bulkhead_load_gdt
bulkhead_load_gdt:
    lgdt (%rdi)
    mov $0x10, %eax
    mov %eax, %ss
    mov %eax, %ds
    mov %eax, %es
    pop %rdx
    pushq $0x08
    push %rdx
    lretq

/* Further cores: real mode at 0x8000. The segment is absent in a program that
 * starts none. */
    .section .smp, "ax"
    .code16
    .balign 4096
    .global bulkhead_smp
bulkhead_smp:
    cli
    mov %cs, %ax
    mov %ax, %ds
    lgdtl (5f - bulkhead_smp)
    mov $0x11, %eax
    mov %eax, %cr0
    ljmpl $0x08, $2f
    .code32
2:  mov $0x18, %ax
    mov %ax, %ds
    mov %ax, %ss
    mov %ax, %es
    mov bulkhead_smp_cr4, %eax
    mov %eax, %cr4
    mov bulkhead_smp_cr3, %eax
    mov %eax, %cr3
    mov $0xC0000080, %ecx
    mov bulkhead_smp_efer, %eax
    xor %edx, %edx
    wrmsr
    mov $0x80010033, %eax
    mov %eax, %cr0
    ljmpl $0x10, $3f
    .code64
3:  mov bulkhead_smp_stack, %rsp
    xor %ebp, %ebp
    movabs $bulkhead_secondary, %rax
    call *%rax
    ud2
    .balign 8
4:  .quad 0, 0x00CF9B000000FFFF, 0x00AF9B000000FFFF, 0x00CF93000000FFFF
5:  .word 31
    .long 4b

    .section .bss
    .balign 4096
    .skip 65536
bulkhead_stack_top:
    .section .note.GNU-stack, "", @progbits
