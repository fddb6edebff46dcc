//! A heap, for programs that the manifest gives one (`heap`): Rust's `alloc` works in them. First fit (the crate
//! `linked_list_allocator`): the time of an allocation grows with the number of holes. So a thread with a deadline
//! allocates before it begins.

use crate::names::Program;
use crate::sync::Mutex;
use crate::{Guard, Notification};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};

/// The memory taken from the page, once it has been.
struct Heap(Mutex<linked_list_allocator::Heap>);

#[cfg_attr(target_os = "none", global_allocator)]
static HEAP: Heap = Heap(Mutex::new(linked_list_allocator::Heap::empty()));

// SAFETY: memory comes from the allocator behind the lock, which gives out none twice.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let found = self.0.lock().allocate_first_fit(layout);
        found.map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if let Some(at) = NonNull::new(at) {
            // SAFETY: the caller's word that it came from here with this layout.
            unsafe { self.0.lock().deallocate(at, layout) }
        }
    }
}

impl Program {
    /// Takes its heap into use; before that there is no memory to allocate. Bytes that are free then. A second time
    /// changes nothing.
    ///
    /// # Panics
    /// The manifest gives it none.
    pub fn heap(self) -> usize {
        let (start, len) = (self.page().heap, self.page().heap_len);
        assert!(start != 0, "the manifest gives {} no heap", self.name());
        let mut heap: Guard<'_, _> = HEAP.0.lock();
        if heap.size() == 0 {
            // SAFETY: memory of the program's that nothing else uses, and given here once.
            unsafe { heap.init(start as *mut u8, len as usize) }
        }
        heap.free()
    }

    /// Makes the heap for a program in which several threads allocate: they wait for each other at `signals` and
    /// `waits` ([`Mutex::waits_at`]).
    pub fn shared_heap(self, signals: Notification, waits: Notification) -> usize {
        HEAP.0.waits_at(signals, waits);
        self.heap()
    }
}
