/* Text and memory, for guests and for programs of the kernel: arguments, printf, and what GCC may call.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "text.h"
#include <stdarg.h>

/* Also what GCC may call in freestanding code; newlib has its own. */
#ifndef BULKHEAD_APP
void *memset(void *to, int byte, size_t length)
{
    void *start = to;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(length) : "a"(byte) : "memory");
    return start;
}

void *memcpy(void *to, const void *from, size_t length)
{
    void *start = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
    return start;
}
#endif

/* Arguments. */

bool bulkhead_same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

const char *bulkhead_find_arg(const char *at, size_t length, const char *key)
{
    const char *end = at + length;
    while (at < end && *at) {
        const char *k = key;
        while (at < end && *at == ' ')
            at++;
        while (at < end && *k && *at == *k) {
            at++;
            k++;
        }
        if (!*k && (at == end || !*at || *at == ' '))
            return "";
        if (!*k && *at == '=')
            return at + 1;
        while (at < end && *at && *at != ' ')
            at++;
    }
    return NULL;
}

bool bulkhead_number(const char *text, uint64_t *value)
{
    uint64_t base = 10, result = 0;
    const char *start = text;
    if (text[0] == '0' && text[1] == 'x') {
        base = 16;
        start = text += 2;
    }
    for (;; text++) {
        uint64_t digit;
        if (*text >= '0' && *text <= '9')
            digit = (uint64_t)(*text - '0');
        else if ((*text | 32) >= 'a' && (*text | 32) <= 'f')
            digit = (uint64_t)((*text | 32) - 'a' + 10);
        else
            break;
        if (digit >= base)
            break;
        result = result * base + digit;
    }
    *value = result;
    return text != start && (*text == ' ' || *text == 0);
}

/* Console. */

/* Collects bytes, so that a line costs few calls, and those of several programs do not mix. */
struct line {
    char bytes[160];
    size_t length;
};

static void put(struct line *line, char byte)
{
    line->bytes[line->length++] = byte;
    if (line->length == sizeof line->bytes) {
        bulkhead_write(line->bytes, line->length);
        line->length = 0;
    }
}

static void put_number(struct line *line, uint64_t value, uint64_t base)
{
    char digits[20];
    int n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    while (n)
        put(line, digits[--n]);
}

void bulkhead_printf(const char *format, ...)
{
    struct line line = {.length = 0};
    va_list args;
    va_start(args, format);
    for (; *format; format++) {
        bool wide = false;
        if (*format != '%') {
            put(&line, *format);
            continue;
        }
        while (*++format == 'l')
            wide = true;
        if (*format == 's') {
            for (const char *s = va_arg(args, const char *); *s; s++)
                put(&line, *s);
        } else if (*format == 'c') {
            put(&line, (char)va_arg(args, int));
        } else if (*format == 'd') {
            int64_t value = wide ? va_arg(args, long) : va_arg(args, int);
            if (value < 0)
                put(&line, '-');
            put_number(&line, value < 0 ? -(uint64_t)value : (uint64_t)value, 10);
        } else if (*format == 'p') {
            put_number(&line, (uint64_t)va_arg(args, void *), 16);
        } else if (*format == 'u' || *format == 'x') {
            uint64_t value = wide ? va_arg(args, unsigned long) : va_arg(args, unsigned);
            put_number(&line, value, *format == 'u' ? 10 : 16);
        } else if (*format) {
            put(&line, *format);
        } else {
            break;
        }
    }
    va_end(args);
    if (line.length)
        bulkhead_write(line.bytes, line.length);
}
