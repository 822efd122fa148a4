//! One job at the foot of a terminal, below what a program says there. The program knows nothing of it: the
//! lines above are the part of the terminal that scrolls, and the cursor is always put back.

use crate::draw::{Theme, draw_job};
use crate::picture::Picture;
use crate::screen::Screen;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often news and the size of the terminal are looked for.
const TICK: Duration = Duration::from_millis(50);
/// The smallest terminal that has room for both.
const LEAST: (u16, u16) = (30, 10);
/// The panel takes half of the terminal, and no more lines than this.
const MOST: u16 = 14;

/// Looks at the job: what it does now, or why that is not known.
pub type Look = Box<dyn FnMut() -> Result<Picture, String> + Send>;

/// A panel, until it is dropped: then the terminal is as it was.
pub struct Panel {
    /// Dropped first: that is the end.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Panel {
    /// Shows the job on the terminal that standard error is, and looks at it every `interval`.
    pub fn start(job: &str, interval: Duration, colours: bool, mut look: Look) -> io::Result<Panel> {
        let (news, heard) = sync_channel(1);
        // It ends with the first news that nobody takes; it is not waited for, since whoever is asked may
        // take seconds to answer.
        std::thread::Builder::new().name("look".into()).spawn(move || {
            while say(&news, look()) {
                std::thread::sleep(interval);
            }
        })?;
        let (end, ended) = channel();
        let screen = Screen::new(Some(job));
        let thread = std::thread::Builder::new()
            .name("panel".into())
            .spawn(move || show(screen, &Theme::new(colours), &heard, &ended))?;
        Ok(Panel { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Panel {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type News = Result<Picture, String>;

fn say(news: &SyncSender<News>, said: News) -> bool {
    news.send(said).is_ok()
}

fn show(mut screen: Screen, theme: &Theme, heard: &Receiver<News>, ended: &Receiver<()>) {
    let mut place = Place::default();
    let mut fresh = true;
    loop {
        match heard.try_recv() {
            Ok(Ok(picture)) => screen.heard(picture),
            Ok(Err(why)) => screen.missed(why),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) if !fresh && !place.resized() => {
                match ended.recv_timeout(TICK) {
                    Err(RecvTimeoutError::Timeout) => continue,
                    _ => break,
                }
            }
            Err(_) => {}
        }
        fresh = false;
        // A terminal that cannot be written to is gone; the program is what counts.
        if place.draw(&screen, theme).is_err() {
            return;
        }
    }
    let _ = place.leave();
}

/// What the panel has of the terminal.
#[derive(Default)]
struct Place {
    /// Columns and lines of the terminal when it was taken.
    size: (u16, u16),
    drawn: Option<Terminal<CrosstermBackend<Ink>>>,
    ink: Ink,
}

impl Place {
    fn resized(&self) -> bool {
        size() != self.size
    }

    fn height(&self) -> u16 {
        (self.size.1 / 2).min(MOST)
    }

    fn draw(&mut self, screen: &Screen, theme: &Theme) -> io::Result<()> {
        if self.resized() {
            self.leave()?;
            self.enter()?;
        }
        let Some(terminal) = &mut self.drawn else { return Ok(()) };
        terminal.draw(|frame| draw_job(frame, screen, theme))?;
        // The cursor, and what the program writes in, are put back with the same write.
        self.ink.flush_between(b"\x1b7", b"\x1b8\x1b[?25h")
    }

    /// Makes room at the foot: what stands there moves up, and from now on only what is above it does.
    fn enter(&mut self) -> io::Result<()> {
        self.size = size();
        let (width, lines) = self.size;
        if width < LEAST.0 || lines < LEAST.1 {
            return Ok(());
        }
        let height = self.height();
        let room = "\n".repeat(height.into());
        put(format!("{room}\x1b[{height}A\x1b7\x1b[1;{}r\x1b8", lines - height).as_bytes())?;
        let viewport = Viewport::Fixed(Rect::new(0, lines - height, width, height));
        let backend = CrosstermBackend::new(self.ink.clone());
        self.drawn = Some(Terminal::with_options(backend, TerminalOptions { viewport })?);
        Ok(())
    }

    fn leave(&mut self) -> io::Result<()> {
        if self.drawn.take().is_none() {
            return Ok(());
        }
        // What it says as it is dropped has nowhere to go.
        self.ink.take();
        let first = self.size.1 - self.height() + 1;
        put(format!("\x1b7\x1b[r\x1b[{first};1H\x1b[J\x1b8\x1b[?25h").as_bytes())
    }
}

fn size() -> (u16, u16) {
    ratatui::crossterm::terminal::size().unwrap_or_default()
}

fn put(bytes: &[u8]) -> io::Result<()> {
    let mut terminal = io::stderr().lock();
    terminal.write_all(bytes)?;
    terminal.flush()
}

/// What is to be drawn, until all of it is.
#[derive(Clone, Default)]
struct Ink(Arc<Mutex<Vec<u8>>>);

impl Ink {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn flush_between(&self, before: &[u8], after: &[u8]) -> io::Result<()> {
        put(&[before, &self.take(), after].concat())
    }
}

impl Write for Ink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
