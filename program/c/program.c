/* The C runtime of the kernel's programs: see program/include/bulkhead-program.h.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead-program.h>

#include "../../sdk/c/text.h"

static _Thread_local uint32_t number;

void bulkhead_begin(uint64_t thread)
{
    number = (uint32_t)thread;
}

uint32_t bulkhead_thread(void)
{
    return number;
}

/* With newlib a program begins in program/libc. */
#ifndef BULKHEAD_APP
static int first(uint32_t thread)
{
    (void)thread;
    return main();
}
BULKHEAD_THREAD(_start, first)
#endif

void bulkhead_exit(uint32_t code)
{
    uint64_t words[BULKHEAD_REGISTER_WORDS] = {code};
    bulkhead_invoke(BULKHEAD_SLOT_SANDBOX, BULKHEAD_SANDBOX_EXIT, words);
    bulkhead_stop();
}

void bulkhead_write(const char *text, size_t length)
{
    uint64_t words[BULKHEAD_REGISTER_WORDS];
    for (; length; text += sizeof words) {
        size_t part = length < sizeof words ? length : sizeof words;
        memset(words, 0, sizeof words);
        memcpy(words, text, part);
        /* A sandbox without a console takes nothing. */
        bulkhead_invoke(BULKHEAD_SLOT_SANDBOX, BULKHEAD_SANDBOX_PRINT, words);
        length -= part;
    }
}

const char *bulkhead_arg(const char *key)
{
    return bulkhead_find_arg(bulkhead_page()->args, BULKHEAD_PAGE_ARGS, key);
}

uint64_t bulkhead_arg_u64(const char *key, uint64_t otherwise)
{
    const char *text = bulkhead_arg(key);
    uint64_t value;
    return text && bulkhead_number(text, &value) ? value : otherwise;
}

/* The next entry of a name from a number on, which is then one past it; NULL: there is none. */
static const struct bulkhead_name *next_of(const char *name, uint64_t *number)
{
    const struct bulkhead_page *page = bulkhead_page();
    while (*number < page->names) {
        const struct bulkhead_name *entry = &page->name_of[(*number)++];
        if (bulkhead_same(entry->name, name))
            return entry;
    }
    return NULL;
}

uint32_t bulkhead_find(const char *name, uint8_t kind, uint8_t rights)
{
    const struct bulkhead_name *entry;
    for (uint64_t n = 0; (entry = next_of(name, &n));)
        if (entry->tag == BULKHEAD_NAME_CAPABILITY && entry->capability.kind == kind &&
            (entry->capability.rights & rights) == rights)
            return entry->capability.address;
        else if (entry->tag == BULKHEAD_NAME_CONTEXT && kind == BULKHEAD_KIND_CONTEXT)
            return entry->context.address;
    return 0;
}

uint32_t bulkhead_need(const char *name, uint8_t kind, uint8_t rights)
{
    uint32_t address = bulkhead_find(name, kind, rights);
    if (!address) {
        bulkhead_printf("%s: the manifest gives it no %s of kind %u\n", bulkhead_page()->name, name, kind);
        bulkhead_exit(101);
    }
    return address;
}

void *bulkhead_memory(const char *name, uint64_t *len)
{
    const struct bulkhead_name *entry;
    for (uint64_t n = 0; (entry = next_of(name, &n));) {
        bool messages = entry->tag == BULKHEAD_NAME_MESSAGES;
        if (!messages && entry->tag != BULKHEAD_NAME_MEMORY)
            continue;
        if (len)
            *len = messages ? entry->messages.len : entry->memory.len;
        return (void *)(messages ? entry->messages.start : entry->memory.start);
    }
    return NULL;
}

void *bulkhead_memory_for_device(const char *name, uint64_t *len, uint64_t *address)
{
    const struct bulkhead_name *entry;
    for (uint64_t n = 0; (entry = next_of(name, &n));) {
        if (entry->tag != BULKHEAD_NAME_MEMORY || !entry->memory.device)
            continue;
        *address = entry->memory.device;
        if (len)
            *len = entry->memory.len;
        return (void *)entry->memory.start;
    }
    return NULL;
}

uint64_t bulkhead_role_epoch(const char *name)
{
    const struct bulkhead_name *entry;
    for (uint64_t n = 0; (entry = next_of(name, &n));)
        if (entry->tag == BULKHEAD_NAME_ROLE)
            return *(const volatile uint64_t *)entry->role.word;
    return 0;
}

/* Memory with a name of two parts; NULL also where they have no room: that is no memory's name. */
static void *memory_of(const char *before, const char *behind, uint64_t *len)
{
    char name[BULKHEAD_PAGE_NAME] = "";
    size_t at = 0;
    for (; *before && at < sizeof name - 1; before++)
        name[at++] = *before;
    for (; !*before && *behind && at < sizeof name - 1; behind++)
        name[at++] = *behind;
    return *before || *behind ? NULL : bulkhead_memory(name, len);
}

volatile uint64_t *bulkhead_sign(const char *thread)
{
    return memory_of("alive-", thread, NULL);
}

bool bulkhead_snapshot_find(struct bulkhead_snapshots *snapshots, const char *keeper, const char *state)
{
    snapshots->keeper = bulkhead_endpoint(keeper);
    snapshots->kept = memory_of(state, "-kept", &snapshots->kept_len);
    /* A page before two buffers. */
    return snapshots->kept && snapshots->kept_len >= 3 * 4096;
}
