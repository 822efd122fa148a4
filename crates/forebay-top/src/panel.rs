//! One job at the foot of a terminal, below what a program says there. The program knows nothing of it: the
//! lines above are the part of the terminal that scrolls, and the cursor is always put back.

use crate::draw::{Theme, draw_job};
use crate::picture::Picture;
use crate::screen::Screen;
use crate::silence::Silence;
use ratatui::Terminal;
use ratatui::backend::{Backend, CrosstermBackend, TestBackend};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often news and the size of the terminal are looked for.
const TICK: Duration = Duration::from_millis(50);
/// The smallest terminal that has room for both.
const LEAST: (u16, u16) = (30, 10);
/// The panel takes half of the terminal, and no more lines than this.
const MOST: u16 = 14;
/// So many times only what differs is put on the terminal, then everything: the program may have cleared it.
const WHOLE: u32 = 3;
/// Cells that are put on the terminal at once.
const PIECE: usize = 48;

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
            .spawn(move || show(screen, interval, &Theme::new(colours), &heard, &ended))?;
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

fn show(mut screen: Screen, interval: Duration, theme: &Theme, heard: &Receiver<News>, ended: &Receiver<()>) {
    let mut place = PanelArea::default();
    let mut silence = Silence::new(Instant::now(), interval);
    let mut fresh = true;
    loop {
        let news = heard.try_recv();
        let nothing = news.is_err();
        match news {
            Ok(Ok(picture)) => {
                silence.over(Instant::now());
                screen.heard(picture);
            }
            Ok(Err(why)) => silence.because(why),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        let words = silence.words(Instant::now());
        if nothing && words == screen.problem && !fresh && !place.resized() {
            match ended.recv_timeout(TICK) {
                Err(RecvTimeoutError::Timeout) => continue,
                _ => break,
            }
        }
        screen.problem = words;
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
struct PanelArea {
    /// Columns and lines of the terminal when it was taken.
    size: (u16, u16),
    drawn: Option<Drawn>,
}

/// What is to be seen is first drawn in memory, then what differs from what is seen is put on the terminal.
struct Drawn {
    memory: Terminal<TestBackend>,
    seen: Buffer,
    /// How often it was drawn since all of it was.
    parts: u32,
    /// The panel's first line on the terminal.
    first: u16,
}

impl PanelArea {
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
        let Some(drawn) = &mut self.drawn else { return Ok(()) };
        drawn.draw(screen, theme)?.iter().try_for_each(|piece| put(piece))
    }

    /// Makes room at the foot: what stands there moves up, and from now on only what is above it does. The
    /// cursor stays in its column: the program may be in the middle of a line.
    fn enter(&mut self) -> io::Result<()> {
        self.size = size();
        let (width, lines) = self.size;
        if width < LEAST.0 || lines < LEAST.1 {
            return Ok(());
        }
        let height = self.height();
        let (above, room) = (lines - height, "\x1bD".repeat(height.into()));
        put(format!("{room}\x1b[{height}A\x1b7\x1b[1;{above}r\x1b[{};1H\x1b[J\x1b8", above + 1).as_bytes())?;
        let Ok(memory) = Terminal::new(TestBackend::new(width, height));
        let seen = Buffer::empty(Rect::new(0, 0, width, height));
        self.drawn = Some(Drawn { memory, seen, parts: 0, first: above });
        Ok(())
    }

    fn leave(&mut self) -> io::Result<()> {
        let Some(drawn) = self.drawn.take() else { return Ok(()) };
        put(format!("\x1b7\x1b[r\x1b[{};1H\x1b[J\x1b8", drawn.first + 1).as_bytes())
    }
}

impl Drawn {
    /// What is to be put on the terminal.
    fn draw(&mut self, screen: &Screen, theme: &Theme) -> io::Result<Vec<Vec<u8>>> {
        let Ok(_) = self.memory.draw(|frame| draw_job(frame, screen, theme));
        let next = self.memory.backend().buffer();
        self.parts += 1;
        if self.parts > WHOLE {
            self.parts = 0;
            // Nobody knows what is there: it differs from whatever is to be.
            for cell in &mut self.seen.content {
                cell.set_symbol("\0");
            }
        }
        let pieces = pieces(&self.seen, next, self.first)?;
        next.clone_into(&mut self.seen);
        Ok(pieces)
    }
}

/// What makes the terminal show `next` where it shows `seen`, `first` lines further down. Between two pieces a
/// program may write and somebody may type: each puts the cursor, and what is written in, back by itself, and is
/// so short that the terminal takes it as a whole.
fn pieces(seen: &Buffer, next: &Buffer, first: u16) -> io::Result<Vec<Vec<u8>>> {
    let cells = seen.diff(next);
    let lines = cells.chunk_by(|a, b| a.1 == b.1).flat_map(|line| line.chunks(PIECE));
    let piece = |cells: &[(u16, u16, &Cell)]| {
        let mut ink = b"\x1b7".to_vec();
        let cells = cells.iter().map(|(x, y, cell)| (*x, y + first, *cell));
        CrosstermBackend::new(&mut ink).draw(cells)?;
        ink.extend_from_slice(b"\x1b8");
        Ok(ink)
    };
    lines.map(piece).collect()
}

fn size() -> (u16, u16) {
    ratatui::crossterm::terminal::size().unwrap_or_default()
}

fn put(bytes: &[u8]) -> io::Result<()> {
    let mut terminal = io::stderr().lock();
    terminal.write_all(bytes)?;
    terminal.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::{Color, Style};

    #[test]
    fn every_piece_puts_the_cursor_back_and_is_short() {
        let area = Rect::new(0, 0, 200, 3);
        let (seen, mut next) = (Buffer::empty(area), Buffer::empty(area));
        for y in 0..3 {
            for x in 0..200 {
                let colour = if x % 2 == 0 { Color::Cyan } else { Color::Red };
                next[(x, y)].set_symbol("█").set_style(Style::new().fg(colour));
            }
        }
        let all = pieces(&seen, &next, 20).unwrap();
        assert!(all.len() >= 3 * 4, "{}", all.len());
        for piece in &all {
            assert!(piece.starts_with(b"\x1b7\x1b[") && piece.ends_with(b"\x1b[0m\x1b8"), "{piece:?}");
            assert!(piece.len() < 2000 && !piece.contains(&b'\n'), "{}", piece.len());
        }
        assert!(all[0].starts_with(b"\x1b7\x1b[21;1H"), "{:?}", all[0]);
        assert!(pieces(&next, &next, 20).unwrap().is_empty());
    }

    #[test]
    fn what_the_program_has_cleared_comes_back() {
        let Ok(memory) = Terminal::new(TestBackend::new(80, 10));
        let seen = Buffer::empty(Rect::new(0, 0, 80, 10));
        let mut drawn = Drawn { memory, seen, parts: 0, first: 10 };
        let (screen, theme) = (Screen::new(Some("sim")), Theme::new(false));
        let first = drawn.draw(&screen, &theme).unwrap().concat();
        assert!(String::from_utf8_lossy(&first).contains("looked"));
        let later: Vec<u8> =
            (0..=WHOLE).flat_map(|_| drawn.draw(&screen, &theme).unwrap().concat()).collect();
        let later = String::from_utf8_lossy(&later).into_owned();
        assert!(later.contains("looked"), "{later:?}");
        // Blanks, too: something else may stand there.
        for line in 11..=20 {
            assert!(later.contains(&format!("\x1b[{line};1H")), "{line}: {later:?}");
        }
        assert!(!later.contains('\0'));
    }
}
