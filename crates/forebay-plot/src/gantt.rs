//! Who held what when.

use crate::Size;
use crate::canvas::{Anchor, GRID, INK, MUTED, fit, width_of};
use crate::frame::{Swatch, Type, header};
use crate::scale::Axis;

/// One bar: a row held by someone for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// Index of the row.
    pub row: usize,
    /// When it began.
    pub from: f64,
    /// When it ended.
    pub to: f64,
    /// Who held it: index into [`Gantt::holders`], and so its colour.
    pub holder: usize,
    /// Written on the bar where it fits, and shown on hover.
    pub label: String,
}

/// A timeline of holds.
#[derive(Clone, Debug, Default)]
pub struct Gantt {
    /// Above the chart.
    pub title: String,
    /// Pixels; a height of 0 takes what the rows need.
    pub size: Size,
    /// Time.
    pub x: Axis,
    /// Names of the rows, top to bottom.
    pub rows: Vec<String>,
    /// Names of the holders, for the legend; more than 12 make no legend.
    pub holders: Vec<String>,
    /// The bars.
    pub holds: Vec<Hold>,
}

impl Gantt {
    /// The chart as SVG text.
    pub fn svg(&self) -> String {
        let ty = Type::of(self.size);
        let mut size = self.size;
        if size.height <= 0.0 {
            size.height = 110.0 + 24.0 * self.rows.len() as f64;
        }
        let legend = if self.holders.len() <= 12 { self.holders.as_slice() } else { &[] };
        let (mut canvas, top) = header(size, &self.title, legend, Swatch::Block);
        let top = top + 4.0;
        let y_room =
            self.rows.iter().map(|r| width_of(r, ty.tick)).fold(0.0, f64::max).min(size.width * 0.35);
        let (left, right) = (14.0 + y_room + 6.0, size.width - 26.0);
        let mut bottom = size.height - 8.0 - ty.tick * 1.6;
        if !self.x.label.is_empty() {
            bottom -= ty.body * 1.5;
        }
        let seen = |h: &&Hold| {
            h.row < self.rows.len() && self.x.shows(h.from) && self.x.shows(h.to) && h.to >= h.from
        };
        let times = self.holds.iter().filter(seen).flat_map(|h| [h.from, h.to]);
        let scale = self.x.scale(times, right - left, ty.tick * 6.0);
        let px = |t: f64| left + scale.at(t) * (right - left);

        let row_h = (bottom - top) / self.rows.len().max(1) as f64;
        for (r, name) in self.rows.iter().enumerate() {
            let y = top + r as f64 * row_h;
            if r % 2 == 0 {
                canvas.rect((left, y), (right - left, row_h), 0.0, "#f7f9fb", "");
            }
            let label = fit(name, ty.tick, y_room + 2.0);
            canvas.text(
                left - 6.0,
                y + row_h / 2.0 + ty.tick * 0.35,
                ty.tick,
                Anchor::End,
                INK,
                false,
                &label,
            );
        }
        for (t, label) in &scale.ticks {
            canvas.line((px(*t), top), (px(*t), bottom), GRID, 1.0);
            canvas.text(px(*t), bottom + ty.tick * 1.45, ty.tick, Anchor::Middle, MUTED, false, label);
        }
        let pad = (row_h * 0.14).min(4.0);
        for h in self.holds.iter().filter(seen) {
            let (a, b) = (px(h.from), px(h.to));
            let y = top + h.row as f64 * row_h + pad;
            let holder = self.holders.get(h.holder).map_or("", String::as_str);
            let span = format!("{} to {}", (self.x.format)(h.from), (self.x.format)(h.to));
            let hover = [self.rows[h.row].as_str(), holder, h.label.as_str(), &span]
                .into_iter()
                .filter(|s| !s.is_empty())
                .collect::<Vec<_>>()
                .join(", ");
            canvas.rect((a, y), ((b - a).max(1.0), row_h - 2.0 * pad), 2.5, crate::colour(h.holder), &hover);
            if !h.label.is_empty() && row_h > ty.tick * 1.3 && width_of(&h.label, ty.tick) < b - a - 6.0 {
                let mid = y + row_h / 2.0 - pad + ty.tick * 0.35;
                canvas.text((a + b) / 2.0, mid, ty.tick, Anchor::Middle, "#ffffff", true, &h.label);
            }
        }
        canvas.line((left, bottom), (right, bottom), MUTED, 1.0);
        if !self.x.label.is_empty() {
            canvas.text(
                (left + right) / 2.0,
                size.height - 8.0,
                ty.body,
                Anchor::Middle,
                MUTED,
                false,
                &self.x.label,
            );
        }
        canvas.finish()
    }
}
