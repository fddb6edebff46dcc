/* SPDX-License-Identifier: GPL-2.0 */
#include <linux/linkage.h>
#include <asm/nospec-branch.h>

	.text

/*
 * u64 bh_call(u64 code, u64 what, u64 argument, u64 tables)
 *
 * The image's code comes back by its return, or as a guest at 1: in a core that has entered its monitor. No register
 * but RSP and RIP is as before then.
 */
SYM_FUNC_START(bh_call)
	push	%rbx
	push	%rbp
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	mov	%cr3, %rax
	push	%rax
	mov	%rcx, %cr3
	mov	%rdi, %rax
	mov	%rsi, %rdi
	mov	%rdx, %rsi
	mov	%rsp, %rdx
	lea	1f(%rip), %rcx
	ANNOTATE_RETPOLINE_SAFE
	call	*%rax
1:	pop	%rcx
	mov	%rcx, %cr3
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbp
	pop	%rbx
	RET
SYM_FUNC_END(bh_call)

/*
 * u64 bh_release(u64 tables, u64 call)
 *
 * The monitor leaves the core behind VMMCALL, on these tables. It keeps no register but RSP then.
 */
SYM_FUNC_START(bh_release)
	push	%rbx
	push	%rbp
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	mov	%cr3, %rax
	push	%rax
	mov	%rdi, %cr3
	mov	%rsi, %rax
	vmmcall
	pop	%rcx
	mov	%rcx, %cr3
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbp
	pop	%rbx
	RET
SYM_FUNC_END(bh_release)
