/* Markers for the measuring plugin: see crates/layout/src/marker.rs, from which a
 * test derives this file (BLESS=1 cargo test -p bulkhead-layout writes it anew).
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_MARKER_H
#define BULKHEAD_MARKER_H

#define BULKHEAD_MARK_DUMP 0x0001
#define BULKHEAD_MARK_RESET 0x0002
#define BULKHEAD_MARK_EVENT 0x1000
#define BULKHEAD_MARK_BEGIN 0x2000
#define BULKHEAD_MARK_END 0x3000
#define BULKHEAD_MARK_VALUE 0x4000
#define BULKHEAD_MARK_LAP 0x5000

#define BULKHEAD_ID_ENTRY 0x001
#define BULKHEAD_ID_USER 0x002
#define BULKHEAD_ID_START 0x003
#define BULKHEAD_ID_FINISH 0x004
#define BULKHEAD_ID_LAUNCH 0x005
#define BULKHEAD_ID_SELFTEST_LOOP 0x010
#define BULKHEAD_ID_SELFTEST_TIMER_IDLE 0x011
#define BULKHEAD_ID_SELFTEST_TIMER_BUSY 0x012
#define BULKHEAD_ID_LINUX_GETPID 0x020
#define BULKHEAD_ID_LINUX_PAGE_TOUCH 0x021
#define BULKHEAD_ID_LINUX_SIGSEGV 0x022
#define BULKHEAD_ID_LINUX_FORK 0x023
#define BULKHEAD_ID_LINUX_FORK_EXEC 0x024
#define BULKHEAD_ID_LINUX_PIPE 0x025
#define BULKHEAD_ID_LINUX_UDP_64 0x026
#define BULKHEAD_ID_LINUX_UDP_1472 0x027
#define BULKHEAD_ID_LINUX_PRIMES 0x028
#define BULKHEAD_ID_LINUX_TIMER 0x029
#define BULKHEAD_ID_FLIGHT_JITTER 0x030
#define BULKHEAD_ID_FLIGHT_RELEASE 0x031
#define BULKHEAD_ID_MONITOR_HYPERCALL 0x040
#define BULKHEAD_ID_MONITOR_ICR 0x041
#define BULKHEAD_ID_MONITOR_RESTART 0x042
#define BULKHEAD_ID_BOOT_INSTRUCTIONS 0x043

/* A marker; CODE is a constant, e.g. BULKHEAD_MARK_BEGIN | BULKHEAD_ID_LINUX_GETPID. */
#define BULKHEAD_MARK(CODE) \
    __asm__ volatile(".byte 0x0f,0x1f,0x84,0x00\n\t.word %c0,0xb417" : : "i"(CODE) : "memory")

/* A marker with a 64-bit value. */
#define BULKHEAD_MARK_WITH(CODE, V) \
    __asm__ volatile(".byte 0x0f,0x1f,0x84,0x00\n\t.word %c0,0xb417" : : "i"(CODE), "a"((unsigned long)(V)) : "memory")

#endif
