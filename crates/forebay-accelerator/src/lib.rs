//! Forebay's accelerator: loaded into programs under a mount, where every descriptor is the kernel's own and everything
//! works without it. It sends reads and writes on regular files of the mount straight to the I/O node, one hop
//! instead of two, and leaves to the kernel whatever it does not know. What it misses is slower, never wrong.
//!
//! What a name is it asks there, too ([`names`]). It keeps nothing that it could be wrong about. The kernel is asked before every call what the descriptor is
//! ([`look`]): a number that was closed, duplicated over or inherited is never taken for what it was. The offset lives in the
//! kernel. The mount says which files may be used so, and takes it back ([`forebay_client::gate`]), before anybody could
//! tell the difference: when a page of the file is mapped, when it is locked, when it loses its name. Writes are with the I/O
//! node when they return, so `fsync` and `close` are the mount's.

mod hooks;
mod look;
mod memory;
mod names;
mod run;
mod stat;
mod state;
mod table;
