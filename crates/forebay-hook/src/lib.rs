//! What the libraries share that are loaded into users' programs and take the place of libc's functions: the
//! jumps ([`patch`]), system calls ([`sys`]), memory of their own ([`alloc`]), and the program's memory
//! ([`user`], [`vector`]). Whatever is linked with this has [`alloc`] as its memory.

pub mod alloc;
pub mod patch;
pub mod shared;
pub mod sys;
pub mod user;
pub mod vector;
