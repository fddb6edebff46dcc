/* The C runtime of the kernel's programs: see program/include/bulkhead-program.h.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead-program.h>

#include "../../sdk/c/text.h"

/* As many buffers as lie between theirs and the stacks. */
enum { THREADS = (BULKHEAD_AT_STACKS - BULKHEAD_AT_BUFFERS) / BULKHEAD_BUFFER_SIZE };

/* Where each thread's stack ends, once it runs; 0 before. */
static uintptr_t stacks[THREADS];

void bulkhead_begin(uint64_t thread, const void *frame)
{
    /* The frame of an entry is the first one of its stack, whole pages. */
    __atomic_store_n(&stacks[thread % THREADS], ((uintptr_t)frame | 0xFFF) + 1, __ATOMIC_RELAXED);
}

/* Stacks lie apart, so whose end comes next above this frame is who runs. */
uint32_t bulkhead_thread(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0), end = UINTPTR_MAX;
    uint32_t found = 0;
    for (uint32_t n = 0; n < THREADS; n++) {
        uintptr_t other = __atomic_load_n(&stacks[n], __ATOMIC_RELAXED);
        if (other > here && other < end) {
            end = other;
            found = n;
        }
    }
    return found;
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
