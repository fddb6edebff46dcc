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

static int first(uint32_t thread)
{
    (void)thread;
    return main();
}
BULKHEAD_THREAD(_start, first)

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

uint32_t bulkhead_find(const char *name, uint8_t kind, uint8_t rights)
{
    const struct bulkhead_page *page = bulkhead_page();
    for (uint64_t n = 0; n < page->names; n++) {
        const struct bulkhead_name *entry = &page->name_of[n];
        if (entry->kind == kind && (entry->rights & rights) == rights && bulkhead_same(entry->name, name))
            return entry->address;
    }
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

static const struct bulkhead_name *memory_of(const char *name)
{
    const struct bulkhead_page *page = bulkhead_page();
    for (uint64_t n = 0; n < page->names; n++) {
        const struct bulkhead_name *entry = &page->name_of[n];
        if (entry->len && bulkhead_same(entry->name, name))
            return entry;
    }
    return NULL;
}

void *bulkhead_memory(const char *name, uint64_t *len)
{
    const struct bulkhead_name *entry = memory_of(name);
    if (!entry)
        return NULL;
    if (len)
        *len = entry->len;
    return (void *)entry->memory;
}

void *bulkhead_memory_for_device(const char *name, uint64_t *len, uint64_t *address)
{
    const struct bulkhead_name *entry = memory_of(name);
    if (!entry || !entry->address)
        return NULL;
    *address = entry->address;
    return bulkhead_memory(name, len);
}
