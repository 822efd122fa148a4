//! Errors for a person.

use std::fmt::Write as _;

/// An error and its causes in one sentence. A cause that the text before it already ends with is not
/// said twice.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            let _ = write!(text, ": {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn causes_are_said_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read x: {source}")]
        struct Doubled {
            source: std::io::Error,
        }
        let io = || std::io::Error::from_raw_os_error(2);
        let doubled = anyhow::Error::new(Doubled { source: io() }).context("no secret");
        assert_eq!(sentence(&doubled), "no secret: cannot read x: No such file or directory (os error 2)");
        let plain = Err::<(), _>(io()).context("cannot open y").unwrap_err();
        assert_eq!(sentence(&plain), "cannot open y: No such file or directory (os error 2)");
    }
}
