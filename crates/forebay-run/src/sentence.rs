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
        #[derive(Debug)]
        struct Doubled(std::io::Error);
        impl std::fmt::Display for Doubled {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "cannot read x: {}", self.0)
            }
        }
        impl std::error::Error for Doubled {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let io = || std::io::Error::from_raw_os_error(2);
        let doubled = anyhow::Error::new(Doubled(io())).context("no secret");
        assert_eq!(sentence(&doubled), "no secret: cannot read x: No such file or directory (os error 2)");
        let plain = Err::<(), _>(io()).context("cannot open y").unwrap_err();
        assert_eq!(sentence(&plain), "cannot open y: No such file or directory (os error 2)");
    }
}
