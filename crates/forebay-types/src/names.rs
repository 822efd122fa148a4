//! Characters in names that a person cannot see.

use std::borrow::Cow;

/// Whether a character has no shape of its own and may turn round, hide or end what stands beside it: control
/// characters, marks of direction, what has no width, separators of lines. A name with one of them is not what it looks
/// like in a terminal, on the page or in a log.
pub fn unseen(c: char) -> bool {
    c.is_control()
        || matches!(u32::from(c),
            0xAD | 0x61C | 0x115F..=0x1160 | 0x17B4..=0x17B5 | 0x180B..=0x180F | 0x200B..=0x200F
            | 0x2028..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB
            | 0xE0000..=0xE0FFF)
}

/// What is wrong with a name that has such a character.
///
/// # Errors
/// If it has one: the first, by its number.
pub fn seen(name: &str) -> Result<(), String> {
    match name.chars().find(|c| unseen(*c)) {
        Some(c) if c.is_control() => Err("has control characters".to_owned()),
        Some(c) => Err(format!("has a character that is not seen (U+{:04X})", u32::from(c))),
        None => Ok(()),
    }
}

/// Text with such characters as their numbers (`<U+202E>`), but for the ends of its lines and tabs: it may have names in it
/// that others have made.
pub fn shown(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| unseen(c) && !matches!(c, '\n' | '\t');
    if !text.chars().any(hidden) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if hidden(c) {
            out.push_str(&format!("<U+{:04X}>", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_named_by_its_number() {
        for plain in ["", "lammps-17", "a b 🦀", "日本語", "عربي", "naïve", "שלום", "❤\u{FE0F}"]
        {
            assert_eq!((seen(plain), shown(plain)), (Ok(()), plain.into()));
        }
        assert_eq!(seen("a\u{1b}[2J"), Err("has control characters".into()));
        assert_eq!(seen("a\u{202e}b").unwrap_err(), "has a character that is not seen (U+202E)");
        for c in
            ['\u{200b}', '\u{200f}', '\u{2066}', '\u{2069}', '\u{feff}', '\u{ad}', '\u{2028}', '\u{e0041}']
        {
            assert!(unseen(c) && seen(&format!("x{c}y")).is_err(), "{c:?}");
        }
        assert_eq!(shown("a\u{202e}b\n\tc\u{1b}"), "a<U+202E>b\n\tc<U+001B>");
    }
}
