//! What all charts with axes share: title, legend, grid, axes, and the plot area inside them.

use crate::Size;
use crate::canvas::{Anchor, Canvas, GRID, INK, MUTED, fit, width_of};
use crate::scale::{Axis, Kind, Scale};

/// How a legend entry is drawn.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Swatch {
    Mark,
    Block,
}

/// Type sizes for a chart of this size.
#[derive(Clone, Copy)]
pub(crate) struct Type {
    pub(crate) title: f64,
    pub(crate) body: f64,
    pub(crate) tick: f64,
}

impl Type {
    pub(crate) fn of(size: Size) -> Type {
        if size.width < 300.0 {
            Type { title: 11.5, body: 9.5, tick: 9.0 }
        } else {
            Type { title: 16.0, body: 12.5, tick: 11.5 }
        }
    }
}

/// A canvas with title, legend and axes drawn, and a map from values to pixels.
pub(crate) struct Frame {
    pub(crate) canvas: Canvas,
    pub(crate) ty: Type,
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
}

/// Title and legend at the top of any chart; returns the canvas and the y where the rest begins.
pub(crate) fn header(size: Size, title: &str, legend: &[String], swatch: Swatch) -> (Canvas, f64) {
    let ty = Type::of(size);
    let mut canvas = Canvas::new(size, title);
    let mut y = 8.0;
    if !title.is_empty() {
        y += ty.title;
        canvas.text(12.0, y, ty.title, Anchor::Start, INK, true, &fit(title, ty.title, size.width - 24.0));
        y += ty.title * 0.5;
    }
    if legend.len() > 1 {
        let mut x = 12.0;
        y += ty.body * 1.1;
        for (i, name) in legend.iter().enumerate() {
            let name = fit(name, ty.body, size.width - 50.0);
            let w = 18.0 + width_of(&name, ty.body) + 14.0;
            if x + w > size.width && x > 12.0 {
                x = 12.0;
                y += ty.body * 1.5;
            }
            let mid = (x + 6.0, y - ty.body * 0.35);
            match swatch {
                Swatch::Mark => {
                    canvas.line((x - 2.0, mid.1), (x + 14.0, mid.1), crate::colour(i), 2.0);
                    canvas.mark(i, mid, 3.6, "");
                }
                Swatch::Block => canvas.rect((x, mid.1 - 5.0), (11.0, 10.0), 2.0, crate::colour(i), ""),
            }
            canvas.text(x + 18.0, y, ty.body, Anchor::Start, INK, false, &name);
            x += w;
        }
        y += ty.body * 0.5;
    }
    (canvas, y + 6.0)
}

impl Frame {
    /// The frame for a chart whose values are `xs` and `ys`.
    pub(crate) fn new(
        size: Size,
        title: &str,
        legend: &[String],
        swatch: Swatch,
        x: &Axis,
        y: &Axis,
        values: (&[f64], &[f64]),
    ) -> Frame {
        let ty = Type::of(size);
        let (canvas, top) = header(size, title, legend, swatch);
        let small = size.width < 300.0;
        let top = top + 4.0;
        let mut bottom = size.height - 8.0 - ty.tick * 1.5;
        if !x.label.is_empty() {
            bottom -= ty.body * 1.5;
        }
        let y_scale = y.scale(values.1.iter().copied(), bottom - top, if small { 32.0 } else { 46.0 });
        let y_room =
            y_scale.ticks.iter().map(|t| width_of(&t.1, ty.tick)).fold(0.0, f64::max).min(size.width * 0.4);
        let left = 12.0 + y_room + 6.0 + if y.label.is_empty() { 0.0 } else { ty.body * 1.5 };
        let right = size.width - if small { 8.0 } else { 24.0 };
        let gap = match &x.kind {
            Kind::Categories(_) => ty.tick * 1.6,
            _ => ty.tick * 6.0,
        };
        let x_scale = x.scale(values.0.iter().copied(), right - left, gap);
        let mut frame = Frame { canvas, ty, left, top, right, bottom, x: x_scale, y: y_scale };
        let crowded = frame.crowded(x);
        if crowded {
            let longest = frame.x.ticks.iter().map(|t| width_of(&t.1, ty.tick)).fold(0.0, f64::max);
            let longest = longest.min(size.height * 0.5);
            frame.bottom -= (longest * 0.57).min(size.height * 0.3);
            // A slanted label reaches to the left of its tick.
            let half_step = (right - left) / (frame.x.ticks.len().max(1) * 2) as f64;
            frame.left = left.max((longest * 0.82 - half_step + 6.0).min(size.width * 0.4));
            frame.y = y.scale(values.1.iter().copied(), frame.bottom - top, if small { 32.0 } else { 46.0 });
        }
        frame.axes(size, x, y, crowded);
        frame
    }

    /// Pixel for an x value.
    pub(crate) fn px(&self, v: f64) -> f64 {
        self.left + self.x.at(v) * (self.right - self.left)
    }

    /// Pixel for a y value.
    pub(crate) fn py(&self, v: f64) -> f64 {
        self.bottom - self.y.at(v) * (self.bottom - self.top)
    }

    /// Pixel of the line bars stand on.
    pub(crate) fn base(&self) -> f64 {
        self.bottom - self.y.base() * (self.bottom - self.top)
    }

    /// Says that there is nothing to see, where there is nothing.
    pub(crate) fn empty_note(&mut self) {
        let at = ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0);
        self.canvas.text(at.0, at.1, self.ty.body, Anchor::Middle, MUTED, false, "no data");
    }

    fn crowded(&self, x: &Axis) -> bool {
        let Kind::Categories(names) = &x.kind else { return false };
        let shown = self.x.ticks.len().max(1);
        let room = (self.right - self.left) / names.len().max(shown) as f64;
        self.x.ticks.iter().any(|t| width_of(&t.1, self.ty.tick) > room * 0.98)
    }

    fn axes(&mut self, size: Size, x: &Axis, y: &Axis, crowded: bool) {
        let (l, r, b) = (self.left, self.right, self.bottom);
        let tick = self.ty.tick;
        for (v, label) in std::mem::take(&mut self.y.ticks) {
            let at = self.py(v);
            self.canvas.line((l, at), (r, at), GRID, 1.0);
            let label = fit(&label, tick, l - 4.0);
            self.canvas.text(l - 6.0, at + tick * 0.35, tick, Anchor::End, MUTED, false, &label);
        }
        let categorical = matches!(x.kind, Kind::Categories(_));
        for (v, label) in std::mem::take(&mut self.x.ticks) {
            let at = self.px(v);
            if !categorical {
                self.canvas.line((at, b), (at, b + 4.0), MUTED, 1.0);
            }
            if crowded {
                let label = fit(&label, tick, size.height * 0.5);
                self.canvas.slanted(at + tick * 0.3, b + tick * 1.1, tick, &label);
            } else {
                self.canvas.text(at, b + tick * 1.45, tick, Anchor::Middle, MUTED, false, &label);
            }
        }
        let base = self.base();
        self.canvas.line((l, base), (r, base), MUTED, 1.0);
        let body = self.ty.body;
        if !x.label.is_empty() {
            let label = fit(&x.label, body, r - l);
            self.canvas.text((l + r) / 2.0, size.height - 8.0, body, Anchor::Middle, MUTED, false, &label);
        }
        if !y.label.is_empty() {
            let label = fit(&y.label, body, b - self.top + 20.0);
            self.canvas.upright(12.0 + body * 0.6, (self.top + b) / 2.0, body, &label);
        }
    }
}
