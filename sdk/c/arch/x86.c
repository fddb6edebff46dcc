/* x86-64's part of the C runtime of bare guests: see sdk/c/arch.h. Compiled as bulkhead.c is.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "../arch.h"
#include "../bell.h"
#include "../text.h"

enum { CODE = 0x08, DATA = 0x10, SPURIOUS = 0xFF, STACK = 32 * 1024 };
enum {
    X2APIC_ID = 0x802,
    X2APIC_TPR = 0x808,
    X2APIC_EOI = 0x80B,
    X2APIC_SVR = 0x80F,
    X2APIC_ICR = 0x830,
    X2APIC_LVT_TIMER = 0x832,
    X2APIC_TMICT = 0x838,
    X2APIC_DCR = 0x83E,
    TSC_DEADLINE = 0x6E0,
};
#define EFER 0xC0000080u

/* Calls. */

/* A call is VMCALL, not VMMCALL. */
static bool intel;

uint64_t bulkhead_hypercall(uint64_t call, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    register uint64_t r8 __asm__("r8") = d;
    if (intel)
        __asm__ volatile("vmcall" : "+a"(call) : "D"(a), "S"(b), "d"(c), "r"(r8) : "memory");
    else
        __asm__ volatile("vmmcall" : "+a"(call) : "D"(a), "S"(b), "d"(c), "r"(r8) : "memory");
    return call;
}

_Noreturn void bulkhead_arch_stop(void)
{
    for (;;)
        __asm__ volatile("cli; hlt");
}

/* Console: a 16550, or the debug port of emulators, which takes each byte as it is. */

static uint16_t console_port;
static bool console_plain;

/* 8 bits, 115,200 baud, no interrupts: after a reset a 16550 sends 5 bits at
   whatever speed is left in its divisor. */
static void uart_prepare(uint16_t port)
{
    static const uint8_t steps[][2] = {{3, 0x80}, {0, 1}, {1, 0}, {3, 3}, {1, 0}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        bulkhead_outb((uint16_t)(port + steps[i][0]), steps[i][1]);
}

static void uart_put(uint8_t byte)
{
    enum { LINE_STATUS = 5, EMPTY = 0x20, PATIENCE = 100000 };
    for (int i = 0; i < PATIENCE && !(bulkhead_inb(console_port + LINE_STATUS) & EMPTY); i++)
        ;
    bulkhead_outb(console_port, byte);
}

bool bulkhead_arch_console(const char *device)
{
    uint64_t port;
    if (device[0] == 'e' && device[1] == '9') {
        console_port = 0xE9;
        console_plain = true;
        return true;
    }
    if (!bulkhead_number(device, &port) || port > UINT16_MAX)
        return false;
    console_port = (uint16_t)port;
    uart_prepare(console_port);
    return true;
}

void bulkhead_arch_put(uint8_t byte)
{
    if (console_plain) {
        bulkhead_outb(console_port, byte);
        return;
    }
    if (byte == '\n')
        uart_put('\r');
    uart_put(byte);
}

/* Interrupts and exceptions. */

bool bulkhead_arch_mask(void)
{
    uint64_t flags;
    __asm__ volatile("pushfq; popq %0; cli" : "=r"(flags)::"memory");
    return flags & 1 << 9;
}

struct gate {
    uint16_t offset_low, selector, kind, offset_mid;
    uint32_t offset_high, reserved;
};
struct __attribute__((packed)) pointer {
    uint16_t limit;
    uint64_t base;
};

static struct gate idt[256] __attribute__((aligned(4096)));
static const uint64_t gdt[3] = {0, 0x00AF9B000000FFFF, 0x00CF93000000FFFF};
extern const uint8_t bulkhead_vectors[], bulkhead_recover[];
void bulkhead_load_gdt(const struct pointer *pointer);
int bulkhead_catch_raw(void (*f)(void *), void *data, uint64_t *armed);

/* State of fault capture; by core, found by its x2APIC ID. */
static struct capture {
    uint64_t rsp;
    struct bulkhead_fault fault;
} captures[BULKHEAD_MAX_CORES];

static struct capture *capture(void)
{
    uint32_t id = bulkhead_core_id();
    for (uint32_t i = 0; i < bulkhead_own_info->cores && i < BULKHEAD_MAX_CORES; i++)
        if (bulkhead_own_info->core_ids[i] == id)
            return &captures[i];
    return &captures[0];
}

static void raised(struct bulkhead_frame *frame)
{
    const uint64_t keep = ~(uint64_t)(1 << 8 | 1 << 10 | 1 << 14 | 1 << 18);
    struct capture *c = capture();
    uint64_t cr2;
    __asm__ volatile("mov %%cr2, %0" : "=r"(cr2));
    if (!c->rsp) {
        bulkhead_printf("exception %lu (%lx) at %lx, address %lx\n", frame->vector, frame->error, frame->rip, cr2);
        bulkhead_exit(101);
    }
    c->fault = (struct bulkhead_fault){(uint8_t)frame->vector, frame->error, frame->rip, cr2};
    frame->rip = (uint64_t)bulkhead_recover;
    frame->rsp = c->rsp;
    frame->rflags &= keep;
}

void bulkhead_dispatch(struct bulkhead_frame *frame)
{
    uint64_t now = bulkhead_counter();
    bulkhead_handler handler = bulkhead_handler_of(bulkhead_number_of(frame));
    if (handler)
        handler(frame, now);
    else if (frame->vector < 32)
        raised(frame);
    if (frame->vector >= 32 && frame->vector != SPURIOUS)
        bulkhead_wrmsr(X2APIC_EOI, 0);
}

struct bulkhead_fault bulkhead_catch(void (*f)(void *), void *data)
{
    struct capture *c = capture();
    if (bulkhead_catch_raw(f, data, &c->rsp))
        return c->fault;
    return (struct bulkhead_fault){.vector = BULKHEAD_NO_FAULT};
}

struct msr {
    uint32_t number;
    uint64_t value;
};

static void do_rdmsr(void *data)
{
    struct msr *msr = data;
    msr->value = bulkhead_rdmsr(msr->number);
}

static void do_wrmsr(void *data)
{
    struct msr *msr = data;
    bulkhead_wrmsr(msr->number, msr->value);
}

struct bulkhead_fault bulkhead_try_rdmsr(uint32_t number, uint64_t *value)
{
    struct msr msr = {number, 0};
    struct bulkhead_fault fault = bulkhead_catch(do_rdmsr, &msr);
    *value = msr.value;
    return fault;
}

struct bulkhead_fault bulkhead_try_wrmsr(uint32_t number, uint64_t value)
{
    struct msr msr = {number, value};
    return bulkhead_catch(do_wrmsr, &msr);
}

static void load_tables(void)
{
    struct pointer g = {sizeof gdt - 1, (uint64_t)gdt}, i = {sizeof idt - 1, (uint64_t)idt};
    bulkhead_load_gdt(&g);
    __asm__ volatile("lidt %0" ::"m"(i));
    bulkhead_wrmsr(X2APIC_SVR, 0x100 | SPURIOUS);
    bulkhead_wrmsr(X2APIC_TPR, 0);
}

/* Interrupt lines. */

enum { LINE_SELECT = 0, LINE_WINDOW = 4, LINE_TABLE = 0x10, LINE_MASKED = 1 << 16 };
static volatile uint32_t *const ioapic = (volatile uint32_t *)0xFEC00000ul;

/* The index is one for all cores. */
static uint32_t line_register(uint32_t index, const uint32_t *value)
{
    static bool taken;
    const bool on = bulkhead_arch_mask();
    uint32_t found = 0;
    while (__atomic_exchange_n(&taken, true, __ATOMIC_ACQUIRE))
        __asm__ volatile("pause");
    ioapic[LINE_SELECT] = index;
    if (value)
        ioapic[LINE_WINDOW] = *value;
    else
        found = ioapic[LINE_WINDOW];
    __atomic_store_n(&taken, false, __ATOMIC_RELEASE);
    if (on)
        bulkhead_enable();
    return found;
}

uint32_t bulkhead_line_read(uint32_t index)
{
    return line_register(index, NULL);
}

void bulkhead_line_write(uint32_t index, uint32_t value)
{
    line_register(index, &value);
}

uint8_t bulkhead_line_vector(const struct bulkhead_info *info, uint32_t line)
{
    uint32_t before = 0;
    if (line >= 32 || !(info->level_lines >> line & 1))
        return 0;
    for (uint32_t l = 0; l < line; l++)
        before += info->level_lines >> l & 1;
    for (uint32_t v = 255; v; v--)
        if (info->level_vectors[v / 64] >> v % 64 & 1 && before-- == 0)
            return (uint8_t)v;
    return 0;
}

void bulkhead_line_mask(uint32_t line)
{
    bulkhead_line_write(LINE_TABLE + 2 * line, LINE_MASKED);
}

/* Masked first: neither half is in force with the other's old one. */
void bulkhead_line_attach(uint32_t line, uint32_t core, uint8_t vector, bulkhead_handler handler)
{
    bulkhead_set_handler(vector, handler);
    bulkhead_line_mask(line);
    bulkhead_line_write(LINE_TABLE + 2 * line + 1, core << 24);
    bulkhead_line_write(LINE_TABLE + 2 * line, vector);
}

/* Time. */

static bool has_deadline;

uint64_t bulkhead_counter(void)
{
    uint32_t low, high;
    __asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

uint64_t bulkhead_arch_muldiv(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t low, high, rest;
    __asm__("mul %3" : "=a"(low), "=d"(high) : "a"(a), "r"(b));
    if (high >= c)
        return UINT64_MAX;
    __asm__("div %3" : "=a"(low), "=d"(rest) : "a"(low), "r"(c), "d"(high));
    return low;
}

void bulkhead_timer_interrupt(uint8_t vector)
{
    const uint64_t deadline_mode = 2 << 17, delivery_status = 1 << 12;
    const uint64_t entry = (has_deadline ? deadline_mode : 0) | vector;
    bulkhead_wrmsr(X2APIC_DCR, 0xB); /* divide by 1 */
    /* A vector that is in use already costs no exit: only a write of it is mediated. */
    if ((bulkhead_rdmsr(X2APIC_LVT_TIMER) & ~delivery_status) != entry)
        bulkhead_wrmsr(X2APIC_LVT_TIMER, entry);
}

void bulkhead_arm(uint64_t due)
{
    if (has_deadline) {
        bulkhead_wrmsr(TSC_DEADLINE, due ? due : 1);
        return;
    }
    uint64_t now = bulkhead_counter();
    /* One more, so that it never fires early. */
    const uint64_t timer_hz = bulkhead_own_info->timer_hz, hz = bulkhead_own_info->hz;
    uint64_t count = due > now ? bulkhead_arch_muldiv(due - now, timer_hz, hz) : 0;
    count = count < UINT32_MAX ? count + 1 : UINT32_MAX;
    bulkhead_wrmsr(X2APIC_TMICT, count);
}

void bulkhead_disarm(void)
{
    bulkhead_wrmsr(has_deadline ? TSC_DEADLINE : X2APIC_TMICT, 0);
}

/* Own cores. */

static uint8_t stacks[BULKHEAD_MAX_CORES][STACK] __attribute__((aligned(16)));
static struct bulkhead_context smp_context;
static bulkhead_core_entry smp_entry;
static uint32_t smp_index, smp_up;
uint64_t bulkhead_smp_cr3, bulkhead_smp_cr4, bulkhead_smp_efer, bulkhead_smp_stack;
extern const uint8_t bulkhead_smp[];

uint32_t bulkhead_core_id(void)
{
    return (uint32_t)bulkhead_rdmsr(X2APIC_ID);
}

void bulkhead_ipi(uint32_t core, uint8_t vector)
{
    bulkhead_wrmsr(X2APIC_ICR, (uint64_t)core << 32 | vector);
}

_Noreturn void bulkhead_secondary(void)
{
    uint32_t index = smp_index;
    bulkhead_core_entry entry = smp_entry;
    struct bulkhead_context context = smp_context;
    load_tables();
    __atomic_store_n(&smp_up, 1, __ATOMIC_RELEASE);
    entry(context, index);
    bulkhead_disable();
    for (;;)
        bulkhead_wait();
}

bool bulkhead_start_core(struct bulkhead_context context, uint32_t index, bulkhead_core_entry entry)
{
    const struct bulkhead_info *info = context.info;
    if (index == 0 || index >= info->cores || index >= BULKHEAD_MAX_CORES)
        return false;
    uint64_t icr = (uint64_t)info->core_ids[index] << 32;
    __asm__("mov %%cr3, %0" : "=r"(bulkhead_smp_cr3));
    __asm__("mov %%cr4, %0" : "=r"(bulkhead_smp_cr4));
    /* SCE, LME and NXE; the rest of EFER is not the guest's. */
    bulkhead_smp_efer = bulkhead_rdmsr(EFER) & 0x901;
    bulkhead_smp_stack = (uint64_t)stacks[index] + STACK;
    smp_context = context;
    smp_entry = entry;
    smp_index = index;
    __atomic_store_n(&smp_up, 0, __ATOMIC_SEQ_CST);
    bulkhead_wrmsr(X2APIC_ICR, icr | 0x4500);
    bulkhead_sleep(10000000);
    bulkhead_wrmsr(X2APIC_ICR, icr | 0x4600 | (uint64_t)bulkhead_smp >> 12);
    for (int i = 0; i < 10000; i++) {
        if (__atomic_load_n(&smp_up, __ATOMIC_ACQUIRE))
            return true;
        bulkhead_sleep(10000);
    }
    return false;
}

/* Doorbells and messages. */

void bulkhead_bell_ring(uint16_t port)
{
    /* Another port would be a device's. */
    if ((uint16_t)(port - BULKHEAD_BELL_PORT) < BULKHEAD_MAX_BELLS)
        bulkhead_outb(port, 0);
}

/* Fixed, edge, physical destination (APM volume 2, 16.12). */
struct bulkhead_message bulkhead_arch_message(uint32_t core, uint8_t vector)
{
    return (struct bulkhead_message){0xFEE00000u | (core & 0xFF) << 12, 0, vector};
}

/* PCI by ports. */

enum { ADDRESS_PORT = 0xCF8, DATA_PORT = 0xCFC };

static void select(bulkhead_function function, uint8_t offset)
{
    bulkhead_outl(ADDRESS_PORT, 1u << 31 | (uint32_t)function << 8 | (offset & 0xFC));
}

uint32_t bulkhead_pci_read_by_ports(bulkhead_function function, uint8_t offset)
{
    select(function, offset);
    return bulkhead_inl(DATA_PORT);
}

void bulkhead_pci_write_by_ports(bulkhead_function function, uint8_t offset, uint32_t value)
{
    select(function, offset);
    bulkhead_outl(DATA_PORT, value);
}

/* Page tables. */

static uint64_t tables[7][512] __attribute__((aligned(4096)));

uint64_t bulkhead_map_everything(void)
{
    const uint64_t rights = 7, large = 1 << 7, gib = 1ul << 30;
    uint32_t a = 0x80000001, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    bool huge = d >> 26 & 1;
    tables[0][0] = (uint64_t)tables[1] | rights;
    if (huge)
        tables[0][1] = (uint64_t)tables[6] | rights;
    for (uint64_t n = 0; n < 512; n++) {
        if (huge) {
            tables[1][n] = n * gib | rights | large;
            tables[6][n] = (512 + n) * gib | rights | large;
        } else if (n < 4) {
            tables[1][n] = (uint64_t)tables[2 + n] | rights;
            for (uint64_t m = 0; m < 512; m++)
                tables[2 + n][m] = (n * gib + (m << 21)) | rights | large;
        }
    }
    __asm__ volatile("mov %0, %%cr3" ::"r"(tables) : "memory");
    return huge ? 1024 * gib : 4 * gib;
}

/* Entry. */

void bulkhead_arch_setup(void)
{
    uint32_t ecx, edx, eax = 1, ebx;
    intel = bulkhead_own_info->monitors == BULKHEAD_MONITORS_VMX;
    for (int vector = 0; vector < 256; vector++) {
        uint64_t entry = (uint64_t)bulkhead_vectors + 16 * (uint64_t)vector;
        idt[vector] = (struct gate){(uint16_t)entry, CODE, 0x8E00, (uint16_t)(entry >> 16), (uint32_t)(entry >> 32), 0};
    }
    load_tables();
    __asm__("cpuid" : "+a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "c"(0));
    has_deadline = ecx >> 24 & 1;
}
