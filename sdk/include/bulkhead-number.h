/* Results below 0 of ends of channels, in a bare guest and in a Linux. A test of crates/channel/channel-memory
 * derives this file from there (BLESS=1 cargo test -p bulkhead-channel-memory writes it anew).
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_NUMBER_H
#define BULKHEAD_NUMBER_H

/* Nothing to be received, or no room, within the time. */
#define BULKHEAD_WAIT (-1)
/* No peer at the other end yet, within the time. */
#define BULKHEAD_APART (-2)
/* Told once: the peer began anew; messages under way are lost. */
#define BULKHEAD_LOST (-3)
/* Told once: the peer has left, and all its earlier messages were read. */
#define BULKHEAD_LEFT (-4)
/* Told once: the peer spoilt the channel. A receiver has begun a new session; a sender is closed until reset. */
#define BULKHEAD_CORRUPTED (-5)
/* The peer's memory is another kind of channel. */
#define BULKHEAD_FOREIGN (-6)
/* The message is too long, or of a bare guest's queue or mailbox too short, or the buffer is. */
#define BULKHEAD_SIZE (-7)
/* This end is closed, or was spoilt and not reset. */
#define BULKHEAD_CLOSED (-8)
/* A null pointer; in a Linux a name that is no UTF-8, in a bare guest no end that was opened here. */
#define BULKHEAD_ARGUMENT (-9)
/* The sandbox has no such channel; in a Linux bulkhead_channel_error() says why it could not be opened. */
#define BULKHEAD_OPEN (-10)
/* In a Linux: a fault of the library's. */
#define BULKHEAD_FAULT (-11)
/* In a bare guest: it has the channel's other end, or that carries no messages. */
#define BULKHEAD_MISFIT (-12)

#endif
