//! A table of numbers as coloured cells.

use crate::Size;
use crate::canvas::{Anchor, INK, MUTED, fit, width_of};
use crate::frame::{Swatch, Type, header};
use crate::scale::number;

/// How values become shades.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Shades {
    /// From the lowest (light) to the highest (dark).
    #[default]
    Sequential,
    /// As `Sequential`, by the logarithm (values must be positive).
    Logarithmic,
    /// Orange below the given middle, blue above it.
    Diverging(f64),
}

/// A heat map.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// Above the chart.
    pub title: String,
    /// Pixels.
    pub size: Size,
    /// What the columns are.
    pub x_label: String,
    /// Their names, left to right.
    pub columns: Vec<String>,
    /// What the rows are.
    pub y_label: String,
    /// Their names, top to bottom.
    pub rows: Vec<String>,
    /// `cells[row][column]`; a value that is not finite leaves the cell empty.
    pub cells: Vec<Vec<f64>>,
    /// How a cell's value is written; cells too small for it stay without.
    pub format: fn(f64) -> String,
    /// How values become shades.
    pub shades: Shades,
}

impl Default for HeatMap {
    fn default() -> HeatMap {
        HeatMap {
            title: String::new(),
            size: Size::default(),
            x_label: String::new(),
            columns: Vec::new(),
            y_label: String::new(),
            rows: Vec::new(),
            cells: Vec::new(),
            format: number,
            shades: Shades::default(),
        }
    }
}

impl HeatMap {
    /// The chart as SVG text.
    pub fn svg(&self) -> String {
        let ty = Type::of(self.size);
        let (mut canvas, top) = header(self.size, &self.title, &[], Swatch::Block);
        let y_room =
            self.rows.iter().map(|r| width_of(r, ty.tick)).fold(0.0, f64::max).min(self.size.width * 0.35);
        let left = 14.0 + y_room + 6.0 + if self.y_label.is_empty() { 0.0 } else { ty.body * 1.6 };
        let right = self.size.width - 14.0;
        let (cols, rows) = (self.columns.len().max(1) as f64, self.rows.len().max(1) as f64);
        let cell_w = (right - left) / cols;
        let slant = self.columns.iter().any(|c| width_of(c, ty.tick) > cell_w * 0.98);
        let longest = self.columns.iter().map(|c| width_of(c, ty.tick)).fold(0.0, f64::max);
        let mut bottom = self.size.height - 8.0 - ty.tick * 1.6;
        if slant {
            bottom -= (longest * 0.57).min(self.size.height * 0.3);
        }
        if !self.x_label.is_empty() {
            bottom -= ty.body * 1.5;
        }
        let cell_h = (bottom - top) / rows;

        let shown = || self.cells.iter().flatten().copied().filter(|v| self.level(*v).is_some());
        let lo = shown().filter_map(|v| self.level(v)).fold(f64::INFINITY, f64::min);
        let hi = shown().filter_map(|v| self.level(v)).fold(f64::NEG_INFINITY, f64::max);
        for (r, name) in self.rows.iter().enumerate() {
            let y = top + r as f64 * cell_h;
            let label = fit(name, ty.tick, y_room + 2.0);
            canvas.text(
                left - 6.0,
                y + cell_h / 2.0 + ty.tick * 0.35,
                ty.tick,
                Anchor::End,
                MUTED,
                false,
                &label,
            );
            for (c, column) in self.columns.iter().enumerate() {
                let x = left + c as f64 * cell_w;
                let value = self.cells.get(r).and_then(|row| row.get(c)).copied().unwrap_or(f64::NAN);
                let gap = if cell_w > 8.0 && cell_h > 8.0 { 1.0 } else { 0.0 };
                let at = (x + gap, y + gap);
                let size = (cell_w - 2.0 * gap, cell_h - 2.0 * gap);
                let Some(level) = self.level(value) else {
                    canvas.rect(at, size, 2.0, "#f1f3f5", &format!("{name}, {column}: no value"));
                    continue;
                };
                let (fill, dark) = self.shade(level, lo, hi);
                let text = (self.format)(value);
                canvas.rect(at, size, 2.0, &fill, &format!("{name}, {column}: {text}"));
                if width_of(&text, ty.tick) < cell_w - 4.0 && cell_h > ty.tick * 1.15 {
                    let ink = if dark { "#ffffff" } else { INK };
                    let mid = (x + cell_w / 2.0, y + cell_h / 2.0 + ty.tick * 0.35);
                    canvas.text(mid.0, mid.1, ty.tick, Anchor::Middle, ink, false, &text);
                }
            }
        }
        for (c, name) in self.columns.iter().enumerate() {
            let x = left + (c as f64 + 0.5) * cell_w;
            if slant {
                let label = fit(name, ty.tick, self.size.height * 0.5);
                canvas.slanted(x + ty.tick * 0.3, bottom + ty.tick * 1.1, ty.tick, &label);
            } else {
                canvas.text(x, bottom + ty.tick * 1.45, ty.tick, Anchor::Middle, MUTED, false, name);
            }
        }
        if !self.x_label.is_empty() {
            let mid = (left + right) / 2.0;
            canvas.text(mid, self.size.height - 8.0, ty.body, Anchor::Middle, MUTED, false, &self.x_label);
        }
        if !self.y_label.is_empty() {
            canvas.upright(12.0 + ty.body * 0.6, (top + bottom) / 2.0, ty.body, &self.y_label);
        }
        canvas.finish()
    }

    fn level(&self, v: f64) -> Option<f64> {
        match self.shades {
            Shades::Logarithmic => (v > 0.0 && v.is_finite()).then(|| v.ln()),
            _ => v.is_finite().then_some(v),
        }
    }

    /// The fill for a level, and whether it is dark enough for white text.
    fn shade(&self, v: f64, lo: f64, hi: f64) -> (String, bool) {
        const BLUE: [[f64; 3]; 4] =
            [[239.0, 246.0, 252.0], [158.0, 202.0, 225.0], [49.0, 130.0, 189.0], [8.0, 48.0, 107.0]];
        const ORANGE: [[f64; 3]; 4] =
            [[254.0, 244.0, 234.0], [253.0, 190.0, 133.0], [230.0, 110.0, 20.0], [140.0, 55.0, 4.0]];
        let (ramp, t) = match self.shades {
            Shades::Diverging(mid) => {
                let reach = (hi - mid).abs().max((mid - lo).abs());
                let t = if reach > 0.0 { (v - mid) / reach } else { 0.0 };
                if t < 0.0 { (&ORANGE, -t) } else { (&BLUE, t) }
            }
            _ => (&BLUE, if hi > lo { (v - lo) / (hi - lo) } else { 0.3 }),
        };
        // The darkest end is left out: text on it reads badly in print.
        let t = t.clamp(0.0, 1.0) * 2.7;
        let i = (t as usize).min(2);
        let mix = |k: usize| ramp[i][k] + (ramp[i + 1][k] - ramp[i][k]) * (t - i as f64);
        let [r, g, b] = [mix(0), mix(1), mix(2)].map(|c| c.round() as u8);
        let luminance = 0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b);
        (format!("#{r:02x}{g:02x}{b:02x}"), luminance < 140.0)
    }
}
