/* Ends of channels (docs/channels.md) for bare guests in C, by the same names as a Linux has (linux/support/c). They
 * are in Rust: link with libbulkhead_sdk_c.a (guests/talk-c; tools/build.sh builds it).
 *
 * What gives a number gives one below 0 that says what happened. An end lies where the guest puts it, and stays there:
 * a copy of one is refused. It is used by one core at a time, and by no interrupt handler while what that interrupts
 * uses it. No vector registers are used, so handlers may have ends of their own, but they must not wait.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_CHANNEL_H
#define BULKHEAD_CHANNEL_H

#include "bulkhead-number.h"
#include "bulkhead.h"

/* An end. What is in it is the library's. */
#define BULKHEAD_SENDER_BYTES 384
#define BULKHEAD_RECEIVER_BYTES 384
typedef struct bulkhead_sender {
    uint64_t own[BULKHEAD_SENDER_BYTES / 8];
} bulkhead_sender;
typedef struct bulkhead_receiver {
    uint64_t own[BULKHEAD_RECEIVER_BYTES / 8];
} bulkhead_receiver;
_Static_assert(sizeof(bulkhead_sender) == BULKHEAD_SENDER_BYTES && _Alignof(bulkhead_sender) == 8, "sender");
_Static_assert(sizeof(bulkhead_receiver) == BULKHEAD_RECEIVER_BYTES && _Alignof(bulkhead_receiver) == 8, "receiver");

/* The sending end of a channel, by its name in the manifest; of several receivers the nth, from 0. Of a queue, records,
 * or a mailbox. */
int bulkhead_sender_open(struct bulkhead_context context, const char *name, uint32_t nth, bulkhead_sender *out);
/* Sends a message; looks for room for so many milliseconds at most, 0: once, below 0: for ever. A receiver that sleeps
 * is woken. A mailbox always has room. */
int bulkhead_send(bulkhead_sender *sender, const void *message, size_t len, int64_t millis);
/* Bytes of the longest message; of a queue and a mailbox of each. */
size_t bulkhead_sender_longest(const bulkhead_sender *sender);
/* Looks at the receiver: 0 if there is a session. For who sends rarely, and before the first message. */
int bulkhead_sender_attend(bulkhead_sender *sender);
/* Leaves the session, if there is one, and offers another: after BULKHEAD_CORRUPTED. */
void bulkhead_sender_reset(bulkhead_sender *sender);
/* Leaves: the receiver reads what was sent, then is told. */
void bulkhead_sender_close(bulkhead_sender *sender);

/* The receiving end of a channel. If its notify is "doorbell" or "adaptive", the handler of its vector is set. */
int bulkhead_receiver_open(struct bulkhead_context context, const char *name, bulkhead_receiver *out);
/* Receives a message; waits so many milliseconds at most, 0: not at all, below 0: for ever. Its bytes. The buffer has
 * room for the longest one. Where a doorbell wakes it, the sandbox's first core sleeps meanwhile, with interrupts let
 * in; a limit takes that core's timer, as bulkhead_sleep does. Elsewhere it looks all the time. */
int64_t bulkhead_receive(bulkhead_receiver *receiver, void *buffer, size_t len, int64_t millis);
/* Bytes of the longest message; of a queue and a mailbox of each. */
size_t bulkhead_receiver_longest(const bulkhead_receiver *receiver);
/* For a loop of your own, on the first core, with interrupts off: asks to be woken and looks once more. 1:
 * bulkhead_wait() ends when there is news, or by another interrupt; 0: there is something to be received;
 * BULKHEAD_WAIT: nobody wakes it, the channel's notify is "poll". The next receive asks no longer. */
int bulkhead_receiver_arm(bulkhead_receiver *receiver);
/* How many interrupts have come for it. */
uint64_t bulkhead_receiver_interrupts(const bulkhead_receiver *receiver);
/* Looks at the sender: 0 if there is a session. */
int bulkhead_receiver_attend(bulkhead_receiver *receiver);
/* Leaves the session, if there is one, and offers another. */
void bulkhead_receiver_reset(bulkhead_receiver *receiver);
/* Leaves, and the sender is told. */
void bulkhead_receiver_close(bulkhead_receiver *receiver);

#endif
