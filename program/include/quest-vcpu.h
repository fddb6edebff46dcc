/* Quest's interface to VCPUs (Quest-V, TOCS 2016, section 3.3): see crates/kernel/quest-vcpu, from which a
 * test derives this file (BLESS=1 cargo test -p bulkhead-quest-vcpu writes it anew).
 *
 * The manifest has to give the program sched_control, memory for new VCPUs, and the threads that bind
 * themselves (manages), with a max_priority.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef QUEST_VCPU_H
#define QUEST_VCPU_H

enum {
    SCHED_SPORADIC = 0, /* a Main VCPU */
    SCHED_PIBS = 1,     /* an I/O VCPU */
};

struct vcpu_param {
    int vcpuid; /* identifier, from 1 */
    int policy; /* SCHED_SPORADIC or SCHED_PIBS */
    int mask;   /* PCPU affinity bit-mask: bit 0 is the kernel's core */
    int C;      /* budget capacity, microseconds */
    int T;      /* period, microseconds; of an I/O VCPU only C/T matters */
};

/* What the functions return if they did nothing. */
enum {
    VCPU_EPERM = -1, /* the manifest does not give the program what that needs */
    VCPU_ESRCH = -3, /* there is no such VCPU */
    VCPU_ENOMEM = -12, /* no memory, slot or place is left for another one */
    VCPU_EBUSY = -16, /* threads are associated with it; or another thread is in one of these functions */
    VCPU_EINVAL = -22, /* a parameter cannot be */
    VCPU_ENOSPC = -28, /* admission refuses: the core's VCPUs would be above the bound */
};

/* Creates a Main or I/O VCPU; its identifier. NULL: a Main VCPU of 1000 us in 100000 us. Admission must not
 * refuse it. */
int vcpu_create(struct vcpu_param *param);
/* Destroys a VCPU. With force its thread is terminated, and if that is the caller, this does not return; without, it
 * must have none. 0 or an error. */
int vcpu_destroy(int vcpuid, int force);
/* Gives the VCPU param->vcpuid new parameters. 0 or an error. */
int vcpu_setparam(struct vcpu_param *param);
/* The parameters of the next VCPU in the program's list, from its head on, and there again behind its end;
 * each thread has its own place in it. 0 or an error. */
int vcpu_getparam(struct vcpu_param *param);
/* Binds the calling thread to a VCPU, which has one thread at most: VCPU_EBUSY if another one is bound to it. 0 or
 * an error. */
int vcpu_bind_task(int vcpuid);

#endif
