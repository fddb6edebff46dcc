/* Channels of a Linux sandbox (docs/linux-channels.md), for C. What gives a number gives one below 0 that says what
 * happened; an end is used by one thread at a time.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_CHANNEL_H
#define BULKHEAD_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#include "bulkhead-number.h" /* sdk/include */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bulkhead_sender bulkhead_sender;
typedef struct bulkhead_receiver bulkhead_receiver;

/* Why the last call of this thread that gave BULKHEAD_OPEN did. */
const char *bulkhead_channel_error(void);

/* The sending end of a channel, by its name in the manifest; of several receivers the nth, from 0. */
int bulkhead_sender_open(const char *name, uint32_t nth, bulkhead_sender **out);
/* Sends a message; waits so many milliseconds for room at most, below 0 for ever. A receiver that sleeps is woken. */
int bulkhead_send(bulkhead_sender *sender, const void *message, size_t len, int64_t millis);
/* Bytes of the longest message. */
size_t bulkhead_sender_longest(const bulkhead_sender *sender);
/* Leaves: the receiver reads what was sent, then is told. */
void bulkhead_sender_close(bulkhead_sender *sender);

/* The receiving end of a channel. */
int bulkhead_receiver_open(const char *name, bulkhead_receiver **out);
/* Receives a message; waits so many milliseconds at most, below 0 for ever. Its bytes. The buffer has room for the
 * longest one. */
int64_t bulkhead_receive(bulkhead_receiver *receiver, void *buffer, size_t len, int64_t millis);
/* Bytes of the longest message. */
size_t bulkhead_receiver_longest(const bulkhead_receiver *receiver);
/* For a loop of your own: what can be read when the receiver is to look again, after bulkhead_receiver_arm() gave 1.
 * BULKHEAD_WAIT where the channel's notify is "poll". It stays the receiver's. */
int bulkhead_receiver_fd(bulkhead_receiver *receiver);
/* Asks to be woken and looks once more: 1 if the loop may sleep, 0 if there is something to be received. The next
 * receive asks no longer. */
int bulkhead_receiver_arm(bulkhead_receiver *receiver);
/* Leaves, and the sender is told. */
void bulkhead_receiver_close(bulkhead_receiver *receiver);

#ifdef __cplusplus
}
#endif
#endif
