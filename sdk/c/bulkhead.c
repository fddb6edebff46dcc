/* The C runtime of bare guests: see sdk/include/bulkhead.h. Compiled with
 * -mgeneral-regs-only, because part of it runs in interrupt handlers.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead.h>
#include "bell.h"
#include "text.h"

enum { CODE = 0x08, DATA = 0x10, SLEEP_VECTOR = 0xEF, SPURIOUS = 0xFF, STACK = 32 * 1024 };
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

/* Arguments. */

const char *bulkhead_arg(struct bulkhead_context context, const char *key)
{
    return bulkhead_find_arg(context.info->args, BULKHEAD_INFO_ARGS_SIZE, key);
}

uint64_t bulkhead_arg_u64(struct bulkhead_context context, const char *key, uint64_t otherwise)
{
    const char *text = bulkhead_arg(context, key);
    uint64_t value;
    return text && bulkhead_number(text, &value) ? value : otherwise;
}

/* Hypercalls. */

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

static _Noreturn void stuck(void)
{
    for (;;)
        __asm__ volatile("cli; hlt");
}

_Noreturn void bulkhead_exit(uint32_t code)
{
    bulkhead_hypercall(BULKHEAD_HYPERCALL_EXIT, code, 0, 0, 0);
    stuck();
}

_Noreturn void bulkhead_restart(void)
{
    bulkhead_hypercall(BULKHEAD_HYPERCALL_RESTART, 0, 0, 0, 0);
    stuck();
}

void bulkhead_ready(void)
{
    bulkhead_hypercall(BULKHEAD_HYPERCALL_READY, 0, 0, 0, 0);
}

uint64_t bulkhead_control(uint32_t sandbox, uint64_t request)
{
    return bulkhead_hypercall(BULKHEAD_HYPERCALL_CONTROL, sandbox, request, 0, 0);
}

uint64_t bulkhead_status(uint32_t sandbox)
{
    return bulkhead_hypercall(BULKHEAD_HYPERCALL_STATUS, sandbox, 0, 0, 0);
}

/* Console. */

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

static void console_call(const char *text, size_t length)
{
    uint64_t words[3] = {0, 0, 0};
    memcpy(words, text, length);
    bulkhead_hypercall(BULKHEAD_HYPERCALL_CONSOLE, length, words[0], words[1], words[2]);
}

void bulkhead_write(const char *text, size_t length)
{
    while (!console_port && length) {
        size_t part = length < sizeof(uint64_t[3]) ? length : sizeof(uint64_t[3]);
        console_call(text, part);
        text += part;
        length -= part;
    }
    for (; length; length--, text++) {
        if (console_plain) {
            bulkhead_outb(console_port, (uint8_t)*text);
            continue;
        }
        if (*text == '\n')
            uart_put('\r');
        uart_put((uint8_t)*text);
    }
}

/* Interrupts and exceptions. */

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
static bulkhead_handler handlers[256];
extern const uint8_t bulkhead_vectors[], bulkhead_recover[];
void bulkhead_load_gdt(const struct pointer *pointer);
int bulkhead_catch_raw(void (*f)(void *), void *data, uint64_t *armed);

/* State of fault capture; by core, found by its x2APIC ID. */
static struct capture {
    uint64_t rsp;
    struct bulkhead_fault fault;
} captures[BULKHEAD_MAX_CORES];
static const struct bulkhead_info *the_info;

static struct capture *capture(void)
{
    uint32_t id = bulkhead_apic_id();
    for (uint32_t i = 0; i < the_info->cores && i < BULKHEAD_MAX_CORES; i++)
        if (the_info->core_ids[i] == id)
            return &captures[i];
    return &captures[0];
}

void bulkhead_set_handler(uint8_t vector, bulkhead_handler handler)
{
    __atomic_store_n(&handlers[vector], handler, __ATOMIC_RELEASE);
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
    uint64_t tsc = bulkhead_tsc();
    bulkhead_handler handler = __atomic_load_n(&handlers[frame->vector & 0xFF], __ATOMIC_ACQUIRE);
    if (handler)
        handler(frame, tsc);
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
    uint64_t flags;
    uint32_t found = 0;
    __asm__ volatile("pushfq; popq %0; cli" : "=r"(flags)::"memory");
    while (__atomic_exchange_n(&taken, true, __ATOMIC_ACQUIRE))
        __asm__ volatile("pause");
    ioapic[LINE_SELECT] = index;
    if (value)
        ioapic[LINE_WINDOW] = *value;
    else
        found = ioapic[LINE_WINDOW];
    __atomic_store_n(&taken, false, __ATOMIC_RELEASE);
    if (flags & 1 << 9)
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
void bulkhead_line_attach(uint32_t line, uint32_t apic_id, uint8_t vector, bulkhead_handler handler)
{
    bulkhead_set_handler(vector, handler);
    bulkhead_line_mask(line);
    bulkhead_line_write(LINE_TABLE + 2 * line + 1, apic_id << 24);
    bulkhead_line_write(LINE_TABLE + 2 * line, vector);
}

/* Time. */

static bool has_deadline;

uint64_t bulkhead_tsc(void)
{
    uint32_t low, high;
    __asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

/* a * b / c without losing the upper half; the quotient must fit. */
static uint64_t muldiv(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t low, high, rest;
    __asm__("mul %3" : "=a"(low), "=d"(high) : "a"(a), "r"(b));
    if (high >= c)
        return UINT64_MAX;
    __asm__("div %3" : "=a"(low), "=d"(rest) : "a"(low), "r"(c), "d"(high));
    return low;
}

uint64_t bulkhead_nanos(uint64_t ticks)
{
    return muldiv(ticks, 1000000000, the_info->hz);
}

uint64_t bulkhead_ticks(uint64_t nanos)
{
    return muldiv(nanos, the_info->hz, 1000000000);
}

void bulkhead_timer_vector(uint8_t vector)
{
    const uint64_t deadline_mode = 2 << 17;
    bulkhead_wrmsr(X2APIC_DCR, 0xB); /* divide by 1 */
    bulkhead_wrmsr(X2APIC_LVT_TIMER, (has_deadline ? deadline_mode : 0) | vector);
}

void bulkhead_arm(uint64_t due)
{
    if (has_deadline) {
        bulkhead_wrmsr(TSC_DEADLINE, due ? due : 1);
        return;
    }
    uint64_t now = bulkhead_tsc();
    /* One more, so that it never fires early. */
    uint64_t count = due > now ? muldiv(due - now, the_info->timer_hz, the_info->hz) : 0;
    count = count < UINT32_MAX ? count + 1 : UINT32_MAX;
    bulkhead_wrmsr(X2APIC_TMICT, count);
}

void bulkhead_disarm(void)
{
    bulkhead_wrmsr(has_deadline ? TSC_DEADLINE : X2APIC_TMICT, 0);
}

static void nothing(struct bulkhead_frame *frame, uint64_t tsc)
{
    (void)frame;
    (void)tsc;
}

void bulkhead_sleep_until(uint64_t due)
{
    bulkhead_disable();
    bulkhead_timer_vector(SLEEP_VECTOR);
    while (bulkhead_tsc() < due) {
        bulkhead_arm(due);
        bulkhead_wait();
    }
    bulkhead_disarm();
}

void bulkhead_sleep(uint64_t nanos)
{
    bulkhead_sleep_until(bulkhead_tsc() + bulkhead_ticks(nanos));
}

/* Doorbells of channels. */

/* How often each vector's interrupt came; one core takes them. */
static uint64_t rung[256];

static void count_ring(struct bulkhead_frame *frame, uint64_t tsc)
{
    uint64_t *count = &rung[frame->vector & 0xFF];
    (void)tsc;
    __atomic_store_n(count, *count + 1, __ATOMIC_RELEASE);
}

void bulkhead_bell_answer(uint8_t vector)
{
    bulkhead_set_handler(vector, count_ring);
}

uint64_t bulkhead_bell_rung(uint8_t vector)
{
    return __atomic_load_n(&rung[vector], __ATOMIC_ACQUIRE);
}

bool bulkhead_bell_here(void)
{
    return bulkhead_apic_id() == the_info->core_ids[0];
}

void bulkhead_bell_ring(uint16_t port)
{
    bulkhead_outb(port, 0);
}

uint64_t bulkhead_bell_sleep(uint8_t vector, uint64_t seen, uint64_t until)
{
    const bool limited = until != UINT64_MAX;
    uint64_t flags;
    __asm__ volatile("pushfq; popq %0; cli" : "=r"(flags)::"memory");
    if (limited) {
        bulkhead_timer_vector(SLEEP_VECTOR);
        bulkhead_arm(until);
    }
    /* One that came before now is not slept over, and one that comes from here on ends the sleep. */
    if (bulkhead_bell_rung(vector) == seen)
        bulkhead_wait();
    if (limited)
        bulkhead_disarm();
    seen = bulkhead_bell_rung(vector);
    if (flags & 1 << 9)
        bulkhead_enable();
    return seen;
}

/* Own cores. */

static uint8_t stacks[BULKHEAD_MAX_CORES][STACK] __attribute__((aligned(16)));
static struct bulkhead_context smp_context;
static bulkhead_core_entry smp_entry;
static uint32_t smp_index, smp_up;
uint64_t bulkhead_smp_cr3, bulkhead_smp_cr4, bulkhead_smp_efer, bulkhead_smp_stack;
extern const uint8_t bulkhead_smp[];

uint32_t bulkhead_apic_id(void)
{
    return (uint32_t)bulkhead_rdmsr(X2APIC_ID);
}

void bulkhead_ipi(uint32_t apic_id, uint8_t vector)
{
    bulkhead_wrmsr(X2APIC_ICR, (uint64_t)apic_id << 32 | vector);
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

/* Windows. */

static const struct bulkhead_window *window(const struct bulkhead_info *info, const char *name, uint32_t kind)
{
    for (uint32_t i = 0; i < info->windows && i < BULKHEAD_INFO_MAX_CHANNELS; i++)
        if (info->window[i].kind == kind && bulkhead_same(info->window[i].name, name))
            return &info->window[i];
    return NULL;
}

const struct bulkhead_window *bulkhead_channel(struct bulkhead_context context, const char *name)
{
    return window(context.info, name, 0);
}

const struct bulkhead_window *bulkhead_report(struct bulkhead_context context, const char *name)
{
    return window(context.info, name, 1);
}

/* Entry. */

static void select_console(const char *device)
{
    uint64_t port;
    if (!device)
        return;
    if (device[0] == 'e' && device[1] == '9') {
        console_port = 0xE9;
        console_plain = true;
    } else if (bulkhead_number(device, &port) && port <= UINT16_MAX) {
        console_port = (uint16_t)port;
        uart_prepare(console_port);
    }
}

_Noreturn void bulkhead_start(uint64_t incarnation, const struct bulkhead_info *info)
{
    struct bulkhead_context context = {incarnation, info};
    uint32_t ecx, edx, eax = 1, ebx;
    the_info = info;
    intel = info->monitors == BULKHEAD_MONITORS_VMX;
    for (int vector = 0; vector < 256; vector++) {
        uint64_t entry = (uint64_t)bulkhead_vectors + 16 * (uint64_t)vector;
        idt[vector] = (struct gate){(uint16_t)entry, CODE, 0x8E00, (uint16_t)(entry >> 16), (uint32_t)(entry >> 32), 0};
    }
    load_tables();
    select_console(bulkhead_arg(context, "console"));
    __asm__("cpuid" : "+a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "c"(0));
    has_deadline = ecx >> 24 & 1;
    bulkhead_set_handler(SLEEP_VECTOR, nothing);
    bulkhead_exit(bulkhead_main(context));
}
