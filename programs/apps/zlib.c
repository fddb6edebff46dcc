/* zlib in a program of the kernel: a text is packed at each level, in pieces, and unpacked.
 *
 * The host runs this, too, and says the same.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define LENGTH 100000

/* Text with repetitions near and far, and some noise. */
static unsigned char *text(void)
{
    unsigned char *bytes = malloc(LENGTH);
    unsigned long state = 1;
    for (size_t at = 0; bytes && at < LENGTH; at++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        int copies = at > 5000 && state >> 61;
        bytes[at] = copies ? bytes[at - 4000 + at % 1000 / 100] : "separation kernel"[state >> 32 & 15];
    }
    return bytes;
}

/* Packs in pieces of 1000 bytes, and returns the length. */
static size_t pack(int level, unsigned char *from, unsigned char *to, size_t room)
{
    z_stream stream = {.next_out = to, .avail_out = (uInt)room};
    if (deflateInit(&stream, level) != Z_OK)
        return 0;
    int status = Z_OK;
    for (size_t at = 0; at < LENGTH && status == Z_OK; at += 1000) {
        stream.next_in = from + at;
        stream.avail_in = 1000;
        status = deflate(&stream, at + 1000 < LENGTH ? Z_NO_FLUSH : Z_FINISH);
    }
    deflateEnd(&stream);
    return status == Z_STREAM_END ? stream.total_out : 0;
}

int main(void)
{
    size_t room = compressBound(LENGTH);
    unsigned char *from = text(), *packed = malloc(room), *back = malloc(LENGTH);
    if (!from || !packed || !back)
        return 2;
    printf("text: CRC-32 %08lx, Adler-32 %08lx\n", crc32(0, from, LENGTH), adler32(1, from, LENGTH));
    for (int level = 0; level <= 9; level += 3) {
        size_t length = pack(level, from, packed, room);
        uLongf unpacked = LENGTH;
        int status = uncompress(back, &unpacked, packed, length);
        int same = status == Z_OK && unpacked == LENGTH && !memcmp(from, back, LENGTH);
        printf("level %d: %zu bytes, CRC-32 %08lx, back %s\n", level, length, crc32(0, packed, (uInt)length),
               same ? "whole" : "WRONG");
        packed[length / 2] ^= 1;
        unpacked = LENGTH;
        printf("  a bit wrong: %d\n", uncompress(back, &unpacked, packed, length));
    }
    free(back);
    free(packed);
    free(from);
    printf("zlib %s ended\n", zlibVersion());
    return 0;
}
