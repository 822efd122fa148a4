//! Lines with points and spread.

use crate::Size;
use crate::frame::{Frame, Swatch};
use crate::scale::{Axis, number};

/// One value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// How much.
    pub y: f64,
    /// The spread around `y`, low and high, where known.
    pub range: Option<(f64, f64)>,
}

/// How a point's range is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// A band along the line.
    #[default]
    Band,
    /// A bar at each point.
    Bars,
}

/// One line of a chart.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Its points, in drawing order.
    pub points: Vec<Point>,
    /// Single measurements behind the points, drawn faintly.
    pub samples: Vec<(f64, f64)>,
}

impl Series {
    /// A series without spread.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        let points = points.into_iter().map(|(x, y)| Point { x, y, range: None }).collect();
        Series { name: name.into(), points, samples: Vec::new() }
    }

    /// A series of `(x, y, low, high)`.
    pub fn with_range(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64, f64, f64)>,
    ) -> Series {
        let points = points.into_iter().map(|(x, y, lo, hi)| Point { x, y, range: Some((lo, hi)) }).collect();
        Series { name: name.into(), points, samples: Vec::new() }
    }
}

/// A line chart.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Above the chart.
    pub title: String,
    /// Pixels.
    pub size: Size,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The lines; a legend appears when there are several.
    pub series: Vec<Series>,
    /// How ranges are shown.
    pub spread: Spread,
    /// Draw points only (no line between them), for scatter plots.
    pub points_only: bool,
    /// Leave the legend to the text around the chart.
    pub no_legend: bool,
}

impl Line {
    /// The chart as SVG text.
    pub fn svg(&self) -> String {
        let seen = |p: &&Point| self.x.shows(p.x) && self.y.shows(p.y);
        let (mut xs, mut ys) = (Vec::new(), Vec::new());
        for s in &self.series {
            for p in s.points.iter().filter(seen) {
                xs.push(p.x);
                ys.push(p.y);
                if let Some((lo, hi)) = p.range {
                    // The scale leaves out what it cannot show.
                    ys.extend([lo, hi]);
                }
            }
            for &(x, y) in s.samples.iter().filter(|(x, y)| self.x.shows(*x) && self.y.shows(*y)) {
                xs.push(x);
                ys.push(y);
            }
        }
        let mut names: Vec<String> = self.series.iter().map(|s| s.name.clone()).collect();
        if self.no_legend {
            names.clear();
        }
        let mut f = Frame::new(self.size, &self.title, &names, Swatch::Mark, &self.x, &self.y, (&xs, &ys));
        if xs.is_empty() {
            f.empty_note();
        }
        let small = self.size.width < 300.0;
        let (mark, stroke) = if small { (2.6, 1.6) } else { (4.0, 2.2) };
        for (i, s) in self.series.iter().enumerate() {
            let points: Vec<&Point> = s.points.iter().filter(seen).collect();
            self.draw_spread(&mut f, i, &points);
            for &(x, y) in s.samples.iter().filter(|(x, y)| self.x.shows(*x) && self.y.shows(*y)) {
                let at = (f.px(x), f.py(y));
                f.canvas.dot(at, if small { 1.5 } else { 2.2 }, crate::colour(i), 0.28);
            }
            if !self.points_only {
                let path: Vec<_> = points.iter().map(|p| (f.px(p.x), f.py(p.y))).collect();
                if path.len() > 1 {
                    f.canvas.polyline(&path, crate::colour(i), stroke);
                }
            }
            // Marks on every point of a long line are noise.
            if self.points_only || points.len() <= 60 {
                for p in points {
                    let at = (f.px(p.x), f.py(p.y));
                    f.canvas.mark(i, at, mark, &hover(s, p, &self.x));
                }
            }
        }
        f.canvas.finish()
    }

    fn draw_spread(&self, f: &mut Frame, i: usize, points: &[&Point]) {
        let ranged = points.iter().filter_map(|p| {
            p.range.filter(|(lo, hi)| self.y.shows(*lo) && self.y.shows(*hi)).map(|(lo, hi)| (p.x, lo, hi))
        });
        match self.spread {
            Spread::Band => {
                let ranged: Vec<_> = ranged.collect();
                if ranged.len() > 1 {
                    let up = ranged.iter().map(|(x, _, hi)| (f.px(*x), f.py(*hi)));
                    let down = ranged.iter().rev().map(|(x, lo, _)| (f.px(*x), f.py(*lo)));
                    let outline: Vec<_> = up.chain(down).collect();
                    f.canvas.polygon(&outline, crate::colour(i), 0.16, "");
                }
            }
            Spread::Bars => {
                let cap = if self.size.width < 300.0 { 2.5 } else { 4.5 };
                for (x, lo, hi) in ranged.collect::<Vec<_>>() {
                    let (x, lo, hi) = (f.px(x), f.py(lo), f.py(hi));
                    let c = crate::colour(i);
                    f.canvas.line((x, lo), (x, hi), c, 1.3);
                    f.canvas.line((x - cap, lo), (x + cap, lo), c, 1.3);
                    f.canvas.line((x - cap, hi), (x + cap, hi), c, 1.3);
                }
            }
        }
    }
}

fn hover(s: &Series, p: &Point, x: &Axis) -> String {
    let at = match &x.kind {
        crate::Kind::Categories(names) => names.get(p.x.round() as usize).cloned().unwrap_or_default(),
        _ => (x.format)(p.x),
    };
    let range = p.range.filter(|(lo, hi)| lo.is_finite() && hi.is_finite());
    let range = range.map(|(lo, hi)| format!(" ({} to {})", number(lo), number(hi))).unwrap_or_default();
    let name = if s.name.is_empty() { String::new() } else { format!("{}, ", s.name) };
    format!("{name}{at}: {}{range}", number(p.y))
}
