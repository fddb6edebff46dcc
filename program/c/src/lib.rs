//! Functions of Rust for programs in C: Quest's VCPU functions, which `program/include/quest-vcpu.h` declares and
//! `bulkhead-quest-vcpu` implements, and snapshots ([`snapshot`]).
#![cfg_attr(target_os = "none", no_std)]

mod snapshot;

use bulkhead_program::abi::{Address, Label, Page, Status, at, label};
use bulkhead_quest_vcpu::{Calls, Error, Given, Param, Vcpus};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

struct Kernel;

impl Calls for Kernel {
    fn invoke(&mut self, on: Address, method: Label, words: [u64; 4]) -> Result<[u64; 4], Status> {
        bulkhead_program::invoke(on, method, words).map_err(|error| error.0)
    }
}

/// The program's VCPUs, once the first function is called.
struct All {
    used: AtomicBool,
    vcpus: UnsafeCell<Option<Vcpus>>,
}

// SAFETY: only the thread that has set `used` reaches the rest, until it clears it.
unsafe impl Sync for All {}

static ALL: All = All { used: AtomicBool::new(false), vcpus: UnsafeCell::new(None) };

/// Uses the VCPUs, if no other thread does: waiting would need a place to wait at, and time.
fn with<T>(work: impl FnOnce(&mut Vcpus) -> Result<T, Error>) -> Result<T, Error> {
    if ALL.used.swap(true, Ordering::Acquire) {
        return Err(Error::Busy);
    }
    // SAFETY: `used` was clear, so no other thread is here.
    let vcpus = unsafe { &mut *ALL.vcpus.get() };
    let result = work(vcpus.get_or_insert_with(|| {
        // SAFETY: the page lies there in every program, and never changes.
        let page = unsafe { &*(at::PAGE as *const Page) };
        Vcpus::new(Given::of(page), Given::vcpus(page), &mut Kernel)
    }));
    ALL.used.store(false, Ordering::Release);
    result
}

fn number(result: Result<i32, Error>) -> c_int {
    result.unwrap_or_else(|error| error as c_int)
}

unsafe extern "C" {
    /// The number of the thread that asks (`program.c`).
    safe fn bulkhead_thread() -> u32;
}

fn caller() -> usize {
    bulkhead_thread() as usize
}

/// # Safety
/// `param` is null or points to parameters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vcpu_create(param: *const Param) -> c_int {
    // SAFETY: the caller's word.
    let param = unsafe { param.as_ref() }.copied();
    number(with(|vcpus| vcpus.create(&mut Kernel, param)))
}

/// Destroys a VCPU; with `force` even if a thread is on it, which ends with it.
#[unsafe(no_mangle)]
pub extern "C" fn vcpu_destroy(id: c_int, force: c_int) -> c_int {
    match with(|vcpus| vcpus.destroy(&mut Kernel, caller(), id, force != 0)) {
        Ok(None) => 0,
        Ok(Some(own)) => {
            let _ = Kernel.invoke(own.context, label::UNBIND, [0; 4]);
            // A thread that is given time again does nothing with it.
            loop {
                let _ = Kernel.invoke(own.thread, label::SUSPEND, [0; 4]);
            }
        }
        Err(error) => error as c_int,
    }
}

/// # Safety
/// `param` is null or points to parameters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vcpu_setparam(param: *const Param) -> c_int {
    // SAFETY: the caller's word.
    let Some(param) = (unsafe { param.as_ref() }) else { return Error::Invalid as c_int };
    number(with(|vcpus| vcpus.set_param(&mut Kernel, param)).map(|()| 0))
}

/// # Safety
/// `param` is null or points to where parameters fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vcpu_getparam(param: *mut Param) -> c_int {
    // SAFETY: the caller's word.
    let Some(param) = (unsafe { param.as_mut() }) else { return Error::Invalid as c_int };
    number(with(|vcpus| vcpus.get_param(caller())).map(|next| {
        *param = next;
        0
    }))
}

/// Binds the calling thread to a VCPU.
#[unsafe(no_mangle)]
pub extern "C" fn vcpu_bind_task(id: c_int) -> c_int {
    number(with(|vcpus| vcpus.bind(&mut Kernel, caller(), id)).map(|()| 0))
}
