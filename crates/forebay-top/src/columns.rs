//! Which columns of a table there is room for, how wide they are, and what is left of a text that is wider.
//! A number is whole or not there: part of it would be another number.

use ratatui::text::{Line, Span};

/// A column: its name, its width, whether numbers stand in it, and from which width of the terminal on it
/// is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column(pub(crate) &'static str, pub(crate) u16, pub(crate) bool, pub(crate) u16);

/// The first columns, however narrow the terminal.
const ALWAYS: usize = 2;

/// How wide each column is, by the `longest` text in each; `None` is not shown. Columns go from the right where
/// there is no room; what is left over is for text, the first column first.
pub(crate) fn widths(columns: &[Column], longest: &[u16], width: u16) -> Vec<Option<u16>> {
    // A long name is worth more than the columns that matter least.
    let extra = match (columns.first(), longest.first()) {
        (Some(Column(_, usual, false, _)), Some(most)) => most.saturating_sub(*usual).min(width / 5),
        _ => 0,
    };
    let mut wide: Vec<Option<u16>> = columns
        .iter()
        .zip(longest)
        .enumerate()
        .map(|(i, (Column(_, usual, number, from), most))| {
            let room = if i == 0 { usual.saturating_add(extra) } else { *usual };
            let need = if *number { (*usual).max(*most) } else { room };
            (*from == 0 || width >= from.saturating_add(extra)).then_some(need)
        })
        .collect();
    let taken = |wide: &[Option<u16>]| {
        let shown = wide.iter().flatten();
        (shown.clone().map(|w| u32::from(*w) + 1).sum::<u32>()).saturating_sub(1)
    };
    while taken(&wide) > u32::from(width) {
        let shown: Vec<usize> = (0..wide.len()).filter(|i| wide[*i].is_some()).collect();
        let widest = |i: &&usize| wide[**i];
        let texts: Vec<usize> = shown.iter().copied().filter(|i| !columns[*i].2).collect();
        // The long name gives back what it got before anything else goes.
        let generous = wide[0].is_some_and(|w| !columns[0].2 && w > columns[0].1);
        if generous {
            wide[0] = wide[0].map(|w| w - 1);
        } else if shown.len() > ALWAYS {
            wide[shown[shown.len() - 1]] = None;
        } else if let Some(i) = texts.iter().max_by_key(widest).filter(|i| wide[**i] > Some(1)) {
            wide[*i] = wide[*i].map(|w| w - 1);
        } else if shown.len() > 1 {
            wide[shown[shown.len() - 1]] = None;
        } else {
            shown.iter().for_each(|i| wide[*i] = Some(width));
            break;
        }
    }
    let mut spare = u32::from(width).saturating_sub(taken(&wide));
    for ((w, Column(_, _, number, _)), most) in wide.iter_mut().zip(columns).zip(longest) {
        if let Some(w) = w.as_mut().filter(|_| !number) {
            let more = u32::from(most.saturating_sub(*w)).min(spare);
            (*w, spare) = (*w + more as u16, spare - more);
        }
    }
    wide
}

/// The columns that a text takes.
pub(crate) fn wide(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// A text as far as there is room for it; it ends in an ellipsis if that is not all of it.
pub(crate) fn clip(text: &str, room: u16) -> String {
    if wide(text) <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if wide(&kept) >= room {
            kept.pop();
            break;
        }
    }
    if room > 0 {
        kept.push('…');
    }
    kept
}

/// A number, or an ellipsis where there is no room for it.
pub(crate) fn whole(number: &str, room: u16) -> String {
    if wide(number) <= room { number.to_owned() } else { clip("…", room) }
}

/// A line as far as there is room for it.
pub(crate) fn fit(line: Line<'static>, room: u16) -> Line<'static> {
    if line.width() <= usize::from(room) {
        return line;
    }
    let mut left = room;
    let mut spans = Vec::new();
    let last = line.spans.len().saturating_sub(1);
    for (i, span) in line.spans.into_iter().enumerate() {
        // What follows a text that fits exactly would be lost without a trace.
        let full = i < last && wide(&span.content) == left;
        let text = if full { clip(&format!("{}…", span.content), left) } else { clip(&span.content, left) };
        let cut = text != span.content;
        left = left.saturating_sub(wide(&text));
        spans.push(Span::styled(text, span.style));
        if cut {
            break;
        }
    }
    Line { spans, ..Line::default() }.style(line.style)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: [Column; 4] = [
        Column("job", 12, false, 0),
        Column("MB/s", 9, true, 0),
        Column("nodes", 11, false, 0),
        Column("age", 7, true, 50),
    ];

    #[test]
    fn numbers_are_whole_and_names_get_what_is_left() {
        let of = |longest: [u16; 4], width| widths(&SOME, &longest, width);
        assert_eq!(of([5, 5, 3, 4], 60), [Some(12), Some(9), Some(11), Some(7)]);
        assert_eq!(of([5, 5, 3, 4], 40), [Some(12), Some(9), Some(11), None]);
        assert_eq!(of([5, 5, 3, 4], 20), [Some(10), Some(9), None, None]);
        assert_eq!(of([5, 12, 3, 4], 20), [Some(7), Some(12), None, None], "a long number");
        assert_eq!(of([30, 5, 3, 4], 62), [Some(30), Some(9), Some(11), Some(7)]);
        assert_eq!(of([30, 5, 3, 4], 61), [Some(30), Some(9), Some(11), None], "a name before the age");
        assert_eq!(of([120, 5, 3, 4], 200)[0], Some(120), "all of it");
        assert_eq!(of([300, 5, 3, 4], 200)[0], Some(200 - 9 - 11 - 7 - 3), "all there is");
        for width in 0..130 {
            for longest in [[5, 5, 3, 4], [120, 14, 3, 4], [0, 0, 0, 0]] {
                let wide = of(longest, width);
                let taken = wide.iter().flatten().map(|w| w + 1).sum::<u16>().saturating_sub(1);
                assert!(taken <= width, "{width}: {wide:?}");
                let cut = wide.iter().zip(&SOME).zip(longest);
                let cut = cut.filter(|((w, c), most)| c.2 && w.is_some_and(|w| w < *most)).count();
                assert!(cut == 0 || width < 16, "{width}: {wide:?}");
            }
        }
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!(clip("climate", 7), "climate");
        assert_eq!(clip("climate", 5), "clim…");
        assert_eq!((clip("climate", 1), clip("climate", 0)), ("…".into(), String::new()));
        assert_eq!((whole("12.6", 4), whole("12.6", 3)), ("12.6".into(), "…".into()));
        let line = Line::from(vec![Span::raw("job a"), Span::raw(" 12.6 MB/s")]);
        assert_eq!(fit(line.clone(), 99).to_string(), "job a 12.6 MB/s");
        assert_eq!(fit(line.clone(), 5).to_string(), "job …");
        assert_eq!(fit(line, 8).to_string(), "job a 1…");
    }
}
