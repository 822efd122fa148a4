//! Bars over categories.

use crate::Size;
use crate::canvas::{Anchor, INK, width_of};
use crate::frame::{Frame, Swatch};
use crate::scale::{Axis, number};

/// One colour of bars.
#[derive(Clone, Debug, Default)]
pub struct BarSeries {
    /// What the legend calls it.
    pub name: String,
    /// One value per category.
    pub values: Vec<f64>,
    /// Spread around each value, low and high; may be empty. Not shown when stacked.
    pub ranges: Vec<(f64, f64)>,
}

impl BarSeries {
    /// A series without spread.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> BarSeries {
        BarSeries { name: name.into(), values: values.into_iter().collect(), ranges: Vec::new() }
    }
}

/// A bar chart.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// Above the chart.
    pub title: String,
    /// Pixels.
    pub size: Size,
    /// What the categories are.
    pub x_label: String,
    /// Their names, left to right.
    pub categories: Vec<String>,
    /// Up.
    pub y: Axis,
    /// The bars; a legend appears when there are several series.
    pub series: Vec<BarSeries>,
    /// Stack the series instead of setting them side by side.
    pub stacked: bool,
    /// Write each bar's value above it (stacked: the total).
    pub labels: bool,
}

impl Bars {
    /// The chart as SVG text.
    pub fn svg(&self) -> String {
        let x = Axis::categories(self.x_label.clone(), self.categories.iter().cloned());
        let mut ys: Vec<f64> = if self.stacked {
            (0..self.categories.len()).map(|c| self.column(c).map(|(_, v)| v.max(0.0)).sum()).collect()
        } else {
            (0..self.categories.len()).flat_map(|c| self.column(c).map(|(_, v)| v)).collect()
        };
        if !self.stacked {
            ys.extend(self.series.iter().flat_map(|s| s.ranges.iter().flat_map(|r| [r.0, r.1])));
        }
        let any = !ys.is_empty();
        if self.labels {
            // Room for the figure above the tallest bar.
            if let Some(top) = ys.iter().copied().filter(|v| v.is_finite()).reduce(f64::max) {
                ys.push(top * 1.06);
            }
        }
        let names: Vec<String> = self.series.iter().map(|s| s.name.clone()).collect();
        let mut f = Frame::new(self.size, &self.title, &names, Swatch::Block, &x, &self.y, (&[], &ys));
        if !any {
            f.empty_note();
        }
        let step = (f.right - f.left) / self.categories.len().max(1) as f64;
        let room = step * 0.76;
        for (c, category) in self.categories.iter().enumerate() {
            let mid = f.px(c as f64);
            if self.stacked {
                let mut sum = 0.0;
                let width = room.min(64.0);
                for (i, v) in self.column(c).filter(|(_, v)| *v > 0.0) {
                    let (from, to) = (f.py(sum), f.py(sum + v));
                    let hover = format!("{category}, {}: {}", self.series[i].name, number(v));
                    f.canvas.rect((mid - width / 2.0, to), (width, from - to), 0.0, crate::colour(i), &hover);
                    sum += v;
                }
                self.label(&mut f, mid, sum, sum, room);
            } else {
                let count = self.series.len().max(1) as f64;
                let width = (room / count).min(56.0);
                for (i, v) in self.column(c) {
                    let left = mid + (i as f64 - count / 2.0) * width;
                    let (base, top) = (f.base(), f.py(v));
                    let hover = format!("{category}, {}: {}", self.series[i].name, number(v));
                    let inset = if width > 6.0 { 1.0 } else { 0.0 };
                    f.canvas.rect(
                        (left + inset, top.min(base)),
                        (width - 2.0 * inset, (top - base).abs()),
                        1.5,
                        crate::colour(i),
                        &hover,
                    );
                    let mut above = v.max(0.0);
                    if let Some(&(lo, hi)) =
                        self.series[i].ranges.get(c).filter(|r| self.y.shows(r.0) && self.y.shows(r.1))
                    {
                        let (x, lo_px, hi_px) = (left + width / 2.0, f.py(lo), f.py(hi));
                        let cap = (width * 0.25).min(5.0);
                        f.canvas.line((x, lo_px), (x, hi_px), INK, 1.2);
                        f.canvas.line((x - cap, lo_px), (x + cap, lo_px), INK, 1.2);
                        f.canvas.line((x - cap, hi_px), (x + cap, hi_px), INK, 1.2);
                        above = above.max(hi);
                    }
                    self.label(&mut f, left + width / 2.0, above, v, width);
                }
            }
        }
        f.canvas.finish()
    }

    /// The values of one category that can be shown, with their series.
    fn column(&self, c: usize) -> impl Iterator<Item = (usize, f64)> {
        let shown = self.series.iter().enumerate().filter_map(move |(i, s)| Some((i, *s.values.get(c)?)));
        shown.filter(|(_, v)| self.y.shows(*v))
    }

    fn label(&self, f: &mut Frame, x: f64, above: f64, value: f64, room: f64) {
        let text = (self.y.format)(value);
        if self.labels && width_of(&text, f.ty.tick) <= room * 1.3 {
            let at = f.py(above) - 4.0;
            f.canvas.text(x, at, f.ty.tick, Anchor::Middle, INK, false, &text);
        }
    }
}
