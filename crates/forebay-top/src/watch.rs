//! The terminal, the keys, and the arbiter, which is asked by a thread of its own: one that does not answer
//! must not stop the keys.

use crate::draw::{Theme, draw};
use crate::picture::{AskRanks, Picture};
use crate::plain;
use crate::screen::{Key, Screen};
use crate::silence::Silence;
use forebay_control::client::Client;
use forebay_control::status::Unanswered;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often keys and signals are looked for.
const TICK: Duration = Duration::from_millis(50);

/// How to watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Between two looks.
    pub interval: Duration,
    /// End after so many.
    pub count: Option<u64>,
    /// One job instead of all.
    pub job: Option<String>,
    /// Whether colours are wanted.
    pub colours: bool,
    /// A line per look even where there is a terminal.
    pub lines: bool,
}

/// Why watching ended before it should.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Nobody ever answered.
    #[error(transparent)]
    Arbiter(#[from] Unanswered),
    /// The terminal does not work.
    #[error("the terminal: {0}")]
    Terminal(std::io::Error),
    /// Nobody can be told.
    #[error("cannot write to standard output: {0}")]
    Output(std::io::Error),
}

/// Watches until the user has seen enough, `count` is reached, or `stop` is set.
pub fn watch(
    arbiter: Client,
    ranks: Option<Box<AskRanks>>,
    options: &Options,
    stop: &AtomicBool,
) -> Result<(), WatchError> {
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if options.lines || !terminal || !can_draw() {
        return lines(arbiter, options, stop);
    }
    full_screen(arbiter, ranks, options, stop)
}

/// Whether the terminal is said to be one on which anything can be drawn.
pub fn can_draw() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// A line per interval. What does not answer at first is an error; later it may be back.
fn lines(arbiter: Client, options: &Options, stop: &AtomicBool) -> Result<(), WatchError> {
    let mut looks = 0;
    let (between, heard) = asking(arbiter, None, options)?;
    let (mut silence, mut said) = (Silence::new(Instant::now(), options.interval), Instant::now());
    while !stop.load(Relaxed) {
        let line = match heard.recv_timeout(TICK) {
            Ok(Ok(picture)) => {
                silence.over(Instant::now());
                plain::line(&picture, options.job.as_deref())
            }
            Ok(Err(e)) if looks == 0 => return Err(e.into()),
            Ok(Err(e)) => e.to_string(),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => match silence.words(Instant::now()) {
                Some(words) if looks > 0 && said.elapsed() >= options.interval => {
                    format!("no answer {words}")
                }
                _ => continue,
            },
        };
        said = Instant::now();
        let mut out = std::io::stdout().lock();
        match writeln!(out, "{line}").and_then(|()| out.flush()) {
            // Whoever reads has seen enough.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => break,
            written => written.map_err(WatchError::Output)?,
        }
        drop(out);
        looks += 1;
        if options.count.is_some_and(|n| looks >= n) {
            break;
        }
    }
    between.end.store(true, Relaxed);
    Ok(())
}

fn nap(span: Duration, stop: &AtomicBool) {
    let until = Instant::now() + span;
    while !stop.load(Relaxed) && Instant::now() < until {
        std::thread::sleep(TICK.min(until.saturating_duration_since(Instant::now())));
    }
}

type News = Result<Picture, Unanswered>;

/// What the two threads share.
#[derive(Default)]
struct Between {
    job: Mutex<Option<String>>,
    /// Another job is looked at: do not wait for the next interval.
    hurry: AtomicBool,
    end: AtomicBool,
}

/// Asks the arbiter in a thread of its own. It ends with the first message that nobody takes; it is not waited for, since
/// an arbiter that does not answer may take seconds.
fn asking(
    arbiter: Client,
    ranks: Option<Box<AskRanks>>,
    options: &Options,
) -> Result<(Arc<Between>, Receiver<News>), WatchError> {
    let between = Arc::new(Between { job: Mutex::new(options.job.clone()), ..Between::default() });
    let (news, heard) = sync_channel::<News>(0);
    let (shared, interval) = (Arc::clone(&between), options.interval);
    std::thread::Builder::new()
        .name("arbiter".into())
        .spawn(move || ask(&arbiter, ranks.as_deref(), &shared, interval, &news))
        .map_err(WatchError::Terminal)?;
    Ok((between, heard))
}

fn full_screen(
    arbiter: Client,
    ranks: Option<Box<AskRanks>>,
    options: &Options,
    stop: &AtomicBool,
) -> Result<(), WatchError> {
    let (between, heard) = asking(arbiter, ranks, options)?;
    let mut terminal = ratatui::try_init().map_err(WatchError::Terminal)?;
    let mut screen = Screen::new(options.job.as_deref());
    let theme = Theme::new(options.colours);
    let mut looks = 0;
    let mut silence = Silence::new(Instant::now(), options.interval);
    let result = loop {
        if let Err(e) = terminal.draw(|frame| draw(frame, &screen, &theme)) {
            break Err(WatchError::Terminal(e));
        }
        match heard.try_recv() {
            Ok(Ok(picture)) => {
                screen.heard(picture);
                silence.over(Instant::now());
                looks += 1;
                if options.count.is_some_and(|n| looks > n) {
                    break Ok(());
                }
            }
            Ok(Err(e)) => silence.because(e.to_string()),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => silence.because("nobody asks it any more".to_owned()),
        }
        if let Some(words) = silence.words(Instant::now()) {
            screen.missed(words);
        }
        match quits(&mut screen) {
            Ok(false) if !stop.load(Relaxed) => {}
            Ok(_) => break Ok(()),
            Err(e) => break Err(WatchError::Terminal(e)),
        }
        let mut job = between.job.lock().unwrap_or_else(PoisonError::into_inner);
        if job.as_deref() != screen.job() {
            *job = screen.job().map(str::to_owned);
            between.hurry.store(true, Relaxed);
        }
    };
    between.end.store(true, Relaxed);
    // Where that fails there is no terminal left, nor anybody to be told, as dropping it would.
    if ratatui::try_restore().is_err() || hung_up().unwrap_or(true) {
        std::mem::forget(terminal);
        return Ok(());
    }
    result
}

/// Waits for a key, a tick long; whether the terminal is gone. What reads the keys does not come back from
/// a terminal without another end.
fn hung_up() -> std::io::Result<bool> {
    let input = std::io::stdin();
    let mut keys = [PollFd::new(&input, PollFlags::IN)];
    let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    match rustix::event::poll(&mut keys, Some(&tick)) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(false),
        Err(e) => return Err(e.into()),
    }
    let gone = keys[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    if !gone && !input.is_terminal() {
        // Keys come from elsewhere.
        std::thread::sleep(TICK);
    }
    Ok(gone)
}

/// Takes the keys that were pressed; whether they say to end.
fn quits(screen: &mut Screen) -> std::io::Result<bool> {
    if hung_up()? {
        return Ok(true);
    }
    while event::poll(Duration::ZERO)? {
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c')) {
            return Ok(true);
        }
        let known = match key.code {
            KeyCode::Char(c) => Key::Char(c),
            KeyCode::Enter => Key::Enter,
            KeyCode::Esc => Key::Escape,
            KeyCode::Backspace => Key::Backspace,
            KeyCode::Up => Key::Up,
            KeyCode::Down => Key::Down,
            KeyCode::Home => Key::Home,
            KeyCode::End => Key::End,
            _ => continue,
        };
        if screen.key(known) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn ask(
    arbiter: &Client,
    ranks: Option<&AskRanks>,
    between: &Between,
    interval: Duration,
    news: &SyncSender<News>,
) {
    while !between.end.load(Relaxed) {
        between.hurry.store(false, Relaxed);
        let job = between.job.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if news.send(Picture::take(arbiter, job.as_deref(), ranks)).is_err() {
            return;
        }
        nap(interval, &between.hurry);
    }
}
