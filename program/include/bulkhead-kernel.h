/* Numbers of the kernel's interface: see crates/abi/kernel-abi, from which a test derives
 * this file (BLESS=1 cargo test -p bulkhead-kernel-abi writes it anew).
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_KERNEL_H
#define BULKHEAD_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Calls: the low byte of the operation. */
/* Send to the capability and wait for the answer. On a capability of the kernel's own objects: a
 * method (label), answered at once. */
#define BULKHEAD_OP_CALL 0x0ul
/* Answer through the reply object, then receive from the capability, again with this reply object. */
#define BULKHEAD_OP_REPLY_RECV 0x1ul
/* Receive from the endpoint or notification until the deadline; the reply object is for a caller.
 * Deadlines are nanoseconds since the processor's start, by its counter. One that is past, such as 0,
 * polls; u64::MAX never comes. */
#define BULKHEAD_OP_RECV 0x2ul
/* As Recv, without a reply object: callers' messages are refused to them, and no context is taken over
 * from one. */
#define BULKHEAD_OP_WAIT 0x3ul
/* Send to the capability, and wait until it is received. To a notification: signal it, with the
 * badge's bits; without a badge bit 0. */
#define BULKHEAD_OP_SEND 0x4ul
/* Send to the capability if somebody waits there; otherwise nothing happens. */
#define BULKHEAD_OP_NB_SEND 0x5ul
/* NbSend to the second capability, then Recv from the first one, in one step, without a deadline. */
#define BULKHEAD_OP_NB_SEND_RECV 0x6ul
/* NbSend to the second capability, then Wait on the first one, in one step, without a deadline. */
#define BULKHEAD_OP_NB_SEND_WAIT 0x7ul
/* Answer through the reply object, nothing else. Refused to a thread that runs on the time of the
 * caller that it would answer. */
#define BULKHEAD_OP_REPLY 0x8ul
/* Give up what is left of the budget until it is refilled, which is no timeout; last of its priority
 * then. */
#define BULKHEAD_OP_YIELD 0x9ul

/* Kinds of capabilities. */
/* Nothing: an empty slot. */
#define BULKHEAD_KIND_NULL 0x0ul
/* Memory of which objects are made. */
#define BULKHEAD_KIND_UNTYPED 0x1ul
/* Slots for capabilities. */
#define BULKHEAD_KIND_NODE 0x2ul
/* A thread. */
#define BULKHEAD_KIND_THREAD 0x3ul
/* An address space: the root of its page tables. */
#define BULKHEAD_KIND_SPACE 0x4ul
/* A page table below a root. */
#define BULKHEAD_KIND_TABLE 0x5ul
/* Memory that can be mapped: 4 KiB or 2 MiB. */
#define BULKHEAD_KIND_FRAME 0x6ul
/* Where threads meet to exchange messages. */
#define BULKHEAD_KIND_ENDPOINT 0x7ul
/* Bits that are set and waited for. */
#define BULKHEAD_KIND_NOTIFICATION 0x8ul
/* A caller that waits for an answer, and the context that is used meanwhile. */
#define BULKHEAD_KIND_REPLY 0x9ul
/* A scheduling context: time. */
#define BULKHEAD_KIND_CONTEXT 0xaul
/* A core's time to be given to contexts. */
#define BULKHEAD_KIND_CONTROL 0xbul
/* An interrupt. */
#define BULKHEAD_KIND_INTERRUPT 0xcul
/* Registers of a device that only instructions reach: I/O ports, on an architecture that has them. */
#define BULKHEAD_KIND_PORTS 0xdul
/* The sandbox itself: its console, its end. */
#define BULKHEAD_KIND_SANDBOX 0xeul
/* A link: memory for channels made at run time. */
#define BULKHEAD_KIND_LINK 0xful

/* What a capability allows, as a set. */
#define BULKHEAD_RIGHT_READ 0x1ul
#define BULKHEAD_RIGHT_WRITE 0x2ul
#define BULKHEAD_RIGHT_CALL 0x4ul
#define BULKHEAD_RIGHT_GRANT 0x8ul
#define BULKHEAD_RIGHT_EXECUTE 0x10ul
#define BULKHEAD_RIGHT_ALL 0x1ful

/* Methods: Untyped. Words are numbered from 1. */
/* Make objects. 1: kind, size shifted by 8, and count (1 to 256) shifted by 16, or'ed; 2: node for the
 * capabilities; 3: first slot. The size of a node is 1 to 16, a power of two of slots. Others are of
 * bytes: 9 to 12 for a context, 12 or 21 for a frame, 5 to 30 for untyped memory. All other kinds have
 * 0. All slots have to be empty. May be interrupted and begins again by itself. Answers where the
 * first one lies, as an offset in the sandbox's memory. */
#define BULKHEAD_UNTYPED_RETYPE 0x1ul

/* Methods: Node. Words are numbered from 1. */
/* Derive a capability. 1: slot; 2: the capability to derive from; 3: rights that it keeps; 4: badge
 * (endpoint and notification without one), or 0. Memory and tables have one capability only. */
#define BULKHEAD_NODE_COPY 0xaul
/* Move a capability into a slot. 1: slot; 2: the capability. */
#define BULKHEAD_NODE_MOVE 0xbul
/* Delete the capability in a slot, and those derived from it. 1: slot. May be interrupted and begins
 * again by itself. */
#define BULKHEAD_NODE_DELETE 0xcul
/* Delete those derived from the capability in a slot. 1: slot. As DELETE. */
#define BULKHEAD_NODE_REVOKE 0xdul

/* Methods: Thread. Words are numbered from 1. */
/* Set the things that it can name. 1: node; 2: space; 3: frame of its buffer, or 0; 4: address of the
 * buffer within the frame. The thread keeps capabilities of its own, derived from these. */
#define BULKHEAD_THREAD_CONFIGURE 0x14ul
/* 1: priority; 2: greatest priority that it may give others; 3: thread that has the authority: no
 * greater one than its own is given. */
#define BULKHEAD_THREAD_SET_PRIORITY 0x15ul
/* Where its faults go. 1: endpoint, with WRITE and CALL; 0: nowhere. */
#define BULKHEAD_THREAD_SET_FAULT 0x16ul
/* Where the ends of its budgets go. 1: as SET_FAULT. */
#define BULKHEAD_THREAD_SET_TIMEOUT 0x17ul
/* 1: instruction; 2: stack; 3 and 4: first two arguments of the function there. It is stopped; what it
 * waits for is cancelled. */
#define BULKHEAD_THREAD_WRITE_REGISTERS 0x18ul
/* Answers instruction, stack, the word that has a call's operation and status, flags. */
#define BULKHEAD_THREAD_READ_REGISTERS 0x19ul
/* It runs, or goes on, if it has a context. */
#define BULKHEAD_THREAD_RESUME 0x1aul
/* It stops where it is; what it waits for is cancelled. */
#define BULKHEAD_THREAD_SUSPEND 0x1bul
/* Also receive this notification where it receives messages. 1: notification, with READ; 0: no more. */
#define BULKHEAD_THREAD_BIND_NOTIFICATION 0x1cul
/* 1: 1 if it uses vector registers, else 0. Where the kernel cannot keep them, programs have none:
 * their use is an exception then, too. */
#define BULKHEAD_THREAD_SET_FPU 0x1dul
/* WRITE_REGISTERS and RESUME in one. 1 to 4: as of the first. */
#define BULKHEAD_THREAD_START 0x1eul
/* 1: its thread pointer, in the program's half. Compilers look for _Thread_local variables there. It
 * is 0 before, and stays through calls and through START. */
#define BULKHEAD_THREAD_SET_POINTER 0x1ful

/* Methods: Table. Words are numbered from 1. */
/* Put it where it is missing. 1: space; 2: address. */
#define BULKHEAD_TABLE_MAP_TABLE 0x28ul
/* Take it out. */
#define BULKHEAD_TABLE_UNMAP_TABLE 0x29ul

/* Methods: Frame. Words are numbered from 1. */
/* 1: space; 2: address; 3: rights. */
#define BULKHEAD_FRAME_MAP 0x2aul
/* Take it out. */
#define BULKHEAD_FRAME_UNMAP 0x2bul
/* Answers its address for devices. */
#define BULKHEAD_FRAME_PHYSICAL 0x2cul

/* Methods: Context. Words are numbered from 1. */
/* Give it to a thread or notification that has none. 1: that; 2: 0, 1 or 2. With 1 a thread has it
 * until it waits for messages, and so comes to be a passive server. With 2 the calling thread goes on
 * with it, instead of its own one. */
#define BULKHEAD_CONTEXT_BIND 0x32ul
/* Take it from the thread or notification that it is bound to. */
#define BULKHEAD_CONTEXT_UNBIND 0x33ul
/* Answers how long it ran since this was asked last, ns. */
#define BULKHEAD_CONTEXT_CONSUMED 0x34ul
/* Its thread is first of its priority now. Answers as CONSUMED. */
#define BULKHEAD_CONTEXT_YIELD_TO 0x35ul
/* PIBS: its work is now for another context. 1: that. It takes over that context's period, and the
 * priority of the thread that uses that, not of a server that the thread has called. */
#define BULKHEAD_CONTEXT_SERVE 0x36ul

/* Methods: Control. Words are numbered from 1. */
/* 1: context, or'ed with a Policy shifted by 32; 2: budget, ns (PIBS: utilization in millionths); 3:
 * period, ns; 4: badge in timeout messages. Bit 40 of the first word makes it a background context. */
#define BULKHEAD_CONTROL_SET_CONTEXT 0x3cul

/* Methods: Interrupt. Words are numbered from 1. */
/* With WRITE: 1: notification, with WRITE; its badge is signalled. 0: nobody. */
#define BULKHEAD_INTERRUPT_SET_NOTIFICATION 0x46ul
/* The next one may come. */
#define BULKHEAD_INTERRUPT_ACKNOWLEDGE 0x47ul

/* Methods: Ports. Words are numbered from 1. */
/* 1: port; 2: bytes (1, 2, 4). Answers what was read. */
#define BULKHEAD_PORTS_IN 0x50ul
/* 1: port; 2: bytes; 3: value. */
#define BULKHEAD_PORTS_OUT 0x51ul

/* Methods: Handler. Words are numbered from 1. */
/* Message to a thread's fault endpoint: an exception. 1: its number, or'ed with its error code shifted
 * by 8; 2: instruction; 3: address that was touched; 4: number of the thread. An answer with label 0
 * lets it go on, any other stops it. */
#define BULKHEAD_HANDLER_FAULT 0x64ul
/* Message to a thread's timeout endpoint: the budget has ended. 1: the context's badge; 2: how long it
 * ran, as CONSUMED; 3: 0; 4: number of the thread. Answered as FAULT. */
#define BULKHEAD_HANDLER_TIMEOUT 0x65ul

/* Methods: Sandbox. Words are numbered from 1. */
/* With WRITE: 1 to 4: bytes for its console, the first one lowest, up to the first 0. */
#define BULKHEAD_SANDBOX_PRINT 0x5aul
/* With EXECUTE: it has started. */
#define BULKHEAD_SANDBOX_READY 0x5bul
/* With EXECUTE: it ends. 1: exit code. */
#define BULKHEAD_SANDBOX_EXIT 0x5cul
/* With EXECUTE: it begins anew as at its launch, in fresh memory, once its devices are reset. Without
 * a monitor this is refused (BadState). */
#define BULKHEAD_SANDBOX_RESTART 0x5dul

/* Methods: Link. Words are numbered from 1. */
/* With READ: 1: 0 for the own sandbox's word, 1 for the other party's. Answers it, as the hypercall
 * LOOK; the other methods answer as the hypercalls of their names. */
#define BULKHEAD_LINK_LOOK 0x6eul
/* With WRITE: 1: index of a sandbox that it may be offered to; 2: tag. With the answer OK it lies in
 * the program's memory from then on. It is closed when the thread that called ends, begins anew, or is
 * stopped. An exception or its handler can stop the thread. It is also closed when this capability
 * goes. */
#define BULKHEAD_LINK_OFFER 0x6ful
/* With WRITE: 1: epoch of the offer. As OFFER. */
#define BULKHEAD_LINK_ACCEPT 0x70ul
/* With WRITE. The program does not reach it any more, whatever the answer is. */
#define BULKHEAD_LINK_CLOSE 0x71ul

/* Policies of contexts. */
/* Sporadic server. */
#define BULKHEAD_POLICY_SPORADIC 0x0ul
/* At most the budget in every window of a period. */
#define BULKHEAD_POLICY_STRICT 0x1ul
/* For interrupt work. */
#define BULKHEAD_POLICY_PIBS 0x2ul
/* All that is left. */
#define BULKHEAD_POLICY_FULL 0x3ul

/* Bits 0 to 7 of a status. */
/* It was done. */
#define BULKHEAD_OK 0x0ul
/* No such call, or no such method of this kind of object. */
#define BULKHEAD_NO_CALL 0x1ul
/* No capability lies at that address. */
#define BULKHEAD_NO_CAPABILITY 0x2ul
/* The capability is of another kind. Detail: its Kind. */
#define BULKHEAD_WRONG_KIND 0x3ul
/* The capability lacks a right. Detail: the rights needed. */
#define BULKHEAD_NO_RIGHT 0x4ul
/* A number is out of its range. Detail: the greatest that would do, or another one. For a call of an
 * endpoint with longest, the context's whole budget is too short; detail: the budget that it needs,
 * ns. */
#define BULKHEAD_OUT_OF_RANGE 0x5ul
/* The slot, or what should be bound, holds something already. */
#define BULKHEAD_OCCUPIED 0x6ul
/* The memory does not suffice. Detail: bytes that are left. */
#define BULKHEAD_NO_MEMORY 0x7ul
/* Others were derived from it, which have to go first. */
#define BULKHEAD_HAS_CHILDREN 0x8ul
/* Not in the state that it would have to be in. */
#define BULKHEAD_BAD_STATE 0x9ul
/* Derived too often, or more calls in each other than one context goes through. */
#define BULKHEAD_TOO_DEEP 0xaul
/* Memory is only given downwards: this node is made of it. */
#define BULKHEAD_UPWARDS 0xbul
/* More than the authority allows. Detail: what it allows. */
#define BULKHEAD_NO_AUTHORITY 0xcul
/* Mapped already, or a table is missing. Detail: the level that is missing. */
#define BULKHEAD_NO_TABLE 0xdul
/* A mapping that can be written and executed. */
#define BULKHEAD_WRITE_EXECUTE 0xeul
/* The deadline came first. */
#define BULKHEAD_TIMED_OUT 0xful
/* The object that was waited for is gone. */
#define BULKHEAD_CANCELLED 0x10ul
/* A thread without a context cannot wait for a time. */
#define BULKHEAD_NO_CONTEXT 0x11ul
/* No place is left for another context on this core. Detail: how many there are. */
#define BULKHEAD_TOO_MANY_CONTEXTS 0x12ul
/* No thread was there to receive. */
#define BULKHEAD_WOULD_BLOCK 0x13ul

/* Messages: bits 0 to 6 their words, then this, then the label. */
#define BULKHEAD_INFO_CAP 0x80ul
#define BULKHEAD_INFO_NOTIFIED 0x8000000000000000ul
#define BULKHEAD_INFO_LABEL_SHIFT 0x8ul

#define BULKHEAD_REGISTER_WORDS 0x4ul
#define BULKHEAD_BUFFER_WORDS 0x3cul
#define BULKHEAD_MAX_WORDS 0x40ul

/* Slots of a program's root node. */
#define BULKHEAD_SLOT_NODE 0x1ul
#define BULKHEAD_SLOT_SPACE 0x2ul
#define BULKHEAD_SLOT_SANDBOX 0x3ul
#define BULKHEAD_SLOT_CONTROL 0x4ul
#define BULKHEAD_SLOT_MEMORY 0x5ul
#define BULKHEAD_SLOT_FIRST 0x8ul

/* Where things lie in every program. */
#define BULKHEAD_AT_PAGE 0x100000ul
#define BULKHEAD_AT_CLOCK 0x101000ul
#define BULKHEAD_AT_BUFFERS 0x110000ul
#define BULKHEAD_AT_STACKS 0x120000ul
#define BULKHEAD_AT_PROGRAM 0x400000ul
#define BULKHEAD_AT_HEAP 0x100000000ul
#define BULKHEAD_AT_SHARED 0x200000000ul
#define BULKHEAD_AT_CHANNELS 0x300000000ul
#define BULKHEAD_AT_DEVICES 0x400000000ul

/* The program's page. */
#define BULKHEAD_PAGE_MAGIC 0x4d52474f52504842ul
#define BULKHEAD_PAGE_NAME 0x20ul
#define BULKHEAD_PAGE_MAX_NAMES 0x3aul
#define BULKHEAD_PAGE_ARGS 0x100ul

#define BULKHEAD_PAGE_SIZE 0x1000ul
#define BULKHEAD_PAGE_OFFSET_MAGIC 0x0ul
#define BULKHEAD_PAGE_OFFSET_NAME 0x8ul
#define BULKHEAD_PAGE_OFFSET_CLOCK 0x28ul
#define BULKHEAD_PAGE_OFFSET_BUFFERS 0x30ul
#define BULKHEAD_PAGE_OFFSET_HEAP 0x38ul
#define BULKHEAD_PAGE_OFFSET_HEAP_LEN 0x40ul
#define BULKHEAD_PAGE_OFFSET_FREE 0x48ul
#define BULKHEAD_PAGE_OFFSET_NAMES 0x50ul
#define BULKHEAD_PAGE_OFFSET_ARGS 0x58ul
#define BULKHEAD_PAGE_OFFSET_NAME_OF 0x158ul
#define BULKHEAD_PAGE_OFFSET_LOAD 0xfd8ul
#define BULKHEAD_PAGE_OFFSET_PROGRESS 0xff0ul
#define BULKHEAD_PAGE_OFFSET_ALIVE 0xff8ul

#define BULKHEAD_LOAD_SIZE 0x10ul
#define BULKHEAD_LOAD_OFFSET_SHARE 0x0ul
#define BULKHEAD_LOAD_OFFSET_SERVERS 0x8ul
#define BULKHEAD_LOAD_OFFSET_OVERHEAD 0xcul

/* Grants behind the names of a program, by their tags. */
/* A capability of a kernel object. */
#define BULKHEAD_NAME_CAPABILITY 0x1ul
struct bulkhead_name_capability {
    uint8_t tag;
    /* Kind of the object. */
    uint8_t kind;
    /* Rights of the capability. */
    uint8_t rights;
    /* Priority of a thread in the manifest; 0 for other kinds. */
    uint8_t priority;
    /* Address of the capability. */
    uint32_t address;
};
_Static_assert(offsetof(struct bulkhead_name_capability, kind) == 1, "kind");
_Static_assert(offsetof(struct bulkhead_name_capability, rights) == 2, "rights");
_Static_assert(offsetof(struct bulkhead_name_capability, priority) == 3, "priority");
_Static_assert(offsetof(struct bulkhead_name_capability, address) == 4, "address");

/* Memory of the program: shared memory, a channel of raw pages, a device's registers. */
#define BULKHEAD_NAME_MEMORY 0x2ul
struct bulkhead_name_memory {
    uint8_t tag;
    /* The program may write it. */
    bool write;
    /* Address by which a device of the program reaches it, or 0. */
    uint32_t device;
    /* Address of the first byte. */
    uint64_t start;
    /* Bytes. */
    uint64_t len;
};
_Static_assert(offsetof(struct bulkhead_name_memory, write) == 1, "write");
_Static_assert(offsetof(struct bulkhead_name_memory, device) == 4, "device");
_Static_assert(offsetof(struct bulkhead_name_memory, start) == 8, "start");
_Static_assert(offsetof(struct bulkhead_name_memory, len) == 16, "len");

/* An end of a channel of messages: the sender's region, and behind it the receiver's page. */
#define BULKHEAD_NAME_MESSAGES 0x3ul
struct bulkhead_name_messages {
    uint8_t tag;
    /* The program sends, and writes the sender's region; otherwise it writes the receiver's page. */
    bool sends;
    /* Kind of the messages: 1 = queue, 2 = records, 3 = mailbox, 4 = virtio. */
    uint8_t kind;
    /* The end that is woken looks while that pays, before it sleeps. */
    bool adaptive;
    /* Doorbell that the sender rings, or number of the receiver's interrupt; 0: the receiver is not woken. */
    uint16_t bell;
    /* Doorbell that the receiver rings, or number of the sender's interrupt; 0: the sender is not woken.
 * Only a virtio device has it. */
    uint16_t back;
    /* Bytes of a message, if all have one size. */
    uint32_t message;
    /* Address of the right to the doorbell that the program rings, or 0. */
    uint32_t right;
    /* Address of the sender's region. */
    uint64_t start;
    /* Bytes of the sender's region. */
    uint32_t len;
    /* Address by which a device of the program finds the sender's region, or 0: it reaches the data of
 * both regions. */
    uint32_t device;
};
_Static_assert(offsetof(struct bulkhead_name_messages, sends) == 1, "sends");
_Static_assert(offsetof(struct bulkhead_name_messages, kind) == 2, "kind");
_Static_assert(offsetof(struct bulkhead_name_messages, adaptive) == 3, "adaptive");
_Static_assert(offsetof(struct bulkhead_name_messages, bell) == 4, "bell");
_Static_assert(offsetof(struct bulkhead_name_messages, back) == 6, "back");
_Static_assert(offsetof(struct bulkhead_name_messages, message) == 8, "message");
_Static_assert(offsetof(struct bulkhead_name_messages, right) == 12, "right");
_Static_assert(offsetof(struct bulkhead_name_messages, start) == 16, "start");
_Static_assert(offsetof(struct bulkhead_name_messages, len) == 24, "len");
_Static_assert(offsetof(struct bulkhead_name_messages, device) == 28, "device");

/* A context that the program manages. */
#define BULKHEAD_NAME_CONTEXT 0x4ul
struct bulkhead_name_context {
    uint8_t tag;
    /* Policy of the context. */
    uint8_t policy;
    /* Thread of the program that has the context, counted from 1; 0: none. */
    uint8_t thread;
    /* Address of the capability. */
    uint32_t address;
    /* Budget in microseconds, rounded down, without the kernel's overhead; of PIBS, U in millionths. */
    uint32_t budget;
    /* Period in microseconds, rounded up. */
    uint32_t period;
};
_Static_assert(offsetof(struct bulkhead_name_context, policy) == 1, "policy");
_Static_assert(offsetof(struct bulkhead_name_context, thread) == 2, "thread");
_Static_assert(offsetof(struct bulkhead_name_context, address) == 4, "address");
_Static_assert(offsetof(struct bulkhead_name_context, budget) == 8, "budget");
_Static_assert(offsetof(struct bulkhead_name_context, period) == 12, "period");

/* A link: memory for channels made at run time. It has the name of the sandbox that offers it. */
#define BULKHEAD_NAME_LINK 0x5ul
struct bulkhead_name_link {
    uint8_t tag;
    /* The program's own sandbox offers it. */
    bool mine;
    /* Number of the link. */
    uint16_t number;
    /* Index of the sandbox that offers it. */
    uint16_t owner;
    /* Address of the capability. */
    uint32_t right;
    /* Bytes that the owner writes; the other end's page lies behind them. */
    uint32_t sent;
    /* Address at which the program finds the open link. */
    uint64_t start;
};
_Static_assert(offsetof(struct bulkhead_name_link, mine) == 1, "mine");
_Static_assert(offsetof(struct bulkhead_name_link, number) == 2, "number");
_Static_assert(offsetof(struct bulkhead_name_link, owner) == 4, "owner");
_Static_assert(offsetof(struct bulkhead_name_link, right) == 8, "right");
_Static_assert(offsetof(struct bulkhead_name_link, sent) == 12, "sent");
_Static_assert(offsetof(struct bulkhead_name_link, start) == 16, "start");

/* A sandbox to which the program may offer a link. */
#define BULKHEAD_NAME_SANDBOX 0x6ul
struct bulkhead_name_sandbox {
    uint8_t tag;
    /* Index of the sandbox. */
    uint32_t index;
};
_Static_assert(offsetof(struct bulkhead_name_sandbox, index) == 4, "index");

/* A role of the program's sandbox. The program has a channel of it. */
#define BULKHEAD_NAME_ROLE 0x7ul
struct bulkhead_name_role {
    uint8_t tag;
    /* Address of the word that says what the sandbox has: the epoch, or 0. It can only be read. */
    uint64_t word;
};
_Static_assert(offsetof(struct bulkhead_name_role, word) == 8, "word");

/* A name of the manifest, with its grant: the tag tells which. */
struct bulkhead_name {
    char name[BULKHEAD_PAGE_NAME];
    union {
        uint8_t tag;
        struct bulkhead_name_capability capability;
        struct bulkhead_name_memory memory;
        struct bulkhead_name_messages messages;
        struct bulkhead_name_context context;
        struct bulkhead_name_link link;
        struct bulkhead_name_sandbox sandbox;
        struct bulkhead_name_role role;
        uint64_t words[4];
    };
};
_Static_assert(sizeof(struct bulkhead_name) == 64, "name");

#define BULKHEAD_CLOCK_SIZE 0x10ul
#define BULKHEAD_CLOCK_OFFSET_NANOS 0x0ul
#define BULKHEAD_CLOCK_OFFSET_HZ 0x8ul

#define BULKHEAD_BUFFER_SIZE 0x200ul
#define BULKHEAD_BUFFER_OFFSET_WORDS 0x0ul
#define BULKHEAD_BUFFER_OFFSET_CAP 0x1e0ul
#define BULKHEAD_BUFFER_OFFSET_RECEIVE 0x1e8ul

#endif
