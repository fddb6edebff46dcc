/* Numbers of the guest's interface on x86-64: see crates/abi/layout, from which a test derives
 * this file (BLESS=1 cargo test -p bulkhead-layout writes it anew).
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_X86_LAYOUT_H
#define BULKHEAD_X86_LAYOUT_H

#define BULKHEAD_POWER_PORT 0x600ul
#define BULKHEAD_POWER_RESTART 0x1ul
#define BULKHEAD_POWER_OFF 0x34ul
#define BULKHEAD_BELL_PORT 0x640ul
#define BULKHEAD_CALL_PORT 0x680ul

#define BULKHEAD_MONITORS_SVM 0x1ul
#define BULKHEAD_MONITORS_VMX 0x2ul

#endif
