/* x86-64's part of bulkhead.h, which includes it: the bodies of its functions, and further functions for programs that
 * are made for x86-64. SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_ARCH_X86_H
#define BULKHEAD_ARCH_X86_H

#include "x86-layout.h"

/* What was interrupted. Vectors from 32 on are interrupts. */
struct bulkhead_frame {
    uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
    uint64_t vector, error, rip, cs, rflags, rsp, ss;
};
static inline uint8_t bulkhead_number_of(const struct bulkhead_frame *frame) { return (uint8_t)frame->vector; }
static inline void bulkhead_enable(void) { __asm__ volatile("sti" ::: "memory"); }
static inline void bulkhead_disable(void) { __asm__ volatile("cli" ::: "memory"); }
static inline void bulkhead_wait(void) { __asm__ volatile("sti; hlt; cli" ::: "memory"); }

/* Interrupt lines: the sandbox's own IOAPIC. Setting a line up costs exits, an
 * interrupt none. The PIT's line is 2; of a level-triggered line the vector is one of
 * info->level_vectors, the highest for the first such line, or it is denied. */
uint32_t bulkhead_line_read(uint32_t index);
void bulkhead_line_write(uint32_t index, uint32_t value);
/* 0 for a line that is edge-triggered or another's. */
uint8_t bulkhead_line_vector(const struct bulkhead_info *info, uint32_t line);
void bulkhead_line_attach(uint32_t line, uint32_t core, uint8_t vector, bulkhead_handler handler);
void bulkhead_line_mask(uint32_t line);

/* Registers of devices: MOV is what a monitor decodes. */
static inline uint32_t bulkhead_read32(uint64_t address)
{
    uint32_t value;
    __asm__ volatile("movl (%1), %0" : "=r"(value) : "r"(address) : "memory");
    return value;
}
static inline void bulkhead_write32(uint64_t address, uint32_t value)
{
    __asm__ volatile("movl %0, (%1)" ::"r"(value), "r"(address) : "memory");
}
static inline uint64_t bulkhead_read64(uint64_t address)
{
    uint64_t value;
    __asm__ volatile("movq (%1), %0" : "=r"(value) : "r"(address) : "memory");
    return value;
}
static inline void bulkhead_write64(uint64_t address, uint64_t value)
{
    __asm__ volatile("movq %0, (%1)" ::"r"(value), "r"(address) : "memory");
}

/* Own page tables: the first 1 TiB mapped to itself with all rights, or 4 GiB on a CPU
 * without 1 GiB pages; how many bytes. The first ones map 4 GiB, and some functions have
 * their registers above. What the sandbox may touch is decided elsewhere. On one core. */
uint64_t bulkhead_map_everything(void);

/* A register of a PCI function by ports 0xCF8 and 0xCFC, offset below 256; one core at a time. */
uint32_t bulkhead_pci_read_by_ports(bulkhead_function function, uint8_t offset);
void bulkhead_pci_write_by_ports(bulkhead_function function, uint8_t offset, uint32_t value);

/* Exceptions. */
struct bulkhead_fault {
    uint8_t vector; /* 0xFF: none */
    uint64_t error, rip, address;
};
#define BULKHEAD_NO_FAULT 0xFF
/* Calls f(data) and catches the first exception in it. Does not nest. */
struct bulkhead_fault bulkhead_catch(void (*f)(void *data), void *data);
struct bulkhead_fault bulkhead_try_rdmsr(uint32_t msr, uint64_t *value);
struct bulkhead_fault bulkhead_try_wrmsr(uint32_t msr, uint64_t value);
static inline uint64_t bulkhead_rdmsr(uint32_t msr)
{
    uint32_t low, high;
    __asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr));
    return (uint64_t)high << 32 | low;
}
static inline void bulkhead_wrmsr(uint32_t msr, uint64_t value)
{
    __asm__ volatile("wrmsr" ::"c"(msr), "a"((uint32_t)value), "d"((uint32_t)(value >> 32)) : "memory");
}
static inline uint8_t bulkhead_inb(uint16_t port)
{
    uint8_t value;
    __asm__ volatile("inb %w1, %0" : "=a"(value) : "Nd"(port));
    return value;
}
static inline void bulkhead_outb(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %w1" ::"a"(value), "Nd"(port));
}
static inline uint32_t bulkhead_inl(uint16_t port)
{
    uint32_t value;
    __asm__ volatile("inl %w1, %0" : "=a"(value) : "Nd"(port));
    return value;
}
static inline void bulkhead_outl(uint16_t port, uint32_t value)
{
    __asm__ volatile("outl %0, %w1" ::"a"(value), "Nd"(port));
}

#endif
