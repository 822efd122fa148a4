//! A screen as text and colours. On a narrow terminal the columns that matter least are left out.

use crate::columns::{Column, clip, fit, whole, wide, widths};
use crate::plain::{bytes, count, moved};
use crate::screen::{Screen, View};
use crate::text::age;
use forebay_control::view::{JobView, NodeState, NodeView};
use forebay_types::{Nanos, NodeId};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};

/// What marks things: with colours, or without.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    head: Style,
    cursor: Style,
    bad: Style,
    faint: Style,
}

impl Theme {
    /// In colours, or without any.
    pub fn new(colours: bool) -> Theme {
        let plain = Style::new();
        let colour = |style: Style, c: Color| if colours { style.fg(c) } else { style };
        Theme {
            head: colour(plain.add_modifier(Modifier::BOLD), Color::Cyan),
            cursor: plain.add_modifier(Modifier::REVERSED),
            bad: colour(plain.add_modifier(Modifier::BOLD), Color::Red),
            faint: plain.add_modifier(Modifier::DIM),
        }
    }
}

/// What stands in a column of a row.
struct Item {
    text: String,
    style: Style,
}

impl From<String> for Item {
    fn from(text: String) -> Item {
        Item { text, style: Style::new() }
    }
}

impl From<&str> for Item {
    fn from(text: &str) -> Item {
        text.to_owned().into()
    }
}

impl Item {
    fn style(self, style: Style) -> Item {
        Item { style, ..self }
    }
}

const JOBS: [Column; 10] = [
    Column("job", 12, false, 0),
    Column("MB/s", 9, true, 0),
    Column("ops/s", 8, true, 66),
    Column("p99", 9, true, 76),
    Column("I/O nodes", 11, false, 0),
    Column("user", 9, false, 60),
    Column("moved", 9, true, 86),
    Column("proc", 6, true, 94),
    Column("age", 7, true, 50),
    Column("pattern", 38, false, 126),
];

const NODES: [Column; 8] = [
    Column("node", 5, true, 0),
    Column("state", 10, false, 0),
    Column("MB/s", 9, true, 0),
    Column("waiting", 8, true, 50),
    Column("p50", 9, true, 84),
    Column("p99", 9, true, 60),
    Column("health", 9, false, 70),
    Column("jobs", 20, false, 44),
];

const PLACES: [Column; 7] = [
    Column("node", 5, true, 0),
    Column("read MB/s", 10, true, 0),
    Column("written MB/s", 13, true, 0),
    Column("ops/s", 8, true, 44),
    Column("meta/s", 8, true, 54),
    Column("queue", 7, true, 62),
    Column("files", 6, true, 70),
];

const RANKS: [Column; 7] = [
    Column("rank", 5, true, 0),
    Column("host", 14, false, 0),
    Column("requests", 10, true, 0),
    Column("read", 9, true, 44),
    Column("written", 9, true, 54),
    Column("busy", 9, true, 62),
    Column("failed", 7, true, 70),
];

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, screen: &Screen, theme: &Theme) {
    let areas = Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)]);
    let [head, body, foot] = areas.areas(frame.area());
    frame.render_widget(lines(heading(screen, theme), head), head);
    match &screen.view {
        View::Jobs => {
            let rows = screen.jobs().into_iter().map(|j| job_row(j, theme)).collect();
            table(frame, body, &JOBS, rows, screen, theme);
        }
        View::Nodes => {
            let rows = screen.nodes().into_iter().map(|n| node_row(n, theme)).collect();
            table(frame, body, &NODES, rows, screen, theme);
        }
        View::Job(id) => job(frame, body, id, screen, theme),
        View::Decisions => frame.render_widget(decisions(screen), body),
        View::Help => frame.render_widget(Paragraph::new(HELP), body),
    }
    let keys = if screen.typing {
        format!("/{}_", screen.filter)
    } else if !screen.filter.is_empty() {
        format!("only /{}/ - Esc shows all", screen.filter)
    } else {
        format!("1 jobs 2 nodes 3 decisions  s sort ({})  / filter  ? help  q quit", screen.order())
    };
    frame.render_widget(lines(vec![Line::styled(keys, theme.faint)], foot), foot);
}

/// Draws the job that is looked at, and nothing else.
pub fn draw_job(frame: &mut Frame<'_>, screen: &Screen, theme: &Theme) {
    let [rule, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(frame.area());
    let line = match (&screen.problem, &screen.picture) {
        (Some(why), _) => Line::styled(format!("NO ANSWER: {why}"), theme.bad),
        (None, None) => Line::styled("forebay run: its job is being looked at", theme.faint),
        (None, Some(_)) => Line::styled("─".repeat(rule.width.into()), theme.faint),
    };
    frame.render_widget(lines(vec![line], rule), rule);
    if let Some(id) = screen.job() {
        job(frame, body, id, screen, theme);
    }
}

/// Lines, each as far as there is room for it.
fn lines(all: Vec<Line<'static>>, area: Rect) -> Paragraph<'static> {
    Paragraph::new(all.into_iter().map(|line| fit(line, area.width)).collect::<Vec<_>>())
}

const HELP: &str = " 1 2 3      jobs, I/O nodes, decisions
 Enter      the job under the cursor, on its I/O nodes
 Esc        back; at the jobs: quit
 up down    the cursor; also j and k, Home and End
 s r        sort by the next column, turn the order round
 /          show only what contains a text; Enter keeps it, Esc drops it
 ?          this
 q          quit";

fn heading(screen: &Screen, theme: &Theme) -> Vec<Line<'static>> {
    let first = match &screen.picture {
        None => Line::styled("forebay top: waiting for the arbiter", theme.head),
        Some(p) => {
            let h = &p.health;
            let text = format!(
                "{:.1} MB/s  {}  {}/{} I/O nodes  {} waiting  {} {}",
                p.total(),
                count(h.jobs as u64, "job"),
                h.admitted,
                h.nodes,
                p.waiting(),
                h.policy,
                if h.state == "leading" { format!("term {}", h.term) } else { h.state.clone() },
            );
            Line::styled(text, theme.head)
        }
    };
    let second = match &screen.problem {
        Some(why) => Line::styled(format!("NO ANSWER: {why}"), theme.bad),
        None => Line::default(),
    };
    vec![first, second]
}

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    columns: &[Column],
    rows: Vec<Vec<Item>>,
    screen: &Screen,
    theme: &Theme,
) {
    let header: Vec<Item> = columns.iter().map(|c| c.0.into()).collect();
    let longest = |i: usize| {
        let texts = rows.iter().chain([&header]).filter_map(|r| r.get(i));
        texts.map(|item| wide(&item.text)).max().unwrap_or(0)
    };
    let longest: Vec<u16> = (0..columns.len()).map(longest).collect();
    let widths = widths(columns, &longest, area.width);
    let cells = |items: Vec<Item>| {
        let shown = items.into_iter().zip(columns).zip(&widths);
        let cell = |((item, Column(_, _, number, _)), width): ((Item, &Column), &Option<u16>)| {
            let width = (*width)?;
            let text = if *number { whole(&item.text, width) } else { clip(&item.text, width) };
            let line = Line::from(text);
            Some(Cell::from(if *number { line.right_aligned() } else { line }).style(item.style))
        };
        Row::new(shown.filter_map(cell).collect::<Vec<_>>())
    };
    let header = cells(header).style(theme.head);
    let table = Table::new(
        rows.into_iter().map(cells),
        widths.iter().flatten().map(|w| Constraint::Length(*w)).collect::<Vec<_>>(),
    );
    let table = table.header(header).row_highlight_style(theme.cursor);
    let mut state = TableState::new().with_selected(Some(screen.cursor));
    frame.render_stateful_widget(table, area, &mut state);
}

fn job_row(j: &JobView, theme: &Theme) -> Vec<Item> {
    let nodes = if j.nodes.is_empty() {
        Item::from("none").style(theme.bad)
    } else {
        Item::from(format!("{}{}", list(&j.nodes), if j.shared { " shared" } else { "" }))
    };
    vec![
        Item::from(j.id.clone()),
        Item::from(format!("{:.1}", j.bandwidth_mbs)),
        Item::from(format!("{:.0}", j.operations)),
        Item::from(time(j.latency_p99)),
        nodes,
        Item::from(j.user.clone()),
        Item::from(moved(j)),
        Item::from(j.processes.to_string()),
        Item::from(age(j.age_ms)),
        Item::from(j.pattern.clone().unwrap_or_default()),
    ]
}

fn node_row(n: &NodeView, theme: &Theme) -> Vec<Item> {
    let state = Item::from(n.state.name());
    let health = n.health.as_ref().map_or(String::new(), |h| h.state.clone());
    let sound = matches!(health.as_str(), "" | "healthy");
    vec![
        Item::from(n.id.to_string()),
        if n.state == NodeState::Admitted { state } else { state.style(theme.bad) },
        Item::from(format!("{:.1}", n.bandwidth_mbs)),
        Item::from(n.waiting.to_string()),
        Item::from(time(n.latency_p50)),
        Item::from(time(n.latency_p99)),
        if sound { Item::from(health) } else { Item::from(health).style(theme.bad) },
        Item::from(n.jobs.join(" ")),
    ]
}

fn job(frame: &mut Frame<'_>, area: Rect, id: &str, screen: &Screen, theme: &Theme) {
    let Some(picture) = &screen.picture else { return };
    let Some(j) = picture.jobs.iter().find(|j| j.id == id) else {
        frame.render_widget(Paragraph::new(format!("job {id} does not run (any more)")), area);
        return;
    };
    let does = format!(
        "  {:.1} MB/s  {} in all  {} on {}  {} old",
        j.bandwidth_mbs,
        moved(j),
        count(j.processes.into(), "process"),
        count(j.compute_nodes.into(), "compute node"),
        age(j.age_ms)
    );
    // A long name leaves room for the numbers.
    let room = area.width.saturating_sub(wide(&does).saturating_add(4)).max(area.width / 3);
    let mut lines = vec![
        Line::from(vec![Span::styled(format!("job {}", clip(id, room)), theme.head), Span::raw(does)]),
        Line::raw(format!(
            "requests {:.0}/s, p50 {}, p99 {}",
            j.operations,
            time(j.latency_p50),
            time(j.latency_p99)
        )),
        Line::raw(format!("pattern  {}", j.pattern.as_deref().unwrap_or("no I/O yet"))),
        Line::raw(format!("nodes    {}: {}", list(&j.nodes), j.reason)),
    ];
    if let Some(curve) = &j.curve {
        let predicted = j.predicted_mbs.map_or(String::new(), |p| format!("{p:.1} MB/s predicted, from "));
        lines.push(Line::raw(format!("curve    {predicted}{curve}")));
    }
    for l in picture.limits.iter().filter(|l| l.shares.iter().any(|s| s.share.job == id)) {
        let most = l.limit.most.bandwidth.map_or(String::new(), |b| format!(", at most {:.1} MB/s", b / 1e6));
        lines.push(Line::raw(format!("limit    {}{most}", l.id)));
    }
    let tall = area.height > lines.len() as u16 + 8;
    let areas = Layout::vertical([
        Constraint::Length(lines.len() as u16),
        Constraint::Length(if tall { 4 } else { 0 }),
        Constraint::Length(if picture.ranks.is_empty() { 0 } else { picture.places.len() as u16 + 2 }),
        Constraint::Min(2),
    ]);
    let [about, trail, above, below] = areas.areas(area);
    let places = if picture.ranks.is_empty() { below } else { above };
    frame.render_widget(self::lines(lines, about), about);
    let width = usize::from(trail.width);
    let recent = &screen.trail[screen.trail.len().saturating_sub(width)..];
    frame.render_widget(Sparkline::default().data(recent.iter().map(|mbs| (mbs * 10.0) as u64)), trail);
    let rows = picture.places.iter().map(|p| {
        vec![
            Item::from(p.node.to_string()),
            Item::from(format!("{:.1}", p.read / 1e6)),
            Item::from(format!("{:.1}", p.written / 1e6)),
            Item::from(format!("{:.0}", p.operations)),
            Item::from(format!("{:.0}", p.metadata)),
            Item::from(format!("{:.1}", p.queue)),
            Item::from(p.files.to_string()),
        ]
    });
    table(frame, places, &PLACES, rows.collect(), screen, theme);
    let rows = picture.ranks.iter().map(|r| {
        vec![
            Item::from(r.rank.map_or("-".to_owned(), |rank| rank.to_string())),
            Item::from(r.host.clone()),
            Item::from(r.requests.to_string()),
            Item::from(bytes(r.read)),
            Item::from(bytes(r.written)),
            Item::from(time(Nanos(r.busy_ns))),
            Item::from(r.errors.to_string()),
        ]
    });
    if !picture.ranks.is_empty() {
        table(frame, below, &RANKS, rows.collect(), screen, theme);
    }
}

fn decisions(screen: &Screen) -> Paragraph<'static> {
    let all = screen.picture.as_ref().map_or(&[][..], |p| &p.decisions);
    let mut lines = Vec::new();
    for d in all.iter().skip(screen.cursor) {
        lines.push(Line::raw(format!("{} {}: {}", d.id, d.policy, d.cause)));
        for j in d.jobs.iter().filter(|j| j.nodes != j.before) {
            lines.push(Line::raw(format!(
                "    {}: {} -> {}: {}",
                j.id,
                list(&j.before),
                list(&j.nodes),
                j.why
            )));
        }
    }
    Paragraph::new(lines).wrap(Wrap { trim: false })
}

fn list(nodes: &[NodeId]) -> String {
    if nodes.is_empty() {
        return "none".to_owned();
    }
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn time(span: Nanos) -> String {
    match span.as_secs_f64() {
        s if s <= 0.0 => "-".to_owned(),
        s if s < 0.001 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
