//! The library's own memory. libc's `malloc` will not do: a program may call `write` in a signal handler
//! that interrupted `malloc`, and what this library does for it needs memory. Nothing here takes a lock,
//! so it may be interrupted by itself at any place, and a forked child finds it whole.

use crate::sys::sys;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[global_allocator]
static MEMORY: Memory = Memory;

struct Memory;

/// The smallest block and the largest that is kept for reuse, as powers of two.
const SMALLEST: u32 = 4;
const LARGEST: u32 = 18;
const CLASSES: usize = (LARGEST - SMALLEST + 1) as usize;
/// Blocks are cut from pieces of this size, which begin at a multiple of it.
const PIECE: usize = 1 << 20;

/// Free blocks of each size: a stack whose top is a block's address and a count of changes, without
/// which a top that came back would be taken for one that never went away.
static FREE: [AtomicU64; CLASSES] = [const { AtomicU64::new(0) }; CLASSES];
/// Where the next block is cut; 0 if there is no piece.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Of the top of a stack: addresses are multiples of 16 below 2^48, the rest is the count.
const ADDRESS: u64 = (1 << 44) - 1;

fn pack(address: usize, count: u64) -> u64 {
    (address as u64 >> SMALLEST) | count << 44
}

fn address(top: u64) -> usize {
    ((top & ADDRESS) << SMALLEST) as usize
}

/// The size class for a layout; `None`: it is mapped for itself.
fn class(layout: &Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(1 << SMALLEST).next_power_of_two();
    let class = (size.trailing_zeros() - SMALLEST) as usize;
    (class < CLASSES).then_some(class)
}

fn size_of_class(class: usize) -> usize {
    1 << (class as u32 + SMALLEST)
}

fn pop(class: usize) -> Option<usize> {
    let stack = &FREE[class];
    let mut top = stack.load(Ordering::Acquire);
    loop {
        let block = address(top);
        if block == 0 {
            return None;
        }
        // SAFETY: blocks are never unmapped. If somebody else has this one by now, what is read here is
        // of no use, and the exchange fails.
        let next = unsafe { &*(block as *const AtomicU64) }.load(Ordering::Relaxed);
        let new = pack(next as usize, (top >> 44).wrapping_add(1));
        match stack.compare_exchange_weak(top, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(block),
            Err(now) => top = now,
        }
    }
}

fn push(class: usize, block: usize) {
    let stack = &FREE[class];
    let mut top = stack.load(Ordering::Relaxed);
    loop {
        // SAFETY: the block is free, and at least eight bytes long and aligned to them.
        unsafe { &*(block as *const AtomicU64) }.store(address(top) as u64, Ordering::Relaxed);
        let new = pack(block, (top >> 44).wrapping_add(1));
        match stack.compare_exchange_weak(top, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => top = now,
        }
    }
}

fn map(size: usize) -> Option<usize> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let p = sys!(mmap, 0, size, prot, flags, usize::MAX, 0);
    (p > 0).then_some(p as usize)
}

/// A new piece, at a multiple of its size.
fn piece() -> Option<usize> {
    let whole = map(2 * PIECE)?;
    let start = whole.next_multiple_of(PIECE);
    if start > whole {
        sys!(munmap, whole, start - whole);
    }
    let end = whole + 2 * PIECE;
    if end > start + PIECE {
        sys!(munmap, start + PIECE, end - start - PIECE);
    }
    Some(start)
}

fn cut(size: usize) -> Option<usize> {
    let mut next = NEXT.load(Ordering::Acquire);
    loop {
        // At the beginning of a piece there is only the one that is about to begin.
        let block = next.next_multiple_of(size);
        let fits = !next.is_multiple_of(PIECE) && block + size <= next.next_multiple_of(PIECE);
        let (block, fresh) = if fits { (block, None) } else { piece().map(|p| (p, Some(p)))? };
        match NEXT.compare_exchange_weak(next, block + size, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(block),
            Err(now) => {
                if let Some(unused) = fresh {
                    sys!(munmap, unused, PIECE);
                }
                next = now;
            }
        }
    }
}

fn pages(layout: &Layout) -> usize {
    layout.size().next_multiple_of(4096)
}

// SAFETY: blocks are disjoint, at least as large and as aligned as their class, and only given out again
// after they were given back.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = match class(&layout) {
            Some(class) => pop(class).or_else(|| cut(size_of_class(class))),
            None if layout.align() <= 4096 => map(pages(&layout)),
            None => None,
        };
        block.map_or(std::ptr::null_mut(), |b| b as *mut u8)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class(&layout) {
            Some(class) => push(class, block as usize),
            None => {
                sys!(munmap, block, pages(&layout));
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() && class(&layout).is_some() {
            // SAFETY: just allocated; what was mapped for itself is zero.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that it does not overflow.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if class(&layout).is_some() && class(&layout) == class(&wanted) {
            return block;
        }
        // SAFETY: as the caller promises; both blocks have room for the smaller of the two.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}
