/* Where a program in plain C begins and ends.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "libc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/reent.h>

int main(int argc, char **argv);

/* A symbol for `bulkhead check`: threads of this file need vector registers. */
const char bulkhead_needs_fpu __attribute__((used, section(".threads"))) = 1;

/* newlib's state of a thread. The first one has that which is made when the program is linked. */
static _Thread_local struct _reent *state;

struct _reent *__getreent(void)
{
    return state ? state : _impure_ptr;
}

void libc_state(struct _reent *of)
{
    state = of;
}

/* The thread's name in the manifest: its reply object has it, in the order of the threads. */
static const char *name_of(int thread)
{
    const struct bulkhead_page *page = bulkhead_page();
    for (uint64_t n = 0; n < page->names; n++) {
        const struct bulkhead_name *entry = page->name_of + n;
        bool reply = entry->tag == BULKHEAD_NAME_CAPABILITY && entry->capability.kind == BULKHEAD_KIND_REPLY;
        if (reply && !thread--)
            return entry->name;
    }
    return NULL;
}

int libc_count(void)
{
    int count = 0;
    while (count < LIBC_THREADS && name_of(count))
        count++;
    return count;
}

/* Finds the thread's capability, and what it may do with it. */
static void identify(int thread)
{
    struct libc_thread *self = libc_threads + thread;
    const struct bulkhead_page *page = bulkhead_page();
    const char *name = name_of(thread);
    for (uint64_t n = 0; name && n < page->names; n++) {
        const struct bulkhead_name *entry = page->name_of + n;
        if (entry->tag != BULKHEAD_NAME_CAPABILITY || entry->capability.kind != BULKHEAD_KIND_THREAD ||
            strcmp(entry->name, name))
            continue;
        self->own = self->now = entry->capability.priority;
        /* No thread has a priority of 256. The refusal says what it may give. */
        uint32_t capability = entry->capability.address;
        uint64_t words[BULKHEAD_REGISTER_WORDS] = {256, 0, capability};
        self->most = (uint8_t)(bulkhead_invoke(capability, BULKHEAD_THREAD_SET_PRIORITY, words) >> 16);
        self->capability = capability;
        return;
    }
}

void libc_begin(void)
{
    int thread = libc_self();
    if (thread >= LIBC_THREADS) {
        bulkhead_printf("%s: a program has %d threads at most\n", bulkhead_page()->name, LIBC_THREADS);
        bulkhead_stop();
    }
    struct libc_thread *self = libc_threads + thread;
    if (self->wakes)
        return;
    identify(thread);
    /* From the last slot downwards: a program of its own may take them from the first one upwards. */
    uint32_t slot = bulkhead_page()->free[1] - 1 - (uint32_t)thread;
    uint64_t words[BULKHEAD_REGISTER_WORDS] = {BULKHEAD_KIND_NOTIFICATION | 1 << 16, BULKHEAD_SLOT_NODE, slot};
    if (!bulkhead_invoke(BULKHEAD_SLOT_MEMORY, BULKHEAD_UNTYPED_RETYPE, words))
        self->wakes = slot;
}

/* The program's arguments as words. Blanks are between them, except within ' or ". */
static int split(char *text, char **words, int most)
{
    int count = 0;
    while (count < most) {
        while (*text == ' ')
            text++;
        if (!*text)
            break;
        char *to = words[count++] = text, quote = 0;
        for (; *text && (quote || *text != ' '); text++)
            if (quote ? *text == quote : *text == '\'' || *text == '"')
                quote = quote ? 0 : *text;
            else
                *to++ = *text;
        if (*text)
            text++;
        *to = 0;
    }
    return count;
}

extern void (*const bulkhead_init_start[])(void), (*const bulkhead_init_end[])(void);

static int first(uint32_t thread)
{
    static char arguments[BULKHEAD_PAGE_ARGS + 1], name[BULKHEAD_PAGE_NAME + 1];
    static char *argv[BULKHEAD_PAGE_ARGS / 2 + 2];
    (void)thread;
    libc_begin();
    libc_threads[0].state = LIBC_RUNNING;
    memcpy(arguments, bulkhead_page()->args, BULKHEAD_PAGE_ARGS);
    memcpy(name, bulkhead_page()->name, BULKHEAD_PAGE_NAME);
    argv[0] = name;
    int argc = 1 + split(arguments, argv + 1, BULKHEAD_PAGE_ARGS / 2);
    for (void (*const *init)(void) = bulkhead_init_start; init != bulkhead_init_end; init++)
        (*init)();
    exit(main(argc, argv));
}
BULKHEAD_THREAD(_start, first)

/* Ends the sandbox, if the manifest lets the program do so, else the calling thread. */
_Noreturn void _exit(int code)
{
    uint64_t words[BULKHEAD_REGISTER_WORDS] = {(uint32_t)code};
    if (bulkhead_invoke(BULKHEAD_SLOT_SANDBOX, BULKHEAD_SANDBOX_EXIT, words) && code)
        bulkhead_printf("%s: exit code %d\n", bulkhead_page()->name, code);
    bulkhead_stop();
}
