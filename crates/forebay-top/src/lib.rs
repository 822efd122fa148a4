//! `forebay top`: the arbiter's jobs and I/O nodes as they are now.
//!
//! | module | what lives there |
//! |---|---|
//! | [`picture`] | what is shown, as the arbiter tells it |
//! | [`screen`] | which view, how it is sorted and filtered, what keys do: no terminal |
//! | [`draw`] | a screen as text and colours |
//! | `columns` | how wide columns are, and what is left of what is wider |
//! | [`plain`] | the same as a line, where there is no terminal |
//! | [`text`] | jobs, I/O nodes, decisions and limits as tables |
//! | `silence` | for how long nobody has answered |
//! | `watch` | the terminal, the keys and the arbiter |
//! | `panel` | one job below what a program says: `forebay run --watch` |

mod columns;
pub mod draw;
mod panel;
pub mod picture;
pub mod plain;
pub mod screen;
mod silence;
pub mod text;
mod watch;

pub use panel::{Look, Panel};
pub use watch::{Options, WatchError, can_draw, watch};
