//! What is on the screen and what keys do to it: a state machine without a terminal.

use crate::picture::Picture;
use forebay_control::view::{JobView, NodeView};
use std::cmp::Ordering;

/// What can be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// All jobs.
    Jobs,
    /// All I/O nodes.
    Nodes,
    /// One job on its I/O nodes.
    Job(String),
    /// What was decided.
    Decisions,
    /// What keys do.
    Help,
}

/// A key, as far as it means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter or a sign.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Up.
    Up,
    /// Down.
    Down,
    /// To the first.
    Home,
    /// To the last.
    End,
}

/// How jobs can be sorted, in the order in which `s` goes through it.
pub const JOB_ORDERS: [&str; 7] = ["MB/s", "job", "user", "I/O nodes", "age", "ops/s", "p99"];
/// How I/O nodes can.
pub const NODE_ORDERS: [&str; 5] = ["node", "MB/s", "waiting", "p99", "state"];

/// How many totals are remembered.
const TRAIL: usize = 300;

/// What is on the screen.
#[derive(Clone, Debug)]
pub struct Screen {
    /// What is looked at.
    pub view: View,
    /// Where escape leads.
    back: View,
    job_order: usize,
    node_order: usize,
    reverse: bool,
    /// Only what contains this.
    pub filter: String,
    /// Keys go to the filter.
    pub typing: bool,
    /// The row in which the cursor is.
    pub cursor: usize,
    /// What the arbiter last said.
    pub picture: Option<Picture>,
    /// Why there is nothing newer.
    pub problem: Option<String>,
    /// MB/s of all jobs or of the one that is looked at, the newest last.
    pub trail: Vec<f64>,
}

impl Default for Screen {
    fn default() -> Screen {
        Screen::new(None)
    }
}

impl Screen {
    /// Looks at one job, or at all.
    pub fn new(job: Option<&str>) -> Screen {
        Screen {
            view: job.map_or(View::Jobs, |j| View::Job(j.to_owned())),
            back: View::Jobs,
            job_order: 0,
            node_order: 0,
            reverse: false,
            filter: String::new(),
            typing: false,
            cursor: 0,
            picture: None,
            problem: None,
            trail: Vec::new(),
        }
    }

    /// The arbiter said something.
    pub fn heard(&mut self, picture: Picture) {
        let job = self.job().and_then(|id| picture.jobs.iter().find(|j| j.id == id));
        let mbs = if self.job().is_some() { job.map_or(0.0, |j| j.bandwidth_mbs) } else { picture.total() };
        if self.trail.len() == TRAIL {
            self.trail.remove(0);
        }
        self.trail.push(mbs);
        self.picture = Some(picture);
        self.problem = None;
        self.cursor = self.cursor.min(self.rows().saturating_sub(1));
    }

    /// Or it did not.
    pub fn missed(&mut self, why: String) {
        self.problem = Some(why);
    }

    /// The job that is looked at.
    pub fn job(&self) -> Option<&str> {
        match &self.view {
            View::Job(id) => Some(id),
            _ => None,
        }
    }

    /// A key was pressed; whether to end.
    pub fn key(&mut self, key: Key) -> bool {
        if self.typing {
            match key {
                Key::Enter => self.typing = false,
                Key::Escape => {
                    self.typing = false;
                    self.filter.clear();
                }
                Key::Backspace => drop(self.filter.pop()),
                Key::Char(c) if self.filter.len() < 100 => self.filter.push(c),
                _ => {}
            }
            self.cursor = 0;
            return false;
        }
        let last = self.rows().saturating_sub(1);
        match key {
            Key::Char('q') => return true,
            Key::Escape if self.view == View::Jobs && self.filter.is_empty() => return true,
            Key::Escape if matches!(self.view, View::Jobs | View::Nodes) && !self.filter.is_empty() => {
                self.filter.clear();
            }
            Key::Escape | Key::Backspace => {
                let back = std::mem::replace(&mut self.back, View::Jobs);
                self.go(back);
            }
            Key::Char('j') | Key::Down => self.cursor = (self.cursor + 1).min(last),
            Key::Char('k') | Key::Up => self.cursor = self.cursor.saturating_sub(1),
            Key::Home => self.cursor = 0,
            Key::End => self.cursor = last,
            Key::Char('1') => self.go(View::Jobs),
            Key::Char('2') => self.go(View::Nodes),
            Key::Char('3') => self.go(View::Decisions),
            Key::Char('?' | 'h') => self.go(View::Help),
            Key::Char('/') => self.typing = true,
            Key::Char('s') => match self.view {
                View::Jobs => self.job_order = (self.job_order + 1) % JOB_ORDERS.len(),
                View::Nodes => self.node_order = (self.node_order + 1) % NODE_ORDERS.len(),
                _ => {}
            },
            Key::Char('r') => self.reverse = !self.reverse,
            Key::Enter if self.view == View::Jobs => {
                let id = self.jobs().get(self.cursor).map(|j| j.id.clone());
                if let Some(id) = id {
                    self.go(View::Job(id));
                    self.trail.clear();
                }
            }
            Key::Enter | Key::Char(_) => {}
        }
        false
    }

    fn go(&mut self, view: View) {
        if self.view != view {
            let was_job = self.job().is_some();
            self.back = std::mem::replace(&mut self.view, view);
            if self.back == View::Help || was_job {
                self.back = View::Jobs;
            }
            if was_job {
                self.trail.clear();
            }
            self.cursor = 0;
        }
    }

    /// How many rows the view has.
    fn rows(&self) -> usize {
        match self.view {
            View::Jobs => self.jobs().len(),
            View::Nodes => self.nodes().len(),
            View::Decisions => self.picture.as_ref().map_or(0, |p| p.decisions.len()),
            View::Job(_) => self.picture.as_ref().map_or(0, |p| p.places.len()),
            View::Help => 0,
        }
    }

    /// By what the rows are sorted.
    pub fn order(&self) -> &'static str {
        match self.view {
            View::Nodes => NODE_ORDERS[self.node_order],
            _ => JOB_ORDERS[self.job_order],
        }
    }

    /// The jobs that are to be seen, in their order.
    pub fn jobs(&self) -> Vec<&JobView> {
        let all = self.picture.as_ref().map_or(&[][..], |p| &p.jobs);
        let seen = |j: &&JobView| [&j.id, &j.user, &j.app].iter().any(|t| self.matches(t));
        let mut jobs: Vec<&JobView> = all.iter().filter(seen).collect();
        jobs.sort_by(|a, b| {
            let order = match JOB_ORDERS[self.job_order] {
                "MB/s" => b.bandwidth_mbs.total_cmp(&a.bandwidth_mbs),
                "ops/s" => b.operations.total_cmp(&a.operations),
                "p99" => b.latency_p99.cmp(&a.latency_p99),
                "user" => a.user.cmp(&b.user),
                "I/O nodes" => b.nodes.len().cmp(&a.nodes.len()),
                "age" => b.age_ms.cmp(&a.age_ms),
                _ => Ordering::Equal,
            };
            self.turned(order.then_with(|| a.id.cmp(&b.id)))
        });
        jobs
    }

    /// The I/O nodes that are to be seen, in their order.
    pub fn nodes(&self) -> Vec<&NodeView> {
        let all = self.picture.as_ref().map_or(&[][..], |p| &p.nodes);
        let seen = |n: &&NodeView| {
            [&n.id.to_string(), &n.host, n.state.name()].iter().any(|t| self.matches(t))
                || n.jobs.iter().any(|j| self.matches(j))
        };
        let mut nodes: Vec<&NodeView> = all.iter().filter(seen).collect();
        nodes.sort_by(|a, b| {
            let order = match NODE_ORDERS[self.node_order] {
                "MB/s" => b.bandwidth_mbs.total_cmp(&a.bandwidth_mbs),
                "waiting" => b.waiting.cmp(&a.waiting),
                "p99" => b.latency_p99.cmp(&a.latency_p99),
                "state" => a.state.name().cmp(b.state.name()),
                _ => Ordering::Equal,
            };
            self.turned(order.then_with(|| a.id.cmp(&b.id)))
        });
        nodes
    }

    fn turned(&self, order: Ordering) -> Ordering {
        if self.reverse { order.reverse() } else { order }
    }

    fn matches(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }
}
