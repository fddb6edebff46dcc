/* What a bare guest needs, for C: the counterpart of the Rust crate
 * bulkhead-sdk, with the same parts under the same names. An architecture's
 * own parts are in bulkhead/arch, and included below.
 *
 * A guest defines bulkhead_main and is linked with the files of sdk/c and with
 * sdk/guest.ld; guests/hello-c/build.sh shows how. It is compiled with
 * -ffreestanding -mno-red-zone: interrupts use the stack that is in use. Vector
 * registers are on, but interrupt handlers save general registers only: compile
 * them with __attribute__((target("general-regs-only"))).
 * Ends of channels that carry messages: bulkhead-channel.h.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_H
#define BULKHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bulkhead-layout.h"
#include "bulkhead-marker.h"

/* One end of a channel, or an observed sandbox's report. */
struct bulkhead_window {
    char name[BULKHEAD_INFO_NAME];
    uint64_t gpa;
    uint64_t size;
    uint32_t writable;
    uint32_t kind;     /* 0 = channel, 1 = report, 2 = link: `message` is its number,
                        * `messages` its owner's index; a page of the other's lies behind */
    uint32_t messages; /* of a channel: 0 = raw pages, 1 = queue, 2 = records, 3 = mailbox; of all but
                        * raw pages the receiver's page lies behind, with the rights the other way round */
    uint32_t message;  /* bytes of a message, of queue and mailbox */
};

/* The information page. */
struct bulkhead_info {
    uint64_t magic;
    uint32_t version;
    uint32_t sandbox;
    char name[BULKHEAD_INFO_NAME];
    uint64_t hz;
    uint64_t timer_hz;
    uint64_t memory;
    uint32_t cores;
    uint32_t windows;
    uint32_t core_ids[BULKHEAD_MAX_CORES];
    struct bulkhead_window window[BULKHEAD_INFO_MAX_CHANNELS];
    char args[BULKHEAD_INFO_ARGS_SIZE];
    uint32_t lines;       /* own interrupt lines, as a set */
    uint32_t level_lines; /* level-triggered ones of them */
    uint64_t level_vectors[4];
    uint8_t more[BULKHEAD_INFO_OFFSET_MONITORS - BULKHEAD_INFO_OFFSET_BELLS];
    uint64_t monitors; /* kind of its monitor */
    uint64_t alive;    /* microseconds from a move of a core's progress word to the next */
    uint64_t snapshot; /* most bytes of a snapshot */
};

#define BULKHEAD_SAME(field, NAME) \
    _Static_assert(offsetof(struct bulkhead_info, field) == BULKHEAD_INFO_OFFSET_##NAME, #field)
BULKHEAD_SAME(version, VERSION);
BULKHEAD_SAME(sandbox, SANDBOX);
BULKHEAD_SAME(name, NAME);
BULKHEAD_SAME(hz, HZ);
BULKHEAD_SAME(timer_hz, TIMER_HZ);
BULKHEAD_SAME(memory, MEMORY);
BULKHEAD_SAME(cores, CORES);
BULKHEAD_SAME(windows, WINDOWS);
BULKHEAD_SAME(core_ids, CORE_IDS);
BULKHEAD_SAME(window, WINDOW);
BULKHEAD_SAME(args, ARGS);
BULKHEAD_SAME(lines, LINES);
BULKHEAD_SAME(level_lines, LEVEL_LINES);
BULKHEAD_SAME(level_vectors, LEVEL_VECTORS);
BULKHEAD_SAME(monitors, MONITORS);
BULKHEAD_SAME(alive, ALIVE);
BULKHEAD_SAME(snapshot, SNAPSHOT);
_Static_assert(sizeof(struct bulkhead_window) == BULKHEAD_INFO_WINDOW_SIZE, "window");

/* Entry. */
struct bulkhead_context {
    uint64_t incarnation;
    const struct bulkhead_info *info;
};

/* Defined by the guest; returns its exit code. */
uint32_t bulkhead_main(struct bulkhead_context context);

/* The value of the argument key=value ("" for a bare key) up to a blank, or NULL. */
const char *bulkhead_arg(struct bulkhead_context context, const char *key);
/* The value of key=number, decimal or with 0x, or the default. */
uint64_t bulkhead_arg_u64(struct bulkhead_context context, const char *key, uint64_t otherwise);

/* Console: the hypercall, or a device that was passed through, as the argument
 * console=0x2f8 or console=e9 says. printf knows %s %c %d %u %x %p %%, and l. */
void bulkhead_write(const char *text, size_t length);
void bulkhead_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Hypercalls. */
uint64_t bulkhead_hypercall(uint64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d);
_Noreturn void bulkhead_exit(uint32_t code);
_Noreturn void bulkhead_restart(void);
void bulkhead_ready(void);
/* Locks this sandbox, or unlocks it: while it is locked, no other sandbox stops or restarts it. From the first core,
 * and where the manifest has `lockable`. */
uint64_t bulkhead_lock(bool locked);
uint64_t bulkhead_control(uint32_t sandbox, uint64_t request);
uint64_t bulkhead_status(uint32_t sandbox);

/* Signs of life for the watchdog, where the manifest has `alive`: moves the calling core's progress word. It goes on,
 * and has to say so again within bulkhead_alive, in nanoseconds; 0: nobody looks. bulkhead_rest says that it does not
 * report any more, until it does again. */
void bulkhead_kick(struct bulkhead_context context);
void bulkhead_rest(struct bulkhead_context context);
uint64_t bulkhead_alive(struct bulkhead_context context);

/* Snapshots: state that outlives this guest, where the manifest has `snapshot`. A guest puts it on pages of its own,
 * names them in each life, and takes a snapshot with the set of pages that have changed. On the first core. */
#define BULKHEAD_PAGED __attribute__((aligned(BULKHEAD_PAGE)))
/* BULKHEAD_OK, or why not. */
uint64_t bulkhead_snapshot_keep(const void *at, size_t bytes);
uint64_t bulkhead_snapshot_take(uint64_t changed);
/* Number of the snapshot that this life may begin with; 0: there is none. */
uint64_t bulkhead_snapshot_last(struct bulkhead_context context);
/* Copies bytes of it from the start of a page on; false: it does not have so many. */
bool bulkhead_snapshot_read(struct bulkhead_context context, size_t page, void *to, size_t bytes);

/* Roles: places that one of several sandboxes has at a time. A guest touches the ends of a role's channels while it has
 * the role, and opens them anew in each epoch. */
/* The epoch in which this sandbox has the role; 0: it has not. */
uint64_t bulkhead_role_epoch(struct bulkhead_context context, const char *name);
/* Gives all roles away and begins anew. Returns the monitor's word if no other sandbox can take one. */
uint64_t bulkhead_role_give(void);

/* Interrupts and exceptions: a handler for each number, for all cores, with what was interrupted and the clock's
 * counter at entry. Handlers run with interrupts off, and interrupts are acknowledged after them. An exception without
 * a handler ends the guest with exit code 101. */
struct bulkhead_frame;
typedef void (*bulkhead_handler)(struct bulkhead_frame *frame, uint64_t now);
void bulkhead_set_handler(uint8_t number, bulkhead_handler handler);
/* The number that a handler is called for. */
static inline uint8_t bulkhead_number_of(const struct bulkhead_frame *frame);
static inline void bulkhead_enable(void);
static inline void bulkhead_disable(void);
/* Lets interrupts in and sleeps until one came; returns with interrupts off. */
static inline void bulkhead_wait(void);

/* Registers of devices. A monitor decodes one form of access alone where it mediates them, so that is what these are,
 * whatever the compiler would make of a pointer. */
static inline uint32_t bulkhead_read32(uint64_t address);
static inline void bulkhead_write32(uint64_t address, uint32_t value);
static inline uint64_t bulkhead_read64(uint64_t address);
static inline void bulkhead_write64(uint64_t address, uint64_t value);

/* PCI functions: the sandbox's own at their physical addresses, and nothing else. Finding
 * and setting up costs exits; what a driver then does with its registers, its memory and
 * its interrupts costs none. A device's addresses are guest-physical ones, which are also
 * this program's. A function is bus in bits 15:8, device in 7:3, function in 2:0. */
typedef uint16_t bulkhead_function;
#define BULKHEAD_NO_FUNCTION 0xFFFF
enum {
    BULKHEAD_PCI_ID = 0x00,           /* vendor below, device above */
    BULKHEAD_PCI_COMMAND = 0x04,      /* status above */
    BULKHEAD_PCI_CLASS = 0x08,        /* above the revision */
    BULKHEAD_PCI_HEADER = 0x0C,       /* type in bits 23:16 */
    BULKHEAD_PCI_BAR = 0x10,          /* the first of six */
    BULKHEAD_PCI_CAPABILITIES = 0x34, /* offset of the first */
};
#define BULKHEAD_PCI_MEMORY 0x2u     /* command: it answers in memory */
#define BULKHEAD_PCI_BUS_MASTER 0x4u /* command: it may access memory and send messages */
#define BULKHEAD_PCI_ABSENT 0xFFFFFFFFu
enum { BULKHEAD_PCI_MSI = 0x05, BULKHEAD_PCI_MSIX = 0x11 };
/* A 32-bit register; offset is a multiple of 4 below 4096. What the sandbox may not
 * write is denied. */
uint32_t bulkhead_pci_read(bulkhead_function function, uint16_t offset);
void bulkhead_pci_write(bulkhead_function function, uint16_t offset, uint32_t value);
/* The first one on the first two buses with this vendor and device, or this class
 * (class, subclass, interface: 0x010802); BULKHEAD_NO_FUNCTION if there is none. */
bulkhead_function bulkhead_pci_find(uint16_t vendor, uint16_t device);
bulkhead_function bulkhead_pci_find_class(uint32_t class_code);
/* Offset of its first capability with this ID; 0 if it has none. */
uint16_t bulkhead_pci_capability(bulkhead_function function, uint8_t id);
/* Address of memory BAR 0 to 5; 0 if it is one of ports, the upper half of another one,
 * or absent. */
uint64_t bulkhead_pci_bar(bulkhead_function function, unsigned number);
/* Lets it answer in memory, access memory and send messages. */
void bulkhead_pci_enable(bulkhead_function function);
/* Entries of its MSI-X table. */
unsigned bulkhead_pci_msix_vectors(bulkhead_function function);
/* Lets entry `number` of its MSI-X table, or its MSI, raise an interrupt on the core with this
 * hardware ID, and sets the handler. False if there is no such thing; a core of another
 * sandbox is denied. Enable the function before. */
bool bulkhead_pci_msix(bulkhead_function function, unsigned number, uint32_t core, uint8_t interrupt,
                       bulkhead_handler handler);
bool bulkhead_pci_msi(bulkhead_function function, uint32_t core, uint8_t interrupt, bulkhead_handler handler);

/* Time, in ticks of the clock's counter unless it says nanoseconds. */
uint64_t bulkhead_counter(void);
uint64_t bulkhead_nanos(uint64_t ticks);
uint64_t bulkhead_ticks(uint64_t nanos);
/* Lets this core's timer raise an interrupt; arm it for an absolute value of the counter. */
void bulkhead_timer_interrupt(uint8_t number);
void bulkhead_arm(uint64_t due);
void bulkhead_disarm(void);
void bulkhead_sleep_until(uint64_t due);
void bulkhead_sleep(uint64_t nanos);

/* Own cores. */
typedef void (*bulkhead_core_entry)(struct bulkhead_context context, uint32_t index);
/* Starts core `index` (from 1); false if it did not come up within 100 ms. */
bool bulkhead_start_core(struct bulkhead_context context, uint32_t index, bulkhead_core_entry entry);
/* Raises an interrupt on the core with this hardware ID. */
void bulkhead_ipi(uint32_t core, uint8_t interrupt);
/* Hardware ID of the calling core. */
uint32_t bulkhead_core_id(void);

/* Shared windows: volatile, because another sandbox may change them. */
const struct bulkhead_window *bulkhead_channel(struct bulkhead_context context, const char *name);
const struct bulkhead_window *bulkhead_report(struct bulkhead_context context, const char *name);
static inline volatile uint64_t *bulkhead_words(const struct bulkhead_window *window)
{
    return (volatile uint64_t *)window->gpa;
}

#if defined(__x86_64__)
#include "bulkhead/arch/x86.h"
#else
#error "sdk/include/bulkhead/arch has no header for this architecture"
#endif

#endif
