//! Forebay's preload library.
//!
//! At start it replaces the entry of libc's own file functions by jumps to the ones in [`hooks`]
//! (see [`patch`]), so that calls from inside libc, C stdio's above all, are caught like the
//! program's own. A forwarded file is represented by a real descriptor, a placeholder (see
//! [`place`]): `dup`, `fork`, `exec`, `poll` and close-on-exec work by the kernel's own rules, the
//! file offset lives in the kernel, and a child process finds out from the placeholder what it is.
//!
//! The library starts no threads, keeps no thread-locals with destructors, has its own memory (see
//! [`forebay_hook::alloc`]), and connects only when a forwarded file is first touched. It never unwinds: it is built with `panic = "abort"`.

mod attr;
mod cwd;
mod hooks;
mod init;
mod notes;
mod path;
mod place;
mod state;
mod table;

use forebay_hook::{patch, shared, sys, user};
