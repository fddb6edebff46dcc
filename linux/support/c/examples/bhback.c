/* Sends back what comes: `bhback IN OUT COUNT`. It sleeps in a loop of its own, on the file descriptor of the receiver.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "bulkhead_channel.h"
#include <err.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

/* How long to wait for the other end, milliseconds. */
#define PATIENCE 20000

int main(int argc, char **argv)
{
    bulkhead_receiver *in;
    bulkhead_sender *out;
    long slept = 0;

    if (argc != 4)
        errx(2, "usage: bhback IN OUT COUNT");
    if (bulkhead_receiver_open(argv[1], &in) < 0 || bulkhead_sender_open(argv[2], 0, &out) < 0)
        errx(1, "%s", bulkhead_channel_error());
    long count = strtol(argv[3], NULL, 10);
    size_t room = bulkhead_receiver_longest(in);
    char *message = malloc(room);
    struct pollfd news = { .fd = bulkhead_receiver_fd(in), .events = POLLIN };
    if (!message || news.fd < 0)
        errx(1, "no memory, or nobody wakes the receiver of %s: %d", argv[1], news.fd);

    for (long number = 0; number < count;) {
        int64_t len = bulkhead_receive(in, message, room, 0);
        if (len == BULKHEAD_WAIT || len == BULKHEAD_APART) {
            if (bulkhead_receiver_arm(in) == 1) {
                slept++;
                if (poll(&news, 1, PATIENCE) != 1)
                    errx(1, "nothing came for %d ms", PATIENCE);
            }
            continue;
        }
        if (len < 0)
            errx(1, "receive: %" PRId64, len);
        int sent = bulkhead_send(out, message, (size_t)len, PATIENCE);
        if (sent < 0)
            errx(1, "send: %d", sent);
        number++;
    }
    printf("bhback: %ld messages, slept %ld times\n", count, slept);
    bulkhead_receiver_close(in);
    bulkhead_sender_close(out);
    free(message);
    return 0;
}
