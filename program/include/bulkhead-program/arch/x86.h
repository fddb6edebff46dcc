/* The instructions of x86-64 behind bulkhead-program.h, which includes this.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_PROGRAM_ARCH_X86_H
#define BULKHEAD_PROGRAM_ARCH_X86_H

static inline _Noreturn void bulkhead_stop(void)
{
    __asm__ volatile("ud2");
    __builtin_unreachable();
}

/* SYSCALL takes RCX and R11. */
static inline uint64_t bulkhead_syscall(uint64_t op, uint32_t reply, uint64_t *named,
                                        struct bulkhead_message *message)
{
    uint64_t status = op | (uint64_t)reply << 32;
    register uint64_t b __asm__("r8") = message->words[1];
    register uint64_t c __asm__("r9") = message->words[2];
    register uint64_t d __asm__("r10") = message->words[3];
    __asm__ volatile("syscall"
                     : "+a"(status), "+D"(*named), "+S"(message->info), "+d"(message->words[0]), "+r"(b),
                       "+r"(c), "+r"(d)
                     :
                     : "rcx", "r11", "memory");
    message->words[1] = b;
    message->words[2] = c;
    message->words[3] = d;
    return status;
}

static inline uint64_t bulkhead_counter(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

#endif
